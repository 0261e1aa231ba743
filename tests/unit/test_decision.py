# SPDX-License-Identifier: Apache-2.0
"""The decision function: guarantees, convergence, rest, bounded steps, lanes, replay."""

import dataclasses
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nova_vcache.extra_specs import Isolation
from tests.unit.decide_model import MIB, ON, POOL, Load, Pool, key, quotas
from vcache_agent.cmd import cli
from vcache_agent.decide import natural, times
from vcache_agent.decide.decision import Config, decide
from vcache_agent.decide.division import Settings
from vcache_agent.decide.history import History, Known, seeded
from vcache_agent.decide.rates import Rates
from vcache_agent.decide.replay import replay
from vcache_agent.decide.tenant import Tenant, Times
from vcache_agent.histogram import lower
from vcache_agent.observe.claim import Claim, PoolSize
from vcache_agent.observe.recording import Writer, read_samples
from vcache_agent.observe.sample import Sample
from vcache_agent.policies import POLICIES

HDD = Times(hit=0.0001, miss=0.008, write=0.0001, origin_write=0.008)


def settle(pool: Pool, periods: int = 20) -> dict[int, int]:
    """Run some periods; return the lower bounds in MiB."""
    for _ in range(periods):
        found = pool.period()
    return quotas(found)


def beside_a_scan(small: int = 100, **more: object) -> Pool:
    """A slow reader of a small working set, beside a fast one of a set that never fits."""
    return Pool(200 * MIB, {1: Load(small * MIB, rate=500), 2: Load(20_000 * MIB, 8)}, **more)  # type: ignore[arg-type]


def test_mrc_gives_space_to_those_that_use_it_best() -> None:
    pool = beside_a_scan()
    found = settle(pool)
    assert 95 <= found[1] <= 105
    # A tenth has no quota.
    assert sum(found.values()) <= 180


def test_after_ten_quiet_periods_nothing_moves() -> None:
    for policy in ("mrc", "throughput"):
        pool = Pool(200 * MIB, {1: Load(100 * MIB), 2: Load(900 * MIB, 4), 3: Load(70 * MIB)},
                    policy, {1: {"weight": 300}})
        before = settle(pool, 30)
        for load in pool.loads.values():
            load.threads = 0
        settle(pool, 10)
        still = quotas(pool.period())
        assert all(quotas(pool.period()) == still for _ in range(5))
        # And under a load that does not change, too.
        pool = Pool(200 * MIB, {1: Load(100 * MIB), 2: Load(900 * MIB, 4)}, policy)
        before = settle(pool, 40)
        assert all(quotas(pool.period()) == before for _ in range(10)), policy


def test_an_idle_tag_lends_its_share_and_has_it_back() -> None:
    pool = beside_a_scan(claims={1: {"least": 10 * MIB}})
    assert settle(pool)[1] > 90
    pool.loads[1].threads = 0
    found = pool.period()
    assert quotas(found)[1] < 90
    assert settle(pool)[1] == 10
    assert any("lends" in text for text in pool.period().shares[key(1)].reasons)
    pool.loads[1].threads = 1
    assert settle(pool)[1] > 90


def test_no_step_moves_more_than_its_part() -> None:
    loads = {1: Load(880 * MIB, 8, rate=900), 2: Load(900 * MIB, 8, rate=0.1),
             3: Load(50_000 * MIB, 16)}
    pool = Pool(1000 * MIB, loads)
    assert settle(pool)[1] > 800
    loads[1].rate, loads[2].rate = 0.1, 900
    before = quotas(pool.period())
    moved = []
    for _ in range(30):
        after = quotas(pool.period())
        moved.append(sum(max(0, after[at] - before[at]) for at in after))
        before = after
    assert 0 < max(moved) <= 250
    assert before[2] > 800


def test_a_new_guarantee_is_met_at_once_also_between_two_surveys() -> None:
    pool = beside_a_scan()
    assert settle(pool)[1] > 90
    pool.claims[2] = dataclasses.replace(pool.claims[2], least=120 * MIB)
    found = quotas(pool.decide(pool.surveys[-1]))
    assert found[2] == 120
    assert sum(found.values()) <= 180


def test_between_two_surveys_nothing_else_changes() -> None:
    pool = beside_a_scan()
    for _ in range(12):
        found = pool.period()
        again = pool.decide(pool.surveys[-1])
        assert again.shares.keys() == found.shares.keys()
        assert quotas(again) == quotas(found)
        assert again.history.sample is found.history.sample


