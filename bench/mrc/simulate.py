# SPDX-License-Identifier: Apache-2.0
"""Measure libCacheSim's LRU, with a Python that has it: simulate.py TRACE BLOCKS RUNS.

libCacheSim's package on PyPI does not compute curves, only the simulation of one size. TRACE has
24 bytes for each request: time, block, size 1, next access (oracleGeneral).
"""

import json
import statistics
import sys
import time

import libcachesim  # type: ignore[import-not-found]  # not in .venv, see requirements.txt


def main() -> None:
    """Print the miss ratio, and the seconds of CPU time."""
    trace, blocks, runs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    seconds, ratio = [], 0.0
    for _ in range(runs):
        reader = libcachesim.TraceReader(trace, libcachesim.TraceType.ORACLE_GENERAL_TRACE)
        # Use a hash table of the size of the cache. With the default, 2^24, it is five times
        # slower.
        cache = libcachesim.LRU(blocks, hashpower=max(blocks.bit_length(), 10))
        start = time.process_time()
        ratio = cache.process_trace(reader)[0]
        seconds.append(time.process_time() - start)
    print(json.dumps({"version": libcachesim.__version__, "miss_ratio": ratio,
                      "seconds": statistics.median(seconds)}))


if __name__ == "__main__":
    main()
