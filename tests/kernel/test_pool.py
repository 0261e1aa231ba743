# SPDX-License-Identifier: Apache-2.0
"""Data integrity of a pool and its volumes, through buffer, cache and origin."""

import contextlib
import os
import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.box.steps import at_end
from tests.kernel import dm, stack
from tests.kernel.conftest import Cgroup, KernelLog
from tests.kernel.disk import Disk, pattern
from vcache_agent.model import Extent
from vcache_agent.netlink.client import Client
from vcache_agent.netlink.errors import NetlinkError
from vcache_agent.netlink.spec import Mode


@pytest.fixture
def cache() -> Iterator[str]:
    """Give an empty cache device of 64 MiB."""
    with stack.null_blk(discard=True) as path:
        yield path


def test_pool_is_made_and_found_again(cache: str) -> None:
    with stack.pool(cache) as pool:
        first = stack.pool_status(pool)
        assert first.state == "ok"
        assert first.chunk_sectors == 2048
        assert first.free == first.chunks == 62
        assert first.volumes == 0
        assert first.bytes_per_block <= 16
    with stack.pool(cache) as pool:
        assert stack.pool_status(pool) == first


def test_a_device_with_other_data_is_not_taken(cache: str, kmsg: KernelLog) -> None:
    with Disk(cache) as disk:
        disk.write(0, b"\1" * 512)
    with pytest.raises(dm.DmError), stack.pool(cache):
        pass
    assert "the cache device has no pool" in kmsg.read()
    with Disk(cache) as disk:
        assert disk.read(0, 1) == b"\1" * 512


def test_a_pool_that_cannot_be_loaded_can_be_when_it_is_mended(
        cache: str, kmsg: KernelLog) -> None:
    """Remains of a failed try must not prevent the next one."""
    with stack.pool(cache):
        pass
    # The first block of the chunk table, behind superblock and slots, in both copies.
    tables = [(chunk * 256 + 65) * 8 for chunk in (0, 1)]
    with Disk(cache) as disk:
        good = [disk.read(sector, 8) for sector in tables]
        for sector in tables:
            disk.write(sector, bytes(4096))
    name = stack.unique("pool")
    dm.create(name)
    with at_end(dm.remove, name):
        dm.load(name, stack.pool_table(cache))
        for _ in range(3):
            with pytest.raises(dm.DmError):
                dm.resume(name)
            assert "both copies of block 0 of the chunk table are damaged" in kmsg.read()
        with Disk(cache) as disk:
            for sector, data in zip(tables, good, strict=True):
                disk.write(sector, data)
        dm.resume(name)
        status = stack.pool_status(stack.Mapped(name))
        assert (status.state, status.free) == ("ok", 62)


def test_write_is_read_back_from_buffer_cache_and_origin(cache: str, origin: str) -> None:
    data = pattern(1, 2048)
    with stack.pool(cache) as pool, stack.cached(origin, pool) as device:
        with Disk(device.path) as disk, Disk(origin) as below:
            disk.write(8, data)
            assert disk.read(8, 2048) == data
            disk.flush()
            assert device.status()[3] == "0"
            assert disk.read(8, 2048) == data
            assert below.read(8, 2048) == bytes(len(data))
            assert stack.wait_until(lambda: stack.pool_status(pool).dirty == 0)
            assert below.read(8, 2048) == data
            assert disk.read(8, 2048) == data


@pytest.mark.quick
@pytest.mark.box
def test_data_is_there_again_with_the_device_and_with_the_pool(cache: str, origin: str) -> None:
    data = pattern(2, 512)
    with stack.pool(cache) as pool:
        with stack.cached(origin, pool) as device, Disk(device.path) as disk:
            disk.write(3, data)
        with stack.cached(origin, pool) as device, Disk(device.path) as disk:
            assert disk.read(3, 512) == data
    # Now only the cache has the data, also if it has been destaged in the meantime.
    with Disk(origin) as disk:
        disk.write(3, bytes(len(data)))
    with stack.pool(cache) as pool, stack.cached(origin, pool) as device:
        with Disk(device.path) as disk:
            assert disk.read(3, 512) == data


