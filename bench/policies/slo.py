# SPDX-License-Identifier: Apache-2.0
"""Objectives beside an antagonist and after a load step, with and without the controller.

Five tags of two devices share a pool. Each request of a period has a place in the queue of the
cache, of its origin, or both; the queues are first come, first served, in virtual time. The
agent's decision function sees the counters, histograms and curves that the kernel would have, at
the end of each control period of 15 s.

Schemes: ``none`` has no objective; ``shares`` reserves cache for the objective; ``means`` also
limits neighbours. Whether the objective is met is judged from the latencies of the period, not from
what the agent sees.
"""

import concurrent.futures
import dataclasses
import itertools
import os
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vcache_agent import histogram
from vcache_agent.decide.decision import Config, decide
from vcache_agent.decide.division import Settings
from vcache_agent.decide.history import History
from vcache_agent.decide.restraint import Means
from vcache_agent.decide.tenant import BLOCK_BYTES, MIB
from vcache_agent.model import Curve, DeviceNumber, Stats, Tag
from vcache_agent.netlink import spec
from vcache_agent.observe.claim import Claim, PoolSize
from vcache_agent.observe.sample import Sample, TagCurve, TagKey

PERIOD = 15.0
#: Periods before the fault, with it, and after it.
BEFORE, DURING, AFTER = 12, 60, 12
#: Periods in a row that meet the objective, after which the fault counts as overcome.
STEADY = 5
SCHEMES = ("none", "shares", "means")
#: Seconds of a 4 KiB read of the cache, of an origin, and of a MiB written to either.
CACHE_READ, ORIGIN_READ = 6e-5, 2.5e-4
CACHE_MIB, ORIGIN_MIB = 2.5e-3, 5e-3
#: Bytes of a write, and requests that an antagonist sends at once.
WRITE, BATCH = 64 << 10, 32
POOL_BYTES, GRAIN, POINTS = 1024 * MIB, MIB, 1025
HERE, THERE, POOL = DeviceNumber(254, 3), DeviceNumber(254, 4), "254:2"
HOST, VICTIM, ONE, TWO, AWAY = (HERE, 0), (HERE, 1), (HERE, 2), (HERE, 3), (THERE, 4)


@dataclasses.dataclass
class Load:
    """The load of a tag; rates are per second.

    :param reads: reads of 4 KiB
    :param written: bytes written
    :param flushes: each writes 4 KiB to the cache
    :param working_set: bytes that it reads at random
    :param most: upper bound of its cached data
    :param batch: requests that it sends at once
    """

    reads: float = 200.0
    written: float = 400e3
    flushes: float = 0.0
    working_set: int = 100 * MIB
    most: int = 90 * MIB
    batch: int = 1


@dataclasses.dataclass(frozen=True)
class Scenario:
    """A fault.

    :param objective: of the victim: field of its claim, and seconds
    :param faults: what changes, by tag
    :param victim: what the victim's load differs in
    :param step: the fault stays until the end of the run, and is the victim's own
    """

    objective: tuple[str, float]
    faults: Mapping[TagKey, Mapping[str, Any]]
    victim: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    step: bool = False


_SCAN = {"reads": 2800.0, "working_set": 100 << 30, "batch": BATCH}
SCENARIOS = {
    "a neighbour scans": Scenario(("read_s", 4e-3), {ONE: _SCAN}),
    "a neighbour writes": Scenario(
        ("flush_s", 2e-3), {AWAY: {"written": 230e6, "batch": BATCH}}, {"flushes": 50.0}),
    "two neighbours scan": Scenario(("read_s", 4e-3), {
        ONE: {**_SCAN, "reads": 1800.0}, TWO: {**_SCAN, "reads": 1200.0}}),
    "the host scans": Scenario(("read_s", 4e-3), {HOST: _SCAN}),
    "its working set grows": Scenario(
        ("read_s", 5e-4), {VICTIM: {"working_set": 400 * MIB}},
        {"reads": 1500.0, "most": 0, "working_set": 80 * MIB}, step=True),
}


