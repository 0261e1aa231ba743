# SPDX-License-Identifier: Apache-2.0
"""What the demo measures and how; the same for the bare device and vcache."""

import dataclasses
import json

# Writes of 4 KiB between two fsyncs of the syncing VM; 0 = never.
NEVER = 0
INTERVALS = (32, 16, 8, 4, 2, 1)
# The same on the slow disk, where there is less to tell apart.
SLOW_INTERVALS = (8, 1)


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of one demo; every field is in the report.

    :param rounds: how often all settings are measured; medians are reported
    :param think_us: what each VM sleeps after each write (and its fsync): the
        emulated processor must not be what the VMs compete for
    :param quiet_kb: KiB of a write of the quiet VM; the syncer's have 4
    :param time_ms: measured time of one setting
    :param ramp_ms: time both VMs write before it; the first fsync also writes
        out what is left of the run before, and has to be over by then
    :param tail_ms: time both VMs write after it
    :param warm_ms: time both VMs write before the first setting
    :param image_mb: size of a VM's disk; all of it is written at random
    :param vm_memory_mb: memory of a VM
    :param nand: kind of the device's NAND, as vcache-ssd knows them
    :param flush: whether the device's flushes hold back what comes after them
    :param slowdown: what all times of the NAND, of the slow disk and of its cache are
        multiplied by
    :param device_mb: size of the device; more than is written in all, so that garbage
        collection does not begin in one half only
    :param buffer_mb: module parameter of dm-vcache, memory for all tags; small
        against the disks, so that not everything is absorbed
    :param slow_rounds: how often all settings are measured on the slow disk
    :param slow_time_ms: measured time of one setting there; longer, for fewer writes
        are done in it
    :param slow_warm_ms: time both VMs write there before the first setting
    :param slow_image_mb: size of a VM's disk there; smaller, for the drain at the end
        takes the longer the more places were written
    :param slow_mb: size of the slow disk
    :param slow_us: what a request takes there; it does one at a time
    :param cache_mb: size of the SSD in front of it
    :param cache_us: what a request takes there
    :param mix_kb: KiB of each request of the two VMs that share a cache by weight
    :param mix_reads_pct: percent of them that read
    :param mix_think_us: what each of these VMs sleeps after each request
    :param mix_small_mb: what the VM with the small weight reads and writes, of its disk;
        more than it ever gets of the cache, so that it takes what the other leaves
    :param mix_large_mb: the same of the VM with the large weight; size of both disks
    :param mix_disk_us: what a request takes on the slow disk here, before `slowdown`;
        less, for the cache is to be full soon
    :param mix_cache_mb: size of the SSD here; small, for the same reason
    :param mix_chunk_kb: KiB of a chunk; small, so that many are shared out
    :param mix_most_mb: maximum that the VM with the large weight gets at last
    :param mix_settle_mb: what both read together once the cache is full, before the
        maximum and after it, until the sizes count as settled; the last half of either
        time is what figures are taken from
    """

    rounds: int = 3
    think_us: int = 6000
    quiet_kb: int = 16
    time_ms: int = 1500
    ramp_ms: int = 600
    tail_ms: int = 100
    warm_ms: int = 6000
    image_mb: int = 64
    vm_memory_mb: int = 128
    nand: str = "jasmine"
    flush: str = "exclusive"
    slowdown: int = 10
    device_mb: int = 1024
    buffer_mb: int = 8
    slow_rounds: int = 1
    slow_time_ms: int = 2500
    slow_warm_ms: int = 2000
    slow_image_mb: int = 32
    slow_mb: int = 256
    slow_us: int = 4000
    cache_mb: int = 256
    cache_us: int = 80
    mix_kb: int = 64
    mix_reads_pct: int = 75
    mix_think_us: int = 2000
    mix_small_mb: int = 16
    mix_large_mb: int = 24
    mix_disk_us: int = 800
    mix_cache_mb: int = 24
    mix_chunk_kb: int = 256
    mix_most_mb: int = 4
    mix_settle_mb: int = 96

    def to_json(self) -> str:
        """Return the settings as JSON, for the command line in the box."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Settings":
        """Return the settings in `text`."""
        return cls(**json.loads(text))


def schedule(round_number: int, intervals: tuple[int, ...] = INTERVALS) -> list[int]:
    """Return the fsync intervals of one round in the order they are measured.

    A loss is relative to what the neighbour reaches while nobody fsyncs. The
    speed of a machine that emulates processors drifts within seconds, so each
    setting is measured between two runs without fsync and compared with those.
    Every second round runs backwards, so that no setting is always the last.
    """
    order = [NEVER]
    for interval in intervals:
        order += [interval, NEVER]
    return order[::-1] if round_number % 2 else order
