# SPDX-License-Identifier: Apache-2.0
"""The life of a domain: start, stop, crash, disks that are attached and detached."""

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.host import lab
from tests.host.lab import Agent, Vm, cli, eventually, image, tags
from vcache_agent.model import DeviceNumber, Tag

MIB = 1 << 20
MakeVm = Callable[..., Vm]


def tag_of(vm: Vm, device: DeviceNumber, target: str = "sda", cgroup: bool = True) -> Tag:
    """Wait for a disk's tag, by default for a complete one."""
    def find() -> Tag | None:
        return next((tag for tag in tags(device).values()
                     if tag.name == f"{vm.uuid}:{target}" and (tag.cgroups or not cgroup)), None)

    return eventually(find, f"a tag of {vm.name} {target}")


def no_tag_of(vm: Vm, device: DeviceNumber, target: str = "") -> None:
    """Wait until a domain has no tags."""
    eventually(lambda: not any(tag.name.startswith(f"{vm.uuid}:{target}")
                               for tag in tags(device).values()),
               f"no tag of {vm.name} is left")


@pytest.mark.box
def test_a_started_domain_has_its_tag(
        agent: Agent, vm: MakeVm, filesystem: Path, device: DeviceNumber) -> None:
    one = vm("one", [image(filesystem / "one", 8)], {"mode": "flush-only", "weight": "250"})
    one.start()
    tag = tag_of(one, device)
    assert tag.weight == 250
    assert tag.cgroups == {one.cgroup}
    eventually(lambda: tags(device)[tag.id].extents_sectors * 512 == 8 * MIB, "all extents")

    one.io("write 0 64k")
    one.io("flush")
    after = tags(device)[tag.id]
    assert after.stats.write_bytes >= 65536
    assert after.stats.flushes >= 1
    assert sum(after.stats.flush_hist) == after.stats.flushes
    disk = agent.disks()["one", "sda"]
    assert (disk["state"], disk["tag"], disk["weight"]) == ("isolated", tag.id, 250)
    assert disk["flush"]["count"] == after.stats.flushes


def test_a_stopped_and_a_crashed_domain_leave_no_tag(
        agent: Agent, vm: MakeVm, filesystem: Path, device: DeviceNumber) -> None:
    one = vm("stopping", [image(filesystem / "stopping", 4)], {"mode": "flush-only"})
    one.start()
    number = tag_of(one, device).id
    one.io("write 0 1M")
    one.destroy()
    no_tag_of(one, device)
    # The disk keeps its number for the next start.
    one.start()
    assert tag_of(one, device).id == number
    os.kill(one.pid, signal.SIGKILL)
    no_tag_of(one, device)
    assert not one.is_active()


def test_disks_are_plugged_and_unplugged(
        agent: Agent, vm: MakeVm, filesystem: Path, device: DeviceNumber) -> None:
    one = vm("plug", [image(filesystem / "plug-a", 4)], {"mode": "flush-only"})
    one.start()
    first = tag_of(one, device)
    second_path = image(filesystem / "plug-b", 4)
    one.disks.append(second_path)
    one.attach(second_path, "sdb")
    second = tag_of(one, device, "sdb")
    assert second.id != first.id
    assert second.cgroups == first.cgroups
    one.io("write 0 64k", "sdb")
    eventually(lambda: tags(device)[second.id].stats.write_bytes >= 65536, "writes of sdb")
    # A flush covers all disks of the domain. QEMU sends a flush only after a write.
    one.io("write 0 4k", "sda")
    one.io("flush", "sda")
    assert tags(device)[second.id].dirty_bytes == 0
    one.detach(second_path, "sdb")
    no_tag_of(one, device, "sdb")
    assert tags(device)[first.id].cgroups == first.cgroups


def test_a_growing_image_gets_its_new_blocks(
        agent: Agent, vm: MakeVm, filesystem: Path, device: DeviceNumber) -> None:
    one = vm("grow", [image(filesystem / "grow", 16, written=False)], {"mode": "flush-only"})
    one.start()
    tag = tag_of(one, device)
    assert tag.extents_sectors == 0
    one.io("write 0 1M")
    one.io("flush")
    eventually(lambda: tags(device)[tag.id].extents_sectors * 512 == MIB, "the first MiB")
    assert tags(device)[tag.id].stats.write_bytes == 0, "an allocating write is the host's"
    one.io("write 4M 1M")
    eventually(lambda: tags(device)[tag.id].extents_sectors * 512 == 2 * MIB, "the second")
    one.io("write 0 1M")
    assert tags(device)[tag.id].stats.write_bytes == MIB
    # Punched by hand, like a guest's discard. These blocks then belong to no file.
    subprocess.run(["fallocate", "-p", "-o", "0", "-l", "1MiB", str(one.disks[0])], check=True)
    eventually(lambda: tags(device)[tag.id].extents_sectors * 512 == MIB, "the hole is noticed")


