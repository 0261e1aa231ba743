# SPDX-License-Identifier: Apache-2.0
"""A model of device mapper in which a command can be killed at every call."""

import dataclasses
import errno
import itertools
from collections.abc import Iterable

from vcache_agent.dm import Dm as RealDm
from vcache_agent.dm import DmError, Info, Line, Lines
from vcache_agent.model import DeviceNumber
from vcache_agent.pools import FAILED, LOST, Mapping

MAJOR = 999  # no such device on this host
TABLE = (Line(0, 100, "linear", "8:16 2048"), Line(100, 50, "linear", "8:32 0"))
MIB = 1 << 20


class Killed(BaseException):
    """The command was killed; it does not continue."""


@dataclasses.dataclass
class Device:
    """A mapped device of the model."""

    number: DeviceNumber
    uuid: str = ""
    live: Lines = ()
    loaded: Lines | None = None
    suspended: bool = False
    users: int = 0
    drain: bool = False
    state: str = ""
    unloadable: bool = False


class Kernel:
    """Mapped devices, pools and the dirty data in them."""

    def __init__(self) -> None:
        self.devices: dict[str, Device] = {}
        self.numbers = itertools.count()
        #: sectors that only the cache has, by volume
        self.volumes: dict[int, int] = {}
        #: label by volume
        self.labels: dict[int, str] = {}
        self.refuse_resume: str = ""
        self.refuse_load: str = ""
        self.pool_status = "ok 2048 62 60 2 0 - - 0 18.01 0 1 0 75 0 1 0 20"
        self.resized: int | None = None

    def add(self, name: str, *lines: Line, uuid: str = "", users: int = 0) -> Device:
        self.devices[name] = Device(DeviceNumber(MAJOR, next(self.numbers)), uuid, lines,
                                    users=users)
        return self.devices[name]

    def mapping(self, name: str) -> Mapping | None:
        live = self.devices[name].live
        return Mapping.parse(live[0]) if live and live[0].target == "vcache" else None


