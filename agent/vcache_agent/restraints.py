# SPDX-License-Identifier: Apache-2.0
"""Sets and removes the limits of neighbours, so that none outlives its reason.

Before a value of the kernel is changed, the original is saved in the store. So whatever ends the
agent, the next one restores it. A value that somebody else has set meanwhile stays as it is.
"""

import dataclasses
import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from oslo_log import log as logging

from vcache_agent import knobs
from vcache_agent.decide.restraint import Means, Rates, Restraint
from vcache_agent.knobs import DestageRate, Gone, IoMax, Knob, KnobError
from vcache_agent.model import Device
from vcache_agent.observe.sample import TagKey
from vcache_agent.plan.state import DiskReport
from vcache_agent.store import Store, is_refusal

LOG = logging.getLogger(__name__)

_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclasses.dataclass(frozen=True)
class Saved:
    """A limit that the agent has changed.

    :param original: the value before
    :param ours: the last two values that the agent has set, or was about to set
    """

    knob: Knob
    original: str
    ours: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class InForce:
    """A limit of a neighbour, for operators.

    :param neighbour: device and number of its tag
    :param victims: the tags for which it is limited
    :param limit: bytes per second
    :param problem: why it is not in force, or empty
    """

    neighbour: TagKey
    victims: frozenset[TagKey]
    means: Means
    limit: Rates
    problem: str = ""

    @property
    def text(self) -> str:
        """The limit as words."""
        names = ("reads", "destage" if self.means is Means.DESTAGE else "writes")
        found = " and ".join(f"{name} to {rate / (1 << 20):.1f} MiB/s"
                             for name, rate in zip(names, self.limit, strict=True) if rate)
        return f"{found}, not in force: {self.problem}" if self.problem else found


def wanted(active: Mapping[TagKey, Restraint], disks: Sequence[DiskReport],
           devices: Iterable[Device], paths: Mapping[str, str]) -> list[tuple[Knob, InForce]]:
    """Return which limits neighbours are to have.

    :param active: the decision
    :param disks: the disks with their tags
    :param paths: cgroups of domains, by UUID
    """
    names = {device.number: device.name for device in devices}
    found: list[tuple[Knob, InForce]] = []
    for key, restraint in active.items():
        for means, limit in restraint.limits():
            knobs_of: list[Knob] = []
            if means is Means.DESTAGE:
                knobs_of += [DestageRate(names[key[0]], str(key[0]))] if key[0] in names else []
            else:
                knobs_of += [IoMax(paths[disk.state.domain.uuid], disk.state.cgroup, str(key[0]))
                             for disk in disks if disk.key == key
                             and disk.state.cgroup is not None
                             and disk.state.domain.uuid in paths]
            found += [(knob, InForce(key, restraint.victims, means, limit)) for knob in knobs_of]
    return found


class Restrainer:
    """Keeps the limits of the kernel as they are wanted; only for the worker's thread.

    :param store: has the original values
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._boot = _BOOT.read_text().strip()
        self._saved: Mapping[Knob, Saved] | None = None
        #: The values that this object has set.
        self._set: dict[Knob, str] = {}
        #: Why limits could not be set or removed in the last step.
        self.problems: list[str] = []

    def step(self, wishes: Iterable[tuple[Knob, InForce]]) -> tuple[InForce, ...]:
        """Set and remove limits; return those that are wanted.

        :param wishes: see :func:`wanted`
        """
        self.problems = []
        by_knob: dict[Knob, list[InForce]] = {}
        for knob, wish in wishes:
            by_knob.setdefault(knob, []).append(wish)
        for one in [one for knob, one in self._load().items() if knob not in by_knob]:
            self._guarded(self._restore, one)
        found = []
        for knob, limits in by_knob.items():
            # Two disks of an instance on one device have one limit: the lower one.
            lowest = Rates(*(min(filter(None, rates), default=0.0) for rates in zip(
                *(one.limit for one in limits), strict=True)))
            problem = self._guarded(self._limit, knob, lowest)
            found += [dataclasses.replace(one, problem=problem) for one in limits]
        return tuple(found)

    def release(self) -> None:
        """Remove all limits."""
        self.step(())

    def _guarded(self, work: Callable[..., None], *arguments: Any) -> str:
        """Call a method; return the problem, or nothing."""
        try:
            work(*arguments)
        except KnobError as error:
            problem = str(error)
        except sqlite3.OperationalError as error:
            if not is_refusal(error):
                raise
            problem = f"the agent's state file: {error}"
        else:
            return ""
        self.problems.append(f"limits of neighbours: {problem}")
        return problem

    def _limit(self, knob: Knob, limit: Rates) -> None:
        try:
            old = self._load().get(knob) or Saved(knob, knob.read())
            value = knob.lowered(old.original, limit)
            if self._set.get(knob) == value:
                return
            # The value is saved before it is set, so that it counts as the agent's in any case.
            self._keep({**self._load(), knob: dataclasses.replace(
                old, ours=(*old.ours[-1:], value))})
            knob.write(value)
        except Gone:
            self._drop(knob)
            return
        self._set[knob] = value
        LOG.info("%s: %s instead of %s", knob, value, old.original)

    def _restore(self, saved: Saved) -> None:
        try:
            if saved.knob.read() in saved.ours:
                saved.knob.write(saved.original)
                LOG.info("%s: %s again", saved.knob, saved.original)
        except Gone:
            pass
        self._drop(saved.knob)

    def _load(self) -> Mapping[Knob, Saved]:
        if self._saved is None:
            self._saved = {one.knob: one for one in _decoded(self._store.limits(), self._boot)}
        return self._saved

    def _keep(self, saved: Mapping[Knob, Saved]) -> None:
        """Save which limits the agent has changed."""
        self._store.set_limits(_encoded(saved.values(), self._boot) if saved else None)
        self._saved = saved

    def _drop(self, knob: Knob) -> None:
        self._set.pop(knob, None)
        if knob in self._load():
            self._keep({key: one for key, one in self._load().items() if key != knob})


def _encoded(saved: Iterable[Saved], boot: str) -> str:
    return json.dumps({"boot": boot, "limits": [
        [one.knob.means, dataclasses.astuple(one.knob),  # type: ignore[call-overload]
         one.original, one.ours] for one in saved]})


def _decoded(text: str | None, boot: str) -> Iterator[Saved]:
    """Yield what was saved since the host has booted; a boot has removed all limits."""
    if text is None:
        return
    try:
        found = json.loads(text)
        if found["boot"] == boot:
            for means, fields, original, ours in found["limits"]:
                yield Saved(knobs.from_fields(means, fields), original, tuple(ours))
    except (KeyError, TypeError, ValueError) as error:
        LOG.error("the limits of neighbours in the state file cannot be read: %r; they stay until "
                  "their instances are restarted: %s", error, text[:400])