def test_a_record_has_no_data_of_others(cache: str, origin: str) -> None:
    """The pages of the buffer are used again, and the cache device gets whole pages."""
    secret = pattern(1, 128)
    with (stack.pool(cache) as pool, stack.cached(origin, pool) as one,
          stack.null_blk() as other, stack.cached(other, pool, 2) as two,
          Disk(one.path) as disk, Disk(two.path) as parts, Disk(cache) as raw):
        for number in range(64):
            disk.write_and_flush(0, secret)
            parts.write_and_flush(number * 8 + number % 8, pattern(2, 1))
        # The versions of the secret in the log are complete ones.
        written = raw.read(0, stack.sectors(cache))
        versions = written.count(secret[:512])
        assert 0 < versions <= 64
        for sector in range(128):
            assert written.count(secret[sector * 512:(sector + 1) * 512]) == versions


def test_a_clean_cache_is_clean_after_a_restart(cache: str, origin: str) -> None:
    with stack.pool(cache) as pool:
        with stack.cached(origin, pool) as device, Disk(device.path) as disk:
            disk.write(0, pattern(3, 4096))
            device.message("drain")
            assert stack.wait_until(lambda: stack.cache_status(device).state == "clean")
        used = stack.pool_status(pool).used
        assert used >= 2
    with stack.pool(cache) as pool, stack.cached(origin, pool) as device:
        assert stack.cache_status(device).state == "clean"
        assert stack.pool_status(pool).used == used
        with Disk(device.path) as disk:
            assert disk.read(0, 4096) == pattern(3, 4096)


def test_what_went_with_others_from_the_open_chunk_is_clean_after_a_restart(origin: str) -> None:
    """Adjacent blocks of the origin are destaged in one request, from any chunk."""
    with stack.null_blk(8) as cache:
        with stack.pool(cache, chunk_kib=64) as pool, stack.cached(origin, pool) as device, \
                Disk(device.path) as disk:
            # Once a quarter of the chunks is dirty, they are destaged together with adjacent
            # blocks. The open chunk is destaged alone after two seconds without writes.
            for part in range(200):
                disk.write(part * 32, pattern(part, 32), fua=True)
                if stack.cache_status(device).destaged and \
                        stack.wait_until(lambda: stack.cache_status(device).dirty == 0, 1.5):
                    break
            else:
                pytest.fail("nothing was destaged")
        with stack.pool(cache) as pool, stack.cached(origin, pool) as device:
            # Data that is dirty after a start is destaged soon.
            assert not stack.wait_until(lambda: stack.cache_status(device).destaged > 0, 2)
            assert stack.cache_status(device).state == "clean"


def test_little_now_and_then_reaches_the_origin_from_one_chunk(cache: str, origin: str) -> None:
    """A file system that commits every few seconds must not use a chunk for each commit."""
    with stack.pool(cache) as pool, stack.cached(origin, pool) as device:
        with Disk(device.path) as disk, Disk(origin) as below:
            for part in range(5):
                disk.write(part * 64, pattern(part, 8), fua=True)
                assert stack.cache_status(device).dirty == 8
                assert stack.wait_until(lambda: stack.cache_status(device).dirty == 0, 10)
                assert stack.pool_status(pool).dirty == 0
                # Destage pauses, and checks once more, before it leaves the log alone.
                time.sleep(0.5)
                assert below.read(part * 64, 8) == pattern(part, 8)
        assert stack.pool_status(pool).used == 1
        assert stack.cache_status(device).destaged == 5 * 8
    # Clean data stays clean, in any chunk: a restart has no work to do.
    with stack.pool(cache) as pool, stack.cached(origin, pool) as device:
        assert stack.cache_status(device).state == "clean"
        assert stack.pool_status(pool).dirty == 0


def test_many_that_write_little_leave_room(origin: str) -> None:
    """Each has an open chunk with only clean data; it is closed when no other can be reclaimed."""
    with contextlib.ExitStack() as after:
        cache = after.enter_context(stack.null_blk(2))
        pool = after.enter_context(stack.pool(cache, chunk_kib=64))
        devices = []
        for volume in range(1, 17):
            below = after.enter_context(
                stack.mapped(f"0 4096 linear {origin} {volume * 4096}"))
            device = after.enter_context(
                stack.cached(below.path, pool, volume, f"volume {volume}", age_ms=50))
            devices.append(device)
        *little, last = devices
        for device in little:
            with Disk(device.path) as disk:
                disk.write(0, pattern(1, 8), fua=True)
        assert stack.wait_until(lambda: stack.pool_status(pool).dirty == 0)
        assert stack.pool_status(pool).chunks < 16 + stack.pool_status(pool).volumes
        with Disk(last.path) as disk:
            for part in range(20):
                disk.write(part * 128, pattern(part, 128))
            assert stack.wait_until(lambda: last.status()[3] == "0", 10)
            for part in range(20):
                assert disk.read(part * 128, 128) == pattern(part, 128)


