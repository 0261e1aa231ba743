# SPDX-License-Identifier: Apache-2.0
"""Saved data returns to the cache, but never replaces newer data."""

import contextlib
import errno
import random
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.kernel import stack
from tests.kernel.disk import SECTOR, Disk, pattern, read_and_write
from tests.kernel.stack import Mapped
from vcache_agent.netlink.client import Client
from vcache_agent.netlink.errors import NetlinkError
from vcache_agent.netlink.spec import FILL_BLOCKS_MAX, CachedRun, Mode

BLOCK = 8
TAG = 7
MIB = 1 << 20


@pytest.fixture
def cache() -> Iterator[str]:
    """Give an empty cache device of 64 MiB."""
    with stack.null_blk(discard=True) as path:
        yield path


def save(client: Client, device: Mapped, disk: Disk, sectors: int,
         number: int = TAG) -> tuple[int, bytes]:
    """Save the first sectors of a device; return the token and the data."""
    token = client.saved(device.number, number, [CachedRun(0, sectors, 0)], begin=True)
    data = disk.read(0, sectors)
    disk.flush()
    return token, data


def drop(client: Client, device: Mapped, number: int = TAG) -> None:
    assert stack.wait_until(lambda: client.cache_drop(device.number, number) == (0, 0))


def fill(client: Client, device: Mapped, token: int, data: bytes, heat: int = 0,
         number: int = TAG) -> None:
    """Put the data of the first sectors into the cache, and wait until it is there."""
    size = FILL_BLOCKS_MAX * 4096

    left = list(range(0, len(data), size))

    def sent() -> bool:
        at = left[0]
        try:
            client.fill(device.number, number, token, at // SECTOR, heat, data[at:at + size])
        except NetlinkError as error:
            if error.errno not in (errno.EBUSY, errno.ENOSPC):
                raise
            return False
        left.pop(0)
        return True

    while left:
        assert stack.wait_until(sent)
    assert stack.wait_until(
        lambda: not client.tag(device.number, number).prefetch_waiting_bytes)


def cached(client: Client, device: Mapped, number: int = TAG) -> dict[int, int]:
    """Return the cached blocks of a tag, and their heat."""
    return {sector // BLOCK: run.heat for run in client.cached(device.number, number)
            for sector in range(run.start, run.start + run.len, BLOCK)}


@pytest.mark.parametrize("mode", ["writeback", "writethrough"])
def test_what_was_saved_returns_without_the_origin(
        cache: str, origin: str, client: Client, mode: str) -> None:
    data = pattern(1, 2048)
    with (stack.pool(cache) as pool, stack.cached(origin, pool, mode=mode) as device,
          Disk(device.path) as disk, Disk(origin) as below):
        disk.write(0, data)
        disk.flush()
        if mode == "writeback":
            device.message("drain")
            assert stack.wait_until(lambda: stack.cache_status(device).state == "clean")
        token, saved = save(client, device, disk, 2048)
        assert token == client.saved(device.number, TAG) != 0
        assert saved == data
        drop(client, device)
        # Nobody may do this; so it shows where data comes from.
        below.write(0, pattern(2, 2048))
        before = client.tag(device.number, TAG)

        def filled() -> bool:
            # What the flush has made durable leaves the buffer a moment later.
            fill(client, device, token, saved, 6)
            return cached(client, device) == dict.fromkeys(range(256), 3)

        assert stack.wait_until(filled)
        assert disk.read(0, 2048) == data
        now = client.tag(device.number, TAG)
        assert now.stats.cache_hit_bytes - before.stats.cache_hit_bytes == MIB
        assert now.prefetched_bytes - before.prefetched_bytes == MIB
        assert stack.cache_status(device).dirty == 0
        drop(client, device)
        assert disk.read(0, 2048) == pattern(2, 2048)


def _buffered(client: Client, device: Mapped, disk: Disk) -> None:
    disk.write(64, pattern(8, 8))


def _written_and_gone(client: Client, device: Mapped, disk: Disk) -> None:
    """Neither the buffer nor the cache has it."""
    client.tag_set(device.number, TAG, mode=Mode.FLUSH_ONLY)
    disk.write(64, pattern(8, 8))
    disk.flush()
    client.tag_set(device.number, TAG, mode=Mode.WRITEBACK)


def _destaged(client: Client, device: Mapped, disk: Disk) -> None:
    disk.write(64, pattern(8, 8))
    disk.flush()
    device.message("drain")
    assert stack.wait_until(lambda: stack.cache_status(device).state == "clean")
    drop(client, device)


def _a_sector(client: Client, device: Mapped, disk: Disk) -> None:
    disk.write(66, pattern(8, 8)[2 * SECTOR:3 * SECTOR], fua=True)


@pytest.mark.parametrize("change", [_buffered, _written_and_gone, _destaged, _a_sector])
def test_what_was_written_since_does_not_return(
        cache: str, origin: str, client: Client,
        change: Callable[[Client, Mapped, Disk], None]) -> None:
    with Disk(origin) as below:
        below.write(0, pattern(1, 512))
    with (stack.pool(cache) as pool, stack.cached(origin, pool) as device,
          Disk(device.path) as disk):
        token, saved = save(client, device, disk, 512)
        change(client, device, disk)
        fill(client, device, token, saved)
        content = bytearray(saved)
        content[66 * SECTOR:67 * SECTOR] = pattern(8, 8)[2 * SECTOR:3 * SECTOR]
        if change is not _a_sector:
            content[64 * SECTOR:72 * SECTOR] = pattern(8, 8)
        assert disk.read(0, 512) == bytes(content)
        assert set(range(64)) - {8} <= cached(client, device).keys()
        disk.flush()
        device.message("drain")
        assert stack.wait_until(lambda: stack.cache_status(device).state == "clean")
        drop(client, device)
        assert disk.read(0, 512) == bytes(content)


def test_large_writes_and_discards_count(client: Client, cache: str) -> None:
    with (stack.null_blk(64, discard=True) as origin, stack.pool(cache) as pool,
          stack.cached(origin, pool) as device, Disk(device.path) as disk):
        disk.write(0, pattern(1, 8192))
        disk.flush()
        device.message("drain")
        assert stack.wait_until(lambda: stack.cache_status(device).state == "clean")
        token, saved = save(client, device, disk, 8192)
        disk.write(0, pattern(2, 2048))  # past the buffer
        disk.flush()
        disk.discard(4096, 2048)
        disk.flush()
        device.message("drain")
        assert stack.wait_until(lambda: stack.cache_status(device).state == "clean")
        drop(client, device)
        expected = pattern(2, 2048) + saved[MIB:2 * MIB] + bytes(MIB) + saved[3 * MIB:]
        fill(client, device, token, saved)
        assert cached(client, device).keys() == {*range(256, 512), *range(768, 1024)}
        assert disk.read(0, 8192) == expected


def test_a_session_ends_with_the_next_and_with_the_device(
        cache: str, origin: str, client: Client) -> None:
    def refused(device: Mapped, token: int, data: bytes) -> None:
        with pytest.raises(NetlinkError, match="not known any more") as caught:
            client.fill(device.number, TAG, token, 0, 0, data)
        assert caught.value.errno == errno.ESTALE

    with stack.pool(cache) as pool:
        with stack.cached(origin, pool) as device, Disk(device.path) as disk:
            refused(device, 0, bytes(4096))
            assert client.saved(device.number, TAG) == 0
            with pytest.raises(NetlinkError, match="there is no session"):
                client.saved(device.number, TAG, [CachedRun(0, 8, 0)])
            first, data = save(client, device, disk, 64)
            # A suspend alone changes nothing.
            device.suspend()
            device.resume()
            assert client.saved(device.number, TAG) == first
            second = client.saved(device.number, TAG, [CachedRun(64, 64, 0)], begin=True)
            assert first != second
            refused(device, first, data[:4096])
            # The blocks of the first session are not in the second one.
            more = disk.read(64, 64)
            drop(client, device)
            fill(client, device, second, data + more)
            assert cached(client, device).keys() == set(range(8, 16))
            assert client.saved(device.number, TAG, begin=True) == 0
            refused(device, second, data[:4096])
            third, _ = save(client, device, disk, 64)
        with stack.cached(origin, pool) as device:
            assert client.saved(device.number, TAG) == 0
            refused(device, third, data[:4096])


def test_blocks_belong_to_the_tag_that_named_them_last(
        cache: str, origin: str, client: Client) -> None:
    """Two instances whose images had the same blocks, one after the other."""
    with (stack.pool(cache) as pool, stack.cached(origin, pool, scope="filesystem") as device,
          Disk(device.path) as disk):
        for number in (1, 2):
            client.tag_set(device.number, number)
        first, old = save(client, device, disk, 128, 1)
        disk.write(0, pattern(9, 128))
        disk.flush()
        second, new = save(client, device, disk, 128, 2)
        device.message("drain")
        assert stack.wait_until(lambda: stack.cache_status(device).state == "clean")
        drop(client, device, 0)
        fill(client, device, first, old, number=1)
        assert not cached(client, device, 1)
        fill(client, device, second, new, number=2)
        assert cached(client, device, 2).keys() == set(range(16))
        # The end of one session leaves the other alone.
        client.saved(device.number, 1, begin=True)
        drop(client, device, 2)
        fill(client, device, second, new, number=2)
        assert cached(client, device, 2).keys() == set(range(16))
        assert disk.read(0, 128) == pattern(9, 128)


@pytest.mark.parametrize(("start", "heat", "data", "says"), [
    (0, 0, b"", "1 to 15 whole 4 KiB blocks"), (0, 0, bytes(100), "1 to 15 whole 4 KiB blocks"),
    (0, 0, bytes(512), "1 to 15 whole 4 KiB blocks"),
    (4, 0, bytes(4096), "first sector of a 4 KiB block"),
    (131072, 0, bytes(4096), "on the device"), (131064, 0, bytes(8192), "on the device"),
    (2**64 - 8, 0, bytes(4096), "on the device")])
def test_bad_fills_are_refused(cache: str, origin: str, client: Client, start: int, heat: int,
                               data: bytes, says: str) -> None:
    with (stack.pool(cache) as pool, stack.cached(origin, pool) as device,
          Disk(device.path) as disk):
        token, _ = save(client, device, disk, 64)
        with pytest.raises(NetlinkError, match=says) as caught:
            client.fill(device.number, TAG, token, start, heat, data)
        assert caught.value.errno == errno.EINVAL
        assert client.tag(device.number, TAG).prefetched_bytes == 0


@pytest.mark.parametrize(("runs", "says"), [
    ([(0, 7)], "whole 4 KiB blocks"), ([(8, 8), (0, 8)], "sorted and disjoint"),
    ([(131064, 16)], "on the device"), ([(at * 8, 8) for at in range(2049)], "1 to 2048")])
def test_bad_sessions_are_refused(cache: str, origin: str, client: Client,
                                  runs: list[tuple[int, int]], says: str) -> None:
    with stack.pool(cache) as pool, stack.cached(origin, pool) as device:
        with pytest.raises(NetlinkError, match=says):
            client.saved(device.number, TAG, [CachedRun(*run, 0) for run in runs], begin=True)
        assert client.saved(device.number, TAG) == 0


@pytest.mark.parametrize("mode", ["writeback", "writethrough"])
def test_reads_are_never_old_while_data_is_saved_and_returns(
        cache: str, mode: str, client: Client) -> None:
    """With writes, destage and other reads at the same time."""
    stop = threading.Event()
    size = 2048
    filled: list[int] = []

    def stir(device: Mapped) -> None:
        with Client() as mine, Disk(device.path) as disk:
            while not stop.is_set():
                token, data = save(mine, device, disk, size)
                mine.cache_drop(device.number, TAG)
                with contextlib.suppress(NetlinkError):
                    for at in range(0, len(data), FILL_BLOCKS_MAX * 4096):
                        mine.fill(device.number, TAG, token, at // SECTOR, 1,
                                  data[at:at + FILL_BLOCKS_MAX * 4096])
                filled.append(mine.tag(device.number, TAG).prefetched_bytes)

    rng = random.Random(5)  # noqa: S311 - test data
    content = bytearray(size * SECTOR)
    with (stack.null_blk(64, discard=True, completion_us=200) as origin,
          stack.pool(cache, chunk_kib=64) as pool,
          stack.cached(origin, pool, mode=mode, age_ms=50) as device,
          Disk(device.path) as disk):
        disk.write(0, bytes(content))
        if mode == "writeback":
            device.message("drain")
        thread = threading.Thread(target=stir, args=(device,))
        thread.start()
        try:
            read_and_write(disk, content, rng)
        finally:
            stop.set()
            thread.join()
        assert filled[-1] > 0
        assert disk.read(0, size) == bytes(content)
