# SPDX-License-Identifier: Apache-2.0
"""A week of 250 disks: how long its replay takes, and whether anything moves while all is quiet.

Each disk has a day of its own: some hours of load on a working set that changes daily. The
recording has a survey every ten minutes. The last hours are quiet.
"""

import dataclasses
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vcache_agent.decide.replay import replay
from vcache_agent.decide.tenant import MIB
from vcache_agent.model import Curve, DeviceNumber, Stats, Tag
from vcache_agent.netlink import spec
from vcache_agent.observe.claim import Claim, PoolSize
from vcache_agent.observe.recording import Writer, read_samples
from vcache_agent.observe.sample import Sample, TagCurve

DISKS, PERIOD, DAYS = 250, 600, 7
#: Periods at the end without any load.
QUIET = 24
#: Periods of quiet after which nothing may move.
AFTER = 10
_DEVICE, _POOL, _POINTS = DeviceNumber(254, 3), "254:2", 1025


@dataclasses.dataclass
class _Disk:
    """A disk with its counters."""

    begins: int
    hours: int
    grain: int
    rate: int
    reads: int = 0
    points: list[int] = dataclasses.field(default_factory=lambda: [0] * _POINTS)

    def step(self, period: int, rng: random.Random) -> None:
        """Add the load of a period."""
        hour = period * PERIOD // 3600
        if (hour - self.begins) % 24 >= self.hours:
            return
        fits = 50 + (self.begins * 37 + hour // 24 * 211) % 900
        reads = self.rate * rng.randint(80, 120) // 100
        self.reads += reads
        for at in range(fits):
            self.points[at] += reads * (fits - at) // fits


def surveys() -> Iterator[Sample]:
    """Yield the surveys of the week."""
    rng = random.Random(3)  # noqa: S311 - test data
    disks = [_Disk(rng.randrange(24), rng.randint(2, 12), MIB << rng.randint(0, 3),
                   rng.randint(1000, 100_000)) for _ in range(DISKS)]
    claims = tuple(Claim(_DEVICE, number, _POOL, rng.randint(1, 1000))
                   for number in range(1, DISKS + 1))
    periods = DAYS * 86400 // PERIOD
    for period in range(periods):
        tags, curves = [], []
        for number, disk in enumerate(disks, 1):
            if period < periods - QUIET:
                disk.step(period, rng)
            hist = [0] * spec.HISTOGRAM_BUCKETS
            hist[60], hist[90] = disk.reads // 2, disk.reads - disk.reads // 2
            tags.append(Tag(_DEVICE, number, weight=claims[number - 1].weight, stats=Stats(
                reads=disk.reads, read_bytes=disk.reads * 4096,
                cache_hit_bytes=disk.reads // 2 * 4096, read_ns=disk.reads * 1_000_000,
                read_hist=tuple(hist))))
            curves.append(TagCurve(_DEVICE, number, Curve(
                disk.grain, 0, disk.reads, 0, tuple(disk.points), (0,) * _POINTS)))
        yield Sample(float(period * PERIOD), float(period * PERIOD), (), tuple(tags),
                     tuple(curves), claims=claims, pools=(PoolSize(_POOL, 256 << 30),))


def measure(folder: Path, policy: str = "mrc") -> dict[str, Any]:
    """Record the week, and replay it; return the processor time and what moved at the end."""
    path = folder / "week.jsonl"
    path.unlink(missing_ok=True)
    with Writer(path) as writer:
        for sample in surveys():
            writer.write(sample)
    size = path.stat().st_size
    began = time.process_time()
    steps = moved = 0
    before = None
    periods = DAYS * 86400 // PERIOD
    for steps, step in enumerate(replay(read_samples(path), policy), 1):
        shares = {key: (share.limits, share.lanes) for key, share in step.decision.shares.items()}
        if steps > periods - QUIET + AFTER:
            moved += shares != before
        before = shares
    took = time.process_time() - began
    path.unlink()
    return {"disks": DISKS, "periods": steps, "bytes": size, "cpu_seconds": took,
            "moved_after_quiet": moved}