@pytest.mark.parametrize("mode", ["writeback", "writethrough"])
@pytest.mark.parametrize("seed", [1, 2])
def test_random_io_is_as_on_a_plain_disk(cache: str, origin: str, mode: str, seed: int) -> None:
    """Requests of all sizes, in a range larger than the cache, compared with an array."""
    rng = random.Random(seed)
    size = 3 * 16384  # 24 MiB over a cache of 8
    written = 0
    with stack.mapped(f"0 {20 * 2048} linear {cache} 0") as small, \
            stack.pool(small.path, chunk_kib=64) as pool, \
            stack.cached(origin, pool, mode=mode, age_ms=50) as device, \
            Disk(device.path) as disk:
        expected = bytearray(size * 512)
        for step in range(3000):
            start = rng.randrange(size)
            length = min(rng.choice((1, 3, 8, 8, 8, 64, 500)), size - start)
            choice = rng.random()
            at, end = start * 512, (start + length) * 512
            if choice < 0.55:
                data = pattern(step + 10, length)
                expected[at:end] = data
                disk.write(start, data, fua=choice < 0.05)
                written += length
            elif choice < 0.65:
                disk.flush()
            elif choice < 0.68:
                disk.zero_out(start, length)
                expected[at:end] = bytes(end - at)
            else:
                assert disk.read(start, length) == expected[at:end], (step, start, length)
        assert disk.read(0, size) == expected
        assert written > 2 * 20 * 2048
        status = stack.pool_status(pool)
        # Each of the two logs, the tag's and the host's, has at most one spare chunk.
        assert 0 <= status.chunks - status.used - status.free <= 2
        device.message("drain")
        assert stack.wait_until(lambda: stack.cache_status(device).dirty == 0)
        with Disk(origin) as below:
            assert below.read(0, size) == expected


def test_a_discard_drops_what_is_cached(cache: str, origin: str) -> None:
    data = pattern(4, 64)
    with stack.pool(cache) as pool:
        with stack.cached(origin, pool) as device, Disk(device.path) as disk:
            disk.write(0, data)
            disk.flush()
            disk.discard(8, 16)
            assert disk.read(0, 64) == data[:8 * 512] + bytes(16 * 512) + data[24 * 512:]
        with stack.cached(origin, pool):
            pass
    # Its record is found as well.
    with stack.pool(cache) as pool, stack.cached(origin, pool) as device:
        with Disk(device.path) as disk:
            assert disk.read(0, 64) == data[:8 * 512] + bytes(16 * 512) + data[24 * 512:]


def test_a_discard_leaves_parts_of_blocks_alone(cache: str, origin: str) -> None:
    """In the cache and on the origin; otherwise they would change when the cache drops them."""
    data = pattern(4, 64)
    kept = data[:16 * 512] + bytes(8 * 512) + data[24 * 512:]
    with (stack.pool(cache) as pool, stack.cached(origin, pool) as device,
          Disk(device.path) as disk):
        disk.write(0, data)
        disk.flush()
        device.message("drain")
        assert stack.wait_until(lambda: stack.cache_status(device).dirty == 0)
        disk.discard(11, 17)
        disk.discard(41, 6)
        for path in (device.path, origin):
            with Disk(path, readonly=True) as there:
                assert there.read(0, 64) == kept, path


