# SPDX-License-Identifier: Apache-2.0
"""Sort and join runs of sectors.

Helper processes import this, so it needs nothing but two small modules of the library.
"""

import array
from collections.abc import Sequence
from itertools import islice
from operator import ge, gt, lt, sub


def joined(starts: Sequence[int], ends: Sequence[int]) -> "array.array[int]":
    """Sort runs, and join those that touch or overlap.

    Nearly always they are sorted and do not touch, which is found out without a step of the
    interpreter for each of them.

    :param starts: the first sector of each run
    :param ends: the sector after its last one; an empty run does not count
    :return: first sector and length of each run in turn
    """
    if any(map(ge, starts, ends)):
        starts, ends = _columns([run for run in zip(starts, ends, strict=True)
                                 if run[0] < run[1]])
    if any(map(gt, starts, islice(starts, 1, None))):
        starts, ends = _columns(sorted(zip(starts, ends, strict=True)))
    if not all(map(lt, ends, islice(starts, 1, None))):
        starts, ends = _columns(_united(starts, ends))
    flat = array.array("Q", bytes(16 * len(starts)))
    flat[0::2] = array.array("Q", starts)
    flat[1::2] = array.array("Q", map(sub, ends, starts))
    return flat


def _columns(runs: Sequence[tuple[int, int]]) -> tuple[Sequence[int], Sequence[int]]:
    return [start for start, _ in runs], [end for _, end in runs]


def _united(starts: Sequence[int], ends: Sequence[int]) -> list[tuple[int, int]]:
    """Return sorted runs with those united that touch or overlap."""
    found: list[tuple[int, int]] = []
    first, last = starts[0], ends[0]
    for start, end in zip(starts, ends, strict=True):
        if start > last:
            found.append((first, last))
            first, last = start, end
        last = max(last, end)
    found.append((first, last))
    return found
