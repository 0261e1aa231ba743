# SPDX-License-Identifier: Apache-2.0
"""The pure functions that divide a pool: curves, optimum, policies, levels."""

import dataclasses
import itertools
import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vcache_agent.decide import algorithm1, mrc, nested, optimum, slo, steady, throughput
from vcache_agent.decide.algorithm1 import Grant, Request
from vcache_agent.decide.rates import Rates, between, blended
from vcache_agent.decide.tenant import MIB, Tenant, Times, floors
from vcache_agent.model import Curve

POOL = 256 * MIB
HDD = Times(hit=0.0001, miss=0.008, write=0.0001, origin_write=0.008)

costs = st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=6).map(
    lambda steps: sorted(steps, reverse=True)), min_size=1, max_size=4)


def total(found: Sequence[int], each: Sequence[Sequence[float]]) -> float:
    return sum(cost[grains] for cost, grains in zip(each, found, strict=True))


@settings(deadline=None)
@given(costs, st.integers(0, 12))
def test_the_exact_division_is_the_best_of_all(each: list[list[int]], grains: int) -> None:
    found = optimum.exact(each, grains)
    assert sum(found) <= grains
    assert total(found, each) == min(
        total(other, each) for other in itertools.product(*(range(len(cost)) for cost in each))
        if sum(other) <= grains)


@settings(deadline=None)
@given(costs, st.integers(0, 12))
def test_the_hull_division_fits_and_is_the_best_if_all_are_convex(
        each: list[list[int]], grains: int) -> None:
    found = optimum.hull(each, grains)
    assert sum(found) <= grains
    assert all(given < len(cost) for given, cost in zip(found, each, strict=True))
    convex = all(cost[at - 1] - cost[at] >= cost[at] - cost[at + 1]
                 for cost in each for at in range(1, len(cost) - 1))
    if convex:
        assert total(found, each) == pytest.approx(total(optimum.exact(each, grains), each))


def test_grains_that_save_nothing_are_not_given() -> None:
    each = [[9, 4, 4, 4], [5, 5, 5]]
    assert optimum.exact(each, 6) == optimum.hull(each, 6) == [1, 0]


def test_the_minorant_jumps_over_a_plateau() -> None:
    assert optimum.minorant([10, 10, 10, 1, 1]) == [optimum.Segment(3, 0, 3)]


def curve(grain: int, reads: Sequence[int], writes: Sequence[int] = (0, 0)) -> Curve:
    return Curve(grain, 0, reads[0], writes[0], tuple(reads), tuple(writes))


