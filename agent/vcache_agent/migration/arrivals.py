# SPDX-License-Identifier: Apache-2.0
"""The destination's part of a migration: ask the source, keep the cache empty, take over.

Only the hook's threads wait here. The question begins with the hook's `migrate`, so that
the answer may be there when libvirt calls `prepare`.
"""

import dataclasses
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from oslo_log import log as logging

from nova_vcache.extra_specs import Mode
from vcache_agent.admission import specs_of
from vcache_agent.hook_server import Refused
from vcache_agent.migration import relay, verdict
from vcache_agent.migration.messages import Answer, Question, Settings
from vcache_agent.migration.moves import Moves, Role
from vcache_agent.model import Device, Domain, Tag
from vcache_agent.netlink import spec
from vcache_agent.netlink.client import Client
from vcache_agent.netlink.errors import ModuleNotLoaded, NetlinkError
from vcache_agent.plan.state import DiskReport
from vcache_agent.store import Store
from vcache_agent.worker import Worker

LOG = logging.getLogger(__name__)

# Most questions at the same time.
_MOST = 32
_LOOK_AGAIN = 0.02


class _Pending:
    """A question that was sent."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.answer: Answer | str = "no answer from the source host within the time limit"


@dataclasses.dataclass(frozen=True)
class Policy:
    """Settings of a destination; see conf.py.

    :param socket: the relay's socket; None: there is no relay
    :param wait: seconds for which `prepare` waits
    :param accept_unanswered: accept a domain if the source does not answer
    :param expire: seconds after which a domain that does not run does not arrive any more
    """

    socket: Path | None
    wait: float
    accept_unanswered: bool = False
    expire: float = 120.0


class Arrivals:
    """Receives domains from other hosts.

    :param kernel: returns a client for the kernel
    :param tell: takes a text for the log of events
    """

    def __init__(self, moves: Moves, store: Store, worker: Worker, policy: Policy, *,
                 kernel: Callable[[], Client] = Client,
                 tell: Callable[[str], None] = LOG.info) -> None:
        self._moves = moves
        self._store = store
        self._worker = worker
        self._policy = policy
        self._kernel = kernel
        self._tell = tell
        self._lock = threading.Lock()
        self._asked: dict[str, _Pending] = {}

    @property
    def wait(self) -> float:
        """Seconds for which `prepare` waits."""
        return self._policy.wait

    def begin(self, domain: Domain) -> None:
        """Record a domain that comes from another host, and ask there. Does not wait.

        A domain that requests nothing must not wait for an answer either.

        :raises OSError: if it cannot be recorded
        """
        specs, problem = specs_of(domain.extra_specs)
        if specs.mode is Mode.NONE and not problem:
            return
        self._moves.arrive(domain.uuid)
        self._ask(domain.uuid)

    def prepare(self, domain: Domain, deadline: float) -> str:
        """Decide whether a domain that arrives or has once left may run; return a note.

        The domain is in the inventory already, so that the worker limits its modes.

        :param deadline: monotonic time of the decision
        :raises Refused: if its guest could read outdated data
        """
        move = self._moves.get(domain.uuid)
        if move is None or move.role is Role.LEAVING:
            return ""
        try:
            note = self._answered(domain, deadline) if move.role is Role.ARRIVING else ""
            self._await_empty(domain, deadline)
        except Refused as error:
            self._tell(f"instance {domain.uuid} must not run here: {error}")
            self._moves.remove(domain.uuid, Role.ARRIVING)
            raise
        if move.role is Role.LEFT:
            self._moves.remove(domain.uuid, Role.LEFT)
            self._worker.kick()
        return note

    def saw(self, domain: str, *, active: bool, landed: bool) -> None:
        """Note libvirt's state of a domain that arrives.

        :param active: QEMU runs
        :param landed: the guest no longer waits for its memory
        :raises OSError: if that cannot be recorded
        """
        move = self._moves.get(domain)
        if move is None or move.role is not Role.ARRIVING:
            return
        if landed:
            if move.settings is not None:
                self._adopt(domain, move.settings)
            self._moves.remove(domain, Role.ARRIVING)
            self._tell(f"instance {domain} runs here: its volumes have their modes")
            self._worker.kick()
        elif not active and time.monotonic() - move.since > self._policy.expire:
            self._moves.remove(domain, Role.ARRIVING)

    def _ask(self, domain: str) -> _Pending:
        """Send a question in a thread of its own."""
        pending = _Pending()
        with self._lock:
            # Answers that no `prepare` has taken are of migrations that have failed.
            if len(self._asked) >= _MOST:
                self._asked.pop(next(iter(self._asked)))
            self._asked[domain] = pending

        def run() -> None:
            try:
                if self._policy.socket is None:
                    pending.answer = "[migration] relay_socket is empty"
                else:
                    pending.answer = relay.ask(self._policy.socket,
                                               Question(domain, self._policy.wait))
            except relay.NoAnswer as error:
                pending.answer = str(error)
            finally:
                pending.done.set()

        threading.Thread(target=run, name="migration", daemon=True).start()
        return pending

    def _answered(self, domain: Domain, deadline: float) -> str:
        """Wait for the answer; return a note.

        :raises Refused: if it does not allow the migration
        """
        with self._lock:
            pending = self._asked.pop(domain.uuid, None)
        if pending is None:  # the agent was restarted meanwhile
            pending = self._ask(domain.uuid)
        pending.done.wait(max(0.0, deadline - time.monotonic()))
        answer = pending.answer
        note = verdict.decide(domain, answer,
                              accept_unanswered=self._policy.accept_unanswered)
        if isinstance(answer, Answer):
            self._moves.learn(domain.uuid, answer.settings)
        return note

    def _await_empty(self, domain: Domain, deadline: float) -> None:
        """Wait until the caches here have nothing of a domain's volumes.

        :raises Refused: if they have at the deadline, or have dirty data
        """
        specs, problem = specs_of(domain.extra_specs)
        shared = verdict.shared_disks(domain)
        if problem or not shared or specs.mode is Mode.NONE:
            return
        number = self._worker.kick()
        self._worker.wait(number, max(0.0, deadline - time.monotonic()))
        while True:
            reason = self._remains(domain.uuid, shared)
            if not reason:
                return
            if time.monotonic() >= deadline:
                raise Refused(f"{domain.name}: the cache of this host may have outdated data: "
                              f"{reason}; try again")
            self._worker.wait(self._worker.kick(), _LOOK_AGAIN)

    def _remains(self, domain: str, shared: Sequence[str]) -> str:
        """Return why a cache here may have data of a domain's volumes, or nothing."""
        outcome = self._worker.outcome
        try:
            with self._kernel() as client:
                devices, tags = client.devices(), client.tags()
        except ModuleNotLoaded:
            return ""  # so there is no cache
        except NetlinkError as error:
            return str(error.strerror)
        if outcome.plan is None:
            return f"the state of its tags is unknown: {outcome.problem}"
        reports = [report for report in outcome.plan.disks
                   if report.state.domain.uuid == domain and report.state.source.target in shared]
        if len(reports) < len(shared):
            return "its disks are not known yet"
        return cached([report for report in reports if not report.managed], devices, tags)

    def _adopt(self, domain: str, settings: Settings) -> None:
        """Take over the operator's settings of the source, which may also be none."""
        self._store.set_override(domain, settings.override)
        for row in self._store.disks().values():
            if row.domain != domain:
                continue
            disk = settings.disks.get(row.current)
            if (row.weight, row.mode) != ((disk.weight, disk.mode) if disk else (None, None)):
                self._store.set_tag(row.tag, {"weight": disk.weight if disk else None,
                                              "mode": disk.mode if disk else None})


