# SPDX-License-Identifier: Apache-2.0
"""What limits a neighbour in the kernel: ``io.max`` of a cgroup, the destage rate of a device.

``io.max`` is that of the directory of the domain, which libvirt shares with nobody, and not
``blkdeviotune`` or ``blkiotune``: these are a part of the domain's live XML, so a limit would go
with an instance that migrates, would overwrite Nova's quotas, and needs libvirtd to be removed.
libvirt puts its own limits in a directory below; the kernel applies both.
"""

import dataclasses
from pathlib import Path
from typing import Any, Protocol

from vcache_agent import cgroups, destage
from vcache_agent.decide.restraint import Means, Rates
from vcache_agent.dm import Dm, DmError
from vcache_agent.pools import PoolError

_IO_MAX = "io.max"
_MIB = 1 << 20


class Gone(Exception):
    """What is limited no longer exists, and its limit with it."""


class KnobError(Exception):
    """A limit cannot be read or set; the message is for operators."""


class Knob(Protocol):
    """One limit of the kernel: an immutable dataclass, its identity. Its value is a text."""

    @property
    def means(self) -> Means:
        """The means that it belongs to."""

    def read(self) -> str:
        """Return the value.

        :raises Gone: see there
        :raises KnobError: see there
        """

    def write(self, value: str) -> None:
        """Set the value.

        :raises Gone: see there
        :raises KnobError: see there
        """

    def lowered(self, value: str, limit: Rates) -> str:
        """Return a value with a limit, which never allows more than the value did."""


@dataclasses.dataclass(frozen=True)
class IoMax:
    """The bandwidth of a cgroup on a device, in ``io.max``; requests per second stay.

    :param path: directory of the cgroup, relative to the mount point, such as ``/machine.slice``
    :param id: its id, which a later cgroup of that name does not have
    :param device: number of the device, such as ``254:3``
    """

    path: str
    id: int
    device: str

    means = Means.IO

    def read(self) -> str:
        """See Knob."""
        try:
            lines = self._file().read_text().splitlines()
        except OSError as error:
            raise self._error(error) from None
        fields = next((line.split()[1:] for line in lines
                       if line.split()[:1] == [self.device]), [])
        found = {"rbps": "max", "wbps": "max"} | dict(
            field.split("=", 1) for field in fields if field.startswith(("rbps=", "wbps=")))
        return f"rbps={found['rbps']} wbps={found['wbps']}"

    def write(self, value: str) -> None:
        """See Knob."""
        try:
            self._file().write_text(f"{self.device} {value}\n")
        except OSError as error:
            raise self._error(error) from None

    def lowered(self, value: str, limit: Rates) -> str:
        """See Knob."""
        parts = []
        for field, rate in zip(value.split(), limit, strict=True):
            name, _, had = field.partition("=")
            if rate:
                had = str(int(rate) if had == "max" else min(int(had), int(rate)))
            parts.append(f"{name}={had}")
        return " ".join(parts)

    def _file(self) -> Path:
        try:
            folder = Path(f"{cgroups.root()}{self.path}")
            found = folder.stat().st_ino
        except (OSError, cgroups.CgroupError):
            raise Gone from None
        if found != self.id:
            raise Gone
        return folder / _IO_MAX

    def _error(self, error: OSError) -> Exception:
        folder = Path(f"{cgroups.root()}{self.path}")
        if not folder.exists():
            return Gone()
        if isinstance(error, FileNotFoundError):
            return KnobError(f"{folder} has no {_IO_MAX}: its parent must have 'io' in "
                             "cgroup.subtree_control")
        return KnobError(f"{folder / _IO_MAX}: {error.strerror}")


@dataclasses.dataclass(frozen=True)
class DestageRate:
    """The limit of a device's destage, as of ``vcache destage --rate``; in MiB/s, 0: none.

    :param device: name of the mapped device
    :param number: its number, which another device of that name does not have
    """

    device: str
    number: str

    means = Means.DESTAGE

    def read(self) -> str:
        """See Knob."""
        try:
            with Dm() as dm:
                self._check(dm)
                return str(destage.progress(dm, self.device).limits["destage_mib"])
        except (PoolError, DmError) as error:
            raise KnobError(str(error)) from None

    def write(self, value: str) -> None:
        """See Knob."""
        try:
            with Dm() as dm:
                self._check(dm)
                destage.change(dm, self.device, {"destage_mib": int(value)})
        except (PoolError, DmError) as error:
            raise KnobError(str(error)) from None

    def lowered(self, value: str, limit: Rates) -> str:
        """See Knob."""
        rate = max(1, round(limit.write / _MIB))
        return str(min(int(value), rate) if int(value) else rate)

    def _check(self, dm: Dm) -> None:
        info = dm.info(self.device)
        if info is None or str(info.number) != self.number:
            raise Gone


_KNOBS: dict[Means, type[IoMax] | type[DestageRate]] = {
    Means.IO: IoMax, Means.DESTAGE: DestageRate}


def from_fields(means: str, fields: list[Any]) -> Knob:
    """Return a knob by its means and its fields, as of ``dataclasses.astuple``.

    :raises ValueError: if there is no such means
    :raises TypeError: if it has other fields
    """
    return _KNOBS[Means(means)](*fields)
