# SPDX-License-Identifier: Apache-2.0
"""Lanes: ranges of the cache device, some of them dedicated to a tag."""

import contextlib
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.kernel import stack
from tests.kernel.conftest import KernelLog
from tests.kernel.disk import Disk, pattern
from tests.kernel.dm import DmError
from tests.kernel.stack import Mapped
from tests.kernel.test_prefetch import prefetch, wait
from tests.kernel.test_resize import Churn, churning, settled
from tests.kernel.test_shares import read_twice, write_all
from vcache_agent.model import Tag
from vcache_agent.netlink.client import Client
from vcache_agent.netlink.errors import NetlinkError

MIB = 1 << 20
SECTORS = 2048  # of a MiB
TAG = 7


class Ssd:
    """Two concatenated devices; the first contains the metadata.

    :param parts: their paths
    :param path: path of both
    :param lanes: size of the first, as a lane
    """

    def __init__(self, parts: tuple[str, str], path: str) -> None:
        self.parts, self.path = parts, path
        self.lanes = [stack.sectors(parts[0])]

    def requests(self, part: int) -> int:
        """Return the number of reads and writes of a part."""
        return self._stat(part, 0) + self._stat(part, 4)

    def read_sectors(self, part: int) -> int:
        """Return the number of sectors read from a part."""
        return self._stat(part, 2)

    def written_sectors(self, part: int) -> int:
        """Return the number of sectors written to a part."""
        return self._stat(part, 6)

    def _stat(self, part: int, word: int) -> int:
        words = Path(f"/sys/block/{Path(self.parts[part]).name}/stat").read_text().split()
        return int(words[word])


@contextlib.contextmanager
def concatenation(first: int, second: int) -> Iterator[Ssd]:
    """Provide two devices of the given sizes in MiB, concatenated."""
    with (stack.null_blk(first, discard=True) as one, stack.null_blk(second, discard=True) as two):
        size, more = stack.sectors(one), stack.sectors(two)
        with stack.mapped(f"0 {size} linear {one} 0\n{size} {more} linear {two} 0") as both:
            yield Ssd((one, two), both.path)


@pytest.fixture
def ssd() -> Iterator[Ssd]:
    """Provide 32 MiB, 30 of them for data, and 32 more."""
    with concatenation(32, 32) as both:
        yield both


def cached(client: Client, device: Mapped, tag: int = TAG) -> tuple[int, int]:
    """Return a tag's data in its dedicated lanes and in shared ones, in MiB."""
    found = client.tag(device.number, tag)
    return found.cache_own_bytes // MIB, (found.cached_bytes - found.cache_own_bytes) // MIB


def read_apart(disk: Disk, first_mb: int, megabytes: int) -> None:
    """Read everything once, in a non-sequential order."""
    sectors = megabytes * SECTORS
    for at in range(0, sectors, 64):
        disk.read(first_mb * SECTORS + at * 37 % sectors, 64)


def check_all(disk: Disk, first_mb: int, megabytes: int, seed: int) -> None:
    """Check the data of write_all()."""
    for mb in range(first_mb, first_mb + megabytes):
        assert disk.read(mb * SECTORS, SECTORS) == pattern(seed + mb, SECTORS), mb


def test_a_pool_has_the_lanes_of_its_table(ssd: Ssd, origin: str, kmsg: KernelLog) -> None:
    with stack.pool(ssd.path) as pool:
        assert stack.pool_status(pool).lanes == 1
    with stack.pool(ssd.path, lanes=ssd.lanes) as pool:
        assert stack.pool_status(pool).lanes == 2
        assert stack.pool_status(pool).free == 62
        # Lanes can be changed while no volume is in use.
        pool.swap(stack.pool_table(ssd.path, lanes=[20 * SECTORS, 20 * SECTORS]))
        assert stack.pool_status(pool).lanes == 3
        with stack.cached(origin, pool):
            pool.load(stack.pool_table(ssd.path, lanes=ssd.lanes))
            pool.suspend()
            with pytest.raises(DmError):
                pool.resume()
            assert "lanes can change only while no volume is in use" in kmsg.read()
            pool.load(stack.pool_table(ssd.path, lanes=[20 * SECTORS, 20 * SECTORS]))
            pool.resume()
    for lanes in ([4 * SECTORS], [32 * SECTORS, 3 * SECTORS], [61 * SECTORS, 8 * SECTORS],
                  [1 << 50, 8 * SECTORS]):
        logged = len(kmsg.read())
        with pytest.raises(DmError), stack.pool(ssd.path, lanes=lanes):
            pass
        assert "a lane must have at least four chunks for data" in kmsg.read()[logged:]
    # The rest is too small for a lane, and belongs to the last one.
    with stack.pool(ssd.path, lanes=[30 * SECTORS, 32 * SECTORS]) as pool:
        assert stack.pool_status(pool).lanes == 2
        assert stack.pool_status(pool).free == 62


