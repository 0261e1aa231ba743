# SPDX-License-Identifier: Apache-2.0
"""List the cached blocks of a tag, drop them, and prefetch them from the list."""

import contextlib
import errno
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from tests.kernel import stack
from tests.kernel.conftest import Cgroup
from tests.kernel.disk import SECTOR, Disk, pattern, read_and_write
from tests.kernel.stack import Mapped
from vcache_agent.model import Extent, Tag
from vcache_agent.netlink.client import Client
from vcache_agent.netlink.errors import NetlinkError
from vcache_agent.netlink.spec import CachedRun, Mode

BLOCK = 8
TAG = 7
MIB = 1 << 20


@pytest.fixture
def cache() -> Iterator[str]:
    """Give an empty cache device of 64 MiB."""
    with stack.null_blk(discard=True) as path:
        yield path


def tag(client: Client, device: Mapped) -> Tag:
    return client.tag(device.number, TAG)


def hits(client: Client, device: Mapped) -> int:
    """Return the number of sectors read from the cache device so far."""
    return tag(client, device).stats.cache_hit_bytes // SECTOR


def prefetch(client: Client, device: Mapped, runs: Sequence[tuple[int, ...]]) -> None:
    """Prefetch runs of (start, len) or (start, len, heat)."""
    client.prefetch(device.number, TAG, [CachedRun(run[0], run[1], run[2] if run[2:] else 0)
                                         for run in runs])


def wait(client: Client, device: Mapped) -> int:
    """Wait until no prefetch is waiting; return the number of sectors prefetched so far."""
    assert stack.wait_until(lambda: not tag(client, device).prefetch_waiting_bytes), (
        tag(client, device))
    return tag(client, device).prefetched_bytes // SECTOR


def blocks(client: Client, device: Mapped, number: int = TAG) -> dict[int, int]:
    """Return the cached blocks of a tag, and their heat."""
    return {sector // BLOCK: run.heat for run in client.cached(device.number, number)
            for sector in range(run.start, run.start + run.len, BLOCK)}


def clean(device: Mapped) -> bool:
    return stack.cache_status(device).state == "clean"


def drop(client: Client, device: Mapped) -> None:
    """Drop all cached data of a tag."""
    assert stack.wait_until(lambda: client.cache_drop(device.number, TAG) == (0, 0))


def fill(path: str, seed: int, sectors: int) -> bytes:
    """Write data to an origin, and return it."""
    data = pattern(seed, sectors)
    with Disk(path) as below:
        below.write(0, data)
    return data


def test_the_map_says_what_is_cached_and_how_hot(
        cache: str, origin: str, client: Client) -> None:
    with (stack.pool(cache) as pool, stack.cached(origin, pool) as device,
          Disk(device.path) as disk):
        assert client.cached(device.number, TAG) == []
        disk.write(80, pattern(1, 64))
        disk.write(800, pattern(2, 4))  # a part of a block
        disk.flush()
        assert blocks(client, device) == dict.fromkeys(range(10, 18), 0)
        for _ in range(3):
            disk.read(96, 16)
        assert blocks(client, device) == {**dict.fromkeys(range(10, 18), 0), 12: 3, 13: 3}
        assert set(client.cached(device.number, TAG)) == {
            CachedRun(80, 16, 0), CachedRun(96, 16, 3), CachedRun(112, 32, 0)}
        disk.write(100, pattern(3, 1))
        disk.flush()
        assert sorted(blocks(client, device)) == [10, 11, 13, 14, 15, 16, 17]


@pytest.mark.box
def test_a_long_map_comes_in_pieces(cache: str, origin: str, client: Client) -> None:
    wanted = random.Random(1).sample(range(8192), 5000)  # noqa: S311 - test data
    with (stack.pool(cache, chunk_kib=64) as pool, stack.cached(origin, pool) as device,
          Disk(device.path) as disk):
        for block in wanted:
            disk.write(block * BLOCK, bytes(BLOCK * SECTOR))
        disk.flush()
        assert sorted(blocks(client, device)) == sorted(wanted)


def test_what_is_prefetched_is_read_from_the_cache(
        cache: str, origin: str, client: Client) -> None:
    data = fill(origin, 1, 4096)
    with (stack.pool(cache) as pool, stack.cached(origin, pool) as device,
          Disk(device.path) as disk):
        prefetch(client, device, [(0, 8), (80, 1024), (3000, 1000)])
        assert wait(client, device) == 2032
        assert stack.cache_status(device).promoted == 254
        assert stack.pool_status(pool).dirty == 0
        assert len(blocks(client, device)) == 254
        # Now only the cache has the data.
        fill(origin, 2, 4096)
        assert disk.read(0, 8) == data[:8 * SECTOR]
        assert disk.read(80, 1024) == data[80 * SECTOR:1104 * SECTOR]
        assert disk.read(3000, 1000) == data[3000 * SECTOR:4000 * SECTOR]
        assert hits(client, device) == 2032
        assert disk.read(8, 8) == pattern(2, 4096)[8 * SECTOR:16 * SECTOR]


