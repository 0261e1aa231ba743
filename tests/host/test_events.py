# SPDX-License-Identifier: Apache-2.0
"""Each event of an instance's life against all that must survive it, for raw and qcow2.

The disk is in mode writeback on a file system with a cache, as a raw image or as a qcow2 image
over a shared base. Before an event, it has a weight of its flavor and another one by an
operator, clean data in the cache, and dirty data that the cache cannot destage. After the
event, the tag, the weight, the override, the cached data and the dirty data must be there.
"""

import contextlib
import dataclasses
import errno
import functools
import itertools
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.box.steps import at_end, each
from tests.host import guest, lab
from tests.host.cached import CachedFilesystem, cached_filesystem
from tests.host.lab import ADMIN_SOCKET, Agent, Vm, eventually
from tests.host.test_faults import is_running
from tests.host.test_lifecycle import no_tag_of, tag_of
from vcache_agent.admin_client import ask
from vcache_agent.model import Tag

pytestmark = pytest.mark.life

MIB = 1 << 20
SIZE = 16 * MIB
FLAVOR, OPERATOR = 250, 777
BASE, CLEAN, DIRTY = "8M 1M", "1M 2M", "4M 1M"
LAYOUTS = ("raw", "qcow2")
_NUMBERS = itertools.count(1)


@dataclasses.dataclass
class Instance:
    """A running domain with its disk.

    :param layout: raw image, or qcow2 image over a shared base
    :param own: its own layers, the active one last
    :param regions: the patterns that the guest must read
    :param number: the number of its tag
    :param moved: the event copies data of the disk to other blocks
    :param altered: the disk is not as it was at the beginning
    """

    filesystem: CachedFilesystem
    agent: Agent
    vm: Vm
    layout: str
    own: list[Path]
    regions: dict[str, int]
    number: int = 0
    moved: bool = False
    altered: bool = False
    rounds: int = 0

    @classmethod
    def create(cls, filesystem: CachedFilesystem, agent: Agent, layout: str) -> "Instance":
        """Create an instance and start it."""
        name = f"events-{layout}-{next(_NUMBERS)}"
        folder = filesystem.folder / name
        folder.mkdir()
        image = folder / ("disk" if layout == "raw" else "base")
        content = bytearray(SIZE)
        content[8 * MIB:9 * MIB] = b"\xba" * MIB
        image.write_bytes(content)
        guest.install(image, guest.SHUTS_DOWN)
        path = image if layout == "raw" else lab.overlay(folder / "disk", image)
        vm = Vm(name, [path], {"mode": "writeback", "weight": str(FLAVOR)},
                format=layout)
        vm.start()
        return cls(filesystem, agent, vm, layout, [path], {BASE: 0xba})

    @property
    def folder(self) -> Path:
        """The folder of its images."""
        return self.filesystem.folder / self.vm.name

    def end(self) -> None:
        """Remove it."""
        self.vm.end()
        no_tag_of(self.vm, self.filesystem.number)
        lab.run("rm", "-r", str(self.folder))

    def settle(self) -> Tag:
        """Wait until the disk's tag has all blocks of its own layers; return it."""
        def find() -> Tag | None:
            tag = next((tag for tag in lab.tags(self.filesystem.number).values()
                        if tag.name == f"{self.vm.uuid}:sda"), None)
            wanted = sum(lab.extent_sectors(path) for path in self.own)
            return tag if tag and tag.cgroups and tag.extents_sectors == wanted else None

        return eventually(find, f"the tag of {self.vm.name} has all blocks")

    def write(self, region: str, pattern: int) -> None:
        """Write a region durably."""
        self.vm.io(f"write -P {pattern:#x} {region}")
        self.vm.io("flush")
        self.regions[region] = pattern

    def prepare(self) -> None:
        """Give it an override, clean data in the cache, and dirty data."""
        if not self.vm.is_active():
            self.vm.start()  # another one was used to reboot the host
        self.rounds += 1
        # The first write of a block may be the host's.
        for region in (CLEAN, DIRTY):
            self.write(region, 0xc0)
        self.number = self.settle().id
        ask(ADMIN_SOCKET, {"op": "tag-set", "tag": self.number, "weight": OPERATOR})
        self.write(CLEAN, 0xc1)
        self.filesystem.destage(self.number)
        self.filesystem.hold()
        self.write(DIRTY, 0x10 + self.rounds)
        tag = self.filesystem.tag(self.number)
        assert tag.cached_bytes >= 3 * MIB
        assert MIB <= tag.cache_dirty_bytes < 2 * MIB

    def start(self) -> None:
        """Start it again, after its domain has ended."""
        eventually(lambda: not self.vm.is_active(), "the domain has ended")
        no_tag_of(self.vm, self.filesystem.number)
        # The host reads the dirty data, too.
        self.readable()
        self.vm.start()

    def readable(self) -> None:
        """Check the content of the disk."""
        if self.vm.is_active():
            # A pull leaves what it has changed in the image's metadata in QEMU's memory.
            self.vm.io("flush")
        lab.contents(self.own[-1], self.vm.format, self.regions)

    def check(self) -> None:
        """Check all that the event must not change."""
        tag = self.settle()
        assert (tag.id, tag.weight, tag.cgroups) == (self.number, OPERATOR, {self.vm.cgroup})
        disk = self.agent.disks()[self.vm.name, "sda"]
        assert (disk["state"], disk["tag"], disk["weight"], disk["note"]) == (
            "isolated", self.number, OPERATOR, "")
        assert not [orphan for orphan in self.agent.orphans() if self.vm.uuid in orphan["name"]]
        assert self.filesystem.state().cache_dirty_bytes >= MIB
        assert self.moved or tag.cache_dirty_bytes >= MIB
        hits = self.filesystem.hits()
        self.vm.io(f"read {CLEAN}")
        assert self.filesystem.hits() - hits >= 2 * MIB
        self.readable()
        # Without the override, the weight is that of the flavor.
        ask(ADMIN_SOCKET, {"op": "tag-set", "tag": self.number, "weight": None})
        assert self.filesystem.tag(self.number).weight == FLAVOR


