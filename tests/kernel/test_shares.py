# SPDX-License-Identifier: Apache-2.0
"""Shares of the cache: minima, weights, maxima, and the use of idle shares."""

import contextlib
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import pytest

from tests.box.steps import at_end
from tests.kernel import stack
from tests.kernel.conftest import Cgroup
from tests.kernel.disk import Disk, pattern
from tests.kernel.stack import Mapped
from vcache_agent.netlink.client import Client
from vcache_agent.netlink.errors import NetlinkError

MIB = 1 << 20
TAG = 7


@pytest.fixture
def cache() -> Iterator[str]:
    """Provide an empty cache device of 64 MiB: 62 for data, 56 of them divided into shares."""
    with stack.null_blk(discard=True) as path:
        yield path


def shares(client: Client, device: Mapped) -> dict[int, int]:
    """Return the shares of the tags in MiB, once they are computed."""
    tags = client.tags(device.number)
    return {tag.id: tag.cache_share_bytes // MIB for tag in tags}


def write_all(disk: Disk, first_mb: int, megabytes: int, seed: int) -> None:
    """Write data and flush it, MiB by MiB."""
    for mb in range(first_mb, first_mb + megabytes):
        disk.write(mb * 2048, pattern(seed + mb, 2048))
        disk.flush()


def test_minima_come_first_then_weights_up_to_the_maxima(
        cache: str, origin: str, client: Client) -> None:
    with stack.pool(cache) as pool, stack.cached(origin, pool, scope="filesystem") as device:
        client.tag_set(device.number, 1, weight=100)
        client.tag_set(device.number, 2, weight=300)
        assert stack.wait_until(lambda: shares(client, device) == {0: 11, 1: 11, 2: 33})
        client.tag_set(device.number, 3, weight=100, cache_min=16 * MIB)
        assert stack.wait_until(lambda: shares(client, device) == {0: 6, 1: 6, 2: 20, 3: 22})
        client.tag_set(device.number, 3, cache_max=20 * MIB)
        assert stack.wait_until(lambda: shares(client, device) == {0: 7, 1: 7, 2: 21, 3: 20})
        client.tag_set(device.number, 2, cache_min=48 * MIB)
        # More than available: reduced in proportion, and nothing remains for weights.
        assert stack.wait_until(lambda: shares(client, device) == {0: 0, 1: 0, 2: 42, 3: 14})
        client.tag_del(device.number, 2)
        client.tag_set(device.number, 3, cache_min=0, cache_max=0)
        assert stack.wait_until(lambda: shares(client, device) == {0: 18, 1: 18, 3: 18})


def test_what_holds_nothing_any_more_goes_first(cache: str, origin: str, client: Client) -> None:
    """Although its tag has no more than its share: it loses no data, and others need the chunk."""
    with (stack.pool(cache) as pool, stack.cached(origin, pool, 1, "volume 7") as device,
          stack.null_blk() as second, stack.cached(second, pool, 2, "volume 8") as other,
          Disk(device.path) as disk, Disk(other.path) as neighbour):
        for _ in range(2):
            write_all(disk, 0, 10, 1)
        assert stack.wait_until(lambda: stack.cache_status(device).dirty == 0)
        assert 20 * MIB < client.tag(device.number, 7).cached_bytes < 28 * MIB
        write_all(neighbour, 0, 60, 100)
        assert stack.wait_until(lambda: client.tag(device.number, 7).cached_bytes <= 13 * MIB)
        before = client.tag(device.number, 7).stats.cache_hit_bytes
        for mb in range(10):
            assert disk.read(mb * 2048, 2048) == pattern(1 + mb, 2048)
        assert client.tag(device.number, 7).stats.cache_hit_bytes - before == 10 * MIB


def test_a_minimum_above_the_maximum_is_refused(cache: str, origin: str, client: Client) -> None:
    with stack.pool(cache) as pool, stack.cached(origin, pool) as device:
        client.tag_set(device.number, TAG, cache_max=8 * MIB)
        with pytest.raises(NetlinkError, match="cache-min-bytes is more than cache-max-bytes"):
            client.tag_set(device.number, TAG, weight=7, cache_min=9 * MIB)
        tag = client.tag(device.number, TAG)
        assert (tag.weight, tag.cache_min_bytes, tag.cache_max_bytes) == (100, 0, 8 * MIB)


def test_a_refused_share_makes_no_tag(cache: str, origin: str, client: Client) -> None:
    with stack.pool(cache) as pool, stack.cached(origin, pool, scope="filesystem") as device:
        with pytest.raises(NetlinkError, match="cache-min-bytes is more than cache-max-bytes"):
            client.tag_set(device.number, 9, cache_min=2 * MIB, cache_max=MIB)
        assert [tag.id for tag in client.tags(device.number)] == [0]


def read_twice(disk: Disk, first_mb: int, megabytes: int) -> None:
    """Read everything twice, in a non-sequential order."""
    sectors = megabytes * 2048
    for at in range(0, sectors, 64):
        for _ in range(2):
            disk.read(first_mb * 2048 + at * 37 % sectors, 64)


def test_reads_are_lent_what_others_do_not_use(cache: str, origin: str, client: Client) -> None:
    """Also for a tag that never writes; a tenth of the pool stays free for others."""
    with (stack.pool(cache) as pool, stack.cached(origin, pool) as device,
          Disk(device.path) as disk, stack.null_blk() as second,
          stack.cached(second, pool, 2, "volume 8")):
        assert stack.wait_until(
            lambda: client.tag(device.number, TAG).cache_share_bytes == 28 * MIB)
        read_twice(disk, 0, 60)
        assert stack.pool_status(pool).reads > 28
        assert stack.pool_status(pool).free >= 6


def test_reads_make_nobody_pass_the_maximum(cache: str, origin: str, client: Client) -> None:
    """Also if no chunk can be reclaimed for them: all data of the tag is dirty."""
    size = stack.sectors(origin)
    with (stack.pool(cache) as pool, stack.mapped(stack.linear(origin)) as below,
          stack.cached(below.path, pool) as device, Disk(device.path) as disk):
        client.tag_set(device.number, TAG, cache_max=8 * MIB)
        below.swap(f"0 {size} flakey {origin} 0 0 3600 1 error_writes")
        # One of the eight chunks is for the kept blocks of a reclaimed chunk.
        for mb in range(6):
            disk.write(mb * 2048, pattern(mb, 2048))
            disk.flush()
        assert stack.pool_status(pool).dirty >= 6
        read_twice(disk, 16, 16)
        assert stack.pool_status(pool).reads == 0
        below.swap(stack.linear(origin))
        assert stack.wait_until(lambda: stack.pool_status(pool).dirty <= 1)
        read_twice(disk, 16, 16)
        assert 0 < stack.pool_status(pool).reads <= 8


@pytest.mark.box
def test_what_others_do_not_use_is_lent(cache: str, origin: str, client: Client,
                                        cgroup: Callable[[str], Cgroup]) -> None:
    """A tag may exceed its share until the owner of the rest needs it."""
    with (stack.pool(cache) as pool, stack.cached(origin, pool, 1, "volume 7") as device,
          stack.null_blk() as second, stack.cached(second, pool, 2, "volume 8") as other,
          Disk(device.path) as disk, Disk(other.path) as neighbour):
        assert stack.wait_until(
            lambda: client.tag(device.number, 7).cache_share_bytes == 28 * MIB)
        write_all(disk, 0, 50, 1)
        assert stack.wait_until(lambda: client.tag(device.number, 7).cached_bytes > 40 * MIB)
        write_all(neighbour, 0, 50, 100)
        assert stack.wait_until(lambda: client.tag(other.number, 8).cached_bytes > 24 * MIB)
        assert client.tag(device.number, 7).cached_bytes <= 38 * MIB
        for mb in range(50):
            assert disk.read(mb * 2048, 2048) == pattern(1 + mb, 2048)
            assert neighbour.read(mb * 2048, 2048) == pattern(100 + mb, 2048)


def test_a_minimum_is_there_from_the_start_though_all_is_lent(
        cache: str, origin: str, client: Client) -> None:
    """An instance begins with it, whatever its weight: others give up what they used of it."""
    with (stack.pool(cache) as pool, stack.cached(origin, pool, 1, "volume 7") as device,
          Disk(device.path) as disk):
        client.tag_set(device.number, 7, weight=1000)
        write_all(disk, 0, 55, 1)
        assert stack.wait_until(lambda: client.tag(device.number, 7).cached_bytes > 50 * MIB)
        with (stack.null_blk() as second, stack.cached(second, pool, 2, "volume 8") as other,
              Disk(other.path) as neighbour):
            client.tag_set(other.number, 8, weight=1, cache_min=20 * MIB)
            write_all(neighbour, 0, 17, 100)
            assert client.tag(other.number, 8).cached_bytes >= 17 * MIB
            assert sum(run.len for run in client.cached(other.number, 8)) == 17 * 2048
            assert 20 <= client.tag(other.number, 8).cache_share_bytes / MIB < 21


def test_who_is_not_in_use_has_no_chunk_kept_free(cache: str, origin: str) -> None:
    """Many instances of a host may be stopped; their data is kept, but no chunk is reserved."""
    with contextlib.ExitStack() as on:
        pool = on.enter_context(stack.pool(cache))
        for volume in range(10, 20):
            with stack.cached(origin, pool, volume, f"volume {volume}") as stopped, \
                    Disk(stopped.path) as disk:
                write_all(disk, 0, 1, volume)
        device = on.enter_context(stack.cached(origin, pool, 1, "volume 7"))
        second = on.enter_context(stack.null_blk())
        on.enter_context(stack.cached(second, pool, 2, "volume 8"))
        disk = on.enter_context(Disk(device.path))
        write_all(disk, 0, 60, 1)
        assert stack.wait_until(lambda: stack.cache_status(device).dirty == 0)
        # The reserve, one chunk for each of the two in use, and one more.
        assert stack.pool_status(pool).free <= 6 + 2 + 1


class Pair(NamedTuple):
    """Two tags of a pool, 7 and 8; the data of the first is on its origin."""

    pool: Mapped
    device: Mapped
    other: Mapped
    disk: Disk
    neighbour: Disk
    below: Mapped
    second: str
    lender: Mapped | None

    @contextlib.contextmanager
    def refusing(self, work: Callable[[Disk], None]) -> Iterator[threading.Thread]:
        """Run the second while its origin refuses writes until the end of the block.

        Then it must complete.
        """
        size = stack.sectors(self.second)
        self.below.swap(f"0 {size} flakey {self.second} 0 0 3600 1 error_writes")
        writer = threading.Thread(target=work, args=(self.neighbour,))
        writer.start()
        with at_end(writer.join, 60), at_end(self.below.swap, stack.linear(self.second)):
            yield writer
        assert not writer.is_alive()


@contextlib.contextmanager
def pair(cache: str, origin: str, client: Client, has_mb: int, *,
         lender: bool = True, lanes: Sequence[int] = ()) -> Iterator[Pair]:
    """Create both tags, and write data to the first.

    :param lender: there is a third, 9, which does not use its share
    :param lanes: sizes of the pool's lanes except the last, in sectors
    """
    with contextlib.ExitStack() as on:
        pool = on.enter_context(stack.pool(cache, lanes=lanes))
        device = on.enter_context(stack.cached(origin, pool, 1, "volume 7"))
        second = on.enter_context(stack.null_blk())
        below = on.enter_context(stack.mapped(stack.linear(second)))
        other = on.enter_context(stack.cached(below.path, pool, 2, "volume 8"))
        third = None
        if lender:
            third = on.enter_context(
                stack.cached(on.enter_context(stack.null_blk()), pool, 3, "volume 9"))
        disk, neighbour = (on.enter_context(Disk(each.path)) for each in (device, other))
        assert stack.wait_until(
            lambda: client.tag(device.number, 7).cache_share_bytes == (18 if lender else 28) * MIB)
        for mb in range(has_mb):
            if client.tag(device.number, 7).cached_bytes < has_mb * MIB:
                write_all(disk, mb, 1, 1)
        assert stack.wait_until(lambda: stack.cache_status(device).dirty == 0)
        assert client.tag(device.number, 7).cached_bytes == has_mb * MIB
        yield Pair(pool, device, other, disk, neighbour, below, second, third)


def write_60(disk: Disk) -> None:
    """Write more than a tag can have."""
    write_all(disk, 0, 60, 100)


def check_60(disk: Disk) -> None:
    """Check the data of write_60()."""
    for mb in range(60):
        assert disk.read(mb * 2048, 2048) == pattern(100 + mb, 2048)


def test_nobody_loses_of_its_share_to_one_that_has_more(
        cache: str, origin: str, client: Client) -> None:
    """Although the chunks of the other cannot be reclaimed, since its origin refuses writes."""
    with pair(cache, origin, client, 17) as both:
        def cached() -> int:
            return client.tag(both.device.number, 7).cached_bytes

        before = cached()
        with both.refusing(write_60) as writer:
            assert stack.wait_until(
                lambda: client.tag(both.other.number, 8).cached_bytes >= 32 * MIB)
            # The pool works in the background: give it time.
            assert not stack.wait_until(lambda: cached() < before, 3)
            assert writer.is_alive()
            # The other does not get all free chunks either: the reserve and one chunk for each of
            # the three tags are for those below their shares. (One more, but it may take that
            # before the pool checks.)
            assert stack.pool_status(both.pool).free >= 6 + 3
        check_60(both.neighbour)


def lender_comes(client: Client, both: Pair, least: int = 0, lent: int = 32 * MIB) -> int:
    """Run the third while the second's origin refuses; return the chunks of the third.

    :param least: its minimum, in bytes, from its start
    :param lent: bytes that the second has before
    """
    assert both.lender
    with Disk(both.lender.path) as disk:
        with both.refusing(write_60):
            assert stack.wait_until(
                lambda: client.tag(both.other.number, 8).cached_bytes >= lent)
            if least:
                client.tag_set(both.lender.number, 9, cache_min=least)
            writer = threading.Thread(target=write_60, args=(disk,))
            writer.start()
            writer.join(60)
            waits, has = writer.is_alive(), client.tag(both.lender.number, 9).cached_bytes
        writer.join()
        assert not waits
        check_60(disk)
    check_60(both.neighbour)
    return has


def test_nobody_loses_of_its_share_to_one_that_has_the_core_of_its_own(
        cache: str, origin: str, client: Client) -> None:
    """The other continues with its chunks while those above their share cannot give up any."""
    with pair(cache, origin, client, 17) as both:
        assert lender_comes(client, both) >= 9 * MIB
        # In such a small pool, less than half of the reserve is free during a relocation: a few of
        # its 17 chunks may be reclaimed then. If it had to give up chunks for all others, 5 would
        # remain.
        assert client.tag(both.device.number, 7).cached_bytes >= 11 * MIB


def test_a_minimum_is_there_whoever_has_to_give_for_it(
        cache: str, origin: str, client: Client) -> None:
    """No tag above its share can give up chunks, so a tag at its share does."""
    with pair(cache, origin, client, 17) as both:
        assert lender_comes(client, both, 15 * MIB) >= 15 * MIB
        assert client.tag(both.device.number, 7).cached_bytes < 17 * MIB


def test_a_minimum_is_there_for_one_whose_own_lanes_do_not_hold_it(
        cache: str, origin: str, client: Client) -> None:
    """It gets the rest in shared lanes, where others give up chunks for it."""
    with pair(cache, origin, client, 11, lanes=[48 * 2048]) as both:
        assert both.lender
        client.tag_set(both.lender.number, 9, cache_lanes=2)
        # 14 chunks are in its dedicated lanes; some of them stay free for relocation.
        assert lender_comes(client, both, 24 * MIB, lent=24 * MIB) >= 20 * MIB
        assert client.tag(both.device.number, 7).cached_bytes < 11 * MIB


def test_who_is_furthest_over_its_share_waits_until_it_can_give(
        cache: str, origin: str, client: Client) -> None:
    """Its neighbour could give up chunks above its share, but does not have to."""
    with pair(cache, origin, client, 27) as both:
        with both.refusing(write_60) as writer:
            # Both have the same, the neighbour at most a few chunks more.
            assert stack.wait_until(
                lambda: client.tag(both.other.number, 8).cached_bytes >= 22 * MIB)
            writer.join(3)
            assert writer.is_alive()
            assert client.tag(both.device.number, 7).cached_bytes >= 22 * MIB
            assert client.tag(both.other.number, 8).cached_bytes <= 28 * MIB
            # This log can give up chunks: it does not wait, though the other's reclaim is pending.
            write_all(both.disk, 26, 26, 1)
            assert writer.is_alive()
        check_60(both.neighbour)


def rewrite_60(disk: Disk, megabytes: int) -> None:
    """Write as much, but always to the same few MiB, and check the data."""
    rnd, newest = random.Random(1), {}
    for n in range(60 * 16):
        at = rnd.randrange(megabytes * 16) * 128
        newest[at] = n
        disk.write(at, pattern(n, 128))
        if n % 16 == 15:
            disk.flush()
    for at, n in newest.items():
        assert disk.read(at, 128) == pattern(n, 128)


def most_until(writer: threading.Thread, cached: Callable[[], int]) -> int:
    """Return the maximum until a thread ends, which it must."""
    seen = [0]
    for _ in range(600):
        if not writer.is_alive():
            break
        seen.append(cached())
        writer.join(0.1)
    assert not writer.is_alive()
    return max(seen)


def test_who_is_furthest_over_its_share_relocates_before_others_give(
        cache: str, origin: str, client: Client) -> None:
    """Its repeated writes fit, so that it need not wait for its origin either."""
    with pair(cache, origin, client, 25) as both:
        with both.refusing(lambda disk: rewrite_60(disk, 8)) as writer:
            writer.join(60)
            assert not writer.is_alive()
        assert stack.pool_status(both.pool).relocated > 0
        assert client.tag(both.device.number, 7).cached_bytes >= 22 * MIB


@pytest.mark.parametrize("own", [0, 2])
def test_who_has_its_maximum_relocates_what_fits_into_it(
        cache: str, origin: str, client: Client, own: int) -> None:
    """It does not wait for its origin either, and stays within the maximum."""
    with pair(cache, origin, client, 0, lanes=[32 * 2048]) as both:
        client.tag_set(both.other.number, 8, cache_lanes=own, cache_max=12 * MIB)
        with both.refusing(lambda disk: rewrite_60(disk, 5)) as writer:
            most = most_until(writer, lambda: client.tag(both.other.number, 8).cached_bytes)
        assert stack.pool_status(both.pool).relocated > 0
        assert 10 * MIB <= most <= 12 * MIB


def test_who_has_its_share_goes_on_when_its_origin_does(
        cache: str, origin: str, client: Client) -> None:
    """It has no clean chunk, and its idle neighbour is below its share: no tag gives up chunks."""
    # When the other has its share, only the reserve is free.
    with pair(cache, origin, client, 27, lender=False) as both:
        with both.refusing(write_60) as writer:
            assert stack.wait_until(
                lambda: client.tag(both.other.number, 8).cached_bytes >= 28 * MIB)
            writer.join(2)
            assert writer.is_alive()
        check_60(both.neighbour)


def test_a_maximum_holds_and_is_changed_under_load(cache: str, origin: str,
                                                   client: Client) -> None:
    """When it shrinks with all data dirty, no data is lost; when it grows, there is more."""
    def cached() -> int:
        return client.tag(device.number, TAG).cached_bytes

    with (stack.pool(cache) as pool, stack.cached(origin, pool) as device,
          Disk(device.path) as disk):
        client.tag_set(device.number, TAG, cache_max=8 * MIB)
        write_all(disk, 0, 30, 1)
        assert cached() <= 8 * MIB
        client.tag_set(device.number, TAG, cache_max=48 * MIB)
        write_all(disk, 0, 40, 200)
        assert cached() > 30 * MIB
        client.tag_set(device.number, TAG, cache_max=4 * MIB)
        write_all(disk, 40, 10, 200)
        assert stack.wait_until(lambda: cached() <= 4 * MIB)
        for mb in range(50):
            assert disk.read(mb * 2048, 2048) == pattern(200 + mb, 2048)
        assert stack.pool_status(pool).free >= 57


@pytest.mark.parametrize("own", [0, 2])
def test_a_maximum_holds_while_chunks_are_relocated(client: Client, own: int) -> None:
    """Writers must not fill the chunks to which relocation copies: these are above the maximum."""
    stop = threading.Event()

    def write(seed: int) -> None:
        rnd = random.Random(seed)
        while not stop.is_set():
            disk.write(rnd.randrange(24 * 16) * 128, pattern(seed, 128))
            disk.flush()

    def is_relocated() -> bool:
        seen.append(client.tag(device.number, TAG).cached_bytes)
        return stack.pool_status(pool).relocated > 4000

    with (stack.null_blk(completion_us=20000, depth=1) as slow,
          stack.null_blk(32, discard=True, completion_us=2000, depth=64) as cache,
          stack.pool(cache, chunk_kib=256, lanes=[8 * 2048]) as pool,
          stack.cached(slow, pool) as device, Disk(device.path) as disk,
          contextlib.ExitStack() as on):
        client.tag_set(device.number, TAG, cache_lanes=own, cache_max=4 * MIB)
        for seed in range(4):
            writer = threading.Thread(target=write, args=(seed,))
            writer.start()
            on.callback(writer.join)
        on.callback(stop.set)
        seen: list[int] = []
        assert stack.wait_until(is_relocated)
        assert 3 * MIB < max(seen) <= 4 * MIB


def test_a_log_does_not_fill_up_with_dirty_data(client: Client) -> None:
    """Its writer becomes as slow as the origin before that, and does not stop."""
    stop = threading.Event()
    seen: list[int] = []

    def write() -> None:
        rnd = random.Random(1)
        while not stop.is_set():
            for _ in range(16):
                disk.write(rnd.randrange(60 * 16) * 128, pattern(1, 128))
            disk.flush()

    def is_done() -> bool:
        tag = client.tag(device.number, TAG)
        seen.append(tag.cache_dirty_bytes)
        return tag.stats.write_bytes > 40 * MIB

    with (stack.null_blk(completion_us=40000, depth=1) as slow, stack.null_blk(24) as cache,
          stack.pool(cache, chunk_kib=512) as pool, stack.cached(slow, pool) as device,
          Disk(device.path) as disk):
        writer = threading.Thread(target=write)
        writer.start()
        with at_end(writer.join), at_end(stop.set):
            assert stack.wait_until(is_done)
        assert 0.5 * 24 * MIB < max(seen) < 0.81 * 24 * MIB


def test_writers_that_wait_get_chunks_in_turn() -> None:
    """All have their share, and no volume is preferred for its number."""
    stop = threading.Event()
    done = [0] * 4

    def write(number: int, disk: Disk) -> None:
        rnd = random.Random(number)
        while not stop.is_set():
            disk.write(rnd.randrange(1024) * 8, pattern(number, 8), fua=True)
            done[number] += 1

    with (stack.null_blk(16, completion_us=4000, depth=1) as slow,
          stack.null_blk(24, completion_us=80, depth=64) as cache,
          stack.pool(cache, chunk_kib=64) as pool, contextlib.ExitStack() as on):
        for number in range(4):
            part = on.enter_context(stack.mapped(f"0 8192 linear {slow} {number * 8192}"))
            device = on.enter_context(stack.cached(part.path, pool, number + 1))
            disk = on.enter_context(Disk(device.path))
            writer = threading.Thread(target=write, args=(number, disk))
            writer.start()
            on.callback(writer.join)
        on.callback(stop.set)
        # The first writes find free chunks.
        assert stack.wait_until(lambda: stack.pool_status(pool).relocated > 2000)
        before = list(done)
        assert stack.wait_until(lambda: stack.pool_status(pool).relocated > 12000)
        gained = [after - first for after, first in zip(done, before, strict=True)]
        assert min(gained) > 0.7 * max(gained), gained


def test_who_gets_a_smaller_maximum_does_not_copy_what_is_as_hot_as_the_rest(
        cache: str, origin: str, client: Client) -> None:
    """All blocks were read equally often. So copies would gain nothing.

    Only of the first chunk some are kept: the level is not known before.
    """
    with (stack.pool(cache) as pool, stack.cached(origin, pool) as device,
          Disk(device.path) as disk):
        client.tag_set(device.number, TAG, cache_max=0)
        for _ in range(4):
            for at in range(0, 32 * 2048, 64):
                disk.read(at * 37 % (32 * 2048), 64)
            assert stack.wait_until(lambda: stack.cache_status(device).promoted == 32 * 256)
        assert stack.pool_status(pool).kept == 0
        client.tag_set(device.number, TAG, cache_max=8 * MIB)
        assert stack.wait_until(lambda: client.tag(device.number, TAG).cached_bytes <= 8 * MIB)
        assert stack.pool_status(pool).kept <= 256 // 2
        assert client.tag(device.number, TAG).cached_bytes >= 4 * MIB


def listed(client: Client, device: Mapped, first_mb: int, megabytes: int) -> float:
    """Return the MiB of a range that a tag has in the cache."""
    start, end = first_mb * 2048, (first_mb + megabytes) * 2048
    return sum(max(min(run.start + run.len, end) - max(run.start, start), 0)
               for run in client.cached(device.number, TAG)) / 2048


@pytest.mark.parametrize("again", ["what was written", "what was read"])
def test_of_a_written_and_a_read_chunk_that_goes_of_which_less_was_read(
        cache: str, origin: str, client: Client, again: str) -> None:
    """One more read decides; all have the same age, and none is kept for being hot."""
    with (stack.pool(cache) as pool, stack.cached(origin, pool) as device,
          Disk(device.path) as disk):
        client.tag_set(device.number, TAG, cache_max=24 * MIB)
        write_all(disk, 0, 8, 1)
        device.message("drain")
        assert stack.wait_until(lambda: stack.cache_status(device).dirty == 0)
        # There is free space, so that the first read is sufficient.
        for at in range(0, 8 * 2048, 64):
            disk.read(16 * 2048 + at * 37 % (8 * 2048), 64)
        assert stack.wait_until(lambda: stack.cache_status(device).promoted == 8 * 256)
        assert (listed(client, device, 0, 8), listed(client, device, 16, 8)) == (8, 8)
        first = 0 if again == "what was written" else 16
        before = client.tag(device.number, TAG).stats.cache_hit_bytes
        for at in range(0, 8 * 2048, 64):
            disk.read(first * 2048 + at, 64)
        assert client.tag(device.number, TAG).stats.cache_hit_bytes - before == 8 * MIB
        # The size of all chunks, except for three quarters of one of the two, does not fit.
        write_all(disk, 32, 8, 100)
        assert stack.wait_until(lambda: client.tag(device.number, TAG).cached_bytes < 24 * MIB)
        stays, goes = (0, 16) if again == "what was written" else (16, 0)
        assert listed(client, device, stays, 8) == 8
        assert listed(client, device, goes, 8) < 6
        assert stack.pool_status(pool).kept == 0
