# SPDX-License-Identifier: Apache-2.0
"""All parameters of the benchmark."""

from typing import NamedTuple

# The cache device consists of two SSDs, concatenated; each is a lane. Like a channel, each
# executes one request at a time, with this time per request. The slow disk of a tag does the same.
SSD_US = 250
SLOW_US = 4000

# MiB of the shared lane, and of tag 1's dedicated lane. They are small, and so are the chunks: the
# number of chunks is that of a large cache with correspondingly more requests per second.
SHARED_MB = 32
OWN_MB = 16
CHUNK_KIB = 256

# The watermark: above it, hot and cold blocks are exchanged; 100: never.
WATERMARK = 20
NEVER = 100

# MiB that tag 1 has in the cache, cold, when the load begins. The first blocks fill its dedicated
# lane, except for the part that is kept free. The rest is in the shared lane.
OWN_FILL_MB = 13
SHARED_FILL_MB = 11
# MiB of its disk.
DISK_MB = 48


class Phase(NamedTuple):
    """The reads of tag 1, and their duration.

    :param name: name of the phase
    :param first_mb: first MiB on its disk
    :param megabytes: number of MiB
    :param seconds: virtual seconds
    :param options: additional options of fio
    """

    name: str
    first_mb: int
    megabytes: int
    seconds: float
    options: tuple[tuple[str, object], ...] = ()


_ZIPF = (("random_distribution", "zipf:0.9"),)
_LOOP = (("bs", "128k"),)

# shift: the hot range moves to the data in the shared lane. even: uniform reads of all cached
# data. zipf: a Zipf distribution over more data than fits. loop: a loop over more data than fits,
# each pass in another order, so that no part of it is sequential.
LOADS = {
    "shift": (Phase("before", 0, OWN_FILL_MB, 3), Phase("while", OWN_FILL_MB, SHARED_FILL_MB, 12),
              Phase("after", OWN_FILL_MB, SHARED_FILL_MB, 4)),
    "even": (Phase("all", 0, OWN_FILL_MB + SHARED_FILL_MB, 8),
             Phase("later", 0, OWN_FILL_MB + SHARED_FILL_MB, 4)),
    "zipf": (Phase("all", 0, DISK_MB, 8, _ZIPF), Phase("later", 0, DISK_MB, 4, _ZIPF)),
    "loop": (Phase("all", 0, DISK_MB, 8, _LOOP), Phase("later", 0, DISK_MB, 8, _LOOP)),
}

# Tag 2 has shared lanes only, and reads so many MiB, all in the cache.
NEIGHBOUR_MB = 8
# Both tags write 4 KiB with an fsync each, at this rate, to so many MiB behind the range that they
# read.
SYNCED_MB = 1
SYNCS_PER_S = 50

# Interval between samples of the ratio.
SAMPLE_S = 0.1

# A block is hot if it was read so often since it came to its place.
HOT = 2