def test_rates_between_two_dumps() -> None:
    found = between(curve(MIB, [100, 50, 20], [10, 4, 4]), curve(MIB, [300, 100, 30], [30, 4, 4]),
                    10)
    assert found == Rates(MIB, (20, 5, 1), (2, 0, 0))
    assert found.at(MIB // 2) == (12.5, 1)
    assert found.at(9 * MIB) == (1, 0)
    assert not found.quiet


def test_rates_when_the_grain_has_doubled() -> None:
    assert between(curve(MIB, [100, 60, 20, 10]), curve(2 * MIB, [150, 40, 8]), 1) == \
        Rates(2 * MIB, (50, 20, 0), (0,))


def test_rates_of_estimates_that_are_not_monotonic() -> None:
    found = between(curve(MIB, [100, 50, 45]), curve(MIB, [110, 48, 47]), 1)
    assert found == Rates(MIB, (10, 0, 0), (0,))


def test_the_sum_of_both_rates() -> None:
    assert list(Rates(MIB, (3.0, 1.0), (2.0,)).total) == [5.0, 3.0]
    assert list(Rates(MIB, (3.0, 1.0), (2.0, 1.0)).total) == [5.0, 2.0]
    assert list(Rates(MIB, (3.0, 1.0), (2.0, 1.0, 0.5)).total) == [5.0, 2.0, 1.5]


def test_no_rates_for_another_curve() -> None:
    assert between(curve(MIB, [100, 50]), curve(MIB, [99, 50]), 1) is None
    assert between(curve(2 * MIB, [100, 50]), curve(MIB, [200, 50]), 1) is None
    with pytest.raises(ValueError, match="seconds is 0"):
        between(curve(MIB, [1, 1]), curve(MIB, [1, 1]), 0)


def test_blended_rates() -> None:
    old, new = Rates(MIB, (100.0, 40.0), (10.0, 0.0)), Rates(2 * MIB, (10.0, 2.0), (0.0, 0.0))
    assert blended(None, new, 0.9) is new
    found = blended(old, new, 0.75)
    assert found.at(0) == (77.5, 7.5)
    assert found.at(2 * MIB) == (0.75 * 40 + 0.25 * 2, 0)


@settings(deadline=None)
@given(st.lists(st.integers(0, 1000), min_size=2, max_size=9),
       st.lists(st.integers(0, 1000), min_size=2, max_size=9))
def test_rates_never_increase_and_are_never_negative(old: list[int], new: list[int]) -> None:
    first, second = sorted(old, reverse=True), sorted(new, reverse=True)
    found = between(curve(MIB, first), curve(MIB, second), 3)
    if found is not None:
        assert list(found.reads) == sorted(found.reads, reverse=True)
        assert found.reads[-1] >= 0


def tenant(working_set: int, rate: float = 1000, **options: object) -> Tenant:
    """Return a tag that reads all blocks of its working set (MiB) equally often."""
    points = tuple(rate * max(0, working_set - at) / working_set for at in range(257))
    return Tenant(**{"weight": 100, "rates": Rates(MIB, points, (0.0,) * 257),  # type: ignore[arg-type]
                     "times": HDD, **options})


def test_mrc_gives_space_to_those_that_use_it_best() -> None:
    small, large, idle = tenant(40), tenant(400), tenant(40, rate=0, least=16 * MIB)
    quotas = mrc.divide([small, large, idle], POOL)
    assert quotas[0] == 40 * MIB
    assert quotas[1] == pytest.approx(230 * MIB - 56 * MIB, abs=2 * MIB)
    assert quotas[2] == 16 * MIB
    # A weight counts as much as that many accesses.
    assert mrc.divide([tenant(300, weight=300), tenant(300, rate=2000)], POOL)[0] > 200 * MIB


def test_mrc_counts_writes_only_of_writeback() -> None:
    points = tuple(100.0 * (200 - at) for at in range(201))
    writer = Tenant(100, rates=Rates(MIB, (0.0,) * 201, points), times=HDD)
    assert mrc.divide([writer], POOL)[0] == 200 * MIB
    assert mrc.divide([dataclasses.replace(writer, writeback=False)], POOL)[0] == 0


def test_an_idle_tag_lends_its_quota() -> None:
    busy, gone = tenant(200), tenant(200, rate=5000)
    assert mrc.divide([busy, gone], POOL)[1] == 200 * MIB
    gone = dataclasses.replace(gone, idle=True, least=8 * MIB)
    assert mrc.divide([busy, gone], POOL) == [200 * MIB, 8 * MIB]


def test_mrc_keeps_ranges() -> None:
    quotas = mrc.divide([tenant(400, most=32 * MIB), tenant(400, rate=1, least=200 * MIB)], POOL)
    assert quotas == [30 * MIB, 200 * MIB]
    assert mrc.divide([tenant(9, least=300 * MIB), tenant(9, least=100 * MIB)], POOL) == \
        floors([tenant(9, least=300 * MIB), tenant(9, least=100 * MIB)], POOL)
    assert sum(floors([tenant(9, least=300 * MIB), tenant(9, least=200 * MIB)], POOL)) <= POOL


def test_mrc_with_many_grains_uses_the_hulls() -> None:
    tenants = [tenant(40 + at, rate=100 + at) for at in range(8)]
    exact = mrc.divide(tenants, POOL)
    many = [dataclasses.replace(one) for one in tenants * 100]
    assert sum(mrc.divide(many, POOL)) <= POOL
    assert sum(exact) <= POOL


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 300), st.integers(0, 5000), st.integers(1, 1000),
                          st.integers(0, 60), st.integers(0, 300)), min_size=1, max_size=6))
