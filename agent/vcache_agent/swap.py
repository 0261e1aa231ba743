# SPDX-License-Identifier: Apache-2.0
"""What stopped instances have in caches: given to others, and brought back.

A domain that does not run needs no cache, but what it has there stays, and others
lack it. So when it has been stopped for a while that is given up. Where its flavor
says ``vcache:persist``, a list of what it was is kept in a file, from the stop on, for
others may take some of it before; and when the domain runs again, that is brought back
from the disk's own storage, the hottest first.

What may be lost by this is time, never data: the kernel gives up only what is on the
disk's storage as well. So it does not matter whether a domain that is gone was
stopped, deleted, or is about to be started again, which libvirt does not tell apart.

The files are the state. A file says for which stop it was made; while it is there for
this one, what is left in the cache is only to be given up. It goes when all that it
lists has been asked for, so whoever is killed in between begins again, and what is in
the cache already is passed over.
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

# Requests to give up chunks in one pass, for one disk: others wait for the pass.
_DROPS = 16
# So much may wait in the kernel, of one disk: what is hotter is asked for first.
_WAITING_BYTES = 64 << 20
# Seconds that a list of all that a disk has in the cache may take.
LIST_SECONDS = 60.0


@dataclasses.dataclass(frozen=True)
class SwapOut:
    """List, or give up, what a stopped disk has in the cache.

    :param tag: its number on the device
    :param row: the disk
    :param save: keep a list of what it was
    :param due: give it up
    """

    device: Device
    tag: int
    row: Assignment
    save: bool
    due: bool


@dataclasses.dataclass(frozen=True)
class SwapIn:
    """Bring back what a disk had in the cache.

    :param extents: those of the disk; None: all of the device is its
    """

    device: Device
    tag: int
    row: Assignment
    extents: Extents | None


@dataclasses.dataclass(frozen=True)
class SwapPlan:
    """What is to be done about caches of disks.

    :param void: names of files that no disk needs
    """

    out: tuple[SwapOut, ...] = ()
    back: tuple[SwapIn, ...] = ()
    void: frozenset[str] = frozenset()


@dataclasses.dataclass(frozen=True)
class Swapped:
    """How it stands with the cache of a disk that is, or was, stopped.

    :param state: in a word or two
    :param size: bytes that are listed
    """

    row: Assignment
    device: Device
    tag: int
    state: str
    size: int = 0
    note: str = ""


def device_of(key: str, devices: Iterable[Device]) -> Device | None:
    """Return the device that a disk is on, by its key."""
    found = [device for device in devices
             if key == f"volume:{device.name}"
             or key.startswith((f"file:{device.name}:", f"block:{device.name}:"))]
    # A name may begin as another one does, and have a colon behind it.
    return max(found, key=lambda device: len(device.name), default=None)


def plan(rows: Mapping[str, Assignment], devices: Sequence[Device],
         reports: Sequence[DiskReport], folder: MapFolder, names: Collection[str], *,
         complete: bool, now: float, after: float) -> SwapPlan:
    """Decide what is to be done.

    :param rows: disks, as they are intended; a file goes when its disk is forgotten
    :param reports: what became of the disks of domains that run, or are about to
    :param names: of the files that are there
    :param complete: libvirt has said which domains run
    :param after: seconds that a domain has to be stopped until its cache is given up
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
    """A list that is being brought back."""

    size: int
    left: list[tuple[CachedRun, ...]]


