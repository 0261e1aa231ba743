# SPDX-License-Identifier: Apache-2.0
"""The kernels under which loads are recorded: User Mode Linux, or the emulated box."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from tests.box import Box
from tests.box import uml as um
from tests.box.kernels import default, select
from tests.box.machine import REPO, Disk, Machine


class Kernel(ABC):
    """A kernel to record under, and how its modules are built."""

    #: Name on the command line.
    name: str

    @abstractmethod
    def release(self) -> str:
        """Return the release."""

    @abstractmethod
    def make(self) -> list[str]:
        """Return the beginning of a make command that builds modules for this kernel."""

    @abstractmethod
    def machine(self, memory: str, disks: Sequence[Disk],
                kernel_args: Sequence[str] = ()) -> Machine:
        """Return the machine that boots it."""

    def module(self) -> Path:
        """Return the path of the target's module, which make builds."""
        return REPO / "build" / "module" / self.release() / "dm-vcache.ko"


class Uml(Kernel):
    """User Mode Linux: native speed, one processor."""

    name = "uml"

    def release(self) -> str:
        """Return the release."""
        return um.release(um.tree())

    def make(self) -> list[str]:
        """Return the beginning of a make command that builds modules for this kernel."""
        return ["make", "-C", str(um.tree()), "ARCH=um"]

    def module(self) -> Path:
        """Return the path of the target's module; build it if it is not up to date."""
        um.build_module()
        return super().module()

    def machine(self, memory: str, disks: Sequence[Disk],
                kernel_args: Sequence[str] = ()) -> Machine:
        """Return the machine that boots it."""
        return um.Uml(memory=memory, disks=disks, kernel_args=kernel_args)


class Emulated(Kernel):
    """The distribution's kernel in the emulated box, with two processors."""

    name = "box"

    def release(self) -> str:
        """Return the release."""
        return select(default())

    def make(self) -> list[str]:
        """Return the beginning of a make command that builds modules for this kernel."""
        return ["make", "-C", f"/lib/modules/{self.release()}/build"]

    def machine(self, memory: str, disks: Sequence[Disk],
                kernel_args: Sequence[str] = ()) -> Machine:
        """Return the machine that boots it."""
        return Box(memory=memory, disks=disks, kernel_args=kernel_args)


#: All of them, by name.
KERNELS: dict[str, Kernel] = {kernel.name: kernel for kernel in (Uml(), Emulated())}
