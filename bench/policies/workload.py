# SPDX-License-Identifier: Apache-2.0
"""Merge traces into one sequence of accesses of several tenants."""

from typing import Any

import numpy as np

from bench.traces import SUFFIX, TRACES, read

Array = np.ndarray[Any, Any]


def trace(name: str) -> Array:
    """Return the blocks that a trace accesses."""
    blocks, _ = read(TRACES / f"{name}{SUFFIX}")
    return np.frombuffer(blocks, dtype=np.uint64)


def steady(traces: list[Array], seed: int) -> tuple[Array, Array]:
    """Interleave traces at random, so that all of them end together: (blocks, tenants)."""
    order = np.concatenate([np.full(len(one), at, dtype=np.uint8)
                            for at, one in enumerate(traces)])
    np.random.default_rng(seed).shuffle(order)
    return _merge(traces, order), order


def phased(traces: list[Array], seed: int) -> tuple[Array, Array]:
    """The same, but each tenant is active only in its own part, about half of the time."""
    random = np.random.default_rng(seed)
    total = sum(map(len, traces))
    places = []
    for one in traces:
        length = total * random.uniform(0.35, 0.6)
        start = random.uniform(0, total - length)
        places.append(np.sort(random.uniform(start, start + length, len(one))))
    order = np.concatenate([np.full(len(one), at, dtype=np.uint8)
                            for at, one in enumerate(traces)])
    order = order[np.argsort(np.concatenate(places), kind="stable")]
    return _merge(traces, order), order


def _merge(traces: list[Array], order: Array) -> Array:
    blocks = np.empty(len(order), dtype=np.uint64)
    for at, one in enumerate(traces):
        blocks[order == at] = one
    return blocks
