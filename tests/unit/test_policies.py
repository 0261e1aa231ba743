# SPDX-License-Identifier: Apache-2.0
"""The shares that policies compute for the tags of a pool."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcache_agent.policies import MIB, Demand, Range, static


def megabytes(*demands: tuple[int, int, int], size: int) -> list[int]:
    """Return the static parts in MiB; a demand is (weight, minimum, maximum)."""
    ranges = static([Demand(weight, Range(least * MIB, most * MIB))
                     for weight, least, most in demands], size * MIB)
    assert all(item.least == item.most for item in ranges)
    return [item.least // MIB for item in ranges]


@pytest.mark.parametrize(("demands", "size", "parts"), [
    ([(100, 0, 0)], 1000, [1000]),
    ([(100, 0, 0), (300, 0, 0)], 1000, [250, 750]),
    # A maximum leaves more to the others, a minimum less.
    ([(100, 0, 0), (300, 0, 400)], 1000, [600, 400]),
    ([(100, 500, 0), (300, 0, 0)], 1000, [500, 500]),
    # A share is below its minimum only until another is cut to its maximum.
    ([(100, 300, 0), (300, 0, 100), (100, 0, 0)], 1000, [450, 100, 450]),
    # More than available.
    ([(1, 900, 0), (1000, 300, 0)], 600, [450, 150]),
    # All at their maximum: the rest is unassigned.
    ([(100, 0, 10), (100, 0, 20)], 1000, [10, 20]),
    ([(1, 0, 0), (1000, 0, 0)], 100, [1, 99]),
])
def test_static_parts(demands: list[tuple[int, int, int]], size: int, parts: list[int]) -> None:
    assert megabytes(*demands, size=size) == parts


DEMANDS = st.lists(st.tuples(
    st.integers(1, 1000), st.integers(0, 500), st.one_of(st.just(0), st.integers(1, 500))).map(
        lambda item: Demand(item[0], Range(
            min(item[1], item[2] or item[1]) * MIB, item[2] * MIB))), min_size=1, max_size=8)


@given(DEMANDS, st.integers(1, 4000))
def test_static_parts_keep_all_rules(demands: list[Demand], size: int) -> None:
    parts = [item.least for item in static(demands, size * MIB)]
    # Each is rounded up to at least 1 MiB.
    assert sum(parts) <= (size + len(demands)) * MIB
    fits = sum(demand.asked.least for demand in demands) <= size * MIB
    for demand, part in zip(demands, parts, strict=True):
        assert not demand.asked.most or part <= max(demand.asked.most, MIB)
        assert not fits or part >= demand.asked.least
    free = [(part, demand.weight) for demand, part in zip(demands, parts, strict=True)
            if demand.asked.least < part and (not demand.asked.most or part < demand.asked.most)]
    if fits and len(free) > 1:
        for part, weight in free:
            other, their = free[0]
            # Parts without limits follow the weights, except for rounding.
            assert abs(part / weight - other / their) <= MIB / weight + MIB / their