def test_neighbours_reach_the_origin_in_one_request(cache: str, origin: str) -> None:
    """Blocks are written in any order, and so are in any chunk."""
    order = list(range(4096))
    random.Random(5).shuffle(order)
    counters = f"/sys/class/block/{os.path.basename(origin)}/stat"
    with stack.pool(cache, chunk_kib=256) as pool, stack.cached(origin, pool) as device:
        with Disk(device.path) as disk:
            for number, block in enumerate(order):
                disk.write(block * 8, pattern(block, 8), fua=number % 16 == 0)
            disk.flush()
        before = int(Path(counters).read_text().split()[4])
        device.message("drain")
        assert stack.wait_until(lambda: stack.cache_status(device).state == "clean")
        requests = int(Path(counters).read_text().split()[4]) - before
        with Disk(origin) as raw:
            for block in order:
                assert raw.read(block * 8, 8) == pattern(block, 8)
    # Data destaged between the writes was written in pieces.
    assert 0 < requests < 600


def test_what_precedes_a_block_on_the_origin_goes_with_it() -> None:
    """The oldest chunks have the last block of each run, the other blocks are in later chunks."""
    runs, length = 480, 16
    last = [run * (length + 1) + length - 1 for run in range(runs)]
    others = [block - at for block in last for at in range(length - 1, 0, -1)]
    with stack.null_blk(256) as cache, stack.null_blk(64) as origin, \
            stack.pool(cache, chunk_kib=256) as pool, stack.cached(origin, pool) as device, \
            Disk(device.path) as disk:
        for block in [*last, *others]:
            disk.write(block * 8, pattern(block, 8))
        disk.flush()
        device.message("drain")
        assert stack.wait_until(lambda: stack.cache_status(device).state == "clean")
        stat = Path(f"/sys/class/block/{os.path.basename(origin)}/stat").read_text()
        requests = int(stat.split()[4])
        with Disk(origin) as raw:
            for block in [*last, *others]:
                assert raw.read(block * 8, 8) == pattern(block, 8)
    # The end of a window cuts a run in two.
    assert runs <= requests < runs * 4 // 3, requests


def test_what_is_overwritten_soon_is_not_destaged_at_once() -> None:
    """A tag with a quarter to three quarters of its share dirty is destaged slowly."""
    write_ms = 150
    with stack.null_blk(16) as cache, \
            stack.null_blk(8, completion_us=write_ms * 1000) as origin, \
            stack.pool(cache, chunk_kib=64) as pool, \
            stack.cached(origin, pool) as device, Disk(device.path) as disk:
        counters = Path(f"/sys/class/block/{os.path.basename(origin)}/stat")
        start = time.monotonic()
        number = 0
        # The same four MiB repeatedly, which is more than a quarter.
        while time.monotonic() - start < 8 or number < 48:
            disk.write(number % 16 * 512, pattern(number, 512), fua=True)
            number += 1
        spent = (time.monotonic() - start) * 1000
        assert stack.cache_status(device).destaged > 0
        # Writes; other processes may read a new disk. Not their measured time: on a busy
        # machine, a write takes longer than the disk needs.
        assert int(counters.read_text().split()[4]) * write_ms < spent / 3
        # Without further writes it is destaged at full speed.
        assert stack.wait_until(lambda: stack.cache_status(device).state == "clean", 60)
        with Disk(origin) as raw:
            for part in range(16):
                last = max(n for n in range(number) if n % 16 == part)
                assert raw.read(part * 512, 512) == pattern(last, 512)


def test_volumes_are_apart(cache: str, origin: str) -> None:
    with stack.null_blk() as second, stack.pool(cache) as pool:
        with stack.cached(origin, pool, 1) as a, stack.cached(second, pool, 4294967295) as b, \
                Disk(a.path) as of_a, Disk(b.path) as of_b:
            of_a.write(0, pattern(5, 64), fua=True)
            of_b.write(0, pattern(6, 32), fua=True)
            assert of_a.read(0, 64) == pattern(5, 64)
            assert of_b.read(0, 64) == pattern(6, 32) + bytes(32 * 512)
            assert stack.pool_status(pool).volumes == 2
        pool.message("drop 1 force")
        assert stack.pool_status(pool).volumes == 1
        with stack.cached(second, pool, 4294967295) as b, Disk(b.path) as of_b:
            assert of_b.read(0, 32) == pattern(6, 32)
        with stack.cached(origin, pool, 1) as a, Disk(a.path) as of_a:
            assert of_a.read(0, 64) == bytes(64 * 512)


