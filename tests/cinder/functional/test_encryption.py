# SPDX-License-Identifier: Apache-2.0
"""Encryption above a volume, as a compute host does it for an encrypted volume type."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.box.inside import run
from tests.box.steps import at_end
from tests.cinder.functional import lab
from tests.cinder.functional.test_life import (
    MIB,
    SIZE,
    Content,
    check_cached,
    name_of,
    nothing_is_left,
    path_of,
)

assert nothing_is_left

KEY = Path("/run/luks-key")


@contextlib.contextmanager
def opened(path: str) -> Iterator[str]:
    """Open an encrypted volume; the value is the path of its content."""
    run("cryptsetup", "open", "--key-file", str(KEY), path, "opened")
    with at_end(run, "cryptsetup", "close", "opened"):
        yield "/dev/mapper/opened"


def test_the_cache_has_encrypted_data_only(cloud: Any) -> None:
    cloud.kind("fast", mode="writeback")
    volume = cloud.make("fast")
    attachment, connection = cloud.attach(volume)
    path, content, letter = connection["device_path"], Content(), b"a"
    KEY.write_bytes(b"secret")
    run("cryptsetup", "luksFormat", "--batch-mode", "--key-file", str(KEY), "--pbkdf", "pbkdf2",
        "--pbkdf-force-iterations", "1000", path)
    with opened(path) as inner:
        for place in range(8):
            content.write(inner, place * MIB, letter)
        assert lab.table(name_of(volume)) == "vcache"
        snapshot = cloud.snapshot(volume)
        check_cached(volume, "writeback")
        content.write(inner, 8 * MIB, letter)
        content.check(inner)
    # LUKS has a header of 16 MiB.
    found = b"".join(lab.read(path, offset * MIB, SIZE) for offset in range(16, 25))
    assert letter * 16 not in found
    assert letter * 16 not in lab.read(str(lab.DISKS / "virtio-cache"), 0, 64 * MIB)
    cloud.detach(volume, attachment)
    attachment, connection = cloud.attach(volume)
    with opened(path_of(name_of(volume))) as inner:
        content.check(inner)
    cloud.detach(volume, attachment)
    cloud.delete_snapshot(snapshot)
    cloud.delete(volume)
