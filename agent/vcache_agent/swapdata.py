# SPDX-License-Identifier: Apache-2.0
"""Copy the cached data of stopped instances to files, and return it at the next start.

A file is valid while the kernel sees each write of the disk. So the data of a block device that
other hosts may write is not copied, unless an operator allows it.

A list of positions (:mod:`vcache_agent.mapfile`) exists in any case. If there is space for it,
a file with the data exists beside it. The origin is then not read at the next start, except for
blocks that somebody has written since: the kernel skips these (``cache-fill``). Without a valid
file the list is used alone, as after a reboot of the host.

Copies take long, so each runs in a thread of its own, which the worker looks after in its
passes. Only one copy to a file runs at a time, at a limited rate, because nothing waits for it.
"""

import contextlib
import dataclasses
import errno
import mmap
import os
import shutil
import stat
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

from oslo_log import log as logging

from vcache_agent import mapfile
from vcache_agent.datafile import BLOCKS_MAX, Content, Reader, Writer, size_of
from vcache_agent.mapfile import MapFileError
from vcache_agent.model import SECTOR_BYTES, Device, Extents
from vcache_agent.netlink import spec
from vcache_agent.netlink.client import Client
from vcache_agent.netlink.errors import NetlinkError
from vcache_agent.netlink.spec import CachedRun

LOG = logging.getLogger(__name__)

# Bytes of a read of the device.
_PIECE = 1 << 20
# Pause of a return while the kernel's queue is full or no chunk is free, and number of pauses
# without a chunk after which the rest is given up.
_PAUSE = 0.02
_TRIES = 100
# Part of the file system that copies leave free.
_SPARE = 20


@dataclasses.dataclass(frozen=True)
class DataSettings:
    """Where data is copied to, and how much.

    :param folder: directory of the files
    :param most: bytes of all files; 0: copy no data
    :param rate: bytes per second of a copy to a file; 0: no limit
    :param volumes: also for devices in volume scope: no other host writes their origins
    """

    folder: Path = Path("/var/lib/vcache/swap")
    most: int = 0
    rate: int = 0
    volumes: bool = False


def open_device(device: Device) -> int:
    """Open a mapped device for direct reads.

    :raises MapFileError: if its name in /dev is another device
    """
    path = f"/dev/mapper/{device.name}"
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    status = os.fstat(fd)
    if not stat.S_ISBLK(status.st_mode) or status.st_rdev != os.makedev(*device.number):
        os.close(fd)
        raise MapFileError(f"{path} is not the device {device.number}")
    return fd


class Job(threading.Thread):
    """A copy in one direction.

    :param work: does it; calls :meth:`moved` with the bytes of each step, and stops when that
        returns False
    """

    def __init__(self, name: str, work: "Callable[[Job], None]") -> None:
        super().__init__(name=name, daemon=True)
        self._work = work
        self.total = 0
        self.done = 0
        self.problem = ""
        self.cancelled = False
        self.start()

    def run(self) -> None:
        """Do the work."""
        try:
            self._work(self)
        except (MapFileError, NetlinkError, OSError) as error:
            self.problem = str(error.strerror if isinstance(error, OSError) else error)
        except Exception as error:
            self.problem = f"failed: {error!r}"
            LOG.exception("%s", self.name)

    def moved(self, count: int) -> bool:
        """Count bytes; return False if the job shall stop."""
        self.done += count
        return not self.cancelled

    @property
    def finished(self) -> bool:
        """True if the thread has ended."""
        return not self.is_alive()


