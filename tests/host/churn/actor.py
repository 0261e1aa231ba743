# SPDX-License-Identifier: Apache-2.0
"""A thread that lets one instance live: random actions with verified writes between them."""

import collections
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.box.steps import describe
from tests.host import lab
from tests.host.churn.instance import Disk, Instance
from tests.host.lab import ADMIN_SOCKET, eventually
from vcache_agent.admin_client import AdminError, Unfinished, ask
from vcache_agent.model import DeviceNumber, Tag

_LAYERS_MAX = 4

# How often an action is chosen, if it is not 2. A start takes the longest by far.
_OFTEN = {"start": 4, "stop": 1, "crash": 1, "delete": 1, "verify": 1}


class Actor:
    """Lets one instance live, generation after generation.

    :param base: raw base image of its disk; None: its disk is a raw image
    :param device: the device with its images
    """

    def __init__(self, name: str, seed: int, folder: Path, base: Path | None,
                 device: DeviceNumber) -> None:
        self.name = name
        self.counts: collections.Counter[str] = collections.Counter()
        self.problem = ""
        self._choose = random.Random(f"{seed} {name}")
        self._folder = folder
        self._base = base
        self._device = device
        self._generation = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.instance = self._create()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Let it end after its current action."""
        self._stopping.set()

    def join(self) -> None:
        """Wait until it has ended."""
        self._thread.join()

    def _run(self) -> None:
        action = "start"
        try:
            while not self._stopping.is_set():
                self._writes()
                actions = self._possible()
                (action,) = self._choose.choices(
                    list(actions), [_OFTEN.get(name, 2) for name in actions])
                began = time.monotonic()
                actions[action]()
                self.counts[action] += 1
                print(f"churn {time.monotonic():7.1f} s: {self.instance.vm.name} {action}, "
                      f"{time.monotonic() - began:.1f} s", flush=True)
        except Exception as error:
            self.problem = f"{self.instance.vm.name}, {action}: {describe(error)}"

    def _possible(self) -> dict[str, Callable[[], None]]:
        """Return the actions that are possible now, by name."""
        one, disk = self.instance, self.instance.disks["sda"]
        if not one.running:
            return {"start": self._start, "verify": one.verify, "delete": self._delete}
        found = {"stop": self._stop, "crash": self._crash, "verify": one.verify,
                 "reset": one.vm.reset, "pause": self._pause, "weight": self._weight,
                 "copy": self._copy, "wait": self._wait}
        if len(disk.own) < _LAYERS_MAX and (len(disk.own) > 1 or self._is_seen(disk)):
            found["snapshot"] = self._snapshot
        if len(disk.own) > 1:
            found |= {"commit": self._commit, "pull": self._pull}
        if "sdb" in one.disks:
            found["unplug"] = self._unplug
        else:
            found["hotplug"] = self._hotplug
        if disk.mebibytes < 20 and len(disk.own) == 1:
            found["resize"] = self._resize
        return found

    def _is_seen(self, disk: Disk) -> bool:
        """Return whether the agent has seen the active layer of a disk.

        A layer below another one that it has never seen counts as a shared one: see
        doc/source/known-limitations.rst.
        """
        tag = self._tag(disk.target)
        return tag is not None and tag.extents_sectors == sum(map(lab.extent_sectors, disk.own))

    def _tag(self, target: str) -> Tag | None:
        """Return the tag of a disk."""
        label = f"{self.instance.vm.uuid}:{target}"
        return next((tag for tag in lab.tags(self._device).values() if tag.name == label), None)

    def _writes(self) -> None:
        """Write to the disks, and read something."""
        if not self.instance.running:
            return
        for disk in self.instance.disks.values():
            for _ in range(self._choose.randrange(4)):
                self.instance.write(self._choose, disk)
                self.counts["write"] += 1
            self.instance.vm.io("read 0 256k", disk.target)

    def _create(self) -> Instance:
        self._generation += 1
        name = f"{self.name}-{self._generation}"
        return Instance(name, self._folder / name, self._base)

    def _start(self) -> None:
        self.instance.vm.start()
        self.instance.running = True

    def _stop(self) -> None:
        self.instance.running = False
        self.instance.vm.destroy()

    def _crash(self) -> None:
        self.instance.running = False
        os.kill(self.instance.vm.pid, signal.SIGKILL)
        eventually(lambda: not self.instance.vm.is_active(), "the domain has ended")

    def _delete(self) -> None:
        self.instance.end()
        self.instance = self._create()

    def _pause(self) -> None:
        self.instance.vm.resume()
        self.instance.vm.pause()

    def _wait(self) -> None:
        time.sleep(self._choose.random() * 3)

    def _weight(self) -> None:
        """Set the weight of a disk like an operator, if the agent runs."""
        target = self._choose.choice(list(self.instance.disks))
        weights = self.instance.weights
        tag = self._tag(target)
        if tag is None:
            return
        weight = self._choose.randrange(1, 1001)
        try:
            ask(ADMIN_SOCKET, {"op": "tag-set", "tag": tag.id, "weight": weight}, seconds=120)
            weights[target] = {weight}
        except Unfinished:
            weights[target].add(weight)  # the agent was killed
        except AdminError:
            pass  # it does not run, or does not know the disk yet

    def _snapshot(self) -> None:
        one, disk = self.instance, self.instance.disks["sda"]
        path = one.new_path()
        one.vm.snapshot("sda", path)
        disk.own.append(path)
        one.set_active(disk, path, "qcow2")

    def _commit(self) -> None:
        """Commit the active layer, or the one below it."""
        one, disk = self.instance, self.instance.disks["sda"]
        if len(disk.own) > 2 and self._choose.random() < 0.5:
            one.vm.commit("sda", top=disk.own[-2], base=disk.own[-3])
            disk.own.pop(-2).unlink()
            return
        one.vm.commit("sda", base=disk.own[-2])
        disk.own.pop().unlink()
        one.set_active(disk, disk.own[-1], one.vm.format_of(disk.own[-1]))

    def _pull(self) -> None:
        self.instance.vm.pull("sda")
        # QEMU has a part of the image's metadata in memory only, and may crash next.
        self.instance.vm.io("flush")
        self._flattened(self.instance.disks["sda"], keep=True)

    def _copy(self) -> None:
        one, disk = self.instance, self.instance.disks["sda"]
        path, image_format = one.new_path(), self._choose.choice(("raw", "qcow2"))
        one.vm.copy("sda", f'<disk type="file"><source file="{path}"/>'
                    f'<driver type="{image_format}"/></disk>')
        self._flattened(disk, keep=False)
        disk.own.append(path)
        one.set_active(disk, path, image_format)

    @staticmethod
    def _flattened(disk: Disk, *, keep: bool) -> None:
        """Delete the layers that are no longer read.

        :param keep: the active layer has all the data
        """
        active = disk.own.pop()
        for path in (*disk.own, *(() if keep else (active,))):
            path.unlink()
        disk.own[:] = [active] if keep else []
        disk.base = None

    def _hotplug(self) -> None:
        one = self.instance
        path = one.new_path()
        lab.image(path, 4, written=self._choose.random() < 0.5)
        one.vm.formats[path] = "raw"
        one.vm.attach(path, "sdb")
        one.vm.disks.append(path)
        one.disks["sdb"] = Disk("sdb", [path], mebibytes=4)

    def _unplug(self) -> None:
        one = self.instance
        one.verify()
        del one.disks["sdb"]
        path = one.vm.disks.pop()
        one.vm.detach(path, "sdb")
        eventually(lambda: not one.vm.has_disk("sdb"), "sdb is detached")
        path.unlink()

    def _resize(self) -> None:
        disk = self.instance.disks["sda"]
        disk.mebibytes += 4
        self.instance.vm.resize("sda", disk.mebibytes)
