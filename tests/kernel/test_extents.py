# SPDX-License-Identifier: Apache-2.0
"""Extents of tags: changes by difference, limit, counters, concurrent requests."""

import contextlib
import errno
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.box.steps import at_end
from tests.kernel import stack
from tests.kernel.conftest import Cgroup
from tests.kernel.disk import Disk, pattern
from tests.kernel.stack import Mapped, vcache
from vcache_agent.extent_delta import difference
from vcache_agent.model import Extent
from vcache_agent.netlink.client import Client
from vcache_agent.netlink.errors import NetlinkError
from vcache_agent.netlink.spec import EXTENT_LAYOUT, Command

SECTORS = 64 * 2048


@pytest.fixture
def tags(origin: str, client: Client) -> Iterator[Mapped]:
    """Give a device in filesystem scope with the tags 1 to 3."""
    with vcache(origin, "filesystem") as device:
        for tag in (1, 2, 3):
            client.tag_set(device.number, tag)
        yield device


@contextlib.contextmanager
def extents_max(most: int) -> Iterator[None]:
    """Change the limit of extents of a tag for a while."""
    parameter = Path("/sys/module/dm_vcache/parameters/extents_max")
    before = parameter.read_text()
    with at_end(parameter.write_text, before):
        parameter.write_text(str(most))
        yield


def counters(client: Client, device: Mapped, tag: int = 1) -> tuple[int, int]:
    found = client.tag(device.number, tag)
    return found.extents_count, found.extents_sectors


def owner_of(client: Client, device: Mapped, disk: Disk, sector: int, sectors: int = 1) -> int:
    """Return the tag of a range: the one that counts a read of it."""
    def reads() -> dict[int, int]:
        return {tag.id: tag.stats.reads for tag in client.tags(device.number)}

    before = reads()
    disk.read(sector, sectors)
    [owner] = [tag for tag, count in reads().items() if count != before[tag]]
    return owner


def stage(client: Client, device: Mapped, command: Command, *flags: str,
          remove: Extent | None = None, add: Extent | None = None) -> None:
    """Send one message of a list for tag 1."""
    attributes: list[tuple[str, Any]] = [
        ("MAJOR", device.number.major), ("MINOR", device.number.minor), ("ID", 1),
        *((flag, None) for flag in flags)]
    for name, extent in (("EXTENTS_REMOVE", remove), ("EXTENTS", add)):
        if extent:
            attributes.append((name, EXTENT_LAYOUT.pack(*extent)))
    client._socket.request(command, [(f"VCACHE_A_TAG_{name}", value)
                                     for name, value in attributes])


@pytest.mark.quick
def test_extents_are_changed(tags: Mapped, client: Client) -> None:
    number = tags.number
    with Disk(tags.path) as disk:
        client.set_extents(number, 1, [Extent(0, 64), Extent(128, 64)])
        client.set_extents(number, 2, [Extent(64, 64)])
        assert client.change_extents(
            number, 1, [Extent(16, 16)], [Extent(256, 8), Extent(264, 8)]) == (5, 128)
        assert counters(client, tags) == (5, 128)
        assert counters(client, tags, 2) == (1, 64)
        assert [owner_of(client, tags, disk, sector)
                for sector in (0, 15, 16, 31, 32, 63, 64, 128, 191, 192, 256, 271, 272)] == \
            [1, 1, 0, 0, 1, 1, 2, 1, 1, 0, 1, 1, 0]
        # Adjacent extents are one range.
        assert owner_of(client, tags, disk, 256, 16) == 1
        assert owner_of(client, tags, disk, 8, 16) == 0
        # Sectors of others are not removed; those that are there already are not added twice.
        assert client.change_extents(number, 1, [Extent(32, 128)], [Extent(160, 64)]) == (4, 96)
        assert counters(client, tags, 2) == (1, 64)
        assert [owner_of(client, tags, disk, sector) for sector in (32, 64, 159, 160, 223)] == \
            [0, 2, 0, 1, 1]
        assert client.change_extents(number, 1, [], []) == (4, 96)
        assert client.change_extents(number, 1, [Extent(0, SECTORS)], []) == (0, 0)
        assert counters(client, tags, 2) == (1, 64)


def test_a_change_that_fails_changes_nothing(tags: Mapped, client: Client) -> None:
    """Its lists have several messages, and the sector of another tag is in the last one."""
    number = tags.number
    mine = [Extent(16 * n, 8) for n in range(3000)]
    client.set_extents(number, 1, mine)
    client.set_extents(number, 2, [Extent(16 * 5000, 8)])
    new = [Extent(16 * n + 8, 4) for n in range(2900)]
    with Disk(tags.path) as disk:
        with pytest.raises(NetlinkError, match="sector 80000 belongs to tag 2 already") as no:
            client.change_extents(number, 1, mine[:2500], [*new, Extent(16 * 5000 - 8, 9)])
        assert no.value.errno == errno.EEXIST
        assert counters(client, tags) == (3000, 24000)
        assert counters(client, tags, 2) == (1, 8)
        assert [owner_of(client, tags, disk, at) for at in (0, 8, 16 * 2000, 16 * 2000 + 8)] == \
            [1, 0, 1, 0]
        # Nothing of it is left for the next one.
        assert client.change_extents(number, 1, mine[:2500], new) == (3400, 4000 + 11600)
        assert [owner_of(client, tags, disk, at) for at in (0, 8, 16 * 2600, 16 * 2600 + 8)] == \
            [0, 1, 1, 1]


