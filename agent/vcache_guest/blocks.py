# SPDX-License-Identifier: Apache-2.0
"""Sets of blocks as sorted, disjoint ranges that do not touch. Pure functions."""

from collections.abc import Iterable

from vcache_guest.protocol import Range

#: A set of blocks.
Ranges = tuple[Range, ...]


def normal(ranges: Iterable[Range]) -> Ranges:
    """Return the set of all blocks of some ranges, in any order, which may overlap."""
    found: list[Range] = []
    for first, blocks in sorted(ranges):
        if found and first <= found[-1].first + found[-1].blocks:
            start, before = found[-1]
            found[-1] = Range(start, max(start + before, first + blocks) - start)
        else:
            found.append(Range(first, blocks))
    return tuple(found)


def union(one: Ranges, other: Ranges) -> Ranges:
    """Return the blocks that are in at least one set."""
    return normal((*one, *other))


def without(one: Ranges, other: Ranges) -> Ranges:
    """Return the blocks of a set that are not in the other one."""
    found: list[Range] = []
    at = 0
    for first, blocks in one:
        end = first + blocks
        while at < len(other) and other[at].first + other[at].blocks <= first:
            at += 1
        look = at
        while first < end and look < len(other) and other[look].first < end:
            if other[look].first > first:
                found.append(Range(first, other[look].first - first))
            first = other[look].first + other[look].blocks
            look += 1
        if first < end:
            found.append(Range(first, end - first))
    return tuple(found)


def both(one: Ranges, other: Ranges) -> Ranges:
    """Return the blocks that are in both sets."""
    return without(one, without(one, other))


def count(ranges: Ranges) -> int:
    """Return how many blocks a set has."""
    return sum(one.blocks for one in ranges)


def last(ranges: Ranges, blocks: int) -> Ranges:
    """Return the last blocks of a set, at most so many."""
    found: list[Range] = []
    for one in reversed(ranges):
        if blocks <= 0:
            break
        took = min(one.blocks, blocks)
        found.append(Range(one.first + one.blocks - took, took))
        blocks -= took
    return tuple(reversed(found))