def stop(one: Instance) -> None:
    one.vm.destroy()
    one.start()


def soft_reboot(one: Instance) -> None:
    one.vm.resume()
    one.vm.shut_down()
    one.start()


def guest_reboot(one: Instance) -> None:
    one.vm.reset()


def hard_reboot(one: Instance) -> None:
    one.vm.destroy()
    no_tag_of(one.vm, one.filesystem.number)
    one.readable()
    one.vm.undefine()
    one.vm.start()


def pause(one: Instance) -> None:
    one.vm.resume()
    one.vm.pause()


def hotplug(one: Instance) -> None:
    path = lab.image(one.folder / "more", 2)
    one.vm.disks.append(path)
    one.vm.formats[path] = "raw"
    one.vm.attach(path, "sdb")
    one.altered = True
    more = tag_of(one.vm, one.filesystem.number, "sdb")
    assert (more.weight, more.cgroups) == (FLAVOR, {one.vm.cgroup})
    assert more.id != one.number


def unplug(one: Instance) -> None:
    hotplug(one)
    number = one.filesystem.number
    more = tag_of(one.vm, number, "sdb").id
    ask(ADMIN_SOCKET, {"op": "tag-set", "tag": more, "weight": 55})
    one.vm.io("write -P 0x5d 1M 1M", "sdb")
    one.vm.io("flush", "sdb")
    path = one.vm.disks[1]
    one.vm.detach(path, "sdb")
    no_tag_of(one.vm, number, "sdb")
    lab.contents(path, "raw", {"1M 1M": 0x5d})
    one.vm.attach(path, "sdb")
    again = tag_of(one.vm, number, "sdb")
    assert (again.id, again.weight) == (more, 55)
    assert again.cache_dirty_bytes >= MIB


def snapshot(one: Instance) -> None:
    top = one.folder / f"top{len(one.own)}"
    one.vm.snapshot("sda", top)
    one.own.append(top)
    one.vm.format, one.altered = "qcow2", True
    one.write("12M 64k", 0x12)


def commit(one: Instance) -> None:
    before = one.vm.format
    snapshot(one)
    one.moved = True
    one.vm.commit("sda", base=one.own[-2])
    one.own.pop().unlink()
    one.vm.format = before


def pull(one: Instance) -> None:
    snapshot(one)
    one.moved = True
    one.vm.pull("sda")
    for path in one.own[:-1]:
        path.unlink()
    del one.own[:-1]


def copy(one: Instance) -> None:
    path = one.folder / "copy"
    one.moved = one.altered = True
    one.vm.copy("sda", f'<disk type="file"><source file="{path}"/>'
                f'<driver type="{one.layout}"/></disk>')
    one.own.pop().unlink()
    one.own.append(path)


def resize(one: Instance) -> None:
    one.altered = True
    one.vm.resize("sda", 24)
    one.write("20M 1M", 0x20)


