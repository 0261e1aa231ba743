# SPDX-License-Identifier: Apache-2.0
"""The counters that the agent's decisions need, each staged so that its value is known."""

import contextlib
import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tests.kernel import stack
from tests.kernel.conftest import Cgroup
from tests.kernel.disk import Disk, pattern
from tests.kernel.nofua import loop_device
from tests.kernel.stack import Mapped
from tests.kernel.test_shares import write_all
from vcache_agent.model import FLUSH_CAUSES, DeviceNumber, Lane, Stats
from vcache_agent.netlink.client import Client
from vcache_agent.netlink.spec import HISTOGRAM_BUCKETS

BLOCK = 8  # sectors
BLOCK_BYTES = 4096
MIB = 1 << 20
SECTORS = 2048  # of a MiB
TAG = 7
MS = 1_000_000
DELAY_MS = 200
# The bucket of 2^24 ns, 16.8 ms: what takes 20 ms or more is here or higher.
SLOW_BUCKET = 4 * (24 - 1)


@pytest.fixture
def cache() -> Iterator[str]:
    """Give an empty cache device of 64 MiB."""
    with stack.null_blk(discard=True) as path:
        yield path


def stats_of(client: Client, device: Mapped, tag: int = TAG) -> Stats:
    return client.tag(device.number, tag).stats


def delayed(path: str, read_ms: int = 0, write_ms: int = 0) -> str:
    """Return a table that delays the requests to a device."""
    return f"0 {stack.sectors(path)} delay {path} 0 {read_ms} {path} 0 {write_ms}"


def causes(stats: Stats) -> dict[str, int]:
    """Return the time that flushes waited by cause, in ns, without those of 0."""
    found = {cause: getattr(stats, f"flush_{cause}_ns") for cause in FLUSH_CAUSES}
    return {cause: ns for cause, ns in found.items() if ns}


def test_writes_are_counted_with_their_latency(client: Client) -> None:
    """Those in the buffer are fast; one with FUA goes to an origin that takes 20 ms."""
    def slow(stats: Stats) -> int:
        return sum(stats.write_hist[SLOW_BUCKET:])

    with (stack.null_blk(completion_us=20000) as origin, stack.vcache(origin) as device,
          Disk(device.path) as disk):
        for at in range(9):
            disk.write(at * BLOCK, pattern(at, BLOCK))
        stats = stats_of(client, device)
        assert (sum(stats.write_hist), slow(stats)) == (9, 0)
        assert len(stats.write_hist) == HISTOGRAM_BUCKETS
        before = stats.write_ns
        disk.write(800, pattern(1, BLOCK), fua=True)
        stats = stats_of(client, device)
        assert (sum(stats.write_hist), slow(stats)) == (10, 1)
        assert stats.write_ns - before >= 20 * MS


def test_a_large_write_is_counted_with_its_latency(cache: str, origin: str,
                                                   client: Client) -> None:
    with (stack.mapped(stack.linear(cache)) as ssd, stack.pool(ssd.path) as pool,
          stack.cached(origin, pool) as device, Disk(device.path) as disk):
        ssd.swap(delayed(cache, write_ms=DELAY_MS))
        disk.write(0, pattern(1, 256))
        stats = stats_of(client, device)
        # First the data, then the record.
        assert sum(stats.write_hist) == stats.writes == 1
        assert stats.write_ns >= 2 * DELAY_MS * MS


def test_a_write_that_waits_for_space_is_counted_with_its_wait(client: Client) -> None:
    """While the origin is suspended, the buffer gets no space."""
    with (stack.null_blk() as below, stack.mapped(stack.linear(below)) as origin,
          stack.buffer_mb(1), stack.vcache(origin.path) as device, Disk(device.path) as disk):
        limit = client.tag(device.number, TAG).limit_bytes // 512

        def fill() -> None:
            for at in range(0, 2 * limit, 64):
                disk.write(at, pattern(at, 64))

        writer = threading.Thread(target=fill)
        origin.suspend()
        writer.start()
        try:
            assert stack.wait_until(lambda: stats_of(client, device).waits > 0)
            time.sleep(DELAY_MS / 1000)
        finally:
            origin.resume()
            writer.join()
        stats = stats_of(client, device)
        assert stats.write_ns >= stats.wait_ns >= DELAY_MS * MS


