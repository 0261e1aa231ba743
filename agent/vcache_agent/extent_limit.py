# SPDX-License-Identifier: Apache-2.0
"""Limit the extents of a disk, so that a guest that fragments its image costs a bounded amount."""

import heapq

from vcache_agent.model import Extents

_SECTOR = 512


def limit(extents: Extents, most: int) -> tuple[Extents, int]:
    """Keep the largest extents of a disk.

    Data outside the extents of a tag belongs to the host tag, which is always safe, so the
    smallest extents can be left out.

    :param extents: sorted by sector
    :param most: largest number to keep, at least 0
    :return: the kept extents, sorted by sector, and the bytes of the others; of extents with
        the same length, those on lower sectors are kept
    """
    if len(extents) <= most:
        return extents, 0
    kept = heapq.nsmallest(most, extents, key=lambda extent: (-extent.length, extent.start))
    left = sum(extent.length for extent in extents) - sum(extent.length for extent in kept)
    return tuple(sorted(kept)), left * _SECTOR
