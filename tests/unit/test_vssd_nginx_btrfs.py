# SPDX-License-Identifier: Apache-2.0
"""A real nginx on a real btrfs whose device grows and shrinks.

A loop device stands for dm-linear, which the host's kernel need not have: so the blocks are
consecutive.
"""

import fcntl
import os
import shutil
import struct
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.box.limits import Deadline
from tests.unit.nginx_server import need_nginx, web
from vcache_guest.blocks import Ranges
from vcache_guest.dm import Line
from vcache_guest.libvssd import Info
from vcache_guest.nginx import WebCache
from vcache_guest.protocol import Range
from vcache_guest.volume import Volume

MIB = 1 << 20
#: Size of the disk in blocks.
MOST = 500

# struct loop_info64: lo_offset and lo_sizelimit.
_INFO, _OFFSET, _LIMIT = 232, 24, 32
_GET, _SET, _CLEAR = 0x4C05, 0x4C04, 0x4C01


class Loop:
    """Loop devices as far as they can do what dm-linear does."""

    def __init__(self) -> None:
        self.nodes: dict[str, str] = {}
        self.loaded: dict[str, Line] = {}

    def path(self, name: str) -> str:
        return self.nodes[name]

    def names(self) -> list[str]:
        return list(self.nodes)

    def create(self, name: str) -> None:
        self.nodes[name] = ""

    def remove(self, name: str, *, deferred: bool = False) -> None:
        # It goes when nobody has it open any more.
        self._ioctl(name, _CLEAR, 0)
        del self.nodes[name]

    def load_lines(self, name: str, lines: Sequence[Line]) -> None:
        first, end = lines[0], 0
        for line in lines:
            if line.target == "linear":
                start = int(line.arguments.split()[1])
                assert end in (0, start), "blocks that are not consecutive"
                end = start + line.length
        self.loaded[name] = Line(0, sum(line.length for line in lines), first.target,
                                 first.arguments)

    def suspend(self, name: str, *, sync: bool = True) -> None:
        """Do nothing: a loop device changes its size at once."""

    def resume(self, name: str) -> None:
        line = self.loaded.pop(name)
        if not self.nodes[name]:
            disk, start = line.arguments.split()
            self.nodes[name] = subprocess.run(
                ["losetup", "--find", "--show", f"--offset={int(start) * 512}",
                 f"--sizelimit={line.length * 512}", disk],
                capture_output=True, text=True, check=True).stdout.strip()
            return
        info = bytearray(_INFO)
        self._ioctl(name, _GET, info)
        # What is behind the end fails.
        struct.pack_into("=Q", info, _LIMIT, line.length * 512 if line.target == "linear" else 512)
        self._ioctl(name, _SET, info)

    def _ioctl(self, name: str, number: int, argument: bytearray | int) -> None:
        fd = os.open(self.nodes[name], os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.ioctl(fd, number, argument)
        finally:
            os.close(fd)


class Rig:
    """A disk in a file, and the application on it."""

    def __init__(self, folder: Path) -> None:
        self.disk, self.given = folder / "disk", list[Ranges]()
        with self.disk.open("wb") as file:
            file.truncate(MOST * MIB)
        self.folder = folder / "cache"
        self.folder.mkdir()
        self.loop = Loop()
        self.volume = Volume(self.loop, "web", str(self.folder))
        self.cache: WebCache

    def start(self, server: object) -> None:
        self.cache = WebCache(self.volume, server)  # type: ignore[arg-type]
        self.cache.give = self.given.append
        self.cache.ready(Info(MIB, MOST, str(self.disk)))

    def until(self, done: Callable[[], bool]) -> None:
        deadline = Deadline(240)
        while not done():
            assert not deadline.passed()
            self.cache.step()
            time.sleep(0.05)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    need_nginx()
    if shutil.which("mkfs.btrfs", path=f"{os.environ.get('PATH', '')}:/usr/sbin") is None:
        pytest.skip("mkfs.btrfs is not installed (Debian: btrfs-progs)")
    if "btrfs" not in Path("/proc/filesystems").read_text():
        pytest.skip("this kernel has no btrfs")
    if os.geteuid() or not Path("/dev/loop-control").exists():
        pytest.skip("loop devices need root, and a kernel that has them")
    made = Rig(tmp_path)
    yield made
    made.volume.destroy()


def test_nginx_keeps_what_fits_when_its_disk_shrinks(rig: Rig, tmp_path: Path) -> None:
    with web(tmp_path, rig.folder, 16) as server:
        rig.start(server.nginx)
        rig.cache.grant((Range(100, 350),))
        assert rig.volume.mounted
        # Objects of 1 MiB: seven tenths of 350 MiB are full.
        assert server.hits(range(240)) == 0
        assert server.hits(range(240)) == 240
        rig.cache.reclaim(90, None)
        rig.until(lambda: bool(rig.given))
        assert rig.given == [(Range(360, 90),)]
        # What is behind the end does not change any more: no request can reach it.
        with rig.disk.open("r+b") as file:
            file.seek(360 * MIB)
            file.write(b"another" * 1000)
        assert 100 < server.files() <= int(260 * 0.7)
        assert server.hits(range(200, 240)) == 40
        server.hits(range(300, 360))
        os.sync()
        assert rig.disk.read_bytes()[360 * MIB:360 * MIB + 7000] == b"another" * 1000
        # It grows again, and has lost nothing by that.
        rig.cache.grant((Range(360, 140),))
        assert server.hits(range(300, 360)) == 60
        assert server.hits(range(400, 500)) == 0
        assert server.hits(range(300, 360)) == 60
        assert rig.volume.used() > 200 * MIB
    assert "corrupt" not in (tmp_path / "error.log").read_text()


def test_nginx_goes_on_when_blocks_are_taken(rig: Rig, tmp_path: Path) -> None:
    with web(tmp_path, rig.folder, 16) as server:
        rig.start(server.nginx)
        rig.cache.grant((Range(100, 350),))
        server.hits(range(20))
        assert server.hits(range(20)) == 20
        # Somebody still has a file open, and there is data that was not written yet.
        with (rig.folder / "dirty").open("wb") as old:
            old.write(bytes(30 * MIB))
            rig.cache.forced((Range(400, 50),))
            with rig.disk.open("r+b") as file:
                file.seek(400 * MIB)
                file.write(bytes(range(256)) * 4096 * 50)
            # The old file system fails, and cannot write.
            with pytest.raises(OSError, match="error|Read-only"):
                os.fsync(old.fileno())
        assert rig.volume.size == 300
        # The new one is empty. nginx serves from the origin and fills it.
        assert server.hits(range(20)) == 0
        assert server.hits(range(20)) == 20
        # Too few blocks: nginx goes on with little space in the folder itself.
        rig.cache.reclaim(100, 60)
        assert rig.given == [(Range(300, 100),)]
        assert not rig.volume.mounted
        assert server.get(1) in ("MISS", "HIT")
        rig.cache.close()
        os.sync()
        with rig.disk.open("rb") as file:
            file.seek(400 * MIB)
            assert file.read(50 * MIB) == bytes(range(256)) * 4096 * 50
