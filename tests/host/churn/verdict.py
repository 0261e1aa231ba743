# SPDX-License-Identifier: Apache-2.0
"""Compares the final state with libvirt and the kernel."""

import contextlib
import sqlite3
from collections.abc import Iterable
from pathlib import Path

from tests.host import lab
from tests.host.churn.instance import Instance
from tests.host.lab import Agent, eventually
from vcache_agent.model import DeviceNumber

_STATE = Path("/var/lib/vcache/agent.sqlite")


def final(agent: Agent, device: DeviceNumber, instances: Iterable[Instance]) -> None:
    """Check the tags of all instances, in any state, and that there are no others."""
    instances = list(instances)
    running = [one for one in instances if one.running]
    with lab.connection() as host:
        active = {domain.name() for domain in host.listAllDomains(1)}
    assert active == {one.vm.name for one in running}, "libvirt has other running domains"
    wanted = {f"{one.vm.uuid}:{target}" for one in running for target in one.disks}
    wanted |= {f"base:{disk.base.name}" for one in running for disk in one.disks.values()
               if disk.base is not None}
    agent.reconcile()

    def difference() -> str:
        names = [tag.name for tag in lab.tags(device).values()]
        twice = {name for name in names if names.count(name) > 1}
        return " ".join([*(f"-{name}" for name in sorted(wanted - set(names))),
                         *(f"+{name}" for name in sorted(set(names) - wanted)),
                         *(f"twice:{name}" for name in sorted(twice))])

    with contextlib.suppress(AssertionError):
        eventually(lambda: not difference(), "the kernel has exactly the tags of the domains")
    assert not difference(), f"missing (-) or leaked (+) tags: {difference()}"
    for one in running:
        for target in one.disks:
            eventually(lambda one=one, target=target:  # type: ignore[misc]
                       not _wrong(agent, device, one, target),
                       f"{one.vm.name} {target} is right: {_wrong(agent, device, one, target)}")
    leaked = [orphan for orphan in agent.orphans()
              if orphan["name"].partition(":")[0] not in {one.vm.uuid for one in instances}]
    assert not leaked, f"tags without a domain: {leaked}"


def _wrong(agent: Agent, device: DeviceNumber, one: Instance, target: str) -> str:
    """Return what is wrong with the tag of a disk, or an empty text."""
    disk = one.disks[target]
    tag = next((tag for tag in lab.tags(device).values()
                if tag.name == f"{one.vm.uuid}:{target}"), None)
    if tag is None:
        return "no tag"
    found = []
    sectors = sum(lab.extent_sectors(path) for path in disk.own)
    if tag.extents_sectors != sectors:
        found.append(f"{tag.extents_sectors} sectors, must be {sectors}")
    if tag.cgroups != {one.vm.cgroup}:
        found.append(f"cgroups {set(tag.cgroups)}, must be {one.vm.cgroup}")
    if tag.weight not in one.weights[target]:
        found.append(f"weight {tag.weight}, must be one of {one.weights[target]}")
    view = agent.disks().get((one.vm.name, target), {})
    if (view.get("state"), view.get("tag"), view.get("note")) != ("isolated", tag.id, ""):
        found.append(f"the agent's view is {view}, the tag is {tag.id}")
    return "; ".join(found)


def nothing_left(agent: Agent, device: DeviceNumber, folder: Path) -> None:
    """Check that nothing is left of deleted instances, in the kernel and in the store.

    :param folder: had their images
    """
    agent.reconcile()
    eventually(lambda: not lab.tags(device), "no tags are left")

    def rows() -> list[tuple[str, ...]]:
        with contextlib.closing(sqlite3.connect(f"file:{_STATE}?mode=ro", uri=True)) as store:
            return [row for table in ("disks", "layers") for row in store.execute(
                f"SELECT path, tag FROM {table} WHERE path LIKE ?",  # noqa: S608
                [f"{folder}/%"])]

    with contextlib.suppress(AssertionError):
        eventually(lambda: not rows(), "the store has no disks and no layers")
    assert not rows(), "the store still has these"
