# SPDX-License-Identifier: Apache-2.0
"""In the box: disks, tables and fio for benchmarks with loads in Python."""

import json
import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tests.box.disks import mapped, null_block
from tests.box.inside import InsideError, load_module, run

_LONG = 3000


def prepare() -> None:
    """Load the required modules, and stop udev.

    udev would examine each disk, and delay its removal, on the only processor.
    """
    run("udevadm", "control", "--exit")
    # Otherwise, lvm and dmsetup report that udev is running but does not answer.
    Path("/run/udev/control").unlink(missing_ok=True)
    os.environ["DM_DISABLE_UDEV"] = "1"
    run("modprobe", "null_blk", "nr_devices=0")
    run("modprobe", "dm-flakey")
    load_module()


def ssd(name: str, megabytes: int, micros: int, depth: int = 64) -> AbstractContextManager[str]:
    """Create a disk with a volatile cache.

    :param micros: time of each request; 0: none
    :param depth: number of parallel requests
    """
    return null_block(name, size=megabytes, memory_backed=1, irqmode=2 if micros else 0,
                      completion_nsec=micros * 1000, submit_queues=1, hw_queue_depth=depth,
                      cache_size=megabytes)


def slow_disk(name: str, megabytes: int, micros: int) -> AbstractContextManager[str]:
    """Create a disk that executes one request at a time.

    :param micros: time of a request of any size
    """
    return null_block(name, size=megabytes, memory_backed=1, irqmode=2,
                      completion_nsec=micros * 1000, submit_queues=1, hw_queue_depth=1)


def sectors(megabytes: int) -> int:
    """Return the sectors of a number of MiB."""
    return megabytes * 2048


def linear(path: str, megabytes: int) -> str:
    """Return the table of the first part of a disk."""
    return f"0 {sectors(megabytes)} linear {path} 0"


def pool(path: str, megabytes: int, *options: object) -> AbstractContextManager[str]:
    """Create a pool, /dev/mapper/pool, on a cache device.

    :param options: options of its table, with values
    """
    words = "".join(f" {word}" for word in ((len(options), *options) if options else ()))
    return mapped("pool", f"0 {sectors(megabytes)} vcache-pool {path}{words}")


def volume(origin: str, megabytes: int, number: int = 1) -> AbstractContextManager[str]:
    """Create a volume of the pool, in writeback mode; its tag has the same number."""
    name = "volume" if number == 1 else f"volume{number}"
    return mapped(name, f"0 {sectors(megabytes)} vcache writeback {origin} volume {number} 3 pool "
                  f"/dev/mapper/pool {number}", timeout=_LONG)


def swap(name: str, table: str) -> None:
    """Replace a table. Pending requests use the new one."""
    run("dmsetup", "load", name, "--table", table)
    run("dmsetup", "suspend", "--noflush", "--nolockfs", name)
    run("dmsetup", "resume", name)


def fio_job(device: str, **options: object) -> list[str]:
    """Return the part of fio's command line for a job on a device."""
    options = {"name": "load", "filename": device, "direct": 1, "allow_file_create": 0,
               "thread": 1, "group_reporting": 1, "randrepeat": 1, **options}
    return [f"--{name}={value}" for name, value in options.items()]


def fio_jobs(text: str, devices: str) -> list[dict[str, Any]]:
    """Return the figures of fio's jobs.

    :param devices: for the error message
    :raises InsideError: if a job failed
    """
    start = text.find("{")
    if start < 0:
        raise InsideError(f"fio on {devices} printed no figures: {text.strip()[-1000:]!r}")
    jobs: list[dict[str, Any]] = json.loads(text[start:])["jobs"]
    for job in jobs:
        if job["error"]:
            raise InsideError(f"fio on {devices}: job {job['jobname']} failed with error "
                              f"{job['error']}")
    return jobs


def fio(device: str, **options: object) -> dict[str, Any]:
    """Run fio to its end, and return the figures of its first job."""
    return fio_jobs(run("fio", "--output-format=json", *fio_job(device, **options),
                        timeout=_LONG), device)[0]