def test_throughput_follows_the_weights_within_three_percent() -> None:
    """SymFlex, figure 8: four tenants 1:2:3:3, then 4:2:3:3, with a slow origin."""
    pool = Pool(1600 * MIB, {at: Load(600 * MIB) for at in (1, 2, 3, 4)}, "throughput",
                {at: {"weight": weight} for at, weight in enumerate((100, 200, 300, 300), 1)})
    for weights in ((100, 200, 300, 300), (400, 200, 300, 300), (400, 200, 100, 100)):
        for at, weight in enumerate(weights, 1):
            pool.claims[at] = dataclasses.replace(pool.claims[at], weight=weight)
        for _ in range(15):
            before = {at: load.stats.reads for at, load in pool.loads.items()}
            pool.period()
        speeds = [(pool.loads[at].stats.reads - before[at]) / weight
                  for at, weight in enumerate(weights, 1)]
        assert max(speeds) / min(speeds) < 1.03, (weights, speeds)


def test_an_objective_gets_the_space_that_it_needs() -> None:
    """Under every policy, a tag whose p99 is too high gets more, and meets it."""
    for policy in POLICIES:
        loads = {1: Load(300 * MIB), 2: Load(5000 * MIB, 8)}
        pool = Pool(500 * MIB, loads, policy, {1: {"read_s": 0.002}, 2: {"weight": 1000}})
        met = []
        for _ in range(40):
            found = pool.period()
            met.append(loads[1].missed(loads[1].cached) < 0.01)
        assert sum(met[-20:]) >= 18, (policy, met)
        share = found.shares[key(1)]
        assert share.feasible
        assert any("objective needs" in text for text in share.reasons)


def test_an_objective_that_no_size_meets_is_not_feasible_and_gets_nothing_more() -> None:
    pool = Pool(500 * MIB, {1: Load(300 * MIB), 2: Load(5000 * MIB, 8)}, "weighted",
                {1: {"read_s": 0.00001}})
    for _ in range(20):
        found = pool.period()
    assert not found.shares[key(1)].feasible
    assert found.shares[key(1)].limits == (0, 0)


def test_one_lru_list_if_quotas_gain_little() -> None:
    """Equal loads: one list divides as well as quotas do, and follows at once."""
    pool = Pool(200 * MIB, {at: Load(300 * MIB, 8, rate=500) for at in (1, 2, 3)},
                claims={3: {"least": 30 * MIB}})
    found = settle(pool)
    assert found == {1: 0, 2: 0, 3: 30}
    assert pool.history.united == {POOL}
    # A load that gains by a quota ends that.
    pool.loads[1] = Load(100 * MIB, 8, rate=900)
    pool.loads[2] = Load(5000 * MIB, 20)
    assert settle(pool, 40)[1] > 90
    assert not pool.history.united


CLAIMS = st.lists(st.fixed_dictionaries({
    "weight": st.integers(1, 1000), "least": st.integers(0, 60).map(lambda mb: mb * MIB),
    "most": st.sampled_from([0, 0, 64 * MIB, 150 * MIB]), "cached": st.booleans(),
    "read_s": st.sampled_from([0.0, 0.0, 0.0005, 0.004]),
    "isolation": st.sampled_from(list(Isolation))}), min_size=1, max_size=5)


