# SPDX-License-Identifier: Apache-2.0
"""The oracle detects each kind of violation, and reports no others."""

import numpy as np
import pytest

from tests.powercut import stamps
from tests.powercut.contract import Attribution
from tests.powercut.journal import NEVER, Op
from tests.powercut.ledger import Ledger
from tests.powercut.scenario import Scenario, filesystem, volume


def op(number: int, kind: str, submit: int, complete: int = NEVER, *, sector: int = 0,
       count: int = 1, detail: str = "-", file: int = 0, worker: int = 1) -> Op:
    return Op(worker << 32 | number, kind, file, sector, count, detail, submit, complete)


def wrong(ops: list[Op], time: int, *found: int, worker: int = 1) -> list[str]:
    """Return the violations if the sectors of file 0 hold these writes (small numbers)."""
    ledger = Ledger({0: len(found)}, ops, lambda flush, write: True)
    ledger.advance(time)
    numbers = [n | worker << 32 if 0 < n < 1000 else n for n in found]
    return [str(v) for v in ledger.check(np.array(numbers, np.uint64))]


W1, W2, F3 = op(1, "W", 1, 2), op(2, "W", 5, 6), op(3, "F", 3, 4)


def test_before_a_flush_everything_is_allowed() -> None:
    for content in (stamps.ZERO, 1):
        assert wrong([W1, F3], 3, content) == []


def test_after_a_flush_the_write_must_be_there() -> None:
    assert wrong([W1, F3], 4, 1) == []
    assert wrong([W1, F3], 4, stamps.ZERO) == [
        "file 0 sector 0: zeroes, but the write sent at 1 was made durable"]


def test_a_later_write_may_be_there_whether_it_is_complete_or_not() -> None:
    for time in (5, 6):
        assert wrong([W1, F3, W2], time, 2) == []
        assert wrong([W1, F3, W2], time, 1) == []


def test_a_crash_loses_what_no_flush_had_covered_and_nothing_else() -> None:
    def survives(alive: int, *found: int) -> list[str]:
        ledger = Ledger({0: len(found)}, [W1, F3, W2, op(4, "F", 9, 10)],
                        lambda flush, write: True, alive=alive)
        ledger.advance(10)
        return [str(v) for v in ledger.check(np.array([n and n | 1 << 32 for n in found],
                                                      np.uint64))]

    assert survives(7, 1) == survives(7, 2) == []
    # The flush came before the crash, or the write after it.
    assert survives(7, 0)
    assert survives(4, 1)
    assert survives(NEVER, 1)


def test_old_content_is_noticed() -> None:
    flushes = [op(4, "F", 7, 8)]
    assert wrong([W1, W2, *flushes], 8, 2) == []
    assert wrong([W1, W2, *flushes], 8, 1) == [
        "file 0 sector 0: op 1.1, but the write sent at 5 was made durable"]


def test_a_write_that_had_not_completed_before_the_flush_is_not_covered() -> None:
    assert wrong([op(1, "W", 1, 5), F3], 6, stamps.ZERO) == []


def test_of_two_writes_at_once_either_may_be_there() -> None:
    ops = [op(1, "W", 1, 4), op(2, "W", 2, 3), op(3, "F", 5, 6)]
    assert wrong(ops, 6, 1) == []
    assert wrong(ops, 6, 2) == []
    assert wrong(ops, 6, stamps.ZERO)


def test_a_durable_write_needs_no_flush() -> None:
    assert wrong([op(1, "W", 1, 2, detail="D")], 2, stamps.ZERO)
    assert wrong([op(1, "W", 1, 2, detail="D")], 1, stamps.ZERO) == []


@pytest.mark.parametrize(("content", "text"), [
    (stamps.TORN, "torn: parts of two writes"),
    (stamps.FOREIGN, "another place's or another owner's content"), (99, "op 1.99")])
