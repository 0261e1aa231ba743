# SPDX-License-Identifier: Apache-2.0
"""Cumulative histograms, evaluated over the last minute."""

from vcache_agent.model import DeviceNumber, Stats, Tag
from vcache_agent.recent import Recent, merged

AT = DeviceNumber(254, 0)


def tags(*counts: int) -> list[Tag]:
    return [Tag(AT, 1, stats=Stats(flush_hist=counts))]


def flushes(recent: Recent, counts: tuple[int, ...], now: float) -> tuple[int, ...]:
    return recent.update(tags(*counts), now)[AT, 1].flushes


def test_reads_a_second() -> None:
    def reads(count: int, now: float) -> float | None:
        return recent.update([Tag(AT, 1, stats=Stats(reads=count))], now)[AT, 1].reads_per_s

    recent = Recent(60.0)
    assert reads(500, 0.0) is None
    assert reads(600, 10.0) == 10
    assert reads(1100, 60.0) == 10
    assert reads(1100, 130.0) == 0
    # The tag is created again.
    assert reads(7, 131.0) is None


def test_only_the_last_minute_counts() -> None:
    recent = Recent(60.0)
    assert flushes(recent, (5, 0), 0.0) == (5, 0)
    for second in range(10, 60, 10):
        assert flushes(recent, (5, second), float(second)) == (0, second)
    assert flushes(recent, (5, 60), 70.0) == (0, 50), "since second 10"
    assert flushes(recent, (5, 60), 130.0) == (0, 0)


def test_a_tag_that_is_made_anew_begins_again() -> None:
    recent = Recent(60.0)
    recent.update(tags(5, 5), 0.0)
    assert flushes(recent, (1, 7), 1.0) == (1, 7)
    assert recent.update([], 2.0) == {}


def test_reads_are_told_from_flushes() -> None:
    recent = Recent(60.0)
    for now, flushes, reads in ((0.0, (1, 0), (5, 5)), (1.0, (1, 2), (5, 9))):
        found = recent.update([Tag(AT, 1, stats=Stats(flush_hist=flushes, read_hist=reads))], now)
    assert (found[AT, 1].flushes, found[AT, 1].reads) == ((0, 2), (0, 4))
    # Created again: one smaller counter proves it for both.
    found = recent.update([Tag(AT, 1, stats=Stats(flush_hist=(2, 3), read_hist=(4, 9)))], 2.0)
    assert (found[AT, 1].flushes, found[AT, 1].reads) == ((2, 3), (4, 9))


def test_a_sum_skips_what_is_empty() -> None:
    assert merged([(1, 2), (), (3, 4)]) == (4, 6)
    assert merged([]) == ()