def test_mrc_never_gives_more_than_there_is(rows: list[tuple[int, int, int, int, int]]) -> None:
    tenants = [tenant(size, rate, weight=weight, least=low * MIB,
                      most=max(low, high) * MIB if high else 0)
               for size, rate, weight, low, high in rows]
    quotas = mrc.divide(tenants, POOL)
    assert sum(quotas) <= POOL
    for one, quota, low in zip(tenants, quotas, floors(tenants, POOL), strict=True):
        assert low <= quota <= one.bounds(POOL)[1]


def test_a_change_must_save_more_than_it_costs() -> None:
    now = [tenant(200, rate=1000, quota=100 * MIB), tenant(200, rate=1010, quota=100 * MIB)]
    assert steady.move(now, [90 * MIB, 110 * MIB], [0, 0], POOL) == [100 * MIB] * 2
    now = [tenant(200, rate=10, quota=100 * MIB), tenant(200, rate=2000, quota=100 * MIB)]
    assert steady.move(now, [90 * MIB, 110 * MIB], [0, 0], POOL) == [90 * MIB, 110 * MIB]


def test_a_large_change_takes_several_periods_and_ends() -> None:
    settings = steady.Settings(step=0.05)
    quotas, wanted, periods = [200 * MIB, 0], [10 * MIB, 190 * MIB], 0
    while quotas != wanted:
        now = [tenant(200, 1, quota=quotas[0]), tenant(200, 5000, quota=quotas[1])]
        after = steady.move(now, wanted, [0, 0], POOL, settings)
        assert after[1] - quotas[1] <= 0.05 * POOL
        assert after[1] > quotas[1]
        quotas, periods = after, periods + 1
    assert periods >= 190 / (0.05 * 256)


def test_a_floor_is_reached_at_once() -> None:
    now = [tenant(200, quota=0), tenant(200, quota=250 * MIB)]
    assert steady.move(now, [60 * MIB, 190 * MIB], [60 * MIB, 0], POOL,
                       steady.Settings(step=0.01))[0] == 60 * MIB


def test_throughput_follows_the_weights() -> None:
    weights = (100, 200, 300, 300)
    tenants = [tenant(size, 1e6, weight=weight) for size, weight in
               zip((60, 110, 100, 120), weights, strict=True)]
    found = throughput.divide(tenants, POOL)
    assert not found.bound
    assert 0.95 * POOL < sum(found.quotas) <= POOL
    for one, quota in zip(tenants, found.quotas, strict=True):
        assert throughput.predicted(one, quota) / one.weight == \
            pytest.approx(found.factor, rel=0.03)


def test_a_tag_that_its_origin_bounds_does_not_hold_the_others_back() -> None:
    flat = Tenant(1000, rates=Rates(MIB, (1e6,) * 257, (0.0,) * 257), times=HDD)
    found = throughput.divide([flat, tenant(100), tenant(100)], POOL)
    assert found.bound == {0}
    assert found.quotas[0] == 0
    assert found.quotas[1] == found.quotas[2] > 95 * MIB


def test_a_tag_without_load_gets_its_guarantee() -> None:
    found = throughput.divide([Tenant(100, least=8 * MIB), tenant(50)], POOL)
    assert found.quotas[0] == 8 * MIB
    assert found.quotas[1] == pytest.approx(50 * MIB, abs=MIB)


def test_a_demand_is_not_exceeded() -> None:
    limited = tenant(200, demand=200)
    assert throughput.predicted(limited, 200 * MIB) == 200
    assert throughput.divide([limited, tenant(200)], POOL).quotas[0] < 100 * MIB