@settings(deadline=None, max_examples=40)
@given(CLAIMS, st.integers(0, 2**32), st.sampled_from(sorted(POLICIES)), st.booleans())
def test_no_decision_breaks_a_promise(
        claims: list[dict[str, object]], seed: int, policy: str, with_lanes: bool) -> None:
    rng = random.Random(seed)
    size = 320 * MIB
    loads = {at: Load(rng.randint(5, 900) * MIB, rng.choice((0, 0.2, 1, 8)))
             for at, _ in enumerate(claims, 1)}
    pool = Pool(size, loads, policy, dict(enumerate(claims, 1)),
                lanes=(32 * MIB,) * 10 if with_lanes else ())
    for _ in range(6):
        for load in loads.values():
            load.threads = rng.choice((load.threads, 0, 2))
        before = {at: claim.lanes for at, claim in pool.claims.items()}
        found = pool.period()
        assert found.shares.keys() == {key(at) for at in loads}
        mask = 1
        for (_, at), share in found.shares.items():
            claim = pool.claims[at]
            assert not mask & share.lanes, "a lane has two tags, or is lane 0"
            mask |= share.lanes
            assert not share.limits.most or share.limits.least <= share.limits.most
            assert policy == "static" or not claim.most or \
                share.limits.most in range(1, max(claim.most, MIB) + 1)
        promised = sum(claim.least for claim in pool.claims.values() if claim.cached)
        shared = size - sum(share.lanes.bit_count() * 32 * MIB for share in found.shares.values()
                            if share.alone)
        given_ = sum(share.limits.least for at, share in found.shares.items()
                     if pool.claims[at[1]].cached and not share.alone)
        if promised <= size * 0.9:
            assert given_ <= max(shared, promised) + len(claims) * MIB
            for at, claim in pool.claims.items():
                if claim.cached:
                    assert found.shares[key(at)].limits.least >= min(
                        claim.least, claim.most or claim.least) or not promised <= shared * 0.9
        again = decide(pool.surveys[-1], pool.history, Config(
            policy, tuple(pool.claims.values()), {POOL: PoolSize(POOL, size, pool.lanes)}))
        assert again.shares.keys() == found.shares.keys()
        assert {at: (share.limits, share.lanes) for at, share in again.shares.items()} == \
            {at: (share.limits, share.lanes) for at, share in found.shares.items()}, before


def lanes_of(pool: Pool) -> dict[int, int]:
    return {at: claim.lanes.bit_count() for at, claim in pool.claims.items()}


def test_lanes_go_to_the_request_that_gains_most_and_one_that_does_not_fit_is_removed() -> None:
    """Not to the first, however large its request is."""
    pool = Pool(4 * MIB * 100, {1: Load(50 * MIB), 2: Load(50 * MIB)}, "weighted", {
        1: {"least": 1000 * MIB, "isolation": Isolation.AUTO},
        2: {"least": 100 * MIB, "isolation": Isolation.AUTO}}, lanes=(100 * MIB,) * 4)
    found = pool.period()
    assert lanes_of(pool) == {1: 0, 2: 1}
    assert any("is removed" in text for text in found.shares[key(1)].reasons)


def test_lanes_follow_the_curves_after_some_equal_periods() -> None:
    pool = Pool(1000 * MIB, {1: Load(400 * MIB, rate=1500), 2: Load(90_000 * MIB, 8)}, "mrc", {
        1: {"isolation": Isolation.AUTO}, 2: {"isolation": Isolation.AUTO}},
        lanes=(100 * MIB,) * 10)
    seen = []
    for _ in range(12):
        pool.period()
        seen.append(lanes_of(pool)[1])
    assert seen[:3] == [0, 0, 0]
    assert seen[-1] == 4
    # Nor does a restart of the agent.
    pool.history = History()
    for _ in range(4):
        pool.period()
        assert lanes_of(pool)[1] == 4
    settle(pool)
    assert lanes_of(pool)[1] == 4
    # A short change takes no lanes away.
    pool.loads[1].threads = 0
    pool.period()
    assert lanes_of(pool)[1] == 4


def test_times_are_learned_from_all_reads_and_what_missed() -> None:
    counts = [0] * 128
    counts[60], counts[90] = 900, 100
    found = times.learn(None, times.Reads(counts, 0.1))
    assert found is not None
    assert lower(60) < found.hit * 1e9 < lower(61)
    assert lower(90) < found.miss * 1e9 < lower(91)
    # A period without hits says nothing about hits; too few reads say nothing at all.
    later = times.learn(found, times.Reads([0] * 99 + [50] + [0] * 28, 1.0))
    assert later is not None and later.hit == found.hit and later.miss > found.miss
    assert times.learn(found, times.Reads([0] * 99 + [5] + [0] * 28, 0.5)) == found
    assert times.learn(None, times.Reads([], 0.0)) is None
    # An origin is never faster than its cache.
    fast = times.learn(None, times.Reads([100] + [0] * 127, 0.5))
    assert fast is not None and fast.miss >= fast.hit