def test_what_nobody_wrote_is_noticed_at_any_time(content: int, text: str) -> None:
    assert wrong([W1], 0, content) == [f"file 0 sector 0: {text}"]


def test_a_failed_write_and_a_failed_flush_promise_nothing() -> None:
    assert wrong([op(1, "W", 1), F3], 9, stamps.ZERO) == []
    assert wrong([W1, op(3, "F", 3)], 9, stamps.ZERO) == []


def test_zeroes_are_content_like_any_other() -> None:
    zero = op(2, "Z", 5, 6)
    assert wrong([W1, F3, zero], 5, stamps.ZERO) == []
    assert wrong([W1, F3, zero], 6, 1) == []
    assert wrong([W1, zero, op(4, "F", 7, 8)], 8, 1)
    assert wrong([zero, op(4, "W", 7, 8, detail="D")], 8, stamps.ZERO)


def test_a_discarded_sector_may_be_zeroes_or_what_it_was() -> None:
    ops = [W1, F3, op(2, "D", 5, 6), op(4, "F", 7, 8)]
    assert wrong(ops, 8, 1) == []
    assert wrong(ops, 8, stamps.ZERO) == []
    rewritten = [*ops, op(5, "W", 9, 10, detail="D")]
    assert wrong(rewritten, 10, stamps.ZERO)
    assert wrong(rewritten, 10, 1)


def test_only_the_sectors_of_the_write_are_demanded() -> None:
    ops = [op(1, "W", 1, 2, sector=1, count=2), F3]
    assert wrong(ops, 4, 0, 1, 1, 0) == []
    assert len(wrong(ops, 4, 0, 0, 0, 0)) == 2


def covers(s: Scenario, flush: Op, write: Op) -> bool:
    return Attribution(s).covers(flush, write)


EXT4 = filesystem("f", "ext4", 1)

# The scenario: workers 1 and 2 are in cgroup a (files 1 and 2), 3 in b (file 3), 4 in c (file 4,
# of a and c), 5 in b (file 1), 6 in none (file 3).


@pytest.mark.parametrize(("flusher", "how", "writer", "file", "covered"), [
    (1, "fdatasync", 1, 1, True),     # its own
    (1, "fdatasync", 2, 2, True),     # the other disk of the VM
    (1, "fdatasync", 3, 3, False),    # a disk of another VM
    (3, "fdatasync", 1, 1, False),
    (1, "fdatasync", 4, 4, True),     # a shared disk
    (4, "fdatasync", 1, 1, False),
    (3, "fdatasync", 5, 1, True),     # b's write to a's image: untagged
    (4, "fdatasync", 5, 1, True),     # so every flush covers it
    (1, "fdatasync", 6, 3, True),     # outside of all cgroups: untagged
    (1, "aio", 3, 3, True),           # a flush of a kernel thread covers everything
    (6, "fdatasync", 3, 3, True),     # a flush from outside covers everything
    (1, "sync", 3, 3, True),
])
def test_which_writes_a_flush_covers(flusher: int, how: str, writer: int, file: int,
                                     covered: bool) -> None:
    flush = op(9, "F", 5, 6, detail=how, worker=flusher)
    assert covers(EXT4, flush, op(1, "W", 1, 2, worker=writer, file=file)) is covered


def test_what_a_removed_tag_left_is_covered_by_every_flush() -> None:
    removal = op(1, "T", 5, 6, file=2, worker=99)
    rule = Attribution(EXT4, [removal])
    before = op(1, "W", 1, 2, worker=2, file=2)
    after = op(2, "W", 7, 8, worker=2, file=2)
    early, late = (op(3, "F", at, at + 9, detail="fdatasync", worker=3) for at in (4, 10))
    assert rule.covers(late, before)
    assert not rule.covers(early, before)
    assert not rule.covers(late, after)


def test_in_volume_mode_a_flush_covers_everything() -> None:
    flush = op(9, "F", 5, 6, detail="fdatasync", worker=1)
    assert covers(volume("v", 1), flush, op(1, "W", 1, 2, worker=4))


