# SPDX-License-Identifier: Apache-2.0
"""The division of a cache with the least cost.

A cost is a sequence: entry g is the cost of a tenant that has g grains of the cache. Both
functions return the number of grains of each tenant. Their sum is at most `total`; grains that
save nothing stay unassigned.
"""

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from vcache_agent.decide.arrays import np

if TYPE_CHECKING:
    import numpy.typing as npt

Cost: TypeAlias = "Sequence[float] | npt.NDArray[np.float64]"


def exact(costs: Sequence[Cost], total: int) -> list[int]:
    """Return the optimum, by dynamic programming.

    f_i[x] = min over g of f_{i-1}[x - g] + cost_i[g]. It takes len(costs) × total² steps.

    :param total: grains of the cache
    """
    best = np.zeros(total + 1)
    choices = []
    for cost in costs:
        steps = np.asarray(cost[:total + 1], dtype=float)
        # Row g of `before` is f_{i-1}[x - g], which is infinite for x < g.
        padded = np.concatenate([np.full(len(steps) - 1, np.inf), best])
        before = np.lib.stride_tricks.sliding_window_view(padded, total + 1)[::-1]
        sums = before + steps[:, np.newaxis]
        choice = sums.argmin(axis=0)
        best = sums[choice, np.arange(total + 1)]
        choices.append(choice)
    left, found = total, []
    for choice in reversed(choices):
        found.append(int(choice[left]))
        left -= found[-1]
    return found[::-1]


class Segment(NamedTuple):
    """A segment of a convex minorant.

    :param gain: cost saved by each grain
    :param start: grains at its start
    :param end: grains at its end
    """

    gain: float
    start: int
    end: int


def minorant(cost: Cost) -> list[Segment]:
    """Return the segments of the greatest convex function below a cost, with a gain.

    OC-Cache, section III-A.
    """
    corners: list[int] = []
    for number in range(len(cost)):
        while len(corners) > 1 and _slope(cost, corners[-2], corners[-1]) >= \
                _slope(cost, corners[-1], number):
            corners.pop()
        corners.append(number)
    return [Segment(-_slope(cost, start, end), start, end)
            for start, end in itertools.pairwise(corners)
            if _slope(cost, start, end) < 0]


def hull(costs: Sequence[Cost], total: int) -> list[int]:
    """Return a near-optimal division, by the convex minorants.

    Each grain goes to the tenant that it helps most (OC-Cache, section III-A).

    :param total: grains of the cache
    """
    found = np.zeros(len(costs), dtype=int)
    if costs:
        tenants, lengths, gains = _all_segments(costs)
        # The segments of a tenant stay in their order: its gains never increase.
        order = np.argsort(-gains, kind="stable")
        ends = np.minimum(np.cumsum(lengths[order]), total)
        given = np.diff(ends, prepend=0)
        np.add.at(found, tenants[order], given)
    return [int(one) for one in found]


def _all_segments(costs: Sequence[Cost]) -> tuple[Any, Any, Any]:
    """Return (tenant, length, gain) of the segments of all minorants, those with a gain.

    A point on or above the line between its neighbours is not a corner of a minorant. So all such
    points are removed, again and again, in the costs of all tenants at once.
    """
    counts = [len(cost) for cost in costs]
    tenant = np.repeat(np.arange(len(costs)), counts)
    value = np.concatenate([np.asarray(cost, dtype=float) for cost in costs])
    place = np.concatenate([np.arange(count) for count in counts])
    while True:
        slopes = np.diff(value) / np.where(np.diff(place) > 0, np.diff(place), 1)
        same = tenant[1:] == tenant[:-1]
        inner = same[1:] & same[:-1] & (slopes[:-1] >= slopes[1:])
        if not inner.any():
            break
        keep = np.concatenate([[True], ~inner, [True]])
        tenant, value, place = tenant[keep], value[keep], place[keep]
    falling = same & (slopes < 0)
    return tenant[1:][falling], np.diff(place)[falling], -slopes[falling]


def _slope(cost: Cost, start: int, end: int) -> float:
    return (cost[end] - cost[start]) / (end - start)
