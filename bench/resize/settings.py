# SPDX-License-Identifier: Apache-2.0
"""All parameters of the benchmark."""

from typing import NamedTuple

# Time of a request to the SSD, and to the slow disk.
SSD_US = 80
SLOW_US = 4000


class Deflation(NamedTuple):
    """A tag that is shrunk.

    :param state: its data: `written` and destaged, `read`, or all `dirty`
    :param ssd_us: time of a request to the SSD
    :param neighbour: another tag has I/O at the same time
    """

    state: str
    ssd_us: int
    neighbour: bool


# With an SSD without latency, all of the time is that of the software.
DEFLATIONS = (*(Deflation(state, us, busy) for state in ("written", "read")
                for us, busy in ((SSD_US, True), (SSD_US, False), (0, False))),
              Deflation("dirty", SSD_US, True), Deflation("dirty", SSD_US, False))

# MiB of the pool, of the tag's data at first, and of its later maximum. Dirty data was written
# just before, 4 KiB at a time in random order.
CACHE_MB = 512
FULL_MB = {"written": 192, "read": 192, "dirty": 64}
LEFT_MB = {"written": 64, "read": 64, "dirty": 16}

# The neighbour: so many MiB, all in the cache, random requests of 4 KiB, 70 % reads, a flush every
# 16 writes. Virtual seconds for which it runs alone.
NEIGHBOUR_MB = 32
ALONE_S = 1

# The pool: its initial size, its size after growing, and the data in it when it shrinks, in MiB.
# Memory for the map is allocated for the first size. For the second, the map is moved.
SMALL_MB = 256
LARGE_MB = 512
FILLED_MB = 384

# Tags that all want more than is available, MiB each; their weights.
SHARED_MB = 192
WEIGHTS = (100, 200, 300)
# Largest relative error at which a tag has its share.
NEAR = 0.05
SETTLE_S = 12
