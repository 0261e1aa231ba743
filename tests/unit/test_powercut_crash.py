# SPDX-License-Identifier: Apache-2.0
"""The crash model: possible contents of the origin after a power cut."""

import pytest

from tests.powercut import crash
from tests.powercut.crash import Cut, Origin, Replay
from tests.powercut.journal import Request
from tests.powercut.logwrites import Flag

FUA, FLUSH, DISCARD, PLAIN = Flag.FUA, Flag.FLUSH, Flag.DISCARD, Flag(0)


def write(sector: int, count: int, flags: Flag, submit: int, complete: int, data: int) -> Request:
    return Request(sector, count, flags, submit, complete, data)


def flush(submit: int, complete: int) -> Request:
    return Request(0, 0, FLUSH, submit, complete)


def states(requests: list[Request], time: int, draws: int = 300, sectors: int = 4,
           origin: Origin = crash.HONEST) -> set[tuple[int, ...]]:
    """Return all states drawn for a cut at this time."""
    replay = Replay(requests, sectors, origin)
    replay.advance(time)
    cuts = [Cut(time), Cut(time, "all")] + [Cut(time, "some", seed) for seed in range(draws)]
    return {tuple(replay.image(cut).tolist()) for cut in cuts}


def test_a_completed_fua_write_is_there() -> None:
    assert states([write(1, 2, FUA, 1, 2, 10)], 2) == {(0, 10, 11, 0)}


def test_a_write_in_flight_may_be_there_in_any_part() -> None:
    assert states([write(1, 2, FUA, 1, 5, 10)], 3) == {
        (0, 0, 0, 0), (0, 10, 0, 0), (0, 0, 11, 0), (0, 10, 11, 0)}


def test_what_was_not_sent_is_not_there() -> None:
    assert states([write(1, 2, FUA, 5, 6, 10)], 3) == {(0, 0, 0, 0)}


def test_a_completed_write_in_the_cache_may_be_lost() -> None:
    assert states([write(0, 1, PLAIN, 1, 2, 10)], 9) == {(0, 0, 0, 0), (10, 0, 0, 0)}


def test_a_flush_makes_earlier_completed_writes_durable() -> None:
    requests = [write(0, 1, PLAIN, 1, 2, 10), write(1, 1, PLAIN, 3, 5, 20), flush(4, 6)]
    # The second had not completed when the flush was sent.
    assert states(requests, 6) == {(10, 0, 0, 0), (10, 20, 0, 0)}


def test_a_flush_in_flight_promises_nothing() -> None:
    assert states([write(0, 1, PLAIN, 1, 2, 10), flush(3, 6)], 5) == {(0, 0, 0, 0), (10, 0, 0, 0)}


def test_cached_content_does_not_come_back_over_a_later_durable_write() -> None:
    requests = [write(0, 1, PLAIN, 1, 2, 10), write(0, 1, FUA, 3, 4, 20)]
    assert states(requests, 4) == {(20, 0, 0, 0)}


def test_nor_when_it_is_flushed_afterwards() -> None:
    requests = [write(0, 1, PLAIN, 1, 2, 10), write(0, 1, FUA, 3, 4, 20), flush(5, 6)]
    assert states(requests, 6) == {(20, 0, 0, 0)}


def test_of_two_cached_writes_either_or_none_is_there() -> None:
    requests = [write(0, 1, PLAIN, 1, 2, 10), write(0, 1, PLAIN, 3, 4, 20)]
    assert states(requests, 4) == {(0, 0, 0, 0), (10, 0, 0, 0), (20, 0, 0, 0)}


def test_a_discard_is_not_durable_by_itself() -> None:
    requests = [write(0, 2, FUA, 1, 2, 10), Request(0, 2, DISCARD, 3, 4)]
    assert states(requests, 4) == {
        (10, 11, 0, 0), (0, 11, 0, 0), (10, 0, 0, 0), (0, 0, 0, 0)}


def test_a_lying_origin_makes_nothing_durable() -> None:
    requests = [write(0, 1, FUA, 1, 2, 10), flush(3, 4)]
    lying = Origin(honours_fua=False, honours_flush=False)
    assert states(requests, 4, origin=lying) == {(0, 0, 0, 0), (10, 0, 0, 0)}


def test_without_a_volatile_cache_what_has_completed_is_there() -> None:
    requests = [write(0, 1, PLAIN, 1, 2, 10), write(1, 1, PLAIN, 3, 9, 20)]
    assert states(requests, 4, origin=Origin(volatile=False)) == {(10, 0, 0, 0), (10, 20, 0, 0)}


def test_a_draw_can_be_repeated() -> None:
    requests = [write(0, 64, PLAIN, 1, 2, 100)]
    replay = Replay(requests, 64)
    replay.advance(2)
    cuts = [Cut(2, "some", seed) for seed in range(20)]
    first = [replay.image(cut).tolist() for cut in cuts]
    assert first == [replay.image(cut).tolist() for cut in cuts]
    assert len({tuple(image) for image in first}) > 5


def test_the_replay_does_not_go_back() -> None:
    replay = Replay([], 4)
    replay.advance(5)
    with pytest.raises(ValueError, match="cannot go back"):
        replay.advance(4)
    with pytest.raises(ValueError, match="the cut is at 4"):
        replay.image(Cut(4))


def test_writes_at_the_same_time_to_the_same_sector_are_found() -> None:
    a, b, c = (write(0, 4, FUA, 1, 5, 10), write(3, 2, FUA, 4, 6, 20),
               write(0, 4, FUA, 7, 8, 30))
    assert crash.overlapping([a, b, c]) == [(a, b)]
