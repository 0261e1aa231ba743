# SPDX-License-Identifier: Apache-2.0
"""What Cinder needs of nvmetcli's module nvmet, on the kernel's real nvmet.

No package index has the module. The names are those of the module; the files of configfs are
described in the kernel's drivers/nvme/target/configfs.c.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_ROOT = Path("/sys/kernel/config/nvmet")

Failed = Callable[[str], None] | None


class CFSNotFound(Exception):
    """The object does not exist."""


class _Node:
    """A folder of configfs.

    :param path: its path
    :param mode: ``lookup``: it must exist; ``create``: it must not; ``any``: it may
    :raises CFSNotFound: if it does not exist
    """

    def __init__(self, path: Path, mode: str) -> None:
        self._path = path
        if mode == "lookup" and not path.is_dir():
            raise CFSNotFound(f"{path} does not exist")
        if mode != "lookup":
            path.mkdir(exist_ok=mode == "any")

    @property
    def path(self) -> str:
        return str(self._path)

    def get_attr(self, group: str, name: str) -> str:
        return (self._path / f"{group}_{name}").read_text().strip()

    def set_attr(self, group: str, name: str, value: object) -> None:
        (self._path / f"{group}_{name}").write_text(str(value))

    def delete(self) -> None:
        self._path.rmdir()


class Root(_Node):
    """The whole configuration."""

    def __init__(self) -> None:
        super().__init__(_ROOT, "lookup")

    @property
    def subsystems(self) -> "Iterator[Subsystem]":
        return (Subsystem(name) for name in os.listdir(_ROOT / "subsystems"))

    @property
    def ports(self) -> "Iterator[Port]":
        return (Port(name) for name in os.listdir(_ROOT / "ports"))


class Subsystem(_Node):
    """What a host connects to."""

    def __init__(self, nqn: str, mode: str = "lookup") -> None:
        self.nqn = nqn
        super().__init__(_ROOT / "subsystems" / nqn, mode)

    @property
    def namespaces(self) -> "Iterator[Namespace]":
        return (Namespace(self, int(name)) for name in os.listdir(self._path / "namespaces"))

    @classmethod
    def setup(cls, wanted: dict[str, Any], err_func: Failed = None) -> None:
        made = cls(wanted["nqn"], "any")
        for name, value in wanted["attr"].items():
            made.set_attr("attr", name, value)
        for one in wanted["namespaces"]:
            Namespace.setup(made, one, err_func)

    def delete(self) -> None:
        for one in self.namespaces:
            one.delete()
        super().delete()


class Namespace(_Node):
    """A device of a subsystem."""

    MAX_NSID = 8192

    def __init__(self, subsystem: Subsystem, nsid: int, mode: str = "lookup") -> None:
        self.subsystem, self.nsid = subsystem, int(nsid)
        super().__init__(Path(subsystem.path) / "namespaces" / str(nsid), mode)

    @classmethod
    def setup(cls, subsystem: Subsystem, wanted: dict[str, Any],
              err_func: Failed = None) -> None:
        made = cls(subsystem, wanted["nsid"], "any")
        for name, value in wanted["device"].items():
            made.set_attr("device", name, value)
        (made._path / "enable").write_text(str(wanted["enable"]))

    def delete(self) -> None:
        (self._path / "enable").write_text("0")
        super().delete()


class Port(_Node):
    """An address that subsystems are exported at."""

    def __init__(self, portid: int | str, mode: str = "lookup") -> None:
        self.portid = int(portid)
        super().__init__(_ROOT / "ports" / str(portid), mode)

    @property
    def subsystems(self) -> list[str]:
        return os.listdir(self._path / "subsystems")

    @classmethod
    def setup(cls, wanted: dict[str, Any], err_func: Failed = None) -> None:
        made = cls(wanted["portid"], "any")
        for name, value in wanted["addr"].items():
            made.set_attr("addr", name, value)
        for nqn in wanted["subsystems"]:
            made.add_subsystem(nqn)

    def add_subsystem(self, nqn: str) -> None:
        (self._path / "subsystems" / nqn).symlink_to(_ROOT / "subsystems" / nqn)

    def remove_subsystem(self, nqn: str) -> None:
        (self._path / "subsystems" / nqn).unlink()

    def delete(self) -> None:
        for nqn in self.subsystems:
            self.remove_subsystem(nqn)
        super().delete()


class Host:
    """Cinder only names it."""


class Referral:
    """Cinder only names it."""


class ANAGroup:
    """Cinder only names it."""
