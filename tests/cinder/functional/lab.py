# SPDX-License-Identifier: Apache-2.0
"""A storage node: a volume group, a pool, the agent, and the content of volumes."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from tests.box import inside
from tests.box.inside import run
from tests.box.limits import Deadline, limit
from tests.box.steps import at_end
from vcache_agent.admin_client import AdminError, ask

GROUP, GROUP2, POOL = "cinder-volumes", "other-volumes", "fast"
DISKS = Path("/dev/disk/by-id")
ADMIN, VOLUMES = Path("/run/vcache/admin.sock"), Path("/run/vcache/volumes.sock")
CONF, LOG = Path("/etc/vcache/vcache-agent.conf"), Path("/var/log/vcache-agent.log")
LVM_CONF = """
devices {
    scan_lvs = 0
    filter = [ "a|^/dev/ubd|", "r|.*|" ]
    use_devicesfile = 0
}
activation { udev_sync = 0 udev_rules = 0 monitoring = 0 }
global { event_activation = 0 }
backup { backup = 0 archive = 0 }
"""
MIB = 1 << 20
PATIENCE = 120.0

T = TypeVar("T")


def eventually(probe: Callable[[], T | None], what: str) -> T:
    """Return the first true value of a probe."""
    deadline = Deadline(PATIENCE)
    while not (value := probe()):
        assert not deadline.passed(), f"not within {deadline}: {what}\n{log()}"
        time.sleep(0.1)
    return value


def log() -> str:
    """Return the end of the agent's log."""
    return LOG.read_text(errors="replace")[-3000:] if LOG.exists() else ""


class Agent:
    """The real agent, as a process."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with open(LOG, "ab") as output:
            self._process = subprocess.Popen(["vcache-agent", "--debug"], stdout=output,
                                             stderr=output, stdin=subprocess.DEVNULL)
        eventually(self._answers, "the agent answers")

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, log()
        try:
            return not ask(ADMIN, {"op": "state"})["agent"]["problem"]
        except AdminError:
            return False

    def kill(self) -> None:
        """Kill it."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """Stop it as systemd does."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait(limit(PATIENCE))


def volumes() -> dict[str, dict[str, Any]]:
    """Return what the agent has of volumes, by their id."""
    return {row["id"]: row for row in ask(VOLUMES, {"op": "volume-list"})["volumes"]}


def disks() -> dict[str, dict[str, Any]]:
    """Return the agent's view of volumes as owners, by their id."""
    return {row["uuid"]: row for row in ask(ADMIN, {"op": "state"})["disks"]}


def table(name: str, group: str = GROUP) -> str:
    """Return the target of a logical volume's table."""
    escaped = f"{group.replace('-', '--')}-{name.replace('-', '--')}"
    return run("dmsetup", "table", escaped).split()[2]


def mapped() -> set[str]:
    """Return the names of all mapped devices."""
    return {line.split()[0] for line in run("dmsetup", "ls").splitlines() if "(" in line}


def write(path: str, offset: int, data: bytes) -> None:
    """Write to a device, and flush it."""
    fd = os.open(path, os.O_WRONLY)
    try:
        os.pwrite(fd, data, offset)
        os.fsync(fd)
    finally:
        os.close(fd)


def read(path: str, offset: int, size: int) -> bytes:
    """Read from a device, not from the page cache."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        return os.pread(fd, size, offset)
    finally:
        os.close(fd)


def size(path: str) -> int:
    """Return the size of a device in bytes."""
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.lseek(fd, 0, os.SEEK_END)
    finally:
        os.close(fd)


def written(name: str) -> int:
    """Return how many bytes were written to a logical volume through its path."""
    number = os.stat(f"/dev/{GROUP}/{name}").st_rdev
    stat = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}/stat")
    return int(stat.read_text().split()[6]) * 512


def power_cut(agent: Agent, forget: Callable[[], object] = lambda: None) -> None:
    """Leave what a power cut leaves: LVM's and the pool's devices, and no mapped device.

    Then LVM activates what it activates when the host starts. The agent does not run.

    :param forget: removes what has mapped devices open
    """
    agent.kill()
    forget()
    left = mapped()
    while left:
        # A device that another one uses is removed in a later round.
        for name in sorted(left):
            with contextlib.suppress(inside.InsideError):
                run("dmsetup", "remove", name)
        before, left = left, mapped()
        assert left < before, f"still in use: {left}"
    run("vcache", "pool", "create", POOL, str((DISKS / "virtio-cache").resolve()))
    for group in (GROUP, GROUP2):
        run("vgchange", "-aay", group)


def clear() -> None:
    """Remove what a test that failed has left, so that the next one has what it expects."""
    for name in volumes():
        with contextlib.suppress(AdminError):
            ask(VOLUMES, {"op": "volume-delete", "id": name}, limit(PATIENCE))
    for group in (GROUP, GROUP2):
        with contextlib.suppress(inside.InsideError):
            run("lvremove", "-qq", "-f", group)


@contextlib.contextmanager
def node() -> Iterator[Agent]:
    """Prepare the storage node."""
    inside.load_module("buffer_mb=64")
    Path("/etc/lvm").mkdir(exist_ok=True)
    Path("/etc/lvm/lvm.conf").write_text(LVM_CONF)
    for name, group in (("group", GROUP), ("group2", GROUP2)):
        device = str((DISKS / f"virtio-{name}").resolve())
        run("pvcreate", "-qq", "-f", device)
        run("vgcreate", "-qq", group, device)
    run("vcache", "pool", "create", POOL, str((DISKS / "virtio-cache").resolve()))
    CONF.parent.mkdir(parents=True, exist_ok=True)
    CONF.write_text("[agent]\nrefresh_interval = 1\nlocate_timeout = 5\n"
                    "[volumes]\ngroup = root\n[metrics]\nlisten =\n")
    agent = Agent()
    agent.start()
    with at_end(agent.stop):
        yield agent
