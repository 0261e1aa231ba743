# SPDX-License-Identifier: Apache-2.0
"""VMs write, flush and discard while their tags are created and removed."""

import contextlib
import os
import random
import time
from collections.abc import Callable

import pytest

from tests.kernel import stack
from tests.kernel.conftest import Cgroup
from tests.kernel.disk import SECTOR, Disk, pattern
from tests.kernel.dm import NOFLUSH
from tests.kernel.stack import Mapped, linear, mapped, vcache, vcache_table
from vcache_agent.model import Extent
from vcache_agent.netlink.client import Client
from vcache_agent.netlink.errors import NetlinkError

# Neighbours share a page: the regions do not begin at a page.
REGION, SHIFT, VMS = 1020, 4, 4


class Vm:
    """A process in a cgroup with its own region; after each flush, the origin must have its data.

    :param number: number of the VM
    :param path: the device
    :param below: the origin
    :param seconds: duration
    """

    def __init__(self, number: int, path: str, below: str, seconds: float, seed: int) -> None:
        self.base = SHIFT + number * REGION
        self.rng = random.Random(seed * 100 + number)  # noqa: S311 - test data
        self.model = bytearray(REGION * SECTOR)
        self.path, self.below, self.seconds = path, below, seconds
        self.turn = 0

    def work(self) -> None:
        """Run it; an AssertionError describes a violation."""
        limit = time.monotonic() + self.seconds
        with Disk(self.path) as disk, Disk(self.below, readonly=True) as below:
            while time.monotonic() < limit:
                self.turn += 1
                self._step(disk, below)

    def _step(self, disk: Disk, below: Disk) -> None:
        start = self.rng.randrange(REGION - 1)
        length = min(self.rng.choice([1, 2, 8, 16, 64, 200]), REGION - start)
        where = slice(start * SECTOR, (start + length) * SECTOR)
        kind = self.rng.choices(["write", "fua", "read", "flush", "discard", "aio"],
                                [50, 5, 20, 15, 2, 3])[0]
        if kind in ("write", "fua"):
            self.model[where] = pattern(self.base * 1000000 + self.turn, length)
            disk.write(self.base + start, bytes(self.model[where]), fua=kind == "fua")
        elif kind == "discard":
            self.model[where] = bytes(length * SECTOR)
            disk.discard(self.base + start, length)
        elif kind == "read":
            assert disk.read(self.base + start, length) == self.model[where], (
                f"turn {self.turn}: {length} sectors at {self.base + start} differ")
        else:
            disk.flush() if kind == "flush" else disk.aio_flush()
            durable = below.read(self.base, REGION)
            wrong = [n for n in range(REGION)
                     if durable[n * SECTOR:(n + 1) * SECTOR] !=
                     self.model[n * SECTOR:(n + 1) * SECTOR]]
            assert not wrong, (
                f"turn {self.turn}: flushed, but sectors {wrong[:20]} of {self.base} are not there")


def spawn(group: Cgroup, vm: Vm) -> tuple[int, int]:
    """Start a VM; return its process and the pipe with its error."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        status = 1
        try:
            (group.path / "cgroup.procs").write_text(str(os.getpid()))
            vm.work()
            status = 0
        except (AssertionError, OSError) as error:
            os.write(writer, repr(error).encode()[:4000])
        finally:
            os._exit(status)
    os.close(writer)
    return child, reader


class Agent:
    """Changes everything that can be changed, at random.

    :param client: netlink
    :param device: the device
    :param below: its origin
    :param groups: the VMs' cgroups
    """

    def __init__(self, client: Client, device: Mapped, below: Mapped, groups: list[Cgroup],
                 seed: int) -> None:
        self.client, self.device, self.below, self.groups = client, device, below, groups
        self.rng = random.Random(seed)  # noqa: S311 - test data
        self.changes = 0

    def set_up(self, number: int) -> None:
        """Create the tag of a VM."""
        self.client.tag_set(self.device.number, number + 1, cgroups=[self.groups[number].id])
        start = SHIFT + number * REGION
        self.client.set_extents(self.device.number, number + 1, [
            Extent(start, REGION // 2), Extent(start + REGION // 2, REGION - REGION // 2)])

    def change(self) -> None:
        """Make one change."""
        self.changes += 1
        number = self.rng.randrange(VMS)
        what = self.rng.choice([self._remove, self._cgroups, self._extents, self._weight,
                                self._reload, self._buffer, self._look])
        with contextlib.suppress(NetlinkError):  # a tag that does not exist at the moment
            what(number)

    def _remove(self, number: int) -> None:
        self.client.tag_del(self.device.number, number + 1)
        time.sleep(self.rng.random() / 10)
        self.set_up(number)

    def _cgroups(self, number: int) -> None:
        some = self.rng.sample([group.id for group in self.groups], self.rng.randrange(VMS))
        self.client.tag_set(self.device.number, number + 1, cgroups=some)
        time.sleep(self.rng.random() / 10)
        self.set_up(number)

    def _extents(self, number: int) -> None:
        self.client.set_extents(self.device.number, number + 1, [])
        time.sleep(self.rng.random() / 10)
        self.set_up(number)

    def _weight(self, number: int) -> None:
        self.client.tag_set(self.device.number, number + 1, weight=self.rng.randrange(1, 1000))

    def _reload(self, number: int) -> None:
        table = vcache_table(self.below.path, "filesystem", age_ms=self.rng.choice([20, 500]))
        self.device.swap(table, NOFLUSH if number % 2 else 0)

    def _buffer(self, number: int) -> None:
        with stack.buffer_mb(1):
            time.sleep(self.rng.random() / 5)

    def _look(self, number: int) -> None:
        self.client.tags()
        self.client.devices()
        self.device.status()


@pytest.mark.smp
@pytest.mark.parametrize("seed", [1, 2])
def test_tags_come_and_go_under_io(origin: str, client: Client,
                                   cgroup: Callable[[str], Cgroup], seed: int) -> None:
    groups = [cgroup(f"vm{number}") for number in range(VMS)]
    seconds = 20.0
    with mapped(linear(origin)) as below, vcache(below.path, "filesystem", age_ms=200) as device:
        agent = Agent(client, device, below, groups, seed)
        for number in range(VMS):
            agent.set_up(number)
        children = [spawn(group, Vm(number, device.path, origin, seconds, seed))
                    for number, group in enumerate(groups)]
        limit = time.monotonic() + seconds
        while time.monotonic() < limit:
            agent.change()
            time.sleep(agent.rng.random() / 5)
        complaints = []
        for child, reader in children:
            complaints.append(os.read(reader, 4096).decode())
            os.close(reader)
            os.waitpid(child, 0)
        assert not any(complaints), complaints
        assert agent.changes > 10
