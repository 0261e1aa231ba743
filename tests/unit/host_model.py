# SPDX-License-Identifier: Apache-2.0
"""A model of a host under load, for the causes of missed objectives and the limits of neighbours.

The more traffic its origins and its cache have, the longer each request takes. A fault changes
the model, and never the agent's inputs directly.
"""

import dataclasses
import random

from tests.unit.decide_model import BLOCK, GRAIN, MIB, POINTS, bucket
from vcache_agent.decide.decision import Config, Decision, decide
from vcache_agent.decide.division import Settings
from vcache_agent.decide.history import History
from vcache_agent.model import Curve, Device, DeviceNumber, Stats, Tag
from vcache_agent.netlink import spec
from vcache_agent.observe.claim import Claim, PoolSize
from vcache_agent.observe.sample import Sample, TagCurve, TagKey

HERE, THERE, POOL = DeviceNumber(254, 3), DeviceNumber(254, 4), "254:2"
PERIOD = 15.0
VICTIM, FIRST, SECOND, ELSEWHERE, HOST = (HERE, 1), (HERE, 2), (HERE, 3), (THERE, 4), (HERE, 0)


@dataclasses.dataclass
class Tenant:
    """The load of a tag; all rates are per second.

    :param reads: reads of 4 KiB
    :param working_set: bytes that it reads at random
    :param cached: bytes that it has in the cache
    :param written: bytes written
    :param waited: mean number of its writes that wait for buffer space
    """

    reads: float = 200.0
    working_set: int = 100 * MIB
    cached: int = 100 * MIB
    written: float = 400_000.0
    flushes: float = 10.0
    waited: float = 0.0
    stats: Stats = dataclasses.field(default_factory=Stats)
    misses: list[int] = dataclasses.field(default_factory=lambda: [0] * POINTS)

    def __post_init__(self) -> None:
        """Ask for the same as before."""
        self.asked = (self.reads, self.written)

    def ask(self, **values: float) -> None:
        """Change the load that it asks for."""
        for name, value in values.items():
            setattr(self, name, value)
        self.asked = (values.get("reads", self.asked[0]), values.get("written", self.asked[1]))

    @property
    def missed(self) -> float:
        """Its miss ratio."""
        return max(0.0, 1 - self.cached / self.working_set)


class Host:
    """A host with a pool of 1 GiB, two volumes with their origins, and five tags."""

    def __init__(self, seed: int, **objective: float) -> None:
        self.rng = random.Random(seed)
        self.settings = Settings()
        self.objective = objective
        #: What differs from the default claim, by tag.
        self.claims: dict[TagKey, dict[str, object]] = {}
        self.tenants = {VICTIM: Tenant(), FIRST: Tenant(), SECOND: Tenant(), ELSEWHERE: Tenant(),
                        HOST: Tenant(5, 100 * MIB, 0, 20_000, 0)}
        self.hit, self.miss, self.flush = 1e-4, 5e-3, 1e-3
        self.now, self.history = 0.0, History()

    def period(self) -> Decision:
        """Run a control period."""
        self._limit()
        cache, origin = self._pressure()
        for key, one in self.tenants.items():
            hit, miss = self.hit / (1 - cache), self.miss / (1 - origin[key[0]])
            self._run(one, hit, miss, self.flush / (1 - max(cache, origin[key[0]])))
        self.now += PERIOD
        found = decide(self._sample(), self.history, Config(
            "weighted", tuple(dataclasses.replace(
                Claim(*key, POOL), **(self.objective if key == VICTIM else {}),  # type: ignore[arg-type]
                **self.claims.get(key, {}))  # type: ignore[arg-type]
                for key in self.tenants if key[1]),
            {POOL: PoolSize(POOL, 1024 * MIB)}, self.settings))
        self.history = found.history
        return found

    def _limit(self) -> None:
        """Let the kernel apply the limits of neighbours."""
        active = self.history.restraints.active
        for key, one in self.tenants.items():
            limits = [limit for _, limit in active[key].limits()] if key in active else []
            one.reads = min([one.asked[0], *(rate / BLOCK for rate, _ in limits if rate)])
            one.written = min([one.asked[1], *(rate for _, rate in limits if rate)])

    def _pressure(self) -> tuple[float, dict[DeviceNumber, float]]:
        """Return how busy the cache and the origins are, 0 to 0.95."""
        cache, origin = 0.0, {HERE: 0.0, THERE: 0.0}
        for (device, _), one in self.tenants.items():
            cache += one.reads * (1 - one.missed) * 1e-5 + one.written / 4e8
            # Misses of random reads, and a destage that is mostly sequential.
            origin[device] += one.reads * one.missed / 4000 + one.written / 8e7
        return min(0.95, cache), {at: min(0.95, busy) for at, busy in origin.items()}

    def _run(self, one: Tenant, hit: float, miss: float, flush: float) -> None:
        def some(rate: float) -> int:
            return int(rate * PERIOD * self.rng.uniform(0.95, 1.05))

        reads, flushes, written = some(one.reads), some(one.flushes), some(one.written)
        missed = int(reads * one.missed)
        old = one.stats
        hists = [list(was or (0,) * spec.HISTOGRAM_BUCKETS)
                 for was in (old.read_hist, old.flush_hist)]
        for at in range(reads):
            hists[0][bucket((miss if at < missed else hit) * 1e9
                            * self.rng.uniform(0.8, 1.2))] += 1
        for _ in range(flushes):
            hists[1][bucket(flush * 1e9 * self.rng.uniform(0.8, 1.2))] += 1
        one.stats = dataclasses.replace(
            old, reads=old.reads + reads, read_bytes=old.read_bytes + reads * BLOCK,
            cache_hit_bytes=old.cache_hit_bytes + (reads - missed) * BLOCK,
            read_ns=old.read_ns + int(1e9 * (missed * miss + (reads - missed) * hit)),
            read_hist=tuple(hists[0]), writes=old.writes + written // 16384,
            write_bytes=old.write_bytes + written, writeout_bytes=old.writeout_bytes + written,
            flushes=old.flushes + flushes, flush_ns=old.flush_ns + int(1e9 * flushes * flush),
            flush_hist=tuple(hists[1]),
            wait_ns=old.wait_ns + int(1e9 * one.waited * PERIOD))
        for point in range(POINTS):
            one.misses[point] += int(reads * max(0.0, 1 - point * GRAIN / one.working_set))

    def _sample(self) -> Sample:
        devices = tuple(Device(at, "images", spec.Mode.WRITEBACK, spec.Scope.FILESYSTEM,
                               spec.Isolation.FUA, 1 << 24, "8:0", pool=POOL)
                        for at in (HERE, THERE))
        return Sample(self.now, self.now, devices, tuple(
            Tag(*key, stats=one.stats, cached_bytes=one.cached)
            for key, one in self.tenants.items()), tuple(
                TagCurve(*key, Curve(GRAIN, 0, one.stats.reads, 0, tuple(one.misses), (0, 0)))
                for key, one in self.tenants.items()))
