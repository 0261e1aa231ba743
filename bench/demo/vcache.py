# SPDX-License-Identifier: Apache-2.0
"""The device under vcache, with the agent and the hook running, in the box.

The demo itself sets no tag, cgroup or extent: the agent does. What it
assigned is read back from the kernel.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.demo.settings import Settings
from bench.demo.vm import Instance
from tests.box import disks
from tests.box.inside import REPO, InsideError, load_module, run, stop
from tests.box.limits import Deadline
from tests.box.steps import at_end, step
from vcache_agent.model import DeviceNumber, Tag
from vcache_agent.netlink.client import Client

HOOK = REPO / "libvirt_hooks" / "qemu"
HOOK_CONFIGURATION = Path("/etc/vcache/hook.conf")
HOOK_SOCKET = Path("/run/vcache/hook.sock")
AGENT_LOG = Path("/var/log/vcache-agent.log")
STATE = Path("/var/lib/vcache")
CGROUPS = Path("/sys/fs/cgroup")
_NAME = "nova-instances"

# The hook reads its interpreter through 9p from a host that may be busy; the
# 1 s it has by default on a compute host is for a local disk.
_HOOK_SECONDS = 20
_AGENT_SECONDS = 90
_TAG_SECONDS = 60


class Mapped:
    """A mapped device of the target vcache."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.node = Path("/dev/mapper") / name
        number = self.node.stat().st_rdev
        self.number = DeviceNumber(os.major(number), os.minor(number))

    @property
    def table(self) -> str:
        """Table line, as dmsetup shows it."""
        return run("dmsetup", "table", self.name).strip()

    @property
    def status(self) -> str:
        """Status line, as dmsetup shows it."""
        return run("dmsetup", "status", self.name).strip()


def load(settings: Settings) -> None:
    """Load the module."""
    load_module(f"buffer_mb={settings.buffer_mb}")


@contextlib.contextmanager
def mapped(origin: Path) -> Iterator[Mapped]:
    """Map `origin` by vcache in filesystem mode."""
    sectors = run("blockdev", "--getsz", str(origin)).strip()
    table = f"0 {sectors} vcache flush-only {origin} filesystem"
    with disks.mapped(_NAME, table):
        disks.settle()
        yield Mapped(_NAME)


def _agent_failed(text: str) -> InsideError:
    log = AGENT_LOG.read_text(errors="replace")[-3000:] if AGENT_LOG.exists() else ""
    return InsideError(f"the agent {text}\nend of its log:\n{log}")


class Agent:
    """The running agent."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def check(self) -> None:
        """Raise InsideError if it has ended."""
        status = self.process.poll()
        if status is None:
            return
        how = f"with status {status}" if status >= 0 else f"by {signal.Signals(-status).name}"
        raise _agent_failed(f"has ended {how}")


@contextlib.contextmanager
def agent() -> Iterator[Agent]:
    """Run the host agent, ready for the hook."""
    # systemd makes these for the unit.
    for folder in (HOOK_CONFIGURATION.parent, HOOK_SOCKET.parent, STATE):
        folder.mkdir(parents=True, exist_ok=True)
    # An agent that was killed leaves it; it would be taken for the new one's.
    HOOK_SOCKET.unlink(missing_ok=True)
    HOOK_CONFIGURATION.write_text(f"timeout = {_HOOK_SECONDS}\n")
    with open(AGENT_LOG, "wb") as log:
        process = subprocess.Popen(["vcache-agent"], stdin=subprocess.DEVNULL, stdout=log,
                                   stderr=log)
    running = Agent(process)
    with at_end(stop, process, "vcache-agent"):
        with step("starting the agent"):
            deadline = Deadline(_AGENT_SECONDS)
            while not HOOK_SOCKET.exists():
                running.check()
                if deadline.passed():
                    raise _agent_failed(f"made no {HOOK_SOCKET} within {deadline.seconds:.0f} s")
                time.sleep(0.2)
        yield running
        running.check()


def _cgroup_paths() -> dict[int, Path]:
    """Return all cgroups by id (the inode of their directory)."""
    found = {}
    for folder, _, _ in os.walk(CGROUPS):
        with contextlib.suppress(FileNotFoundError):
            found[os.stat(folder).st_ino] = Path(folder).relative_to(CGROUPS)
    return found


def _is_of(path: Path, vm: Instance) -> bool:
    # With systemd "-" is written \x2d in the name of a scope.
    return vm.name in str(path).replace("\\x2d", "-")


def _describe(tag: Tag, role: str, paths: list[Path]) -> dict[str, Any]:
    fields = asdict(tag)
    return {**fields, "device": str(tag.device), "cgroups": sorted(tag.cgroups),
            "mode": tag.mode.name.lower().replace("_", "-"), "role": role,
            "cgroup_paths": [str(path) for path in paths]}


def tags(device: Mapped, vms: Sequence[Instance]) -> list[dict[str, Any]]:
    """Return the kernel's tags of the instances, found by their cgroups."""
    with Client() as client:
        found = client.tags(device.number)
    by_id = _cgroup_paths()
    described = []
    for tag in found:
        paths = [by_id[number] for number in sorted(tag.cgroups) if number in by_id]
        for vm in vms:
            if any(_is_of(path, vm) for path in paths):
                described.append(_describe(tag, vm.role, paths))
    return described


def _as_asked(tag: dict[str, Any], vm: Instance) -> bool:
    """Tell whether a tag has what the instance's flavor says."""
    return (tag["mode"], str(tag["weight"])) == (vm.extra_specs["vcache:mode"],
                                                 vm.extra_specs["vcache:weight"])


def wait_for_tags(device: Mapped, vms: Sequence[Instance], sectors: int, *,
                  tagged: bool, agent: Agent) -> list[dict[str, Any]]:
    """Wait until the agent has given each instance what its flavor asks for.

    A tag that covers its disk, with the mode and the weight of the flavor.

    :param sectors: size of an instance's disk
    :param tagged: wait also until the agent has found out that the device understands tags
    :param agent: the agent that does it
    :raises InsideError: if an instance has none in time, or the agent has ended
    """
    deadline = Deadline(_TAG_SECONDS)
    while True:
        agent.check()
        found = tags(device, vms)
        missing = [vm for vm in vms if not any(
            tag["role"] == vm.role and tag["extents_sectors"] >= sectors and _as_asked(tag, vm)
            for tag in found)]
        unused = tagged and device.status.split()[5] != "tagged"
        if not missing and not unused:
            return found
        if deadline.passed():
            names = ", ".join(f"{vm.role} ({vm.name})" for vm in missing)
            raise _agent_failed(
                f"assigned no tag that covers its disk, as its flavor asks, to: {names}" if missing
                else f"does not use the device's tags: {device.status}")
        time.sleep(0.5)
