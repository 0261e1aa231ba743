# SPDX-License-Identifier: Apache-2.0
"""Neighbours that make others miss their objectives are limited, step by step, and released."""

import dataclasses
import random

import pytest

from tests.unit.decide_model import BLOCK, MIB
from tests.unit.host_model import ELSEWHERE, FIRST, HERE, HOST, SECOND, THERE, VICTIM, Host
from vcache_agent.decide import restrain
from vcache_agent.decide.blame import Cause, Verdict
from vcache_agent.decide.division import Settings
from vcache_agent.decide.history import Known, Load
from vcache_agent.decide.restraint import Means, Rates, Restraint, Restraints
from vcache_agent.observe.claim import Claim
from vcache_agent.observe.sample import TagKey

IO, BOTH = Settings(means=(Means.IO,)), Settings(means=(Means.DESTAGE, Means.IO))
BURST = 60e6


def host(settings: Settings = IO, **objective: float) -> Host:
    """Return a host after some ordinary periods."""
    found = Host(1, **(objective or {"flush_s": 0.0025}))
    found.settings = settings
    for _ in range(8):
        assert VICTIM not in found.period().missed
    return found


def limit(found: Host, neighbour: TagKey = FIRST) -> dict[Means, Rates]:
    """Return the limits of a neighbour."""
    active = found.history.restraints.active
    return dict(active[neighbour].limits()) if neighbour in active else {}


def test_a_writing_neighbour_is_limited_until_the_objective_is_met() -> None:
    found = host()
    found.tenants[FIRST].ask(written=BURST)
    assert VICTIM in found.period().missed
    assert not limit(found)
    assert VICTIM in found.period().missed
    assert limit(found)[Means.IO].write == pytest.approx(0.7 * BURST, rel=0.06)
    assert limit(found)[Means.IO].read == 0  # it reads as usual
    rates = [limit(found)[Means.IO].write]
    while VICTIM in found.period().missed:
        rates.append(limit(found)[Means.IO].write)
    assert 1 < len(rates) < 6
    assert all(new == pytest.approx(0.7 * old) for old, new in zip(rates, rates[1:], strict=False))
    assert set(found.history.restraints.active) == {FIRST}


def test_a_reading_neighbour_is_limited_in_its_reads() -> None:
    found = host(read_s=0.009)
    found.tenants[VICTIM].cached = 90 * MIB
    found.tenants[FIRST].ask(reads=3000, working_set=50_000 * MIB)
    for _ in range(3):
        assert VICTIM in found.period().missed
    assert limit(found)[Means.IO].read == pytest.approx(0.49 * 3000 * BLOCK, rel=0.06)
    assert limit(found)[Means.IO].write == 0
    for _ in range(3):
        found.period()
    assert VICTIM not in found.period().missed


def test_nobody_is_limited_by_default() -> None:
    found = host(Settings())
    found.tenants[FIRST].ask(written=BURST)
    for _ in range(10):
        assert VICTIM in found.period().missed
    assert found.history.restraints.active == {}


def test_while_the_neighbour_insists_the_objective_is_rarely_missed() -> None:
    found = host()
    found.tenants[FIRST].ask(written=BURST)
    for _ in range(10):
        found.period()
    missed = [VICTIM in found.period().missed for _ in range(200)]
    assert 0 < sum(missed[:50]) <= 10
    # Each attempt that fails makes the next one later.
    assert sum(missed[50:]) <= 8
    assert limit(found)


def test_a_neighbour_whose_burst_is_over_is_released_after_three_periods() -> None:
    found = host()
    found.tenants[FIRST].ask(written=BURST)
    for _ in range(8):
        found.period()
    found.tenants[FIRST].ask(written=400_000.0)
    limits = []
    for _ in range(4):
        found.period()
        limits.append(bool(limit(found)))
    assert limits[-1] is False
    assert limits[0] is True


def test_a_neighbour_that_no_longer_disturbs_is_released_step_by_step() -> None:
    found = host()
    found.tenants[FIRST].ask(written=BURST)
    while VICTIM in found.period().missed or not limit(found):
        pass
    # The origin gets faster, so the burst can stay.
    found.flush = 1e-5
    rates = [limit(found)[Means.IO].write]
    while limit(found):
        assert VICTIM not in found.period().missed
        rates += [limit(found)[Means.IO].write] if limit(found) else []
        assert len(rates) < 40
    steps = sorted(set(rates))
    assert len(steps) > 1
    assert all(new == pytest.approx(old / 0.7) for old, new in zip(steps, steps[1:], strict=False))
    # Three periods for each step.
    assert all(rates.count(rate) >= 3 for rate in steps[1:])
    assert steps[-1] == pytest.approx(0.7 * BURST, rel=0.06)


