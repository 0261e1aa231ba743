# SPDX-License-Identifier: Apache-2.0
"""Filesystem scope: attribution of writes and flushes."""

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.box.steps import at_end
from tests.kernel import dm, stack
from tests.kernel.conftest import Cgroup
from tests.kernel.disk import SECTOR, Disk, pattern, read
from tests.kernel.stack import Mapped, null_blk, vcache
from vcache_agent.model import Extent
from vcache_agent.netlink.client import Client

# Sectors of tags 1 and 2; the sectors behind them are untagged.
ONE, TWO, NOBODY = 0, 4096, 8192


@dataclass
class Host:
    """A device with two tags, each with a cgroup and 2 MiB."""

    device: Mapped
    disk: Disk
    client: Client
    origin: str
    one: Cgroup
    two: Cgroup

    def dirty(self) -> list[int]:
        """Return the dirty sectors of the host tag and of tags 1 and 2."""
        return [self.client.tag(self.device.number, tag).dirty_bytes // SECTOR
                for tag in (0, 1, 2)]

    def written(self, sector: int, seed: int) -> bool:
        """Return whether write() with these arguments has reached the origin."""
        return read(self.origin, sector, 8) == pattern(seed, 8)

    def write(self, sector: int, seed: int) -> None:
        """Write a page."""
        self.disk.write(sector, pattern(seed, 8))


@pytest.fixture
def host(origin: str, client: Client, cgroup: Callable[[str], Cgroup]) -> Iterator[Host]:
    """Provide the host."""
    one, two = cgroup("one"), cgroup("two")
    with vcache(origin, "filesystem") as device, Disk(device.path) as disk:
        client.tag_set(device.number, 1, cgroups=[one.id])
        client.tag_set(device.number, 2, cgroups=[two.id])
        client.set_extents(device.number, 1, [Extent(ONE, 2048), Extent(ONE + 2048, 2048)])
        client.set_extents(device.number, 2, [Extent(TWO, 4096)])
        yield Host(device, disk, client, origin, one, two)


def test_write_needs_cgroup_and_extents(host: Host) -> None:
    host.one.run(lambda: host.write(ONE, 1))
    assert host.dirty() == [0, 8, 0]
    host.one.run(lambda: host.write(TWO, 2))
    assert host.dirty() == [8, 8, 0], "a foreign extent"
    host.two.run(lambda: host.write(ONE + 8, 3))
    assert host.dirty() == [16, 8, 0], "a foreign cgroup"
    host.one.run(lambda: host.write(NOBODY, 4))
    assert host.dirty() == [24, 8, 0], "nobody's extent"
    host.write(ONE + 16, 5)
    assert host.dirty() == [32, 8, 0], "no cgroup"
    host.one.run(lambda: host.disk.write(TWO - 8, pattern(6, 16)))
    assert host.dirty() == [40, 8, 0], "across the border; half of it was dirty before"
    # Adjacent extents of one owner are one range.
    host.one.run(lambda: host.disk.write(ONE + 2040, pattern(7, 16)))
    assert host.dirty() == [40, 24, 0]
    host.two.run(lambda: host.write(TWO + 16, 8))
    assert host.dirty() == [40, 24, 8]


def test_write_from_a_nested_cgroup(host: Host) -> None:
    nested = host.one.child("emulator").child("iothread")
    nested.run(lambda: host.write(ONE, 1))
    assert host.dirty() == [0, 8, 0]
    nested.run(host.disk.flush)
    assert host.written(ONE, 1)


@pytest.mark.quick
def test_flush_covers_its_tag_and_the_host_only(host: Host) -> None:
    host.one.run(lambda: host.write(ONE, 1))
    host.two.run(lambda: host.write(TWO, 2))
    host.write(NOBODY, 3)
    host.one.run(host.disk.flush)
    assert host.dirty() == [0, 0, 8]
    assert host.written(ONE, 1)
    assert host.written(NOBODY, 3)
    assert not host.written(TWO, 2)
    host.two.run(host.disk.flush)
    assert host.written(TWO, 2)
    stats = [host.client.tag(host.device.number, tag).stats for tag in (0, 1, 2)]
    assert [s.flushes for s in stats] == [0, 1, 1]
    assert [sum(s.flush_hist) for s in stats] == [0, 1, 1]
    assert [s.writes for s in stats] == [1, 1, 1]
    assert [s.write_bytes for s in stats] == [8 * SECTOR] * 3
    assert [s.writeouts for s in stats] == [1, 1, 1]


