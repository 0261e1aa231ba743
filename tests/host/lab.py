# SPDX-License-Identifier: Apache-2.0
"""Helpers of the tests in this folder: devices, domains, the agent.

The domains are started paused and do not boot. Their QEMU is real and has its disks open
in its own cgroup. Its monitor command ``qemu-io`` reads, writes and flushes like a
guest. In make demo, guests do the I/O.
"""

import contextlib
import dataclasses
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from xml.sax.saxutils import escape, quoteattr

import libvirt
import libvirt_qemu  # type: ignore[import-untyped]

from tests.box import disks
from tests.box.inside import InsideError, domain_type, run
from tests.box.limits import Deadline, limit
from tests.box.steps import at_end, describe
from vcache_agent import fiemap
from vcache_agent.admin_client import AdminError, ask
from vcache_agent.model import DeviceNumber, Tag
from vcache_agent.netlink.client import Client
from vcache_agent.packed_extents import PackedExtents

REPO = Path(__file__).resolve().parents[2]
HOOK = REPO / "libvirt_hooks" / "qemu"
HOOK_CONF = Path("/etc/vcache/hook.conf")
HOOK_SOCKET = Path("/run/vcache/hook.sock")
ADMIN_SOCKET = Path("/run/vcache/admin.sock")
AGENT_CONF = Path("/etc/vcache/vcache-agent.conf")
AGENT_LOG = Path("/var/log/vcache-agent.log")
NOVA = "http://openstack.org/xmlns/libvirt/nova/1.1"

# In the emulated box, everything takes about ten times longer than on a compute host.
PATIENCE = 240.0
HOOK_PATIENCE = 30.0

# Seconds after which a stopped instance gives up its cache.
SWAP_AFTER = 2.0

T = TypeVar("T")


def eventually(probe: Callable[[], T | None], what: str, seconds: float = PATIENCE) -> T:
    """Return the first true value of a probe.

    :param what: what is waited for, in the message if it does not come
    :param seconds: time limit; limits.py adapts it to the machine
    """
    deadline = Deadline(seconds)
    while True:
        value = probe()
        if value:
            return value
        if deadline.passed():
            log = AGENT_LOG.read_text(errors="replace")[-3000:] if AGENT_LOG.exists() else ""
            raise AssertionError(f"not within {deadline}: {what}; last: {value!r}\n{log}")
        time.sleep(0.2)


def number_of(node: Path) -> DeviceNumber:
    """Return the number of a block device."""
    status = node.stat()
    return DeviceNumber(os.major(status.st_rdev), os.minor(status.st_rdev))


@contextlib.contextmanager
def mapped(name: str, origin: Path, mode: str, sectors: int | None = None) -> Iterator[Path]:
    """Map a device with vcache; `mode` is the end of the table.

    :param sectors: size of the device; None: that of the origin
    """
    sectors = sectors or int(run("blockdev", "--getsz", str(origin)))
    with disks.mapped(name, f"0 {sectors} vcache flush-only {origin} {mode}") as path:
        run("dmsetup", "mknodes", name)
        yield Path(path)


@contextlib.contextmanager
def mounted(device: Path, folder: Path, filesystem: str = "ext4") -> Iterator[Path]:
    """Create a file system and mount it."""
    run(f"mkfs.{filesystem}", "-q", str(device))
    folder.mkdir(parents=True, exist_ok=True)
    run("mount", str(device), str(folder))
    with at_end(run, "umount", str(folder)):
        yield folder


def image(path: Path, mebibytes: int, written: bool = True) -> Path:
    """Create a raw image, written or sparse."""
    if written:
        run("dd", "if=/dev/zero", f"of={path}", "bs=1M", f"count={mebibytes}",
            "oflag=direct", "conv=fsync")
    else:
        with open(path, "wb") as file:
            file.truncate(mebibytes << 20)
    return path


def overlay(path: Path, base: Path) -> Path:
    """Create a qcow2 image over a raw one, as Nova does."""
    run("qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", str(base), str(path))
    return path


