# SPDX-License-Identifier: Apache-2.0
"""All parameters of the benchmark."""

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
