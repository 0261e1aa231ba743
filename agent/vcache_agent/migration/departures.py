# SPDX-License-Identifier: Apache-2.0
"""The source's part of a migration: write everything to the origins, and keep it so."""

import time
from collections.abc import Callable, Sequence

from oslo_log import log as logging

from vcache_agent.admin_client import NotHere
from vcache_agent.inventory import Inventory
from vcache_agent.migration import verdict
from vcache_agent.migration.messages import Answer, DiskSettings, Question, Settings
from vcache_agent.migration.moves import Moves, Role
from vcache_agent.migration.verdict import Sight
from vcache_agent.model import Device, Phase, Tag
from vcache_agent.netlink import spec
from vcache_agent.netlink.client import Client
from vcache_agent.netlink.errors import ModuleNotLoaded, NetlinkError
from vcache_agent.overrides import NONE
from vcache_agent.plan.state import DiskReport
from vcache_agent.store import Store
from vcache_agent.worker import Worker

LOG = logging.getLogger(__name__)

# Seconds between two looks at the kernel. A write that was on its way to the cache when the
# mode changed becomes dirty data afterwards, so two looks must find none.
_LOOK_AGAIN = 0.05


class Departures:
    """Answers questions about domains that run here.

    :param grace: seconds for which a domain keeps its limits without a migration
    :param kernel: returns a client for the kernel
    :param tell: takes a text for the log of events
    """

    def __init__(self, moves: Moves, inventory: Inventory, store: Store, worker: Worker, *,
                 grace: float, kernel: Callable[[], Client] = Client,
                 tell: Callable[[str], None] = LOG.info) -> None:
        self._moves = moves
        self._inventory = inventory
        self._store = store
        self._worker = worker
        self._grace = grace
        self._kernel = kernel
        self._tell = tell

    def ask(self, question: Question) -> Answer:
        """Prepare a domain for its migration; answer as late as the question allows.

        :raises NotHere: if it does not run here
        :raises OSError: if the migration cannot be recorded
        """
        deadline = time.monotonic() + question.seconds
        domain = question.domain
        running = {entry.domain.uuid for entry in self._inventory.snapshot().entries
                   if entry.phase is Phase.RUNNING}
        if domain not in running:
            raise NotHere(f"instance {domain} does not run on this host")
        self._moves.leave(domain)
        number = self._worker.kick()
        dirty, reason = 0, "its agent has not switched the tags yet"
        if self._worker.wait(number, max(0.0, deadline - time.monotonic())):
            dirty, reason = self._wait(domain, deadline)
        ready = not reason
        self._moves.note(domain, ready=ready, dirty=dirty > 0)
        self._tell(f"instance {domain} is about to leave: "
                   + (reason or "all its data is on its storage"))
        return Answer(domain, ready, dirty, reason, self._settings(domain))

    def saw(self, domain: str, sight: Sight) -> None:
        """Note libvirt's state of a domain that leaves; end its limits if it stays.

        :raises OSError: if that cannot be recorded
        """
        if not sight.active:
            self._moves.ended(domain)
            self._worker.kick()
            return
        move = self._moves.get(domain)
        if move is None or move.departure is None:
            return
        dirty = not move.departure.ready and self._left(domain)[0] > 0
        self._moves.note(domain, job=sight.migrating, dirty=dirty)
        move = self._moves.get(domain)
        if move is not None and move.departure is not None and verdict.is_over(
                move.departure, sight, time.monotonic(), self._grace):
            self._moves.remove(domain, Role.LEAVING)
            self._tell(f"instance {domain} stays on this host: its volumes have their modes again")
            self._worker.kick()

    def _wait(self, domain: str, deadline: float) -> tuple[int, str]:
        """Wait until nothing is dirty; return the dirty bytes and why they matter, or nothing."""
        clean = False
        while True:
            dirty, reason = self._left(domain)
            if not reason and clean:
                return 0, ""
            clean = not reason
            left = deadline - time.monotonic()
            if left <= 0:
                return dirty, reason or "its agent has to look once more"
            time.sleep(min(left, _LOOK_AGAIN))

    def _left(self, domain: str) -> tuple[int, str]:
        """Return the bytes of a domain's volumes that are not on their origins, and a reason.

        The reason is empty if there are none and there will not be any.
        """
        outcome = self._worker.outcome
        try:
            with self._kernel() as client:
                devices, tags = client.devices(), client.tags()
        except ModuleNotLoaded:
            return 0, ""  # so there is no cache
        except NetlinkError as error:
            return 0, str(error.strerror)
        if outcome.plan is None:
            return 0, f"the state of its tags is unknown: {outcome.problem}"
        reports = [report for report in outcome.plan.disks
                   if report.state.domain.uuid == domain and not report.state.source.readonly
                   and not report.managed]
        failed = next((text for report in reports if report.key is not None
                       and (text := outcome.errors.get(report.key))), "")
        dirty, reason = of_disks(reports, devices, tags)
        return dirty, failed or reason

    def _settings(self, domain: str) -> Settings:
        rows = [row for row in self._store.disks().values() if row.domain == domain]
        return Settings(
            self._store.overrides().get(domain, NONE),
            {row.current: DiskSettings(row.weight, row.mode) for row in rows
             if row.weight is not None or row.mode is not None})


def of_disks(reports: Sequence[DiskReport], devices: Sequence[Device],
             tags: Sequence[Tag]) -> tuple[int, str]:
    """Return the bytes that are not on the origins of some disks, and why, or nothing.

    :param reports: the decisions about the disks
    """
    by_number = {device.number: device for device in devices}
    modes = {(tag.device, tag.id): tag.mode for tag in tags}
    dirty, reasons = 0, []
    for report in reports:
        target = report.state.source.target
        if report.state.unknown and report.state.source.kind == "block":
            reasons.append(f"disk {target}: {report.state.reason}")
        device = by_number.get(report.device) if report.device is not None else None
        if device is None or not report.volume or report.key is None:
            continue  # a file, or not in a cache
        # All data of the device is the disk's, whichever tag it has.
        if device.cache_dirty_bytes:
            dirty += device.cache_dirty_bytes
            reasons.append(f"disk {target} is being written to its storage")
        elif modes.get(report.key) is spec.Mode.WRITEBACK:
            reasons.append(f"disk {target} is still in mode writeback")
    return dirty, "; ".join(reasons)