def test_reads_of_the_origin_are_counted_apart(cache: str, client: Client) -> None:
    with (stack.null_blk(completion_us=20000) as origin, stack.pool(cache) as pool,
          stack.cached(origin, pool) as device, Disk(device.path) as disk):
        for at in range(0, 5 * 64, 64):
            disk.read(at, BLOCK)
        assert stack.wait_until(lambda: stack.cache_status(device).promoted == 5)
        for at in range(0, 5 * 64, 64):
            disk.read(at, BLOCK)  # from the cache
        disk.write(6400, pattern(1, BLOCK))
        disk.read(6400, BLOCK)  # from the buffer
        disk.read(6400, 2 * BLOCK)  # a part of it only
        stats = stats_of(client, device)
        assert (stats.reads, stats.origin_reads) == (12, 6)
        assert 6 * 20 * MS <= stats.origin_read_ns <= stats.read_ns


@pytest.mark.parametrize("where", ["cache", "origin"])
def test_a_flush_waits_for_its_device(cache: str, where: str, client: Client) -> None:
    """With a cache that is slow, and without one on a slow origin."""
    with stack.null_blk() as below, contextlib.ExitStack() as stack_of:
        slow = cache if where == "cache" else below
        ssd = stack_of.enter_context(stack.mapped(stack.linear(slow)))
        if where == "cache":
            pool = stack_of.enter_context(stack.pool(ssd.path))
            device = stack_of.enter_context(stack.cached(below, pool))
        else:
            device = stack_of.enter_context(stack.vcache(ssd.path))
        disk = stack_of.enter_context(Disk(device.path))
        disk.write_and_flush(0, pattern(1, 1))
        before = stats_of(client, device)
        ssd.swap(delayed(slow, write_ms=DELAY_MS))
        disk.write_and_flush(0, pattern(2, 1))
        stats = stats_of(client, device)
        waited = getattr(stats, f"flush_{where}_ns") - getattr(before, f"flush_{where}_ns")
        assert DELAY_MS * MS <= waited <= stats.flush_ns - before.flush_ns
        assert set(causes(stats)) == {where}


def test_a_flush_waits_for_the_host(client: Client, cgroup: Callable[[str], Cgroup]) -> None:
    """It covers what cannot be attributed, and that is all that it waits for."""
    with (stack.null_blk() as below, stack.mapped(stack.linear(below)) as origin,
          stack.vcache(origin.path, "filesystem") as device, Disk(device.path) as disk):
        one = cgroup("one")
        client.tag_set(device.number, 5, cgroups=[one.id])
        origin.swap(delayed(below, write_ms=DELAY_MS))
        disk.write(0, pattern(1, 1))  # no tag has these sectors
        one.run(disk.flush)
        stats = stats_of(client, device, 5)
        assert (stats.flushes, set(causes(stats))) == (1, {"others"})
        assert DELAY_MS * MS <= stats.flush_others_ns <= stats.flush_ns
        assert not causes(stats_of(client, device, 0))


def test_a_flush_waits_for_space(cache: str, client: Client) -> None:
    """An origin that takes nothing: the log is full of dirty data."""
    with (stack.null_blk() as below, stack.mapped(stack.linear(below)) as origin,
          stack.pool(cache) as pool, stack.cached(origin.path, pool) as device,
          Disk(device.path) as disk):
        client.tag_set(device.number, TAG, cache_max=8 * MIB)
        origin.swap(f"0 {stack.sectors(below)} flakey {below} 0 0 3600 1 error_writes")
        done = threading.Event()

        def fill() -> None:
            for turn in itertools.count():
                if done.is_set():
                    return
                disk.write_and_flush(turn * 128 % (56 * SECTORS), pattern(turn, 128))

        def flushes_in(seconds: float) -> int:
            before = stats_of(client, device).flushes
            time.sleep(seconds)
            return stats_of(client, device).flushes - before

        writer = threading.Thread(target=fill)
        writer.start()
        try:
            assert stack.wait_until(lambda: flushes_in(2 * DELAY_MS / 1000) == 0)
        finally:
            done.set()
            origin.swap(stack.linear(below))
            writer.join()
        stats = stats_of(client, device)
        # The last one has waited at least while we looked.
        assert 2 * DELAY_MS * MS <= stats.flush_space_ns <= stats.flush_ns


