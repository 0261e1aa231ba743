# SPDX-License-Identifier: Apache-2.0
"""Which domains run, as far as libvirt and its hook have told."""

import dataclasses
import threading
import time
from collections.abc import Collection, Iterable

from vcache_agent.model import Domain, Phase


@dataclasses.dataclass(frozen=True)
class Entry:
    """A domain that runs or is about to.

    :param since: when it was told (monotonic)
    """

    domain: Domain
    phase: Phase
    since: float


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """The domains at one moment.

    :param complete: libvirt has listed them, others do not run
    :param defined: UUIDs of all domains libvirt knows, also stopped ones
    """

    entries: tuple[Entry, ...]
    complete: bool
    defined: frozenset[str] | None


class Inventory:
    """Collects what is told about domains; used from several threads.

    The hook tells of a domain before libvirt lists it, and that must not be
    taken for a domain that has gone: for a while, it counts.

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

    def told(self, domain: Domain, phase: Phase) -> None:
        """Note that a domain runs, or is about to."""
        with self._lock:
            self._ended.pop(domain.uuid, None)
            self._entries[domain.uuid] = Entry(domain, phase, time.monotonic())

    def ended(self, uuid: str) -> None:
        """Note that a domain no longer runs."""
        with self._lock:
            self._entries.pop(uuid, None)
            self._ended[uuid] = time.monotonic()

    def not_running(self, uuid: str, began: float) -> None:
        """Note that libvirt, asked at `began`, does not know a domain to run."""
        with self._lock:
            entry = self._entries.get(uuid)
            if entry is not None and not self._newer(entry, began):
                del self._entries[uuid]

    def listed(self, running: Iterable[Domain], defined: Iterable[str], began: float,
               unclear: Collection[str] = ()) -> None:
        """Take over libvirt's list.

        :param defined: UUIDs of all domains it knows
        :param began: when it was asked for (monotonic); what was told later
            is newer than the list
        :param unclear: UUIDs about which it is not known whether they run
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
        """Tell whether libvirt may not have known a domain yet that we were told of."""
        preparing = entry.phase is Phase.PREPARING and began - entry.since < self._grace
        return preparing or entry.since >= began

    def lost(self) -> None:
        """Note that libvirt cannot be asked: what is not listed may yet run."""
        with self._lock:
            self._complete = False

    def listed_since(self, moment: float) -> bool:
        """Tell whether libvirt has been asked for its list since a moment (monotonic)."""
        with self._lock:
            return self._listed_at >= moment

    def snapshot(self) -> Snapshot:
        """Return the domains as they are known now."""
        with self._lock:
            return Snapshot(tuple(self._entries.values()), self._complete, self._defined)