def test_flush_covers_all_tags_of_a_cgroup(host: Host) -> None:
    """A VM's flush covers all of its disks."""
    host.client.tag_set(host.device.number, 3, cgroups=[host.one.id])
    host.client.set_extents(host.device.number, 3, [Extent(NOBODY, 8)])
    host.one.run(lambda: host.write(ONE, 1))
    host.one.run(lambda: host.write(NOBODY, 2))
    assert host.client.tag(host.device.number, 3).dirty_bytes == 8 * SECTOR
    host.two.run(lambda: host.write(TWO, 3))
    host.one.run(host.disk.flush)
    assert host.written(ONE, 1)
    assert host.written(NOBODY, 2)
    assert not host.written(TWO, 3)


def test_disk_shared_by_two_cgroups(host: Host) -> None:
    """One tag; the flushes of both VMs cover it."""
    host.client.tag_set(host.device.number, 1, cgroups=[host.one.id, host.two.id])
    for turn, group in enumerate((host.two, host.one)):
        host.one.run(lambda seed=turn: host.write(ONE, seed))  # type: ignore[misc]
        assert host.dirty() == [0, 8, 0]
        group.run(host.disk.flush)
        assert host.written(ONE, turn)


def test_flush_covers_every_level_of_its_cgroup(host: Host) -> None:
    """A nested cgroup with its own tag still writes to its parent's tag too."""
    nested = host.one.child("nested")
    host.client.tag_set(host.device.number, 3, cgroups=[nested.id])
    host.client.set_extents(host.device.number, 3, [Extent(NOBODY, 8)])
    nested.run(lambda: host.write(ONE, 1))
    nested.run(lambda: host.write(NOBODY, 2))
    assert host.dirty()[:2] == [0, 8]
    nested.run(host.disk.flush)
    assert host.written(NOBODY, 2)
    assert host.written(ONE, 1), "the flush left out a write of its own cgroup"


@pytest.mark.box
@pytest.mark.parametrize("how", ["process", "aio"])
def test_flush_of_nobody_covers_everything(host: Host, how: str) -> None:
    """Also an AIO fdsync of a VM's cgroup, which a kernel worker executes."""
    host.one.run(lambda: host.write(ONE, 1))
    host.two.run(lambda: host.write(TWO, 2))
    host.write(NOBODY, 3)
    if how == "process":
        host.disk.flush()
    else:
        host.one.run(host.disk.aio_flush)
    assert host.dirty() == [0, 0, 0]
    assert host.written(ONE, 1)
    assert host.written(TWO, 2)
    assert host.written(NOBODY, 3)


def test_block_of_two_tags_is_covered_by_both(host: Host) -> None:
    """The second owner may write another sector of the page, or the same."""
    for first, second in ((host.one, host.two), (host.two, host.one)):
        for flusher in (host.one, host.two):
            host.client.set_extents(host.device.number, 2, [])
            host.client.set_extents(host.device.number, 1, [Extent(ONE, 4096)])
            if first is host.one:
                first.run(lambda: host.disk.write(ONE, pattern(1, 4)))
            host.client.set_extents(host.device.number, 1, [])
            host.client.set_extents(host.device.number, 2, [Extent(ONE, 4096)])
            if first is host.two:
                first.run(lambda: host.disk.write(ONE, pattern(1, 4)))
                host.client.set_extents(host.device.number, 2, [])
                host.client.set_extents(host.device.number, 1, [Extent(ONE, 4096)])
            second.run(lambda: host.disk.write(ONE + 2, pattern(2, 4)))
            flusher.run(host.disk.flush)
            data = read(host.origin, ONE, 6)
            assert data[:2 * SECTOR] == pattern(1, 4)[:2 * SECTOR]
            assert data[2 * SECTOR:] == pattern(2, 4)
            assert host.dirty() == [0, 0, 0]
            host.disk.write(ONE, bytes(8 * SECTOR))
            host.disk.flush()


