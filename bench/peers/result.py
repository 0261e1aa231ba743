# SPDX-License-Identifier: Apache-2.0
"""Results of a load on a stack: fio's figures and the counters of the disks."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STACKS = ("vcache", "dm-writecache", "dm-cache", "bcache")
#: The SSD without a cache and a slow disk, under writes that are durable when they complete.
DIRECTSYNC = "directsync"

# Fields of /sys/block/DEVICE/stat (Documentation/admin-guide/iostats.rst).
_READS, _READ_SECTORS, _WRITES, _WRITE_SECTORS, _FLUSHES = 0, 2, 4, 6, 15
_PERCENTILES = {"p50": "50.000000", "p99": "99.000000", "p99.9": "99.900000"}


@dataclass(frozen=True)
class Tenant:
    """Throughput and latency of one tenant.

    :param writes: per second
    :param reads: per second
    :param fsync_us: percentiles of its fsyncs in microseconds, and the maximum; of its writes
        if they are durable when they complete
    """

    writes: float
    reads: float
    fsync_us: dict[str, float]


@dataclass(frozen=True)
class Result:
    """Results of one load on one stack.

    :param of: number of tenants in the set-up; fewer may have run
    :param seconds: duration in virtual time
    :param ssd_writes: write requests to the SSD, including background work
    :param ssd_mib: their size
    :param ssd_flushes: FLUSH commands to the SSD
    :param disk_reads: read requests to the slow disk
    :param disk_writes: write requests to the slow disk
    """

    stack: str
    load: str
    of: int
    tenants: list[Tenant]
    seconds: float
    ssd_writes: int
    ssd_mib: float
    ssd_flushes: int
    disk_reads: int
    disk_writes: int


@dataclass(frozen=True)
class Counters:
    """What a disk has done during a load, from its counters."""

    reads: int
    read_sectors: int
    writes: int
    write_sectors: int
    flushes: int


def tenant(job: Mapping[str, Any], *, dsync: bool = False) -> Tenant:
    """Return fio's results of a job.

    :param dsync: its writes were durable when they completed
    """
    seconds = job["job_runtime"] / 1000
    durable = job["write"]["clat_ns"] if dsync else job["sync"]["lat_ns"]
    found = durable.get("percentile", {})
    latency = {name: found[key] / 1000 for name, key in _PERCENTILES.items() if key in found}
    if latency:
        latency["max"] = durable["max"] / 1000
    return Tenant(job["write"]["total_ios"] / seconds, job["read"]["total_ios"] / seconds, latency)


def read(raw: Path, stack: str, load: str, tenants: int) -> Result:
    """Collect the results of a load from the folder `raw`.

    :raises SystemExit: if fio reports failed I/O
    """
    name = f"{stack}-{load}-{tenants}"
    jobs = json.loads((raw / f"{name}.json").read_text())["jobs"]
    if any(job["error"] for job in jobs):
        raise SystemExit(f"bench: {name}: fio failed")
    ssd, disk, _ = counters(raw, name)
    return Result(stack, load, tenants, [tenant(job, dsync=stack == DIRECTSYNC) for job in jobs],
                  max(job["job_runtime"] for job in jobs) / 1000, ssd.writes,
                  ssd.write_sectors / 2048, ssd.flushes, disk.reads, disk.writes)


def counters(raw: Path, name: str) -> tuple[Counters, Counters, Counters]:
    """Return what the SSD, the slow disk and the volume of tenant 1 have done during a load."""
    ssd, disk, volume = ([new - old for old, new in zip(*lines, strict=True)]
                 for lines in zip(_stat(raw / f"{name}.before"), _stat(raw / f"{name}.after"),
                                  strict=True))
    return _counters(ssd), _counters(disk), _counters(volume)


def _counters(stat: list[int]) -> Counters:
    return Counters(*(stat[at] for at in (_READS, _READ_SECTORS, _WRITES, _WRITE_SECTORS,
                                          _FLUSHES)))


def _stat(path: Path) -> list[list[int]]:
    """Read the counters of the SSD, of the slow disk and of the volume of tenant 1."""
    return [[int(word) for word in line.split()] for line in path.read_text().splitlines()]


def slowest_fsync(result: Result) -> dict[str, float]:
    """Return the fsyncs of the tenant with the highest latency; empty if no tenant syncs."""
    return max((one.fsync_us for one in result.tenants), key=lambda us: us.get("p99", 0))
