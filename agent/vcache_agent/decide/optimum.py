# SPDX-License-Identifier: Apache-2.0
"""The division of a cache with the least cost.

A cost is a sequence: entry g is the cost of a tenant that has g grains of the cache. Both
functions return the number of grains of each tenant. Their sum is at most `total`; grains that
save nothing stay unassigned.
"""

import heapq
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

Cost = Sequence[float] | npt.NDArray[np.float64]


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
        before = sliding_window_view(padded, total + 1)[::-1]
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
    segments = heapq.merge(*(
        [(-segment.gain, tenant, segment.end - segment.start) for segment in minorant(cost)]
        for tenant, cost in enumerate(costs)))
    found, left = [0] * len(costs), total
    for _, tenant, length in segments:
        given = min(length, left)
        found[tenant] += given
        left -= given
    return found


def _slope(cost: Cost, start: int, end: int) -> float:
    return (cost[end] - cost[start]) / (end - start)
