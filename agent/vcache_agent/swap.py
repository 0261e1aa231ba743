# SPDX-License-Identifier: Apache-2.0
"""Release the cached blocks of stopped instances, and load them again at the next start.

A stopped domain needs no cache, but its blocks still use space that other domains
could use. So the agent releases them when the domain has been stopped for a while
(``swap_after``). If the flavor has ``vcache:persist``, the agent saves the list of the
blocks in a file as soon as the domain has stopped, because other domains may displace
some of them earlier. When the domain runs again, the kernel loads the listed blocks
from the disk's own storage, the hottest first.

This can cost time but no data: the kernel releases only clean blocks. So the agent
need not know whether a domain was stopped, deleted, or is about to be started again,
which libvirt does not distinguish.

The files are the persistent state. Each file records the stop for which it was
written. While the file for the current stop exists, the blocks left in the cache only
have to be released. The file is removed after all its blocks have been requested. If
the agent is killed before that, it starts again, and the kernel skips blocks that are
already cached.
"""

import contextlib
import dataclasses
import errno
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from oslo_log import log as logging

from vcache_agent.mapfile import (
    MapFileError,
    MapFolder,
    SavedMap,
    batches,
    tidy,
    within,
)
from vcache_agent.model import SECTOR_BYTES, Device, Extents
from vcache_agent.netlink import spec
from vcache_agent.netlink.client import Client
from vcache_agent.netlink.errors import NetlinkError
from vcache_agent.netlink.spec import CachedRun
from vcache_agent.reconcile import DiskReport
from vcache_agent.store import Assignment

LOG = logging.getLogger(__name__)

# Release requests for one disk in one pass, because other disks wait for the pass.
_DROPS = 16
# Most bytes of requested blocks that wait in the kernel for one disk. The hottest blocks
# are requested first.
_WAITING_BYTES = 64 << 20
# Timeout in seconds of the list of a disk's cached blocks.
LIST_SECONDS = 60.0


@dataclasses.dataclass(frozen=True)
class SwapOut:
    """Save the list of a stopped disk's cached blocks, release the blocks, or both.

    :param tag: tag number of the disk on the device
    :param row: the disk
    :param save: save the list
    :param due: release the blocks
    """

    device: Device
    tag: int
    row: Assignment
    save: bool
    due: bool


@dataclasses.dataclass(frozen=True)
class SwapIn:
    """Load the saved blocks of a disk into the cache.

    :param extents: the disk's extents on the device; None: the whole device
    """

    device: Device
    tag: int
    row: Assignment
    extents: Extents | None


@dataclasses.dataclass(frozen=True)
class SwapPlan:
    """The pending work.

    :param out: disks of stopped domains
    :param back: disks of domains that run again
    :param void: names of files to remove
    """

    out: tuple[SwapOut, ...] = ()
    back: tuple[SwapIn, ...] = ()
    void: frozenset[str] = frozenset()


@dataclasses.dataclass(frozen=True)
class Swapped:
    """Progress for one disk.

    :param state: ``listed``, ``releasing``, ``released``, ``swapped out``, ``loading`` or
        ``failed``
    :param size: bytes in the saved list
    :param note: reason of a failure or delay, or empty
    """

    row: Assignment
    device: Device
    tag: int
    state: str
    size: int = 0
    note: str = ""


def device_of(key: str, devices: Iterable[Device]) -> Device | None:
    """Return the device of a disk, by the disk's key; None if it does not exist."""
    found = [device for device in devices
             if key == f"volume:{device.name}"
             or key.startswith((f"file:{device.name}:", f"block:{device.name}:"))]
    # One device's name may be the beginning of another's, followed by a colon.
    return max(found, key=lambda device: len(device.name), default=None)


