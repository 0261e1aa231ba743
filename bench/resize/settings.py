# SPDX-License-Identifier: Apache-2.0
"""All parameters of the benchmark."""

from typing import NamedTuple

# The SSD, and the slow disk: a request takes so long.
SSD_US = 80
SLOW_US = 4000


class Deflation(NamedTuple):
    """A tag that is made smaller.

    :param state: what it has: `written` and destaged, `read`, or all of it `dirty`
    :param ssd_us: what a request to the SSD takes
    :param neighbour: another tag has I/O meanwhile
    """

    state: str
    ssd_us: int
    neighbour: bool


# On an SSD that takes no time all of it is ours.
DEFLATIONS = (*(Deflation(state, us, busy) for state in ("written", "read")
                for us, busy in ((SSD_US, True), (SSD_US, False), (0, False))),
              Deflation("dirty", SSD_US, True), Deflation("dirty", SSD_US, False))

# MiB of the pool, of what the tag has at first, and of what it may have then. What
# is dirty was written 4 KiB at a time in no order just before.
CACHE_MB = 512
FULL_MB = {"written": 192, "read": 192, "dirty": 64}
LEFT_MB = {"written": 64, "read": 64, "dirty": 16}

# The neighbour: so many MiB, all in the cache, 4 KiB at random, 70 % reads, a flush
# every 16 writes; alone for so many virtual seconds.
NEIGHBOUR_MB = 32
ALONE_S = 1

# The pool: MiB at first, when it has grown, and what is in it when it shrinks again.
# It has memory for the map of the first size; that of the second has to be moved.
SMALL_MB = 256
LARGE_MB = 512
FILLED_MB = 384

# Tags that all want more than there is, MiB each; their weights.
SHARED_MB = 192
WEIGHTS = (100, 200, 300)
# They have their shares when none is further from it than so much of it.
NEAR = 0.05
SETTLE_S = 12
