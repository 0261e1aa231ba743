# SPDX-License-Identifier: Apache-2.0
"""The pair of VMs on an HDD-like disk: by itself, then with a cache on an SSD.

The set-up is an operator's: a mapped device with the instances' file system,
`vcache pool create` and `vcache attach` before it is mounted, `vcache detach`
at the end. What a VM gets of the cache says its flavor, to agent and hook.
"""

import contextlib
import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.demo import pair, vcache
from bench.demo.settings import SLOW_INTERVALS, Settings
from bench.demo.vm import Instance
from tests.box import inside as box
from tests.box.disks import mapped, null_block
from tests.box.guest.image import Guest

# As logical volumes are mapped devices, so is this one.
NAME = "slow-instances"
_POOL = "fast"

# Not the weight that the kernel gives by itself, so what is read back came from the flavor.
_WEIGHT = 200

# Linux's default; without it null_blk does at most 127 KiB a request.
_MAX_SECTORS = 2560

# A drain has the slow disk write all that only the cache has.
_DRAIN_SECONDS = 180


def operator(*words: str, timeout: float = 120) -> str:
    """Run the operator's command; return what it says."""
    return box.run("vcache", *words, timeout=timeout).strip()


@contextlib.contextmanager
def disks(settings: Settings) -> Iterator[tuple[str, str]]:
    """Make the slow disk and the SSD, both of memory.

    The disk has no volatile cache, as servers use HDDs; the SSD has one. Both
    are slowed as the emulated SSD is, for the same reason.
    """
    slow_ns = settings.slow_us * settings.slowdown * 1000
    cache_ns = settings.cache_us * settings.slowdown * 1000
    box.run("modprobe", "null_blk", "nr_devices=0")
    common = {"memory_backed": 1, "irqmode": 2, "submit_queues": 1,
              "max_sectors": _MAX_SECTORS}
    with (null_block("hdd", size=settings.slow_mb, **common, hw_queue_depth=1,
                     completion_nsec=slow_ns) as slow,
          null_block("cache", size=settings.cache_mb, **common, hw_queue_depth=64,
                     completion_nsec=cache_ns, cache_size=settings.cache_mb,
                     discard=1) as fast):
        yield slow, fast


@contextlib.contextmanager
def pool(fast: str, *options: str) -> Iterator[vcache.Mapped]:
    """Make a pool on the SSD, take it out of use at the end."""
    pair.say(operator("pool", "create", _POOL, fast, *options))
    try:
        # udev makes its path.
        box.run("udevadm", "settle")
        yield vcache.Mapped(_POOL)
    finally:
        pair.say(operator("pool", "remove", _POOL))


@contextlib.contextmanager
def attached() -> Iterator[vcache.Mapped]:
    """Put the cache under the device; at the end have all of it written to the disk."""
    vcache.STATE.mkdir(parents=True, exist_ok=True)
    pair.say(operator("attach", NAME, "--pool", _POOL, "--filesystem"))
    try:
        yield vcache.Mapped(NAME)
    finally:
        pair.say(operator("detach", NAME, timeout=_DRAIN_SECONDS).splitlines()[-1])


def prepare(node: str, vms: list[Instance], settings: Settings) -> None:
    """Make the file system and the disks of the instances."""
    box.run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", node)
    with pair.mounted(Path(node)):
        pair.say("writing the disks of the instances")
        for vm in vms:
            vm.create_disk(settings.image_mb)


def slow_half(node: str, vms: list[Instance], guest: Guest, settings: Settings) -> dict[str, Any]:
    """Measure on the disk by itself."""
    pair.say("slow disk: starting the instances")
    with pair.mounted(Path(node)), pair.running(vms, guest, settings):
        return {"runs": pair.measure_all(vms, settings, "slow disk", settings.slow_rounds,
                                         SLOW_INTERVALS)}


def cached_half(cache: vcache.Mapped, vms: list[Instance], guest: Guest,
                settings: Settings) -> dict[str, Any]:
    """Measure the same with the cache, the agent running; leave the disk without it."""
    with attached() as device:
        with pair.mounted(device.node), vcache.agent(), pair.running(vms, guest, settings):
            for tag in vcache.wait_for_tags(device, vms, settings.image_mb << 11, tagged=False):
                pair.say(f"cached: agent assigned tag {tag['id']} to {tag['role']} "
                         f"({tag['name']}), mode {tag['mode']}, weight {tag['weight']}")
            runs = pair.measure_all(vms, settings, "cached", settings.slow_rounds, SLOW_INTERVALS)
            found: dict[str, Any] = {
                "runs": runs, "tags": vcache.tags(device, vms),
                "table": device.table, "status": device.status,
                "pool_table": cache.table, "pool_status": cache.status}
        pair.say(f"cached: {found['status']}")
        pair.say(f"cached: pool: {found['pool_status']}; detaching")
        start = time.monotonic()
    return {**found, "detach_seconds": round(time.monotonic() - start, 1)}


def measure(settings: Settings, guest: Guest) -> dict[str, Any]:
    """Measure both halves, on the same disk with the same files."""
    vms = pair.instances("writeback", _WEIGHT)
    settings = dataclasses.replace(settings, time_ms=settings.slow_time_ms,
                                   warm_ms=settings.slow_warm_ms, image_mb=settings.slow_image_mb)
    sectors = settings.slow_mb << 11
    box.run("modprobe", "dm-mod")
    with (disks(settings) as (slow, fast),
          mapped(NAME, f"0 {sectors} linear {slow} 0") as node):
        pair.say(f"slow disk: {settings.slow_us} us a request, one at a time, SSD: "
                 f"{settings.cache_us} us, all times multiplied by {settings.slowdown}")
        prepare(node, vms, settings)
        found: dict[str, Any] = {"slow": slow_half(node, vms, guest, settings)}
        vcache.load(settings)
        try:
            with pool(fast) as cache:
                found["cached"] = cached_half(cache, vms, guest, settings)
        finally:
            box.unload_module()
    return found