def test_a_flush_waits_for_a_flush_of_the_device(client: Client) -> None:
    """The origin has a volatile cache and no FUA."""
    with (stack.null_blk() as backing, loop_device(backing) as origin,
          stack.vcache(origin) as device, Disk(device.path) as disk):
        disk.write_and_flush(0, pattern(1, 1))
        stats = stats_of(client, device)
        assert stats.device_flushes == 1
        assert 0 < stats.flush_device_ns < stats.flush_ns


def test_bytes_written_to_the_ssd_by_cause(cache: str, origin: str, client: Client) -> None:
    with (stack.pool(cache) as pool, stack.cached(origin, pool) as device,
          Disk(device.path) as disk):
        for at in range(5):
            disk.write_and_flush(at * BLOCK, pattern(at, BLOCK))
        stats = stats_of(client, device)
        # Five records of one block, each with a head.
        assert stats.ssd_data_bytes == 5 * BLOCK_BYTES
        assert stats.ssd_record_bytes == 5 * BLOCK_BYTES
        assert (stats.ssd_promoted_bytes, stats.ssd_relocated_bytes) == (0, 0)
        disk.read(8000, 4 * BLOCK)
        assert stack.wait_until(lambda: stats_of(client, device).ssd_promoted_bytes
                                == 4 * BLOCK_BYTES)
        # A large write: one head, and no copy.
        disk.write(16000, pattern(1, 256))
        stats = stats_of(client, device)
        assert stats.ssd_data_bytes == (5 + 32) * BLOCK_BYTES
        assert stats.ssd_record_bytes == 6 * BLOCK_BYTES


def test_relocated_bytes_are_those_of_the_pool(origin: str, client: Client) -> None:
    """While the origin takes nothing, the live blocks of old chunks are relocated."""
    dice = random.Random(8)
    with (stack.null_blk(12, discard=True) as cache, stack.pool(cache, chunk_kib=64) as pool,
          stack.mapped(stack.linear(origin)) as below,
          stack.cached(below.path, pool) as device, Disk(device.path) as disk):
        below.swap(f"0 {stack.sectors(origin)} flakey {origin} 0 0 3600 1 error_writes")
        for number in range(4000):
            disk.write(dice.randrange(800) * BLOCK, pattern(number, BLOCK), fua=number % 3 == 0)
        disk.flush()
        relocated = stack.pool_status(pool).relocated
        assert relocated > 100
        # Blocks that are superseded meanwhile are written, but do not count as relocated.
        assert stats_of(client, device).ssd_relocated_bytes >= relocated * BLOCK_BYTES
        below.swap(stack.linear(origin))


def lost_to_others(stats: Stats) -> int:
    return stats.evicted_bytes - stats.evicted_own_bytes - stats.evicted_limit_bytes


def test_evictions_name_victim_and_beneficiary(cache: str, origin: str, client: Client) -> None:
    """One tag fills the pool, then another one takes its part."""
    with (stack.pool(cache) as pool, stack.cached(origin, pool, 1, "volume 7") as device,
          stack.null_blk() as second, stack.cached(second, pool, 2, "volume 8") as other,
          Disk(device.path) as disk, Disk(other.path) as neighbour):
        write_all(disk, 0, 50, 1)
        assert stack.wait_until(lambda: stack.cache_status(device).dirty == 0)
        victim, gainer = stats_of(client, device), stats_of(client, other, 8)
        assert (gainer.evicted_bytes, gainer.gained_bytes) == (0, 0)
        assert victim.gained_bytes == 0
        write_all(neighbour, 0, 20, 100)
        victim, gainer = stats_of(client, device), stats_of(client, other, 8)
        assert gainer.evicted_bytes == 0
        assert victim.gained_bytes == 0
        assert victim.evicted_limit_bytes == 0
        assert gainer.gained_bytes > 4 * MIB
        # What nobody has taken yet is among it.
        assert gainer.gained_bytes <= lost_to_others(victim) <= 28 * MIB


