# SPDX-License-Identifier: Apache-2.0
"""OC-Cache, figures 3 and 4: isolation, use of space and of bandwidth, on an SSD of 16 lanes.

Four tenants replay real traces on lanes.c, each with a hard disk of its own. Stable ones have a
constant number of requests in flight, noisy ones a number that changes at random. Schemes:

``shared``
    one LRU list for all tenants, on all lanes
``dedicated``
    FlashBlox: each tenant has lanes of its own, as many as its part of the hull's division
``algorithm1``
    OC-Cache as published: the hull's S_r and R_e of the whole traces, Algorithm 1, a fixed part of
    the shared lanes for each tenant, migration of hot blocks
``ours``
    the agent's decision function with the policy ``mrc`` every 15 s, on curves from samples:
    soft quotas, Algorithm 1 with stickiness, migration; the shared lanes are everybody's beyond
    the quotas

The model gives all schemes the same SSD: sequential chunks that are erased as a whole. So only
division and placement differ, and not the garbage collection of a conventional SSD.
"""

import concurrent.futures
import ctypes
import dataclasses
import functools
import random
import statistics
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bench.policies import simulate, workload
from bench.policies.model import HERE, ROOT, Library
from nova_vcache.extra_specs import Isolation
from vcache_agent.decide import algorithm1, optimum
from vcache_agent.decide.algorithm1 import Grant, Request
from vcache_agent.decide.decision import Config, decide
from vcache_agent.decide.history import History
from vcache_agent.decide.tenant import BLOCK_BYTES
from vcache_agent.model import Curve, DeviceNumber, Stats, Tag
from vcache_agent.netlink import spec
from vcache_agent.observe.claim import Claim, PoolSize
from vcache_agent.observe.sample import Sample, TagCurve

SCHEMES = ("shared", "dedicated", "algorithm1", "ours")
LANES = 16
#: Blocks of a lane: 48 MiB, so that the cache has about a fifth of all blocks.
LANE_BLOCKS = 12288
#: Seconds of virtual time; the first ones warm the caches up.
SECONDS, WARM = 600, 420
PERIOD = 15.0
DEPTH, BURST = 8, 32
#: OC-Cache's W_hot and W_u, section V.
HOT_PERCENT, WATERMARK = 20, 0.5
#: Peak rates of the device in blocks per second: that of all lanes in lanes.c.
READ_RATE, WRITE_RATE = LANES / 70e-6, LANES / (50e-6 + 3e-3 / 256)
_POOL = "254:2"


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A figure of the paper.

    :param traces: one for each tenant
    :param noisy: tenants whose rate changes
    :param writers: tenants that only write
    """

    name: str
    traces: tuple[str, ...]
    noisy: tuple[int, ...]
    writers: tuple[int, ...] = ()


_TRACES = ("arc_P6", "arc_P3", "cloudphysics_sample", "opencas_ycsb_rocksdb")
EXPERIMENTS = (Experiment("figure 3: reads", _TRACES, (2,)),
               Experiment("figure 4: reads and writes", _TRACES, (1, 2), (1, 2)))


def build(folder: Path) -> Path:
    """Compile the model."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "liblanes.so"
    subprocess.run(["cc", "-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror",
                    "-shared", "-fPIC", "-o", path, HERE / "lanes.c",
                    ROOT / "native" / "core" / "shards.c",
                    ROOT / "native" / "core" / "histogram.c"], check=True)
    return path


def load(path: Path) -> Any:
    """Load the model."""
    found = ctypes.CDLL(str(path))
    found.lanes_new.restype = ctypes.c_void_p
    found.lanes_useful.restype = ctypes.c_double
    found.lanes_curve.restype = ctypes.c_uint64
    return found


def _pointer(array: "np.ndarray[Any, Any]") -> Any:
    return array.ctypes.data_as(ctypes.c_void_p)