def test_what_cannot_be_is_refused(ssd: Ssd, origin: str, client: Client) -> None:
    def refused(device: Mapped, lanes: int, text: str, tag: int = TAG) -> None:
        with pytest.raises(NetlinkError, match=text):
            client.tag_set(device.number, tag, weight=9, cache_lanes=lanes)
        assert client.tag(device.number, tag).weight == 100
        assert client.tag(device.number, tag).cache_lanes == 0

    with (stack.null_blk() as second, stack.vcache(second) as bare,
          stack.pool(ssd.path, lanes=[16 * SECTORS, 16 * SECTORS]) as pool,
          stack.cached(origin, pool) as device):
        refused(bare, 1, "a device without a pool has no lanes")
        refused(device, 8, "names a lane that the pool does not have")
        refused(device, 1 << 63, "names a lane that the pool does not have")
        refused(device, 7, "at least one lane must stay shared")
        with stack.null_blk() as third, stack.cached(third, pool, 3, "volume 8") as other:
            client.tag_set(other.number, 8, cache_lanes=2)
            refused(device, 6, "a lane of cache-lanes is dedicated to another tag")
            refused(device, 5, "at least one lane must stay shared")
            client.tag_set(device.number, TAG, cache_lanes=4)
            assert client.tag(device.number, TAG).cache_lanes == 4
            # The tag may have other lanes instead, but not all that remain.
            client.tag_set(device.number, TAG, cache_lanes=1)
        # Its lane is free again, shared or for another tag.
        client.tag_set(device.number, TAG, cache_lanes=6)


def test_a_new_tag_can_have_lanes(ssd: Ssd, origin: str, client: Client) -> None:
    with (stack.pool(ssd.path, lanes=ssd.lanes) as pool,
          stack.cached(origin, pool, scope="filesystem") as device):
        with pytest.raises(NetlinkError, match="that the pool does not have"):
            client.tag_set(device.number, 9, cache_lanes=4)
        assert [tag.id for tag in client.tags(device.number)] == [0]
        client.tag_set(device.number, 9, cache_lanes=2)
        assert client.tag(device.number, 9).cache_lanes == 2
        # When a tag is removed, its lanes become free.
        client.tag_del(device.number, 9)
        assert stack.wait_until(lambda: not lanes_refused(client, device, 8, 2))


def lanes_refused(client: Client, device: Mapped, tag: int, lanes: int) -> bool:
    """Try to dedicate lanes to a tag; return whether it was refused."""
    try:
        client.tag_set(device.number, tag, cache_lanes=lanes)
    except NetlinkError:
        return True
    return False


def test_what_is_written_and_what_is_hot_goes_to_the_own_lanes(
        ssd: Ssd, origin: str, client: Client) -> None:
    with (stack.pool(ssd.path, lanes=ssd.lanes) as pool, stack.cached(origin, pool) as device,
          Disk(device.path) as disk):
        client.tag_set(device.number, TAG, cache_lanes=2)
        write_all(disk, 0, 12, 1)
        assert cached(client, device)[0] >= 12
        assert cached(client, device)[1] == 0
        read_twice(disk, 20, 3)
        assert stack.wait_until(lambda: stack.cache_status(device).promoted == 3 * 256)
        assert cached(client, device)[0] >= 15
        assert cached(client, device)[1] == 0
        # The excess goes to the other lanes.
        write_all(disk, 0, 60, 100)
        assert sum(cached(client, device)) > 45
        check_all(disk, 0, 60, 100)