def test_a_discard_during_a_change(tags: Mapped, client: Client) -> None:
    """What it removes between the messages is removed, unless the change adds it."""
    client.set_extents(tags.number, 1, [Extent(0, 64), Extent(128, 64)])
    with Disk(tags.path) as disk:
        stage(client, tags, Command.TAG_EXTENTS_CHANGE, "EXTENTS_BEGIN",
              remove=Extent(0, 32), add=Extent(64, 32))
        assert counters(client, tags) == (2, 128)
        disk.discard(16, 40)
        assert counters(client, tags) == (3, 88)
        disk.discard(128, 64)
        stage(client, tags, Command.TAG_EXTENTS_CHANGE, "EXTENTS_COMMIT", add=Extent(128, 8))
        assert counters(client, tags) == (3, 8 + 32 + 8)
        assert [owner_of(client, tags, disk, at) for at in (0, 16, 55, 56, 63, 64, 96, 128, 136)] \
            == [0, 0, 0, 1, 1, 1, 0, 1, 0]


def test_commands_are_not_mixed(tags: Mapped, client: Client) -> None:
    client.set_extents(tags.number, 1, [Extent(0, 64)])
    for first, second in ((Command.TAG_EXTENTS, Command.TAG_EXTENTS_CHANGE),
                          (Command.TAG_EXTENTS_CHANGE, Command.TAG_EXTENTS)):
        stage(client, tags, first, "EXTENTS_BEGIN", add=Extent(64, 8))
        with pytest.raises(NetlinkError, match="another command has begun a list"):
            stage(client, tags, second, "EXTENTS_COMMIT", add=Extent(128, 8))
        assert counters(client, tags) == (1, 64)
    # A list that was begun is gone with the next beginning, whatever its command is.
    stage(client, tags, Command.TAG_EXTENTS, "EXTENTS_BEGIN", add=Extent(64, 8))
    assert client.change_extents(tags.number, 1, [], [Extent(128, 8)]) == (2, 72)


def test_the_number_of_extents_is_limited(tags: Mapped, client: Client) -> None:
    number = tags.number
    many = [Extent(16 * n, 8) for n in range(101)]
    with extents_max(100):
        with pytest.raises(NetlinkError, match=r"101 extents given, a tag may have 100 \(extents_"
                           ) as refused:
            client.set_extents(number, 1, many)
        assert refused.value.errno == errno.E2BIG
        assert counters(client, tags) == (0, 0)
        client.set_extents(number, 1, many[:100])
        # The limit is for each tag.
        client.set_extents(number, 2, [Extent(16 * n + 8, 8) for n in range(100)])
        for remove, add in (([], many[100:]), ([Extent(2, 2)], [])):
            with pytest.raises(NetlinkError, match=r"would have 101 extents, it may have 100 \(ex"
                               ) as refused:
                client.change_extents(number, 1, remove, add)
            assert refused.value.errno == errno.E2BIG
            assert counters(client, tags) == (100, 800)
        assert client.change_extents(number, 1, many[:1], many[100:]) == (100, 800)
    assert client.change_extents(number, 1, [], many) == (101, 808)
    parameter = Path("/sys/module/dm_vcache/parameters/extents_max")
    assert parameter.read_text() == "65536\n"
    for value in ("0", "16777217", "many"):
        with pytest.raises(OSError, match="Invalid argument"):
            parameter.write_text(value)


def test_discards_do_not_exceed_the_limit(tags: Mapped, client: Client) -> None:
    """A hole would make two extents of one: the shorter one is dropped."""
    with extents_max(2), Disk(tags.path) as disk:
        client.set_extents(tags.number, 1, [Extent(0, 1024), Extent(2048, 1024)])
        client.set_extents(tags.number, 2, [Extent(4096, 1024)])
        disk.discard(512 + 64, 8)
        assert counters(client, tags) == (2, 576 + 1024)
        disk.discard(2048 + 64, 8)
        assert counters(client, tags) == (2, 576 + 1024 - 72)
        assert [owner_of(client, tags, disk, at) for at in (0, 575, 584, 2048, 2120)] == \
            [1, 1, 0, 0, 1]
        # At an end of an extent there is no extent more; another tag has not reached the limit.
        disk.discard(0, 8)
        disk.discard(4096 + 512, 8)
        assert counters(client, tags) == (2, 568 + 952)
        assert counters(client, tags, 2) == (2, 1016)


