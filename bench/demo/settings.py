# SPDX-License-Identifier: Apache-2.0
"""What the demo measures and how; the same for the bare device and vcache."""

import dataclasses
import json

# Writes of 4 KiB between two fsyncs of the syncing VM; 0 = never.
NEVER = 0
INTERVALS = (32, 16, 8, 4, 2, 1)
# The same on the slow disk, where there is less to tell apart.
SLOW_INTERVALS = (8, 1)
# Settings between two runs without fsync.
_GROUP = 3


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of one demo; every field is in the report.

    :param rounds: how often all settings are measured
    :param think_us: pause of each VM after each write (and its fsync): the VMs must not
        compete for the processor
    :param quiet_kb: KiB of a write of the quiet VM; the syncer writes 4 KiB
    :param time_ms: measured time of one setting
    :param ramp_ms: time for which both VMs write before it. The first fsync also writes
        out what the previous run has left, and must end within this time
    :param tail_ms: time for which both VMs write after it
    :param warm_ms: time for which both VMs write before the first setting
    :param image_mb: size of a VM's disk; the VM writes at random all over it
    :param vm_memory_mb: memory of a VM
    :param nand: kind of the device's NAND, as vcache-ssd names it
    :param flush: whether the device's flushes hold back the commands that follow them
    :param slowdown: factor for all times of the NAND, of the slow disk and of its caches
    :param device_mb: size of the device. It exceeds the bytes written in a half, so that
        garbage collection starts in neither half
    :param buffer_mb: module parameter of dm-vcache, memory for all tags. It is small
        compared with the disks, so that vcache cannot absorb all writes
    :param slow_rounds: how often all settings are measured on the slow disk
    :param slow_time_ms: measured time of one setting there; longer, because fewer writes
        complete in it
    :param slow_ramp_ms: time for which both VMs write before it
    :param slow_warm_ms: time for which both VMs write there before the first setting
    :param slow_image_mb: size of a VM's disk there; smaller, because the drain at the end
        takes longer the more blocks were written
    :param slow_mb: size of the slow disk
    :param slow_us: duration of a request there; the disk serves one request at a time
    :param cache_mb: size of the SSD in front of it
    :param cache_us: duration of a request there
    :param mix_kb: KiB of each request of the two VMs that share a cache by weight
    :param mix_reads_pct: percentage of these requests that read
    :param mix_think_us: pause of each of these VMs after each request
    :param mix_small_mb: working set of the VM with the small weight. It exceeds any share
        that this VM gets, so that the VM uses what the other one leaves
    :param mix_large_mb: working set of the VM with the large weight; size of both disks
    :param mix_cache_mb: size of the SSD here; small, so that it fills soon
    :param mix_chunk_kb: KiB of a chunk; small, so that there are many to distribute
    :param mix_most_mb: maximum that the VM with the large weight gets in the end
    :param mix_settle_mb: MiB that both VMs read together once the cache is full, before the
        maximum and after it, until the sizes are taken as stable. The figures are those of
        the last half of either time
    :param kill_agent: kill the agent in the cached half, to see how the demo reports it
    """

    rounds: int = 9
    think_us: int = 6000
    quiet_kb: int = 16
    time_ms: int = 2400
    ramp_ms: int = 400
    tail_ms: int = 50
    warm_ms: int = 3000
    image_mb: int = 64
    vm_memory_mb: int = 128
    nand: str = "jasmine"
    flush: str = "exclusive"
    slowdown: int = 10
    device_mb: int = 1024
    buffer_mb: int = 8
    slow_rounds: int = 2
    slow_time_ms: int = 2500
    slow_ramp_ms: int = 600
    slow_warm_ms: int = 2000
    slow_image_mb: int = 32
    slow_mb: int = 256
    slow_us: int = 2000
    cache_mb: int = 256
    cache_us: int = 80
    mix_kb: int = 64
    mix_reads_pct: int = 75
    mix_think_us: int = 2000
    mix_small_mb: int = 16
    mix_large_mb: int = 24
    mix_cache_mb: int = 24
    mix_chunk_kb: int = 256
    mix_most_mb: int = 4
    mix_settle_mb: int = 64
    kill_agent: bool = False

    def to_json(self) -> str:
        """Return the settings as JSON, for the command line in the box."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Settings":
        """Return the settings in `text`."""
        return cls(**json.loads(text))


def schedule(round_number: int, intervals: tuple[int, ...] = INTERVALS) -> list[int]:
    """Return the fsync intervals of one round in the order they are measured.

    A loss is relative to what the quiet VM reaches while nobody fsyncs. The speed of a
    machine changes, so that is measured at the start, at the end, and after each group of
    settings. Every second round runs backwards, so that no setting is always the last.
    """
    order = [NEVER]
    for first in range(0, len(intervals), _GROUP):
        order += [*intervals[first:first + _GROUP], NEVER]
    return order[::-1] if round_number % 2 else order
