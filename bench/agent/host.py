# SPDX-License-Identifier: Apache-2.0
"""In the box: a host with many running domains, each with one fragmented disk image.

The file system, the images, the mapped device, the cgroups and the processes are real.
libvirt is its test driver, with the real XML parser and events, in the agent's own process.
The process of a domain sleeps instead of running QEMU.
"""

import contextlib
import dataclasses
import os
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.box.disks import mapped, mounted, null_block
from tests.box.inside import run
from tests.box.steps import at_end

DISKS, EXTENTS = 250, 5000
# The block size of the file system is 1 KiB, so that the images need little memory. Each second
# block is written, and the others are preallocated.
BLOCK = 1024
_IMAGE_BYTES = 2 * BLOCK * EXTENTS
_SLOW_MIB = 64

IMAGES, SLOW = Path("/run/bench-images"), Path("/run/bench-slow")
LIBVIRT_RUN = Path("/run/libvirt/qemu")
_SPECS = {"vcache:mode": "flush-only", "vcache:weight": "100"}
_NOVA = "http://openstack.org/xmlns/libvirt/nova/1.1"


@dataclasses.dataclass(frozen=True)
class Vm:
    """A domain.

    :param disk: path of its only disk
    """

    name: str
    disk: Path

    @property
    def uuid(self) -> str:
        """Its UUID."""
        return str(uuid.uuid5(uuid.NAMESPACE_URL, self.name))

    def xml(self, kind: str = "test") -> str:
        """Return its XML, as Nova and libvirt write it.

        :param kind: type of the domain
        """
        specs = "".join(f'<nova:extraSpec name="{key}">{value}</nova:extraSpec>'
                        for key, value in _SPECS.items())
        return f"""<domain type="{kind}">
  <uuid>{self.uuid}</uuid><name>{self.name}</name><memory unit="MiB">64</memory><vcpu>1</vcpu>
  <metadata><nova:instance xmlns:nova="{_NOVA}"><nova:name>{self.name}</nova:name>
    <nova:flavor name="bench" id="1"><nova:memory>64</nova:memory>
      <nova:extraSpecs>{specs}</nova:extraSpecs></nova:flavor></nova:instance></metadata>
  <os><type>hvm</type></os>
  <devices><disk type="file" device="disk"><driver name="qemu" type="raw" cache="none"/>
    <source file="{self.disk}"/><target dev="vda" bus="virtio"/></disk></devices>
</domain>"""


def fragmented(path: Path) -> None:
    """Create an image with :data:`EXTENTS` written extents."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.posix_fallocate(fd, 0, _IMAGE_BYTES)
        data = bytes(BLOCK)
        for number in range(EXTENTS):
            os.pwrite(fd, data, 2 * number * BLOCK)
        os.fsync(fd)
    finally:
        os.close(fd)


def _number(device: str) -> str:
    """Return the number of a block device."""
    status = os.stat(device)
    return f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"


@contextlib.contextmanager
def images(count: int) -> Iterator[list[Path]]:
    """Provide fragmented images on a file system on a vcache device, whose name is ``agent``."""
    mebibytes = count * _IMAGE_BYTES * 5 // 4 // (1 << 20) + 64
    with null_block("nullb-agent", size=mebibytes, memory_backed=1) as disk:
        sectors = int(run("blockdev", "--getsz", disk))
        with mapped("agent", f"0 {sectors} vcache flush-only {disk} filesystem") as device:
            run("dmsetup", "mknodes", "agent")
            run("mkfs.ext4", "-q", "-b", str(BLOCK), "-I", "256", device)
            with mounted(device, IMAGES):
                # By default, ext4 writes zeroes to short preallocated extents instead of
                # splitting them.
                kernel_name = Path(f"/sys/dev/block/{_number(device)}").resolve().name
                Path(f"/sys/fs/ext4/{kernel_name}/extent_max_zeroout_kb").write_text("0")
                found = [IMAGES / f"disk{number}" for number in range(count)]
                for path in found:
                    fragmented(path)
                yield found


class Slow:
    """A link to an image, on a file system that can hang.

    QEMU has its image open, and so the kernel has its path in memory. Here the image is
    elsewhere, and nothing is open on the file system of the link.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self.path = SLOW / "disk"

    def link(self, target: Path) -> None:
        """Make the link, of which nothing remains in memory."""
        self.path.symlink_to(target)
        run("umount", str(SLOW))
        run("mount", "-o", "noatime", self._device, str(SLOW))

    def hang(self) -> None:
        """Let look-ups of the path hang."""
        run("dmsetup", "suspend", "--nolockfs", "--noflush", "slow")

    def forget(self) -> None:
        """Drop what the kernel has in memory of the file system."""
        Path("/proc/sys/vm/drop_caches").write_text("3")

    def go_on(self) -> None:
        """Let them continue; also if they do not hang."""
        run("dmsetup", "resume", "slow")


@contextlib.contextmanager
def slow() -> Iterator[Slow]:
    """Provide a file system that can hang."""
    with null_block("nullb-slow", size=_SLOW_MIB, memory_backed=1) as disk:
        sectors = int(run("blockdev", "--getsz", disk))
        with mapped("slow", f"0 {sectors} linear {disk} 0") as device:
            run("dmsetup", "mknodes", "slow")
            run("mkfs.ext4", "-q", device)
            with mounted(device, SLOW):
                found = Slow(device)
                with at_end(found.go_on):
                    yield found


@contextlib.contextmanager
def domains(vms: Sequence[Vm]) -> Iterator[str]:
    """Let domains run; yield libvirt's URI."""
    LIBVIRT_RUN.mkdir(parents=True, exist_ok=True)
    definition = Path("/run/bench-domains.xml")
    definition.write_text("<node>" + "".join(vm.xml() for vm in vms) + "</node>")
    running: list[subprocess.Popen[bytes]] = []
    try:
        for number, vm in enumerate(vms, 1):
            process = subprocess.Popen(["sleep", "infinity"])
            running.append(process)
            cgroup = Path(f"/sys/fs/cgroup/qemu-{number}-{vm.name}.libvirt-qemu")
            cgroup.mkdir()
            (cgroup / "cgroup.procs").write_text(str(process.pid))
            (LIBVIRT_RUN / f"{vm.name}.pid").write_text(f"{process.pid}\n")
            (LIBVIRT_RUN / f"{vm.name}.xml").write_text(vm.xml("qemu"))
        yield f"test://{definition}"
    finally:
        for process in running:
            process.kill()
        for process in running:
            process.wait()