def plan(rows: Mapping[str, Assignment], devices: Sequence[Device],
         reports: Sequence[DiskReport], folder: MapFolder, names: Collection[str], *,
         complete: bool, now: float, after: float) -> SwapPlan:
    """Return the pending work.

    :param rows: all known disks by key; a file is removed when its disk is not among them
    :param reports: disks of the domains that run or are about to
    :param names: names of the existing files
    :param complete: libvirt has listed the running domains
    :param now: Unix time in seconds
    :param after: seconds from the stop of a domain to the release of its blocks
    """
    void = set(names) - {folder.path(key).name for key in rows}
    out, back = [], []
    for report in reports:
        location = report.state.location
        if location is None or report.tag is None or location.key not in rows:
            continue
        device = device_of(location.key, devices)
        if device is not None and device.pool and folder.path(location.key).name in names:
            extents = None if device.scope == spec.Scope.VOLUME else location.extents
            back.append(SwapIn(device, report.tag, rows[location.key], extents))
    used = {report.state.location.key for report in reports if report.state.location}
    for key, row in rows.items():
        if key in used or row.released is None or not complete:
            continue
        device = device_of(key, devices)
        if device is None or not device.pool:
            continue
        if not row.persist and folder.path(key).name in names:
            void.add(folder.path(key).name)
        due = now - row.released >= after
        if row.persist or due:
            out.append(SwapOut(device, row.tag, row, row.persist, due))
    once = {(item.row.key): item for item in back}  # a disk of several domains
    return SwapPlan(tuple(out), tuple(once.values()), frozenset(void))


@dataclasses.dataclass
class _Load:
    """A list whose blocks are being loaded.

    :param size: bytes of all blocks
    :param left: batches that are not yet requested
    """

    size: int
    left: list[tuple[CachedRun, ...]]