class Swapper:
    """Does it, a part in each pass.

    :param folder: the files
    :param patient: connects to the kernel for a long list, which takes its time
    """

    def __init__(self, folder: MapFolder,
                 patient: Callable[[], Client] = lambda: Client(LIST_SECONDS)) -> None:
        folder.sweep()
        self._folder = folder
        self._patient = patient
        # Stops for which there is a list, and its bytes; those with nothing left to give up.
        self._saved: dict[str, tuple[float | None, int]] = {}
        self._done: dict[str, float | None] = {}
        self._loads: dict[str, _Load] = {}
        self.reports: tuple[Swapped, ...] = ()
        self.problems: list[str] = []

    def step(self, client: Client, wanted: SwapPlan) -> bool:
        """Do some of it; tell whether there is more to do soon."""
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
        # What is not on its storage yet takes its time.
        return any(report.state in ("giving up", "coming back") and not report.note
                   for report in reports)

    @contextlib.contextmanager
    def _told(self, reports: list[Swapped], item: SwapOut | SwapIn) -> Iterator[None]:
        """Tell what goes wrong with a disk; it concerns no other."""
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
                note = f"{dirty >> 10} KiB are not on its storage yet" if dirty else ""
                return Swapped(row, item.device, item.tag, "giving up", size, note)
            self._done[row.key] = row.released
            LOG.info("tag %d (%s disk %s): what it had in the cache is given up%s", item.tag,
                     row.name, row.target, f", {size >> 20} MiB are listed" if size else "")
        return Swapped(row, item.device, item.tag, "swapped out" if size else "given up", size)

    def _list(self, item: SwapOut) -> int:
        """See to it, once for each stop, that there is a list; return the bytes that it has."""
        released, size = self._saved.get(item.row.key, (None, 0))
        if released != item.row.released:
            size = self._save(item)
            self._saved[item.row.key] = (item.row.released, size)
        return size

    def _read(self, row: Assignment) -> SavedMap | None:
        """Return what the file of a disk says; one that is no good is as none."""
        if self._folder.path(row.key).name not in self._folder.names():
            return None
        try:
            return self._folder.load(row.key)
        except MapFileError as error:
            LOG.warning("%s; it is made anew", error)
            return None

    def _save(self, item: SwapOut) -> int:
        """Write a list, if there is none for this stop; return the bytes that it has."""
        row = item.row
        old = self._read(row)
        if old and old.released == row.released:
            return old.size
        runs: list[CachedRun] = []
        with self._patient() as patient, _gone():
            runs = patient.cached(item.device.number, item.tag)
        if old and (old.sectors, old.volume) == (item.device.sectors, item.device.volume):
            # It was stopped again before all was back: that is not so hot.
            runs += [CachedRun(run.start, run.len, run.heat // 2) for run in old.runs]
        saved = SavedMap(row.key, item.device.sectors, item.device.volume, row.released or 0.0,
                         tidy(runs))
        if saved.runs:
            self._folder.save(saved)
            LOG.info("tag %d (%s disk %s): %d MiB in %d runs are listed", item.tag, row.name,
                     row.target, saved.size >> 20, len(saved.runs))
        return saved.size

    def _drop(self, client: Client, item: SwapOut) -> tuple[int, int]:
        """Give up some; return the bytes that are left, and those of them that are dirty."""
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
                load.left.clear()  # its mode has no cache any more
            elif error.errno != errno.EBUSY:
                raise
        if load.left or waiting:
            return [Swapped(row, item.device, item.tag, "coming back", load.size)]
        LOG.info("tag %d (%s disk %s): what it had in the cache is back, as far as there was "
                 "room for its %d MiB", item.tag, row.name, row.target, load.size >> 20)
        self._folder.remove(self._folder.path(row.key).name)
        del self._loads[row.key]
        return []

    def _begin(self, item: SwapIn) -> _Load | None:
        """Read a list; None when it is void."""
        try:
            saved = self._folder.load(item.row.key)
        except MapFileError as error:
            LOG.warning("%s; the cache begins empty", error)
            return None
        if (saved.sectors, saved.volume) != (item.device.sectors, item.device.volume):
            LOG.warning("tag %d (%s disk %s): its device was changed, the cache begins empty",
                        item.tag, item.row.name, item.row.target)
            return None
        runs = saved.runs if item.extents is None else within(saved.runs, item.extents)
        return _Load(sum(run.len for run in runs) * SECTOR_BYTES, batches(runs))


@contextlib.contextmanager
def _gone() -> Iterator[None]:
    """Ask the kernel about a cache that may have gone; then it has nothing of the disk."""
    try:
        yield
    except NetlinkError as error:
        if error.errno not in (errno.ENOENT, errno.ENODATA, errno.ENODEV):
            raise