def test_what_is_prefetched_goes_to_the_own_lanes(
        ssd: Ssd, origin: str, client: Client) -> None:
    """As far as they have space without a reclaim; then to shared lanes."""
    with Disk(origin) as disk:
        write_all(disk, 0, 60, 1)
    with (stack.pool(ssd.path, lanes=ssd.lanes) as pool, stack.cached(origin, pool) as device,
          Disk(device.path) as disk):
        client.tag_set(device.number, TAG, cache_lanes=2)
        prefetch(client, device, [(0, 10 * SECTORS)])
        assert wait(client, device) == 10 * SECTORS
        assert cached(client, device) == (11, 0)
        shared = ssd.read_sectors(0)
        check_all(disk, 0, 10, 1)
        assert ssd.read_sectors(0) == shared
        # Three of the 32 chunks are reserved for writers.
        prefetch(client, device, [(10 * SECTORS, 30 * SECTORS)])
        assert wait(client, device) == 40 * SECTORS
        assert cached(client, device) == (29, 12)
        check_all(disk, 0, 40, 1)


def test_nobody_disturbs_a_tag_in_its_lanes(ssd: Ssd, origin: str, client: Client) -> None:
    """A neighbour's flood of writes takes no chunk there, and sends no request to the device."""
    with (stack.pool(ssd.path, lanes=ssd.lanes) as pool, stack.cached(origin, pool) as device,
          stack.null_blk() as second, stack.cached(second, pool, 2, "volume 8") as other,
          Disk(device.path) as disk, Disk(other.path) as neighbour):
        client.tag_set(device.number, TAG, cache_lanes=2)
        write_all(disk, 0, 20, 1)
        assert stack.wait_until(lambda: stack.cache_status(device).dirty == 0)
        had, before = cached(client, device), ssd.requests(1)
        write_all(neighbour, 0, 60, 100)
        read_twice(neighbour, 0, 40)
        assert stack.wait_until(lambda: stack.cache_status(other).dirty == 0)
        write_all(neighbour, 0, 60, 200)
        assert ssd.requests(1) == before
        assert cached(client, device) == had
        assert cached(client, other, 8)[0] == 0
        # All of its data is still there.
        hits = client.tag(device.number, TAG).stats.cache_hit_bytes
        check_all(disk, 0, 20, 1)
        assert client.tag(device.number, TAG).stats.cache_hit_bytes == hits + 20 * MIB
        check_all(neighbour, 0, 60, 200)


def test_a_maximum_that_its_lanes_hold_keeps_a_tag_in_them(
        ssd: Ssd, origin: str, client: Client) -> None:
    """Hard isolation: it does not disturb others; its data in other lanes is reclaimed."""
    with (stack.pool(ssd.path, lanes=ssd.lanes) as pool, stack.cached(origin, pool) as device,
          Disk(device.path) as disk):
        write_all(disk, 0, 50, 1)
        client.tag_set(device.number, TAG, cache_lanes=2, cache_max=16 * MIB)
        assert stack.wait_until(lambda: cached(client, device)[1] == 0)
        assert stack.wait_until(lambda: cached(client, device)[0] <= 16)
        assert client.tag(device.number, TAG).cache_share_bytes == 16 * MIB
        write_all(disk, 0, 50, 100)
        read_twice(disk, 0, 50)
        assert cached(client, device)[0] <= 16
        assert cached(client, device)[1] == 0
        check_all(disk, 0, 50, 100)


def test_a_tag_without_shared_lanes_keeps_nothing_in_them(
        ssd: Ssd, origin: str, client: Client) -> None:
    """Its data there is reclaimed, and not copied from one shared chunk to the next."""
    with (stack.pool(ssd.path, lanes=ssd.lanes) as pool, stack.cached(origin, pool) as device,
          Disk(device.path) as disk):
        client.tag_set(device.number, TAG, cache_lanes=2)
        write_all(disk, 0, 28, 1)
        assert stack.wait_until(lambda: stack.cache_status(device).dirty == 0)
        # Read again since it came, so it would be kept, but not often enough to migrate.
        for _ in range(2):
            read_apart(disk, 40, 11)
            assert stack.wait_until(lambda: stack.cache_status(device).promoted == 11 * 256)
        assert client.tag(device.number, TAG).stats.cache_hit_bytes == 11 * MIB
        assert cached(client, device) == (29, 12)
        kept, before = stack.pool_status(pool).kept, ssd.written_sectors(0)
        client.tag_set(device.number, TAG, cache_max=32 * MIB)
        assert stack.wait_until(lambda: cached(client, device)[1] == 0)
        assert stack.pool_status(pool).kept == kept
        assert ssd.written_sectors(0) - before < 64
        assert cached(client, device)[0] >= 28
        check_all(disk, 0, 28, 1)