def test_corrections_make_a_wrong_model_right() -> None:
    """Each tag is faster or slower than the model by a factor that nobody knows."""
    wrong = (1.0, 0.7, 1.4, 0.8)
    weights = (100, 200, 300, 300)
    # In a larger pool, a MiB makes little difference.
    tenants = [dataclasses.replace(one, rates=dataclasses.replace(one.rates, grain=16 * MIB))
               for one in (tenant(size, 1e6, weight=weight) for size, weight in
                           zip((60, 110, 100, 120), weights, strict=True)) if one.rates]
    corrections = [1.0] * 4
    for _ in range(5):
        found = throughput.divide(tenants, 16 * POOL, corrections)
        measured = [factor * throughput.predicted(one, quota) for factor, one, quota in
                    zip(wrong, tenants, found.quotas, strict=True)]
        corrections = [throughput.corrected(correction, real, throughput.predicted(
            one, quota, correction)) for correction, real, one, quota in
            zip(corrections, measured, tenants, found.quotas, strict=True)]
    ratios = [real / weight for real, weight in zip(measured, weights, strict=True)]
    assert max(ratios) / min(ratios) < 1.02
    assert throughput.corrected(1.5, 0, 100) == throughput.corrected(1.5, 100, 0) == 1.5


def test_algorithm_1_as_published() -> None:
    """Requests of OC-Cache, section V-C, on 16 lanes of 20: rests 16, 10, 14 and 0."""
    requests = [Request(16, 0.01), Request(70, 0.02), Request(114, 0.05), Request(40, 0.75)]
    assert algorithm1.allocate(requests, 16, 20) == [
        Grant(1), Grant(4), Grant(6), Grant(2)]
    # With a higher watermark, three rests share lanes.
    assert algorithm1.allocate(requests, 16, 20, 0.9) == [
        Grant(0, 16), Grant(3, 10), Grant(5, 14), Grant(2)]


def test_algorithm_1_removes_what_does_not_fit_and_serves_the_next() -> None:
    requests = [Request(30, 0.0), Request(100, 0.5), Request(20, 0.5)]
    assert algorithm1.allocate(requests, 6, 10) == [
        Grant(3), Grant(removed=True), Grant(2)]
    assert algorithm1.allocate([Request(0, 1.0)], 6, 10) == [Grant()]


def test_algorithm_1_gives_the_last_lanes_and_shares_the_rest() -> None:
    # 4 of a shared lane are used, and 6 of it are free.
    requests = [Request(4, 0.0), Request(25, 0.5)]
    assert algorithm1.allocate(requests, 3, 10) == [Grant(0, 4), Grant(2, 5)]


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 200), st.floats(0, 1)), max_size=8),
       st.integers(0, 20), st.integers(1, 30), st.sampled_from([0.0, 0.3, 0.5, 1.0]))
