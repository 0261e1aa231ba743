# SPDX-License-Identifier: Apache-2.0
"""Run a command in User Mode Linux, a kernel that runs as a process, on this root file system.

It runs at native speed, with one processor. There is no PCI, KVM or udev. Otherwise
the command has the same environment as in the box.
"""

import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from tests.box.machine import REPO, BoxError, Machine

INIT = Path(__file__).with_name("uml-init.sh")

# Folders with a copy-on-write view, the same as in box.py.
_OVERLAYS = ("/etc", "/home", "/opt", "/root", "/srv", "/usr", "/var", "/tmp")  # noqa: S108

# Limit of the driver: ubda to ubdp.
_MOST_DISKS = 16

_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}

# The boot takes two seconds on an idle machine. A box that takes longer than a fifteenth of this
# limit gets more time for its command, see machine.py.
_BOOT_SECONDS = 60


class NoSpace(BoxError):
    """No folder has enough space for the machine's memory."""


@functools.cache
def tree(debug: bool = False, storage: bool = False) -> Path:
    """Return the kernel's folder. Build the kernel first if it is not in the cache.

    :param debug: the kernel that looks for our mistakes
    :param storage: the kernel with targets of iSCSI and NVMe/TCP
    :raises BoxError: if it cannot be built
    """
    options = ["--debug"] * debug + ["--storage"] * storage
    done = subprocess.run([REPO / ".ci" / "uml-kernel", *options],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                          check=False)
    if done.returncode:
        raise BoxError(f"uml: there is no kernel: .ci/uml-kernel: exit status {done.returncode}")
    return Path(done.stdout.strip())


def build_module(debug: bool = False, storage: bool = False) -> None:
    """Build dm-vcache.ko for User Mode Linux, and the kernel, if they are not up to date.

    :param debug: for the kernel that looks for our mistakes
    :param storage: for the kernel with targets of iSCSI and NVMe/TCP
    """
    target = "module-uml-debug" if debug else "module-uml-storage" if storage else "module-uml"
    subprocess.run(["make", "-s", target], cwd=REPO, stdin=subprocess.DEVNULL, check=True)


def release(folder: Path) -> str:
    """Return the release of the kernel in a folder."""
    return (folder / "include" / "config" / "kernel.release").read_text().strip()


def bytes_of(memory: str) -> int:
    """Return a size in bytes. The syntax is QEMU's: a number without a unit is in MiB."""
    unit = _UNITS.get(memory[-1:].upper())
    return int(memory[:-1]) * unit if unit else int(memory) << 20


def memory_folder(size: int, candidates: Sequence[Path] | None = None) -> Path:
    """Return a folder for the memory file, which the kernel maps and unlinks at its start.

    :param size: size of the memory in bytes
    :param candidates: folders in order of preference; default: /dev/shm, then the folder for
        temporary files
    :raises NoSpace: if no folder has enough space
    """
    if candidates is None:
        candidates = [Path("/dev/shm"), Path(tempfile.gettempdir())]  # noqa: S108
    seen = []
    for folder in candidates:
        try:
            system = os.statvfs(folder)
        except OSError as error:
            seen.append(f"{folder}: {error.strerror}")
            continue
        free = system.f_bavail * system.f_frsize
        if system.f_flag & os.ST_NOEXEC:
            seen.append(f"{folder}: mounted noexec")
        elif not os.access(folder, os.W_OK):
            seen.append(f"{folder}: not writable")
        elif free < size:
            seen.append(f"{folder}: {free >> 20} MiB free")
        else:
            return folder
    raise NoSpace(f"uml: no folder for {size >> 20} MiB of memory (set TMPDIR): "
                  + ", ".join(seen))


@dataclass
class Uml(Machine):
    """A configuration of User Mode Linux. Each :meth:`run` boots it.

    It has two parameters more than :class:`Machine`.

    :param debug: boot the kernel that looks for our mistakes
    :param storage: boot the kernel with targets of iSCSI and NVMe/TCP
    """

    debug: bool = False
    storage: bool = False

    def select(self) -> str:
        """Return the release of the kernel to boot."""
        return release(tree(self.debug, self.storage))

    def _boot_seconds(self, release: str) -> float:
        return _BOOT_SECONDS

    def _environment(self) -> Mapping[str, str]:
        # Without udev, device mapper's library creates the nodes of /dev/mapper itself.
        return {"DM_DISABLE_UDEV": "1"}

    def _write_state(self, state: Path, command: Sequence[str]) -> None:
        super()._write_state(state, command)
        if len(self.disks) > _MOST_DISKS:
            raise ValueError(f"uml: {len(self.disks)} disks, there can be {_MOST_DISKS}")
        overlays = list(_OVERLAYS)
        if not any(self.cwd.is_relative_to(folder) for folder in overlays):
            overlays.append(str(self.cwd))
        io = state / "io"
        shutil.copy(INIT, io / "init.sh")
        (io / "overlays").write_text("".join(f"{folder}\n" for folder in overlays))
        modules = tree(self.debug, self.storage) / "modules" / "lib" / "modules"
        (io / "modules").write_text(f"{modules}\n")
        (io / "disks").write_text("".join(
            f"ubd{chr(ord('a') + number)} {disk.name}\n"
            for number, disk in enumerate(self.disks)))
        for number, disk in enumerate(self.disks):
            # The driver splits its argument at commas, so the argument is not the path.
            (state / f"disk{number}").symlink_to(disk.path.resolve())

    def _command_line(self, state: Path, stdout: int, stderr: int) -> list[str]:
        """Return the command line. The working folder is the folder of the run."""
        line = [
            str(tree(self.debug, self.storage) / "linux"), f"mem={self.memory}",
            f"uml_dir={state}", "umid=uml",
            "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro",
            # Connect lines to descriptors: the console, the command's output and its errors.
            "con=null", "con0=null,fd:1", "ssl=null", f"ssl0=null,fd:{stdout}",
            f"ssl1=null,fd:{stderr}",
            # The same as for the box: print warnings, and stop at the first fault.
            "quiet", "loglevel=5", "panic=-1", "oops=panic"]
        for number, disk in enumerate(self.disks):
            # d: do not look for the header of a copy-on-write file in the image. c: do not lock it.
            flags = ("r" if disk.readonly else "") + "d" + ("c" if disk.shared else "")
            line.append(f"ubd{number}{flags}=disk{number}")
        if self.debug:
            # Report every bad access, not only the first one.
            line.append("kasan_multi_shot")
        return [*line, *self.kernel_args, "init=/bin/sh", "--", f"{state}/io/init.sh",
                f"{state}/io"]

    def _start(self, release: str, state: Path, log: BinaryIO, stdout: int,
               stderr: int) -> subprocess.Popen[bytes]:
        folder = memory_folder(bytes_of(self.memory))
        return subprocess.Popen(
            self._command_line(state, stdout, stderr), stdin=subprocess.DEVNULL, stdout=log,
            stderr=log, pass_fds=(stdout, stderr), cwd=state, start_new_session=True,
            env={**os.environ, "TMPDIR": str(folder)})
