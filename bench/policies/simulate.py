# SPDX-License-Identifier: Apache-2.0
"""Divide caches among real traces: offline, against the optimum, and online."""

from typing import Any

import numpy as np

from bench.policies import settings, workload
from bench.policies.model import Cache, Library
from vcache_agent.decide import mrc, optimum
from vcache_agent.decide.decision import Config, decide
from vcache_agent.decide.history import History
from vcache_agent.decide.rates import Rates
from vcache_agent.decide.tenant import BLOCK_BYTES, MIB, Tenant, Times
from vcache_agent.model import Curve, DeviceNumber, Stats, Tag
from vcache_agent.observe.claim import Claim, PoolSize
from vcache_agent.observe.sample import Sample, TagCurve

Array = np.ndarray[Any, Any]

# A miss costs 1, so that costs are misses.
_ONE = Times(hit=0.0, miss=1.0, write=0.0, origin_write=0.0)
_DEVICE, _POOL = DeviceNumber(254, 3), "254:2"
# Buckets of the curves, as in the kernel.
_BUCKETS = 256
_SAMPLES = 8192
# More samples than any trace has blocks: then a curve is exact.
_EXACT = 1 << 20


def exact_curve(library: Library, blocks: Array, sizes: list[int]) -> Array:
    """Return how many accesses a cache of each size (blocks) misses, exactly."""
    with Cache(library, 1, 1, samples=_EXACT, buckets=_EXACT, grain_shift=0) as cache:
        cache.access(blocks, np.zeros(len(blocks), dtype=np.uint8))
        return cache.curve(0, sizes)[1].astype(float)


def _sampled(library: Library, blocks: Array, sizes: list[int]) -> Array:
    """Return an estimate of the same, as the kernel makes it."""
    with Cache(library, 1, 1, samples=_SAMPLES, buckets=_BUCKETS, grain_shift=0) as cache:
        cache.access(blocks, np.zeros(len(blocks), dtype=np.uint8))
        return cache.curve(0, sizes)[1].astype(float)


def offline(library: Library, traces: list[Array], part: float) -> dict[str, Any]:
    """Compare divisions of one cache with the optimum.

    :param part: size of the cache, as a part of all blocks
    :return: misses of each policy, and of one LRU list for all
    """
    blocks = sum(len(np.unique(one)) for one in traces)
    grain = max(1, round(blocks * part / settings.GRAINS))
    capacity = grain * settings.GRAINS
    sizes = [grain * number for number in range(settings.GRAINS + 1)]
    exact = [exact_curve(library, one, sizes) for one in traces]
    sampled = [_sampled(library, one, sizes) for one in traces]
    tenants = [Tenant(100, rates=Rates(MIB, tuple(map(float, one)), (0.0,)), times=_ONE)
               for one in sampled]
    # A grain of the model is a MiB of the policy.
    quotas = mrc.divide(tenants, settings.GRAINS * MIB, mrc.Settings(common=0.0))
    divisions = {
        "optimum": optimum.exact(exact, settings.GRAINS),
        "mrc": [quota // MIB for quota in quotas],
        "hull": optimum.hull(exact, settings.GRAINS),
        "equal": [settings.GRAINS // len(traces)] * len(traces),
    }
    found = {name: int(sum(int(curve[grains]) for curve, grains in
                           zip(exact, division, strict=True)))
             for name, division in divisions.items()}
    with Cache(library, capacity, len(traces)) as cache:
        found["shared"] = int(cache.access(*workload.steady(traces, 1)).sum())
    return found


class Controller:
    """The agent's decision function with the policy mrc, on the curves of the model.

    :param capacity: blocks of the cache
    """

    def __init__(self, tenants: int, capacity: int) -> None:
        keys = [(_DEVICE, number + 1) for number in range(tenants)]
        self._config = Config("mrc", tuple(Claim(*key, _POOL) for key in keys),
                              {_POOL: PoolSize(_POOL, capacity * BLOCK_BYTES)})
        self._keys = keys
        self._history = History()
        self._periods = 0

    def decide(self, cache: Cache) -> list[int]:
        """Return the quotas in blocks, after a period."""
        curves = tuple(TagCurve(*key, _dump(cache, at)) for at, key in enumerate(self._keys))
        tags = tuple(Tag(*key, stats=Stats(
            reads=one.curve.reads, read_bytes=one.curve.reads * BLOCK_BYTES))
            for key, one in zip(self._keys, curves, strict=True))
        self._periods += 1
        decided = decide(Sample(self._periods, self._periods, (), tags, curves), self._history,
                         self._config)
        self._history = decided.history
        return [decided.shares[key].limits.least // BLOCK_BYTES for key in self._keys]


def _dump(cache: Cache, tenant: int) -> Curve:
    grain = 1 << 8
    accesses, misses = cache.curve(tenant, [grain * number for number in range(1025)])
    return Curve(grain * BLOCK_BYTES, 0, accesses, 0, tuple(misses.tolist()), (0, 0))


def online(library: Library, merged: tuple[Array, Array], tenants: int, capacity: int,
           policy: str) -> int:
    """Run a merged workload under a policy: ``mrc``, ``shared`` or ``equal``; return the misses.

    :param capacity: blocks of the cache
    """
    blocks, order = merged
    misses = 0
    with Cache(library, capacity, tenants, samples=_SAMPLES, buckets=1024,
               grain_shift=4) as cache:
        controller = Controller(tenants, capacity)
        if policy == "equal":
            for at in range(tenants):
                cache.quota(at, capacity // tenants)
        for start in range(0, len(blocks), settings.PERIOD):
            end = start + settings.PERIOD
            misses += int(cache.access(blocks[start:end], order[start:end]).sum())
            if policy == "mrc":
                for at, quota in enumerate(controller.decide(cache)):
                    cache.quota(at, quota)
    return misses
