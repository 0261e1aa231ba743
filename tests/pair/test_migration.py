# SPDX-License-Identifier: Apache-2.0
"""Live migration of a guest that writes, over a volume that both hosts see, and by copy.

The guest checks what it reads: the first bytes of each sector say which write they are of
(tests/box/guest/mix.c). So it finds data that is old, torn, or another disk's.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.box.inside import progress
from tests.host.lab import eventually
from tests.pair.host import FOLDER, TAG, VOLUME, Host, Remote
from vcache_agent.netlink import spec

NAME = "vm"
LAYOUTS = ("raw", "qcow2")
SIZE = 16 << 20
GOLD = {"mode": "writeback"}
# Longer than any migration takes here; the next command ends it.
BUSY_MS = 3_600_000


def mix(host: Any, milliseconds: int = BUSY_MS) -> None:
    host.send(NAME, f"mix dev=/dev/vda size={SIZE} bs=4096 reads=50 time_ms={milliseconds} seed=1")


def verified(host: Any, busy: bool = True) -> None:
    """Let the guest check all that it has written.

    :param busy: it still reads and writes
    """
    host.send(NAME, f"verify dev=/dev/vda size={SIZE} bs=4096")
    if busy:
        host.reply(NAME)
    host.reply(NAME)


def in_mode(host: Any, mode: spec.Mode) -> None:
    eventually(lambda: host.tag().mode is mode, f"the volume is in mode {mode.name}")


def weighs(host: Any, weight: int) -> None:
    eventually(lambda: (host.disk(NAME) or {}).get("weight") == weight, "the operator's weight")


def forgotten(host: Any) -> None:
    eventually(lambda: host.moves() == [], "nothing is left of the migration")


@pytest.fixture
def pair(here: Host, there: Remote) -> Iterator[tuple[Host, Remote]]:
    yield here, there
    for host in (here, there):
        host.end(NAME)
        host.silence(False)
    for host in (here, there):
        eventually(lambda host=host: host.tag().cache_dirty_bytes == 0,  # type: ignore[misc]
                   "nothing dirty is left")
        forgotten(host)


@pytest.fixture
def gold(pair: tuple[Host, Remote]) -> Callable[[Any], None]:
    """Start a guest on a host, with data that only its cache has."""
    def start(host: Any) -> None:
        # What an earlier guest has left is not what this one expects.
        with open(VOLUME, "r+b", buffering=0) as file:
            file.write(bytes(SIZE))
        host.start(NAME, str(VOLUME), GOLD)
        in_mode(host, spec.Mode.WRITEBACK)
        mix(host, 1000)
        host.reply(NAME)
        assert host.tag().cached_bytes > 0

    return start


def migrated(source: Any, target: Any, **options: Any) -> None:
    """Migrate the guest while it reads and writes, and check what it reads."""
    mix(source)
    progress("the migration begins")
    source.begin_migration(NAME, **options)
    error = source.end_migration()
    progress(f"the migration has ended: {error or 'good'}")
    assert error == ""
    assert target.running() == [NAME]
    verified(target)


def test_there_and_back(pair: tuple[Host, Remote], gold: Callable[[Any], None]) -> None:
    here, there = pair
    gold(here)
    here.cli("tag", "set", str(TAG), "--weight", "321")
    for source, target in ((here, there), (there, here), (here, there)):
        migrated(source, target)
        assert [name for name, *_ in target.hooks(NAME)][-4:] == [
            "migrate", "prepare", "start", "started"]
        in_mode(target, spec.Mode.WRITEBACK)
        weighs(target, 321)
        eventually(lambda source=source: source.tag().cached_bytes == 0,  # type: ignore[misc]
                   "nothing outdated is left in the cache of the source")
        forgotten(source)
        forgotten(target)
        mix(target, 1000)
        target.reply(NAME)
    there.end(NAME)


def test_a_source_that_does_not_answer(pair: tuple[Host, Remote],
                                       gold: Callable[[Any], None]) -> None:
    here, there = pair
    gold(here)
    here.silence(True)
    here.begin_migration(NAME)
    error = here.end_migration()
    assert "Hook script execution failed" in error and "newer data of disk vda" in error
    assert here.running() == [NAME] and there.running() == []
    assert here.tag().mode is spec.Mode.WRITEBACK
    verified(here, busy=False)


def test_a_destination_without_an_agent(pair: tuple[Host, Remote],
                                        gold: Callable[[Any], None]) -> None:
    here, there = pair
    gold(here)
    there.agent_stop()
    here.begin_migration(NAME)
    error = here.end_migration()
    there.agent_start()
    assert "must not migrate to this host without the agent" in error
    assert here.running() == [NAME] and there.running() == []


def test_one_that_is_cancelled(pair: tuple[Host, Remote], gold: Callable[[Any], None]) -> None:
    here, there = pair
    gold(here)
    mix(here)
    here.begin_migration(NAME, bandwidth=1)
    here.await_copy(NAME)
    tag = here.tag()
    assert (tag.mode, tag.cache_dirty_bytes) == (spec.Mode.WRITETHROUGH, 0)
    here.cancel(NAME)
    assert "cancel" in here.end_migration().lower()
    in_mode(here, spec.Mode.WRITEBACK)
    verified(here)
    assert there.running() == []


def test_one_that_fails_while_the_agent_of_the_source_is_killed(
        pair: tuple[Host, Remote], gold: Callable[[Any], None]) -> None:
    here, there = pair
    gold(here)
    mix(here)
    here.begin_migration(NAME, bandwidth=1)
    here.await_copy(NAME)
    here.agent_kill()
    assert [json.loads(item)["role"] for item in here.moves()] == ["leaving"]
    assert here.tag().mode is spec.Mode.WRITETHROUGH
    there.kill_vm(NAME)
    assert here.end_migration() != ""
    in_mode(here, spec.Mode.WRITEBACK)
    verified(here)


def with_image(pair: tuple[Host, Remote], layout: str) -> int:
    """Start a guest on an image of its host, with the operator's weight; return its tag."""
    here, there = pair
    for host in (here, there):
        host.make_image(NAME, layout)
    here.start(NAME, str(FOLDER / NAME), GOLD, layout)
    number = eventually(lambda: (here.disk(NAME) or {}).get("tag"), "its tag")
    here.cli("tag", "set", str(number), "--weight", "321")
    return int(number)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_image_that_is_copied(pair: tuple[Host, Remote], layout: str) -> None:
    here, there = pair
    with_image(pair, layout)
    for source, target in ((here, there), (there, here)):
        migrated(source, target, copy=layout)
        weighs(target, 321)
        forgotten(source)
        forgotten(target)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("how", ["cancelled", "failed"])
def test_an_image_whose_copy_ends_early(pair: tuple[Host, Remote], layout: str,
                                        how: str) -> None:
    here, there = pair
    number = with_image(pair, layout)
    mix(here)
    # Slow enough that it cannot end before.
    here.begin_migration(NAME, copy=layout, bandwidth=1)
    if how == "failed":
        there.kill_vm(NAME)
    else:
        eventually(lambda: there.pid(NAME), "the destination receives it")
        here.cancel(NAME)
    assert here.end_migration() != ""
    verified(here)
    weighs(here, 321)
    disk = here.disk(NAME)
    assert disk is not None
    assert (disk["tag"], disk["state"]) == (number, "isolated")
    assert there.running() == []
    eventually(lambda: there.disk(NAME) is None, "the destination forgets the disk")
