# SPDX-License-Identifier: Apache-2.0
"""A bounded log of events: the kernel's events, decisions, and changes by operators."""

import dataclasses
import secrets
import threading
import time
from collections import Counter, deque

from vcache_agent.model import DeviceNumber
from vcache_agent.netlink import spec


@dataclasses.dataclass(frozen=True)
class Event:
    """One event.

    :param sequence: its number, from 1, without gaps
    :param wall: Unix time in seconds
    :param kind: one word, such as ``origin-error``, ``tag-set`` or ``pass-failed``
    :param device: number of the mapped device, or empty
    :param tag: the tag; None: the event concerns no single tag
    :param disk: the disk as UUID:TARGET, or empty
    """

    sequence: int
    wall: float
    kind: str
    text: str
    device: str = ""
    tag: int | None = None
    disk: str = ""


def kind_of(kind: spec.EventKind) -> str:
    """Return the kind of an event of the kernel, which is its name in the specification."""
    return kind.name.lower().replace("_", "-")


class EventLog:
    """Keeps the newest events. Thread-safe; no method blocks.

    :param most: number of events that are kept
    """

    def __init__(self, most: int = 2000) -> None:
        #: Identifies this log; sequence numbers begin again with each start of the agent.
        self.id = secrets.token_hex(8)
        self._lock = threading.Lock()
        self._events: deque[Event] = deque(maxlen=most)
        self._sequence = 0
        self._counts: Counter[str] = Counter()

    def add(self, kind: str, text: str, *, device: DeviceNumber | None = None,
            tag: int | None = None, disk: str = "") -> None:
        """Append an event."""
        with self._lock:
            self._sequence += 1
            self._counts[kind] += 1
            self._events.append(Event(self._sequence, time.time(), kind, text,
                                      str(device) if device else "", tag, disk))

    def after(self, sequence: int) -> tuple[list[Event], int]:
        """Return the events after a number, and how many of them are no longer kept."""
        with self._lock:
            found = [event for event in self._events if event.sequence > sequence]
            return found, max(0, self._sequence - max(sequence, 0) - len(found))

    @property
    def counts(self) -> dict[str, int]:
        """The number of events by kind, including those that are no longer kept."""
        with self._lock:
            return dict(self._counts)