@pytest.mark.parametrize(("name", "fault"), [
    ("host", lambda found: found.tenants[HOST].ask(written=BURST)),
    ("device", lambda found: setattr(found, "flush", 0.02)),
    ("own burst", lambda found: found.tenants[VICTIM].ask(written=BURST)),
])
def test_other_causes_limit_nobody(name: str, fault: object) -> None:
    found = host(BOTH)
    fault(found)  # type: ignore[operator]
    for _ in range(10):
        assert VICTIM in found.period().missed, name
    assert found.history.restraints.active == {}


def test_destage_is_for_a_neighbour_with_a_device_of_its_own() -> None:
    found = host(BOTH)
    found.tenants[ELSEWHERE].ask(written=340e6)
    for _ in range(3):
        assert VICTIM in found.period().missed
    ((means, rates),) = limit(found, ELSEWHERE).items()
    assert means is Means.DESTAGE
    assert rates == (0, pytest.approx(0.49 * 340e6, rel=0.06))
    # A tag on the device of the victim would be limited with it.
    found = host(BOTH)
    found.tenants[FIRST].ask(written=BURST)
    for _ in range(3):
        assert VICTIM in found.period().missed
    assert set(limit(found)) == {Means.IO}
    # With destage alone, there is nothing to limit it by.
    found = host(Settings(means=(Means.DESTAGE,)))
    found.tenants[FIRST].ask(written=BURST)
    for _ in range(3):
        assert VICTIM in found.period().missed
    assert not limit(found)


NEIGHBOUR: TagKey = (THERE, 4)
NAMED = (Verdict("flush", Cause.NEIGHBOUR, 1.0, 0.1, NEIGHBOUR),)


def scene(load: Load, missed: restrain.Verdicts | None = None,
          means: tuple[Means, ...] = tuple(Means), **claim: object) -> restrain.Scene:
    """Return a period with one neighbour."""
    usual = Load(requests=100.0, blocks=200.0, written=100e3)
    return restrain.Scene(
        {VICTIM: NAMED} if missed is None else missed, {NEIGHBOUR: Known(load=load, usual=usual)},
        (Claim(*VICTIM, "254:2", flush_s=0.1),
         dataclasses.replace(Claim(*NEIGHBOUR, "254:2"), **claim)), means)  # type: ignore[arg-type]


WRITES = Load(requests=5000.0, blocks=BURST / BLOCK, written=BURST, destaged=BURST)


def periods(count: int, of: restrain.Scene, state: Restraints | None = None) -> Restraints:
    """Return the state after some periods that are alike."""
    state = state or Restraints()
    for _ in range(count):
        state = restrain.step(state, of)
    return state


def test_the_next_means_is_added_when_the_first_is_at_its_bound() -> None:
    state = periods(30, scene(WRITES))
    limits = dict(state.active[NEIGHBOUR].limits())
    assert limits[Means.DESTAGE] == limits[Means.IO] == Rates(0, 4 * MIB)
    # They are removed in the opposite order.
    quiet = scene(dataclasses.replace(WRITES, written=4 * MIB), {})
    while len(state.active[NEIGHBOUR].parts) == 2:
        state = restrain.step(state, quiet)
    assert dict(state.active[NEIGHBOUR].limits()) == {Means.DESTAGE: Rates(0, 4 * MIB)}


def test_nobody_is_limited_below_its_usual_rate_or_its_own_objective() -> None:
    (_, found), = periods(60, scene(WRITES, means=(Means.IO,))).active[NEIGHBOUR].limits()
    assert found == Rates(0, 4 * MIB)
    # 4000 of its 5000 requests.
    (_, found), = periods(60, scene(WRITES, means=(Means.IO,), iops=4000.0)) \
        .active[NEIGHBOUR].limits()
    assert found.write == pytest.approx(0.8 * BURST)
    of = scene(WRITES, means=(Means.IO,))
    usual = dataclasses.replace(of.tags[NEIGHBOUR], usual=Load(written=20e6, destaged=20e6))
    (_, found), = periods(60, dataclasses.replace(of, tags={NEIGHBOUR: usual})) \
        .active[NEIGHBOUR].limits()
    assert found.write == 20e6