class DataSwap:
    """Copies of the data of disks, by the keys of the disks.

    :param patient: returns a client for a thread
    :param opened: returns a file descriptor of a device
    """

    def __init__(self, settings: DataSettings, patient: Callable[[], Client],
                 opened: Callable[[Device], int] = open_device) -> None:
        self._settings = settings
        self._patient = patient
        self._opened = opened
        self._outs: dict[str, Job] = {}
        self._backs: dict[str, Job] = {}
        # Only one copy to a file at a time.
        self._turn = threading.Lock()
        # By key: the stop for which a file exists, or why there is none.
        self._files: dict[str, tuple[float, int]] = {}
        self._refused: dict[str, tuple[float, str]] = {}

    def path(self, key: str) -> Path:
        """Return the path of a disk's file."""
        return self._settings.folder / f"{mapfile.stem(key)}.data"

    def sweep(self, names: frozenset[str]) -> None:
        """Remove incomplete files, and those of disks without a list.

        :param names: names of the existing lists
        """
        with contextlib.suppress(OSError):
            for path in self._settings.folder.iterdir():
                if path.name.endswith(mapfile.NEW) or (
                        path.suffix == ".data" and f"{path.stem}.map" not in names):
                    path.unlink()

    def forget(self, name: str) -> None:
        """Remove the file that belongs to a list.

        :param name: name of the list
        """
        path = self._settings.folder / f"{name.removesuffix('.map')}.data"
        with contextlib.suppress(FileNotFoundError):
            path.unlink()

    def keep_only(self, outs: Collection[str], backs: Collection[str]) -> None:
        """Cancel the copies of other disks.

        :param outs: keys of disks that are stopped
        :param backs: keys of disks that run
        """
        for jobs, keys in ((self._outs, outs), (self._backs, backs)):
            for key, job in list(jobs.items()):
                if key not in keys:
                    job.cancelled = True
                    if job.finished:
                        del jobs[key]

    # To a file

    def out(self, key: str, device: Device, tag: int, released: float) -> tuple[str, int, str]:
        """Copy the cached data of a stopped disk to its file, unless it is there.

        :return: ``off``, ``copying``, ``copied`` or ``refused``; bytes; why it is refused
        """
        if not self._settings.most or (
                device.scope is spec.Scope.VOLUME and not self._settings.volumes):
            return "off", 0, ""
        if (known := self._refused.get(key)) and known[0] == released:
            return "refused", 0, known[1]
        if key in self._files and self._files[key][0] == released:
            return "copied", self._files[key][1], ""
        if key in self._backs:
            return "copying", 0, ""  # it was cancelled, and ends soon
        job = self._outs.get(key)
        if job is None:
            content = self._existing(key)
            if content and content.released == released and (
                    content.sectors, content.volume) == (device.sectors, device.volume):
                self._files[key] = released, content.size
                return "copied", content.size, ""
            job = self._outs[key] = Job(f"swap-out {key}", lambda job: self._copy_out(
                key, device, tag, released, job))
        if not job.finished:
            return "copying", job.done, ""
        del self._outs[key]
        if job.problem:
            LOG.warning("%s: its data is not swapped out: %s", key, job.problem)
            self._refused[key] = released, job.problem
            return "refused", 0, job.problem
        self._files[key] = released, job.done
        return "copied", job.done, ""

    def _existing(self, key: str) -> Content | None:
        path = self.path(key)
        if not path.exists():
            return None
        try:
            with Reader(path) as reader:
                return reader.content if reader.content.key == key else None
        except MapFileError as error:
            LOG.warning("%s; writing a new file", error)
            return None

    def _copy_out(self, key: str, device: Device, tag: int, released: float,
                  job: Job) -> None:
        with self._turn, self._patient() as client:
            if not job.moved(0):
                return
            runs = mapfile.tidy(client.cached(device.number, tag))
            if not runs:
                return
            # The kernel notes writes from here on, so what is read below is valid or forgotten.
            token = _begin(client, device, tag, runs)
            content = Content(key, device.sectors, device.volume, tag, token, released, runs)
            self._check_space(key, content)
            fd = self._opened(device)
            try:
                with Writer(self.path(key), content) as writer:
                    for data in _paced(_data(fd, runs), self._settings.rate):
                        writer.add(data)
                        if not job.moved(len(data)):
                            return
                    writer.commit()
            finally:
                os.close(fd)

    def _check_space(self, key: str, content: Content) -> None:
        """Check the limits.

        :raises MapFileError: if a file would exceed them
        """
        size = size_of(content)
        if content.blocks > BLOCKS_MAX:
            raise MapFileError(f"it has {content.size >> 20} MiB, a file has at most 1 TiB")
        folder = self._settings.folder
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        mine = self.path(key).name
        used = sum(path.stat().st_size for path in folder.glob("*.data") if path.name != mine)
        if used + size > self._settings.most:
            raise MapFileError(f"its {size >> 20} MiB do not fit beside the {used >> 20} MiB of "
                               f"other files; swap_mb is {self._settings.most >> 20}")
        disk = shutil.disk_usage(folder)
        if disk.free - size < disk.total // _SPARE:
            raise MapFileError(f"its {size >> 20} MiB would leave less than a twentieth of the "
                               f"file system of {folder} free")

    # Back

    def back(self, key: str, device: Device, tag: int, extents: Extents | None) \
            -> tuple[str, int, int]:
        """Return the data of a disk to the cache; the file is removed when this has ended.

        :return: ``none``, ``loading`` or ``ended``; bytes returned; bytes in the file
        """
        if key in self._outs:
            return "loading", 0, 0  # it was cancelled, and ends soon
        job = self._backs.get(key)
        if job is None:
            if not self.path(key).exists():
                return "none", 0, 0
            self._files.pop(key, None)
            job = self._backs[key] = Job(f"swap-in {key}", lambda job: self._copy_back(
                key, device, tag, extents, job))
        if not job.finished:
            return "loading", job.done, job.total
        del self._backs[key]
        if job.problem:
            LOG.warning("%s: its data is not used further: %s; its blocks are read from its own "
                        "storage instead", key, job.problem)
        else:
            LOG.info("%s: returned %d MiB of data to the cache", key, job.done >> 20)
        with contextlib.suppress(FileNotFoundError):
            self.path(key).unlink()
        return "ended", job.done, job.total

    def _copy_back(self, key: str, device: Device, tag: int, extents: Extents | None,
                   job: Job) -> None:
        with Reader(self.path(key)) as reader, self._patient() as client:
            content = reader.content
            if content.key != key:
                raise MapFileError(f"{self.path(key)}: it belongs to another disk")
            if not content.token or client.saved(device.number, tag) != content.token:
                raise MapFileError(
                    f"{self.path(key)}: the kernel no longer knows which of its blocks were "
                    "written since, because the device was removed or the host was restarted")
            job.total = content.size
            runs = content.runs if extents is None else mapfile.within(content.runs, extents)
            for batch in mapfile.batches(runs):
                for run, data in reader.pieces(batch, spec.FILL_BLOCKS_MAX):
                    if not _filled(client, device, tag, content.token, run, data):
                        return
                    if not job.moved(len(data)):
                        return
            # The memory of the session is not needed any more.
            client.saved(device.number, tag, begin=True)