def test_a_volume_is_used_once(cache: str, origin: str, kmsg: KernelLog) -> None:
    with stack.null_blk() as second, stack.pool(cache) as pool, stack.cached(origin, pool):
        with pytest.raises(dm.DmError), stack.cached(second, pool):
            pass
        assert "is in use" in kmsg.read()
        with pytest.raises(dm.DmError):
            pool.message("drop 1")


def test_dirty_data_is_not_dropped_unasked(cache: str, origin: str, kmsg: KernelLog) -> None:
    with stack.pool(cache) as pool:
        with stack.cached(origin, pool) as device, Disk(device.path) as disk:
            disk.write(0, pattern(7, 8))
        with pytest.raises(dm.DmError):
            pool.message("drop 1")
        assert "dirty data in the cache" in kmsg.read()
        assert stack.pool_status(pool).volumes == 1


def test_the_mode_changes_when_all_is_drained(cache: str, origin: str, kmsg: KernelLog) -> None:
    data = pattern(8, 512)
    with stack.pool(cache) as pool, stack.cached(origin, pool) as device:
        with Disk(device.path) as disk:
            disk.write(0, data)
            disk.flush()
        with pytest.raises(dm.DmError):
            device.load(stack.cached_table(origin, pool, mode="writethrough"))
        assert "send the message 'drain' first" in kmsg.read()
        device.message("drain")
        for mode in ("writethrough", "writeback", "none", "flush-only", "writeback"):
            table = (stack.cached_table(origin, pool, mode=mode) if mode.startswith("write")
                     else f"0 {stack.sectors(origin)} vcache {mode} {origin} volume 7")
            if mode != "writeback":
                assert stack.wait_until(lambda: "cache" not in device.status() or
                                        stack.cache_status(device).dirty == 0)
            device.swap(table)
            assert device.status()[0] == mode
            with Disk(device.path) as disk:
                assert disk.read(0, 512) == data
                data = pattern(9, 512) if data == pattern(8, 512) else pattern(8, 512)
                disk.write(0, data, fua=True)
                assert disk.read(0, 512) == data
            if mode == "writeback":
                device.message("drain")


def test_a_volume_grows_but_does_not_shrink(cache: str, origin: str, kmsg: KernelLog) -> None:
    whole = stack.sectors(origin)
    with stack.pool(cache) as pool:
        line = stack.cached_table(origin, pool)
        half = line.replace(f"0 {whole} ", f"0 {whole // 2} ", 1)
        with stack.mapped(half) as device:
            with Disk(device.path) as disk:
                disk.write(0, pattern(1, 64), fua=True)
            device.swap(line)
            with Disk(device.path) as disk:
                disk.write(whole - 64, pattern(2, 64), fua=True)
                with pytest.raises(dm.DmError):
                    device.load(half)
                assert "volumes cannot shrink" in kmsg.read()
                assert disk.read(0, 64) == pattern(1, 64)
                assert disk.read(whole - 64, 64) == pattern(2, 64)
        with pytest.raises(dm.DmError), stack.mapped(half):
            pass


def test_reads_of_copies_come_from_the_cache(cache: str, origin: str) -> None:
    with stack.pool(cache) as pool, stack.cached(origin, pool, mode="writethrough") as device:
        with Disk(device.path) as disk, Disk(origin) as below:
            disk.write(0, pattern(1, 64), fua=True)
            disk.write(64, pattern(2, 64))
            disk.flush()
            assert below.read(64, 64) == pattern(2, 64)
            assert stack.cache_status(device).state == "clean"
            # Only a read that bypasses the cache sees the old data.
            below.write(64, pattern(3, 64))
            assert disk.read(64, 64) == pattern(2, 64)
            assert disk.read(0, 64) == pattern(1, 64)