def test_a_tag_that_evicts_its_own_data(cache: str, origin: str, client: Client) -> None:
    with (stack.pool(cache) as pool, stack.cached(origin, pool) as device,
          Disk(device.path) as disk):
        for first in (0, 30):
            write_all(disk, first, 30, 1)
            assert stack.wait_until(lambda: stack.cache_status(device).dirty == 0)
        write_all(disk, 0, 20, 500)
        stats = stats_of(client, device)
        assert 0 < stats.evicted_own_bytes <= stats.evicted_bytes
        assert stats.gained_bytes == 0
        assert stats.evicted_limit_bytes == 0


def test_data_lost_to_a_smaller_maximum(cache: str, origin: str, client: Client) -> None:
    with (stack.pool(cache) as pool, stack.cached(origin, pool) as device,
          Disk(device.path) as disk):
        write_all(disk, 0, 30, 1)
        assert stack.wait_until(lambda: stack.cache_status(device).dirty == 0)
        assert stats_of(client, device).evicted_bytes == 0
        client.tag_set(device.number, TAG, cache_max=10 * MIB)
        assert stack.wait_until(lambda: client.tag(device.number, TAG).cached_bytes <= 10 * MIB)
        stats = stats_of(client, device)
        assert stats.evicted_limit_bytes == stats.evicted_bytes >= 18 * MIB


def test_what_is_not_cached_is_counted_with_its_reason(cache: str, origin: str,
                                                       client: Client) -> None:
    with (stack.pool(cache) as pool, stack.cached(origin, pool) as device,
          Disk(device.path) as disk):
        # A stream is long from 1 MiB on.
        for at in range(0, 4 * SECTORS, 64):
            disk.read(20 * SECTORS + at, 64)
        stats = stats_of(client, device)
        assert stats.refused_stream_bytes == 3 * MIB
        assert stats.refused_level_bytes == 0


def lanes_of(client: Client, pool: Mapped) -> list[Lane]:
    return [lane for lane in client.lanes() if lane.pool == pool.number]


def test_a_lane_counts_its_requests_and_its_time(cache: str, origin: str, client: Client) -> None:
    with (stack.mapped(stack.linear(cache)) as ssd, stack.pool(ssd.path) as pool,
          stack.cached(origin, pool) as device, Disk(device.path) as disk):
        assert [lane.lane for lane in lanes_of(client, pool)] == [0]
        disk.write_and_flush(0, pattern(1, BLOCK))
        [before] = lanes_of(client, pool)
        assert (before.writes, before.reads) == (1, 0)
        ssd.swap(delayed(cache, read_ms=DELAY_MS, write_ms=DELAY_MS))
        for turn in range(3):
            disk.read(0, BLOCK)
            disk.write_and_flush(0, pattern(turn, BLOCK))
        [after] = lanes_of(client, pool)
        assert (after.reads, after.writes) == (3, 4)
        assert after.read_ns >= 3 * DELAY_MS * MS
        assert after.write_ns - before.write_ns >= 3 * DELAY_MS * MS
        # One after the other, so it was busy all the time; in ticks of at most 10 ms.
        least = 6 * (DELAY_MS - 10) * MS
        assert least <= after.busy_ns - before.busy_ns
        assert after.busy_ns <= after.read_ns + after.write_ns + 14 * 10 * MS


