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

With ``swap_mb``, the data is copied to a file as well, before it is released, and returns from
there (:mod:`vcache_agent.swapdata`). While the pool has enough free space, it stays in the cache
after that.

The files are the persistent state. Each file records the stop for which it was
written. While the file for the current stop exists, the blocks left in the cache only
have to be released. The file is removed after all its blocks have been requested. If
the agent is killed before that, it starts again, and the kernel skips blocks that are
already cached.
"""

import contextlib
import dataclasses
import errno
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from oslo_log import log as logging

from vcache_agent.mapfile import (
    MapFileError,
    MapFolder,
    SavedMap,
    batches,
    tidy,
    within,
)
from vcache_agent.model import SECTOR_BYTES, Device, DiskId, Extents
from vcache_agent.netlink.client import Client
from vcache_agent.netlink.errors import NetlinkError
from vcache_agent.netlink.spec import CachedRun
from vcache_agent.records import DiskRow, LayerRow
from vcache_agent.swapdata import DataSettings, DataSwap

if TYPE_CHECKING:
    # No vcache command needs the decision, which takes long to load.
    from vcache_agent.plan.state import DiskReport, Plan

LOG = logging.getLogger(__name__)

# Release requests for one disk in one pass, because other disks wait for the pass.
_DROPS = 16
# Most bytes of requested blocks that wait in the kernel for one disk. The hottest blocks
# are requested first.
_WAITING_BYTES = 64 << 20
# Timeout in seconds of the list of a disk's cached blocks.
LIST_SECONDS = 60.0


@dataclasses.dataclass(frozen=True)
class CachedDisk:
    """A disk or a shared layer whose blocks are in a cache.

    :param key: identity of the disk on its device, for the list of its blocks
    :param name: name of its domain; of a shared layer: of its file
    :param domain: UUID of its domain; empty for a shared layer
    :param target: name of the disk in its domain; empty for a shared layer
    :param released: Unix time since which no domain uses it; None: in use
    """

    key: str
    name: str
    domain: str = ""
    target: str = ""
    released: float | None = None


@dataclasses.dataclass(frozen=True)
class SwapOut:
    """Save the list of a stopped disk's cached blocks, release the blocks, or both.

    :param tag: tag number of the disk on the device
    :param row: the disk
    :param save: save the list
    :param due: release the blocks
    :param stays: do not release blocks whose data is in a file: the pool has enough free space
    """

    device: Device
    tag: int
    disk: CachedDisk
    save: bool
    due: bool
    stays: bool = False


@dataclasses.dataclass(frozen=True)
class SwapIn:
    """Load the saved blocks of a disk into the cache.

    :param extents: the disk's extents on the device; None: the whole device
    """

    device: Device
    tag: int
    disk: CachedDisk
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

    :param state: ``listed``, ``copying``, ``kept``, ``releasing``, ``released``,
        ``swapped out``, ``loading`` or ``failed``
    :param size: bytes in the saved list; while they are copied: bytes so far
    :param note: reason of a failure or delay, or empty
    """

    disk: CachedDisk
    device: Device
    tag: int
    state: str
    size: int = 0
    note: str = ""


def key_of(row: DiskRow) -> str:
    """Return the identity of a disk on its device."""
    return f"disk:{row.device}:{row.domain}:{row.target}"


