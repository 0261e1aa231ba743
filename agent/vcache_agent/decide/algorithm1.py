# SPDX-License-Identifier: Apache-2.0
"""OC-Cache's Algorithm 1 (section III-B): which part of a tag's cache is in dedicated lanes.

Each tag requests S_r bytes, at which its miss ratio is R_e: its part of the division on convex
hulls. Requests are served by R_m = (1 - R_e) / S_r, the reduction of the miss ratio per byte. A
request gets the whole lanes that it fills. The rest is in the shared lanes if it fills less than
the watermark of a lane, otherwise the request gets one more lane. A request that does not fit is
removed and reported.

The paper ends when no lane is free. Here, a later request may still get what is left of the last
shared lane.
"""

import dataclasses
from collections.abc import Sequence

#: W_u of the paper: the smallest fraction of a dedicated lane that its tag must fill.
WATERMARK = 0.5


@dataclasses.dataclass(frozen=True)
class Request:
    """The request of a tag.

    :param size: S_r, bytes
    :param miss_ratio: R_e, 0 to 1, with `size` bytes
    :param held: the tag has dedicated lanes that it can keep; of two requests with an equal R_m,
        this one comes first
    """

    size: int
    miss_ratio: float
    held: bool = False

    @property
    def gain(self) -> float:
        """R_m, for each byte."""
        return (1 - self.miss_ratio) / self.size if self.size else 0.0


@dataclasses.dataclass(frozen=True)
class Grant:
    """What a tag gets.

    :param lanes: number of its dedicated lanes
    :param shared: bytes in shared lanes
    :param removed: its request does not fit into the pool
    """

    lanes: int = 0
    shared: int = 0
    removed: bool = False


def allocate(requests: Sequence[Request], lanes: int, lane_bytes: int,
             watermark: float = WATERMARK, common: int = 0) -> list[Grant]:
    """Return the grant of each request.

    :param lanes: number of lanes of the pool
    :param lane_bytes: S_c, size of a lane
    :param common: number of lanes that are shared in any case, part of `lanes`
    """
    free, shared = lanes - common, 0
    grants = [Grant() for _ in requests]
    for at in sorted(range(len(requests)), key=lambda at: (
            -requests[at].gain, not requests[at].held, at)):
        size = requests[at].size
        if not size:
            continue
        used = max(common, _lanes(shared, lane_bytes))
        if size + shared > (used + free) * lane_bytes:
            grants[at] = Grant(removed=True)
            continue
        grants[at] = _grant(size, free, lane_bytes, watermark)
        shared += grants[at].shared
        free -= grants[at].lanes + max(common, _lanes(shared, lane_bytes)) - used
    return grants


def _grant(size: int, free: int, lane_bytes: int, watermark: float) -> Grant:
    whole, rest = divmod(size, lane_bytes)
    if _lanes(size, lane_bytes) > free:
        return Grant(free, size - free * lane_bytes)
    if not rest or rest < watermark * lane_bytes:
        return Grant(whole, rest)
    return Grant(whole + 1)


def _lanes(size: int, lane_bytes: int) -> int:
    return -(-size // lane_bytes)
