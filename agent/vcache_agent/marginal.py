# SPDX-License-Identifier: Apache-2.0
"""The cost of a smaller cache for the tags of a host: pure functions of their curves."""

import dataclasses
from collections.abc import Iterable

from vcache_agent.model import Curve

GIB = 1 << 30


@dataclasses.dataclass(frozen=True)
class User:
    """A tag that has cached data.

    :param curve: its miss-ratio curve since the tag was created
    :param cached: its cached bytes now
    :param reads_per_s: read requests per second in about the last minute
    """

    curve: Curve
    cached: int
    reads_per_s: float


def loss_per_gb(users: Iterable[User]) -> float:
    """Return the additional read misses per second if the cache were 1 GiB smaller.

    Each tag loses cache in proportion to its cached data. If all tags together have less
    than 1 GiB, they lose all of it. Only reads count, because writes do not wait for the
    origin.
    """
    users = list(users)
    total = sum(user.cached for user in users)
    part = min(1.0, GIB / total) if total else 0.0
    return sum(_lost(user, part) for user in users)


def _lost(user: User, part: float) -> float:
    if not user.curve.reads:
        return 0.0
    now, _ = user.curve.misses(user.cached)
    then, _ = user.curve.misses(user.cached - int(user.cached * part))
    return user.reads_per_s * max(0, then - now) / user.curve.reads
