# SPDX-License-Identifier: Apache-2.0
"""All parameters of the benchmark. The JSON contains them too."""

MAPPINGS = ("page", "fast")
FORMATS = ("raw", "qcow2")
#: Place of the image: on the SSD, or on the slow disk with the whole SSD as its cache.
PLACES = ("direct", "vcache")

#: Options of vcache-ssd: pages of 4 KiB and erase blocks of 512 KiB, as in the paper's simulator.
DRIVE = ("--nand", "svd", "--buffer", "1")
DRIVE_MB = 128

#: The virtual disk. With the file system around it, it fills the SSD.
IMAGE_MB = 118
#: The part of it that the guest overwrites at random, uniformly: all but a margin. The paper's
#: SSDs are also larger than the data of its loads. With DRIVE_MB, this is the ratio of cache to
#: working set. A part of the cache is records, and a tenth of it is the reserve.
WORKING_SET_MB = 112

#: The slow disk: time of a request of any size, one at a time.
SLOW_US = 4000
#: Host memory for dm-vcache's write buffers, scaled down like all sizes.
BUFFER_MB = 8

#: Writes of 4 KiB to the new SSD, after it was filled, until garbage collection reaches a steady
#: state; without fsync.
AGE_WRITES = 98304
#: Size and number of writes in the box before the measurement, again without fsync. direct: the
#: SSD has just been started, and FAST has emptied its log blocks during that. vcache: once around
#: its log, so that the SSD is in the state in which vcache leaves it. With writes of 16 KiB, about
#: as many blocks of a chunk have to be destaged as with writes of 4 KiB and their records.
SETTLE = {"direct": ("4k", 3000), "vcache": ("16k", 64 * DRIVE_MB)}
#: Writes of each load before the measurement.
WARM_WRITES = 500
#: Loads: writes for each fsync. The writes of a load are the same in all cases.
LOADS = {"sync": 1, "transactions": 4}
#: Writes of each load, in each case: more than the free and clean space of vcache at the start,
#: and enough for FAST, whose merges come in bursts (windows of 3000 have 0.8 to 1.4 of the mean).
WRITES = 9000
#: The load of the summary.
SUMMARY_LOAD = "sync"
SEED = 7

#: The paper's figures. With the image on the SSD, erases are 2.2 times as many in FAST and 2.3
#: times as many in page mapping.
PUBLISHED = {"erase_reduction_pct": 56.0, "throughput_gain_pct": [21.0, 112.0],
             "erase_reduction_pct_page": 100 * (1 - 1 / 2.3),
             "erase_reduction_pct_fast": 100 * (1 - 1 / 2.2)}
AIMS = {"erase_reduction_pct": 70.0, "throughput_gain_pct": 150.0}