def test_what_holds_nothing_makes_way_in_another_lane(
        ssd: Ssd, origin: str, client: Client) -> None:
    """A log gives up its oldest chunk first. That is in its dedicated lanes, which have space."""
    with (stack.pool(ssd.path, lanes=ssd.lanes) as pool, stack.cached(origin, pool) as device,
          stack.null_blk() as second, stack.cached(second, pool, 2, "volume 8") as other,
          Disk(device.path) as disk, Disk(other.path) as neighbour):
        client.tag_set(device.number, TAG, cache_lanes=2)
        write_all(disk, 0, 40, 1)
        assert cached(client, device) == (30, 11)
        disk.discard(0, 40 * SECTORS)
        # It has less than its share, and enough space in its dedicated lanes.
        assert client.tag(device.number, TAG).cache_share_bytes == (32 + 13) * MIB
        write_all(neighbour, 0, 60, 100)
        assert stack.wait_until(lambda: cached(client, device)[1] <= 1), cached(client, device)
        check_all(neighbour, 0, 60, 100)


def test_what_holds_nothing_in_own_lanes_makes_room_for_what_is_hot(
        origin: str, client: Client) -> None:
    """Although the tag could have more chunks in shared lanes."""
    with (concatenation(48, 16) as ssd, stack.pool(ssd.path, lanes=ssd.lanes) as pool,
          stack.cached(origin, pool) as device, Disk(device.path) as disk):
        client.tag_set(device.number, TAG, cache_lanes=2)
        prefetch(client, device, [(0, 8 * SECTORS)])
        assert wait(client, device) == 8 * SECTORS
        write_all(disk, 50, 4, 1)
        assert cached(client, device) == (14, 0)
        disk.discard(50 * SECTORS, 4 * SECTORS)
        # The first blocks find no space there, and trigger a reclaim.
        prefetch(client, device, [(20 * SECTORS, SECTORS)])
        assert wait(client, device) == 9 * SECTORS
        assert stack.wait_until(lambda: cached(client, device)[0] < 13), cached(client, device)
        prefetch(client, device, [(21 * SECTORS, 3 * SECTORS)])
        assert wait(client, device) == 12 * SECTORS
        assert cached(client, device) == (13, 1)


def go_on(threads: list[Churn]) -> bool:
    """Wait until each has made progress; return whether it did."""
    was = [thread.rounds for thread in threads]
    return stack.wait_until(lambda: all(
        thread.rounds > before + 20 for thread, before in zip(threads, was, strict=True)), 60)


@pytest.mark.box
def test_lanes_change_hands_under_io(origin: str, client: Client) -> None:
    """No data is lost, and at the end each tag has only chunks in its lanes."""
    with (stack.null_blk(96, discard=True) as cache, stack.null_blk() as second,
          stack.pool(cache, lanes=[24 * SECTORS] * 3) as pool,
          stack.cached(origin, pool) as device,
          stack.cached(second, pool, 2, "volume 8") as other):
        assert stack.pool_status(pool).lanes == 4
        with churning(device, other) as threads:
            for mine, others in ((1, 2), (0, 3), (4, 1), (2, 0), (8, 4), (3, 8), (0, 0), (6, 1)):
                client.tag_set(device.number, TAG, cache_lanes=0)
                client.tag_set(other.number, 8, cache_lanes=others)
                client.tag_set(device.number, TAG, cache_lanes=mine)
                assert go_on(threads)
                assert stack.wait_until(lambda: stack.pool_status(pool).foreign == 0, 60)
            assert stack.wait_until(lambda: cached(client, device)[0] > 8)
        tags = [client.tag(device.number, TAG), client.tag(other.number, 8)]
        assert [tag.cache_lanes for tag in tags] == [6, 1]