class Dm:
    """Replaces dm.Dm; is killed at a call."""

    def __init__(self, kernel: Kernel, die_at: int = 0) -> None:
        self.kernel = kernel
        self.calls = 0
        self.die_at = die_at

    def _step(self) -> None:
        self.calls += 1
        if self.die_at and self.calls >= self.die_at:
            raise Killed

    def _get(self, name: str) -> Device:
        self._step()
        if name not in self.kernel.devices:
            raise DmError(errno.ENXIO, "none")
        return self.kernel.devices[name]

    def _opened(self, device: Device) -> int:
        word = str(device.number)
        return device.users + sum(
            word in line.arguments.split() for other in self.kernel.devices.values()
            for line in (*other.live, *(other.loaded or ())))

    def names(self) -> list[str]:
        self._step()
        return list(self.kernel.devices)

    def info(self, device: str | DeviceNumber) -> Info | None:
        self._step()
        for name, found in self.kernel.devices.items():
            if device in (name, found.number):
                return Info(name, found.uuid, found.number, self._opened(found), found.suspended,
                            bool(found.live), found.loaded is not None, False)
        return None

    def create(self, name: str, uuid: str = "") -> None:
        self._step()
        self.kernel.add(name, uuid=uuid)

    def remove(self, name: str, event: int = 0) -> None:
        if self._opened(self._get(name)):
            raise DmError(errno.EBUSY, "busy")
        del self.kernel.devices[name]

    def load(self, name: str, lines: Iterable[Line]) -> None:
        device, lines = self._get(name), tuple(lines)
        if self.kernel.refuse_load and lines[0].target == self.kernel.refuse_load:
            raise DmError(errno.EINVAL, "refused")
        mapping = self.kernel.mapping(name)
        if mapping and mapping.mode == "writeback" and lines[0].target == "vcache" \
                and self.kernel.volumes[mapping.volume] and not device.drain \
                and Mapping.parse(lines[0]).mode != "writeback":
            raise DmError(errno.EBUSY, "send the message 'drain' first")
        device.loaded = lines

    def clear(self, name: str) -> None:
        self._get(name).loaded = None

    def suspend(self, name: str) -> None:
        self._settle(name)
        self._get(name).suspended = True

    def _settle(self, name: str) -> None:
        mapping = self.kernel.mapping(name)
        if mapping and mapping.pool and self._get(name).drain:
            self.kernel.volumes[mapping.volume] = 0

    def resume(self, name: str, event: int = 0) -> None:
        device = self._get(name)
        if device.loaded is not None:
            self._settle(name)
            self._put_in_force(name, device, device.loaded)
        elif device.unloadable:
            raise DmError(errno.EIO, "resume fails")
        device.suspended = False

    def _put_in_force(self, name: str, device: Device, lines: Lines) -> None:
        before = self.kernel.mapping(name)
        device.suspended, device.live, device.loaded = True, lines, None
        device.unloadable = lines[0].target == self.kernel.refuse_resume
        if device.unloadable:
            raise DmError(errno.EIO, "resume fails")
        after = self.kernel.mapping(name)
        if after and after.pool:
            self.kernel.volumes.setdefault(after.volume, 0)
        elif before and before.pool and device.state not in FAILED:
            assert not self.kernel.volumes.get(before.volume), "data is only in the cache"
        device.drain = False

    def table(self, name: str, *, inactive: bool = False) -> Lines:
        device = self._get(name)
        return (device.loaded or ()) if inactive else device.live

    def status(self, name: str) -> Lines:
        device = self._get(name)
        if device.live[0].target == "vcache-pool":
            words = self.kernel.pool_status.split()
            attached = [mapping for other in self.kernel.devices
                        if (mapping := self.kernel.mapping(other)) and mapping.pool]
            if words[6:8] == ["-", "-"]:
                words[6:8] = [str(len(self.kernel.volumes)), str(len(attached))]
            return (Line(0, 1, "vcache-pool", " ".join(words)),)
        if device.live[0].target == "vcache-vssd":
            quota = int(device.live[0].arguments.split()[2])
            return (Line(0, 1, "vcache-vssd", f"2048 {device.live[0].length // 2048} {quota} "
                         f"{quota} 0 {quota} 0 0 0"),)
        mapping = self.kernel.mapping(name)
        assert mapping
        text = f"{mapping.mode} volume fua 0 1 7 100 0 100 0 0"
        if mapping.pool and not device.unloadable:
            dirty = self.kernel.volumes[mapping.volume]
            if device.drain and device.state not in ("failing", *LOST):
                self.kernel.volumes[mapping.volume] = dirty // 4
            state = device.state or ("dirty" if dirty else "clean")
            text += f" cache {mapping.volume} {state} {dirty} 0 0 0"
        return (Line(0, 1, "vcache", text),)

    def message(self, name: str, text: str) -> None:
        device = self._get(name)
        verb, *words = text.split()
        if verb == "drain":
            device.drain = True
            return
        if at := {"reads_percent": 13, "hot_percent": 17}.get(verb):
            said = self.kernel.pool_status.split()
            self.kernel.pool_status = " ".join([*said[:at], words[0], *said[at + 1:]])
            return
        if verb == "resize":
            self.kernel.resized = int(words[0])
            return
        volume = int(words[0])
        if volume not in self.kernel.volumes:
            raise DmError(errno.ENOENT, "there is no such volume")
        if verb == "label":
            self.kernel.labels[volume] = words[1]
            return
        users = [mapping for other in self.kernel.devices
                 if (mapping := self.kernel.mapping(other)) and mapping.volume == volume]
        if users or (self.kernel.volumes[volume] and len(words) == 1):
            raise DmError(errno.EBUSY, "the volume may have dirty data in the cache")
        del self.kernel.volumes[volume]
        self.kernel.labels.pop(volume, None)

    def ask(self, name: str, text: str) -> str:
        self._get(name)
        assert text == "labels"
        return "".join(f"{volume} {self.kernel.labels.get(volume, '')}".rstrip() + "\n"
                       for volume in self.kernel.volumes)


def host() -> Kernel:
    """Create a host with a pool, fast, and a device in use, lv."""
    made = Kernel()
    made.add("fast", Line(0, 1000, "vcache-pool", "8:48"))
    made.add("lv", *TABLE, uuid="LVM-abc", users=1)
    return made


def as_dm(dm: Dm) -> RealDm:
    return dm  # type: ignore[return-value]
