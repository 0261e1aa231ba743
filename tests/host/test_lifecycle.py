# SPDX-License-Identifier: Apache-2.0
"""A domain's way: start, stop, crash, and what the kernel has of it."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

from tests.host import lab
from tests.host.lab import Agent, Vm, eventually, image, tags
from vcache_agent.model import DeviceNumber

MIB = 1 << 20
MakeVm = Callable[..., Vm]


def test_a_started_domain_has_its_tag(
        agent: Agent, vm: MakeVm, filesystem: Path, device: DeviceNumber) -> None:
    one = vm("one", [image(filesystem / "one", 8)], {"mode": "flush-only", "weight": "250"})
    one.start()
    tag = eventually(lambda: next((tag for tag in tags(device).values() if tag.cgroups), None),
                     "a tag with a cgroup")
    assert tag.name == f"{one.uuid}:vda"
    assert tag.weight == 250
    assert tag.cgroups == {one.cgroup}
    assert tag.extents_sectors * 512 == 8 * MIB

    one.io("write 0 64k")
    one.io("flush")
    after = tags(device)[tag.id]
    assert after.stats.write_bytes >= 65536
    assert after.stats.flushes >= 1
    assert sum(after.stats.flush_hist) == after.stats.flushes

    disk = agent.disks()["one", "vda"]
    assert (disk["state"], disk["tag"], disk["weight"]) == ("isolated", tag.id, 250)


def test_a_stopped_domain_leaves_no_tag(
        agent: Agent, vm: MakeVm, filesystem: Path, device: DeviceNumber) -> None:
    one = vm("one", [image(filesystem / "one", 4)], {"mode": "flush-only"})
    one.start()
    number = eventually(lambda: next(iter(tags(device)), None), "a tag")
    one.io("write 0 1M")
    one.destroy()
    eventually(lambda: not tags(device), "the tag is removed")
    assert not agent.orphans()

    # The disk keeps its number for the next time.
    one.start()
    eventually(lambda: number in tags(device), "the same tag again")
    os.kill(one.pid, signal.SIGKILL)
    eventually(lambda: not tags(device), "the tag of a crashed domain is removed")
    assert lab.run("virsh", "domstate", "one").strip() == "shut off"