def test_who_has_everything_dirty_goes_on_when_its_origin_does(
        ssd: Ssd, origin: str, client: Client) -> None:
    """Although its oldest chunk is in a shared lane that is now dedicated to another tag."""
    length = stack.sectors(origin)
    with (stack.mapped(stack.linear(origin)) as below, stack.pool(ssd.path, lanes=ssd.lanes) as
          pool, stack.cached(below.path, pool) as device, stack.null_blk() as second,
          stack.cached(second, pool, 2, "volume 8") as other,
          Disk(device.path) as disk, Disk(other.path) as neighbour):
        below.swap(f"0 {length} flakey {origin} 0 0 3600 1 error_writes")
        write_all(disk, 0, 25, 1)
        client.tag_set(device.number, TAG, cache_lanes=2)
        write_all(disk, 25, 15, 1)
        client.tag_set(device.number, TAG, cache_lanes=0)
        client.tag_set(other.number, 8, cache_lanes=2)
        assert stack.wait_until(lambda: stack.pool_status(pool).foreign > 0)
        # The owner does not wait for the foreign chunks in its lane.
        write_all(neighbour, 0, 30, 100)
        below.swap(stack.linear(origin))
        assert stack.wait_until(lambda: stack.pool_status(pool).foreign == 0, 60)
        write_all(disk, 40, 20, 1)
        write_all(neighbour, 0, 60, 200)
        check_all(disk, 0, 60, 1)
        check_all(neighbour, 0, 60, 200)


def held(client: Client, device: Mapped, first_mb: int, megabytes: int) -> int:
    """Return the number of cached sectors of a range."""
    first, end = first_mb * SECTORS, (first_mb + megabytes) * SECTORS
    return sum(max(min(run.start + run.len, end) - max(run.start, first), 0)
               for run in client.cached(device.number, TAG))


def read_evenly(disk: Disk, first_mbs: dict[int, int], times: int) -> None:
    """Read ranges several times, each time in another order.

    :param first_mbs: start of each range in MiB, and its size
    """
    places = [mb * SECTORS + at for mb, megabytes in first_mbs.items()
              for at in range(0, megabytes * SECTORS, 64)]
    for _ in range(times):
        random.shuffle(places)
        for at in places:
            disk.read(at, 64)


class Filled(NamedTuple):
    """A tag with a dedicated lane of 16 MiB, and shared lanes of 48."""

    ssd: Ssd
    pool: Mapped
    device: Mapped
    disk: Disk


@contextlib.contextmanager
def filled(origin: str, client: Client, shared_mb: int) -> Iterator[Filled]:
    """Have what write_all(60) writes, cold: 14 MiB from 0 on mostly in its own lane, more at 20."""
    with Disk(origin) as disk:
        write_all(disk, 0, 60, 1)
    with (concatenation(48, 16) as ssd, stack.pool(ssd.path, lanes=ssd.lanes) as pool,
          stack.cached(origin, pool) as device, Disk(device.path) as disk):
        client.tag_set(device.number, TAG, cache_lanes=2)
        prefetch(client, device, [(0, 14 * SECTORS), (20 * SECTORS, shared_mb * SECTORS)])
        assert wait(client, device) == (14 + shared_mb) * SECTORS
        yield Filled(ssd, pool, device, disk)


@contextlib.contextmanager
def neighbour(pool: Mapped) -> Iterator[Mapped]:
    """Create another tag that takes all available chunks."""
    with (stack.null_blk() as origin, stack.cached(origin, pool, 2, "volume 8") as other,
          Disk(other.path) as disk):
        write_all(disk, 0, 60, 100)
        assert stack.wait_until(lambda: stack.cache_status(other).dirty == 0)
        yield other


def read_until_migrated(client: Client, it: Filled, first_mb: int, megabytes: int) -> None:
    """Read a range until more than 1000 further blocks have migrated."""
    before, end = client.tag(it.device.number, TAG).stats.migrated_blocks, time.monotonic() + 120
    while client.tag(it.device.number, TAG).stats.migrated_blocks <= before + 1000:
        assert time.monotonic() < end, (client.tag(it.device.number, TAG),
                                        stack.pool_status(it.pool))
        check_all(it.disk, first_mb, megabytes, 1)