def cut(extents: list[Extent], start: int, end: int) -> list[Extent]:
    """Return extents without a range."""
    parts = [part for extent in extents
             for part in (Extent(extent.start, min(extent.length, start - extent.start)),
                          Extent(max(extent.start, end),
                                 extent.start + extent.length - max(extent.start, end)))
             if part.length > 0]
    return sorted(set(parts))


@pytest.mark.box
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_counters_and_owners_after_random_changes(tags: Mapped, client: Client,
                                                  seed: int) -> None:
    """Hundreds of extents of three tags, set, changed and discarded, are as in a model."""
    rng = random.Random(seed)  # noqa: S311
    model: dict[int, list[Extent]] = {1: [], 2: [], 3: []}
    slots = list(range(SECTORS // 64))

    def owners() -> dict[int, int]:
        return {extent.start // 64: tag for tag, extents in model.items() for extent in extents}

    def wish(tag: int) -> list[Extent]:
        """Return other extents for a tag, in slots that no other tag has."""
        taken = {slot for slot, owner in owners().items() if owner != tag}
        keep = [extent for extent in model[tag] if rng.random() < 0.8]
        mine = {extent.start // 64 for extent in keep}
        first = rng.randrange(len(slots))
        free = [slot for slot in slots[first:first + rng.randrange(400)]
                if slot not in taken and slot not in mine and rng.random() < 0.7]
        return sorted(keep + [Extent(64 * slot + 8 * rng.randrange(3), 8 * rng.randrange(1, 5))
                              for slot in free])

    with Disk(tags.path) as disk:
        for _ in range(60):
            tag = rng.choice((1, 2, 3))
            if rng.random() < 0.3:
                start = 8 * rng.randrange(SECTORS // 8 - 512)
                end = start + 8 * rng.randrange(1, rng.choice((3, 512)))
                disk.discard(start, end - start)
                model = {tag: cut(extents, start, end) for tag, extents in model.items()}
            else:
                wanted = wish(tag)
                if rng.random() < 0.2:
                    client.set_extents(tags.number, tag, wanted)
                else:
                    client.change_extents(tags.number, tag,
                                          *difference(tuple(model[tag]), tuple(wanted)))
                model[tag] = wanted
            assert [counters(client, tags, tag) for tag in model] == [
                (len(extents), sum(extent.length for extent in extents))
                for extents in model.values()]
            for _ in range(5):
                at = rng.randrange(SECTORS)
                [owner] = [tag for tag, extents in model.items() for extent in extents
                           if extent.start <= at < extent.start + extent.length] or [0]
                assert owner_of(client, tags, disk, at) == owner
        assert sum(map(len, model.values())) > 500, "the map was one leaf"


@pytest.mark.box
def test_requests_during_changes(tags: Mapped, client: Client,
                                 cgroup: Callable[[str], Cgroup]) -> None:
    """Writes to extents that stay have their tag, whatever happens to those around them."""
    number, group = tags.number, cgroup("one")
    client.tag_set(number, 1, cgroups=[group.id])
    stays = [Extent(64 * n, 16) for n in range(500)]
    client.set_extents(number, 1, stays)
    goes = tuple(Extent(64 * n + 32, 8) for n in range(500))
    stop = threading.Event()
    failed: list[BaseException] = []

    def change() -> None:
        rng = random.Random(1)  # noqa: S311
        try:
            with Client() as other:
                while not stop.is_set():
                    first = rng.randrange(400)
                    some = goes[first:first + rng.choice((1, 10, 100))]
                    other.set_extents(number, 2, some)
                    other.change_extents(number, 2, some[::2], [])
                    other.change_extents(number, 1, [], some[::2])
                    other.change_extents(number, 1, some[::2], [])
        except BaseException as error:
            failed.append(error)

    def write() -> None:
        rng = random.Random(2)  # noqa: S311
        with Disk(tags.path) as disk:
            for _ in range(1500):
                disk.write(rng.choice(stays).start, pattern(1, 16))

    thread = threading.Thread(target=change)
    thread.start()
    try:
        group.run(write)
    finally:
        stop.set()
        thread.join()
    assert failed == []
    assert client.tag(number, 1).stats.writes == 1500
    assert client.tag(number, 0).stats.writes == 0
    assert counters(client, tags) == (500, 8000)


def test_a_removed_tag_leaves_its_sectors(tags: Mapped, client: Client) -> None:
    """Among the extents of others, which stay."""
    number = tags.number
    for tag in (1, 2):
        client.set_extents(number, tag, [Extent(32 * n + 16 * (tag - 1), 8) for n in range(1000)])
    client.tag_del(number, 1)
    assert counters(client, tags, 2) == (1000, 8000)
    client.set_extents(number, 3, [Extent(32 * n, 16) for n in range(1000)])
    assert counters(client, tags, 3) == (1000, 16000)
    with Disk(tags.path) as disk:
        assert [owner_of(client, tags, disk, at) for at in (0, 15, 16, 23, 24, 32 * 999)] == \
            [3, 3, 2, 2, 0, 3]
    assert stack.wait_until(lambda: [tag.id for tag in client.tags(number)] == [0, 2, 3])
