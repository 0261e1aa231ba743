# SPDX-License-Identifier: Apache-2.0
"""Misses per second by cache size, from two dumps of a miss-ratio curve."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from vcache_agent.decide.arrays import np
from vcache_agent.model import Curve


@dataclasses.dataclass(frozen=True, eq=False)
class Rates:
    """Misses per second of a tag for caches of 0, 1, 2 ... grains; never increasing.

    Behind the last point they are constant.

    :param grain: step of the cache size in bytes
    :param reads: missed reads of 4 KiB blocks per second; an array afterwards
    :param writes: missed writes of 4 KiB blocks per second; an array afterwards
    """

    grain: int
    reads: Any
    writes: Any

    def __post_init__(self) -> None:
        """Convert sequences to arrays, which are fast enough for hundreds of tags."""
        for name in ("reads", "writes"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), dtype=float))

    def __eq__(self, other: object) -> bool:
        """Return True if all points are equal."""
        return isinstance(other, Rates) and self.grain == other.grain \
            and np.array_equal(self.reads, other.reads) \
            and np.array_equal(self.writes, other.writes)

    def __hash__(self) -> int:
        """Return a hash that equal rates have in common."""
        return hash((self.grain, len(self.reads)))

    def at(self, size: int) -> tuple[float, float]:
        """Return the missed (reads, writes) per second of a cache of `size` bytes."""
        return _at(self.reads, size / self.grain), _at(self.writes, size / self.grain)

    def many(self, sizes: "np.ndarray[Any, Any]") -> tuple[Any, Any]:
        """Return the same for an array of sizes, as two arrays."""
        steps = sizes / self.grain
        return (np.interp(steps, np.arange(len(self.reads)), self.reads),
                np.interp(steps, np.arange(len(self.writes)), self.writes))

    @property
    def total(self) -> Any:
        """Missed reads and writes per second, as one array."""
        if len(self.reads) == len(self.writes) or 1 in (len(self.reads), len(self.writes)):
            return self.reads + self.writes
        points = np.arange(max(len(self.reads), len(self.writes)))
        return sum(self.many(self.grain * points))

    @property
    def quiet(self) -> bool:
        """True if there were no accesses."""
        return not self.reads[0] and not self.writes[0]


def between(old: Curve, new: Curve, seconds: float, step: int = 1) -> Rates | None:
    """Return the rates between two dumps of a tag's curve; None if they are not of one curve.

    The grain of the newer dump may be larger: the kernel doubles it when the footprint grows.
    A difference of two estimates can be negative at a point, or increase with the size; the
    result has the least of the points before instead, and no negative values.

    :param seconds: time between the dumps, more than 0
    :param step: use each point of this number only; a power of two
    """
    if seconds <= 0:
        raise ValueError(f"seconds is {seconds}, must be more than 0")
    if new.reads < old.reads or new.writes < old.writes or new.grain % old.grain:
        return None
    grain, ratio = new.grain * step, new.grain // old.grain
    return Rates(
        grain,
        _falling(_each(new.read_misses, step), _each(old.read_misses, step * ratio), seconds)
        if new.reads > old.reads else _NONE,
        _falling(_each(new.write_misses, step), _each(old.write_misses, step * ratio), seconds)
        if new.writes > old.writes else _NONE)


_NONE = (0.0,)


def _each(points: Sequence[int], step: int) -> Sequence[int]:
    """Return each point of a number, up to one from which the curve is constant."""
    found = points[::step]
    return found if (len(points) - 1) % step == 0 else (*found, points[-1])


def _falling(new: Sequence[int], old: Sequence[int], seconds: float) -> Any:
    """Return the differences; behind its last point, `old` is constant."""
    now, was = np.array(new, dtype=float), np.array(old, dtype=float)
    grown = now - (was[:len(now)] if len(was) >= len(now) else
                   np.pad(was, (0, len(now) - len(was)), "edge"))
    return np.maximum(0.0, np.minimum.accumulate(grown)) / seconds


def _mixed(old: Any, new: Any, keep: float) -> Any:
    """Return a weighted mean of points; behind its last one, each list is constant."""
    short, long = (keep * old, (1 - keep) * new)
    if len(short) > len(long):
        short, long = long, short
    if len(short) == len(long):
        return short + long
    found = long + short[-1]
    found[:len(short)] = long[:len(short)] + short
    return found


def _at(points: Any, step: float) -> float:
    whole = int(step)
    if whole >= len(points) - 1:
        return float(points[-1])
    return float(points[whole] + (points[whole + 1] - points[whole]) * (step - whole))


def blended(old: Rates | None, new: Rates, keep: float) -> Rates:
    """Return the rates of a window whose old periods count less and less.

    :param old: the result for the periods before; None: there are none
    :param keep: weight of `old`, 0 to 1
    """
    if old is None:
        return new
    if old.grain == new.grain:
        return Rates(new.grain, _mixed(old.reads, new.reads, keep),
                     _mixed(old.writes, new.writes, keep))
    grain = max(old.grain, new.grain)
    last = max((max(len(one.reads), len(one.writes)) - 1) * one.grain for one in (old, new))
    points = -(-last // grain) + 1
    sizes = grain * np.arange(points)
    (was_reads, was_writes), (reads, writes) = old.many(sizes), new.many(sizes)
    return Rates(grain, keep * was_reads + (1 - keep) * reads,
                 keep * was_writes + (1 - keep) * writes)
