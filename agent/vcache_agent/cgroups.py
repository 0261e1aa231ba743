# SPDX-License-Identifier: Apache-2.0
"""Find the cgroup of a running domain, without a call to libvirt."""

import dataclasses
import functools
import os
import re
from pathlib import Path

# The directory of a domain: machine-qemu\x2d1\x2dNAME.scope with systemd's machined, or
# qemu-1-NAME.libvirt-qemu without it.
_MACHINE = re.compile(r"machine-qemu\\x2d.+\.scope|qemu-.+\.libvirt-qemu")

_PID_BYTES = 32
_CGROUP_BYTES = 64 << 10


@dataclasses.dataclass(frozen=True)
class Cgroup:
    """A cgroup v2.

    :param id: the kernel's cgroup id, which is the inode number of its directory
    :param path: its directory, relative to the mount point
    """

    id: int
    path: str


class CgroupError(Exception):
    """The cgroup of a domain cannot be found."""


def mount_point(mounts: Path = Path("/proc/self/mounts")) -> Path:
    """Return the mount point of the cgroup v2 hierarchy.

    :raises CgroupError: if it is not mounted
    """
    for line in mounts.read_text(errors="surrogateescape").splitlines():
        fields = line.split()
        if len(fields) > 2 and fields[2] == "cgroup2":
            return Path(fields[1])
    raise CgroupError("no cgroup v2 hierarchy is mounted")


@functools.cache
def root() -> Path:
    """Return :func:`mount_point`. It is mounted once, at the boot of the host."""
    return mount_point()


def of_domain(name: str, run_dir: Path, proc: Path = Path("/proc"),
              mount: Path | None = None) -> Cgroup:
    """Return the cgroup of a running domain.

    :param name: the domain's name
    :param run_dir: directory of libvirt's PID files, NAME.pid
    :param proc: path of /proc
    :param mount: mount point of cgroup v2; None: as in /proc/self/mounts
    :raises CgroupError: if QEMU does not run, or is not in a cgroup of a domain
    """
    pid_file = f"{run_dir}/{name}.pid"
    try:
        status = os.stat(pid_file)
        path = _path_of(pid_file, str(proc), status.st_ino, status.st_mtime_ns)
    except ValueError:
        raise CgroupError(f"{pid_file}: invalid PID") from None
    except OSError as error:
        raise CgroupError(f"domain {name}: {error.filename}: {error.strerror}") from None
    except CgroupError as error:
        raise CgroupError(f"domain {name}: {error}") from None
    directory = f"{mount or root()}/{path}"
    try:
        return Cgroup(os.stat(directory).st_ino, f"/{path}")
    except OSError as error:
        _path_of.cache_clear()
        raise CgroupError(f"domain {name}: {directory}: {error.strerror}") from None


# libvirt writes a new PID file at each start of a domain, and QEMU stays in its cgroup. A pass
# needs the cgroups of all domains, so it should not open two files for each.
@functools.lru_cache(maxsize=4096)
def _path_of(pid_file: str, proc: str, _inode: int, _mtime: int) -> str:
    """Return the path of the cgroup of the process in a PID file."""
    pid = int(_read(pid_file, _PID_BYTES))
    path = _machine_path(os.fsdecode(_read(f"{proc}/{pid}/cgroup", _CGROUP_BYTES)))
    if path is None:
        raise CgroupError(f"process {pid} is not in a cgroup of a domain")
    return path


def _read(path: str, most: int) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, most)
    except OSError as error:
        error.filename = path
        raise
    finally:
        os.close(fd)


def _machine_path(text: str) -> str | None:
    """Return the domain's part of the cgroup v2 line of /proc/PID/cgroup."""
    for line in text.splitlines():
        if not line.startswith("0::/"):
            continue
        parts = line[len("0::/"):].split("/")
        for number, part in enumerate(parts, 1):
            # A stale PID file could contain the PID of another process.
            if _MACHINE.fullmatch(part) and ".." not in parts:
                return "/".join(parts[:number])
    return None