def test_a_growing_file_needs_its_own_flush() -> None:
    rule = Attribution(EXT4)
    flush = op(9, "F", 5, 6, detail="fdatasync", worker=8, file=8000)
    assert rule.covers_file(flush, op(1, "W", 1, 2, worker=8, file=8000))
    assert not rule.covers_file(flush, op(1, "W", 1, 2, worker=8, file=8001))
    assert rule.covers_file(flush, op(1, "W", 1, 2, worker=1, file=1))


def test_a_neighbours_flush_of_an_image_is_still_only_the_neighbours() -> None:
    # The same through the file system: the sender decides, not the file.
    rule = Attribution(EXT4)
    flush = op(9, "F", 5, 6, detail="fdatasync", worker=5, file=1)
    assert not rule.covers_file(flush, op(1, "W", 1, 2, worker=1, file=1))
    assert rule.covers_file(flush, op(1, "W", 1, 2, worker=5, file=1))


def pooled(ops: list[Op], time: int, *found: int, cached: bool = True) -> list[str]:
    """Return the violations with a pool, whose discards cancel requirements."""
    ledger = Ledger({0: len(found)}, ops, lambda flush, write: True, discards_forget=True)
    ledger.advance(time)
    numbers = np.array([n | 1 << 32 if 0 < n < 1000 else n for n in found], np.uint64)
    return [str(v) for v in [*ledger.check(numbers),
                             *ledger.check_cache(numbers, np.full(len(found), cached))]]


BOTH = [op(1, "W", 1, 2, count=8), op(2, "W", 3, 4, count=8), op(3, "F", 5, 6)]


def test_in_a_pool_a_discard_may_bring_older_content_back() -> None:
    discard = op(4, "D", 7, 9, count=8)
    assert pooled(BOTH, 6, *[1] * 8)
    for time in (7, 9):
        assert pooled([*BOTH, discard], time, *[1] * 8, cached=False) == []
    assert pooled([*BOTH, discard], 9, *[stamps.FOREIGN] * 8, cached=False)


def test_in_a_pool_what_is_written_after_a_discard_must_be_there() -> None:
    ops = [*BOTH, op(4, "D", 7, 9, count=8), op(5, "W", 10, 11, count=8), op(6, "F", 12, 13)]
    assert pooled(ops, 13, *[5] * 8) == []
    assert pooled(ops, 13, *[2] * 8, cached=False)


def test_a_write_during_a_discard_is_at_its_mercy() -> None:
    ops = [*BOTH, op(4, "D", 7, 12, count=8), op(5, "W", 8, 9, count=8), op(6, "F", 10, 11)]
    assert pooled(ops, 11, *[1] * 8, cached=False) == []
    assert pooled(ops, 13, *[1] * 8, cached=False) == []


def test_what_a_discard_is_on_its_way_to() -> None:
    ops = [*BOTH, op(4, "D", 7, 10, sector=2, count=3), op(5, "D", 8, NEVER, sector=4, count=2),
           op(6, "Z", 9, 11, count=8)]
    ledger = Ledger({0: 8}, ops, lambda flush, write: True, discards_forget=True)
    for time, sectors in ((6, []), (7, [2, 3, 4]), (9, [2, 3, 4, 5]), (10, [4, 5]), (11, [4, 5])):
        ledger.advance(time)
        assert list(np.flatnonzero(ledger.discarding())) == sectors


def test_what_was_discarded_is_not_in_the_cache_again() -> None:
    ops = [*BOTH, op(4, "D", 7, 9, count=8)]
    assert pooled(ops, 8, *[2] * 8) == []
    assert pooled(ops, 9, *[2] * 8)
    # For parts of blocks, the cache keeps its data.
    assert pooled([*BOTH, op(4, "D", 7, 9, sector=1, count=7)], 9, *[2] * 8) == []