def _begin(client: Client, device: Device, tag: int, runs: Sequence[CachedRun]) -> int:
    """Begin a session of saved blocks; return its token."""
    token, most = 0, spec.PREFETCH_RUNS_MAX
    for at in range(0, len(runs), most):
        token = client.saved(device.number, tag, runs[at:at + most], begin=not at)
    return token


def _data(fd: int, runs: Sequence[CachedRun]) -> Iterator[memoryview]:
    """Yield the data of runs in pieces; each is valid until the next one.

    :raises OSError: if the device cannot be read
    """
    with mmap.mmap(-1, _PIECE) as memory, memoryview(memory) as view:
        for run in runs:
            at, end = run.start * SECTOR_BYTES, (run.start + run.len) * SECTOR_BYTES
            while at < end:
                count = min(_PIECE, end - at)
                with view[:count] as part:
                    if os.preadv(fd, [part], at) != count:
                        raise OSError(errno.EIO, "short read")
                    yield part
                at += count


def _paced(pieces: Iterator[memoryview], rate: int) -> Iterator[memoryview]:
    """Yield pieces at most at a rate in bytes per second; 0: as they come."""
    began, done = time.monotonic(), 0
    for piece in pieces:
        done += len(piece)
        yield piece
        if rate and (ahead := began + done / rate - time.monotonic()) > 0:
            time.sleep(ahead)


def _filled(client: Client, device: Device, tag: int, token: int, run: CachedRun,
            data: bytes) -> bool:
    """Return one piece to the cache.

    :return: False if the cache has no space for it
    """
    for _ in range(_TRIES):
        try:
            client.fill(device.number, tag, token, run.start, run.heat, data)
        except NetlinkError as error:
            if error.errno not in (errno.EBUSY, errno.ENOSPC):
                raise
            time.sleep(_PAUSE)
        else:
            return True
    return False
