# SPDX-License-Identifier: Apache-2.0
"""The resources of a host for a flavor, by its summary."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nova_vcache.extra_specs import ExtraSpecs, Isolation, Mode
from nova_vcache.scheduler import fit
from nova_vcache.scheduler.fit import Wanted
from nova_vcache.summary import HostSummary

CACHED = frozenset({Mode.WRITEBACK, Mode.WRITETHROUGH, Mode.FLUSH_ONLY})
HOST = HostSummary(
    "a", age_s=1, modes=CACHED, flush_isolation=True, tags_free=9, cache_mb=10000,
    cache_free_mb=8000, largest_free_mb=5000, weight=300, lanes_free=1, flush_p99_ms=4.0,
    read_p99_us=200.0, iops_free=1000.0, slo_tags=4, slo_missed=1)
GOLD = ExtraSpecs(Mode.WRITEBACK, min_mb=1000, required=True)


def lacks(specs: ExtraSpecs, headroom: float = 0, there: bool = False, **changes: Any) -> str:
    return fit.lacks(dataclasses.replace(HOST, **changes),
                     Wanted.of(specs, headroom), there=there)


def test_a_host_that_has_all_lacks_nothing():
    full = dataclasses.replace(GOLD, isolation=Isolation.DEDICATED, slo_flush_ms=4.0,
                               slo_read_us=200.0, slo_iops=1000.0)
    assert lacks(full) == ""


@pytest.mark.parametrize(("specs", "changes", "text"), [
    (GOLD, {"modes": frozenset({Mode.FLUSH_ONLY})},
     "mode not available: writeback requested, available are flush"),
    (GOLD, {"modes": frozenset()}, "available are none"),
    (GOLD, {"flush_isolation": False}, "flushes not isolated"),
    (GOLD, {"tags_free": 0}, "no free tag"),
    (GOLD, {"largest_free_mb": 999}, "cache full: 1000 MiB to be guaranteed, 999 MiB free"),
    (dataclasses.replace(GOLD, isolation=Isolation.DEDICATED), {"lanes_free": 0}, "no free lane"),
    (dataclasses.replace(GOLD, slo_flush_ms=3.9), {},
     "flushes too slow: p99 is 4 ms, must be at most 3.9 ms"),
    (dataclasses.replace(GOLD, slo_read_us=199), {},
     "reads too slow: p99 is 200 us, must be at most 199 us"),
    (dataclasses.replace(GOLD, slo_iops=1001), {},
     "too few IOPS: 1000 free, must be at least 1001"),
])
def test_what_is_lacking_is_said_with_its_figures(specs, changes, text):
    assert text in lacks(specs, **changes)


def test_head_room_makes_objectives_stricter():
    assert not lacks(dataclasses.replace(GOLD, slo_flush_ms=4.4))
    assert "3.96 ms" in lacks(dataclasses.replace(GOLD, slo_flush_ms=4.4), 10)
    assert "180 us" in lacks(dataclasses.replace(GOLD, slo_read_us=200), 10)
    assert "1111.11" in lacks(dataclasses.replace(GOLD, slo_iops=1000), 10)


def test_what_is_not_measured_is_no_reason():
    strict = dataclasses.replace(GOLD, slo_flush_ms=0.001, slo_read_us=0.001, slo_iops=1e8)
    assert not lacks(strict, flush_p99_ms=None, read_p99_us=None, iops_free=None)


def test_flush_only_needs_no_cache_and_any_device_of_ours_will_do():
    specs = ExtraSpecs(Mode.FLUSH_ONLY, min_mb=99999, isolation=Isolation.DEDICATED)
    assert not lacks(specs, cache_mb=0, largest_free_mb=0, lanes_free=0,
                     modes=frozenset({Mode.WRITETHROUGH}))
    assert "mode not available" in lacks(specs, modes=frozenset())


def test_an_instance_that_is_there_needs_no_second_room():
    changes: dict[str, Any] = {"tags_free": 0, "largest_free_mb": 0, "lanes_free": 0}
    assert lacks(GOLD, **changes) and not lacks(GOLD, there=True, **changes)
    assert "isolated" in lacks(GOLD, there=True, flush_isolation=False)


def test_a_share_is_that_of_the_default_policy():
    # 1000 + (8000 - 1000) * 100 / (300 + 100)
    assert fit.share_mb(HOST, Wanted.of(GOLD)) == 2750
    assert fit.share_mb(HOST, Wanted.of(dataclasses.replace(GOLD, max_mb=1500))) == 1500
    assert fit.share_mb(HOST, Wanted.of(ExtraSpecs(Mode.FLUSH_ONLY))) == 0
    crowded = dataclasses.replace(HOST, cache_free_mb=0)
    assert fit.share_mb(crowded, Wanted.of(GOLD)) == 1000


def test_what_is_lent_costs_nobody_anything():
    host = dataclasses.replace(HOST, idle_mb=1024, loss_per_gb=50.0)
    assert fit.loss(host, 1000) == 0
    assert fit.loss(host, 3072) == 100
    assert fit.loss(dataclasses.replace(host, loss_per_gb=None), 9999) == 0


def test_risk_is_the_worse_of_the_own_and_the_others():
    assert fit.slo_risk(HOST, Wanted.of(GOLD)) == 0.25
    assert fit.slo_risk(HOST, Wanted.of(dataclasses.replace(GOLD, slo_flush_ms=8))) == 0.5
    assert fit.slo_risk(HOST, Wanted.of(dataclasses.replace(GOLD, slo_read_us=250))) == 0.8
    assert fit.slo_risk(HOST, Wanted.of(dataclasses.replace(GOLD, slo_iops=900))) == 0.9
    assert fit.slo_risk(HOST, Wanted.of(dataclasses.replace(GOLD, slo_flush_ms=1))) == 1


def test_a_guarantee_fits_best_where_it_leaves_least():
    assert fit.fragmentation(HOST, Wanted.of(GOLD)) == 0.4
    tight = dataclasses.replace(HOST, largest_free_mb=1000)
    assert fit.fragmentation(tight, Wanted.of(GOLD)) == 0
    assert fit.fragmentation(HOST, Wanted.of(dataclasses.replace(GOLD, min_mb=0))) == 0


@given(st.builds(HostSummary, node=st.just("a"), cache_mb=st.integers(0, 9000),
                 cache_free_mb=st.integers(0, 9000), largest_free_mb=st.integers(0, 9000),
                 weight=st.integers(0, 5000), idle_mb=st.integers(0, 9000),
                 loss_per_gb=st.none() | st.floats(0, 1e9), slo_tags=st.integers(0, 9),
                 flush_p99_ms=st.none() | st.floats(0, 1e5), iops_free=st.none() | st.just(0.0)),
       st.builds(ExtraSpecs, mode=st.sampled_from(sorted(CACHED)), weight=st.integers(1, 1000),
                 min_mb=st.integers(0, 9000), slo_flush_ms=st.none() | st.floats(0.001, 1e4),
                 slo_iops=st.none() | st.floats(1, 1e8)))
def test_terms_stay_in_their_range(host, specs):
    wanted = Wanted.of(specs)
    assert 0 <= fit.slo_risk(host, wanted) <= 1
    assert 0 <= fit.fragmentation(host, wanted) <= 1
    share = fit.share_mb(host, wanted)
    assert share >= 0 and fit.loss(host, share) >= 0