def test_a_disk_of_two_domains_has_one_tag(
        agent: Agent, vm: MakeVm, filesystem: Path, device: DeviceNumber) -> None:
    path = image(filesystem / "shared", 4)
    pair = [vm(f"shared{number}", [path], {"mode": "flush-only"}, shared=True)
            for number in range(2)]
    for one in pair:
        one.start()
    cgroups = {one.cgroup for one in pair}
    tag = tag_of(pair[0], device)
    eventually(lambda: tags(device)[tag.id].cgroups == cgroups, "both cgroups")
    assert {agent.disks()[one.name, "sda"]["tag"] for one in pair} == {tag.id}
    pair[0].destroy()
    eventually(lambda: tags(device)[tag.id].cgroups == {pair[1].cgroup}, "the other's remains")


def test_a_volume_has_the_tag_of_its_table_line(agent: Agent, vm: MakeVm) -> None:
    with lab.mapped("volume", Path("/dev/ram1"), "volume 4711") as node:
        number = lab.number_of(node)
        one = vm("volume", [node], {"mode": "flush-only", "weight": "30", "required": "true"})
        one.start()
        eventually(lambda: tags(number)[4711].weight == 30, "the flavor's weight")
        assert tags(number)[4711].name == f"{one.uuid}:sda"
        one.io("write 0 64k")
        one.io("flush")
        assert tags(number)[4711].stats.flushes >= 1
        disk = agent.disks()["volume", "sda"]
        assert (disk["tag"], disk["state"]) == (4711, "isolated")
        one.end()
        agent.reconcile()


def test_blocks_that_move_between_images(
        agent: Agent, vm: MakeVm, filesystem: Path, device: DeviceNumber) -> None:
    one = vm("giver", [image(filesystem / "giver", 24)], {"mode": "flush-only"})
    one.start()
    tag = tag_of(one, device)
    eventually(lambda: tags(device)[tag.id].extents_sectors * 512 == 24 * MIB, "all extents")
    # Fill the free space, so that the other image gets the blocks of this one.
    free = os.statvfs(filesystem)
    filler = image(filesystem / "filler", free.f_bavail * free.f_frsize // MIB - 2)
    agent.signal(signal.SIGSTOP)  # it must detect both changes at the same time
    subprocess.run(["fallocate", "-p", "-o", "0", "-l", "20MiB", str(one.disks[0])], check=True)
    os.sync()
    path = image(filesystem / "taker", 16)
    agent.signal(signal.SIGCONT)
    two = vm("taker", [path], {"mode": "flush-only"})
    two.start()
    other = tag_of(two, device)
    eventually(lambda: tags(device)[other.id].extents_sectors * 512 == 16 * MIB,
               "the blocks have changed hands")
    filler.unlink()
    two.io("write 0 64k")
    assert tags(device)[other.id].stats.write_bytes >= 65536


def test_modes_that_this_host_cannot_give(
        agent: Agent, vm: MakeVm, filesystem: Path, device: DeviceNumber) -> None:
    none = vm("mode-none", [image(filesystem / "mode-none", 1)], {"mode": "none"})
    less = vm("mode-less", [image(filesystem / "mode-less", 1)], {"mode": "writeback"})
    for one in (none, less):
        one.start()
    tag_of(less, device)
    disks = agent.disks()
    assert disks["mode-none", "sda"]["tag"] is None
    assert disks["mode-less", "sda"]["mode"] == "flush-only"
    assert "cache pool" in disks["mode-less", "sda"]["note"]
    assert "cache pool" in cli("disks")


def test_the_command(
        agent: Agent, vm: MakeVm, filesystem: Path, device: DeviceNumber) -> None:
    one = vm("command", [image(filesystem / "command", 1)], {"mode": "flush-only"})
    one.start()
    tag = tag_of(one, device)
    one.io("flush")
    cli("tag", "set", str(tag.id), "--weight", "777")
    assert tags(device)[tag.id].weight == 777
    # It persists over a restart of the domain.
    one.destroy()
    no_tag_of(one, device)
    one.start()
    assert tag_of(one, device).weight == 777
    cli("tag", "set", str(tag.id), "--flavor-weight")
    assert tags(device)[tag.id].weight == 100
    assert "does not belong to a disk" in cli("tag", "set", "60000", "--weight", "5", status=1)

    text = cli("status")
    assert "instances" in text and "filesystem" in text and one.uuid in text
    found = {item["tag"]: item for item in json.loads(cli("status", "--json"))["tags"]}
    assert found[tag.id]["name"] == f"{one.uuid}:sda"
    assert "command" in cli("disks")
