# SPDX-License-Identifier: Apache-2.0
"""Nested shares: project → instance → disk (SymFlex, section 5.4).

A share is divided among the members of a level by their weights, and each member divides its
part among its own members in the same way. So a project does not get more by starting more
instances.
"""

import dataclasses
from collections.abc import Mapping, Sequence

#: Weights of the kernel's tags.
WEIGHTS = (1, 1000)


@dataclasses.dataclass(frozen=True)
class Disk:
    """A disk and the weights on its path.

    :param path: names of the levels from the outermost on, such as (project, instance)
    :param weight: weight of the disk in its instance, more than 0
    """

    path: tuple[str, ...]
    weight: float


def fractions(disks: Sequence[Disk], weights: Mapping[tuple[str, ...], float]) -> list[float]:
    """Return the fraction of each disk; their sum is 1.

    :param weights: weights of inner nodes by their path, more than 0; missing: 100
    """
    found = [0.0] * len(disks)
    _divide(list(range(len(disks))), (), 1.0, disks, weights, found)
    return found


def _divide(members: Sequence[int], path: tuple[str, ...], share: float, disks: Sequence[Disk],
            weights: Mapping[tuple[str, ...], float], found: list[float]) -> None:
    level = len(path)
    below: dict[tuple[str, ...], list[int]] = {}
    parts: dict[object, float] = {}
    for at in members:
        if len(disks[at].path) == level:
            parts[at] = disks[at].weight
        else:
            child = disks[at].path[:level + 1]
            below.setdefault(child, []).append(at)
            parts[child] = weights.get(child, 100.0)
    total = sum(parts.values())
    for at in members:
        if at in parts:
            found[at] = share * parts[at] / total
    for child, theirs in below.items():
        _divide(theirs, child, share * parts[child] / total, disks, weights, found)


def kernel_weights(fractions: Sequence[float]) -> list[int]:
    """Return weights in the kernel's range with the same ratios, as far as it has them.

    Their mean is 100, so that they compare with the weight of the host's own I/O, unless the
    largest would exceed the range. A fraction that would have less than the least weight gets it.
    """
    low, high = WEIGHTS
    most = max(fractions, default=1.0)
    scale = min(100 * len(fractions), high / most)
    return [max(low, round(scale * one)) for one in fractions]