class Ssd:
    """The SSD with its tenants; see lanes.c."""

    def __init__(self, functions: Any, experiment: Experiment, seed: int) -> None:
        self.call = functions
        self.tenants = len(experiment.traces)
        self.at = ctypes.c_void_p(functions.lanes_new(LANES, LANE_BLOCKS, self.tenants, SECONDS,
                                                      HOT_PERCENT))
        self._kept: list[Any] = []  # the library has their addresses
        rng = random.Random(seed)  # noqa: S311 - test data
        for number, name in enumerate(experiment.traces):
            self._load(number, workload.trace(name), rng, noisy=number in experiment.noisy,
                       writes=number in experiment.writers)

    def _load(self, number: int, blocks: "np.ndarray[Any, Any]", rng: random.Random, *,
              noisy: bool, writes: bool) -> None:
        ends, depths, end = [], [], 0.0
        while end < SECONDS + BURST:
            end += rng.uniform(2, 12) if noisy else SECONDS + BURST
            ends.append(end)
            depths.append(rng.choice((0, 1, 4, BURST)) if noisy else DEPTH)
        # Each seed begins at another place of the trace.
        blocks = np.ascontiguousarray(np.roll(blocks, -rng.randrange(len(blocks))))
        kinds = np.full(len(blocks), writes, dtype=np.uint8)
        until, depth = np.array(ends), np.array(depths, dtype=np.uint32)
        self._kept += [blocks, kinds, until, depth]
        self.call.lanes_tenant(self.at, number, _pointer(blocks), _pointer(kinds),
                               ctypes.c_size_t(len(blocks)), _pointer(until), _pointer(depth),
                               ctypes.c_size_t(len(ends)))

    def close(self) -> None:
        """Free it."""
        self.call.lanes_free(self.at)

    def divide(self, masks: list[int], quotas: list[int], caps: list[int]) -> None:
        """Set the dedicated lanes of tenants, and their quotas and caps in the shared ones."""
        shared = (1 << LANES) - 1
        for mask in masks:
            shared &= ~mask
        # What leaves makes space first.
        for number, (mask, quota, cap) in enumerate(zip(masks, quotas, caps, strict=True)):
            self.call.lanes_give(self.at, number, ctypes.c_uint64(mask), quota, cap)
        self.call.lanes_shared(self.at, ctypes.c_uint64(shared))

    def run(self, until: float) -> None:
        """Run until a time."""
        self.call.lanes_run(self.at, ctypes.c_double(until))

    def counts(self, number: int) -> list[int]:
        """Return requests, hits, writes, blocks in shared and dedicated lanes, migrated blocks."""
        out = np.zeros(6, dtype=np.uint64)
        self.call.lanes_counts(self.at, number, _pointer(out))
        return [int(one) for one in out]

    def series(self, number: int) -> "np.ndarray[Any, Any]":
        """Return the requests of each second."""
        out = np.zeros(SECONDS, dtype=np.uint32)
        self.call.lanes_series(self.at, number, _pointer(out))
        return out

    def curve(self, number: int) -> Curve:
        """Return the curve of a tenant, as the kernel has it."""
        grain = 1 << 9
        sizes = np.arange(1025, dtype=np.uint64) * grain
        points, counts = [], []
        for kind in (0, 1):
            misses = np.zeros(1025, dtype=np.uint64)
            counts.append(self.call.lanes_curve(
                self.at, number, kind, _pointer(sizes), ctypes.c_size_t(1025), _pointer(misses)))
            points.append(tuple(misses.tolist()))
        return Curve(grain * BLOCK_BYTES, 0, counts[0], counts[1], points[0], points[1])

    def stats(self, number: int) -> Stats:
        """Return the counters that the kernel would have."""
        requests, _, writes = self.counts(number)[:3]
        out = np.zeros(2 + spec.HISTOGRAM_BUCKETS, dtype=np.uint64)
        self.call.lanes_reads(self.at, number, _pointer(out))
        hits, ns, *hist = (int(one) for one in out)
        return Stats(reads=requests - writes, read_bytes=(requests - writes) * BLOCK_BYTES,
                     writes=writes, write_bytes=writes * BLOCK_BYTES,
                     cache_hit_bytes=hits * BLOCK_BYTES, read_ns=ns, read_hist=tuple(hist))


_NO_CAP = 1 << 31


