# SPDX-License-Identifier: Apache-2.0
"""Packed lists of extents against tuples."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcache_agent.model import Extent
from vcache_agent.packed_extents import PackedExtents, join, merged, pack, sectors_of
from vcache_agent.runs import joined

LISTS = st.lists(st.builds(Extent, st.integers(0, 60), st.integers(1, 10)), max_size=20)


def sectors(runs: Iterable[Extent]) -> set[int]:
    return {sector for start, length in runs for sector in range(start, start + length)}


@given(LISTS, st.slices(20))
def test_a_packed_list_is_like_a_tuple(extents: list[Extent], part: slice) -> None:
    packed, plain = pack(extents), tuple(extents)
    assert packed == plain
    assert plain == packed
    with pytest.raises(TypeError, match="unhashable"):
        hash(packed)
    assert list(packed) == extents
    assert all(isinstance(extent, Extent) for extent in packed)
    assert len(packed) == len(plain)
    assert bool(packed) is bool(plain)
    assert packed[part] == plain[part]
    assert packed == PackedExtents(packed.data)
    assert packed != (*plain, Extent(1, 1))
    assert pack(packed) is packed
    assert sectors_of(packed) == sectors_of(plain) == sum(extent.length for extent in extents)
    for at in range(-len(plain), len(plain)):
        assert packed[at] == plain[at]
    for at in (len(plain), -len(plain) - 1):
        with pytest.raises(IndexError):
            packed[at]


def test_large_numbers_are_kept() -> None:
    extents = (Extent(2**63, 2**40), Extent(2**64 - 2, 1))
    assert pack(extents) == extents


@given(LISTS)
def test_joined_extents_cover_the_same_sectors(extents: list[Extent]) -> None:
    joined = join(extents)
    assert sectors(joined) == sectors(extents)
    assert all(a.start + a.length < b.start for a, b in zip(joined, joined[1:], strict=False))


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(-1, 10)), max_size=20))
def test_runs_without_a_sector_do_not_count(runs: list[tuple[int, int]]) -> None:
    found = joined([start for start, _ in runs], [start + length for start, length in runs])
    assert PackedExtents(found.tobytes()) == join(run for run in runs if run[1] > 0)


@given(st.lists(LISTS.map(join), min_size=1, max_size=4))
def test_merged_lists_cover_the_same_sectors(lists: list[PackedExtents]) -> None:
    found = merged(lists)
    assert found == join(extent for extents in lists for extent in extents)
    assert merged([tuple(extents) for extents in lists]) == found
    assert merged(lists[:1]) is lists[0]
