# SPDX-License-Identifier: Apache-2.0
"""All parameters of the benchmark."""

from typing import NamedTuple

# The cache device is two SSDs, one behind the other: a lane is one of them. Each does one
# request at a time, as a channel does, and that takes so long; so does the slow disk of a tag.
SSD_US = 250
SLOW_US = 4000

# MiB of the lane that all have, and of the one that is tag 1's own. They are small, and so are
# the chunks: there are as many as a large cache would have for as many requests a second.
SHARED_MB = 32
OWN_MB = 16
CHUNK_KIB = 256

# The watermark: hot and cold change places above it; 100: never.
WATERMARK = 20
NEVER = 100

# MiB that tag 1 has in the cache, cold, when the load begins: what comes first fills its own
# lane, but for the part that is kept free; the rest is in the shared one.
OWN_FILL_MB = 13
SHARED_FILL_MB = 11
# Its disk.
DISK_MB = 48


class Phase(NamedTuple):
    """What tag 1 reads, and for how long.

    :param name: of the phase
    :param first_mb: where on its disk
    :param megabytes: and how much of it
    :param seconds: virtual ones
    :param options: of fio, more than that
    """

    name: str
    first_mb: int
    megabytes: int
    seconds: float
    options: tuple[tuple[str, object], ...] = ()


_ZIPF = (("random_distribution", "zipf:0.9"),)
_LOOP = (("bs", "128k"),)

# What is hot moves to what lies in the shared lane; all that is cached is read evenly; more
# than is cached with a Zipf distribution; more than is cached in a loop: each pass in another
# order, so that none of it is sequential.
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
# Both write 4 KiB with an fsync each, so often in a second, to so many MiB behind what they read.
SYNCED_MB = 1
SYNCS_PER_S = 50

# The ratio is looked at so often.
SAMPLE_S = 0.1

# A block is hot that was read so often since it came where it is.
HOT = 2
