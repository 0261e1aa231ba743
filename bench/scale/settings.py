# SPDX-License-Identifier: Apache-2.0
"""All parameters of the benchmark."""

from typing import NamedTuple

# Requests in flight: of one job, and of as many jobs with one request each.
WIDTHS = (1, 4, 16, 64)
# Reads first: data that was just written would be read from memory.
LOADS = ("randread", "randwrite")
STACKS = ("dm-linear", "vcache")
# Virtual seconds for each point, and MiB of the range that is read and written, all of it in the
# cache.
SECONDS = 0.5
REGION_MB = 32
CACHE_MB = 256

# Time of a request to the SSD, and to the origin where its speed does not matter.
SSD_US = 80

# Sizes of a recovered cache, and the dirty parts of it.
RECOVERED_MB = (64, 256, 1024)
DIRTY_SHARES = (0.1, 0.5, 0.9)

# The slow disk of the drain: time of a request of any size, one at a time.
SLOW_US = 4000
DRAINED_MB = 16


class Destage(NamedTuple):
    """Dirty data, and the origin that it is drained to.

    :param name: name in the results
    :param rw: fio's order of the blocks
    :param block: size of fio's requests to the bare origin; those to the volume have 4 KiB
    :param origin_mb: size of the origin
    :param dirty_mb: how much is dirty
    """

    name: str
    rw: str
    block: str
    origin_mb: int
    dirty_mb: int


# An origin far away: time of a request of any size, how many it executes at a time, and its
# bandwidth. fio keeps FAR_DEPTH requests in flight.
FAR_US = 2000
FAR_REQUESTS = 256
FAR_MB_S = 1000
FAR_DEPTH = 32
# Of 1,048,576 blocks 16,384 are dirty: few of them are neighbours. In sequence, fio's requests are
# as long as those of destage: requests of 4 KiB would leave the origin idle.
DESTAGES = (Destage("random", "randwrite", "4k", 4096, 64),
            Destage("sequential", "write", "512k", 256, 256))
# Of fio, for the repetitions.
SEEDS = (1, 2, 3)
