# SPDX-License-Identifier: Apache-2.0
"""The host's decisions about an elastic SSD: honest guests, and all others."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from vcache_agent.vssd.session import (
    Action,
    Force,
    Recall,
    Release,
    Send,
    Session,
    SetQuota,
    State,
)
from vcache_guest.protocol import (
    Call,
    Deflate,
    Done,
    Forced,
    Give,
    Hello,
    Inflate,
    Message,
    Range,
    Welcome,
)

MOST = 40
HELLO = Hello(1, 1, bytes(16))


def session(quota: int = 20) -> Session:
    made = Session(1 << 20, False, State(MOST, quota, quota, quota, 0))
    assert made.connected("disk") == [Send(Call())]
    return made


def welcome(size: int) -> list[Action]:
    return [Send(Welcome(1 << 20, MOST, size, False, "disk")), Recall()]


def full(blocks: int, quota: int) -> State:
    """All blocks that it owns have data."""
    return State(MOST, quota, blocks, blocks, 0)


def test_a_guest_is_told_what_it_has() -> None:
    host = session()
    assert host.received(HELLO, 0) == welcome(20)
    assert host.present
    assert not host.busy


@pytest.mark.parametrize("hello", [Hello(2, 3, bytes(16))])
def test_a_guest_with_other_versions_is_not_served(hello: Hello) -> None:
    host = session()
    host.received(HELLO, 0)
    assert host.received(hello, 0) == []
    assert not host.present


def test_an_honest_guest_gives_up_blocks() -> None:
    host = session()
    host.received(HELLO, 0)
    assert host.resize(12, 100, 30) == [SetQuota(12, keep=True), Send(Deflate(1, 12, 30000))]
    assert host.observed(full(20, 12), 101) == []
    assert host.received(Give(1, False, (Range(12, 8),)), 102) == [Release((Range(12, 8),))]
    # It may still write, until it says that it does not.
    assert host.observed(State(MOST, 12, 20, 12, 8), 102) == []
    assert host.received(Done(1, 12), 103) == [SetQuota(12)]
    assert host.received(Done(1, 12), 103) == []
    assert host.observed(full(12, 12), 103) == [Send(Done(1, 12))]
    assert not host.busy
    assert host.taken == 0


def test_blocks_of_a_silent_guest_are_taken_after_the_deadline() -> None:
    host = session()
    host.received(HELLO, 0)
    host.resize(12, 100, 30)
    assert host.observed(full(20, 12), 129.9) == []
    assert host.observed(full(20, 12), 130) == [Force()]
    assert host.forced((Range(12, 8),)) == [Send(Forced(1, False, (Range(12, 8),)))]
    assert host.taken == 8
    assert host.observed(full(12, 12), 130) == [Send(Done(1, 12))]


@pytest.mark.parametrize("done", [Done(2, 12), Done(0, 12), Done(1, 13)])
def test_a_guest_that_is_not_done_keeps_its_blocks(done: Done) -> None:
    host = session()
    host.received(HELLO, 0)
    host.resize(12, 100, 30)
    assert host.received(done, 101) == []
    assert host.observed(State(MOST, 12, 20, 5, 15), 129) == []
    # What has no data is taken as well.
    assert host.observed(State(MOST, 12, 20, 5, 15), 130) == [Force()]
    assert host.forced(()) == []
    assert host.observed(State(MOST, 12, 20, 5, 15), 131) == []
    assert host.observed(State(MOST, 12, 12, 5, 7), 132) == [Send(Done(1, 12))]


def test_a_growth_follows_a_shrink_that_is_under_way() -> None:
    host = session()
    host.received(HELLO, 0)
    host.resize(8, 100, 30)
    assert host.resize(12, 101, 30) == [SetQuota(12, keep=True)]
    assert host.observed(full(20, 12), 102) == []
    assert host.received(Done(1, 8), 103) == [SetQuota(12)]
    assert host.observed(State(MOST, 12, 12, 8, 4), 104) == [Send(Done(1, 8))]
    assert host.busy
    assert host.observed(State(MOST, 12, 12, 8, 4), 105) == [Send(Inflate(2, 12))]
    assert not host.busy


@pytest.mark.parametrize("size", [8, 12])
def test_a_silent_guest_gains_no_time_by_another_size(size: int) -> None:
    host = session()
    host.received(HELLO, 0)
    host.resize(8, 100, 30)
    assert host.resize(size, 120, 30) == [SetQuota(size, keep=True)]
    assert host.observed(full(20, size), 130) == [Force()]


def test_without_a_daemon_nobody_is_waited_for() -> None:
    host = session()
    assert host.resize(12, 100, 30) == [SetQuota(12)]
    assert host.observed(full(20, 12), 100) == [Force()]
    assert host.forced((Range(12, 8),)) == []


def test_a_reboot_gains_no_time() -> None:
    host = session()
    host.received(HELLO, 0)
    host.resize(12, 100, 30)
    assert host.received(HELLO, 125) == [*welcome(12), Send(Deflate(1, 12, 5000))]
    assert host.received(HELLO, 140)[2] == Send(Deflate(1, 12, 0))
    assert host.observed(full(20, 12), 140) == [Force()]


def test_a_shrink_goes_on_after_a_restart_of_the_host() -> None:
    host = Session(1 << 20, False, full(20, 12), 100, 30)
    assert host.busy
    assert host.connected("disk") == [Send(Call())]
    assert host.observed(full(20, 12), 129) == []
    assert host.received(HELLO, 110) == [*welcome(12), Send(Deflate(1, 12, 20000))]
    assert host.observed(full(20, 12), 130) == [Force()]
    assert host.observed(full(12, 12), 131) == [Send(Done(1, 12))]
    assert host.resize(10, 140, 1) == [SetQuota(10, keep=True), Send(Deflate(2, 10, 1000))]


def test_a_growth_goes_on_after_a_restart_of_the_host() -> None:
    host = Session(1 << 20, False, State(MOST, 30, 25, 20, 3), 100, 30)
    host.connected("disk")
    assert host.received(HELLO, 100) == welcome(25)
    assert host.observed(State(MOST, 30, 30, 20, 10), 101) == [Send(Inflate(1, 30))]


def test_a_guest_is_told_what_it_has_lost_before() -> None:
    host = session()
    host.received(HELLO, 0)
    # What is behind its size is of no interest.
    assert host.recalled((Range(3, 2), Range(18, 9))) == [
        Send(Forced(0, False, (Range(3, 2), Range(18, 2))))]
    assert host.recalled((Range(20, 9),)) == host.recalled(()) == []


def test_blocks_without_data_are_not_forced() -> None:
    host = session()
    host.received(HELLO, 0)
    host.resize(12, 100, 30)
    host.received(Done(1, 12), 101)
    # The kernel returns these by itself.
    assert host.observed(State(MOST, 12, 20, 10, 0), 200) == []
    assert host.observed(State(MOST, 12, 12, 10, 2), 200) == [Send(Done(1, 12))]


def test_a_growing_guest_is_told_when_the_blocks_are_there() -> None:
    host = session()
    host.received(HELLO, 0)
    assert host.resize(30, 0, 0) == [SetQuota(30)]
    assert host.observed(State(MOST, 30, 25, 20, 5), 1) == []
    assert host.observed(State(MOST, 30, 30, 20, 4), 2) == []  # some are being zeroed
    # One that says hello meanwhile may use what it had.
    assert host.received(HELLO, 2) == welcome(20)
    assert host.observed(State(MOST, 30, 30, 20, 10), 3) == [Send(Inflate(1, 30))]
    assert host.observed(State(MOST, 30, 30, 20, 10), 4) == []


def test_a_second_change_replaces_the_first() -> None:
    host = session()
    host.received(HELLO, 0)
    host.resize(10, 0, 30)
    host.resize(15, 1, 30)
    assert host.observed(full(10, 15), 20) == [Send(Done(1, 10))]
    assert host.observed(full(15, 15), 60) == [Send(Inflate(2, 15))]


def test_a_liar_releases_nothing_outside_and_nothing_twice() -> None:
    host = session()
    ranges = (Range(0, 4_000_000_000), Range(39, 1), Range(5, 10), Range(40, 1), Range(2**31, 7))
    assert host.received(Give(99, False, ranges), 0) == [Release((Range(0, MOST),))]
    assert host.received(Give(0, False, (Range(40, 5),)), 0) == []


@given(st.lists(st.builds(Range, st.integers(0, 60), st.integers(1, 30)), max_size=10))
def test_each_block_is_released_once(ranges: list[Range]) -> None:
    (*actions,) = session().received(Give(0, False, tuple(ranges)), 0)
    found = [block for action in actions for one in action.ranges
             for block in range(one.first, one.first + one.blocks)]
    assert sorted(set(found)) == found
    assert set(found) == {block for one in ranges
                          for block in range(one.first, one.first + one.blocks) if block < MOST}


@pytest.mark.parametrize(("blocks", "deadline"), [(-1, 0), (MOST + 1, 0), (1, -1), (1, 3601),
                                                  (1, float("nan"))])
def test_a_size_out_of_range_is_refused(blocks: int, deadline: float) -> None:
    host = session()
    with pytest.raises(ValueError, match="must be 0 to"):
        host.resize(blocks, 0, deadline)
    assert not host.busy


class Host(RuleBasedStateMachine):
    """A kernel with a real session, and a guest that does anything."""

    @initialize(quota=st.integers(0, MOST))
    def start(self, quota: int) -> None:
        self.mapped: set[int] = set()
        self.quota, self.owned, self.now, self.deadline = quota, quota, 0.0, 0.0
        self.taken: set[int] = set()
        self.keep = False
        self.host = Session(1 << 20, True, self.state())
        self.told = quota

    def state(self) -> State:
        return State(MOST, self.quota, self.owned, len(self.mapped),
                     self.owned - len(self.mapped))

    def settle(self) -> None:
        """Blocks without data go to the pool, or come from it."""
        self.owned = max(self.owned if self.keep else 0, self.quota, len(self.mapped))

    def do(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case SetQuota(blocks, keep):
                    self.quota, self.keep = blocks, keep
                case Release(ranges):
                    for one in ranges:
                        assert one.first + one.blocks <= MOST
                        self.mapped -= set(range(one.first, one.first + one.blocks))
                        self.taken -= set(range(one.first, one.first + one.blocks))
                case Force():
                    assert self.now >= self.deadline
                    taken = sorted(self.mapped)[self.quota:]
                    assert taken or self.keep
                    self.keep = False
                    self.mapped -= set(taken)
                    self.taken |= set(taken)
                    self.do(self.host.forced(tuple(Range(block, 1) for block in taken)))
                case Recall():
                    lost = [Range(block, 1) for block in sorted(self.taken)]
                    self.do(self.host.recalled(tuple(lost)))
                case Send(message):
                    assert self.host.present
                    self.hear(message)
        self.settle()

    def hear(self, message: Message) -> None:
        match message:
            case Inflate(_, size) | Deflate(_, size, _) | Welcome(_, _, size, _, _):
                self.told = size
            case Forced(0, _, ranges):
                assert {one.first for one in ranges} <= self.taken
                assert all(one.first + one.blocks <= self.told for one in ranges)
            case _:
                pass

    @rule(blocks=st.integers(0, MOST), deadline=st.floats(0, 100))
    def resize(self, blocks: int, deadline: float) -> None:
        before = self.host.present
        smaller = blocks < self.host.size
        actions = self.host.resize(blocks, self.now, deadline)
        if smaller:
            self.deadline = self.now + deadline if before else 0
        self.do(actions)

    @rule(block=st.integers(0, MOST - 1))
    def write(self, block: int) -> None:
        if len(self.mapped) < self.owned and block not in self.taken:
            self.mapped.add(block)

    @rule(message=st.one_of(
        st.builds(Give, st.integers(0, 5), st.booleans(), st.lists(st.builds(
            Range, st.integers(0, 60), st.integers(1, 60)), max_size=4).map(tuple)),
        st.builds(Done, st.integers(0, 5), st.integers(0, 60)),
        st.builds(Inflate, st.integers(0, 5), st.integers(0, 60)),
        st.just(HELLO), st.just(Hello(2, 2, bytes(16)))))
    def say(self, message: Message) -> None:
        self.do(self.host.received(message, self.now))

    @rule(deadline=st.floats(0, 100))
    def restart(self, deadline: float) -> None:
        """The agent is killed, and starts again."""
        self.host = Session(1 << 20, True, self.state(), self.now, deadline)
        self.deadline = self.now + deadline if self.owned > self.quota else 0

    @rule()
    def leave(self) -> None:
        self.host.disconnected()

    @rule(seconds=st.floats(0, 200))
    def look(self, seconds: float) -> None:
        self.now += seconds
        self.do(self.host.observed(self.state(), self.now))

    @rule()
    def wait_for_the_end(self) -> None:
        """Every change ends at last, whatever the guest does."""
        self.now = max(self.now, self.deadline)
        for _ in range(3):
            self.do(self.host.observed(self.state(), self.now))
        assert not self.host.busy
        assert self.host.size == self.host.target == self.quota == self.owned

    @invariant()
    def no_guest_may_use_more_than_it_can(self) -> None:
        assert self.host.size <= max(self.quota, self.owned)
        if self.host.present:
            assert self.told == self.host.size


TestHost = Host.TestCase
TestHost.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
