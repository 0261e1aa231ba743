# SPDX-License-Identifier: Apache-2.0
"""Cumulative histograms, evaluated since a sample."""

from vcache_agent.model import DeviceNumber, Stats, Tag
from vcache_agent.observe.sample import Sample
from vcache_agent.recent import Lately, lately, merged

AT = DeviceNumber(254, 0)


def activity(now: Stats, before: Stats | None, seconds: float = 10.0) -> Lately:
    start = None if before is None else Sample(0.0, 0.0, (), (Tag(AT, 1, stats=before),))
    return lately([Tag(AT, 1, stats=now)], seconds, start)[AT, 1]


def test_reads_a_second() -> None:
    assert activity(Stats(reads=600), None).reads_per_s is None
    assert activity(Stats(reads=600), Stats(reads=500)).reads_per_s == 10
    assert activity(Stats(reads=600), Stats(reads=600)).reads_per_s == 0
    assert activity(Stats(reads=7), Stats(reads=500)).reads_per_s is None, "created again"


def test_only_what_came_since_the_sample_counts() -> None:
    now = Stats(flush_hist=(5, 50), read_hist=(7, 8))
    found = activity(now, Stats(flush_hist=(5, 10), read_hist=(7, 1)))
    assert (found.flushes, found.reads) == ((0, 40), (0, 7))
    assert activity(now, None)[:2] == ((5, 50), (7, 8)), "since the tag was created"


def test_a_tag_that_is_made_anew_begins_again() -> None:
    # One smaller counter proves it for both histograms.
    found = activity(Stats(flush_hist=(2, 3), read_hist=(4, 9)),
                     Stats(flush_hist=(1, 2), read_hist=(5, 9)))
    assert (found.flushes, found.reads) == ((2, 3), (4, 9))
    assert lately([], 1.0, None) == {}


def test_a_tag_that_the_sample_does_not_have() -> None:
    found = lately([Tag(AT, 2, stats=Stats(reads=5, read_hist=(1,)))], 10.0,
                   Sample(0.0, 0.0, (), (Tag(AT, 1),)))
    assert found == {(AT, 2): Lately((), (1,), None)}


def test_a_sum_skips_what_is_empty() -> None:
    assert merged([(1, 2), (), (3, 4)]) == (4, 6)
    assert merged([]) == ()
