# SPDX-License-Identifier: Apache-2.0
"""In the box: run one case after another, each on its own SSD."""

import contextlib
import json
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.inside import fio_jobs
from bench.svd import settings
from bench.svd.box import counters
from tests.box import steps
from tests.box.disks import mapped, mounted, null_block
from tests.box.inside import InsideError, load_module, progress, run, unload_module
from tests.box.limits import Deadline
from tests.box.ssd import image_folder, ssd
from tests.box.steps import at_end, explained, step

SLOW = "slow"
MOUNT = Path("/run/svd")
DISK = "/dev/nbd0"
POOL, VOLUME = "svd-pool", "svd-disk"
_LONG = 3000


def slow_disk() -> contextlib.AbstractContextManager[str]:
    """Create the slow disk."""
    return null_block(SLOW, size=settings.DRIVE_MB, blocksize=4096, memory_backed=1, irqmode=2,
                      completion_nsec=settings.SLOW_US * 1000, submit_queues=1,
                      hw_queue_depth=1, discard=1)


@contextlib.contextmanager
def cached(origin: str, cache: str) -> Iterator[str]:
    """Put the whole SSD as a cache in front of the origin."""
    load_module(f"buffer_mb={settings.BUFFER_MB}")
    with at_end(unload_module):
        run("dd", "if=/dev/zero", f"of={cache}", "bs=4096", "count=1", "oflag=direct")
        with mapped(POOL, f"0 {run('blockdev', '--getsz', cache).strip()} vcache-pool {cache}"), \
                mapped(VOLUME, f"0 {run('blockdev', '--getsz', origin).strip()} vcache writeback "
                       f"{origin} volume 1 3 pool /dev/mapper/{POOL} 1", timeout=_LONG) as disk:
            yield disk


@contextlib.contextmanager
def virtual_disk(image: Path, form: str) -> Iterator[str]:
    """Export an image as a disk with QEMU, as for a VM with cache='none'."""
    run("qemu-nbd", "--fork", "--connect", DISK, "--format", form, "--cache", "none",
        "--aio", "native", "--discard", "ignore", "--persistent", str(image))
    with at_end(_disconnect):
        deadline = Deadline(_LONG)
        while run("blockdev", "--getsize64", DISK).strip() == "0":
            if deadline.passed():
                raise InsideError(f"{DISK} has no size after {deadline}")
            time.sleep(0.1)
        yield DISK


def _disconnect() -> None:
    run("qemu-nbd", "--disconnect", DISK, timeout=_LONG)
    time.sleep(1)


def seeded(seed: int) -> tuple[str, str]:
    """Return the options for random numbers that depend on a seed.

    With randrepeat, the default, fio uses the same numbers for all seeds.
    """
    return "--randrepeat=0", f"--randseed={seed}"


def fio(disk: str, *options: str) -> dict[str, Any]:
    """Run one job on the virtual disk, and return fio's results for its writes."""
    done = run("fio", "--name=load", f"--filename={disk}", "--direct=1", "--allow_file_create=0",
               "--output-format=json", *options, timeout=_LONG)
    return fio_jobs(done, disk)[0]


def settle(image: Path, size: str, count: int) -> None:
    """Write the image at random, without QEMU, which would only slow it down.

    The data does not matter, except for the metadata of qcow2 in the first MiB.

    :param size: size of a write
    """
    run("fio", "--name=settle", f"--filename={image}", "--direct=1", "--allow_file_create=0",
        f"--bs={size}", "--rw=randwrite", "--norandommap", "--offset=1m",
        f"--size={settings.WORKING_SET_MB}m", "--io_size=1t", "--ioengine=libaio",
        "--iodepth=16", f"--number_ios={count}", "--end_fsync=1",
        *seeded(settings.SEED), timeout=_LONG)


def pool_status() -> dict[str, int]:
    """Return the pool's chunks, if there is a pool."""
    if not Path(f"/dev/mapper/{POOL}").exists():
        return {}
    return counters.parse_pool(run("dmsetup", "status", POOL))


def load(disk: str, drive: str, number: int, every: int) -> dict[str, Any]:
    """Write at random, with an fsync after every few writes, and count.

    :param number: number of the load: each writes other blocks
    """
    random = ("--bs=4k", "--rw=randwrite", "--norandommap", "--ioengine=psync",
              f"--size={settings.WORKING_SET_MB}m", "--io_size=1t", f"--fsync={every}")
    seed = settings.SEED + 1 + 2 * number
    fio(disk, *random, f"--number_ios={settings.WARM_WRITES}", *seeded(seed))
    pool = [pool_status()]
    before = counters.read(drive)
    job = fio(disk, *random, f"--number_ios={settings.WRITES}", *seeded(seed + 1))
    spent = counters.difference(counters.read(drive), before)
    return {"writes": job["write"]["total_ios"], "seconds": job["job_runtime"] / 1000,
            "fsync_us": {"mean": job["sync"]["lat_ns"]["mean"] / 1000,
                         "p99": job["sync"]["lat_ns"]["percentile"]["99.000000"] / 1000},
            "drive": spent, "pool": [*pool, pool_status()]}


def case(prepared: Path, scratch: Path, place: str, mapping: str,
         form: str) -> Iterator[dict[str, Any]]:
    """Measure one case, one load at a time.

    :param prepared: files of prepare.py
    :param scratch: a folder in memory
    """
    name = f"{place}, {mapping} mapping, {form}"
    progress(name)
    with step(name), steps.Stack() as stack:
        ssd_image = scratch / "ssd"
        shutil.copy(prepared / f"{mapping}-{form}.ssd", ssd_image)
        stack.callback(ssd_image.unlink)
        drive = stack.enter_context(ssd(*settings.DRIVE, "--image", str(ssd_image))).namespace()
        Path(f"/sys/block/{Path(drive).name}/queue/scheduler").write_text("none")
        begun = counters.read(drive)
        if place == "vcache":
            slow = stack.enter_context(slow_disk())
            run("dd", f"if={prepared / form}.ext4", f"of={slow}", "bs=1M", "oflag=direct",
                timeout=_LONG)
            device = stack.enter_context(cached(slow, drive))
        else:
            device = drive
        image = stack.enter_context(mounted(device, MOUNT, timeout=_LONG)) / "image"
        disk = stack.enter_context(virtual_disk(image, form))
        settle(image, *settings.SETTLE[place])
        before = counters.difference(counters.read(drive), begun)
        progress(f"{name}: ready, {before}")
        for number, (load_name, every) in enumerate(settings.LOADS.items()):
            found = load(disk, drive, number, every)
            progress(f"{name}, {load_name}: {found}")
            yield {"place": place, "mapping": mapping, "format": form, "load": load_name,
                   **found, "before": before}


def main() -> None:
    """Measure cases: ``inside PREPARED OUT PLACE/MAPPING/FORMAT...``."""
    prepared, out, *wanted = sys.argv[1:]
    with explained("bench-svd"):
        run("modprobe", "nvme-core", "io_timeout=240")
        run("modprobe", "null_blk", "nr_devices=0")
        run("modprobe", "nbd", "nbds_max=1", "max_part=0")
        scratch = image_folder()
        runs = []
        for one in wanted:
            for found in case(Path(prepared), scratch, *one.split("/")):
                runs.append(found)
                Path(out).write_text(json.dumps(runs))


if __name__ == "__main__":
    main()
