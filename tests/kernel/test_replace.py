# SPDX-License-Identifier: Apache-2.0
"""Replace the module under a mounted file system and a device that is written to."""

import os
from pathlib import Path

from tests.box import inside
from tests.kernel import stack
from tests.kernel.dm import names
from tests.kernel.stack import Mapped, mapped, null_blk, vcache_table
from tests.kernel.test_attach import (
    POOL,
    FileWriter,
    hidden_names,
    read_from_device,
    vcache,
    volume,
    writing,
)
from tests.kernel.test_filesystems import check_filesystem, make_filesystem, mounted

__all__ = ["volume"]  # a fixture


def loads() -> int:
    """Return an address that each load of the module has for itself."""
    return Path("/sys/module/dm_vcache/sections/.text").stat().st_ino


def module() -> str:
    """Return the module's file."""
    return os.environ.get("VCACHE_MODULE") or str(inside.module_path())


def test_the_module_is_replaced_under_devices_in_use(volume: Mapped, tmp_path: Path) -> None:
    make_filesystem("ext4", volume.path)
    first = loads()
    with null_blk(discard=True) as cache, null_blk(16) as disk:
        vcache(tmp_path, "pool", "create", POOL, cache)
        with mapped(vcache_table(disk, age_ms=None), stack.unique("alone")) as alone, \
                writing(alone.path) as other, mounted(volume, "ext4") as folder:
            vcache(tmp_path, "attach", volume.path, "--pool", POOL, "--filesystem")
            before = {name: stack.run("dmsetup", "table", name) for name in names()}
            writer = FileWriter(folder)
            writer.start()
            writer.goes_on()
            said = vcache(tmp_path, "module", "replace", "--file", module())
            assert "1 pools and 2 devices use the new one" in said
            assert loads() != first
            assert {name: stack.run("dmsetup", "table", name) for name in names()} == before
            writer.goes_on()
            other.goes_on()
            writer.finish()
            for path, data in writer.files.items():
                assert read_from_device(path) == data
            vcache(tmp_path, "detach", volume.path)
        vcache(tmp_path, "pool", "remove", POOL)
    assert hidden_names() == []
    check_filesystem("ext4", volume.path)


def test_a_module_that_does_not_load_leaves_the_devices_without_caches(
        volume: Mapped, tmp_path: Path) -> None:
    plain = volume.table()
    wrong = tmp_path / "wrong.ko"
    wrong.write_bytes(b"not a module")
    with null_blk(discard=True) as cache:
        vcache(tmp_path, "pool", "create", POOL, cache)
        vcache(tmp_path, "attach", volume.path, "--pool", POOL, "--tag", "7")
        attached = volume.table()
        with writing(volume.path) as writer:
            said = vcache(tmp_path, "module", "replace", "--file", str(wrong), status=1)
            assert f"devices that continue without their cache: {volume.name}" in said
            assert volume.table() == plain
            writer.goes_on()
            vcache(tmp_path, "module", "replace", "--file", module())
            assert volume.table() == attached
            writer.goes_on()
        vcache(tmp_path, "detach", volume.path)
        vcache(tmp_path, "pool", "remove", POOL)
