# SPDX-License-Identifier: Apache-2.0
"""All parameters of the benchmark."""

# Requests under way: of one job, and of that many jobs with one each.
WIDTHS = (1, 4, 16, 64)
# Reads first: what was written last would be read from memory.
LOADS = ("randread", "randwrite")
STACKS = ("dm-linear", "vcache")
# Virtual seconds for each point, and the range that is read and written, all of
# it in the cache.
SECONDS = 0.5
REGION_MB = 32
CACHE_MB = 256

# The SSD, and the origin where it does not matter: a request takes so long.
SSD_US = 80

# Sizes of a cache that is recovered, and how much of it is dirty.
RECOVERED_MB = (64, 256, 1024)
DIRTY_SHARES = (0.1, 0.5, 0.9)

# The slow disk of the drain: one request at a time, of any size.
SLOW_US = 4000
DRAINED_MB = 16