def test_host_overwrites_a_tag(host: Host) -> None:
    """The host overwrites a tag's block, and vice versa."""
    host.one.run(lambda: host.write(ONE, 1))
    host.disk.write(ONE + 2, pattern(2, 2))
    host.two.run(host.disk.flush)
    assert read(host.origin, ONE + 2, 2) == pattern(2, 2), "an untagged write was left out"
    host.disk.write(ONE + 64, pattern(3, 8))
    host.one.run(lambda: host.disk.write(ONE + 66, pattern(4, 2)))
    host.two.run(host.disk.flush)
    assert read(host.origin, ONE + 64, 2) == pattern(3, 8)[:2 * SECTOR]
    host.one.run(host.disk.flush)
    assert read(host.origin, ONE + 66, 2) == pattern(4, 2)


@pytest.mark.parametrize(("flusher", "hosts"), [("one", 0), ("two", 1400)])
def test_flush_is_not_held_up_when_blocks_become_the_hosts(
        client: Client, cgroup: Callable[[str], Cgroup], flusher: str, hosts: int) -> None:
    """They leave the flush's list, or get in front of its blocks."""
    groups = {"one": cgroup("one"), "two": cgroup("two")}
    tags = 1400  # more than a worker takes at once
    with (null_blk(completion_us=50_000) as origin, stack.buffer_mb(64),
          vcache(origin, "filesystem") as device, Disk(device.path) as disk):
        for tag, group in enumerate(groups.values(), start=1):
            client.tag_set(device.number, tag, cgroups=[group.id])
        client.set_extents(device.number, 1, [Extent(0, 16 * tags)])

        def write(first: int, end: int) -> None:
            for page in range(first, end):
                disk.write(16 * page, pattern(page, 1))  # each a separate request

        groups["one"].run(lambda: write(0, tags))
        write(tags, tags + hosts)
        flush = threading.Thread(target=lambda: groups[flusher].run(disk.flush))
        flush.start()
        served = 1 if flusher == "one" else 0
        assert stack.wait_until(
            lambda: client.tag(device.number, served).inflight_bytes > 0)
        write(tags - 500, tags)  # the host overwrites the tag's data
        flush.join(20)
        in_time = not flush.is_alive()
        disk.flush()  # covers everything; the other flush must not be delayed
        flush.join()
        assert in_time, "the flush took 20 s"


def test_cgroup_that_was_taken_away(host: Host) -> None:
    """Its flush cannot be attributed any more, so it covers everything."""
    host.one.run(lambda: host.write(ONE, 1))
    host.two.run(lambda: host.write(TWO, 2))
    host.client.tag_set(host.device.number, 1, cgroups=[])
    host.one.run(host.disk.flush)
    assert host.written(ONE, 1)
    assert host.written(TWO, 2)
    host.one.run(lambda: host.write(ONE + 8, 3))
    assert host.dirty() == [8, 0, 0]


def test_cgroup_that_moved_to_another_tag(host: Host) -> None:
    """Its flush still covers the data that it wrote with its old tag."""
    host.one.run(lambda: host.write(ONE, 1))
    host.client.tag_set(host.device.number, 1, cgroups=[])
    host.client.tag_set(host.device.number, 3, cgroups=[host.one.id])
    host.one.run(host.disk.flush)
    assert host.written(ONE, 1)


def test_extents_that_moved(host: Host) -> None:
    """Buffered data stays with its tag when the extents move."""
    host.one.run(lambda: host.write(ONE, 1))
    host.client.set_extents(host.device.number, 1, [])
    assert host.dirty() == [0, 8, 0]
    host.two.run(host.disk.flush)
    assert not host.written(ONE, 1)
    host.one.run(host.disk.flush)
    assert host.written(ONE, 1)


def test_fua_of_a_tag_writes_nothing_else(host: Host) -> None:
    host.two.run(lambda: host.write(TWO, 2))
    host.one.run(lambda: host.disk.write(ONE, pattern(1, 8), fua=True))
    assert host.written(ONE, 1)
    assert not host.written(TWO, 2)


