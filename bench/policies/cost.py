# SPDX-License-Identifier: Apache-2.0
"""The processor time of one decision, with many busy tags."""

import dataclasses
import random
import statistics
import time

from vcache_agent.decide.decision import Config, decide
from vcache_agent.decide.history import History
from vcache_agent.decide.tenant import MIB
from vcache_agent.model import Curve, DeviceNumber, Stats, Tag
from vcache_agent.netlink import spec
from vcache_agent.observe.claim import Claim, PoolSize
from vcache_agent.observe.sample import Sample, TagCurve

TAGS, DECISIONS = 250, 9
_DEVICE, _POOL = DeviceNumber(254, 3), "254:2"
_POINTS = 1025


@dataclasses.dataclass
class _Load:
    """A tag that reads a working set at random.

    :param grain: step of its curve in bytes
    """

    reads: int
    grain: int
    fits: int


def _survey(loads: list[_Load], period: int) -> Sample:
    """Return the survey after some periods of the same load, with a little noise."""
    rng = random.Random(period)  # noqa: S311 - not for secrets
    tags, curves = [], []
    for number, load in enumerate(loads, 1):
        reads = period * load.reads + rng.randrange(100)
        points = tuple(reads * max(0, load.fits - at) // load.fits for at in range(_POINTS))
        hist = [0] * spec.HISTOGRAM_BUCKETS
        hist[60], hist[90] = reads // 2, reads - reads // 2
        tags.append(Tag(_DEVICE, number, weight=100, stats=Stats(
            reads=reads, read_bytes=reads * 4096, cache_hit_bytes=reads // 2 * 4096,
            read_ns=reads * 1_000_000, read_hist=tuple(hist))))
        curves.append(TagCurve(_DEVICE, number, Curve(
            load.grain, 0, reads, 0, points, (0,) * _POINTS)))
    return Sample(15.0 * period, 15.0 * period, (), tuple(tags), tuple(curves))


def measure(policy: str) -> float:
    """Return the median processor time of a decision in ms; all tags have load."""
    rng = random.Random(1)  # noqa: S311 - not for secrets
    loads = [_Load(rng.randint(1000, 100_000), MIB << rng.randint(0, 4), rng.randint(100, 1000))
             for _ in range(TAGS)]
    config = Config(policy, tuple(Claim(_DEVICE, number, _POOL, rng.randint(1, 1000))
                                  for number in range(1, TAGS + 1)),
                    {_POOL: PoolSize(_POOL, 256 << 30)})
    history, times = History(), []
    for period in range(1, DECISIONS + 3):
        survey = _survey(loads, period)
        began = time.process_time()
        history = decide(survey, history, config).history
        times.append(1000 * (time.process_time() - began))
    # The first survey has no period before it.
    return statistics.median(times[2:])