def from_shared(it: Filled, first_mb: int, megabytes: int) -> int:
    """Read a range, and return how many of its sectors came from shared lanes."""
    before = it.ssd.read_sectors(0)
    check_all(it.disk, first_mb, megabytes, 1)
    return it.ssd.read_sectors(0) - before


def read_until_dedicated(client: Client, it: Filled, first_mb: int, megabytes: int) -> None:
    """Read a range until most of it is in dedicated lanes.

    Up to the watermark, that is a fifth of what is in shared lanes, hot blocks stay there.
    """
    end = time.monotonic() + 120
    while from_shared(it, first_mb, megabytes) >= 5 * SECTORS:
        assert time.monotonic() < end, (client.tag(it.device.number, TAG),
                                        stack.pool_status(it.pool))


def hot_percent(tag: Tag) -> float:
    """Return the hot percentage of a tag's data in shared lanes."""
    return 100 * tag.cache_hot_bytes / max(tag.cached_bytes - tag.cache_own_bytes, 1)


def above_mark(tag: Tag) -> bool:
    """Tell whether that is above the watermark of a fifth."""
    return hot_percent(tag) > 20


def test_what_becomes_hot_in_shared_lanes_changes_places(origin: str, client: Client) -> None:
    with Disk(origin) as disk:
        write_all(disk, 0, 60, 1)
    with (concatenation(48, 16) as ssd, stack.pool(ssd.path, lanes=ssd.lanes) as pool,
          stack.cached(origin, pool) as device, Disk(device.path) as disk):
        client.tag_set(device.number, TAG, cache_lanes=2)
        read_twice(disk, 0, 14)
        read_twice(disk, 20, 8)
        assert stack.wait_until(lambda: stack.cache_status(device).promoted == 22 * 256)
        assert cached(client, device)[1] >= 8
        for _ in range(6):
            check_all(disk, 20, 8, 1)
        assert stack.wait_until(lambda: not above_mark(client.tag(device.number, TAG)), 60), (
            client.tag(device.number, TAG), stack.pool_status(pool))
        tag = client.tag(device.number, TAG)
        assert tag.stats.migrated_blocks > 1000
        # More hot data is now read in its dedicated lanes, and all data is still in the cache.
        before, shared = tag.stats.cache_hit_bytes, ssd.read_sectors(0)
        check_all(disk, 20, 8, 1)
        assert ssd.read_sectors(0) < shared + 5 * SECTORS
        check_all(disk, 0, 14, 1)
        assert client.tag(device.number, TAG).stats.cache_hit_bytes > before + 21 * MIB


def test_they_change_places_where_a_tag_may_have_no_more(origin: str, client: Client) -> None:
    """It gives up its own chunks, and in the end no more blocks are copied."""
    with filled(origin, client, 20) as it, neighbour(it.pool) as other:
        own, shared = cached(client, it.device)
        assert own == 13
        assert shared >= 20
        read_until_migrated(client, it, 20, 10)
        assert stack.wait_until(lambda: not above_mark(client.tag(it.device.number, TAG)), 60), (
            client.tag(it.device.number, TAG), stack.pool_status(it.pool))
        # Other tags still have their chunks.
        assert client.tag(other.number, 8).cached_bytes >= 18 * MIB
        time.sleep(1)
        kept = stack.pool_status(it.pool).kept
        time.sleep(2)
        assert stack.pool_status(it.pool).kept == kept
        check_all(it.disk, 0, 40, 1)


def test_what_is_read_gets_room_where_a_tag_may_have_no_more(origin: str,
                                                             client: Client) -> None:
    """In its dedicated lanes: old chunks are reclaimed there, though chunks are free elsewhere."""
    with filled(origin, client, 20) as it, neighbour(it.pool):
        end = time.monotonic() + 120
        while held(client, it.device, 45, 6) < 5 * SECTORS:
            assert time.monotonic() < end, (client.tag(it.device.number, TAG),
                                            stack.pool_status(it.pool))
            read_twice(it.disk, 45, 6)
        check_all(it.disk, 45, 6, 1)


