# SPDX-License-Identifier: Apache-2.0
"""SymFlex, figure 9: the hit ratio after a restart, by what became of the cache.

One instance reads a sequence of random blocks, 75 % of them from the first 30 % of its disk, one at
a time. It is restarted after some seconds, and reads the same sequence from its beginning. A hit
takes 0.1 ms, a miss 8 ms, as with a hard disk behind an SSD. Time is virtual. Schemes:

``cold``
    the cache is empty
``list``
    the positions are known: the kernel reads the blocks from the disk, half of the time, while
    the instance reads as well
``swapped``
    the data was in a file, and returns at 100 MiB/s without a read of the disk
``kept``
    the data stayed in the cache
"""

import dataclasses
import statistics
from typing import Any

import numpy as np

from bench.policies.model import Cache, Library

SCHEMES = ("cold", "list", "swapped", "kept")
#: Blocks of the cache, of the disk, and requests: SymFlex's 10, 30 and 25 GB, a 32nd of each.
CAPACITY, DISK, REQUESTS = 81920, 245760, 204800
HIT, MISS = 1e-4, 8e-3
#: A promotion of 32 blocks of the list: a seek, and its transfer.
AHEAD, AHEAD_BLOCKS = 9e-3, 32
#: Blocks per second that return from a file.
RATE = 100 * 256
#: Seconds before the restart, and of a point of the plot.
RESTARTS = (100.0, 200.0, 400.0)
WINDOW = 10.0
_BATCH = 32


@dataclasses.dataclass
class _Return:
    """Blocks that return in the background, the hottest first.

    :param rate: blocks per second
    :param slow: seconds that each miss takes longer meanwhile
    """

    blocks: "np.ndarray[Any, Any]"
    rate: float
    slow: float
    at: float = 0.0

    def step(self, cache: Cache, seconds: float) -> None:
        """Return what returns in some seconds."""
        start = int(self.at)
        self.at = min(len(self.blocks), self.at + seconds * self.rate)
        part = self.blocks[start:int(self.at)]
        if len(part):
            cache.access(part, np.zeros(len(part), dtype=np.uint8))

    @property
    def ended(self) -> bool:
        """True if all blocks are back."""
        return self.at >= len(self.blocks)


def _sequence(seed: int) -> "np.ndarray[Any, Any]":
    random = np.random.default_rng(seed)
    hot = random.random(REQUESTS) < 0.75
    first = DISK * 3 // 10
    return np.where(hot, random.integers(0, first, REQUESTS),
                    random.integers(first, DISK, REQUESTS)).astype(np.uint64)


def _replay(cache: Cache, blocks: "np.ndarray[Any, Any]", seconds: float,
            back: _Return | None = None) -> dict[str, Any]:
    """Read blocks for some seconds, at most; return what happened."""
    series: list[float] = []
    now, window = 0.0, [0, 0]
    for at in range(0, len(blocks), _BATCH):
        part = blocks[at:at + _BATCH]
        missed = int(cache.access(part, np.zeros(len(part), dtype=np.uint8))[0])
        slow = back.slow if back and not back.ended else 0.0
        took = (len(part) - missed) * HIT + missed * (MISS + slow)
        if back:
            back.step(cache, took)
        now += took
        window = [window[0] + len(part) - missed, window[1] + len(part)]
        if now >= (len(series) + 1) * WINDOW:
            series.append(window[0] / window[1])
            window = [0, 0]
        if now >= seconds:
            break
    return {"seconds": now, "requests": at + len(part), "series": series}


def _recent(blocks: "np.ndarray[Any, Any]", used: int) -> "np.ndarray[Any, Any]":
    """Return the distinct blocks of the first requests that an LRU list has, the hottest first."""
    seen = blocks[:used]
    names, last, counts = np.unique(seen[::-1], return_index=True, return_counts=True)
    inside = np.argsort(last)[:CAPACITY]
    return names[inside][np.argsort(-counts[inside], kind="stable")]


def _restart(library: Library, scheme: str, after: float, seed: int) -> dict[str, Any]:
    blocks = _sequence(seed)
    with Cache(library, CAPACITY, 1) as cache:
        before = _replay(cache, blocks, after)
        if scheme == "kept":
            return _replay(cache, blocks, float("inf"))
    recent = _recent(blocks, before["requests"])
    back = {"list": _Return(recent, AHEAD_BLOCKS / AHEAD / 2, AHEAD / 2),
            "swapped": _Return(recent, RATE, 0.0)}.get(scheme)
    with Cache(library, CAPACITY, 1) as cache:
        return _replay(cache, blocks, float("inf"), back)


def measure(library: Library, seeds: tuple[int, ...]) -> dict[str, Any]:
    """Return the hit ratios after restarts; ``warm_vs_cold`` is that of swapped data.

    ``first_hit_ratio``: of the first ten seconds. ``warm_vs_cold``: how many times faster the
    sequence is read after a restart from a file than from a cold cache, at the last restart.
    """
    rows = []
    for after in RESTARTS:
        runs = {scheme: [_restart(library, scheme, after, seed) for seed in seeds]
                for scheme in SCHEMES}
        row: dict[str, Any] = {"after": after}
        for scheme, each in runs.items():
            row[scheme] = {
                "first_hit_ratio": statistics.median(one["series"][0] for one in each),
                "seconds": statistics.median(one["seconds"] for one in each),
                "series": each[0]["series"]}
        rows.append(row)
        print(f"restart after {after:.0f} s: " + ", ".join(
            f"{scheme} {row[scheme]['first_hit_ratio']:.3f} at first, "
            f"{row[scheme]['seconds']:.0f} s" for scheme in SCHEMES), flush=True)
    last = rows[-1]
    return {"warm_vs_cold": last["cold"]["seconds"] / last["swapped"]["seconds"],
            "swapped_vs_kept": last["kept"]["seconds"] / last["swapped"]["seconds"],
            "first_hit_ratio": {scheme: last[scheme]["first_hit_ratio"] for scheme in SCHEMES},
            "restarts": rows}
