# SPDX-License-Identifier: Apache-2.0
"""A cache of the kernel's miss-ratio curves."""

import contextlib
import threading
from collections.abc import Iterable
from typing import Any

from vcache_agent.model import BLOCK_BYTES, Curve, Tag
from vcache_agent.netlink.client import Client
from vcache_agent.netlink.errors import NetlinkError
from vcache_agent.observe.sample import TagKey


class Curves:
    """Curves of the tags that have cached data. Thread-safe.

    The kernel computes a curve under a lock that each request of the tag takes briefly,
    and a curve changes slowly. So each curve is read only once in a while.

    :param seconds: largest age of a curve
    """

    def __init__(self, seconds: float = 60.0) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._kept: dict[TagKey, tuple[float, Curve | None]] = {}

    def update(self, tags: Iterable[Tag], now: float) -> dict[TagKey, Curve]:
        """Return the curves by tag, without tags that have no sample.

        :param now: monotonic time in seconds
        """
        wanted = [(tag.device, tag.id) for tag in tags if tag.cached_bytes]
        with self._lock:
            self._kept = {key: self._kept[key] for key in wanted if key in self._kept
                          and now - self._kept[key][0] < self._seconds}
            missing = [key for key in wanted if key not in self._kept]
            if missing:
                with contextlib.suppress(NetlinkError), Client() as client:
                    self._kept |= {key: (now, _ask(client, key)) for key in missing}
            return {key: curve for key, (_, curve) in self._kept.items() if curve is not None}


def points(curve: Curve, most: int = 64) -> list[dict[str, Any]]:
    """Return miss ratios by cache size, from none to the whole footprint.

    :param most: number of steps from point to point
    :return: with ``size_bytes``, ``read_miss_ratio`` and ``write_miss_ratio``; a ratio is None
        without accesses of the kind
    """
    blocks = -(-curve.footprint // BLOCK_BYTES)
    sizes = sorted({-(-blocks * step // most) * BLOCK_BYTES for step in range(most + 1)})
    found = []
    for size in sizes:
        reads, writes = curve.misses(size)
        found.append({"size_bytes": size,
                      "read_miss_ratio": round(reads / curve.reads, 4) if curve.reads else None,
                      "write_miss_ratio": round(writes / curve.writes, 4) if curve.writes
                      else None})
    return found


def _ask(client: Client, key: TagKey) -> Curve | None:
    try:
        return client.curve(*key)
    except NetlinkError:
        return None  # the tag no longer exists, or the kernel has no sample of it
