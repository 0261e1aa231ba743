# SPDX-License-Identifier: Apache-2.0
"""What limits a neighbour that makes others miss their objectives: plain values."""

import dataclasses
import enum
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from vcache_agent.observe.sample import TagKey


class Means(enum.StrEnum):
    """What an operator may allow."""

    #: The rate of the destage of the neighbour's device.
    DESTAGE = "destage"
    #: ``io.max`` of the neighbour's cgroup.
    IO = "io"


class Rates(NamedTuple):
    """Bytes per second; in a limit, 0 is no limit."""

    read: float = 0.0
    write: float = 0.0


#: Good periods in a row before the first step back.
PATIENCE = 3


@dataclasses.dataclass(frozen=True)
class Restraint:
    """The limits of one neighbour.

    :param victims: tags that missed an objective because of it
    :param began: its rates when it was blamed, in the directions that are limited; else 0
    :param least: what it is never limited below
    :param parts: part of `began` that is allowed now, by means, in the order of their use; empty:
        it is watched, and not limited
    :param good: good periods in a row since the last change
    :param patience: good periods before the next step back
    :param eased: the last change was a step back
    """

    victims: frozenset[TagKey]
    began: Rates
    least: Rates
    parts: tuple[tuple[Means, float], ...]
    good: int = 0
    patience: int = PATIENCE
    eased: bool = False

    def limits(self) -> Iterator[tuple[Means, Rates]]:
        """Yield the limit of each means that is in use."""
        for means, part in self.parts:
            yield means, Rates(
                self._limit(self.began.read, self.least.read, part)
                if means is Means.IO else 0.0,
                self._limit(self.began.write, self.least.write, part))

    @property
    def spent(self) -> bool:
        """True if the means that was added last cannot limit it further."""
        if not self.parts:
            return False
        *_, (_, limit) = self.limits()
        return all(not rate or rate <= least
                   for rate, least in zip(limit, self.least, strict=True))

    @staticmethod
    def _limit(began: float, least: float, part: float) -> float:
        return max(least, began * part) if began else 0.0


@dataclasses.dataclass(frozen=True)
class Restraints:
    """The state of the controller of a host.

    :param blamed: the neighbour that a tag blames, and for how many periods in a row
    :param active: the neighbours that are limited or watched
    """

    blamed: Mapping[TagKey, tuple[TagKey, int]] = dataclasses.field(default_factory=dict)
    active: Mapping[TagKey, Restraint] = dataclasses.field(default_factory=dict)

    @property
    def suspects(self) -> frozenset[TagKey]:
        """The tags that are blamed, limited or watched."""
        return frozenset(self.active) | {neighbour for neighbour, _ in self.blamed.values()}

    @property
    def victims(self) -> frozenset[TagKey]:
        """The tags that blame a neighbour, or for which one is limited or watched."""
        return frozenset(self.blamed).union(*(one.victims for one in self.active.values()))

    @property
    def spent(self) -> frozenset[TagKey]:
        """The neighbours that cannot be limited further, unless by another means."""
        return frozenset(key for key, one in self.active.items() if one.spent)
