# SPDX-License-Identifier: Apache-2.0
"""The division of an elastic SSD among consumers in the guest: pure parts, and fuzzing."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
)

from vcache_agent.policies import Demand, static
from vcache_agent.policies import Range as Bounds
from vcache_guest import app_protocol, blocks
from vcache_guest.app_protocol import Forced, Give, Grant, Reclaim, Refused, Register, Welcome
from vcache_guest.blocks import Ranges
from vcache_guest.protocol import ProtocolError, Range
from vcache_guest.shares import Claim, divide
from vcache_guest.sharing import Process, Sends, Sharing

MIB = 1 << 20
MOST = 64

some_ranges = st.lists(st.builds(Range, st.integers(0, 40), st.integers(1, 9)), max_size=8)
claims = st.builds(Claim, st.integers(1, 1000), st.integers(0, 30))


def as_set(ranges: tuple[Range, ...]) -> set[int]:
    return {block for first, number in ranges for block in range(first, first + number)}


@given(some_ranges, some_ranges, st.integers(-1, 60))
def test_sets_of_blocks(one: list[Range], other: list[Range], number: int) -> None:
    left, right = blocks.normal(one), blocks.normal(other)
    assert as_set(left) == as_set(tuple(one))
    for result, wanted in ((blocks.union(left, right), as_set(left) | as_set(right)),
                           (blocks.without(left, right), as_set(left) - as_set(right)),
                           (blocks.both(left, right), as_set(left) & as_set(right)),
                           (blocks.last(left, number),
                            set(sorted(as_set(left))[-number:] if number > 0 else []))):
        assert as_set(result) == wanted
        assert blocks.count(result) == len(wanted)
        assert blocks.normal(result) == result


@given(st.integers(0, 10_000), st.lists(claims, min_size=1, max_size=8))
def test_all_is_divided_and_minima_are_kept(size: int, asked: list[Claim]) -> None:
    parts = divide(size, asked)
    assert sum(parts) == size
    least = sum(claim.least for claim in asked)
    weights = sum(claim.weight for claim in asked)
    for claim, part in zip(asked, parts, strict=True):
        # As native/dm/reclaim/share.c: minima, scaled down if there are too many, then weights.
        exact = claim.least * size / least if least > size else \
            claim.least + (size - least) * claim.weight / weights
        assert abs(part - exact) < 1


@given(st.integers(1, 5000), st.lists(st.integers(1, 1000), min_size=1, max_size=8))
def test_without_minima_it_is_the_agents_division(size: int, weights: list[int]) -> None:
    of_agent = static([Demand(weight, Bounds(0, 0)) for weight in weights], size * MIB)
    for part, wanted in zip(divide(size, [Claim(weight) for weight in weights]), of_agent,
                            strict=True):
        assert part == wanted.least // MIB or part == wanted.least // MIB + 1 or (
            part == 0 and wanted.least == MIB)


names = st.text("abcXYZ019._-", min_size=1, max_size=31)
ranges_of_messages = st.lists(st.builds(Range, st.integers(0, 1 << 31), st.integers(1, 1 << 30)),
                              max_size=256).map(tuple)
numbers = st.integers(0, (1 << 32) - 1)
messages = st.one_of(
    st.builds(Register, names, st.integers(1, 1000), numbers),
    st.builds(Welcome, st.sampled_from((4096, MIB)), numbers, st.text("/dev", min_size=1)),
    st.builds(Grant, ranges_of_messages), st.builds(Reclaim, numbers, numbers, numbers),
    st.builds(Give, numbers, ranges_of_messages), st.builds(Forced, ranges_of_messages),
    st.builds(Refused, st.text("abc ", min_size=1, max_size=100)))


@given(messages)
def test_a_message_is_its_bytes(message: app_protocol.Message) -> None:
    data = app_protocol.encode(message)
    assert app_protocol.decode(data) == message
    assert len(data) <= app_protocol.MESSAGE_MAX


@settings(max_examples=500)
@given(messages.map(app_protocol.encode), st.lists(st.tuples(st.integers(0, 200),
                                                             st.integers(0, 255)), max_size=3),
       st.integers(-9, 9))
def test_damaged_messages_are_refused_or_valid(data: bytes, damage: list[tuple[int, int]],
                                               longer: int) -> None:
    raw = bytearray(data[:longer] if longer < 0 else data + bytes(longer))
    for at, value in damage:
        if at < len(raw):
            raw[at] = value
    try:
        message = app_protocol.decode(bytes(raw))
    except ProtocolError:
        return
    # What one side accepts, it can also say.
    assert app_protocol.decode(app_protocol.encode(message)) == message


@pytest.mark.parametrize(("data", "reason"), [
    (b"", "message of 0 bytes, must have 8 or more"),
    (b"\2\1\0\0\0\0\0\0", "version 2 of the protocol, must be 1"),
    (b"\1\x63\0\0\0\0\0\0", "message of type 99, must be 1 to 7"),
    (b"\1\5\1\1\0\0\0\0", "257 ranges in a message of type 5"),
    (b"\1\4\0\1" + bytes(12), "1 ranges in a message of type 4"),
    (b"\1\5\0\1\0\0\0\0" + bytes(7), "with 15 bytes, must have 16"),
    (b"\1\5\0\1\0\0\0\0" + bytes(8), "range of 0 blocks from 0 on"),
    (b"\1\5\0\1\0\0\0\0" + b"\xff" * 8, "must have 1 or more and end below"),
    (b"\1\1\0\0" + bytes(6 + 4) + b"a/b".ljust(32, b"\0"), "name 'a/b', must have 1 to 31"),
    (b"\1\1\0\0" + bytes(6 + 4) + b"a\0b".ljust(32, b"\0"), "must be printable and end with"),
    (b"\1\1\0\0" + bytes(6 + 4) + b"a".ljust(32, b"\0"), "weight 0, must be 1 to 1000"),
])
def test_a_refusal_has_the_reason(data: bytes, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        app_protocol.decode(data)


def sharing(size: int = 40, *, cache: bool = True) -> Sharing:
    made = Sharing(lambda ranges: None, Claim() if cache else None)
    made.attached(MOST, size)
    if cache:
        made.cache = made.cache_wanted()
    return made


def granted(sends: Sends) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {}
    for number, message in sends:
        if isinstance(message, Grant):
            found.setdefault(number, set()).update(as_set(message.ranges))
    return found


def test_a_cache_alone_has_everything() -> None:
    made = sharing()
    assert made.cache == 40
    assert made.balance() == []
    assert made.unused() == (Range(40, 24),)


def test_an_application_gets_what_the_cache_gives_up() -> None:
    made = sharing()
    made.join(1, "one", Claim(300))
    assert made.balance() == []
    assert made.cache_wanted() == 10
    made.cache = 10
    assert granted(made.balance()) == {1: set(range(34, 64))}
    assert made.balance() == []


def test_the_cache_grows_when_an_application_has_left() -> None:
    made = sharing(MOST)
    made.join(1, "one", Claim(100))
    made.cache = made.cache_wanted()
    made.balance()
    made.leave(1)
    assert made.cache_wanted() == MOST


def test_shrinking_applications_choose_the_blocks() -> None:
    made = sharing(cache=False)
    made.join(1, "one", Claim(100))
    made.join(2, "two", Claim(300))
    assert {number: len(found) for number, found in granted(made.balance()).items()} == {
        1: 10, 2: 30}
    made.size = 20
    assert made.balance(500) == [(1, Reclaim(1, 5, 500)), (2, Reclaim(2, 15, 500))]
    # Blocks of others, and those that it has not, do not count.
    made.gave(1, (Range(0, 64),))
    assert not made.apps[1].held
    assert blocks.count(made.apps[2].held) == 30
    sends = made.force()
    assert sends == [(2, Forced((Range(44, 10),)))]
    assert made.used == 20
    # Nobody gets what the application may still write to.
    made.size = 60
    assert not granted(made.balance())[1] & set(range(44, 54))
    made.gave(2, (Range(44, 10),))
    made.size = MOST
    made.balance()
    assert made.used == MOST


def test_a_request_that_is_too_strict_is_replaced() -> None:
    made = sharing(cache=False)
    made.join(1, "one", Claim(100))
    made.balance()
    made.size = 20
    assert made.balance() == [(1, Reclaim(1, 20, app_protocol.NEVER_MS))]
    assert made.balance() == []
    made.size = 40
    assert made.balance() == [(1, Reclaim(2, 40, app_protocol.NEVER_MS))]
    assert made.balance() == []


def test_blocks_of_an_absent_process_are_nobodys() -> None:
    made, process = sharing(cache=False), Process(1, 1)
    made.join(1, "one", Claim())
    made.balance()
    made.abandon(1, process)
    made.join(2, "two", Claim())
    assert made.balance() == []
    # The host's force and ours take them like others.
    made.lost((Range(0, 64),))
    assert made.used == 0
    assert granted(made.balance()) == {2: set(range(24))}
    made.gone(process)
    assert len(granted(made.balance())[2]) == 16


def test_blocks_that_cannot_be_discarded_are_not_granted() -> None:
    def discard(ranges: Ranges) -> None:
        raise OSError("no")

    made = Sharing(discard, None)
    made.attached(MOST, MOST)
    made.join(1, "one", Claim())
    made.balance()
    made.leave(1)
    made.join(2, "two", Claim())
    assert made.balance() == []


class Applications(RuleBasedStateMachine):
    """Applications that come, go, lie and do not answer, on a model of the disk."""

    apps: Bundle[int] = Bundle("apps")

    def __init__(self) -> None:
        super().__init__()
        #: What each application may write to, as it knows.
        self.mine: dict[int, set[int]] = {}
        self.away: dict[Process, set[int]] = {}
        self.next = 0
        self.sharing = Sharing(self.discard, Claim(100, 3))
        self.sharing.attached(MOST, 30)
        self.settle()

    def discard(self, ranges: Ranges) -> None:
        assert not as_set(ranges) & set(range(self.sharing.cache)), "the cache's blocks"

    def settle(self) -> None:
        self.hear(self.sharing.balance())
        self.sharing.cache = self.sharing.cache_wanted()
        self.hear(self.sharing.balance())

    def hear(self, sends: Sends) -> None:
        for number, message in sends:
            match message:
                case Grant(ranges):
                    got = as_set(ranges)
                    assert not got & set(range(self.sharing.cache))
                    for other in (*self.mine.values(), *self.away.values()):
                        assert not got & other, "somebody may still write to them"
                    assert max(got) < MOST
                    self.mine[number] |= got
                case Reclaim(_, keep, _):
                    assert keep <= self.sharing.size

    @rule(target=apps, weight=st.integers(1, 1000), least=st.integers(0, 20))
    def join(self, weight: int, least: int) -> int:
        self.next += 1
        self.mine[self.next] = set()
        self.sharing.join(self.next, f"app{self.next}", Claim(weight, least))
        self.settle()
        return self.next

    @rule(number=apps, weight=st.integers(1, 1000))
    def change(self, number: int, weight: int) -> None:
        self.sharing.join(number, "", Claim(weight))
        self.settle()

    @rule(number=apps, ranges=some_ranges)
    def give(self, number: int, ranges: list[Range]) -> None:
        self.mine[number] -= as_set(tuple(ranges))
        self.sharing.gave(number, tuple(ranges))
        self.settle()

    @rule(number=apps, part=st.integers(0, MOST))
    def obey(self, number: int, part: int) -> None:
        given = sorted(self.mine[number])[:part]
        self.mine[number] -= set(given)
        self.sharing.gave(number, tuple(Range(block, 1) for block in given))
        self.settle()

    @rule(number=consumes(apps))
    def leave(self, number: int) -> None:
        del self.mine[number]
        self.sharing.leave(number)
        self.settle()

    @rule(number=consumes(apps))
    def abandon(self, number: int) -> None:
        process = Process(number % 3, 0)
        self.away[process] = self.away.get(process, set()) | self.mine.pop(number)
        self.sharing.abandon(number, process)
        self.settle()

    @rule(number=st.integers(0, 2))
    def ends(self, number: int) -> None:
        self.away.pop(Process(number, 0), None)
        self.sharing.gone(Process(number, 0))
        self.settle()

    @rule(target=apps, size=st.integers(0, MOST))
    def resize(self, size: int) -> MultipleResults[int]:
        self.sharing.size = size
        self.sharing.cache = min(self.sharing.cache, self.sharing.cache_wanted())
        self.hear(self.sharing.force())
        assert self.sharing.used <= size
        self.settle()
        return multiple()

    @rule(ranges=some_ranges)
    def lost(self, ranges: list[Range]) -> None:
        self.hear(self.sharing.lost(tuple(ranges)))
        self.settle()

    @invariant()
    def all_is_divided(self) -> None:
        sharing = self.sharing
        assert sharing.used <= sharing.size
        taken = [set(range(sharing.cache)), *(as_set(app.held) for app in (
            *sharing.apps.values(), *sharing.absent.values()))]
        assert sum(map(len, taken)) == len(set().union(*taken)), "a block has two users"
        parts = sharing.targets()[1]
        free = sharing.size - sharing.used
        for number, app in sharing.apps.items():
            assert as_set(app.held) <= self.mine[number]
            if blocks.count(app.held) < parts[number] and free:
                reach = set(range(sharing.targets()[0], MOST))
                assert not reach & as_set(sharing.unused()), "it should have more"


TestApplications = Applications.TestCase
TestApplications.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
