# SPDX-License-Identifier: Apache-2.0
"""The difference between two lists of extents."""

from vcache_agent.model import Extent, Extents


def difference(before: Extents, after: Extents) -> tuple[list[Extent], list[Extent]]:
    """Return the extents to remove from a list and those to add, to get another one.

    An extent that has grown or shrunk is removed and added. The time is linear.

    :param before: sorted, disjoint
    :param after: sorted, disjoint
    :return: extents of ``before`` only, and extents of ``after`` only, each sorted
    """
    before = tuple(before)
    removed: list[Extent] = []
    added: list[Extent] = []
    at = 0
    for extent in after:
        while at < len(before) and before[at] < extent:
            removed.append(before[at])
            at += 1
        if at < len(before) and before[at] == extent:
            at += 1
        else:
            added.append(extent)
    removed.extend(before[at:])
    return removed, added
