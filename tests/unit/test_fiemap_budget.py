# SPDX-License-Identifier: Apache-2.0
"""Which files' extents are read again, on a simulated clock."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vcache_agent.fiemap_budget import PART, Budget, FileId, Status

A, B, C = (0, 1, ""), (0, 2, ""), (0, 3, "")


def status(blocks: int, time: int = 0) -> Status:
    return Status(1 << 30, blocks, time, time)


class Host:
    """Files that change, and a clock that advances by half a second."""

    def __init__(self) -> None:
        self.budget = Budget()
        self.now = 0.0
        self.spent = 0.0
        self.blocks: Counter[FileId] = Counter()
        self.read: Counter[FileId] = Counter()
        self.costs: dict[FileId, float] = {}

    def file(self, file: FileId, cost: float, *, settled: bool = True,
             unwritten: int = 0) -> None:
        self.costs[file] = cost
        self.budget.ended(file, status(0), self.now, cost, settled=settled, unwritten=unwritten)

    def tick(self) -> list[FileId]:
        self.now += 0.5
        for file in self.costs:
            self.budget.saw(file, status(self.blocks[file], self.blocks[file]))
        picked = self.budget.pick(self.now)
        for file in picked:
            self.spent += self.costs[file]
            self.read[file] += 1
            self.budget.ended(file, status(self.blocks[file], self.blocks[file]), self.now,
                              self.costs[file], settled=True, unwritten=0)
        return picked


def test_files_that_do_not_change_are_not_read() -> None:
    host = Host()
    host.file(A, 0.001)
    assert [host.tick() for _ in range(200)] == [[]] * 200


def test_a_file_that_allocates_is_read_at_the_next_tick() -> None:
    host = Host()
    for number in range(300):
        host.file((1, number, ""), 0.0005)
    for number in range(20):
        host.blocks[1, number, ""] += 8
        assert host.tick() == [(1, number, "")]


def test_new_blocks_come_first_then_what_may_have_been_written() -> None:
    host = Host()
    host.file(A, 0.0001)
    host.file(B, 0.0001)
    host.file(C, 0.0001, unwritten=100)
    host.now = 100.0
    host.budget.saw(A, status(8))
    host.budget.saw(B, status(4096))
    host.budget.saw(C, status(0, 5))
    assert host.budget.pick(host.now) == [B, A, C]
    assert host.budget.pick(host.now) == [], "each is being read"


def test_writes_to_written_blocks_are_checked_rarely() -> None:
    """They change the file's times all the time, but not its extents."""
    budget = Budget()
    reads = 0
    budget.ended(A, status(64), 0.0, 0.001, settled=False, unwritten=0)
    for now in range(1, 301):
        budget.saw(A, status(64, now))
        for file in budget.pick(float(now)):
            reads += 1
            budget.ended(file, status(64, now), float(now), 0.001, settled=False, unwritten=0)
    assert reads == 10


def test_a_file_with_unwritten_blocks_is_read_each_second_while_it_changes() -> None:
    budget = Budget()
    reads = 0
    budget.ended(A, status(64), 0.0, 0.001, settled=False, unwritten=8)
    for half in range(1, 21):
        budget.saw(A, status(64, half))
        for file in budget.pick(half / 2):
            reads += 1
            budget.ended(file, status(64, half), half / 2, 0.001, settled=False, unwritten=8)
    assert reads == 10


def test_an_expensive_file_does_not_delay_the_others() -> None:
    """It takes 40 times the budget of a second. The small ones are read at each tick."""
    host = Host()
    host.file(A, 2.0)
    for number in range(10):
        host.file((1, number, ""), 0.0002)
    for _ in range(600):
        for file in host.costs:
            host.blocks[file] += 1 << 20 if file == A else 8
        host.tick()
    assert min(host.read[1, number, ""] for number in range(10)) >= 500
    assert host.read[A] >= 5


def test_a_read_that_fails_is_repeated_after_a_pause() -> None:
    budget = Budget()
    budget.ended(A, status(0), 0.0, 0.001, settled=True, unwritten=0)
    budget.saw(A, status(8))
    assert budget.pick(1.0) == [A]
    budget.failed(A, 1.0)
    assert budget.pick(1.5) == []
    assert budget.pick(2.0 + 0.001 / PART) == [A]


def test_a_file_that_is_gone_is_forgotten() -> None:
    budget = Budget()
    for file in (A, B):
        budget.ended(file, status(0), 0.0, 0.001, settled=True, unwritten=0)
        budget.saw(file, status(8))
    budget.keep([B])
    assert budget.pick(1.0) == [B]
    budget.ended(A, status(0), 0.0, 0.001, settled=True, unwritten=0)
    assert budget.pick(1.0) == []


def test_busy_while_a_file_allocates_and_a_moment_later() -> None:
    budget = Budget()
    budget.ended(A, status(0), 0.0, 0.001, settled=True, unwritten=0)
    assert not budget.busy(1.0)
    budget.saw(A, status(8))
    assert budget.busy(1.0)
    budget.ended(A, status(8), 2.0, 0.001, settled=True, unwritten=0)
    assert budget.busy(3.0)
    budget.ended(A, status(8, 5), 4.0, 0.001, settled=True, unwritten=0)
    assert budget.busy(3.0)
    assert not budget.busy(100.0)


@pytest.mark.parametrize("part", [0.01, 0.05])
@settings(deadline=None, max_examples=40)
@given(costs=st.lists(st.floats(0.0001, 0.5), min_size=1, max_size=12),
       rates=st.lists(st.integers(0, 1000), min_size=12, max_size=12))
def test_the_budget_holds_and_no_file_starves(
        part: float, costs: list[float], rates: list[int]) -> None:
    budget = Budget(part)
    ids = [(1, number, "") for number in range(len(costs))]
    for file, cost in zip(ids, costs, strict=True):
        budget.ended(file, status(0), 0.0, cost, settled=True, unwritten=0)
    spent, last = 0.0, dict.fromkeys(ids, 0.0)
    longest = dict.fromkeys(ids, 0.0)
    seconds = 400
    for half in range(1, 2 * seconds):
        now = half / 2
        blocks = [rate * half for rate in rates]
        for file, count in zip(ids, blocks, strict=False):
            budget.saw(file, status(count))
        for file in budget.pick(now):
            cost = costs[ids.index(file)]
            spent += cost
            longest[file] = max(longest[file], now - last[file])
            last[file] = now
            budget.ended(file, status(blocks[ids.index(file)]), now, cost, settled=True,
                         unwritten=0)
    # What was saved, and one read of each file, may come on top.
    assert spent <= part * seconds + 0.25 + sum(costs)
    for file, cost, rate in zip(ids, costs, rates, strict=False):
        wait = max(longest[file], seconds - last[file])
        assert not rate or wait <= cost * len(ids) / part + 1.0
