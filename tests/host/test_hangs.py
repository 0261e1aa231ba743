# SPDX-License-Identifier: Apache-2.0
"""A path that hangs in the kernel: the device of its file system is suspended.

The path is a symbolic link on that file system to an image on another one. Otherwise
QEMU, which has the image open, would keep the path in the kernel's memory, where a
look-up needs no I/O.
"""

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.box import disks
from tests.box.inside import run
from tests.box.limits import limit
from tests.box.steps import at_end
from tests.host import lab
from tests.host.lab import Agent, Vm, eventually, image, tags
from tests.host.test_lifecycle import tag_of
from vcache_agent.model import DeviceNumber

MakeVm = Callable[..., Vm]


class Slow:
    """A file system that can hang."""

    NAME = "slow"

    def __init__(self, device: str, folder: Path) -> None:
        self._device = device
        self._folder = folder

    def link(self, name: str, target: Path) -> Path:
        """Make a link, of which nothing remains in memory."""
        path = self._folder / name
        path.symlink_to(target)
        # The journal would keep the blocks of the link.
        run("umount", str(self._folder))
        run("mount", "-o", "noatime", self._device, str(self._folder))
        return path

    def path(self, name: str) -> Path:
        """Return the path of a file that need not exist."""
        return self._folder / name

    def hang(self, agent: Agent, vm: Vm, target: str) -> None:
        """Let look-ups of all its paths hang, and wait until the agent notes that for a disk."""
        run("dmsetup", "suspend", "--nolockfs", "--noflush", self.NAME)

        def noted() -> bool:
            # What is in memory needs no I/O. The agent's look-ups keep it there, and so does a
            # list of the buffers that were used last, which a flush of any device empties.
            run("dd", "if=/dev/ram1", "of=/dev/null", "bs=4k", "count=1")
            run("blockdev", "--flushbufs", "/dev/ram1")
            Path("/proc/sys/vm/drop_caches").write_text("3")
            return "does not answer" in disk_of(agent, vm, target)["note"]

        eventually(noted, "the path hangs")

    def go_on(self) -> None:
        """Let them continue; also if they do not hang."""
        run("dmsetup", "resume", self.NAME)


@pytest.fixture
def slow(module: None) -> Iterator[Slow]:
    sectors = run("blockdev", "--getsz", "/dev/ram4").strip()
    with disks.mapped(Slow.NAME, f"0 {sectors} linear /dev/ram4 0") as device:
        run("dmsetup", "mknodes", Slow.NAME)
        with lab.mounted(Path(device), Path("/run/slow")) as folder:
            found = Slow(device, folder)
            with at_end(found.go_on):
                yield found


def disk_of(agent: Agent, vm: Vm, target: str) -> dict[str, Any]:
    """Return the agent's view of a disk; after its start, it may not have one yet."""
    return agent.disks().get((vm.name, target), {"note": "not known yet"})


def prepare(name: str, xml: str) -> subprocess.CompletedProcess[str]:
    """Run the hook as libvirt does, which would itself look up the disks before."""
    with contextlib.ExitStack() as ended:
        ended.callback(subprocess.run, [str(lab.HOOK), name, "release", "end", "-"],
                       input=xml, text=True, check=True, timeout=limit(lab.PATIENCE))
        return subprocess.run([str(lab.HOOK), name, "prepare", "begin", "-"], input=xml,
                              text=True, capture_output=True, check=False,
                              timeout=limit(lab.PATIENCE))


def test_a_path_that_hangs_delays_only_its_disk(
        agent: Agent, vm: MakeVm, filesystem: Path, device: DeviceNumber, slow: Slow) -> None:
    path = slow.link("second", image(filesystem / "slow-second", 4))
    one = vm("slow", [image(filesystem / "slow-first", 4), path], {"mode": "flush-only"})
    one.start()
    first, second = tag_of(one, device), tag_of(one, device, "sdb")
    eventually(lambda: tags(device)[second.id].extents_sectors == 4 * 2048, "all extents")

    # This process must not look up the paths, either.
    lax, strict = (Vm(f"slow-{name}", [slow.path(name)], {"mode": "flush-only", **specs}).xml()
                   for name, specs in (("lax", {}), ("strict", {"required": "true"})))
    slow.hang(agent, one, "sdb")
    # Other disks grow, and other domains start, without a delay.
    other = vm("quick", [image(filesystem / "quick", 8, written=False)],
               {"mode": "flush-only", "required": "true"})
    other.start()
    tag = tag_of(other, device)
    other.io("write 0 1M")
    other.io("flush")
    eventually(lambda: tags(device)[tag.id].extents_sectors == 2048, "new blocks")
    assert disk_of(agent, other, "sda")["note"] == ""
    # The disk that hangs keeps its tag, and its I/O goes on.
    kept = tags(device)[second.id]
    assert (kept.name, kept.cgroups, kept.extents_sectors) == (
        second.name, {one.cgroup}, 4 * 2048)
    one.io("write 0 64k", "sdb")
    one.io("flush", "sdb")
    assert tags(device)[second.id].stats.write_bytes >= second.stats.write_bytes + 65536
    assert disk_of(agent, one, "sda")["note"] == ""
    assert disk_of(agent, one, "sdb")["located_age_s"] > 0

    # A domain whose disk hangs from the beginning.
    done = prepare("slow-lax", lax)
    assert done.returncode == 0
    assert "not answer" in done.stderr
    done = prepare("slow-strict", strict)
    assert done.returncode == 1
    assert "vcache:required" in done.stderr and "not answer" in done.stderr

    slow.go_on()
    eventually(lambda: disk_of(agent, one, "sdb")["note"] == "", "it answers again")
    after = tags(device)[second.id]
    assert (after.cgroups, after.extents_sectors) == ({one.cgroup}, 4 * 2048)
    assert tags(device)[first.id].cgroups == {one.cgroup}
    for domain in (one, other):
        domain.end()
    agent.reconcile()
    agent.reconcile()


def test_an_agent_with_a_path_that_hangs_can_be_restarted(
        agent: Agent, vm: MakeVm, filesystem: Path, device: DeviceNumber, slow: Slow) -> None:
    """A thread that hangs in the kernel would keep the process, and its lock on the store."""
    path = slow.link("disk", image(filesystem / "slow-restart", 4))
    one = vm("slow-restart", [path], {"mode": "flush-only"})
    one.start()
    tag = tag_of(one, device)
    slow.hang(agent, one, "sda")
    assert agent.stop() == 0
    agent.start()
    eventually(lambda: "not answer" in disk_of(agent, one, "sda")["note"], "it still hangs")
    slow.go_on()
    eventually(lambda: disk_of(agent, one, "sda")["note"] == "", "it answers")
    assert tag_of(one, device).id == tag.id
    one.end()
    agent.reconcile()
    agent.reconcile()