def cached(reports: Sequence[DiskReport], devices: Sequence[Device],
           tags: Sequence[Tag]) -> str:
    """Return why a cache may have, or get, data of some volumes, or nothing.

    :param reports: the decisions about the volumes
    """
    by_number = {device.number: device for device in devices}
    for report in reports:
        target = report.state.source.target
        if report.state.unknown:
            return f"disk {target}: {report.state.reason}"
        device = by_number.get(report.device) if report.device is not None else None
        if device is None or not device.pool:
            continue
        if device.cache_dirty_bytes:
            return (f"disk {target}: {device.name} has {device.cache_dirty_bytes >> 10} KiB that "
                    "are not on its storage, from an earlier stay")
        if device.mode is not spec.Mode.WRITEBACK:
            return (f"disk {target}: {device.name} is in mode writethrough, so the agent cannot "
                    "disable its cache for the migration; attach it in mode writeback, and set "
                    "vcache:mode in the flavor")
        for tag in tags:
            if tag.device == device.number and tag.cached_bytes:
                return f"disk {target}: {tag.cached_bytes >> 10} KiB are not released yet"
            if (tag.device, tag.id) == report.key and tag.mode is not spec.Mode.FLUSH_ONLY:
                return f"disk {target} is not in mode flush-only yet"
    return ""