def contents(path: Path, image_format: str, regions: Mapping[str, int]) -> None:
    """Check what the guest would read from an image.

    :param regions: the pattern of each region; a region is offset and length for qemu-io
    """
    commands = [argument for region, pattern in regions.items()
                for argument in ("-c", f"read -P {pattern:#x} {region}")]
    run("qemu-io", "-U", "-r", "-n", "-f", image_format, *commands, str(path))


def extent_sectors(path: Path) -> int:
    """Return the sectors of a file that its domain's tag must have."""
    fd = os.open(path, os.O_RDONLY)
    try:
        return PackedExtents(fiemap.read(fd)[0]).sectors
    finally:
        os.close(fd)


def tags(device: DeviceNumber) -> dict[int, Tag]:
    """Return the kernel's tags of a device without the host tag, by number."""
    with Client() as client:
        return {tag.id: tag for tag in client.tags(device) if tag.id}


# Runs the hook and records its duration, with little overhead.
_TIMED_HOOK = """#!/bin/sh
read -r began rest < /proc/uptime
{hook} "$@"
status=$?
read -r ended rest < /proc/uptime
echo "$1 $2 $began $ended $status" >> {log}
exit $status
"""
_HOOK_LOG = Path("/run/hook.log")


@dataclasses.dataclass(frozen=True)
class HookRun:
    """One call of the hook by libvirt."""

    domain: str
    operation: str
    seconds: float
    status: int


def timed_hook() -> Path:
    """Create the hook for libvirt: the real one, timed."""
    path = Path("/run/50-vcache")
    path.write_text(_TIMED_HOOK.format(hook=HOOK, log=_HOOK_LOG))
    path.chmod(0o755)
    return path


def hook_runs(domain: str) -> list[HookRun]:
    """Return the hook calls of libvirt for a domain, and the duration of each."""
    found = []
    for line in _HOOK_LOG.read_text().splitlines() if _HOOK_LOG.exists() else ():
        name, operation, began, ended, status = line.split()
        if name == domain:
            found.append(HookRun(name, operation, float(ended) - float(began), int(status)))
    return found


def set_hook(**options: object) -> None:
    """Write the hook's configuration."""
    HOOK_CONF.parent.mkdir(parents=True, exist_ok=True)
    HOOK_CONF.write_text("".join(f"{key} = {value}\n" for key, value in options.items()))


def set_agent(swap_after: float = SWAP_AFTER, swap_mb: int = 0) -> None:
    """Write the agent's configuration.

    :param swap_after: option of the agent
    :param swap_mb: option of the agent
    """
    # In the emulated box, look-ups take longer than on a compute host. Changes of a domain must be
    # found by themselves, not by a listing.
    AGENT_CONF.write_text(f"[agent]\nrefresh_interval = 1\nswap_after = {swap_after}\n"
                          f"swap_mb = {swap_mb}\n"
                          "locate_timeout = 5\nprepare_timeout = 10\n"
                          "[libvirt]\nlist_interval = 3600\n")


