# SPDX-License-Identifier: Apache-2.0
"""Allocate tag numbers: one for each virtual disk, unique on the host."""

from collections.abc import Collection

from vcache_agent.netlink import spec

#: The host tag: tag of the host's own I/O, never of a disk.
HOST_TAG = 0


class TagsExhausted(Exception):
    """All tag numbers are in use."""


def allocate(last: int, taken: Collection[int]) -> int:
    """Return the next free tag number.

    The search starts behind the last number, so that a number is not reused soon after it
    was freed, while an operator may still look at its statistics.

    :param last: the number that was allocated last, or 0
    :param taken: numbers in use
    :raises TagsExhausted: if there is none
    """
    for step in range(1, spec.TAG_MAX + 1):
        number = (last + step - 1) % spec.TAG_MAX + 1
        if number not in taken:
            return number
    raise TagsExhausted(f"all {spec.TAG_MAX} tags are in use")