def plan(rows: Mapping[DiskId, DiskRow], layers: Mapping[str, LayerRow],
         devices: Sequence[Device], decided: "Plan", folder: MapFolder, names: Collection[str], *,
         complete: bool, now: float, after: float,
         roomy: Callable[[str], bool] = lambda _: False) -> SwapPlan:
    """Return the pending work.

    :param rows: all known disks; a file is removed when its disk is not among them
    :param layers: all known layers by key
    :param decided: the decision about the disks of the domains that run or are about to
    :param names: names of the existing files
    :param complete: libvirt has listed the running domains
    :param now: Unix time in seconds
    :param after: seconds from the stop of a domain to the release of its blocks
    :param roomy: has a pool, by its device number, so much free space that data in a file may
        stay in the cache as well?
    """
    by_name = {device.name: device for device in devices if device.pool}
    void = set(names)
    if void:
        void -= {folder.path(key_of(row)).name for row in rows.values()}
    back: dict[str, SwapIn] = {}
    for report in decided.disks:
        item = _back(report, rows, by_name)
        # A disk of several domains is loaded once.
        if item is not None and folder.path(item.disk.key).name in names:
            back.setdefault(item.disk.key, item)
    if not complete:
        return SwapPlan((), tuple(back.values()), frozenset(void))
    # The data of a stopped disk may be read by others, as their backing layer.
    read = {layer.owner for key in decided.read_layers if (layer := layers.get(key))}
    out = []
    for row in rows.values():
        device = by_name.get(row.device)
        if row.released is None or device is None or (device.number, row.tag) in decided.used:
            continue
        if not row.persist and folder.path(key_of(row)).name in names:
            void.add(folder.path(key_of(row)).name)
        due = now - row.released >= after and row.id not in read \
            and row.layer not in decided.read_layers
        if row.persist or due:
            stays = row.persist and due and roomy(device.pool)
            out.append(SwapOut(device, row.tag, _disk(row), row.persist, due, stays))
    out += _shared(layers.values(), by_name, decided, now - after)
    return SwapPlan(tuple(out), tuple(back.values()), frozenset(void))


def _disk(row: DiskRow) -> CachedDisk:
    return CachedDisk(key_of(row), row.name, row.domain, row.target, row.released)


def _back(report: "DiskReport", rows: Mapping[DiskId, DiskRow],
          by_name: Mapping[str, Device]) -> SwapIn | None:
    """Return the loading of a disk's blocks; None if it has no cache or is not located."""
    row = rows.get(report.state.id)
    if report.tag is None or row is None:
        return None
    device = by_name.get(row.device)
    if device is None or report.device != device.number:
        return None
    if report.volume:
        return SwapIn(device, report.tag, _disk(row), None)
    if report.extents is None:
        return None
    return SwapIn(device, report.tag, _disk(row), report.extents)


