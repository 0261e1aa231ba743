# SPDX-License-Identifier: Apache-2.0
"""ext4 and xfs on the target, with disk images on them."""

import contextlib
import fcntl
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.box.steps import at_end
from tests.kernel import stack
from tests.kernel.conftest import Cgroup
from tests.kernel.disk import SECTOR, Disk, pattern
from tests.kernel.stack import Mapped, linear, mapped, null_blk, run, vcache, vcache_table
from vcache_agent.model import Extent
from vcache_agent.netlink.client import Client

KINDS = ["ext4", "xfs"]
_FS_IOC_FIEMAP = 0xC020660B


def make_filesystem(kind: str, path: str) -> None:
    """Make a file system."""
    if kind == "ext4":
        run("mkfs.ext4", "-q", "-F", path)
    else:
        run("mkfs.xfs", "-q", "-f", path)


def check_filesystem(kind: str, path: str) -> None:
    """Check a file system that is not mounted; an error raises."""
    if kind == "ext4":
        run("e2fsck", "-f", "-n", path)
    else:
        run("xfs_repair", "-n", path)


#: Flushes of the filesystem's own threads cover everything: those of the journal, and after
#: 10 s or so those of ext4's initialisation of inode tables. So the test triggers all commits.
LATE_COMMIT = {"ext4": "commit=3600,noinit_itable", "xfs": "noatime"}


@contextlib.contextmanager
def mounted(device: Mapped, kind: str, options: str = "defaults") -> Iterator[Path]:
    """Mount a device."""
    folder = Path("/run") / stack.unique("mount")
    folder.mkdir()
    with at_end(folder.rmdir):
        run("mount", "-t", kind, "-o", options, device.path, str(folder))
        with at_end(run, "umount", str(folder)):
            yield folder


def fiemap(path: Path) -> list[Extent]:
    """Return the written extents of a file, in sectors."""
    fd = os.open(path, os.O_RDONLY)
    try:
        head = struct.pack("=QQIIII", 0, 2**64 - 1, 1, 0, 256, 0)
        request = bytearray(head + bytes(56 * 256))
        fcntl.ioctl(fd, _FS_IOC_FIEMAP, request)
    finally:
        os.close(fd)
    found = []
    for number in range(struct.unpack_from("=I", request, 20)[0]):
        _, physical, length, _, _, flags = struct.unpack_from("=QQQQQI", request, 32 + 56 * number)
        assert flags & ~1 == 0, f"extent with flags {flags:#x}"
        found.append(Extent(physical // SECTOR, length // SECTOR))
    return sorted(found)


@pytest.mark.parametrize(("kind", "scope"), [
    ("ext4", "volume 7"), pytest.param("ext4", "filesystem", marks=pytest.mark.box),
    ("xfs", "volume 7"), ("xfs", "filesystem")])
def test_files_survive(kind: str, scope: str) -> None:
    """Written by name and by fio, over reloads and trims; the origin has all data at the end."""
    with null_blk(400, discard=True) as disk, mapped(linear(disk)) as below:
        with vcache(below.path, scope, age_ms=300) as device:
            make_filesystem(kind, device.path)
            with mounted(device, kind) as folder:
                for number in range(30):
                    (folder / f"file-{number}").write_bytes(pattern(number, 1 + number * 3))
                run("fio", "--name=v", f"--directory={folder}", "--rw=randrw", "--bsrange=4k-64k",
                    "--size=6m", "--io_size=6m", "--numjobs=2", "--fsync=16", "--verify=crc32c",
                    "--unlink=1", "--randseed=1", "--thread", timeout=300)
                for number in range(0, 30, 2):
                    (folder / f"file-{number}").unlink()
                device.swap(vcache_table(below.path, scope, age_ms=300))
                run("fstrim", str(folder))
                for number in range(1, 30, 2):
                    assert (folder / f"file-{number}").read_bytes() == pattern(
                        number, 1 + number * 3)
            check_filesystem(kind, device.path)
        check_filesystem(kind, below.path)
        with mounted(below, kind) as folder:
            for number in range(1, 30, 2):
                assert (folder / f"file-{number}").read_bytes() == pattern(number, 1 + number * 3)


@pytest.mark.smp
@pytest.mark.parametrize("kind", KINDS)
def test_images_of_two_vms(kind: str, client: Client, cgroup: Callable[[str], Cgroup]) -> None:
    """Overwrites in place belong to the VM; its fdatasync does not affect its neighbour."""
    groups = {1: cgroup("one"), 2: cgroup("two")}
    with null_blk(400, discard=True) as origin, vcache(origin, "filesystem") as device:
        make_filesystem(kind, device.path)
        with mounted(device, kind, LATE_COMMIT[kind]) as folder:
            images = {tag: folder / f"image-{tag}" for tag in groups}
            for tag, image in images.items():
                image.write_bytes(pattern(tag, 8192))
            run("sync")
            for tag, image in images.items():
                extents = fiemap(image)
                assert sum(extent.length for extent in extents) == 8192
                client.tag_set(device.number, tag, cgroups=[groups[tag].id])
                client.set_extents(device.number, tag, extents)
            with Disk(str(images[1])) as one, Disk(str(images[2])) as two:
                groups[1].run(lambda: one.write(100, pattern(10, 64)))
                groups[2].run(lambda: two.write(200, pattern(20, 32)))
                dirty = [client.tag(device.number, tag).dirty_bytes for tag in (1, 2)]
                assert dirty == [64 * SECTOR, 32 * SECTOR]
                # The first also writes the new timestamp of the file, the second only data.
                groups[1].run(one.flush)
                groups[1].run(lambda: one.write(100, pattern(11, 64)))
                groups[2].run(lambda: two.write(200, pattern(21, 32)))
                groups[1].run(one.flush)
                assert client.tag(device.number, 1).dirty_bytes == 0
                assert client.tag(device.number, 2).dirty_bytes == 32 * SECTOR
                # With AIO, a kernel worker flushes: the flush covers everything.
                groups[1].run(one.aio_flush)
                assert client.tag(device.number, 2).dirty_bytes == 0
                assert one.read(100, 64) == pattern(11, 64)
                assert two.read(200, 32) == pattern(21, 32)
            images[2].unlink()
            run("sync")  # ext4 trims the blocks freed by a committed transaction
            run("fstrim", str(folder))
            assert client.tag(device.number, 2).extents_sectors == 0
        check_filesystem(kind, device.path)
