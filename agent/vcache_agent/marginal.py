# SPDX-License-Identifier: Apache-2.0
"""What the tags of a host would lose with less cache: pure functions of their curves."""

import dataclasses
from collections.abc import Iterable

from vcache_agent.model import Curve

GIB = 1 << 30


@dataclasses.dataclass(frozen=True)
class User:
    """A tag that has something in a cache.

    :param curve: its miss-ratio curve, since the tag was made
    :param cached: bytes that it has in the cache now
    :param reads_per_s: read requests a second, lately
    """

    curve: Curve
    cached: int
    reads_per_s: float


def loss_per_gb(users: Iterable[User]) -> float:
    """Return how many reads a second would miss, and now do not, with one GiB less.

    Each gives in proportion to what it has; all of it if they have less than that. Reads
    only: a write does not wait for the origin, whatever is in the cache.
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
