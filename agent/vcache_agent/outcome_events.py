# SPDX-License-Identifier: Apache-2.0
"""The events that follow from the results of two passes in a row."""

import dataclasses
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from oslo_log import log as logging

from vcache_agent.events import EventLog
from vcache_agent.model import DeviceNumber, lanes_of
from vcache_agent.plan.actions import Action, DeleteTag, SetExtents, SetLanes, SetTag

if TYPE_CHECKING:
    from vcache_agent.plan.state import DiskReport, Orphan, Plan
    from vcache_agent.worker import Outcome

LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class News:
    """An event that is not in the log yet; the fields are those of events.Event."""

    kind: str
    text: str
    device: DeviceNumber | None = None
    tag: int | None = None
    disk: str = ""


def between(before: "Outcome", after: "Outcome") -> list[News]:
    """Return the events that the result of a pass adds to that of the previous one.

    A state that lasts, such as an action that fails in each pass, is one event.
    """
    return [*_passes(before, after), *_actions(before, after), *_errors(before, after),
            *_disks(before, after), *_orphans(before, after), *_objectives(before, after),
            *_restraints(before, after)]


def _passes(before: "Outcome", after: "Outcome") -> Iterator[News]:
    if after.problem and after.problem != before.problem:
        yield News("pass-failed", after.problem)
    elif before.problem and not after.problem:
        yield News("pass-ok", "the tags match the running domains as far as known")
    if before.snapshot.complete != after.snapshot.complete:
        yield News("libvirt-ok", "libvirt has listed the domains") if after.snapshot.complete \
            else News("libvirt-lost", "libvirt does not answer; the tags stay as they are")


def _actions(before: "Outcome", after: "Outcome") -> Iterator[News]:
    if after.plan is None:
        return
    old = set(_told(before.plan.actions)) if before.plan else set()
    for action in _told(after.plan.actions):
        if action not in old and (action.device, action.tag) not in after.errors:
            yield from _action(action)


def _told(actions: Iterable[Action]) -> Iterator[Action]:
    """Yield the actions that are events. Extents change too often, and have too many values."""
    return (action for action in actions if not isinstance(action, SetExtents))


def _action(action: Action) -> Iterator[News]:
    where = (action.device, action.tag)
    if isinstance(action, SetTag):
        parts = [f"weight {action.weight}"]
        if action.mode is not None:
            parts.append(f"mode {action.mode.name.lower().replace('_', '-')}")
        if action.cache_min is not None or action.cache_max is not None:
            parts.append(f"cache {action.cache_min or 0} to {action.cache_max or 'any'} bytes")
        if action.cgroups is not None:
            parts.append(f"{len(action.cgroups)} cgroups")
        yield News("tag-set", ", ".join(parts), *where, action.name)
    elif isinstance(action, SetLanes):
        lanes = ", ".join(map(str, lanes_of(action.lanes))) or "none"
        yield News("tag-lanes", f"dedicated lanes {lanes}", *where)
    elif isinstance(action, DeleteTag):
        yield News("tag-removed", "no domain uses it", *where)


def _errors(before: "Outcome", after: "Outcome") -> Iterator[News]:
    for key, text in after.errors.items():
        if before.errors.get(key) != text:
            yield News("tag-failed", text, *key)


def _disks(before: "Outcome", after: "Outcome") -> Iterator[News]:
    """Yield the disks that appear, disappear, or get another decision."""
    # Without a plan, nothing is known about the disks.
    if after.plan is None:
        return
    old = {item.state.label: item for item in before.plan.disks} if before.plan else {}
    new = {item.state.label: item for item in after.plan.disks}
    for label, item in new.items():
        if label not in old or _decided(item) != _decided(old[label]):
            yield News("disk", _decision(item), _device(item), item.tag, label)
    for label in old.keys() - new.keys():
        yield News("disk-gone", "its domain no longer runs, or no longer has it",
                   _device(old[label]), old[label].tag, label)


def _decided(item: "DiskReport") -> tuple[object, ...]:
    return _device(item), item.tag, item.mode, item.weight, item.note


def _decision(item: "DiskReport") -> str:
    name = item.state.domain.name
    note = f": {item.note}" if item.note else ""
    if item.tag is None:
        return f"domain {name}: untagged{note}"
    return f"domain {name}: tag {item.tag}, mode {item.mode}, weight {item.weight}{note}"


def _device(item: "DiskReport") -> DeviceNumber | None:
    return item.state.location.device if item.state.location else None


def _orphans(before: "Outcome", after: "Outcome") -> Iterator[News]:
    if after.plan is None:
        return
    old = {_orphan(item) for item in before.plan.orphans} if before.plan else set()
    for item in after.plan.orphans:
        if _orphan(item) not in old:
            yield News("orphan", item.reason, item.device, item.tag, item.name)


def _objectives(before: "Outcome", after: "Outcome") -> Iterator[News]:
    """Yield the objectives that are missed, or for another cause, and those met again."""
    if after.plan is None:
        return
    old = before.plan.pools.history.missed if before.plan else {}
    new = after.plan.pools.history.missed
    known = {item.key for item in after.plan.disks}
    for key, verdicts in new.items():
        had = {(item.objective, item.cause, item.tag) for item in old.get(key, ())}
        for verdict in verdicts:
            if (verdict.objective, verdict.cause, verdict.tag) not in had:
                yield News("slo-missed", verdict.text, *key)
    for key in old.keys() - new.keys():
        if key in known:
            yield News("slo-met", "all its objectives are met", *key)


def _restraints(before: "Outcome", after: "Outcome") -> Iterator[News]:
    """Yield the neighbours that are limited now, and those that no longer are."""
    old = {(item.neighbour, item.means, item.problem) for item in before.restraints}
    for item in after.restraints:
        if (item.neighbour, item.means, item.problem) not in old:
            victims = ", ".join(f"{tag} on device {device}"
                                for device, tag in sorted(item.victims))
            yield News("slo-limited", f"{item.text}, because of an objective of tag {victims}",
                       *item.neighbour)
    limited = {item.neighbour for item in after.restraints}
    for neighbour in sorted({item.neighbour for item in before.restraints} - limited):
        yield News("slo-released", "it has no limit any more", *neighbour)


def _orphan(item: "Orphan") -> tuple[object, ...]:
    return item.device, item.tag, item.reason


class Journal:
    """Logs the events of each pass, and counts passes; the listener of the worker.

    :param log: receives the events
    """

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._plan: Plan | None = None
        self._counts = {True: 0, False: 0}
        self._ended = 0.0

    @property
    def counts(self) -> dict[bool, int]:
        """The number of passes by success."""
        return dict(self._counts)

    @property
    def ended(self) -> float:
        """Unix time in seconds of the end of the last pass; 0: none has ended."""
        return self._ended

    def passed(self, before: "Outcome", after: "Outcome") -> None:
        """Record the result of a pass. Never raises: the worker must continue.

        :param before: the result of the previous pass
        """
        self._ended = time.time()
        self._counts[not after.problem] += 1
        if after is before:
            return  # the pass had nothing to decide
        try:
            # A failed pass has no plan. The next one is compared with the last known plan.
            for news in between(dataclasses.replace(before, plan=self._plan), after):
                self._log.add(news.kind, news.text, device=news.device, tag=news.tag,
                              disk=news.disk)
        except Exception:
            LOG.exception("the events of a pass are incomplete")
        if after.plan is not None:
            self._plan = after.plan
