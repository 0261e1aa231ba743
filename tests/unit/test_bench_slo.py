# SPDX-License-Identifier: Apache-2.0
"""The model of the benchmark of objectives: its queue, its histograms, and one short run."""

import random

import numpy as np
import pytest

from bench.policies import slo
from tests.unit.decide_model import bucket
from vcache_agent.netlink import spec


def test_the_queue_serves_one_request_after_the_other() -> None:
    rng, queue, free = random.Random(1), slo.Queue(), 0.0
    for period in range(5):
        arrivals = sorted(15 * period + rng.uniform(0, 15) for _ in range(200))
        times = [rng.uniform(0, 0.14) for _ in arrivals]
        expected = []
        for arrival, time in zip(arrivals, times, strict=True):
            free = max(free, arrival) + time
            expected.append(free)
        assert queue.serve(np.array(arrivals), np.array(times)) == pytest.approx(expected)
    assert len(queue.serve(np.array([]), np.array([]))) == 0


def test_latencies_are_counted_as_the_kernel_does() -> None:
    rng = random.Random(2)
    seconds = [10 ** rng.uniform(-6, 2) for _ in range(2000)]
    found = slo._added((1,) * spec.HISTOGRAM_BUCKETS, np.array(seconds))
    expected = [1] * spec.HISTOGRAM_BUCKETS
    for one in seconds:
        expected[bucket(one * 1e9)] += 1
    assert sum(abs(one - other) for one, other in zip(found, expected, strict=True)) <= 4


def test_recovery_is_the_first_of_five_periods_in_a_row() -> None:
    met = [False, True, False, *[True] * 4, False, *[True] * 6]
    assert slo._recovery([{"met": one} for one in met]) == 8
    assert slo._recovery([{"met": one} for one in met[:8]]) is None


def test_limits_help_beside_a_neighbour_and_are_gone_after_it(
        monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("BEFORE", 8), ("DURING", 12), ("AFTER", 8)):
        monkeypatch.setattr(slo, name, value)
    none, means = (slo.run("a neighbour scans", scheme, 1) for scheme in ("none", "means"))
    assert none["before_pct"] == means["before_pct"] == 100
    assert none["attained_pct"] == 0
    assert means["attained_pct"] >= 50
    assert means["antagonist_pct"] < none["antagonist_pct"]
    assert means["limited_others"] == means["limited_at_end"] == []