def test_after_the_last_step_back_it_is_watched() -> None:
    state = periods(3, scene(WRITES))
    while state.active[NEIGHBOUR].parts:
        state = periods(1, scene(WRITES, {}), state)
    assert not list(state.active[NEIGHBOUR].limits())
    patience = state.active[NEIGHBOUR].patience
    # One period is enough now.
    again = periods(1, scene(WRITES), periods(patience - 1, scene(WRITES, {}), state))
    assert again.active[NEIGHBOUR].parts == ((Means.DESTAGE, 0.7),)
    assert again.active[NEIGHBOUR].patience == 2 * patience
    # What is over is over.
    assert periods(patience, scene(WRITES, {}), state).active == {}


def test_while_another_neighbour_is_to_blame_nobody_is_released() -> None:
    other = (Verdict("flush", Cause.NEIGHBOUR, 1.0, 0.1, SECOND),)
    state = periods(4, scene(WRITES))
    before = state.active[NEIGHBOUR]
    assert periods(20, scene(WRITES, {VICTIM: other}), state).active == {NEIGHBOUR: before}


def test_two_neighbours_that_disturb_at_once_are_both_limited() -> None:
    found = host()
    for key in (FIRST, SECOND):
        found.tenants[key].ask(written=BURST / 2)
    missed = [VICTIM in found.period().missed for _ in range(60)]
    assert sum(missed[:30]) <= 15
    assert sum(missed[30:]) <= 6
    assert limit(found, FIRST) or limit(found, SECOND)


def test_two_neighbours_in_turn_do_not_add_up() -> None:
    other = (Verdict("flush", Cause.NEIGHBOUR, 1.0, 0.1, SECOND),)
    state = Restraints()
    for _ in range(5):
        state = periods(1, scene(WRITES), state)
        state = periods(1, scene(WRITES, {VICTIM: other}), state)
    assert state.active == {}
    assert state.suspects == {SECOND}


def test_what_remains_after_a_limit_is_a_slow_device() -> None:
    """Twice the usual load is not enough to be blamed, and may be too much."""
    state = periods(4, scene(WRITES))
    before = state.active[NEIGHBOUR].parts
    device = (Verdict("flush", Cause.DEVICE, 1.0, 0.1),)
    state = periods(1, scene(WRITES, {VICTIM: device}), state)
    assert state.active[NEIGHBOUR].parts[0][1] == pytest.approx(0.7 * before[0][1])
    # Others' problems with the device are not its fault.
    after = periods(1, scene(WRITES, {(HERE, 9): device}), state)
    assert after.active[NEIGHBOUR].parts == state.active[NEIGHBOUR].parts


def test_it_ends_with_the_tag_and_with_the_option() -> None:
    state = periods(4, scene(WRITES))
    assert periods(1, scene(WRITES, means=()), state).active == {}
    gone = dataclasses.replace(scene(WRITES), claims=(Claim(*VICTIM, "254:2", flush_s=0.1),))
    assert periods(1, gone, state).active == {}


def test_random_periods_keep_all_bounds() -> None:
    rng = random.Random(7)
    state = Restraints()
    seen, watched = set(), 0
    for _ in range(5000):
        load = dataclasses.replace(WRITES, written=rng.choice((0.0, 1e5, BURST)),
                                   fetched=rng.choice((0.0, BURST)),
                                   blocks=rng.choice((200.0, 40000.0)))
        missed: restrain.Verdicts = rng.choice(({}, {VICTIM: NAMED}, {VICTIM: NAMED}, {
            VICTIM: (Verdict("flush", Cause.DEVICE, 1.0, 0.1),)}))
        before = state.active.get(NEIGHBOUR)
        state = periods(1, scene(load, missed), state)
        now = state.active.get(NEIGHBOUR)
        seen.add((before is None, now is None))
        if now is not None:
            check(before, now)
            watched += not now.parts
    assert len(seen) == 4
    assert watched


def check(before: Restraint | None, now: Restraint) -> None:
    """Check one step of a restraint."""
    assert 0 <= now.good < now.patience <= 48
    for means, rates in now.limits():
        for rate, began, least in zip(rates, now.began, now.least, strict=True):
            assert rate == 0 or least <= rate <= max(began, least)
            assert least >= 4 * MIB
        assert rates != (0, 0), means
    if before is not None:
        old, new = dict(before.parts), dict(now.parts)
        assert len(old.keys() ^ new.keys()) <= 1
        changed = [new[means] / old[means] for means in old.keys() & new.keys()
                   if new[means] != old[means]]
        assert len(changed) <= 1
        assert all(ratio == pytest.approx(0.7) or ratio == pytest.approx(1 / 0.7)
                   for ratio in changed)