def _shared(layers: Iterable[LayerRow], by_name: Mapping[str, Device], decided: "Plan",
            since: float) -> Iterator[SwapOut]:
    """Yield the release of the blocks of layers that no domain has used since a time."""
    for row in layers:
        device = by_name.get(row.device)
        if row.tag is None or row.released is None or row.released > since or device is None \
                or row.key in decided.read_layers or (device.number, row.tag) in decided.used:
            continue
        name = os.path.basename(row.path)
        yield SwapOut(device, row.tag,
                      CachedDisk(f"base:{row.device}:{row.key}", name, released=row.released),
                      save=False, due=True)


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
    :param data: settings of the copies of data
    """

    def __init__(self, folder: MapFolder,
                 patient: Callable[[], Client] = lambda: Client(LIST_SECONDS),
                 data: DataSettings | None = None) -> None:
        folder.sweep()
        self._folder = folder
        self._patient = patient
        self._data = DataSwap(data or DataSettings(), patient)
        self._data.sweep(folder.names())
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
        back = {item.disk.key for item in wanted.back}
        self._data.keep_only({item.disk.key for item in wanted.out}, back)
        self._loads = {key: load for key, load in self._loads.items() if key in back}
        stopped = {item.disk.key for item in wanted.out}
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
        return any(report.state in ("copying", "releasing", "loading") and not report.note
                   for report in reports)

    @contextlib.contextmanager
    def _told(self, reports: list[Swapped], item: SwapOut | SwapIn) -> Iterator[None]:
        """Record an error of one disk, and continue with the other disks."""
        try:
            yield
        except (OSError, MapFileError) as error:
            text = str(error.strerror if isinstance(error, OSError) else error)
            self.problems.append(f"cache of {item.disk.name} disk {item.disk.target}: {text}")
            reports.append(Swapped(item.disk, item.device, item.tag, "failed", note=text))

    def _remove(self, name: str) -> None:
        try:
            self._data.forget(name)
            self._folder.remove(name)
        except OSError as error:
            self.problems.append(f"{name}: {error.strerror}")

    def _out(self, client: Client, item: SwapOut) -> Swapped:
        disk = item.disk
        size = self._list(item) if item.save else 0
        if not item.due:
            return Swapped(disk, item.device, item.tag, "listed", size)
        copy, done, why = self._copy(item) if size else ("off", 0, "")
        if copy == "copying":
            return Swapped(disk, item.device, item.tag, "copying", done)
        if copy == "copied" and item.stays:
            return Swapped(disk, item.device, item.tag, "kept", size)
        if self._done.get(disk.key, -1.0) != disk.released:
            left, dirty = self._drop(client, item)
            if left:
                note = f"{dirty >> 10} KiB are still dirty" if dirty else ""
                return Swapped(disk, item.device, item.tag, "releasing", size, note)
            self._done[disk.key] = disk.released
            LOG.info("tag %d (%s disk %s): released its cached blocks%s", item.tag,
                     disk.name, disk.target, f", {size >> 20} MiB are listed" if size else "")
        return Swapped(disk, item.device, item.tag, "swapped out" if size else "released", size,
                       f"positions only: {why}" if why else "")

    def _copy(self, item: SwapOut) -> tuple[str, int, str]:
        """Copy the data to a file, after all of it is clean."""
        if self._done.get(item.disk.key, -1.0) == item.disk.released:
            return "off", 0, ""  # nothing is left to copy
        return self._data.out(item.disk.key, item.device, item.tag, item.disk.released or 0.0)

    def _list(self, item: SwapOut) -> int:
        """Ensure that a list for the current stop exists; return the bytes in the list."""
        released, size = self._saved.get(item.disk.key, (None, 0))
        if released != item.disk.released:
            size = self._save(item)
            self._saved[item.disk.key] = (item.disk.released, size)
        return size

    def _read(self, disk: CachedDisk) -> SavedMap | None:
        """Return the saved list of a disk; None if there is none or it is invalid."""
        if self._folder.path(disk.key).name not in self._folder.names():
            return None
        try:
            return self._folder.load(disk.key)
        except MapFileError as error:
            LOG.warning("%s; writing a new list", error)
            return None

    def _save(self, item: SwapOut) -> int:
        """Save a list, unless one exists for this stop; return the bytes in the list."""
        disk = item.disk
        old = self._read(disk)
        if old and old.released == disk.released:
            return old.size
        runs: list[CachedRun] = []
        with self._patient() as patient, _gone():
            runs = patient.cached(item.device.number, item.tag)
        if old and (old.sectors, old.volume) == (item.device.sectors, item.device.volume):
            # The domain stopped before all blocks of the old list were loaded. Keep these
            # blocks, with half their heat.
            runs += [CachedRun(run.start, run.len, run.heat // 2) for run in old.runs]
        saved = SavedMap(disk.key, item.device.sectors, item.device.volume, disk.released or 0.0,
                         tidy(runs))
        if saved.runs:
            self._folder.save(saved)
            LOG.info("tag %d (%s disk %s): saved the list of its cached blocks, %d MiB in %d runs",
                     item.tag, disk.name, disk.target, saved.size >> 20, len(saved.runs))
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
        disk = item.disk
        state, _, size = self._data.back(disk.key, item.device, item.tag, item.extents)
        if state == "loading":
            return [Swapped(disk, item.device, item.tag, "loading", size)]
        # What the data did not have is read from the origin; the kernel skips the rest.
        load = self._loads.get(disk.key)
        if load is None:
            load = self._begin(item)
            if load is None:
                self._folder.remove(self._folder.path(disk.key).name)
                return []
            self._loads[disk.key] = load
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
            return [Swapped(disk, item.device, item.tag, "loading", load.size)]
        LOG.info("tag %d (%s disk %s): loaded the saved blocks into the cache, %d MiB or as much "
                 "as fits", item.tag, disk.name, disk.target, load.size >> 20)
        self._folder.remove(self._folder.path(disk.key).name)
        del self._loads[disk.key]
        return []

    def _begin(self, item: SwapIn) -> _Load | None:
        """Read a list; return None if it is invalid or from another volume."""
        try:
            saved = self._folder.load(item.disk.key)
        except MapFileError as error:
            LOG.warning("%s; the disk starts with an empty cache", error)
            return None
        if (saved.sectors, saved.volume) != (item.device.sectors, item.device.volume):
            LOG.warning("tag %d (%s disk %s): its device has another size or volume number; the "
                        "disk starts with an empty cache", item.tag, item.disk.name,
                        item.disk.target)
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