def test_a_dedicated_lane_names_its_tag(origin: str, client: Client) -> None:
    with (stack.null_blk(64) as cache, stack.pool(cache, lanes=[32 * SECTORS]) as pool,
          stack.cached(origin, pool, 3) as device, Disk(device.path) as disk):
        assert [(lane.volume, lane.tag) for lane in lanes_of(client, pool)] == [(0, 0), (0, 0)]
        client.tag_set(device.number, TAG, cache_lanes=2)
        one, two = lanes_of(client, pool)
        assert ((one.volume, one.tag), (two.volume, two.tag)) == ((0, 0), (3, TAG))
        free = two.free_bytes
        for mb in range(4):
            disk.write(mb * SECTORS, pattern(mb, SECTORS // 2))
            disk.flush()
        after = lanes_of(client, pool)
        assert after[1].free_bytes < free
        assert after[0].writes == 0 < after[1].writes


def test_the_age_of_the_oldest_dirty_data(cache: str, client: Client) -> None:
    with (stack.null_blk() as below, stack.mapped(stack.linear(below)) as origin,
          stack.pool(cache) as pool, stack.cached(origin.path, pool) as device,
          Disk(device.path) as disk):
        tag = client.tag(device.number, TAG)
        assert (tag.dirty_age_ms, tag.cache_dirty_age_ms) == (0, 0)
        disk.write(0, pattern(1, BLOCK))
        assert stack.wait_until(
            lambda: client.tag(device.number, TAG).dirty_age_ms >= DELAY_MS)
        assert client.tag(device.number, TAG).cache_dirty_age_ms == 0
        device.message("pause 600")
        disk.flush()
        tag = client.tag(device.number, TAG)
        assert tag.dirty_age_ms == 0
        assert stack.wait_until(
            lambda: client.tag(device.number, TAG).cache_dirty_age_ms >= DELAY_MS)
        device.message("pause 0")
        device.message("drain")
        assert stack.wait_until(lambda: client.tag(device.number, TAG).cache_dirty_age_ms == 0)


def test_the_oldest_chunk_gives_the_age(cache: str, origin: str, client: Client) -> None:
    """Newer chunks do not make it younger."""
    def age() -> int:
        return client.tag(device.number, TAG).cache_dirty_age_ms

    with (stack.pool(cache) as pool, stack.cached(origin, pool) as device,
          Disk(device.path) as disk):
        device.message("pause 600")
        write_all(disk, 0, 1, 1)
        began = time.monotonic()
        assert stack.wait_until(lambda: age() >= 3 * DELAY_MS)
        write_all(disk, 1, 3, 1)
        old = age()
        assert 3 * DELAY_MS <= old <= (time.monotonic() - began) * 1000 + 2 * DELAY_MS


def test_all_curves_in_one_dump(cache: str, origin: str, client: Client) -> None:
    with (stack.pool(cache) as pool, stack.cached(origin, pool, 1, "filesystem") as device,
          stack.null_blk() as second, stack.cached(second, pool, 2, "volume 8") as other,
          Disk(other.path) as disk, stack.null_blk() as third, stack.vcache(third)):
        for tag in range(1, 12):
            client.tag_set(device.number, tag)
        for at in range(0, 640, 64):
            disk.read(at, 64)
        found = client.curves()
        # The device without a cache has no curve.
        assert set(found) == {(device.number, tag) for tag in range(12)} | {
            (other.number, 0), (other.number, 8)}
        assert found[other.number, 8] == client.curve(other.number, 8)
        assert found[other.number, 8].reads == 80


def test_a_dump_of_many_full_tags(origin: str, client: Client) -> None:
    """Each message is as long as it can be."""
    with stack.vcache(origin, "filesystem") as device:
        for tag in range(1, 30):
            client.tag_set(device.number, tag, name="x" * 127,
                           cgroups=range(tag * 16, tag * 16 + 16))
        assert [tag.id for tag in client.tags(device.number)] == list(range(30))
        assert client.tag(device.number, 29).name == "x" * 127


def test_unknown_devices_have_no_curves(client: Client) -> None:
    assert client.curves() == {}
    assert client.lanes() == ()
    assert DeviceNumber(0, 0) not in {lane.pool for lane in client.lanes()}
