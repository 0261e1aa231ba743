# SPDX-License-Identifier: Apache-2.0
"""The least size that meets a service level, and the controller around it.

The level is a p99 of reads or a number of requests per second. The model predicts a mean
latency from the curve. A calibration k, the ratio of the measured p99 to the predicted mean,
connects both. If a miss takes longer than the level, at most one read in a hundred may miss. A
bias corrects what remains: it grows fast after two periods in a row in which the level is missed,
and falls slowly when the level is met with ease. A period without samples changes nothing.
"""

import dataclasses

from vcache_agent.decide import throughput
from vcache_agent.decide.tenant import MIB, Tenant

CALIBRATION = (0.5, 8.0)
#: Part of a new measurement in the calibration.
_NEW = 0.3
#: Part of the level that a prediction may use.
_MARGIN = 0.9
#: Part of the reads that may be slower than the level.
_TAIL = 0.01
_MISSED, _EASY, _EASE = 2, 10, 0.7
_UP, _DOWN = 0.10, 0.02


@dataclasses.dataclass(frozen=True)
class Level:
    """What a flavor promises; None: nothing.

    :param read_s: p99 of reads in seconds
    :param iops: requests of 4 KiB per second
    """

    read_s: float | None = None
    iops: float | None = None


@dataclasses.dataclass(frozen=True)
class State:
    """The state of the controller of one tag.

    :param calibration: measured p99 / predicted mean
    :param bias: bytes above the predicted size
    :param missed: periods in a row in which the level was missed
    :param easy: periods in a row in which it was met with ease
    """

    calibration: float = 2.0
    bias: int = 0
    missed: int = 0
    easy: int = 0


@dataclasses.dataclass(frozen=True)
class Floor:
    """The least size for a level.

    :param size: bytes
    :param feasible: False: no size within the tag's range is predicted to meet it
    """

    size: int
    feasible: bool = True


def mean_read(tenant: Tenant, size: int) -> float | None:
    """Return the predicted mean latency of a read in seconds; None: unknown, or no reads."""
    if tenant.rates is None or tenant.times is None or not tenant.rates.reads[0]:
        return None
    missed = tenant.rates.at(size)[0] / tenant.rates.reads[0]
    return (1 - missed) * tenant.times.hit + missed * tenant.times.miss


def floor(tenant: Tenant, level: Level, state: State, size: int) -> Floor:
    """Return the least size at which the level is predicted to be met, with the bias.

    :param size: size of the pool in bytes
    """
    low, high = tenant.bounds(size)
    if not meets(tenant, level, state, high):
        return Floor(low, feasible=False)
    first, last = 0, -(-(high - low) // MIB)
    while first < last:
        middle = (first + last) // 2
        if meets(tenant, level, state, min(high, low + middle * MIB)):
            last = middle
        else:
            first = middle + 1
    wanted = low + first * MIB
    return Floor(min(high, wanted + state.bias) if wanted > low or state.bias else low)


def step(tenant: Tenant, level: Level, state: State, read_p99: float | None,
         iops: float | None) -> State:
    """Return the state after a period.

    :param read_p99: measured, in seconds; None: there were no reads
    :param iops: measured, while requests were waiting; None: there was no load
    """
    ratios = []
    calibration = state.calibration
    if level.read_s is not None and read_p99 is not None:
        ratios.append(read_p99 / level.read_s)
        mean = mean_read(tenant, tenant.quota)
        if mean:
            low, high = CALIBRATION
            calibration += _NEW * (min(high, max(low, read_p99 / mean)) - calibration)
    if level.iops is not None and iops is not None:
        ratios.append(level.iops / iops if iops else float("inf"))
    if not ratios:
        return state
    worst = max(ratios)
    missed = state.missed + 1 if worst > 1 else 0
    easy = state.easy + 1 if worst < _EASE else 0
    bias = state.bias
    if missed >= _MISSED:
        bias += max(MIB, int(tenant.quota * _UP))
    elif easy >= _EASY:
        bias, easy = max(0, bias - max(MIB, int(tenant.quota * _DOWN))), 0
    return State(calibration, bias, missed, easy)


def meets(tenant: Tenant, level: Level, state: State, size: int) -> bool:
    """Return True if a level is predicted to be met with `size` bytes."""
    mean = mean_read(tenant, size)
    if level.read_s is not None and mean is not None and (
            state.calibration * mean > _MARGIN * level.read_s
            or not _tail_met(tenant, level.read_s, size)):
        return False
    speed = throughput.predicted(tenant, size)
    return level.iops is None or not speed or speed >= level.iops / _MARGIN


def _tail_met(tenant: Tenant, read_s: float, size: int) -> bool:
    """Return True if few enough reads miss, where a miss takes longer than the level allows.

    A mean alone cannot say that: the p99 jumps where one read in a hundred misses.
    """
    assert tenant.times is not None and tenant.rates is not None  # noqa: S101 - for mypy
    if tenant.times.miss <= read_s:
        return True
    return bool(tenant.rates.at(size)[0] <= _MARGIN * _TAIL * tenant.rates.reads[0])