@functools.cache
def _curve(library: Library, name: str) -> Any:
    sizes = [LANE_BLOCKS * LANES // 256 * number for number in range(257)]
    return simulate.exact_curve(library, workload.trace(name), sizes)


def requests(library: Library, names: tuple[str, ...], grains: int = 256) -> list[Request]:
    """Return S_r in blocks and R_e of each tenant, by the convex hull approach.

    :param grains: of 256 that the whole cache has
    """
    curves = [_curve(library, name) / len(workload.trace(name)) for name in names]
    division = optimum.hull(curves, grains)
    grain = LANE_BLOCKS * LANES // 256
    return [Request(grains * grain, float(curve[grains]))
            for grains, curve in zip(division, curves, strict=True)]


def granted(library: Library, names: tuple[str, ...]) -> list[Grant]:
    """Return what Algorithm 1 grants.

    It removes requests that do not fit, and fractions of lanes may not. So the division gets less
    and less space until all requests fit.
    """
    for grains in range(256, 0, -4):
        found = algorithm1.allocate(requests(library, names, grains), LANES, LANE_BLOCKS, WATERMARK)
        if not any(grant.removed for grant in found):
            break
    return found


def _masks(lanes: list[int]) -> list[int]:
    """Return bit masks of lanes, from the last one on."""
    found, at = [], LANES
    for count in lanes:
        at -= count
        found.append(((1 << count) - 1) << at)
    return found


def _dedicated(wanted: list[Request]) -> list[int]:
    """Return the lanes of each tenant under FlashBlox: by S_r, at least one, all of them."""
    parts = [max(1, one.size // LANE_BLOCKS) for one in wanted]
    while sum(parts) > LANES:
        parts[parts.index(max(parts))] -= 1
    while sum(parts) < LANES:
        lacks = [one.size - part * LANE_BLOCKS for one, part in zip(wanted, parts, strict=True)]
        parts[lacks.index(max(lacks))] += 1
    return parts


class _Ours:
    """The agent's decisions."""

    def __init__(self, tenants: int) -> None:
        # Each tenant has a disk of its own, so a device.
        self._keys = [(DeviceNumber(254, 3 + number), 1) for number in range(tenants)]
        self._lanes = [0] * tenants
        self._history = History()
        self._periods = 0

    def decide(self, ssd: Ssd) -> None:
        """Take one decision, and apply it."""
        self._periods += 1
        size = LANE_BLOCKS * BLOCK_BYTES
        curves, tags, claims = [], [], []
        for at, key in enumerate(self._keys):
            curves.append(TagCurve(*key, ssd.curve(at)))
            tags.append(Tag(*key, stats=ssd.stats(at), cached_bytes=sum(
                ssd.counts(at)[3:5]) * BLOCK_BYTES))
            claims.append(Claim(*key, _POOL, isolation=Isolation.AUTO, lanes=self._lanes[at]))
        pool = PoolSize(_POOL, LANES * size, (size,) * LANES)
        now = PERIOD * self._periods
        decided = decide(Sample(now, now, (), tuple(tags), tuple(curves)), self._history,
                         Config("mrc", tuple(claims), {_POOL: pool}))
        self._history = decided.history
        shares = [decided.shares[key] for key in self._keys]
        self._lanes = [share.lanes for share in shares]
        own = [share.lanes.bit_count() * LANE_BLOCKS for share in shares]
        ssd.divide(self._lanes, [max(0, share.limits.least // BLOCK_BYTES - mine)
                                 for share, mine in zip(shares, own, strict=True)],
                   [_NO_CAP] * len(shares))


def _begin(ssd: Ssd, scheme: str, wanted: list[Request],
           grants: list[Grant]) -> Callable[[], None]:
    """Divide the SSD; return what is called after each period."""
    if scheme == "dedicated":
        ssd.divide(_masks(_dedicated(wanted)), [0] * ssd.tenants, [0] * ssd.tenants)
    elif scheme == "algorithm1":
        ssd.divide(_masks([grant.lanes for grant in grants]),
                   [grant.shared for grant in grants], [grant.shared for grant in grants])
    else:
        ssd.divide([0] * ssd.tenants, [0] * ssd.tenants, [_NO_CAP] * ssd.tenants)
    ours = _Ours(ssd.tenants)
    return (lambda: ours.decide(ssd)) if scheme == "ours" else lambda: None


def run(functions: Any, experiment: Experiment, scheme: str, seed: int,
        wanted: list[Request], grants: list[Grant]) -> dict[str, Any]:
    """Return the figures of one run, and the throughput of each tenant by second."""
    ssd = Ssd(functions, experiment, seed)
    try:
        after = _begin(ssd, scheme, wanted, grants)
        before: list[list[int]] = []
        for period in range(1, round(SECONDS / PERIOD) + 1):
            ssd.run(period * PERIOD)
            after()
            if period * PERIOD == WARM:
                ssd.call.lanes_measure(ssd.at)
                before = [ssd.counts(number) for number in range(ssd.tenants)]
        ends = [ssd.counts(number) for number in range(ssd.tenants)]
        return _figures(ssd, before, ends)
    finally:
        ssd.close()


def _figures(ssd: Ssd, before: list[list[int]], ends: list[list[int]]) -> dict[str, Any]:
    series = [ssd.series(number)[WARM:] for number in range(ssd.tenants)]
    done = [[end - start for start, end in zip(*pair, strict=True)]
            for pair in zip(before, ends, strict=True)]
    rate = sum(one[0] for one in done) / (SECONDS - WARM)
    writes = sum(one[2] for one in done) / max(1, sum(one[0] for one in done))
    useful = ssd.call.lanes_useful(ssd.at) / (LANES * LANE_BLOCKS * (SECONDS - WARM))
    steady = [float(one.mean() / one.std()) if one.std() else 0.0 for one in series]
    return {"cv": sum(steady), "steadiness": steady, "space": useful,
            "bandwidth": rate / (READ_RATE * (1 - writes) + WRITE_RATE * writes),
            "hit_ratio": [one[1] / max(1, one[0]) for one in done],
            "per_second": [float(one.mean()) for one in series],
            "migrated": done[0][5], "lanes": [end[4] // LANE_BLOCKS for end in ends],
            "series": [[int(value) for value in one[::5]] for one in series]}


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the medians of the seeds, by scheme; isolation is relative to ``dedicated``."""
    found = {}
    for scheme in SCHEMES:
        of_scheme = [one["schemes"][scheme] for one in runs]
        found[scheme] = {
            "isolation": statistics.median(
                one["schemes"][scheme]["cv"] / one["schemes"]["dedicated"]["cv"] for one in runs),
            **{key: statistics.median(one[key] for one in of_scheme)
               for key in ("space", "bandwidth")},
            # Each tenant by itself: one that never hits is much steadier than all others.
            "isolation_of_tenants": [statistics.median(
                one["schemes"][scheme]["steadiness"][at]
                / one["schemes"]["dedicated"]["steadiness"][at] for one in runs)
                for at in range(len(of_scheme[0]["steadiness"]))]}
    return found


def _one(path: Path, experiment: Experiment, scheme: str, seed: int, wanted: list[Request],
         grants: list[Grant]) -> dict[str, Any]:
    """Run one scheme, in another process."""
    return run(load(path), experiment, scheme, seed, wanted, grants)


def measure(library: Library, folder: Path, seeds: tuple[int, ...]) -> dict[str, Any]:
    """Run all schemes of both figures, two at a time."""
    found: dict[str, Any] = {}
    path = build(folder)
    wanted = {one.name: requests(library, one.traces) for one in EXPERIMENTS}
    grants = {one.name: granted(library, one.traces) for one in EXPERIMENTS}
    with concurrent.futures.ProcessPoolExecutor(2) as pool:
        jobs = {(experiment.name, seed, scheme): pool.submit(
            _one, path, experiment, scheme, seed, wanted[experiment.name], grants[experiment.name])
                for experiment in EXPERIMENTS for seed in seeds for scheme in SCHEMES}
        for experiment in EXPERIMENTS:
            runs = [{"seed": seed, "schemes": {
                scheme: jobs[experiment.name, seed, scheme].result() for scheme in SCHEMES}}
                for seed in seeds]
            total = summary(runs)
            found[experiment.name] = {
                "schemes": total, "runs": runs,
                "grants": [dataclasses.asdict(one) for one in grants[experiment.name]],
                "requests": [{"trace": name, "lanes": one.size / LANE_BLOCKS,
                              "miss_ratio": one.miss_ratio} for name, one in zip(
                                  experiment.traces, wanted[experiment.name], strict=True)]}
            for scheme, one in total.items():
                print(f"{experiment.name}: {scheme:10} isolation {one['isolation']:.3f}, space "
                      f"{one['space']:.3f}, bandwidth {one['bandwidth']:.5f}; isolation of tenants "
                      + ", ".join(f"{each:.2f}" for each in one["isolation_of_tenants"]),
                      flush=True)
    return found