def test_the_sizes_in_one_list_follow_the_rates() -> None:
    def one(reads: float, blocks: int, idle: bool = False) -> Tenant:
        """Return a tag that reads `blocks` MiB at random."""
        rates = Rates(MIB, tuple(reads * max(0.0, 1 - at / blocks) for at in range(1025)), (0.0,))
        return Tenant(100, rates=rates, times=HDD, idle=idle)

    equal = natural.sizes([one(100, 500), one(100, 500)], 200 * MIB)
    assert equal[0] == equal[1] and sum(equal) == pytest.approx(200 * MIB, rel=1e-3)
    more = natural.sizes([one(300, 500), one(100, 500)], 200 * MIB)
    assert more[0] > 1.8 * more[1]
    assert natural.sizes([one(300, 500, idle=True), one(100, 500)], 200 * MIB)[0] == 0
    # All fits.
    assert sum(natural.sizes([one(1, 10), one(1, 10)], 200 * MIB)) <= 200 * MIB


def test_a_survey_of_another_boot_begins_anew() -> None:
    pool = beside_a_scan()
    settle(pool)
    pool.now = 3.0
    pool.loads[1].stats = dataclasses.replace(pool.loads[1].stats, reads=0, read_bytes=0)
    before = quotas(pool.decide(pool.surveys[-1]))
    found = pool.period(1.0)
    assert quotas(found) == before
    assert found.history.tags[key(1)].rates is None


def test_an_agent_that_starts_again_keeps_the_shares() -> None:
    pool = beside_a_scan()
    before = settle(pool)
    assert before[1] > 90
    pool.history = seeded(dataclasses.replace(tag, cache_min_bytes=before[tag.id] * MIB)
                          for tag in pool.surveys[-1].tags)
    assert quotas(decide(None, pool.history, Config("mrc", tuple(pool.claims.values()), {
        POOL: PoolSize(POOL, pool.size)}))) == before
    for _ in range(5):
        assert quotas(pool.period()) == before


def test_a_tag_that_was_created_again_begins_anew() -> None:
    pool = beside_a_scan()
    settle(pool)
    pool.loads[1] = Load(100 * MIB, rate=500, cached=100 * MIB)
    found = pool.period()
    assert found.history.tags[key(1)].load.requests > 0
    assert settle(pool)[1] > 90


def test_without_a_sample_guarantees_are_given() -> None:
    for policy in POLICIES:
        found = decide(None, History(), Config(
            policy, (Claim(ON, 1, POOL, least=5 * MIB, most=9 * MIB),)))
        assert found.shares[key(1)].limits == (5 * MIB, 9 * MIB)


def test_a_recording_is_replayed_as_it_was_decided(tmp_path: Path) -> None:
    pool = beside_a_scan(150, claims={2: {"least": 8 * MIB, "isolation": Isolation.AUTO}})
    decided = [pool.period() for _ in range(8)]
    path = tmp_path / "r"
    with Writer(path) as writer:
        for one in pool.surveys:
            writer.write(one)
            writer.write(dataclasses.replace(one, curves=(), claims=(), pools=()))
    steps = list(replay(read_samples(path), "mrc"))
    assert [quotas(step.decision) for step in steps] == [quotas(one) for one in decided]
    for other in ("static", "weighted"):
        assert steps[-1].missed < list(replay(read_samples(path), other))[-1].missed


def test_the_command_replays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pool = beside_a_scan()
    settle(pool, 5)
    path = tmp_path / "r"
    with Writer(path) as writer:
        for one in pool.surveys:
            writer.write(one)
    assert cli.main(["replay", str(path), "--policy", "mrc", "--last"]) == 0
    out = capsys.readouterr().out
    assert "policy mrc" in out and "least weighted time" in out
    assert cli.main(["replay", str(path), "--policy", "weighted", "--json"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 5
    (tmp_path / "empty").write_text('{"format": "vcache-samples", "version": 1}\n')
    assert cli.main(["replay", str(tmp_path / "empty"), "--policy", "mrc"]) == 1
    assert "no sample has miss-ratio curves" in capsys.readouterr().err
    assert cli.main(["replay", str(tmp_path / "missing"), "--policy", "mrc"]) == 1


@pytest.mark.parametrize("program", ["cli", "agent"])
def test_numpy_is_loaded_only_when_it_is_needed(program: str) -> None:
    """It takes longer than most commands, and memory; only curves need it."""
    code = f"import sys, vcache_agent.cmd.{program}; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_settings_have_an_order() -> None:
    """Otherwise a pool would alternate between one list and quotas."""
    assert 0 < Settings().unite < Settings().divide
    assert Known().quota == 0
    assert Sample(0, 0, (), ()).curves == ()
