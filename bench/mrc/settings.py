# SPDX-License-Identifier: Apache-2.0
"""All parameters of the benchmark."""

import random
from collections.abc import Callable

#: Points of a curve: hundredths of the blocks in the trace.
POINTS = 100
SALTS = 4
RUNS = 3
#: The default of vcache-mrc.
SAMPLES = 8192
#: A trace with at least so many blocks is large, so its sample is sparse.
LARGE_BLOCKS = 100_000
#: Size of the cache that libCacheSim simulates, as a part of the blocks in the trace.
SIMULATED = 0.1


def _loop(stride: int) -> list[int]:
    return [i % 150_000 * stride for i in range(1_000_000)]


def _zipf() -> list[int]:
    chance = random.Random(5)
    places = random.Random(6).sample(range(300_000), 300_000)
    return [places[int(300_000 ** chance.random()) - 1] for _ in range(1_000_000)]


#: Synthetic traces, some of them difficult for a stratified sample: a cliff at the end of the
#: curve, with strides that do not fit the steps in a group, or with one block per group.
MADE: dict[str, Callable[[], list[int]]] = {
    "loop": lambda: _loop(1),
    "loop, every 8th block": lambda: _loop(8),
    "loop, every 987th block": lambda: _loop(987),
    "loop, every 4096th block": lambda: _loop(4096),
    "scan": lambda: list(range(1_000_000)),
    "Zipf": _zipf,
}
