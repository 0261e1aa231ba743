# SPDX-License-Identifier: Apache-2.0
"""An instance of the churn: its domain, the layers of its disk, and what these contain."""

import dataclasses
import itertools
import random
from pathlib import Path

from tests.host import lab
from tests.host.lab import Vm

MIB = 1 << 20
_IMAGE_MIB = 12
# The unit of writes.
SLOT = 64 << 10
FLAVOR_WEIGHT = 250


@dataclasses.dataclass
class Disk:
    """A disk and its content.

    :param own: its own layers, the active one last
    :param base: its shared base; None: it has none
    :param patterns: the pattern of each slot that was written durably
    """

    target: str
    own: list[Path]
    base: Path | None = None
    patterns: dict[int, int] = dataclasses.field(default_factory=dict)
    mebibytes: int = _IMAGE_MIB

    def regions(self) -> dict[str, int]:
        """Return the patterns by region, for :func:`tests.host.lab.contents`."""
        found = {}
        runs = itertools.groupby(range(self.mebibytes * MIB // SLOT),
                                 lambda slot: self.patterns.get(slot, 0))
        for pattern, slots in runs:
            run = list(slots)
            found[f"{run[0] * SLOT} {len(run) * SLOT}"] = pattern
        return found


class Instance:
    """One generation of an instance: a domain and its disks.

    :param folder: for its images
    :param base: raw base image; None: its disk is a raw image
    """

    def __init__(self, name: str, folder: Path, base: Path | None) -> None:
        self.folder = folder
        self.running = False
        folder.mkdir()
        path = folder / "disk"
        if base is None:
            lab.image(path, _IMAGE_MIB, written=False)
        else:
            lab.overlay(path, base)
        self._count = itertools.count(1)
        self.vm = Vm(name, [path], {"mode": "writeback", "weight": str(FLAVOR_WEIGHT)})
        self.vm.formats[path] = "qcow2" if base else "raw"
        self.disks = {"sda": Disk("sda", [path], base)}
        # The weights that a tag may have; they belong to the target, whatever its disk is.
        self.weights = {"sda": {FLAVOR_WEIGHT}, "sdb": {FLAVOR_WEIGHT}}

    def new_path(self) -> Path:
        """Return the path of a new image."""
        return self.folder / f"image{next(self._count)}"

    def write(self, choose: random.Random, disk: Disk) -> None:
        """Write something durably."""
        first = choose.randrange(disk.mebibytes * MIB // SLOT)
        count = min(choose.choice((1, 1, 2, 8)), disk.mebibytes * MIB // SLOT - first)
        pattern = choose.randrange(1, 256)
        self.vm.io(f"write -P {pattern:#x} {first * SLOT} {count * SLOT}", disk.target)
        self.vm.io("flush", disk.target)
        disk.patterns.update(dict.fromkeys(range(first, first + count), pattern))

    def verify(self) -> None:
        """Check the content of all disks."""
        for disk in self.disks.values():
            if self.running:
                self.vm.io("flush", disk.target)
            lab.contents(disk.own[-1], self.vm.format_of(disk.own[-1]), disk.regions())

    def set_active(self, disk: Disk, path: Path, image_format: str) -> None:
        """Record the active layer of a disk."""
        self.vm.disks[list(self.disks).index(disk.target)] = path
        self.vm.formats[path] = image_format

    def end(self) -> None:
        """Delete it, as Nova does."""
        self.running = False
        self.vm.end()
        lab.run("rm", "-r", str(self.folder))
