# SPDX-License-Identifier: Apache-2.0
"""Assignment of a pool's lanes to tags."""

import hypothesis
from hypothesis import strategies as st

from nova_vcache.extra_specs import Isolation
from vcache_agent.lanes import WATERMARK, Claim, assign, capacity

GIB = 1 << 30
FOUR = (8 * GIB, 10 * GIB, 10 * GIB, 10 * GIB)


def dedicated(least: int = 0, held: int = 0) -> Claim:
    return Claim(Isolation.DEDICATED, least, held)


def auto(least: int = 0, held: int = 0) -> Claim:
    return Claim(Isolation.AUTO, least, held)


def test_a_dedicated_tag_has_what_holds_its_guarantee() -> None:
    assert assign(FOUR, [dedicated()]) == [0b0010]
    assert assign(FOUR, [dedicated(10 * GIB)]) == [0b0010]
    assert assign(FOUR, [dedicated(10 * GIB + 1)]) == [0b0110]
    assert assign(FOUR, [dedicated(), dedicated(), dedicated(), dedicated()]) == \
        [0b0010, 0b0100, 0b1000, 0]
    # Sizes of the lanes; lane 0 is shared.
    assert assign(FOUR, [dedicated(99 * GIB)]) == [0b1110]
    assert assign((8 * GIB,), [dedicated()]) == [0]


def test_a_shared_tag_has_none() -> None:
    assert assign(FOUR, [Claim(Isolation.SHARED, 30 * GIB, held=0b0110)]) == [0]


def test_auto_goes_by_the_algorithm() -> None:
    # S_c is 10 GiB, W_u is half: a remainder of less than 5 GiB is shared.
    for least, lanes in ((0, 0), (1, 0), (5 * GIB - 1, 0), (5 * GIB, 1), (10 * GIB, 1),
                         (14 * GIB, 1), (15 * GIB, 2), (34 * GIB, 3), (80 * GIB, 3)):
        (found,) = assign(FOUR, [auto(least)])
        assert found.bit_count() == lanes, least


def test_who_has_lanes_keeps_them() -> None:
    assert assign(FOUR, [dedicated(), dedicated(held=0b0010)]) == [0b0100, 0b0010]
    assert assign(FOUR, [auto(8 * GIB), auto(8 * GIB, held=0b0010)]) == [0b0100, 0b0010]
    # It needs more, or less.
    assert assign(FOUR, [dedicated(15 * GIB, held=0b1000)]) == [0b1010]
    assert assign(FOUR, [dedicated(5 * GIB, held=0b1100)]) == [0b0100]
    assert assign((1, 1, 9), [dedicated(1, held=0b010)]) == [0b010]
    assert assign((1, 1, 9), [dedicated(5, held=0b010)]) == [0b100]
    # A second request of the same isolation does not take them, wherever it stands in the list.
    assert assign((1, 1, 1), [dedicated(2, held=0b100), dedicated(held=0b010)]) == [0b100, 0b010]
    assert assign((1, 10, 5), [auto(10, held=0b100), auto(10, held=0b010)]) == [0b100, 0b010]
    # A lane that nobody keeps goes to a tag before it in the list.
    assert assign((1, 1, 1), [dedicated(2, held=0b100), Claim(Isolation.SHARED, 0, 0b010)]) == \
        [0b110, 0]
    assert assign((1, 2, 2, 4), [dedicated(9, held=0b1000), dedicated(1, held=0b0110)]) == \
        [0b1100, 0b0010]
    # A lane that the pool does not have.
    assert assign(FOUR, [dedicated(held=0b10000)]) == [0b0010]


def test_dedicated_goes_before_auto_and_nobody_before_who_was_given_lanes_by_hand() -> None:
    assert assign(FOUR[:2], [auto(9 * GIB, held=0b10), dedicated()]) == [0, 0b10]
    assert assign(FOUR, [auto(9 * GIB, held=0b10), dedicated()]) == [0b10, 0b100]
    # Only one lane is reassigned.
    assert assign(FOUR, [auto(9 * GIB, held=2), auto(9 * GIB, held=8), dedicated(held=4),
                         dedicated()]) == [0, 8, 4, 2]
    assert assign(FOUR, [dedicated(), auto(30 * GIB)], taken=0b0110) == [0b1000, 0]


@hypothesis.settings(max_examples=500)
@hypothesis.given(
    st.lists(st.integers(1, 20), max_size=6),
    st.lists(st.builds(Claim, st.sampled_from(Isolation), st.integers(0, 60),
                       st.integers(0, 63)), max_size=5),
    st.integers(0, 63))
def test_a_lane_has_one_tag_and_nothing_changes_the_second_time(
        sizes: list[int], claims: list[Claim], taken: int) -> None:
    found = assign(sizes, claims, taken)
    assert sum(found) == capacity([1 << lane for lane in range(64)], sum(found))
    for at, lanes in enumerate(found):
        assert not lanes & (taken | 1) and lanes < 1 << max(len(sizes), 1)
        assert not any(lanes & other for to, other in enumerate(found) if to != at)
        if claims[at].isolation is Isolation.AUTO and lanes:
            # The least filled lane is filled to the watermark.
            smallest = min(sizes[lane] for lane in range(len(sizes)) if lanes >> lane & 1)
            left = claims[at].least - (capacity(sizes, lanes) - smallest)
            assert left >= WATERMARK * smallest
    held = [Claim(claim.isolation, claim.least, lanes)
            for claim, lanes in zip(claims, found, strict=True)]
    assert assign(sizes, held, taken) == found
