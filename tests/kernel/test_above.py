# SPDX-License-Identifier: Apache-2.0
"""A cache above devices whose table cannot move, and a vcache device below dm-crypt.

The kernel of User Mode Linux has neither dm-crypt nor multipath, so tests with these run in the
box. A device with a delay stands for them there.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.box.inside import run
from tests.kernel import dm as test_dm
from tests.kernel import stack
from tests.kernel.disk import SECTOR, Disk, pattern
from tests.kernel.stack import Mapped, linear, mapped, null_blk, vcache_table
from tests.kernel.test_attach import POOL, dm, killed_at, pool, silent, store
from vcache_agent import above, attach, disks
from vcache_agent.blockstack import BlockStack, NotCacheable
from vcache_agent.dm import Dm, block_number
from vcache_agent.model import Extent
from vcache_agent.netlink.client import Client
from vcache_agent.pools import PoolError
from vcache_agent.store import Store

__all__ = ["dm", "pool", "store"]

KEY = "0123456789abcdef" * 8
IN_BOX = pytest.mark.smp


def crypt(path: str, offset: int = 0) -> str:
    """Return the table of an encrypted device, which begins at a sector of a device."""
    size = stack.sectors(path) - offset
    return f"0 {size} crypt aes-xts-plain64 {KEY} 0 {path} {offset}"


@contextlib.contextmanager
def origin_of_kind(kind: str, path: str) -> Iterator[Mapped]:
    """Provide a mapped device above a disk.

    :param kind: its target
    """
    size = stack.sectors(path)
    if kind == "delay":
        with mapped(f"0 {size} delay {path} 0 0", stack.unique("delay")) as device:
            yield device
    elif kind == "crypt":
        run("modprobe", "dm-crypt")
        with mapped(crypt(path), stack.unique("crypt")) as device:
            yield device
    else:
        run("modprobe", "-a", "dm-multipath", "dm-round-robin")
        with mapped(linear(path)) as one, mapped(linear(path)) as two:
            paths = f"{one.path} 1000 {two.path} 1000"
            with mapped(f"0 {size} multipath 2 queue_mode bio 0 1 1 round-robin 0 2 1 {paths}",
                        stack.unique("mpath")) as device:
                yield device


@pytest.fixture(params=["delay", pytest.param("crypt", marks=IN_BOX),
                        pytest.param("multipath", marks=IN_BOX)])
def lower(request: pytest.FixtureRequest) -> Iterator[Mapped]:
    """Give a device that gets a cache above it."""
    with null_blk(32) as path, origin_of_kind(request.param, path) as device:
        yield device


def do_attach(dm: Dm, store: Store, lower: Mapped, **options: str) -> str:
    """Attach, and return the path of the new device."""
    above.attach_above(dm, store, lower.path, POOL, scope="volume 7",
                       **options)  # type: ignore[arg-type]
    run("dmsetup", "mknodes")
    return f"/dev/mapper/{lower.name}-vcache"


def test_written_through_the_cache_and_read_without_it(
        dm: Dm, store: Store, lower: Mapped, pool: Mapped, client: Client) -> None:
    table, data = lower.table(), pattern(5, 16384)
    with Disk(lower.path) as disk:
        disk.write(32768, data)
        disk.flush()
    path = do_attach(dm, store, lower)
    with Disk(path) as disk:
        assert disk.read(32768, 16384) == data
        disk.write(0, data)
        disk.flush()
        assert disk.read(0, 16384) == data
        (tag,) = [tag for tag in client.tags() if tag.id == 7]
        assert tag.cache_dirty_bytes + tag.dirty_bytes > 0
        attach.change_mode(dm, f"{lower.name}-vcache", "writethrough", silent)
        disk.write(16384, data)
        disk.flush()
        # In use, so it stays without a cache.
        assert "stays" in attach.detach(dm, store, f"{lower.name}-vcache", silent)
        assert disk.read(0, 16384) == data
    attach.detach(dm, store, f"{lower.name}-vcache", silent)
    assert f"{lower.name}-vcache" not in test_dm.names()
    assert lower.table() == table
    with Disk(lower.path) as disk:
        assert disk.read(0, 16384) == disk.read(16384, 16384) == data
    assert stack.pool_status(pool).volumes == 0


def test_a_device_in_use_is_refused(dm: Dm, store: Store, lower: Mapped, pool: Mapped) -> None:
    with open(lower.path, "rb"), pytest.raises(PoolError, match="in use"):
        do_attach(dm, store, lower)
    with mapped(linear(lower.path)), pytest.raises(PoolError, match="in use"):
        do_attach(dm, store, lower)
    assert f"{lower.name}-vcache" not in test_dm.names()
    do_attach(dm, store, lower)
    attach.detach(dm, store, f"{lower.name}-vcache", silent)


def test_killed_at_every_step(dm: Dm, store: Store, pool: Mapped, tmp_path: Path) -> None:
    with null_blk(32) as path, origin_of_kind("delay", path) as lower:
        def work(deadly: Dm, theirs: Store) -> None:
            above.attach_above(deadly, theirs, lower.path, POOL, scope="volume 7")

        for step in range(1, 200):
            killed = killed_at(step, work, tmp_path / "s.sqlite")
            do_attach(dm, store, lower)
            attach.detach(dm, store, f"{lower.name}-vcache", silent)
            assert f"{lower.name}-vcache" not in test_dm.names()
            if not killed:
                break
        assert 10 < step < 199


@IN_BOX
def test_a_path_of_multipath_fails_below_the_cache(dm: Dm, store: Store, pool: Mapped) -> None:
    with null_blk(32) as path, origin_of_kind("multipath", path) as lower:
        device = do_attach(dm, store, lower, mode="writethrough")
        with Disk(device) as disk:
            first = lower.table().split()[-4]
            run("dmsetup", "message", lower.name, "0", f"fail_path {first}")
            data = pattern(3, 4096)
            disk.write(0, data)
            disk.flush()
        attach.detach(dm, store, f"{lower.name}-vcache", silent)
        with Disk(path) as disk:
            assert disk.read(0, 4096) == data


@IN_BOX
def test_the_disk_below_an_encrypted_device_has_no_plain_data(
        dm: Dm, store: Store, pool: Mapped) -> None:
    data = pattern(7, 64)
    with null_blk(32) as path, origin_of_kind("crypt", path) as lower:
        device = do_attach(dm, store, lower)
        with Disk(device) as disk:
            disk.write(0, data)
            disk.flush()
        attach.detach(dm, store, f"{lower.name}-vcache", silent)
        with Disk(path) as disk:
            assert disk.read(0, 64) not in (data, bytes(64 * SECTOR))


@IN_BOX
def test_sectors_are_followed_through_an_encrypted_device(client: Client) -> None:
    run("modprobe", "dm-crypt")
    with null_blk(32) as path, mapped(vcache_table(path, "filesystem")) as below, \
            mapped(crypt(below.path, 2048)) as device:
        [found] = client.devices()
        where = disks.of_block(device.number, BlockStack([found]))
        size = stack.sectors(device.path)
        assert (where.device, where.extents) == (below.number, (Extent(2048, size),))
        with Disk(device.path) as disk:
            disk.write(800, pattern(9, 8))
            disk.flush()
        with Disk(below.path) as disk:
            assert disk.read(2048 + 800, 8) != bytes(8 * SECTOR)
            assert disk.read(800, 8) == bytes(8 * SECTOR)


def test_a_plain_disk_is_refused(dm: Dm, store: Store, pool: Mapped) -> None:
    with null_blk(32) as path:
        with pytest.raises(PoolError, match="neither a mapped device nor an RBD image"):
            above.attach_above(dm, store, path, POOL, scope="volume 7")
        number = block_number(path)
        assert number is not None
        with pytest.raises(NotCacheable, match=f"{Path(path).name} is a plain disk"):
            disks.of_block(number, BlockStack([]))
