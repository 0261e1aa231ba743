# SPDX-License-Identifier: Apache-2.0
"""In the box: how fast dirty data reaches an origin that executes many requests at a time."""

import statistics
import time
from contextlib import AbstractContextManager

from bench import inside as boxed
from bench.scale import settings
from tests.box.disks import null_block
from tests.box.inside import InsideError, progress
from vcache_agent.dm import Dm

# Virtual seconds after which a drain is considered hung.
_LIMIT_S = 600

# Virtual seconds between two looks at what is dirty.
_POLL_S = 0.002


def dirty_sectors(dm: Dm) -> int:
    """Return the sectors of the volume that are not on its origin."""
    words = dm.status("volume")[0].arguments.split()
    return int(words[words.index("cache") + 3])


def drain(dm: Dm, poll_s: float = _POLL_S, limit_s: float = _LIMIT_S) -> tuple[int, float]:
    """Destage everything.

    :param poll_s: virtual seconds between two looks
    :param limit_s: virtual seconds that it may take
    :return: the sectors that were dirty, and the virtual seconds
    """
    dirty = dirty_sectors(dm)
    start = time.monotonic()
    dm.message("volume", "drain")
    while left := dirty_sectors(dm):
        if time.monotonic() > start + limit_s:
            raise InsideError(f"drain: {left} dirty sectors are left after {limit_s} s")
        time.sleep(poll_s)
    return dirty, time.monotonic() - start


def _disk(name: str, megabytes: int, micros: int, **settings_: int) -> AbstractContextManager[str]:
    """Create a disk of 4 KiB blocks whose requests may be as long as those of destage.

    :param micros: time of a request
    """
    return null_block(name, size=megabytes, irqmode=2, completion_nsec=micros * 1000,
                      submit_queues=1, blocksize=4096, max_sectors=1024, **settings_)


def _once(load: settings.Destage, seed: int) -> tuple[float, float]:
    """Return the MB/s of fio on the origin, and of a drain of the same blocks."""
    options = {"ioengine": "libaio", "rw": load.rw, "io_size": f"{load.dirty_mb}m",
               "randseed": seed}
    cache_mb = 4 * load.dirty_mb
    # The origin has no memory: to copy its data would take more time of the only processor than
    # destage. For the same reason, the blocks are long.
    with _disk("far", load.origin_mb, settings.FAR_US, hw_queue_depth=settings.FAR_REQUESTS,
               mbps=settings.FAR_MB_S) as far, \
            _disk("ssd", cache_mb, settings.SSD_US, hw_queue_depth=64, cache_size=cache_mb,
                  memory_backed=1) as ssd:
        bare = boxed.fio(far, iodepth=settings.FAR_DEPTH, bs=load.block, **options)["write"]
        with boxed.pool(ssd, cache_mb), boxed.volume(far, load.origin_mb) as volume, Dm() as dm:
            boxed.fio(volume, iodepth=16, bs="4k", end_fsync=1, **options)
            dirty, took = drain(dm)
    return bare["bw_bytes"] / 1e6, dirty * 512 / took / 1e6


def destage() -> dict[str, dict[str, float]]:
    """Measure each load several times, with other blocks; return the medians."""
    found = {}
    for load in settings.DESTAGES:
        tries = [_once(load, seed) for seed in settings.SEEDS]
        found[load.name] = {
            "fio_mb_s": statistics.median(bare for bare, _ in tries),
            "vcache_mb_s": statistics.median(drained for _, drained in tries),
            "ratio": statistics.median(drained / bare for bare, drained in tries)}
        progress(f"destage, {load.name}: {found[load.name]}")
    return found
