# SPDX-License-Identifier: Apache-2.0
"""All parameters of the benchmark. The JSON contains them too."""

MAPPINGS = ("page", "fast")
FORMATS = ("raw", "qcow2")
#: Where the image is: on the SSD, or on the slow disk with all of the SSD as its cache.
PLACES = ("direct", "vcache")

#: Options of vcache-ssd: pages of 4 KiB, erase blocks of 512 KiB, as the paper's simulator has.
DRIVE = ("--nand", "svd", "--buffer", "1")
DRIVE_MB = 128

#: The virtual disk. With the file system around it, it fills the SSD where it lies on it.
IMAGE_MB = 118
#: Of it, what the guest writes again and again, at random, evenly: all but a margin. The
#: paper's SSDs are larger than what its loads write, too; with DRIVE_MB that is the ratio of
#: cache to working set. Part of the cache is records, a tenth of it a reserve.
WORKING_SET_MB = 112

#: The slow disk: a request takes so long, large or small, and there is one at a time.
SLOW_US = 4000
#: Host memory for dm-vcache's write buffers; small, as everything is.
BUFFER_MB = 8

#: Writes of 4 KiB to the new SSD, after it was filled, until garbage collection goes as it
#: will go; without fsync.
AGE_WRITES = 98304
#: Size and number of writes in the box, again without fsync, before anything is counted.
#: direct: the SSD has just been switched on, and for that FAST has emptied its log blocks.
#: vcache: once round its log, so that the SSD is as vcache leaves it. In pieces of 16 KiB
#: about as many of a chunk have to go to the slow disk as of one of 4 KiB writes with their
#: records.
SETTLE = {"direct": ("4k", 3000), "vcache": ("16k", 64 * DRIVE_MB)}
#: Uncounted writes of each load before those that count.
WARM_WRITES = 500
#: Loads: writes for each fsync. All of a load's writes are the same in all cases.
LOADS = {"sync": 1, "transactions": 4}
#: Of each load, in each case: more than what vcache has free and clean when they begin, and
#: enough for FAST, whose merges come in bursts (windows of 3000 are 0.8 to 1.4 of the mean).
WRITES = 9000
#: The load that the summary is of.
SUMMARY_LOAD = "sync"
SEED = 7

#: What the paper says; erases are 2.2 times as many in FAST and 2.3 times in page mapping
#: when the image is on the SSD.
PUBLISHED = {"erase_reduction_pct": 56.0, "throughput_gain_pct": [21.0, 112.0],
             "erase_reduction_pct_page": 100 * (1 - 1 / 2.3),
             "erase_reduction_pct_fast": 100 * (1 - 1 / 2.2)}
AIMS = {"erase_reduction_pct": 70.0, "throughput_gain_pct": 150.0}
