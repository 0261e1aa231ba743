# SPDX-License-Identifier: Apache-2.0
"""What the demo measures and how; the same for the bare device and vcache."""

import dataclasses
import json

# Writes of 4 KiB between two fsyncs of the syncing VM; 0 = never.
NEVER = 0
INTERVALS = (32, 16, 8, 4, 2, 1)


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of one demo; every field is in the report.

    :param rounds: how often all settings are measured; medians are reported
    :param time_ms: measured time of one setting
    :param ramp_ms: time both VMs write before it
    :param tail_ms: time both VMs write after it
    :param warm_ms: time both VMs write before the first setting
    :param image_mb: size of a VM's disk; all of it is written at random
    :param vm_memory_mb: memory of a VM
    :param command_us: what the device charges for every command
    :param flush_ms: what the device charges for a FLUSH, in steps of 4 ms
    :param device_mb: size of the device
    :param device_cache_mb: size of the device's volatile cache
    :param buffer_mb: module parameter of dm-vcache; small against the disks,
        so that it is the device that limits both VMs, not their buffers
    """

    rounds: int = 2
    time_ms: int = 800
    ramp_ms: int = 150
    tail_ms: int = 50
    warm_ms: int = 1500
    image_mb: int = 64
    vm_memory_mb: int = 128
    command_us: int = 83
    flush_ms: int = 16
    device_mb: int = 256
    device_cache_mb: int = 64
    buffer_mb: int = 32

    def to_json(self) -> str:
        """Return the settings as JSON, for the command line in the box."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Settings":
        """Return the settings in `text`."""
        return cls(**json.loads(text))


def schedule(round_number: int) -> list[int]:
    """Return the fsync intervals of one round in the order they are measured.

    A loss is relative to what the neighbour reaches while nobody fsyncs, so
    that is measured at both ends of a round. Every second round runs backwards,
    so that no setting always follows the same one.
    """
    intervals = INTERVALS[::-1] if round_number % 2 else INTERVALS
    return [NEVER, *intervals, NEVER]