def test_volume_scope_ignores_cgroups(origin: str, client: Client,
                                      cgroup: Callable[[str], Cgroup]) -> None:
    group = cgroup("any")
    with vcache(origin, "volume 9") as device, Disk(device.path) as disk:
        group.run(lambda: disk.write(0, pattern(1, 8)))
        disk.write(8, pattern(2, 8))
        assert client.tag(device.number, 9).dirty_bytes == 16 * SECTOR
        assert client.tag(device.number, 0).dirty_bytes == 0
        group.run(disk.flush)
        assert client.tag(device.number, 9).stats.flushes == 1
        assert read(origin, 0, 8) == pattern(1, 8)
        assert read(origin, 8, 8) == pattern(2, 8)


def _charged(group: Cgroup, path: str) -> dict[str, int]:
    """Return a cgroup's counters of a disk, with the names of io.stat."""
    number = os.stat(path).st_rdev
    name = f"{os.major(number)}:{os.minor(number)}"
    for line in (group.path / "io.stat").read_text().splitlines():
        device, *counters = line.split()
        if device == name:
            return {key: int(value) for key, value in (part.split("=") for part in counters)}
    return {}


def _bytes_of(path: str) -> dict[str, int]:
    """Return what a disk has read, written and discarded, with the names of io.stat."""
    # Documentation/admin-guide/iostats.rst, from 0 on
    words = Path("/sys/block", Path(path).name, "stat").read_text().split()
    return {name: SECTOR * int(words[at]) for name, at in (
        ("rbytes", 2), ("wbytes", 6), ("dbytes", 13))}


@pytest.mark.box
def test_what_reaches_the_origin_is_charged_to_who_asked(
        origin: str, cgroup: Callable[[str], Cgroup]) -> None:
    """Also requests that a worker of the target sends, after waiting for their range."""
    Path("/sys/fs/cgroup/cgroup.subtree_control").write_text("+io")
    group = cgroup("one")

    def work() -> None:
        disk.read(4096, 8)
        disk.write(8192, pattern(1, 1), fua=True)
        # These overlap buffered data.
        disk.write(0, pattern(2, 8))
        disk.write(3, pattern(3, 1), fua=True)
        disk.write(1024, pattern(4, 8))
        disk.discard(1024, 8)
        disk.flush()

    with vcache(origin, "volume 1") as device, Disk(device.path) as disk:
        before = _bytes_of(origin)
        group.run(work)
        did = {name: count - before[name] for name, count in _bytes_of(origin).items()}
        charged = _charged(group, origin)
    assert did["wbytes"] >= 9 * SECTOR
    assert did["rbytes"] == did["dbytes"] == 8 * SECTOR
    assert {name: charged[name] for name in did} == did


def test_a_flush_covers_what_a_newer_block_of_the_host_has(
        origin: str, client: Client, cgroup: Callable[[str], Cgroup]) -> None:
    """A block of tag 1 fails while the host has written to it and the flush waits for the host."""
    one, size = cgroup("one"), stack.sectors(origin)
    with (stack.mapped(stack.linear(origin)) as below,
          vcache(below.path, "filesystem") as device, Disk(device.path) as disk):
        client.tag_set(device.number, 1, cgroups=[one.id])
        client.set_extents(device.number, 1, [Extent(ONE, 2048)])
        disk.write(NOBODY, pattern(1, 8))
        one.run(lambda: disk.write(ONE, pattern(2, 8)))
        below.suspend(dm.NOFLUSH | dm.SKIP_LOCKFS)
        failed: list[bool] = []

        def flush() -> None:
            try:
                one.run(disk.flush)
            except OSError:
                failed.append(True)

        flusher = threading.Thread(target=flush)
        with at_end(below.swap, stack.linear(origin)):
            flusher.start()
            with at_end(flusher.join):
                with at_end(below.resume):
                    assert stack.wait_until(lambda: all(
                        client.tag(device.number, tag).stats.writeouts for tag in (0, 1)))
                    disk.write(ONE, pattern(3, 4))
                    below.load(f"0 8 flakey {origin} 0 0 3600 1 error_writes\n"
                               f"8 {size - 8} linear {origin} 8")
            # It fails, or the data is durable.
            assert failed or read(origin, ONE, 8) == (pattern(3, 4) + pattern(2, 8)[4 * SECTOR:])