class Swapper:
    """Does the work in small steps, one in each pass of the worker.

    :param folder: the files with the lists
    :param patient: returns a client whose timeout suits a long list
    """

    def __init__(self, folder: MapFolder,
                 patient: Callable[[], Client] = lambda: Client(LIST_SECONDS)) -> None:
        folder.sweep()
        self._folder = folder
        self._patient = patient
        # By key of the disk: the stop for which a list exists, and the bytes in the list.
        # And the stop for which all blocks are released.
        self._saved: dict[str, tuple[float | None, int]] = {}
        self._done: dict[str, float | None] = {}
        self._loads: dict[str, _Load] = {}
        self.reports: tuple[Swapped, ...] = ()
        self.problems: list[str] = []

    def step(self, client: Client, wanted: SwapPlan) -> bool:
        """Do one step of the work; return True if the next step should follow soon."""
        self.problems = []
        reports: list[Swapped] = []
        for name in wanted.void:
            self._remove(name)
        back = {item.row.key for item in wanted.back}
        self._loads = {key: load for key, load in self._loads.items() if key in back}
        stopped = {item.row.key for item in wanted.out}
        self._saved = {key: saved for key, saved in self._saved.items() if key in stopped}
        self._done = {key: done for key, done in self._done.items() if key in stopped}
        for out in wanted.out:
            with self._told(reports, out):
                reports.append(self._out(client, out))
        for item in wanted.back:
            with self._told(reports, item):
                reports += self._back(client, item)
        self.reports = tuple(reports)
        # A report with a note waits for destage, so a step soon would not help.
        return any(report.state in ("releasing", "loading") and not report.note
                   for report in reports)

    @contextlib.contextmanager
    def _told(self, reports: list[Swapped], item: SwapOut | SwapIn) -> Iterator[None]:
        """Record an error of one disk, and continue with the other disks."""
        try:
            yield
        except (OSError, MapFileError) as error:
            text = str(error.strerror if isinstance(error, OSError) else error)
            self.problems.append(f"cache of {item.row.name} disk {item.row.target}: {text}")
            reports.append(Swapped(item.row, item.device, item.tag, "failed", note=text))

    def _remove(self, name: str) -> None:
        try:
            self._folder.remove(name)
        except OSError as error:
            self.problems.append(f"{name}: {error.strerror}")

    def _out(self, client: Client, item: SwapOut) -> Swapped:
        row = item.row
        size = self._list(item) if item.save else 0
        if not item.due:
            return Swapped(row, item.device, item.tag, "listed", size)
        if self._done.get(row.key, -1.0) != row.released:
            left, dirty = self._drop(client, item)
            if left:
                note = f"{dirty >> 10} KiB are still dirty" if dirty else ""
                return Swapped(row, item.device, item.tag, "releasing", size, note)
            self._done[row.key] = row.released
            LOG.info("tag %d (%s disk %s): released its cached blocks%s", item.tag,
                     row.name, row.target, f", {size >> 20} MiB are listed" if size else "")
        return Swapped(row, item.device, item.tag, "swapped out" if size else "released", size)

    def _list(self, item: SwapOut) -> int:
        """Ensure that a list for the current stop exists; return the bytes in the list."""
        released, size = self._saved.get(item.row.key, (None, 0))
        if released != item.row.released:
            size = self._save(item)
            self._saved[item.row.key] = (item.row.released, size)
        return size

    def _read(self, row: Assignment) -> SavedMap | None:
        """Return the saved list of a disk; None if there is none or it is invalid."""
        if self._folder.path(row.key).name not in self._folder.names():
            return None
        try:
            return self._folder.load(row.key)
        except MapFileError as error:
            LOG.warning("%s; writing a new list", error)
            return None

    def _save(self, item: SwapOut) -> int:
        """Save a list, unless one exists for this stop; return the bytes in the list."""
        row = item.row
        old = self._read(row)
        if old and old.released == row.released:
            return old.size
        runs: list[CachedRun] = []
        with self._patient() as patient, _gone():
            runs = patient.cached(item.device.number, item.tag)
        if old and (old.sectors, old.volume) == (item.device.sectors, item.device.volume):
            # The domain stopped before all blocks of the old list were loaded. Keep these
            # blocks, with half their heat.
            runs += [CachedRun(run.start, run.len, run.heat // 2) for run in old.runs]
        saved = SavedMap(row.key, item.device.sectors, item.device.volume, row.released or 0.0,
                         tidy(runs))
        if saved.runs:
            self._folder.save(saved)
            LOG.info("tag %d (%s disk %s): saved the list of its cached blocks, %d MiB in %d runs",
                     item.tag, row.name, row.target, saved.size >> 20, len(saved.runs))
        return saved.size

    def _drop(self, client: Client, item: SwapOut) -> tuple[int, int]:
        """Release some chunks; return the bytes that are left, and how many are dirty."""
        left = (0, 0)
        for _ in range(_DROPS):
            before, left = left, (0, 0)
            with _gone():
                left = client.cache_drop(item.device.number, item.tag)
            if not left[0] or left == before:
                break
        return left

    def _back(self, client: Client, item: SwapIn) -> list[Swapped]:
        row = item.row
        load = self._loads.get(row.key)
        if load is None:
            load = self._begin(item)
            if load is None:
                self._folder.remove(self._folder.path(row.key).name)
                return []
            self._loads[row.key] = load
        waiting = client.tag(item.device.number, item.tag).prefetch_waiting_bytes
        try:
            while load.left and waiting < _WAITING_BYTES:
                client.prefetch(item.device.number, item.tag, load.left[0])
                waiting += sum(run.len for run in load.left.pop(0)) * SECTOR_BYTES
        except NetlinkError as error:
            if error.errno == errno.EOPNOTSUPP:
                load.left.clear()  # the tag's mode no longer uses the cache
            elif error.errno != errno.EBUSY:
                raise
        if load.left or waiting:
            return [Swapped(row, item.device, item.tag, "loading", load.size)]
        LOG.info("tag %d (%s disk %s): loaded the saved blocks into the cache, %d MiB or as much "
                 "as fits", item.tag, row.name, row.target, load.size >> 20)
        self._folder.remove(self._folder.path(row.key).name)
        del self._loads[row.key]
        return []

    def _begin(self, item: SwapIn) -> _Load | None:
        """Read a list; return None if it is invalid or from another volume."""
        try:
            saved = self._folder.load(item.row.key)
        except MapFileError as error:
            LOG.warning("%s; the disk starts with an empty cache", error)
            return None
        if (saved.sectors, saved.volume) != (item.device.sectors, item.device.volume):
            LOG.warning("tag %d (%s disk %s): its device has another size or volume number; the "
                        "disk starts with an empty cache", item.tag, item.row.name,
                        item.row.target)
            return None
        runs = saved.runs if item.extents is None else within(saved.runs, item.extents)
        return _Load(sum(run.len for run in runs) * SECTOR_BYTES, batches(runs))


@contextlib.contextmanager
def _gone() -> Iterator[None]:
    """Ignore the kernel's error if the device, tag or cache no longer exists."""
    try:
        yield
    except NetlinkError as error:
        if error.errno not in (errno.ENOENT, errno.ENODATA, errno.ENODEV):
            raise