def test_algorithm_1_fits(rows: list[tuple[int, float]], lanes: int, lane: int,
                          watermark: float) -> None:
    requests = [Request(*row) for row in rows]
    grants = algorithm1.allocate(requests, lanes, lane, watermark)
    shared = sum(grant.shared for grant in grants)
    assert sum(grant.lanes for grant in grants) + -(-shared // lane) <= lanes
    for request, grant in zip(requests, grants, strict=True):
        if grant.removed:
            assert not grant.lanes and not grant.shared
        else:
            assert grant.lanes * lane + grant.shared >= request.size


def test_nested_shares() -> None:
    disks = [nested.Disk(("red", "a"), 100), nested.Disk(("red", "a"), 300),
             nested.Disk(("red", "b"), 100), nested.Disk(("blue", "c"), 7)]
    found = nested.fractions(disks, {("red",): 300, ("blue",): 100, ("red", "a"): 200})
    assert found == pytest.approx([0.125, 0.375, 0.25, 0.25])
    assert nested.kernel_weights(found) == [50, 150, 100, 100]
    # More instances do not give a project more.
    more = nested.fractions([*disks, nested.Disk(("red", "d"), 100)], {("red",): 300})
    assert sum(more[:3]) + more[4] == pytest.approx(0.75)


def test_weights_keep_their_range() -> None:
    assert nested.kernel_weights([1.0, 1e-9]) == [200, 1]
    assert nested.kernel_weights([0.9, *[0.001] * 100]) == [1000, *[1] * 100]
    assert nested.kernel_weights([]) == []


def test_a_floor_is_the_least_size_that_meets_a_level() -> None:
    reader = tenant(100)
    # A miss takes longer than this level, so less than one read in a hundred may miss.
    found = slo.floor(reader, slo.Level(read_s=0.004), slo.State(calibration=2), POOL)
    assert found.feasible
    assert reader.rates is not None
    allowed = 0.01 * 0.9 * reader.rates.reads[0]
    assert reader.rates.at(found.size)[0] <= allowed < reader.rates.at(found.size - 2 * MIB)[0]
    # It may take as long as this level, which the mean decides then.
    found = slo.floor(reader, slo.Level(read_s=0.008), slo.State(calibration=2), POOL)
    mean = slo.mean_read(reader, found.size)
    assert mean is not None
    assert 2 * mean <= 0.9 * 0.008 < 2 * slo.mean_read(reader, found.size - 2 * MIB)  # type: ignore[operator]
    assert not slo.floor(reader, slo.Level(read_s=0.0001), slo.State(), POOL).feasible
    wish = slo.floor(reader, slo.Level(iops=1000), slo.State(), POOL)
    assert wish.feasible
    assert throughput.predicted(reader, wish.size) >= 1000


def test_the_bias_grows_fast_and_falls_slowly() -> None:
    reader = tenant(100, quota=50 * MIB)
    level, state = slo.Level(read_s=0.004), slo.State()
    once = slo.step(reader, level, state, 0.01, None)
    assert once.bias == 0
    twice = slo.step(reader, level, once, 0.01, None)
    assert twice.bias == 5 * MIB
    # A period without reads changes nothing.
    assert slo.step(reader, level, twice, None, None) == twice
    easy = twice
    for _ in range(9):
        easy = slo.step(reader, level, easy, 0.001, None)
    assert easy.bias == 5 * MIB
    assert slo.step(reader, level, easy, 0.001, None).bias == 4 * MIB


def test_the_calibration_follows_what_is_measured() -> None:
    reader, level, state = tenant(100, quota=50 * MIB), slo.Level(read_s=1.0), slo.State()
    mean = slo.mean_read(reader, reader.quota)
    assert mean is not None
    for _ in range(20):
        state = slo.step(reader, level, state, 3 * mean, None)
    assert state.calibration == pytest.approx(3, rel=0.01)
    for _ in range(20):
        state = slo.step(reader, level, state, 1000 * mean, None)
    assert state.calibration == pytest.approx(8, rel=0.01)


@settings(deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 30)] * 3), min_size=1, max_size=6),
       st.floats(0.01, 1.0))
def test_a_limited_step_never_exceeds_the_pool(
        rows: list[tuple[int, int, int]], step: float) -> None:
    """Also if floors, which are reached at once, rise while others give up only a part."""
    size = 200
    before, wanted, floors = ([value * MIB for value in column] for column in
                              zip(*rows, strict=True))
    wanted = [max(new, floor) for new, floor in zip(wanted, floors, strict=True)]
    tenants = [Tenant(100, quota=quota) for quota in before]
    found = steady.limited(tenants, wanted, floors, size * MIB, steady.Settings(step=step))
    assert sum(found) <= max(sum(wanted), sum(before))
    assert all(quota >= floor for quota, floor in zip(found, floors, strict=True))


def test_a_curve_that_ends_where_it_is_constant_gives_the_same_rates() -> None:
    rng = random.Random(5)
    for _ in range(300):
        old = sorted((rng.randrange(1000) for _ in range(17)), reverse=True)
        new = [was + rng.randrange(500) for was in old]
        new = sorted(new, reverse=True)
        flat = rng.randrange(2, 17)
        old, new = ([*each[:flat], *[each[flat]] * (17 - flat)] for each in (old, new))
        long = [Curve(MIB, 0, each[0], each[0], tuple(each), tuple(each)) for each in (old, new)]
        short = [curve.short() for curve in long]
        for step in (1, 2, 4):
            whole, part = (between(was, now, 1.0, step) for was, now in (long, short))
            assert whole is not None and part is not None
            sizes = np.arange(20) * MIB
            assert np.array_equal(whole.many(sizes), part.many(sizes))
            kept = blended(whole, part, 0.9)
            assert np.allclose(kept.many(sizes), whole.many(sizes))
            assert np.allclose(blended(part, whole, 0.9).many(sizes), whole.many(sizes))
