# SPDX-License-Identifier: Apache-2.0
"""A list of extents in 16 bytes for each extent.

An image may have thousands of extents, and a host hundreds of images. Python's tuples would
need 150 bytes for each extent, and comparing or sending them a step of the interpreter.
"""

import array
import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from operator import add
from typing import overload

from vcache_agent.model import Extent, Extents
from vcache_agent.netlink.spec import EXTENT_LAYOUT
from vcache_agent.runs import joined

#: Format of an extent, which is that of netlink: start and length in sectors.
LAYOUT = EXTENT_LAYOUT


class PackedExtents(Sequence[Extent]):
    """An immutable list of extents. It equals a tuple with the same extents.

    :param data: the extents in :data:`LAYOUT`
    """

    def __init__(self, data: bytes) -> None:
        self.data = data

    @functools.cached_property
    def sectors(self) -> int:
        """The sum of the lengths."""
        return sum(memoryview(self.data).cast("Q")[1::2].tolist())

    def __len__(self) -> int:
        return len(self.data) // LAYOUT.size

    def __iter__(self) -> Iterator[Extent]:
        return map(Extent._make, LAYOUT.iter_unpack(self.data))

    @overload
    def __getitem__(self, at: int) -> Extent: ...

    @overload
    def __getitem__(self, at: slice) -> "PackedExtents": ...

    def __getitem__(self, at: int | slice) -> "Extent | PackedExtents":
        if isinstance(at, slice):
            start, stop, step = at.indices(len(self))
            if step == 1:
                return PackedExtents(self.data[start * LAYOUT.size:stop * LAYOUT.size])
            return pack(list(self)[at])
        if not -len(self) <= at < len(self):
            raise IndexError(f"extent {at} of {len(self)}")
        return Extent._make(LAYOUT.unpack_from(self.data, at % len(self) * LAYOUT.size))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PackedExtents):
            return self.data == other.data
        if isinstance(other, tuple):
            return tuple(self) == other
        return NotImplemented

    # A hash that is equal to that of an equal tuple would take a step for each extent.
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"PackedExtents of {list(self)}"


def pack(extents: Iterable[tuple[int, int]]) -> PackedExtents:
    """Return extents as a packed list."""
    if isinstance(extents, PackedExtents):
        return extents
    return PackedExtents(array.array("Q", itertools.chain.from_iterable(extents)).tobytes())


def sectors_of(extents: Extents) -> int:
    """Return the sum of the lengths."""
    if isinstance(extents, PackedExtents):
        return extents.sectors
    return sum(extent.length for extent in extents)


def join(extents: Iterable[tuple[int, int]]) -> PackedExtents:
    """Sort extents and join those that touch or overlap."""
    flat = array.array("Q", itertools.chain.from_iterable(extents))
    starts = flat[0::2]
    return PackedExtents(joined(starts, array.array("Q", map(add, starts, flat[1::2]))).tobytes())


@functools.lru_cache(maxsize=1024)
def _merged(lists: tuple[bytes, ...]) -> PackedExtents:
    return join(itertools.chain.from_iterable(map(LAYOUT.iter_unpack, lists)))


def merged(lists: Sequence[Extents]) -> Extents:
    """Return the extents of several lists, each sorted and joined, as one such list.

    The result is kept, because the lists of the layers of a disk seldom change.
    """
    if len(lists) == 1:
        return lists[0]
    return _merged(tuple(pack(extents).data for extents in lists))