def test_what_is_as_hot_everywhere_stays_where_it_is(origin: str, client: Client) -> None:
    """There is no colder data for an exchange, also after the heat has decayed."""
    with filled(origin, client, 8) as it:
        read_evenly(it.disk, {0: 14, 20: 8}, 20)
        assert above_mark(client.tag(it.device.number, TAG))
        # Except for a few that have not been read for a while.
        assert client.tag(it.device.number, TAG).stats.migrated_blocks < 4 * 256
        assert sum(cached(client, it.device)) >= 22


def test_what_was_hot_once_gives_way_to_what_is(origin: str, client: Client) -> None:
    with filled(origin, client, 8) as it:
        # With maximum heat, in its dedicated lanes.
        for _ in range(16):
            check_all(it.disk, 0, 14, 1)
        assert from_shared(it, 20, 8) >= 7 * SECTORS
        read_until_dedicated(client, it, 20, 8)
        # All chunks have been processed, including the one being filled.
        read_evenly(it.disk, {0: 14, 20: 8}, 10)
        read_until_dedicated(client, it, 0, 14)
        check_all(it.disk, 20, 8, 1)


def test_the_watermark_can_be_changed(origin: str, client: Client) -> None:
    """At 100, no block migrates. With a lower value, hot blocks migrate at once."""
    with filled(origin, client, 8) as it:
        it.pool.message("hot_percent 100")
        for _ in range(6):
            check_all(it.disk, 20, 8, 1)
        assert hot_percent(client.tag(it.device.number, TAG)) > 75
        time.sleep(1)
        assert client.tag(it.device.number, TAG).stats.migrated_blocks == 0
        it.pool.message("hot_percent 50")
        assert stack.wait_until(
            lambda: hot_percent(client.tag(it.device.number, TAG)) <= 50, 60)
        assert client.tag(it.device.number, TAG).stats.migrated_blocks > 500
        time.sleep(1)
        assert hot_percent(client.tag(it.device.number, TAG)) > 25
        check_all(it.disk, 0, 14, 1)


def test_lanes_are_the_same_after_a_restart(ssd: Ssd, origin: str, client: Client) -> None:
    """Written and promoted data is still in its place; lanes are dedicated again."""
    with (stack.pool(ssd.path, lanes=ssd.lanes) as pool, stack.cached(origin, pool) as device,
          Disk(device.path) as disk):
        client.tag_set(device.number, TAG, cache_lanes=2)
        write_all(disk, 0, 10, 1)
        read_twice(disk, 20, 4)
    with (stack.pool(ssd.path, lanes=ssd.lanes) as pool, stack.cached(origin, pool) as device,
          Disk(device.path) as disk):
        assert client.tag(device.number, TAG).cache_lanes == 0
        client.tag_set(device.number, TAG, cache_lanes=2)
        assert cached(client, device)[0] >= 14
        # The pool counts them some time after a tag has got its lanes.
        assert stack.wait_until(lambda: stack.pool_status(pool).foreign == 0, 10)
        check_all(disk, 0, 10, 1)
        # Another table of the device changes nothing.
        device.swap(stack.cached_table(origin, pool))
        assert client.tag(device.number, TAG).cache_lanes == 2
        assert cached(client, device)[0] >= 14


def test_only_the_last_lane_grows_and_shrinks(client: Client, origin: str,
                                              kmsg: KernelLog) -> None:
    with (stack.null_blk(64, discard=True) as cache,
          stack.pool(cache, lanes=[24 * SECTORS]) as pool, stack.cached(origin, pool) as device,
          Disk(device.path) as disk):
        client.tag_set(device.number, TAG, cache_lanes=2)
        write_all(disk, 0, 40, 1)
        assert cached(client, device)[0] > 30
        with pytest.raises(DmError):
            pool.message(f"resize {27 * SECTORS}")
        assert "only the last lane can shrink" in kmsg.read()
        pool.message(f"resize {36 * SECTORS}")
        assert settled(pool, 34)
        assert cached(client, device)[0] <= 12
        pool.message("resize 0")
        write_all(disk, 0, 60, 100)
        assert stack.wait_until(lambda: cached(client, device)[0] > 20)
        check_all(disk, 0, 60, 100)