def test_tags_of_one_device_have_modes_of_their_own(cache: str, origin: str,
                                                    client: Client) -> None:
    """On a device in writeback mode, a tag can be in writethrough or flush-only mode."""
    with stack.pool(cache) as pool, stack.cached(origin, pool) as device, \
            Disk(device.path) as disk, Disk(origin) as below:
        disk.write(0, pattern(1, 64), fua=True)
        assert below.read(0, 64) == bytes(64 * 512)

        client.tag_set(device.number, 7, mode=Mode.WRITETHROUGH)
        assert client.tag(device.number, 7).mode is Mode.WRITETHROUGH
        disk.write(8, pattern(2, 64), fua=True)
        assert below.read(8, 64) == pattern(2, 64)
        assert disk.read(0, 72) == pattern(1, 8) + pattern(2, 64)

        client.tag_set(device.number, 7, mode=Mode.FLUSH_ONLY)
        used = client.tag(device.number, 7).stats.cache_hit_bytes
        disk.write(1024, pattern(3, 64), fua=True)
        assert below.read(1024, 64) == pattern(3, 64)
        assert disk.read(1024, 64) == pattern(3, 64)
        assert client.tag(device.number, 7).stats.cache_hit_bytes == used
        # The cache knows of blocks of which it has an older version.
        disk.write(4, pattern(4, 8), fua=True)
        expected = pattern(1, 4) + pattern(4, 8) + pattern(2, 64)[4 * 512:]
        assert disk.read(0, 72) == expected
    with stack.pool(cache) as pool, stack.cached(origin, pool) as device:
        with Disk(device.path) as disk:
            assert disk.read(0, 72) == expected


@pytest.mark.parametrize("mode", [Mode.WRITETHROUGH, Mode.FLUSH_ONLY])
def test_what_a_tag_had_in_writeback_mode_is_destaged_while_it_writes(
        cache: str, origin: str, client: Client, mode: Mode) -> None:
    """Without the change of the mode, so little data would stay in the cache."""
    with stack.pool(cache) as pool, stack.cached(origin, pool) as device, \
            Disk(device.path) as disk, Disk(origin) as below:
        disk.write(0, pattern(1, 64), fua=True)

        def dirty() -> int:
            # The log is never idle.
            disk.write(4096, pattern(2, 8), fua=True)
            return client.tag(device.number, 7).cache_dirty_bytes

        end = time.monotonic() + 6
        while time.monotonic() < end:
            assert dirty() > 0
            time.sleep(0.05)
        client.tag_set(device.number, 7, mode=mode)
        assert stack.wait_until(lambda: dirty() == 0)
        assert below.read(0, 64) == pattern(1, 64)
        assert below.read(4096, 8) == pattern(2, 8)


def test_a_tag_has_no_mode_that_its_device_has_not(cache: str, origin: str,
                                                   client: Client) -> None:
    with stack.pool(cache) as pool, stack.cached(origin, pool, mode="writethrough") as device:
        with pytest.raises(NetlinkError, match="only on a writeback device"):
            client.tag_set(device.number, 7, mode=Mode.WRITEBACK)
        with pytest.raises(NetlinkError, match="mode must be"):
            client.tag_set(device.number, 7, mode=Mode.NONE)
        client.tag_set(device.number, 7, mode=Mode.WRITETHROUGH)


@pytest.mark.parametrize("goes", [False, True])
def test_what_a_removed_tag_has_is_written_whatever_its_successor_does(
        origin: str, client: Client, cgroup: Callable[[str], Cgroup], goes: bool) -> None:
    """They share a log, and free chunks in it are for both."""
    def written(seconds: float = 20) -> bool:
        return stack.wait_until(lambda: client.devices()[0].dirty_bytes == 0, seconds)

    with (stack.null_blk(8, discard=True) as cache, stack.pool(cache, chunk_kib=64) as pool,
          stack.mapped(stack.linear(origin)) as below,
          stack.cached(below.path, pool, scope="filesystem", age_ms=50) as device,
          Disk(device.path) as disk):
        group = cgroup("one")
        client.tag_set(device.number, 1, cgroups=[group.id])
        client.set_extents(device.number, 1, [Extent(0, stack.sectors(origin))])
        below.suspend(dm.NOFLUSH)
        with at_end(below.resume):
            # To the last chunk, so that all waiting data is already on its way to the log.
            turns = 0
            while written(3):
                group.run(partial(disk.write, turns * 128, pattern(turns, 128)))
                turns += 1
            assert client.tag(device.number, 1).dirty_bytes > 0
            client.tag_del(device.number, 1)
            client.tag_set(device.number, 1)
            if goes:
                client.tag_del(device.number, 1)
            # It is removed when it is found to be empty.
            time.sleep(0.5)
            assert not written(0)
        assert written()
        for turn in range(turns):
            assert disk.read(turn * 128, 128) == pattern(turn, 128)