class Queue:
    """A device that serves one request after the other."""

    def __init__(self) -> None:
        self._free = 0.0

    def serve(self, arrivals: Any, times: Any) -> Any:
        """Return when each request ends.

        :param arrivals: sorted, in seconds
        :param times: seconds that each takes
        """
        done = np.cumsum(times)
        start = np.maximum.accumulate(np.maximum(arrivals, self._free) - (done - times))
        self._free = float((start + done)[-1]) if len(done) else self._free
        return start + done


class Host:
    """The host in virtual time."""

    def __init__(self, scenario: Scenario, scheme: str, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._scenario, self._scheme = scenario, scheme
        self.loads = {HOST: Load(20, 100e3, most=0, working_set=1 << 30), VICTIM: Load(),
                      ONE: Load(), TWO: Load(), AWAY: Load()}
        self.cached = {key: 0 if key == HOST else min(load.working_set, 90 * MIB)
                       for key, load in self.loads.items()}
        self.change({VICTIM: scenario.victim})
        self.served = dict.fromkeys(self.loads, 0.0)
        self._stats = {key: Stats() for key in self.loads}
        self._curves = {key: np.zeros(POINTS) for key in self.loads}
        self._cache, self._origins = Queue(), {HERE: Queue(), THERE: Queue()}
        self._dirty = 0.0
        self._history, self._now = History(), 0.0

    def change(self, faults: Mapping[TagKey, Mapping[str, Any]]) -> dict[TagKey, Load]:
        """Change loads; return what they were."""
        before = dict(self.loads)
        for key, values in faults.items():
            self.loads[key] = dataclasses.replace(self.loads[key], **values)
        return before

    def period(self) -> dict[str, Any]:
        """Run a control period; return what the victim and the others had."""
        rates = {key: self._allowed(key) for key in self.loads}
        latencies = self._run(rates)
        for key in self.loads:
            self._count(key, rates[key], latencies[key])
        self._now += PERIOD
        found = decide(self._sample(), self._history, Config(
            "weighted", self._claims(), {POOL: PoolSize(POOL, POOL_BYTES)},
            Settings(means=tuple(Means) if self._scheme == "means" else ())))
        self._history = found.history
        self._fill(rates, {key: share.limits.least for key, share in found.shares.items()})
        reads, flushes = latencies[VICTIM]
        name, promised = self._scenario.objective
        p99 = float(np.percentile(reads if name == "read_s" else flushes, 99))
        return {"p99_ms": 1e3 * p99, "met": p99 <= promised,
                "bytes": {str(key[1]): one[0] * BLOCK_BYTES + one[1]
                          for key, one in rates.items()},
                "asked": {str(key[1]): one.reads * BLOCK_BYTES + one.written
                          for key, one in self.loads.items()},
                "limited": sorted(key[1] for key, one in found.history.restraints.active.items()
                                  if one.parts)}

    def _allowed(self, key: TagKey) -> tuple[float, float]:
        """Return reads and written bytes per second, with the limits of the kernel."""
        load = self.loads[key]
        reads, written = load.reads, load.written
        active = self._history.restraints.active
        for means, limit in active[key].limits() if key in active else ():
            if means is Means.IO:
                reads = min(reads, limit.read / BLOCK_BYTES) if limit.read else reads
                written = min(written, limit.write) if limit.write else written
            elif limit.write:
                # Writers are slowed down when the share of the tag is full of dirty data.
                room = max(0.0, POOL_BYTES / 4 - self._dirty) / PERIOD
                self._dirty += (min(written, limit.write + room) - limit.write) * PERIOD
                written = min(written, limit.write + room)
        return reads, written

    def _missed(self, key: TagKey) -> float:
        load = self.loads[key]
        return max(0.0, 1 - min(self.cached[key], load.working_set) / load.working_set)

    def _run(self, rates: Mapping[TagKey, tuple[float, float]]) -> dict[TagKey, tuple[Any, Any]]:
        """Serve all requests; return the latencies of reads and of flushes of each tag."""
        rows: list[tuple[Any, Any, Any, int, int]] = []  # arrivals, cache, origin, tag, kind
        keys = list(self.loads)
        for number, key in enumerate(keys):
            load, (reads, written) = self.loads[key], rates[key]
            missed = self._missed(key)
            limited = (reads, written) != (load.reads, load.written)
            for part, on_cache, on_origin, kind in (
                    (reads * (1 - missed), CACHE_READ, 0.0, 0),
                    (reads * missed, 0.0, ORIGIN_READ, 0),
                    # Written to the cache, read from there, written to the origin.
                    (written / WRITE, CACHE_MIB * WRITE / MIB * 1.5, 0.0, 2),
                    (written / WRITE, 0.0, ORIGIN_MIB * WRITE / MIB / 4, 2),
                    (load.flushes, CACHE_READ * 2, 0.0, 1)):
                rows.append((*self._arrivals(part, load.batch, on_cache, on_origin,
                                             limited=limited), number, kind))
        order = np.argsort(np.concatenate([row[0] for row in rows]), kind="stable")
        times, cache, origin = (np.concatenate([row[at] for row in rows])[order]
                                for at in range(3))
        tags, kinds = (np.concatenate([np.full(len(row[0]), row[at]) for row in rows])[order]
                       for at in (3, 4))
        took = np.zeros(len(times))
        away = np.isin(tags, [keys.index(key) for key in keys if key[0] == THERE])
        for queue, mask, each in ((self._cache, cache > 0, cache),
                                  (self._origins[HERE], (origin > 0) & ~away, origin),
                                  (self._origins[THERE], (origin > 0) & away, origin)):
            took[mask] = queue.serve(times[mask], each[mask]) - times[mask]
        return {key: (took[(tags == number) & (kinds == 0)], took[(tags == number) & (kinds == 1)])
                for number, key in enumerate(keys)}

    def _arrivals(self, rate: float, batch: int, cache: float, origin: float, *,
                  limited: bool) -> tuple[Any, Any, Any]:
        """Return the times of requests, and what they take.

        They come in batches at random times. The kernel's limit lets them pass one by one.
        """
        if limited:
            count = int(rate * PERIOD)
            times = (np.arange(count) + self._random.uniform(0, 1, count)) / max(rate, 1e-9)
        else:
            count = self._random.poisson(rate * PERIOD / batch)
            times = np.repeat(self._random.uniform(0, PERIOD, count), batch)
        times = times + self._now
        spread = self._random.uniform(0.7, 1.3, len(times))
        return times, cache * spread, origin * spread

    def _count(self, key: TagKey, rates: tuple[float, float], latencies: tuple[Any, Any]) -> None:
        """Add what the kernel counts."""
        old, (reads, flushes), (_, written) = self._stats[key], latencies, rates
        missed = int(len(reads) * self._missed(key))
        size = int(written * PERIOD)
        self._stats[key] = dataclasses.replace(
            old, reads=old.reads + len(reads), read_bytes=old.read_bytes + BLOCK_BYTES * len(reads),
            cache_hit_bytes=old.cache_hit_bytes + BLOCK_BYTES * (len(reads) - missed),
            read_ns=old.read_ns + int(1e9 * reads.sum()), read_hist=_added(old.read_hist, reads),
            writes=old.writes + size // WRITE, write_bytes=old.write_bytes + size,
            writeout_bytes=old.writeout_bytes + size, flushes=old.flushes + len(flushes),
            flush_ns=old.flush_ns + int(1e9 * flushes.sum()),
            flush_hist=_added(old.flush_hist, flushes))
        self._curves[key] = self._curves[key] + len(reads) * np.maximum(
            0.0, 1 - GRAIN * np.arange(POINTS) / self.loads[key].working_set)

    def _fill(self, rates: Mapping[TagKey, tuple[float, float]],
              floors: Mapping[TagKey, int]) -> None:
        """Let misses fill the cache: each tag up to its floor, or its part of the rest."""
        spare = POOL_BYTES - sum(floors.values())
        for key, load in self.loads.items():
            if key == HOST:
                continue
            most = min(load.most or POOL_BYTES, max(
                floors.get(key, 0) + spare // 4 // 2, floors.get(key, 0)))
            grown = int(rates[key][0] * PERIOD * self._missed(key)) * BLOCK_BYTES
            self.cached[key] = min(self.cached[key] + grown, most, load.working_set)

    def _claims(self) -> tuple[Claim, ...]:
        found = {key: Claim(*key, POOL, most=load.most)
                 for key, load in self.loads.items() if key != HOST}
        if self._scheme != "none":
            name, seconds = self._scenario.objective
            found[VICTIM] = dataclasses.replace(found[VICTIM], **{name: seconds})  # type: ignore[arg-type]
        return tuple(found.values())

    def _sample(self) -> Sample:
        tags = tuple(Tag(*key, stats=stats, cached_bytes=self.cached[key])
                     for key, stats in self._stats.items())
        curves = tuple(TagCurve(*key, Curve(
            GRAIN, 0, self._stats[key].reads, 0, tuple(points.astype(int).tolist()), (0, 0)))
            for key, points in self._curves.items())
        return Sample(self._now, self._now, (), tags, curves)


_BOUNDS = [histogram.lower(bucket) / 1e9 for bucket in range(spec.HISTOGRAM_BUCKETS)]


def _added(old: Sequence[int], seconds: Any) -> tuple[int, ...]:
    """Return a histogram of the kernel with some more latencies."""
    buckets = np.searchsorted(_BOUNDS, seconds, side="right") - 1
    counts = np.bincount(buckets, minlength=spec.HISTOGRAM_BUCKETS)
    return tuple((counts + (np.array(old) if old else 0)).tolist())


def run(name: str, scheme: str, seed: int) -> dict[str, Any]:
    """Return the periods of a run, and what follows from them."""
    scenario = SCENARIOS[name]
    host = Host(scenario, scheme, seed)
    periods = [host.period() for _ in range(BEFORE)]
    before = host.change(scenario.faults)
    periods += [host.period() for _ in range(DURING)]
    if not scenario.step:
        host.loads = before
    periods += [host.period() for _ in range(AFTER)]
    during = periods[BEFORE:BEFORE + DURING]
    guilty = [str(key[1]) for key in scenario.faults]
    return {
        "seed": seed, "scheme": scheme,
        "before_pct": _part(periods[BEFORE // 2:BEFORE]), "attained_pct": _part(during),
        "recovery_periods": _recovery(during), "after_pct": _part(periods[-AFTER // 2:]),
        "antagonist_pct": 100 * sum(one["bytes"][tag] for one in during for tag in guilty)
        / sum(one["asked"][tag] for one in during for tag in guilty),
        "limited_others": sorted({tag for one in periods for tag in one["limited"]}
                                 - set(map(int, guilty))),
        "limited_at_end": periods[-1]["limited"], "p99_ms": [one["p99_ms"] for one in periods]}


def _part(periods: Sequence[Mapping[str, Any]]) -> float:
    return 100 * statistics.mean(one["met"] for one in periods)


def _recovery(during: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the periods until the objective is met again for some time; None: never."""
    met = [one["met"] for one in during]
    return next((at for at in range(len(met) - STEADY + 1) if all(met[at:at + STEADY])), None)


def measure(seeds: Sequence[int]) -> dict[str, Any]:
    """Return medians of the seeds for each scenario and scheme, and all runs."""
    found: dict[str, Any] = {}
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count()) as pool:
        jobs = {(name, scheme): [pool.submit(run, name, scheme, seed) for seed in seeds]
                for name, scheme in itertools.product(SCENARIOS, SCHEMES)}
        for (name, scheme), each in jobs.items():
            runs = [job.result() for job in each]
            recovery = [one["recovery_periods"] for one in runs]
            one = {key: statistics.median(run[key] for run in runs) for key in (
                "before_pct", "attained_pct", "after_pct", "antagonist_pct")}
            one["recovery_periods"] = None if None in recovery else statistics.median(recovery)
            found.setdefault(name, {"objective": SCENARIOS[name].objective, "schemes": {}})
            found[name]["schemes"][scheme] = {**one, "runs": runs}
            print(f"slo: {name}, {scheme}: met in {one['attained_pct']:.0f} % of the periods, "
                  f"again after {one['recovery_periods']}; the antagonist has "
                  f"{one['antagonist_pct']:.0f} % of what it asks for", flush=True)
    return found