class Agent:
    """The real agent, as a process."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers hooks."""
        self.spawn()
        eventually(self.answers, "the agent answers")

    def spawn(self) -> None:
        """Start it, and do not wait."""
        with open(AGENT_LOG, "ab") as log:
            self._process = subprocess.Popen(["vcache-agent", "--debug"], stdin=subprocess.DEVNULL,
                                             stdout=log, stderr=log)

    def answers(self) -> bool:
        """Return whether it answers."""
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError(f"the agent ended: {AGENT_LOG.read_text()[-3000:]}")
        try:
            return bool(ask(ADMIN_SOCKET, {"op": "state"}))
        except AdminError:
            return False

    def signal(self, number: int) -> None:
        """Send a signal; after a SIGKILL, wait until the process is gone."""
        assert self._process is not None
        self._process.send_signal(number)
        if number == signal.SIGKILL:
            self._process.wait()

    def kill(self) -> None:
        """Kill it."""
        self.signal(signal.SIGKILL)

    def stop(self) -> int:
        """Stop it as systemd does; return its status."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
        try:
            return self._process.wait(limit(PATIENCE))
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise AssertionError(f"the agent did not end on SIGTERM; end of its log:\n"
                                 f"{self.log()[-3000:]}") from None

    def configure(self, swap_after: float = SWAP_AFTER, swap_mb: int = 0) -> None:
        """Stop it, and change its configuration for the next start."""
        if self.runs:
            assert self.stop() == 0
        set_agent(swap_after, swap_mb)

    @property
    def runs(self) -> bool:
        """Return whether it is running."""
        return self._process is not None and self._process.poll() is None

    def wait_for(self, words: str, since: int) -> None:
        """Wait until its log contains some words, after a position."""
        eventually(lambda: words in self.log()[since:], f"{words!r} in the log")

    def log(self) -> str:
        """Return its log."""
        return AGENT_LOG.read_text(errors="replace")

    def reconcile(self) -> None:
        """Start a reconciliation, and wait for it."""
        ask(ADMIN_SOCKET, {"op": "reconcile"}, seconds=PATIENCE)

    def disks(self) -> dict[tuple[str, str], dict[str, Any]]:
        """Return its view of disks, by domain and target."""
        state = ask(ADMIN_SOCKET, {"op": "state"}, seconds=PATIENCE)
        return {(disk["domain"], disk["disk"]): disk for disk in state["disks"]}

    def orphans(self) -> list[dict[str, Any]]:
        """Return its view of tags without a domain."""
        return list(ask(ADMIN_SOCKET, {"op": "state"}, seconds=PATIENCE)["orphans"])


def cli(*arguments: str, status: int = 0) -> str:
    """Run the command vcache; return its output."""
    try:
        done = subprocess.run(["vcache", *arguments], capture_output=True, text=True, check=False,
                              timeout=limit(PATIENCE))
    except subprocess.TimeoutExpired as error:
        raise AssertionError(describe(error)) from None
    assert done.returncode == status, f"{arguments}: {done.returncode}: {done.stderr}"
    return done.stdout if status == 0 else done.stderr


class Vm:
    """A libvirt domain with Nova's metadata.

    :param name: name of the domain
    :param disks: paths of images or block devices, as sda, sdb, ...
    :param specs: extra specs of its flavor, without ``vcache:``
    :param shared: the disks may be used by several domains
    :param format: format of the disks
    """

    def __init__(self, name: str, disks: Sequence[Path], specs: Mapping[str, str],
                 shared: bool = False, format: str = "raw") -> None:  # noqa: A002
        self.name = name
        self.uuid = str(uuid.uuid5(uuid.NAMESPACE_URL, name))
        self.disks = list(disks)
        self.specs = dict(specs)
        self.shared = shared
        self.format = format
        self.formats: dict[Path, str] = {}

    def format_of(self, path: Path) -> str:
        """Return the format of a disk: that in `formats`, else that of all disks."""
        return self.formats.get(path, self.format)

    def disk_xml(self, path: Path, target: str) -> str:
        """Return a <disk> element."""
        kind, attribute = ("block", "dev") if path.is_block_device() else ("file", "file")
        shareable = "<shareable/>" if self.shared else ""
        return (f'<disk type="{kind}" device="disk">'
                f'<driver name="qemu" type="{self.format_of(path)}" cache="none"/>'
                f'<source {attribute}={quoteattr(str(path))}/>'
                # SCSI: the guest need not agree to the removal.
                f'<target dev="{target}" bus="scsi"/>{shareable}</disk>')

    def xml(self) -> str:
        """Return the domain's XML."""
        specs = "".join(
            f'<nova:extraSpec name={quoteattr(f"vcache:{key}")}>{escape(value)}</nova:extraSpec>'
            for key, value in self.specs.items())
        disks = "".join(self.disk_xml(path, f"sd{chr(97 + number)}")
                        for number, path in enumerate(self.disks))
        return f"""<domain type="{domain_type()}">
  <uuid>{self.uuid}</uuid><name>{self.name}</name><memory unit="MiB">64</memory><vcpu>1</vcpu>
  <metadata><nova:instance xmlns:nova="{NOVA}"><nova:name>{self.name}</nova:name>
    <nova:flavor name="test" id="1"><nova:memory>64</nova:memory>
      <nova:extraSpecs>{specs}</nova:extraSpecs></nova:flavor></nova:instance></metadata>
  <os><type arch="x86_64" machine="pc">hvm</type></os>
  <features><acpi/></features>
  <devices>{disks}<controller type="scsi" model="virtio-scsi"/>
    <controller type="usb" index="0" model="none"/><memballoon model="none"/></devices>
</domain>"""

    def start(self) -> float:
        """Start it; return the duration in seconds."""
        with connection() as host:
            domain = host.defineXML(self.xml())
            began = time.monotonic()
            domain.createWithFlags(libvirt.VIR_DOMAIN_START_PAUSED)
            return time.monotonic() - began

    def destroy(self) -> None:
        """Stop it as Nova does."""
        with self._domain() as domain:
            domain.destroy()

    def resume(self) -> None:
        """Let its processors run."""
        with self._domain() as domain:
            domain.resume()

    def pause(self) -> None:
        """Stop its processors."""
        with self._domain() as domain:
            domain.suspend()

    def reset(self) -> None:
        """Reset it, as its guest does for a reboot."""
        with self._domain() as domain:
            domain.reset()

    def shut_down(self) -> None:
        """Let a guest of guest.py shut down, and wait for it."""
        with self._domain() as domain:
            def ended() -> bool:
                # It does not listen before it has booted.
                with contextlib.suppress(libvirt.libvirtError):
                    domain.shutdownFlags(libvirt.VIR_DOMAIN_SHUTDOWN_ACPI_POWER_BTN)
                return not domain.isActive()

            eventually(ended, f"{self.name} has shut down")

    def resize(self, target: str, mebibytes: int) -> None:
        """Change the size of a disk."""
        with self._domain() as domain:
            domain.blockResize(target, mebibytes << 20, libvirt.VIR_DOMAIN_BLOCK_RESIZE_BYTES)

    def undefine(self) -> None:
        """Undefine it in libvirt."""
        with self._domain() as domain:
            domain.undefine()

    def is_active(self) -> bool:
        """Return whether it is running."""
        with self._domain() as domain:
            return bool(domain.isActive())

    def attach(self, path: Path, target: str) -> None:
        """Attach a disk."""
        with self._domain() as domain:
            domain.attachDeviceFlags(self.disk_xml(path, target), libvirt.VIR_DOMAIN_AFFECT_LIVE)

    def detach(self, path: Path, target: str) -> None:
        """Detach a disk."""
        with self._domain() as domain:
            domain.detachDeviceFlags(self.disk_xml(path, target), libvirt.VIR_DOMAIN_AFFECT_LIVE)

    def has_disk(self, target: str) -> bool:
        """Return whether it has a disk."""
        with self._domain() as domain:
            return f'<target dev=\'{target}\'' in domain.XMLDesc()

    def snapshot(self, target: str, path: Path) -> None:
        """Take an external snapshot of one disk; its new active layer is a qcow2 image."""
        others = "".join(f'<disk name="sd{chr(97 + number)}" snapshot="no"/>'
                         for number in range(len(self.disks)) if f"sd{chr(97 + number)}" != target)
        with self._domain() as domain:
            domain.snapshotCreateXML(
                f'<domainsnapshot><disks><disk name="{target}" snapshot="external" type="file">'
                f'<driver type="qcow2"/><source file={quoteattr(str(path))}/></disk>{others}'
                "</disks></domainsnapshot>",
                libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_DISK_ONLY
                | libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_NO_METADATA)

    def commit(self, target: str, top: Path | None = None, base: Path | None = None) -> None:
        """Commit a layer, by default the active one, into one below it, and wait for it."""
        flags = 0 if top else libvirt.VIR_DOMAIN_BLOCK_COMMIT_ACTIVE
        with self._domain() as domain:
            domain.blockCommit(target, str(base) if base else None, str(top) if top else None,
                               0, flags)
            self._finish(domain, target, pivot=top is None)

    def pull(self, target: str) -> None:
        """Copy all of the backing layers into the active one."""
        with self._domain() as domain:
            domain.blockPull(target, 0, 0)
            self._finish(domain, target, pivot=False)

    def copy(self, target: str, xml: str, reuse: bool = False) -> None:
        """Copy a disk to another place and continue there.

        :param xml: <disk> element of the place
        :param reuse: the place exists
        """
        flags = libvirt.VIR_DOMAIN_BLOCK_COPY_TRANSIENT_JOB
        if reuse:
            flags |= libvirt.VIR_DOMAIN_BLOCK_COPY_REUSE_EXT
        with self._domain() as domain:
            domain.blockCopy(target, xml, flags=flags)
            self._finish(domain, target, pivot=True)

    def _finish(self, domain: Any, target: str, *, pivot: bool) -> None:
        """Wait for a block job; end one that has copied everything."""
        if pivot:
            def ready() -> bool:
                # libvirt may still report equal numbers before QEMU is ready.
                info = domain.blockJobInfo(target)
                assert info, f"the job of {target} has failed"
                return bool(info["cur"] == info["end"] > 0)

            eventually(ready, f"the job of {target} has copied everything")

            def pivoted() -> bool:
                try:
                    domain.blockJobAbort(target, libvirt.VIR_DOMAIN_BLOCK_JOB_ABORT_PIVOT)
                except libvirt.libvirtError as error:
                    if error.get_error_code() != libvirt.VIR_ERR_BLOCK_COPY_ACTIVE:
                        raise
                    return False
                return True

            eventually(pivoted, f"the pivot of {target}")
        eventually(lambda: not domain.blockJobInfo(target), f"the job of {target} has ended")

    def end(self) -> None:
        """Stop and undefine it, in any state."""
        for step in (self.destroy, self.undefine):
            with contextlib.suppress(libvirt.libvirtError):
                step()

    @contextlib.contextmanager
    def _domain(self) -> Iterator[Any]:
        with connection() as host:
            yield host.lookupByName(self.name)

    @property
    def pid(self) -> int:
        """Return the process ID of its QEMU."""
        return int((Path("/run/libvirt/qemu") / f"{self.name}.pid").read_text())

    @property
    def cgroup(self) -> int:
        """Return the ID of its cgroup, found in another way than the agent's."""
        found = [folder for folder in Path("/sys/fs/cgroup").rglob("*")
                 if folder.is_dir() and folder.name.endswith(f"-{self.name}.libvirt-qemu")]
        assert len(found) == 1, found
        return found[0].stat().st_ino

    def io(self, command: str, target: str = "sda") -> None:
        """Do I/O with its QEMU, such as ``write 0 64k`` or ``flush``.

        QEMU does not report that a pattern is wrong: :func:`contents` does.
        """
        # Name of the disk in QEMU, given by libvirt: controller, bus, target, unit.
        device = f"scsi0-0-0-{ord(target[-1]) - ord('a')}"
        with self._domain() as domain:
            answer = str(libvirt_qemu.qemuMonitorCommand(
                domain, f'qemu-io -d {device} "{command}"',
                libvirt_qemu.VIR_DOMAIN_QEMU_MONITOR_COMMAND_HMP)).strip()
        if answer:  # its output goes to QEMU's log, only errors are returned
            raise InsideError(f"{self.name}: qemu-io {command}: {answer}")


@contextlib.contextmanager
def connection() -> Iterator[Any]:
    """Connect to libvirt."""
    opened = libvirt.open("qemu:///system")
    with at_end(opened.close):
        yield opened
