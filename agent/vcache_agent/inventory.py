# SPDX-License-Identifier: Apache-2.0
"""The running domains, as reported by libvirt and its hook."""

import dataclasses
import threading
import time
from collections.abc import Collection, Iterable

from vcache_agent.model import Domain, Owner, Phase


@dataclasses.dataclass(frozen=True)
class Entry:
    """A domain that runs or is about to.

    :param since: monotonic time in seconds of what was reported
    """

    domain: Domain
    phase: Phase
    since: float


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """The domains at one moment.

    :param entries: domains that run or are about to
    :param complete: libvirt has listed the domains, so all others are stopped
    :param defined: UUIDs of all domains that libvirt knows, also stopped ones; None: unknown
    """

    entries: tuple[Entry, ...]
    complete: bool
    defined: frozenset[str] | None

    @property
    def instances(self) -> int:
        """Number of domains, without managed volumes (managed.py)."""
        return sum(entry.domain.owner is Owner.INSTANCE for entry in self.entries)


class Inventory:
    """Collects the reports about domains. Thread-safe.

    The hook reports a domain before libvirt lists it. So for some time such a domain
    counts, although it is not in libvirt's list.

    A message of the hook may arrive late: its process waits for the processor, and each
    message has its own thread. So a report has the time of what it reports, and one that
    is older than the newest of its domain changes nothing.

    :param grace: seconds that a domain may take from `prepare` to running
    """

    def __init__(self, grace: float) -> None:
        self._grace = grace
        self._lock = threading.Lock()
        self._entries: dict[str, Entry] = {}
        self._ended: dict[str, float] = {}
        self._complete = False
        self._listed_at = -1.0
        self._defined: frozenset[str] | None = None

    def told(self, domain: Domain, phase: Phase, at: float | None = None) -> bool:
        """Record that a domain runs or is about to.

        :param at: monotonic time in seconds at which it did; None: now
        :return: True if the domain or its phase has changed
        """
        with self._lock:
            at = _past(at)
            entry = self._entries.get(domain.uuid)
            if self._ended.get(domain.uuid, -1.0) > at or (entry is not None and entry.since > at):
                return False
            if entry is None and phase is Phase.RUNNING and self._listed_at > at:
                return False  # it ran before the list that does not have it
            self._ended.pop(domain.uuid, None)
            self._entries[domain.uuid] = Entry(domain, phase, at)
            return entry is None or (entry.domain, entry.phase) != (domain, phase)

    def ended(self, uuid: str, at: float | None = None) -> bool:
        """Record that a domain no longer runs.

        :param at: monotonic time in seconds at which it ended; None: now
        :return: False if it was started again since then
        """
        with self._lock:
            at = _past(at)
            entry = self._entries.get(uuid)
            if entry is not None and entry.since > at:
                return False
            self._entries.pop(uuid, None)
            self._ended[uuid] = max(at, self._ended.get(uuid, at))
            return True

    def not_running(self, uuid: str, began: float) -> None:
        """Record that a domain did not run at the time `began` (monotonic, in seconds)."""
        with self._lock:
            entry = self._entries.get(uuid)
            if entry is not None and not self._newer(entry, began):
                del self._entries[uuid]

    def listed(self, running: Iterable[Domain], defined: Iterable[str], began: float,
               unclear: Collection[str] = ()) -> None:
        """Record libvirt's list of domains.

        :param running: the running domains
        :param defined: UUIDs of all domains that libvirt knows
        :param began: monotonic time in seconds of the request for the list; later reports
            are newer than the list
        :param unclear: UUIDs of domains whose state could not be read
        """
        with self._lock:
            entries = {}
            for domain in running:
                if self._ended.get(domain.uuid, -1.0) < began:
                    entries[domain.uuid] = Entry(domain, Phase.RUNNING, began)
            for uuid, entry in self._entries.items():
                if entry.since >= began or (
                        uuid not in entries and (uuid in unclear or self._newer(entry, began))):
                    entries[uuid] = entry
            self._entries = entries
            self._ended = {uuid: at for uuid, at in self._ended.items() if at >= began}
            self._complete = True
            self._listed_at = began
            self._defined = frozenset(defined)

    def _newer(self, entry: Entry, began: float) -> bool:
        """Return True if a report may be newer than libvirt's state at `began`."""
        preparing = entry.phase is Phase.PREPARING and began - entry.since < self._grace
        return preparing or entry.since >= began

    def lost(self) -> None:
        """Record that libvirt is not connected: domains without an entry may run."""
        with self._lock:
            self._complete = False

    def listed_since(self, moment: float) -> bool:
        """Return True if the last list was requested at `moment` or later (monotonic)."""
        with self._lock:
            return self._listed_at >= moment

    def snapshot(self) -> Snapshot:
        """Return the domains that are known now."""
        with self._lock:
            return Snapshot(tuple(self._entries.values()), self._complete, self._defined)


def _past(at: float | None) -> float:
    """Return a time of a report; a time in the future would hide all later reports."""
    now = time.monotonic()
    return now if at is None else min(at, now)