def qemu_crash(one: Instance) -> None:
    os.kill(one.vm.pid, signal.SIGKILL)
    one.start()


def libvirtd_crash(one: Instance) -> None:
    position = len(one.agent.log())
    kill_libvirtd()
    subprocess.run(["libvirtd", "-d"], check=True)
    one.agent.wait_for("connected to libvirt", position)
    one.agent.wait_for(f"hook: reconnect {one.vm.name}", position)


def host_reboot(one: Instance) -> None:
    kill_libvirtd()
    for path in Path("/run/libvirt/qemu").glob("*.pid"):
        pid = int(path.read_text())
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        eventually(functools.partial(has_ended, pid), "QEMU has ended")
    one.agent.kill()
    forget_the_boot()
    # The dirty data cannot reach the disk any more.
    one.filesystem.fail()
    one.filesystem.down()
    one.filesystem.up(held=True)
    subprocess.run(["libvirtd", "-d"], check=True)
    one.agent.start()
    one.start()


def forget_the_boot() -> None:
    """Remove what a boot begins without."""
    for folder in ("/run/libvirt/qemu", "/run/vcache"):
        for path in Path(folder).iterdir():
            if not path.is_dir():
                path.unlink()
    for path in sorted(Path("/sys/fs/cgroup/machine").glob("qemu-*/**/"), reverse=True):
        # A process that was killed is in its group until init has waited for it.
        eventually(functools.partial(is_removed, path), f"{path} is empty")


def is_removed(path: Path) -> bool:
    """Remove a control group; return whether it had no process."""
    try:
        path.rmdir()
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return False
    return True


EVENTS: dict[str, Callable[[Instance], None]] = {
    "stop": stop, "soft-reboot": soft_reboot, "guest-reboot": guest_reboot,
    "hard-reboot": hard_reboot, "pause": pause, "qemu-crash": qemu_crash,
    "libvirtd-crash": libvirtd_crash, "host-reboot": host_reboot, "hotplug": hotplug,
    "unplug": unplug, "snapshot": snapshot, "commit": commit, "pull": pull, "copy": copy,
    "resize": resize}


def kill_libvirtd() -> None:
    pid = int(Path("/run/libvirtd.pid").read_text())
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: has_ended(pid), "libvirtd has ended")


def has_ended(pid: int) -> bool:
    return not is_running(pid)


@pytest.fixture(scope="module")
def cells(module: None, one_agent: Agent) -> Iterator[CachedFilesystem]:
    """The file system, and an agent that leaves the caches of stopped instances alone."""
    with cached_filesystem(Path("/dev/ram2"), Path("/dev/ram3"), Path("/run/cells")) as found:
        one_agent.configure(swap_after=600)
        with at_end(one_agent.configure):
            yield found


@pytest.fixture(scope="module")
def instances(cells: CachedFilesystem) -> Iterator[dict[str, Instance]]:
    """The instances that the next test can use, by layout."""
    found: dict[str, Instance] = {}
    yield found
    each(Instance.end, list(found.values()))


def instance(cells: CachedFilesystem, agent: Agent, instances: dict[str, Instance],
             layout: str) -> Instance:
    """Return a running instance, taken out of those that others can use."""
    cells.let_go()
    return instances.pop(layout, None) or Instance.create(cells, agent, layout)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_first_start_gives_what_the_flavor_requests(
        agent: Agent, cells: CachedFilesystem, instances: dict[str, Instance],
        layout: str) -> None:
    cells.let_go()
    one = Instance.create(cells, agent, layout)
    try:
        tag = one.settle()
        assert (tag.weight, tag.cgroups) == (FLAVOR, {one.vm.cgroup})
        names = [found.name for found in lab.tags(cells.number).values()]
        assert names.count("base:base") == (layout == "qcow2")
        # The image was written by the host. What it has in the cache is there for the guest.
        hits = cells.hits()
        one.vm.io(f"read {BASE}")
        assert cells.hits() - hits >= MIB
        one.readable()
    finally:
        one.end()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("event", EVENTS)
def test_an_event_changes_nothing_that_must_stay(
        agent: Agent, cells: CachedFilesystem, instances: dict[str, Instance], layout: str,
        event: str) -> None:
    one = instance(cells, agent, instances, layout)
    complete = False
    try:
        one.prepare()
        EVENTS[event](one)
        one.check()
        complete = True
    finally:
        if complete and not one.altered:
            instances[layout] = one
        else:
            cells.let_go()
            one.end()
