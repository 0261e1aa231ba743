# SPDX-License-Identifier: Apache-2.0
"""The kernel module is replaced while virtual machines use it."""

import json
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.box import inside
from tests.host import guest, lab
from tests.host.cached import CachedFilesystem, cached_filesystem
from tests.host.lab import Agent, Vm, cli, eventually
from tests.host.test_lifecycle import tag_of
from vcache_agent.model import DeviceNumber

pytestmark = pytest.mark.life

MakeVm = Callable[..., Vm]


@pytest.fixture
def cached(module: None) -> Iterator[CachedFilesystem]:
    with cached_filesystem(Path("/dev/ram2"), Path("/dev/ram3"), Path("/run/replace")) as found:
        yield found


def loads() -> int:
    """Return a number that each load of the module has for itself."""
    return Path("/sys/module/dm_vcache/sections/.text").stat().st_ino


def goes_on(vm: Vm) -> None:
    """Wait until the guest has written more."""
    before = len(guest.log(vm.disks[0]))
    eventually(lambda: len(guest.log(vm.disks[0])) > before + 50, f"{vm.name} writes")


def longest(entries: list[guest.Entry], per_second: float) -> float:
    """Return the longest time between the starts of two writes, in milliseconds."""
    return round(max(two.ticks - one.ticks for one, two in pairwise(entries))
                 / per_second * 1000, 1)


def test_guests_write_while_the_module_is_replaced(
        agent: Agent, vm: MakeVm, filesystem: Path, device: DeviceNumber,
        cached: CachedFilesystem) -> None:
    number = cached.number
    pair = {
        "cached": (vm("replace-cached", [lab.image(cached.folder / "disk", 48)],
                      {"mode": "writeback", "weight": "250"}), number),
        "flush-only": (vm("replace-alone", [lab.image(filesystem / "replace-alone", 48)],
                          {"mode": "flush-only", "weight": "250"}), device)}
    for one, _ in pair.values():
        guest.install(one.disks[0], guest.LOGS)
        one.start()
    tags = {name: tag_of(one, at) for name, (one, at) in pair.items()}
    cli("tag", "set", str(tags["cached"].id), "--weight", "777")
    for one, _ in pair.values():
        one.resume()
    for one, _ in pair.values():
        goes_on(one)
    first, pids = loads(), [one.pid for one, _ in pair.values()]
    began = time.monotonic()
    marks = {name: guest.log(one.disks[0])[-1] for name, (one, _) in pair.items()}
    said = cli("module", "replace", "--file", str(inside.module_path()))
    seconds = time.monotonic() - began
    after = {name: guest.log(one.disks[0])[-1] for name, (one, _) in pair.items()}
    assert "1 pools and 2 devices use the new one" in said
    assert loads() != first
    for one, _ in pair.values():
        goes_on(one)
    assert [one.pid for one, _ in pair.values()] == pids
    # The agent sets the same tags again.
    for name, (one, at) in pair.items():
        tag = tag_of(one, at)
        assert (tag.id, tag.weight, tag.cgroups) == (
            tags[name].id, 777 if name == "cached" else 250, {one.cgroup})
        eventually(lambda tag=tag, at=at, one=one:  # type: ignore[misc]
                   lab.tags(at)[tag.id].extents_sectors == lab.extent_sectors(one.disks[0]),
                   "all extents")
    report: dict[str, object] = {"command_s": round(seconds, 1)}
    for name, (one, _) in pair.items():
        one.destroy()
        entries = guest.log(one.disks[0])
        # All writes are there, in their order.
        assert [entry.number for entry in entries] == list(range(1, len(entries) + 1))
        assert all(two.ticks > one.ticks for one, two in pairwise(entries))
        assert len(entries) > after[name].number
        per_second = (after[name].ticks - marks[name].ticks) / seconds
        report[name] = {
            "writes": len(entries),
            "before_ms": longest(entries[:marks[name].number], per_second),
            "during_ms": longest(entries[marks[name].number - 1:after[name].number], per_second)}
    path = lab.REPO / "build" / "test" / "replace.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report))
