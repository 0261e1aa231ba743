# SPDX-License-Identifier: Apache-2.0
"""Histograms that only grow, seen over the last minute."""

from vcache_agent.model import DeviceNumber, Stats, Tag
from vcache_agent.recent import Recent, merged

AT = DeviceNumber(254, 0)


def tags(*counts: int) -> list[Tag]:
    return [Tag(AT, 1, stats=Stats(flush_hist=counts))]


def test_only_the_last_minute_counts() -> None:
    recent = Recent(60.0)
    assert recent.update(tags(5, 0), 0.0) == {(AT, 1): (5, 0)}
    for second in range(10, 60, 10):
        assert recent.update(tags(5, second), float(second)) == {(AT, 1): (0, second)}
    assert recent.update(tags(5, 60), 70.0) == {(AT, 1): (0, 50)}, "since second 10"
    assert recent.update(tags(5, 60), 130.0) == {(AT, 1): (0, 0)}


def test_a_tag_that_is_made_anew_begins_again() -> None:
    recent = Recent(60.0)
    recent.update(tags(5, 5), 0.0)
    assert recent.update(tags(1, 7), 1.0) == {(AT, 1): (1, 7)}
    assert recent.update([], 2.0) == {}


def test_a_sum_skips_what_is_empty() -> None:
    assert merged([(1, 2), (), (3, 4)]) == (4, 6)
    assert merged([]) == ()
