# SPDX-License-Identifier: Apache-2.0
"""Guarantees and dedicated lanes are reserved at admission, and never twice."""

import threading
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nova_vcache.extra_specs import Isolation
from nova_vcache.placement.capacity import guaranteed_mb
from vcache_agent.model import DeviceNumber
from vcache_agent.observe.claim import Claim, PoolSize
from vcache_agent.reservations import Claims, Present, Reservations, shortage

MIB = 1 << 20
ON, POOL = DeviceNumber(254, 3), "254:2"
#: 1000 MiB in ten lanes; 900 can be guaranteed.
SIZE = PoolSize(POOL, 1000 * MIB, (100 * MIB,) * 10)
POOLS = {POOL: SIZE}


def claim(number: int, least: int = 0, isolation: Isolation = Isolation.SHARED,
          lanes: int = 0, cached: bool = True) -> Claim:
    return Claim(ON, number, POOL, least=least * MIB, isolation=isolation, lanes=lanes,
                 cached=cached)


def dedicated(number: int, least: int = 0, lanes: int = 0) -> Claim:
    return claim(number, least, Isolation.DEDICATED, lanes)


@pytest.mark.parametrize(("wanted", "promised", "words"), [
    ([claim(-1, 900)], [], ""),
    ([claim(-1, 901)], [], "can guarantee 900 MiB more, but it needs 901 MiB"),
    ([claim(-1, 500), claim(-2, 400)], [], ""),
    ([claim(-1, 500), claim(-2, 401)], [], "needs 901 MiB"),
    ([claim(-1, 100)], [claim(1, 800)], ""),
    ([claim(-1, 101)], [claim(1, 800)], "can guarantee 100 MiB more"),
    ([claim(-1, 0)], [claim(1, 5000)], ""),
    ([claim(-1, 1)], [claim(1, 5000)], "can guarantee 0 MiB more"),
    # What its mode does not cache needs no space, and takes none.
    ([claim(-1, 5000, cached=False)], [], ""),
    ([claim(-1, 900)], [claim(1, 900, cached=False)], ""),
    # A disk in dedicated lanes counts with their size: nine lanes can be dedicated.
    ([dedicated(-1, 150)], [], ""),
    ([dedicated(-1, 900)], [], ""),
    ([dedicated(-1, 901)], [], "too few free lanes"),
    ([dedicated(-1, 100)], [claim(1, 800)], ""),
    ([dedicated(-1, 101)], [claim(1, 800)], "can guarantee 100 MiB more, but it needs 200 MiB"),
    ([dedicated(-1)], [dedicated(at, 0, 1 << at) for at in range(1, 10)], "too few free lanes"),
    ([dedicated(-1), dedicated(-2)], [dedicated(at, 0, 1 << at) for at in range(1, 9)],
     "too few free lanes for 1 of its disks"),
    # An automatic tag gives up its lanes for one that must have them.
    ([dedicated(-1)], [claim(at, 100, Isolation.AUTO, 1 << at) for at in range(1, 9)], ""),
])
def test_what_fits(wanted: Claims, promised: Claims, words: str) -> None:
    notes = shortage(wanted, promised, POOLS)
    assert bool(notes) == bool(words)
    assert words in "; ".join(notes)


def test_a_pool_of_unknown_size_guarantees_nothing() -> None:
    assert shortage([claim(-1, 1)], [], {}) == [
        f"the size of pool {POOL} is unknown, so nothing can be guaranteed"]
    assert not shortage([claim(-1)], [], {})


@settings(deadline=None)
@given(st.integers(0, 1 << 44))
def test_the_limit_is_that_of_placement(size: int) -> None:
    pools = {POOL: PoolSize(POOL, size)}
    most = guaranteed_mb(size)
    assert not shortage([claim(-1, most)], [], pools)
    assert shortage([claim(-1, most + 1)], [], pools)


class Planner:
    """The planner and the inventory, as the agent tells the reservations of them."""

    def __init__(self) -> None:
        self.claims: dict[str, Claims] = {}
        self.alive: set[str] = set()
        self.pools: Mapping[str, PoolSize] = POOLS
        self.reservations = Reservations(
            lambda: Present(dict(self.claims), frozenset(self.alive), self.pools))

    def start(self, name: str, *claims: Claim) -> bool:
        """Admit a domain."""
        fits = not self.reservations.reserve(name, claims)
        if fits:
            self.alive.add(name)
            self.reservations.settle(name)
        return fits


def test_a_reservation_holds_until_the_planner_has_the_domain() -> None:
    planner = Planner()
    assert planner.start("a", claim(-1, 500))
    assert not planner.start("b", claim(-1, 500))
    planner.claims["a"] = [claim(1, 500)]
    assert not planner.start("b", claim(-1, 500))
    assert planner.start("c", claim(-1, 400))
    # It is admitted again, for instance after a restart of its QEMU.
    assert planner.start("a", claim(-1, 500))
    # It stops: what it had is free at once, although the planner still has it.
    planner.alive.discard("a")
    assert planner.start("b", claim(-1, 500))


def test_a_domain_that_does_not_start_gives_back_its_reservation() -> None:
    planner = Planner()
    assert not planner.reservations.reserve("a", [claim(-1, 900)])
    # The hook's thread has not told the inventory yet: the reservation must hold.
    assert planner.reservations.reserve("b", [claim(-1, 900)])
    planner.reservations.release("a")
    assert planner.start("b", claim(-1, 900))
    planner.alive.discard("b")
    assert planner.start("c", claim(-1, 900))


def test_threads_never_reserve_more_than_there_is() -> None:
    planner = Planner()
    barrier, admitted = threading.Barrier(24), []

    def start(at: int) -> None:
        barrier.wait(60)
        least, isolation = (70, Isolation.SHARED) if at % 3 else (100, Isolation.DEDICATED)
        if planner.start(f"vm{at}", claim(-1, least, isolation)):
            admitted.append(least)

    threads = [threading.Thread(target=start, args=(at,)) for at in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert 900 - 100 < sum(admitted) <= 900


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 400), st.booleans(), st.booleans()),
                max_size=25))
def test_whatever_starts_and_stops_the_sum_of_the_guarantees_fits(
        steps: list[tuple[int, int, bool, bool]]) -> None:
    planner = Planner()
    running: dict[str, int] = {}
    for number, least, planned, stops in steps:
        name = f"vm{number}"
        if stops:
            planner.alive.discard(name)
            running.pop(name, None)
        elif planner.start(name, claim(-1 - number, least)):
            running[name] = least
            planner.claims.pop(name, None)
            if planned:
                planner.claims[name] = [claim(1 + number, least)]
        else:
            # A domain that starts again has ended, whether or not it is admitted.
            running.pop(name, None)
        assert sum(running.values()) <= 900
