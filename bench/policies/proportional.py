# SPDX-License-Identifier: Apache-2.0
"""SymFlex, figure 8: throughput in proportion to weights that change, and then the loads do.

Four tenants read at random from working sets that do not fit together. Each has two requests in
flight: a hit takes 0.1 ms, a miss 8 ms, as with hard disks behind an SSD. Time is virtual. The
agent's decision function sees curves and counters of a period, and sets quotas and caps. A share
is of use only when it is full, and a tenant fills it with its misses. So a control period here is
180 s.
"""

import dataclasses
import statistics
from typing import Any

import numpy as np

from bench.policies.model import Cache, Library
from vcache_agent.decide.decision import Config, decide
from vcache_agent.decide.history import History
from vcache_agent.decide.tenant import BLOCK_BYTES, MIB
from vcache_agent.histogram import lower
from vcache_agent.model import Curve, DeviceNumber, Stats, Tag
from vcache_agent.netlink import spec
from vcache_agent.observe.claim import Claim, PoolSize
from vcache_agent.observe.sample import Sample, TagCurve

HIT, MISS, DEPTH = 1e-4, 8e-3, 2
#: Seconds of a control period, and periods of a phase.
PERIOD, PERIODS = 180.0, 12
#: Bytes of the cache and of the working sets.
SIZE = 480 * MIB
SETS = (192 * MIB,) * 4
CHANGED = (150 * MIB, 225 * MIB, 192 * MIB, 120 * MIB)
#: A phase: weights, working sets, bytes of the cache.
Phase = tuple[tuple[int, ...], tuple[int, ...], int]
PHASES: tuple[Phase, ...] = (
    ((100, 200, 300, 300), SETS, SIZE), ((400, 200, 300, 300), SETS, SIZE),
    ((400, 200, 100, 100), SETS, SIZE), ((400, 200, 100, 100), CHANGED, SIZE))
#: Error that counts as settled, in percent.
SETTLED = 5.0
_BATCH = 256
_GRAIN, _POINTS = MIB, 1025
_DEVICE, _POOL = DeviceNumber(254, 3), "254:2"


class _Tenants:
    """The loads, with the counters that the kernel would have."""

    def __init__(self, cache: Cache, seed: int) -> None:
        self._cache = cache
        self._random = np.random.default_rng(seed)
        self.stats = [Stats(read_hist=(0,) * spec.HISTOGRAM_BUCKETS) for _ in SETS]
        self._late = [0.0] * len(SETS)

    def run(self, at: int, working_set: int) -> int:
        """Let a tenant read for a period; return its reads."""
        left, reads, missed = PERIOD - self._late[at], 0, 0
        while left > 0:
            blocks = self._random.integers(0, working_set // BLOCK_BYTES, _BATCH, dtype=np.uint64)
            misses = int(self._cache.access(blocks, np.full(_BATCH, at, dtype=np.uint8))[at])
            reads, missed = reads + _BATCH, missed + misses
            left -= ((_BATCH - misses) * HIT + misses * MISS) / DEPTH
        self._late[at] = -left
        self._count(at, reads, missed)
        return reads

    def _count(self, at: int, reads: int, missed: int) -> None:
        old = self.stats[at]
        hist = list(old.read_hist)
        hist[_bucket(HIT)] += reads - missed
        hist[_bucket(MISS)] += missed
        self.stats[at] = dataclasses.replace(
            old, reads=old.reads + reads, read_bytes=old.read_bytes + reads * BLOCK_BYTES,
            cache_hit_bytes=old.cache_hit_bytes + (reads - missed) * BLOCK_BYTES,
            read_ns=old.read_ns + int(1e9 * ((reads - missed) * HIT + missed * MISS)),
            read_hist=tuple(hist))


def _bucket(seconds: float) -> int:
    return next(number for number in range(spec.HISTOGRAM_BUCKETS)
                if lower(number + 1) > seconds * 1e9)


def run(library: Library, seed: int,
        phases: tuple[Phase, ...] = PHASES) -> list[dict[str, Any]]:
    """Return the throughput of each tenant in each period.

    ``error_pct`` is the largest difference of a tenant's throughput for its weight from that of
    the first tenant.
    """
    found, history, now = [], History(), 0.0
    most = max(size for _, _, size in phases)
    with Cache(library, most // BLOCK_BYTES, len(SETS), buckets=1024, grain_shift=8) as cache:
        tenants = _Tenants(cache, seed)
        for phase, (weights, sets, size) in enumerate(phases):
            for period in range(PERIODS):
                speeds = [tenants.run(at, each) / PERIOD for at, each in enumerate(sets)]
                now += PERIOD
                decided = decide(_survey(cache, tenants, now), history, Config(
                    "throughput", tuple(Claim(_DEVICE, at + 1, _POOL, weight)
                                        for at, weight in enumerate(weights)),
                    {_POOL: PoolSize(_POOL, size)}))
                history = decided.history
                for at in range(len(SETS)):
                    limits = decided.shares[_DEVICE, at + 1].limits
                    cache.quota(at, limits.least // BLOCK_BYTES)
                    cache.cap(at, (limits.most or size) // BLOCK_BYTES)
                each = [speed / weight for speed, weight in zip(speeds, weights, strict=True)]
                found.append({"phase": phase, "period": period, "weights": weights,
                              "per_second": speeds, "error_pct": 100 * max(
                                  abs(one / each[0] - 1) for one in each)})
    return found


def _survey(cache: Cache, tenants: _Tenants, now: float) -> Sample:
    sizes = [_GRAIN // BLOCK_BYTES * number for number in range(_POINTS)]
    curves, tags = [], []
    for at, stats in enumerate(tenants.stats):
        accesses, misses = cache.curve(at, sizes)
        curves.append(TagCurve(_DEVICE, at + 1, Curve(
            _GRAIN, 0, accesses, 0, tuple(misses.tolist()), (0, 0))))
        tags.append(Tag(_DEVICE, at + 1, stats=stats, cached_bytes=cache.blocks(at) * BLOCK_BYTES))
    return Sample(now, now, (), tuple(tags), tuple(curves))


def summary(runs: list[list[dict[str, Any]]]) -> dict[str, float]:
    """Return the median error from the sixth period of each phase on, and the settling times.

    A phase settles with the first period from which the error stays below SETTLED, at the median
    of the seeds. ``start_periods`` is that of the first phase, which begins without curves and with
    an empty cache, ``settle_periods`` that of the slowest other one.
    """
    errors = [statistics.median(run[number]["error_pct"] for run in runs)
              for number in range(len(runs[0]))]
    settled = []
    for phase in range(len(errors) // PERIODS):
        of_phase = errors[phase * PERIODS:(phase + 1) * PERIODS]
        late = [number for number, error in enumerate(of_phase) if error > SETTLED]
        settled.append(late[-1] + 1 if late else 0)
    after = [row["error_pct"] for run in runs for row in run if row["period"] >= 5]
    return {"ratio_error_pct_median": statistics.median(after),
            "ratio_error_pct_worst": max(after), "start_periods": settled[0],
            "settle_periods": max(settled[1:])}