def test_what_was_given_up_comes_back_from_its_list(
        cache: str, origin: str, client: Client) -> None:
    """As when an instance is stopped and started: the origin is not read."""
    with (stack.pool(cache) as pool, stack.cached(origin, pool) as device,
          Disk(device.path) as disk):
        free = stack.pool_status(pool).free
        disk.write(0, pattern(3, 8192))
        disk.flush()

        def read_four_times() -> bool:
            # Data that has just left the buffer may still be found there.
            disk.read(4096, 64)
            return hits(client, device) >= 4 * 64

        assert stack.wait_until(read_four_times)
        runs = client.cached(device.number, TAG)
        device.message("drain")
        assert stack.wait_until(lambda: clean(device))
        drop(client, device)
        assert client.cached(device.number, TAG) == []
        assert stack.wait_until(lambda: stack.pool_status(pool).free >= free - 1)
        prefetch(client, device, sorted(runs))
        assert wait(client, device) == 8192
        found = blocks(client, device)
        # Half the heat, as for blocks kept from a reclaimed chunk.
        assert found[4096 // BLOCK] == 2
        assert found[0] == 0
        before = hits(client, device)
        assert disk.read(0, 8192) == pattern(3, 8192)
        assert hits(client, device) - before == 8192


def test_a_tag_that_was_removed_is_listed_and_gives_up_what_it_had(
        cache: str, origin: str, client: Client, cgroup: Callable[[str], Cgroup]) -> None:
    """Like the tag of an instance with an image file: idle, and without a drain."""
    with (stack.pool(cache) as pool,
          stack.cached(origin, pool, scope="filesystem") as device):
        group = cgroup("one")

        def make() -> None:
            client.tag_set(device.number, 3, cgroups=[group.id])
            client.set_extents(device.number, 3, [Extent(0, 8192)])

        def write() -> None:
            with Disk(device.path) as disk:
                disk.write(0, pattern(3, 2048))
                disk.flush()

        make()
        group.run(write)
        runs = client.cached(device.number, 3)
        assert sum(run.len for run in runs) == 2048
        client.tag_del(device.number, 3)
        assert client.cached(device.number, 3) == runs
        assert stack.wait_until(lambda: client.cache_drop(device.number, 3) == (0, 0), every=0.2)
        assert client.cached(device.number, 3) == []
        make()
        client.prefetch(device.number, 3, runs)
        assert stack.wait_until(lambda: client.tag(device.number, 3).prefetched_bytes == MIB)
        with Disk(device.path) as disk, Disk(origin) as below:
            below.write(0, bytes(2048 * SECTOR))
            assert disk.read(0, 2048) == pattern(3, 2048)


def test_what_is_dirty_is_never_given_up(cache: str, client: Client) -> None:
    with (stack.null_blk(64) as origin, stack.mapped(stack.linear(origin)) as below,
          stack.pool(cache) as pool, stack.cached(below.path, pool) as device,
          Disk(device.path) as disk):
        below.swap(f"0 {stack.sectors(origin)} flakey {origin} 0 0 3600 1 error_writes")
        disk.write(0, pattern(4, 4096))
        disk.flush()
        for _ in range(20):
            client.cache_drop(device.number, TAG)
        assert client.cache_drop(device.number, TAG)[1] > 0
        assert disk.read(0, 4096) == pattern(4, 4096)
        assert hits(client, device) == 4096
        below.swap(stack.linear(origin))


def test_what_others_have_is_left_out(cache: str, origin: str, client: Client) -> None:
    """In the buffer, dirty in the cache, clean in the cache, and a part of a block."""
    fill(origin, 5, 512)
    with (stack.pool(cache) as pool, stack.cached(origin, pool) as device,
          Disk(device.path) as disk):
        disk.write(32, pattern(6, 16))
        disk.write(100, pattern(7, 2))
        disk.flush()
        disk.write(64, pattern(8, 8))
        prefetch(client, device, [(0, 128)])
        # Blocks 4, 5 and 12 are in the cache, 8 is in the buffer.
        assert wait(client, device) == 128 - 4 * BLOCK
        prefetch(client, device, [(0, 128)])
        assert wait(client, device) == 128 - 4 * BLOCK
        now = bytearray(pattern(5, 512)[:128 * SECTOR])
        now[32 * SECTOR:48 * SECTOR] = pattern(6, 16)
        now[100 * SECTOR:102 * SECTOR] = pattern(7, 2)
        now[64 * SECTOR:72 * SECTOR] = pattern(8, 8)
        assert disk.read(0, 128) == bytes(now)


@pytest.fixture
def slow() -> Iterator[str]:
    """Provide an origin that reads at once and answers a second later."""
    with stack.null_blk(completion_us=1_000_000) as path:
        yield path


@contextlib.contextmanager
def prefetching(client: Client, device: Mapped, sectors: int) -> Iterator[None]:
    """Run the body while a range is being read from the origin."""
    prefetch(client, device, [(0, sectors)])
    time.sleep(0.3)
    assert tag(client, device).prefetch_waiting_bytes == sectors * SECTOR
    yield
    wait(client, device)


@pytest.mark.parametrize("mode", ["writeback", "writethrough"])
def test_a_write_is_never_overwritten_by_what_was_before(
        cache: str, slow: str, client: Client, mode: str) -> None:
    fill(slow, 9, 64)
    with (stack.pool(cache) as pool, stack.cached(slow, pool, mode=mode) as device,
          Disk(device.path) as disk):
        with prefetching(client, device, 64):
            disk.write(16, pattern(10, 8))
            disk.write(40, pattern(11, 8), fua=True)
            disk.flush()
        now = bytearray(pattern(9, 64))
        now[16 * SECTOR:24 * SECTOR] = pattern(10, 8)
        now[40 * SECTOR:48 * SECTOR] = pattern(11, 8)
        assert disk.read(0, 64) == bytes(now)


def test_a_write_that_has_come_and_gone_ends_it(
        cache: str, slow: str, client: Client) -> None:
    """It is not in the buffer or the index: its tag is no longer cached."""
    with (stack.pool(cache) as pool, stack.cached(slow, pool) as device,
          Disk(device.path) as disk):
        with prefetching(client, device, 64):
            client.tag_set(device.number, TAG, mode=Mode.FLUSH_ONLY)
            disk.write(0, pattern(9, 64))
            disk.flush()
        assert disk.read(0, 64) == pattern(9, 64)
        assert tag(client, device).prefetched_bytes == 0


def test_it_goes_on_behind_a_suspend(cache: str, slow: str, client: Client) -> None:
    """The removal of a device does not wait for a prefetch, and nothing of it remains."""
    with (stack.pool(cache) as pool, stack.cached(slow, pool) as device):
        # Two MiB are read in two rounds.
        with prefetching(client, device, 8192):
            device.suspend()
            there = tag(client, device).prefetched_bytes
            assert there < 4 * MIB
            time.sleep(1.5)
            assert tag(client, device).prefetched_bytes == there
            device.resume()
        assert tag(client, device).prefetched_bytes == 4 * MIB
        prefetch(client, device, [(8192, 65536)])
        time.sleep(0.1)
        device.remove()
        with stack.cached(slow, pool) as device:
            assert tag(client, device).prefetch_waiting_bytes == 0


def test_what_comes_first_is_there_first(cache: str, client: Client) -> None:
    """Lists are processed in order, after earlier ones, so hot blocks can be sent first.

    About 2 MiB are two rounds. Blocks of one round arrive in any order. The last block of the first
    list is in the second round, since a chunk does not hold the whole list.
    """
    with (stack.null_blk(64, completion_us=200_000) as origin, stack.pool(cache) as pool,
          stack.cached(origin, pool) as device):
        prefetch(client, device, [(65536, 2048)])
        prefetch(client, device, [(0, 16384)])
        assert stack.wait_until(lambda: tag(client, device).prefetched_bytes > 2 * MIB, every=0)
        found = blocks(client, device)
        assert set(range(8192, 8448)) <= found.keys()
        assert len(found) < 2048
        wait(client, device)


@pytest.mark.parametrize(("runs", "says"), [
    ([], "runs are required"),
    ([(0, 0)], "whole 4 KiB blocks"), ([(0, 7)], "whole 4 KiB blocks"),
    ([(4, 8)], "whole 4 KiB blocks"),
    ([(8, 8), (0, 8)], "sorted and disjoint"), ([(0, 16), (8, 8)], "sorted and disjoint"),
    ([(131072, 8)], "on the device"), ([(131064, 16)], "on the device"),
    ([(2**64 - 8, 8)], "on the device"), ([(0, 8, 16)], "heat must be from 0 to 15"),
    ([(at * 8, 8) for at in range(2049)], "1 to 2048")])
def test_bad_lists_are_refused(cache: str, origin: str, client: Client,
                               runs: list[tuple[int, ...]], says: str) -> None:
    with stack.pool(cache) as pool, stack.cached(origin, pool) as device:
        with pytest.raises(NetlinkError, match=says if runs else "1 to 2048") as caught:
            prefetch(client, device, runs)
        assert caught.value.errno == errno.EINVAL
        assert tag(client, device).prefetch_waiting_bytes == 0


def test_no_tag_and_no_cache_are_refused(cache: str, origin: str, client: Client) -> None:
    def refusals(device: Mapped, number: int, says: str) -> None:
        for call in (lambda: client.cached(device.number, number),
                     lambda: client.prefetch(device.number, number, [CachedRun(0, 8, 0)]),
                     lambda: client.cache_drop(device.number, number)):
            with pytest.raises(NetlinkError, match=says):
                call()

    with stack.vcache(origin) as device:
        refusals(device, TAG, "the device has no cache")
    with stack.pool(cache) as pool, stack.cached(origin, pool) as device:
        refusals(device, 8, "the cache has no data of a tag with this id")
        client.tag_set(device.number, TAG, mode=Mode.FLUSH_ONLY)
        with pytest.raises(NetlinkError, match="reads of the tag are not cached now"):
            prefetch(client, device, [(0, 8)])


def test_too_much_at_a_time_is_refused(cache: str, slow: str, client: Client) -> None:
    runs = [(at * 16, 8) for at in range(2048)]
    with stack.pool(cache) as pool, stack.cached(slow, pool) as device:
        for _ in range(32):
            prefetch(client, device, runs)
        with pytest.raises(NetlinkError, match="too many runs of the tag are waiting") as caught:
            prefetch(client, device, runs)
        assert caught.value.errno == errno.EBUSY


def test_it_gives_up_where_chunks_stay_short(client: Client, origin: str) -> None:
    """A tag stays within its maximum, and the rest of the list is dropped."""
    with (stack.null_blk(16, discard=True) as cache, stack.pool(cache, chunk_kib=64) as pool,
          stack.cached(origin, pool) as device):
        client.tag_set(device.number, TAG, cache_max=MIB)
        assert stack.wait_until(lambda: tag(client, device).cache_share_bytes == MIB)
        prefetch(client, device, [(0, 65536)])
        there = wait(client, device)
        assert MIB * 0.7 < there * SECTOR <= MIB
        assert stack.wait_until(lambda: tag(client, device).cached_bytes <= MIB)


def test_nobody_loses_his_share_to_it(client: Client, origin: str) -> None:
    """Nor do later prefetches displace earlier ones."""
    with (stack.null_blk(64) as other, stack.null_blk(16, discard=True) as cache,
          stack.pool(cache, chunk_kib=64) as pool,
          stack.cached(origin, pool) as device,
          stack.cached(other, pool, 2, "volume 8") as neighbour, Disk(neighbour.path) as disk):
        client.tag_set(neighbour.number, 8, cache_min=13 * MIB)

        def his() -> Tag:
            return client.tag(neighbour.number, 8)

        assert stack.wait_until(lambda: his().cache_share_bytes >= 13 * MIB)
        for sector in range(0, 9 * MIB // SECTOR, 512):
            disk.write(sector, bytes(512 * SECTOR))
        disk.flush()
        neighbour.message("drain")
        assert stack.wait_until(lambda: clean(neighbour))
        had = blocks(client, neighbour, 8).keys()
        assert len(had) * 4096 == 9 * MIB
        # More than all free chunks.
        prefetch(client, device, [(0, 16 * MIB // SECTOR)])
        there = wait(client, device)
        assert 0 < there < 4 * MIB // SECTOR
        time.sleep(0.5)
        assert set(range(there // BLOCK)) == blocks(client, device).keys()
        assert not had - blocks(client, neighbour, 8).keys()
        status = stack.pool_status(pool)
        assert status.free >= status.chunks // 10


@pytest.mark.smp
@pytest.mark.parametrize("mode", ["writeback", "writethrough"])
def test_reads_are_never_old_while_lists_come_and_go(cache: str, mode: str) -> None:
    """Prefetch and drop, with writes, destage and other reads."""
    stop = threading.Event()
    size = 4096

    def stir(device: Mapped) -> None:
        with Client() as client:
            while not stop.is_set():
                with contextlib.suppress(NetlinkError):
                    prefetch(client, device, [(0, size)])
                time.sleep(0.05)
                client.cache_drop(device.number, TAG)

    rng = random.Random(3)  # noqa: S311 - test data
    content = bytearray(size * SECTOR)
    with (stack.null_blk(64, discard=True, completion_us=200) as origin,
          stack.pool(cache, chunk_kib=64) as pool,
          stack.cached(origin, pool, mode=mode, age_ms=50) as device,
          Disk(device.path) as disk, Client() as client):
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
        assert tag(client, device).prefetched_bytes > 0
