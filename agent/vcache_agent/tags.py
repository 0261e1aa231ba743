# SPDX-License-Identifier: Apache-2.0
"""Choose the number of a vTag: one for each virtual disk, unique on the host."""

from collections.abc import Collection

from vcache_agent.netlink import spec

#: Tag of the host's own I/O; never given to a disk.
HOST_TAG = 0


class TagsExhausted(Exception):
    """Every tag number is in use."""


def allocate(last: int, taken: Collection[int]) -> int:
    """Return the next free tag number.

    Numbers are used in turn, so that one which has just become free, and whose
    statistics somebody may still look at, does not soon mean another disk.

    :param last: the number given last, or 0
    :param taken: numbers in use
    """
    for step in range(1, spec.TAG_MAX + 1):
        number = (last + step - 1) % spec.TAG_MAX + 1
        if number not in taken:
            return number
    raise TagsExhausted(f"all {spec.TAG_MAX} tags are in use")
