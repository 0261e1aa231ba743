# SPDX-License-Identifier: Apache-2.0
"""An HDD-like disk and two SSDs for caches; the parts that are measured on them.

The pair of instances is started once. Caches are put under it and taken away while it runs.
"""

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path

from bench.demo import pair, slow_disk, vcache, weights
from bench.demo.findings import Parts
from bench.demo.settings import Settings
from bench.demo.vm import Instance
from tests.box import inside as box
from tests.box.disks import mapped, null_block
from tests.box.guest.image import Guest
from tests.box.steps import Stack

# Linux's default; without it null_blk does at most 127 KiB a request.
_MAX_SECTORS = 2560

#: Weights of the pair, by role.
WEIGHTS = {pair.QUIET: 100, pair.SYNCER: 300}


@contextlib.contextmanager
def disks(settings: Settings) -> Iterator[tuple[str, str, str]]:
    """Make the slow disk, the SSD of its cache, and a small SSD for the shares, in memory.

    The disk has no volatile cache, as servers use HDDs; the SSDs have one.
    """
    box.run("modprobe", "null_blk", "nr_devices=0")
    common = {"memory_backed": 1, "irqmode": 2, "submit_queues": 1,
              "max_sectors": _MAX_SECTORS}
    slow_ns, fast_ns = (us * settings.slowdown * 1000
                        for us in (settings.slow_us, settings.cache_us))
    fast = {**common, "hw_queue_depth": 64, "completion_nsec": fast_ns, "discard": 1}
    with (null_block("hdd", size=settings.slow_mb, **common, hw_queue_depth=1,
                     completion_nsec=slow_ns) as slow,
          null_block("cache", size=settings.cache_mb, **fast,
                     cache_size=settings.cache_mb) as large,
          null_block("shares", size=settings.mix_cache_mb, **fast,
                     cache_size=settings.mix_cache_mb) as small):
        yield slow, large, small


def prepare(node: str, vms: list[Instance], settings: Settings) -> None:
    """Make the file system and the disks of the instances."""
    # On a disk of this size, 1 KiB is the default.
    box.run("mkfs.ext4", "-q", "-F", "-b", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0",
            node)
    with pair.mounted(Path(node)):
        pair.say("writing the disks of the instances")
        for vm in vms:
            vm.create_disk(settings.image_mb)


def measure(parts: Parts, settings: Settings, guest: Guest) -> None:
    """Measure the parts "slow_disk" and "weights", with the same instances on the same disk."""
    vms = pair.instances("writeback", (WEIGHTS[pair.QUIET], WEIGHTS[pair.SYNCER]))
    settings = dataclasses.replace(settings, time_ms=settings.slow_time_ms,
                                   ramp_ms=settings.slow_ramp_ms,
                                   warm_ms=settings.slow_warm_ms, image_mb=settings.slow_image_mb)
    box.run("modprobe", "dm-mod")
    with (disks(settings) as (slow, large, small),
          mapped(slow_disk.NAME, f"0 {settings.slow_mb << 11} linear {slow} 0") as node,
          Stack() as stack):
        pair.say(f"slow disk: {settings.slow_us} us a request, one at a time, SSDs: "
                 f"{settings.cache_us} us, all times multiplied by {settings.slowdown}")
        prepare(node, vms, settings)
        vcache.load(settings)
        stack.callback(box.unload_module)
        with (pair.mounted(Path(node)), vcache.agent() as agent,
              pair.running(vms, guest, settings)):
            with parts.one("slow_disk") as found:
                slow_disk.slow_half(found, vms, settings)
                slow_disk.cached_half(found, large, vms, agent, settings)
            with parts.one("weights") as found:
                weights.measure(found, small, vms, agent, settings)
