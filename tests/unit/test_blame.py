# SPDX-License-Identifier: Apache-2.0
"""Twenty staged faults with known causes: the named cause is always right.

The host is a small queueing model: the more traffic its origin and its cache have, the longer
each request takes. A fault changes the model, and never the agent's inputs directly.
"""

import dataclasses
import random
from collections.abc import Callable

import pytest

from tests.unit.decide_model import BLOCK, GRAIN, MIB, POINTS, bucket
from vcache_agent.decide.blame import Cause, Verdict
from vcache_agent.decide.decision import Config, Decision, decide
from vcache_agent.decide.history import History
from vcache_agent.model import Curve, Device, DeviceNumber, Stats, Tag
from vcache_agent.netlink import spec
from vcache_agent.observe.claim import Claim, PoolSize
from vcache_agent.observe.sample import Sample, TagCurve

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

    @property
    def missed(self) -> float:
        """Its miss ratio."""
        return max(0.0, 1 - self.cached / self.working_set)


class Host:
    """A host with a pool of 1 GiB, two volumes with their origins, and five tags."""

    def __init__(self, seed: int, **objective: float) -> None:
        self.rng = random.Random(seed)
        self.objective = objective
        self.tenants = {VICTIM: Tenant(), FIRST: Tenant(), SECOND: Tenant(), ELSEWHERE: Tenant(),
                        HOST: Tenant(5, 100 * MIB, 0, 20_000, 0)}
        self.hit, self.miss, self.flush = 1e-4, 5e-3, 1e-3
        self.now, self.history = 0.0, History()

    def period(self) -> Decision:
        """Run a control period."""
        cache, origin = self._pressure()
        for key, one in self.tenants.items():
            hit, miss = self.hit / (1 - cache), self.miss / (1 - origin[key[0]])
            self._run(one, hit, miss, self.flush / (1 - max(cache, origin[key[0]])))
        self.now += PERIOD
        found = decide(self._sample(), self.history, Config(
            "weighted", tuple(dataclasses.replace(
                Claim(*key, POOL), **(self.objective if key == VICTIM else {}))  # type: ignore[arg-type]
                for key in self.tenants if key[1]),
            {POOL: PoolSize(POOL, 1024 * MIB)}))
        self.history = found.history
        return found

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


Fault = Callable[[Host], None]


def change(*keys: tuple[DeviceNumber, int], **values: float) -> Fault:
    """Return a fault that changes the load of tags."""
    def apply(host: Host) -> None:
        for key in keys:
            for name, value in values.items():
                setattr(host.tenants[key], name, value)
    return apply


def both(*faults: Fault) -> Fault:
    """Return several faults at once."""
    def apply(host: Host) -> None:
        for fault in faults:
            fault(host)
    return apply


def slow(**times: float) -> Fault:
    """Return a fault of a device."""
    def apply(host: Host) -> None:
        for name, value in times.items():
            setattr(host, name, value)
    return apply


#: A miss takes 5 ms and more, a hit 0.1 ms, a flush 1 ms and more.
READ_HITS, READ_MISSES, FLUSH, IOPS = (
    {"read_s": 0.002}, {"read_s": 0.009}, {"flush_s": 0.0025}, {"iops": 180.0})
MISSES = change(VICTIM, cached=90 * MIB)
NOTHING: Fault = lambda host: None  # noqa: E731

#: (objective, state before, fault, cause, tag)
FAULTS = {
    "it stops": (IOPS, NOTHING, change(VICTIM, reads=0, written=0, flushes=0),
                 Cause.NO_LOAD, None),
    "it has little to do": (IOPS, NOTHING, change(VICTIM, reads=20, written=1000),
                            Cause.NO_LOAD, None),
    "it writes much": (FLUSH, NOTHING, change(VICTIM, written=60e6), Cause.OWN_BURST, None),
    "its buffer is full": (FLUSH, NOTHING, change(VICTIM, written=50e6, waited=3),
                           Cause.OWN_BURST, None),
    "it writes and its reads wait": (READ_MISSES, MISSES, change(VICTIM, written=60e6),
                                     Cause.OWN_BURST, None),
    "it reads much more": (READ_MISSES, MISSES, change(VICTIM, reads=9000, cached=60 * MIB),
                           Cause.OWN_BURST, None),
    "its working set grows": (READ_HITS, NOTHING, change(VICTIM, working_set=300 * MIB),
                              Cause.OWN_SHARE, None),
    "its cache was taken": (READ_HITS, NOTHING, change(VICTIM, cached=20 * MIB),
                            Cause.OWN_SHARE, None),
    "its cache was taken by a neighbour that scans": (
        READ_HITS, NOTHING, both(change(VICTIM, cached=20 * MIB),
                                 change(FIRST, reads=2000, working_set=3000 * MIB)),
        Cause.OWN_SHARE, None),
    "it always had too little": (READ_HITS, change(VICTIM, cached=50 * MIB), NOTHING,
                                 Cause.OWN_SHARE, None),
    "a neighbour reads its whole disk": (
        READ_MISSES, MISSES, change(FIRST, reads=3000, working_set=50_000 * MIB),
        Cause.NEIGHBOUR, FIRST),
    "another neighbour writes": (READ_MISSES, MISSES, change(SECOND, written=50e6),
                                 Cause.NEIGHBOUR, SECOND),
    "two neighbours, one more": (
        READ_MISSES, MISSES, both(change(FIRST, written=8e6), change(SECOND, written=45e6)),
        Cause.NEIGHBOUR, SECOND),
    "a neighbour's writes delay its flushes": (FLUSH, NOTHING, change(FIRST, written=60e6),
                                               Cause.NEIGHBOUR, FIRST),
    "a neighbour on another origin fills the cache's queue": (
        FLUSH, NOTHING, change(ELSEWHERE, written=340e6), Cause.NEIGHBOUR, ELSEWHERE),
    "the host makes a backup": (
        READ_MISSES, MISSES, change(HOST, reads=2500, working_set=90_000 * MIB),
        Cause.HOST, None),
    "the host writes": (FLUSH, NOTHING, change(HOST, written=60e6), Cause.HOST, None),
    "the origin is rebuilt": (READ_MISSES, MISSES, slow(miss=0.04), Cause.DEVICE, None),
    "the cache is slow": (READ_HITS, NOTHING, slow(hit=0.004), Cause.DEVICE, None),
    "flushes of the device are slow": (FLUSH, NOTHING, slow(flush=0.02), Cause.DEVICE, None),
}


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_named_cause_is_right(name: str, seed: int) -> None:
    objective, before, fault, cause, guilty = FAULTS[name]
    host = Host(seed, **objective)
    before(host)
    for _ in range(8):
        found = host.period()
    if fault is not NOTHING:
        assert VICTIM not in found.missed, found.missed
    fault(host)
    for _ in range(2):
        found = host.period()
        (verdict,) = found.missed[VICTIM]
        assert (verdict.cause, verdict.tag) == (cause, guilty), verdict.text


def test_there_are_twenty_faults_and_each_cause_has_some() -> None:
    assert len(FAULTS) == 20
    assert {fault[3] for fault in FAULTS.values()} == set(Cause)


def test_the_texts() -> None:
    read = Verdict("read", Cause.NEIGHBOUR, 0.0123, 0.002, FIRST)
    assert read.text == ("the p99 of its reads is 12.3 ms, the objective 2 ms: much more traffic "
                         "than usual comes from tag 2 on device 254:3")
    assert Verdict("iops", Cause.NO_LOAD, 20.0, 180.0).text == (
        "20 of 180 requests a second: it does not ask for more")
