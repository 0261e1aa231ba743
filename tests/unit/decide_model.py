# SPDX-License-Identifier: Apache-2.0
"""A model of a pool under load: its tags have working sets, and it yields surveys.

A tag that reads a working set of W bytes at random hits with the part of it that is cached. It
has as many requests in flight as it has threads, so it is faster the more it hits.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np

from vcache_agent.decide.decision import Config, Decision, decide
from vcache_agent.decide.history import History
from vcache_agent.model import Curve, Device, DeviceNumber, Stats, Tag
from vcache_agent.netlink import spec
from vcache_agent.observe.claim import Claim, PoolSize
from vcache_agent.observe.sample import Sample, TagCurve, TagKey

MIB = 1 << 20
BLOCK = 4096
ON, POOL = DeviceNumber(254, 3), "254:2"
GRAIN = MIB
POINTS = 1025


def bucket(ns: float) -> int:
    """Return the number of the histogram's bucket of a latency; see netlink/spec.py."""
    value = int(ns)
    if value < 4:
        return value
    power = value.bit_length() - 1
    return min(4 * (power - 1) + ((value >> (power - 2)) & 3), spec.HISTOGRAM_BUCKETS - 1)


@dataclasses.dataclass
class Load:
    """The load of a tag.

    :param working_set: bytes that it reads at random
    :param threads: requests in flight; 0: idle
    :param rate: reads per second at most; 0: as many as it can
    :param cached: bytes that it has in the cache
    """

    working_set: int
    threads: float = 1.0
    rate: float = 0.0
    cached: int = 0
    stats: Stats = dataclasses.field(default_factory=Stats)
    curve: Curve = dataclasses.field(
        default_factory=lambda: Curve(GRAIN, 0, 0, 0, (0,) * POINTS, (0,) * POINTS))

    def missed(self, size: int) -> float:
        """Return the miss ratio with `size` bytes."""
        return max(0.0, 1 - size / self.working_set)

    def run(self, seconds: float, hit: float, miss: float) -> None:
        """Read for some time."""
        missed = self.missed(self.cached)
        each = (1 - missed) * hit + missed * miss
        reads = int(min(self.threads / each, self.rate or 1e9) * seconds)
        misses = int(reads * missed)
        counts = list(self.stats.read_hist or (0,) * spec.HISTOGRAM_BUCKETS)
        counts[bucket(hit * 1e9)] += reads - misses
        counts[bucket(miss * 1e9)] += misses
        old = self.stats
        self.stats = dataclasses.replace(
            old, reads=old.reads + reads, read_bytes=old.read_bytes + reads * BLOCK,
            cache_hit_bytes=old.cache_hit_bytes + (reads - misses) * BLOCK,
            read_ns=old.read_ns + int(reads * each * 1e9), read_hist=tuple(counts))
        ratios = np.maximum(0.0, 1 - GRAIN * np.arange(POINTS) / self.working_set)
        grown = np.array(self.curve.read_misses) + (reads * ratios).astype(int)
        self.curve = dataclasses.replace(self.curve, reads=self.curve.reads + reads,
                                         read_misses=tuple(grown.tolist()))


class Pool:
    """A pool that is divided period by period.

    :param size: bytes
    :param loads: the loads of its tags by number
    :param claims: what differs from the default claim, by number
    """

    def __init__(self, size: int, loads: Mapping[int, Load], policy: str = "mrc",
                 claims: Mapping[int, Mapping[str, object]] | None = None,
                 lanes: tuple[int, ...] = (), hit: float = 1e-4, miss: float = 8e-3) -> None:
        self.size, self.loads, self.policy = size, dict(loads), policy
        self.hit, self.miss, self.lanes = hit, miss, lanes
        self.claims = {number: Claim(ON, number, POOL, **dict((claims or {}).get(number, {})))  # type: ignore[arg-type]
                       for number in loads}
        self.history = History()
        self.now = 100.0
        self.surveys: list[Sample] = []

    def period(self, seconds: float = 15.0) -> Decision:
        """Let all tags run for a period, and divide the pool."""
        for load in self.loads.values():
            load.run(seconds, self.hit, self.miss)
        self.now += seconds
        self.surveys.append(self.survey())
        return self.decide(self.surveys[-1])

    def decide(self, sample: Sample) -> Decision:
        """Divide the pool, and let the kernel follow."""
        found = decide(sample, self.history, Config(
            self.policy, tuple(self.claims.values()), {POOL: self._pool()}))
        self.history = found.history
        self._follow({key[1]: share.limits for key, share in found.shares.items()})
        for key, share in found.shares.items():
            if not self.claims[key[1]].fixed:
                self.claims[key[1]] = dataclasses.replace(self.claims[key[1]], lanes=share.lanes)
        return found

    def survey(self) -> Sample:
        """Return a sample with the curves."""
        device = Device(ON, "images", spec.Mode.WRITEBACK, spec.Scope.FILESYSTEM,
                        spec.Isolation.FUA, 1 << 24, "8:0", pool=POOL, volume=1)
        tags = tuple(Tag(ON, number, f"disk{number}", mode=spec.Mode.WRITEBACK,
                         weight=self.claims[number].weight, stats=load.stats,
                         cached_bytes=load.cached) for number, load in self.loads.items())
        curves = tuple(TagCurve(ON, number, load.curve) for number, load in self.loads.items())
        return Sample(1e9 + self.now, self.now, (device,), tags, curves,
                      tuple(self.claims.values()), (self._pool(),))

    def _pool(self) -> PoolSize:
        return PoolSize(POOL, self.size, self.lanes)

    def _follow(self, limits: Mapping[int, tuple[int, int]]) -> None:
        """Let each tag have its lower bound, and the rest those that would use it."""
        left = self.size
        for number, load in self.loads.items():
            load.cached = min(limits[number][0], load.working_set)
            left -= load.cached
        for number, load in self.loads.items():
            most = limits[number][1] or self.size
            more = max(0, min(left, load.working_set - load.cached, most - load.cached))
            load.cached += more if load.threads else 0
            left -= more if load.threads else 0


def quotas(found: Decision) -> dict[int, int]:
    """Return the lower bounds in MiB."""
    return {key[1]: share.limits.least // MIB for key, share in found.shares.items()}


def key(number: int) -> TagKey:
    """Return the key of a tag."""
    return ON, number
