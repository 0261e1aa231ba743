# SPDX-License-Identifier: Apache-2.0
"""The cache fails: a tag that has lost data does not take others of its volume with it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tests.box.steps import at_end
from tests.kernel import stack
from tests.kernel.conftest import Cgroup, KernelLog
from tests.kernel.disk import Disk, pattern
from tests.kernel.stack import Mapped, linear
from tests.kernel.test_fallback import Cache, cache, fails
from vcache_agent.model import Extent
from vcache_agent.netlink.client import Client, EventListener
from vcache_agent.netlink.spec import EventKind

__all__ = ["cache"]

#: Sectors of tag 1, whose data is dirty; of tag 2, and of the host, whose data is clean; and
#: clean sectors of tag 1.
ONE, TWO, HOST, CLEAN = 0, 4096, 8192, 12288
LEN = 64


@dataclass
class Host:
    """A device with two tags and the host's."""

    device: Mapped
    disk: Disk
    pool: Mapped
    cache: Cache
    one: Cgroup
    two: Cgroup
    closed: bool = False

    def close(self) -> None:
        """Close the disk, if that was not done."""
        if not self.closed:
            self.closed = True
            self.disk.close()

    def remove(self) -> None:
        """Remove the device and its pool."""
        self.close()
        self.device.remove()
        self.pool.remove()

    def write_one(self, seed: int) -> None:
        """Write and flush data of tag 1."""
        self.one.run(lambda: self.disk.write_and_flush(ONE, pattern(seed, LEN)))

    def write_two(self, seed: int) -> None:
        """Write and flush data of tag 2."""
        self.two.run(lambda: self.disk.write_and_flush(TWO, pattern(seed, LEN)))

    def is_failed(self) -> bool:
        """Write, and return whether the pool has failed."""
        try:
            self.disk.write(HOST, pattern(9, 8), fua=True)
        except OSError:
            return False
        return stack.pool_status(self.pool).state == "failed"


def tags(client: Client, device: Mapped, one: Cgroup, two: Cgroup) -> None:
    """Make the tags of a device."""
    client.tag_set(device.number, 1, cgroups=[one.id])
    client.tag_set(device.number, 2, cgroups=[two.id])
    client.set_extents(device.number, 1, [Extent(ONE, 2048), Extent(CLEAN, LEN)])
    client.set_extents(device.number, 2, [Extent(TWO, 2048)])


@pytest.fixture
def host(cache: Cache, origin: str, client: Client,
         cgroup: Callable[[str], Cgroup]) -> Iterator[Host]:
    """Provide a host where tag 1 has dirty data, since the origin refuses its blocks."""
    one, two, size = cgroup("one"), cgroup("two"), stack.sectors(origin)
    with (stack.mapped(linear(origin)) as below, stack.pool(cache.path) as pool,
          stack.cached(below.path, pool, scope="filesystem") as device):
        tags(client, device, one, two)
        below.swap(f"0 2048 flakey {origin} 0 0 3600 1 error_writes\n"
                   f"2048 {size - 2048} linear {origin} 2048")
        host = Host(device, Disk(device.path), pool, cache, one, two)
        with at_end(below.swap, linear(origin)), at_end(host.close):
            host.write_one(1)
            one.run(lambda: host.disk.write(CLEAN, pattern(8, LEN), fua=True))
            host.write_two(2)
            host.disk.write(HOST, pattern(3, LEN), fua=True)
            assert stack.wait_until(lambda: stack.cache_status(device).dirty == LEN)
            yield host


def test_tags_without_dirty_data_continue(host: Host, origin: str, kmsg: KernelLog,
                                          events: EventListener) -> None:
    host.cache.fail()
    assert stack.wait_until(host.is_failed)
    assert stack.cache_status(host.device).state == "partly-lost"
    log = kmsg.read()
    assert "tag 1: lost 64 dirty sectors from 0 to 63; its writes fail" in log
    assert "tag 2 continues without its cache; drop the tag" in log
    # Tag 2 and the host read and write, and their flushes succeed.
    assert host.disk.read(TWO, LEN) == pattern(2, LEN)
    host.write_two(4)
    assert host.disk.read(TWO, LEN) == pattern(4, LEN)
    assert host.disk.read(HOST, LEN) == pattern(9, 8) + pattern(3, LEN)[8 * 512:]
    with Disk(origin, readonly=True) as raw:
        assert raw.read(TWO, LEN) == pattern(4, LEN)
    host.disk.discard(TWO, 8)
    host.two.run(host.disk.flush)
    # Tag 1 gets errors.
    fails(lambda: host.disk.read(ONE, 8))
    fails(lambda: host.write_one(5))
    # What it wrote is in the buffer, and is covered by its own flushes only.
    host.write_two(6)
    # Nobody can overwrite what is lost, as it would come back with the device.
    host.disk.write(ONE + 32, pattern(7, 8))
    fails(host.disk.flush)
    told: set[tuple[EventKind, int]] = set()

    def is_told() -> bool:
        told.update((kind, tag) for kind, number, tag in events.receive(0.2)
                    if number == host.device.number)
        return (EventKind.CACHE_LOST, 1) in told

    assert stack.wait_until(is_told)


def test_a_cache_that_comes_back_has_the_data_that_was_lost(
        host: Host, origin: str, client: Client, kmsg: KernelLog) -> None:
    """And nothing old of the tags that went on: the metadata could be written."""
    size = stack.sectors(host.cache.raw)
    at = stack.pool_status(host.pool)
    first = size - size % at.chunk_sectors - at.chunks * at.chunk_sectors
    host.cache.below.swap(f"0 {first} linear {host.cache.raw} 0\n{first} {size - first} error")
    assert stack.wait_until(host.is_failed)
    host.write_two(4)
    log = kmsg.read()
    assert "tag 2 continues without its cache\n" in log
    # What tag 1 has clean would be valid again, too.
    host.disk.write(CLEAN, pattern(5, 8))
    fails(host.disk.flush)
    host.remove()
    host.cache.mend()
    with (stack.pool(host.cache.path) as pool,
          stack.cached(origin, pool, scope="filesystem") as device, Disk(device.path) as disk):
        assert disk.read(ONE, LEN) == pattern(1, LEN)
        assert disk.read(CLEAN, LEN) == pattern(8, LEN)
        assert disk.read(TWO, LEN) == pattern(4, LEN)
        assert disk.read(HOST, LEN) == pattern(9, 8) + pattern(3, LEN)[8 * 512:]
        device.message("drain")
        assert stack.wait_until(lambda: stack.cache_status(device).state == "clean")
    with Disk(origin, readonly=True) as raw:
        assert raw.read(ONE, LEN) == pattern(1, LEN)
        assert raw.read(TWO, LEN) == pattern(4, LEN)


def test_a_tag_can_be_dropped_from_a_volume(host: Host, origin: str) -> None:
    """For a tag that went on while the metadata could not be written."""
    host.cache.fail()
    assert stack.wait_until(host.is_failed)
    host.write_two(4)
    host.remove()
    host.cache.mend()
    with stack.pool(host.cache.path) as pool:
        with pytest.raises(OSError):  # noqa: PT011 - the kernel log has the reason
            pool.message("drop 1 tag 2")
        for tag in (2, 0):
            pool.message(f"drop 1 tag {tag} force")
        with (stack.cached(origin, pool, scope="filesystem") as device,
              Disk(device.path) as disk):
            assert disk.read(ONE, LEN) == pattern(1, LEN)
            assert disk.read(TWO, LEN) == pattern(4, LEN)
            assert disk.read(HOST, LEN) == pattern(9, 8) + pattern(3, LEN)[8 * 512:]
