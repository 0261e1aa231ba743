# SPDX-License-Identifier: Apache-2.0
"""Reads how tags share the drives that understand them, and sets their weights.

The drive is the truth: each visit reads what its tags have, and changes only what differs. So it
does not matter whether the agent was restarted, or the drive has forgotten all weights.

A command has the timeout of the driver (60 s by default), so each visit has a thread of its own,
and nobody waits for it.
"""

import dataclasses
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from oslo_log import log as logging

from vcache_agent import sysfs
from vcache_agent.drive import tag_shares, weights
from vcache_agent.drive.tag_shares import SharesError, TagShare
from vcache_agent.drive.weights import Drive
from vcache_agent.model import Device, DeviceNumber
from vcache_agent.netlink import spec
from vcache_agent.observe.sample import Sample
from vcache_agent.sysfs import NvmeDrive

LOG = logging.getLogger(__name__)

# Seconds between two checks of the kernel's tags, and between two visits of a drive whose tags
# have not changed: so long may a drive be without weights after it has lost its power.
_LOOK = 1.0
_PERIOD = 5.0
# Age in seconds from which a sample says nothing about the tags that there are.
_MAX_AGE = 15.0
_STOP_SECONDS = 1.0


@dataclasses.dataclass(frozen=True)
class Reading:
    """The result of a visit.

    :param at: monotonic time in seconds
    :param shares: what the tags have that the kernel has on the drive
    :param problem: why the drive could not be read, or refused a weight, or empty
    """

    drive: Drive
    at: float
    shares: tuple[TagShare, ...] = ()
    problem: str = ""


class _Visit:
    """A visit of a drive, in a thread."""

    def __init__(self, drive: Drive, work: Callable[[], None]) -> None:
        self.drive = drive
        self.began = time.monotonic()
        self.thread = threading.Thread(target=work, name=f"drive-{drive.name}", daemon=True)
        self.thread.start()

    @property
    def running(self) -> bool:
        """The drive has not answered yet."""
        return self.thread.is_alive()


class DriveWatch:
    """Visits the drives with tags.

    :param newest: returns the newest sample of the kernel; None: there is none yet
    :param set_weights: give the tags in the drives the weights of the kernel's tags
    :param root: path of /sys/dev/block
    """

    def __init__(self, newest: Callable[[], Sample | None], *, set_weights: bool,
                 root: Path = sysfs.BLOCK) -> None:
        self._newest = newest
        self._weights = set_weights
        self._root = root
        self._visits: dict[str, _Visit] = {}
        self._readings: dict[str, Reading] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="drives", daemon=True)

    @property
    def readings(self) -> tuple[Reading, ...]:
        """The newest results of all drives that have answered."""
        return tuple(self._readings.values())

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread. The drives keep the weights, and visits are not waited for."""
        self._stopping.set()
        self._thread.join(_STOP_SECONDS)

    def _run(self) -> None:
        while not self._stopping.wait(_LOOK):
            try:
                self.step()
            except Exception:  # the next step may succeed
                LOG.exception("cannot look after the tags of drives")

    def step(self) -> None:
        """Begin the visits that are due."""
        sample = self._newest()
        if sample is None or time.monotonic() - sample.monotonic > _MAX_AGE:
            return
        if not self._visits and not any(device.isolation is spec.Isolation.TAGGED
                                        for device in sample.devices):
            return
        found = weights.drives(sample.devices, sample.tags, self._places(sample.devices))
        for key in self._visits.keys() - found.keys():
            self._leave(key)
        for key, drive in found.items():
            if drive.tagged and self._due(key, drive):
                self._visit(key, drive)

    def finish(self) -> None:
        """Wait for the visits that are under way; for tests."""
        for visit in list(self._visits.values()):
            visit.thread.join()

    def _places(self, devices: Sequence[Device]) -> dict[DeviceNumber, NvmeDrive]:
        found = {}
        for device in devices:
            place = self._place(device.origin)
            if place is not None:
                found[device.number] = place
        return found

    def _place(self, origin: str) -> NvmeDrive | None:
        try:
            return sysfs.nvme_drive(sysfs.number(origin), self._root)
        except ValueError:
            return None

    def _due(self, key: str, drive: Drive) -> bool:
        last = self._visits.get(key)
        if last is None:
            return True
        return not last.running and (
            last.drive != drive or time.monotonic() - last.began >= _PERIOD)

    def _leave(self, key: str) -> None:
        """Remove the weights of a drive that no device uses any more; then forget it."""
        last = self._visits[key]
        if last.running:
            return
        if last.drive.weights:
            self._visit(key, weights.without_tags(last.drive))
        else:
            del self._visits[key]
            self._readings.pop(key, None)

    def _visit(self, key: str, drive: Drive) -> None:
        self._visits[key] = _Visit(drive, lambda: self._work(key, drive))

    def _work(self, key: str, drive: Drive) -> None:
        """Visit a drive; runs in a thread of its own."""
        place = self._place(drive.origin)
        if place is None or place.subsystem != key:
            return  # the origin has disappeared, or is another drive now
        path = f"/dev/{sysfs.name(drive.origin, self._root)}"
        before = self._readings.get(key)
        try:
            shares, problem = self._share(drive, path)
        except SharesError as error:
            if not self._weights:
                return  # it has tags, but does not tell how they share it
            shares, problem = [], str(error)
        except OSError as error:
            shares, problem = [], f"{path}: {error.strerror}"
        self._readings[key] = Reading(drive, time.monotonic(), tuple(
            share for share in shares if share.tag in drive.names), problem)
        # Nobody misses the weights of a drive that no device uses any more.
        if problem and drive.names and (before is None or before.problem != problem):
            LOG.error("drive %s: %s: %s", drive.name, "its tags do not have their weights"
                      if self._weights else "there are no metrics of its tags", problem)

    def _share(self, drive: Drive, path: str) -> tuple[list[TagShare], str]:
        """Return what the tags of a drive have, and why some lack their weight, or nothing."""
        shares = tag_shares.read_shares(path)
        changes = weights.changes(drive, shares) if self._weights else ()
        if not changes:
            return shares, ""
        refused = tag_shares.set_weights(path, changes)
        made = [change for change in changes if change.tag not in refused]
        if made:
            LOG.info("drive %s: weights of its tags: %s", drive.name,
                     ", ".join(f"{tag}={weight}" for tag, weight in made))
        problem = next(iter(refused.values()), "")
        if len(refused) > 1:
            problem += f", and {len(refused) - 1} more tags"
        return tag_shares.read_shares(path), problem
