# SPDX-License-Identifier: Apache-2.0
"""Misses per second by cache size, from two dumps of a miss-ratio curve."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from vcache_agent.model import Curve


@dataclasses.dataclass(frozen=True)
class Rates:
    """Misses per second of a tag for caches of 0, 1, 2 ... grains; never increasing.

    Behind the last point they are constant.

    :param grain: step of the cache size in bytes
    :param reads: missed reads of 4 KiB blocks per second
    :param writes: missed writes of 4 KiB blocks per second
    """

    grain: int
    reads: tuple[float, ...]
    writes: tuple[float, ...]

    def at(self, size: int) -> tuple[float, float]:
        """Return the missed (reads, writes) per second of a cache of `size` bytes."""
        return _at(self.reads, size / self.grain), _at(self.writes, size / self.grain)

    def many(self, sizes: "np.ndarray[Any, Any]") -> tuple[Any, Any]:
        """Return the same for an array of sizes, as two arrays."""
        steps = sizes / self.grain
        return (np.interp(steps, np.arange(len(self.reads)), self.reads),
                np.interp(steps, np.arange(len(self.writes)), self.writes))

    @property
    def quiet(self) -> bool:
        """True if there were no accesses."""
        return not self.reads[0] and not self.writes[0]


def between(old: Curve, new: Curve, seconds: float) -> Rates | None:
    """Return the rates between two dumps of a tag's curve; None if they are not of one curve.

    The grain of the newer dump may be larger: the kernel doubles it when the footprint grows.
    A difference of two estimates can be negative at a point, or increase with the size; the
    result has the least of the points before instead, and no negative values.

    :param seconds: time between the dumps, more than 0
    """
    if seconds <= 0:
        raise ValueError(f"seconds is {seconds}, must be more than 0")
    if new.reads < old.reads or new.writes < old.writes or new.grain % old.grain:
        return None
    return Rates(new.grain,
                 _falling(_difference(new.read_misses, old, 0, new.grain), seconds),
                 _falling(_difference(new.write_misses, old, 1, new.grain), seconds))


def _difference(new: Sequence[int], old: Curve, which: int, grain: int) -> list[int]:
    return [count - old.misses(number * grain)[which] for number, count in enumerate(new)]


def _falling(counts: Sequence[int], seconds: float) -> tuple[float, ...]:
    found: list[float] = []
    least = float("inf")
    for count in counts:
        least = max(0.0, min(least, count))
        found.append(least / seconds)
    return tuple(found)


def _at(points: Sequence[float], step: float) -> float:
    whole = int(step)
    if whole >= len(points) - 1:
        return points[-1]
    return points[whole] + (points[whole + 1] - points[whole]) * (step - whole)


def blended(old: Rates | None, new: Rates, keep: float) -> Rates:
    """Return the rates of a window whose old periods count less and less.

    :param old: the result for the periods before; None: there are none
    :param keep: weight of `old`, 0 to 1
    """
    if old is None:
        return new
    grain = max(old.grain, new.grain)
    points = max(len(old.reads) * old.grain, len(new.reads) * new.grain) // grain + 1
    sizes = grain * np.arange(points)
    (was_reads, was_writes), (reads, writes) = old.many(sizes), new.many(sizes)
    return Rates(grain, tuple((keep * was_reads + (1 - keep) * reads).tolist()),
                 tuple((keep * was_writes + (1 - keep) * writes).tolist()))
