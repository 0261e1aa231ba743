# SPDX-License-Identifier: Apache-2.0
"""Destage to an origin with a long round trip: several windows are in flight."""

import time
from pathlib import Path

from tests.kernel import stack
from tests.kernel.disk import Disk, pattern

MIB = 2048
SIZE = 32
# A window of 512 KiB is five requests of this disk.
WINDOW = 5
# Requests in flight to an origin about which nothing is known: VC_QUEUE_FIRST.
FIRST = 16


def in_flight(path: str) -> int:
    """Return how many writes to a block device are in flight."""
    return int(Path("/sys/block", Path(path).name, "inflight").read_text().split()[1])


def most_in_flight(origin: str, device: stack.Mapped) -> int:
    """Wait until nothing is dirty. Return the most writes to the origin that were in flight."""
    most, end = 0, time.monotonic() + 120
    while stack.cache_status(device).dirty:
        assert time.monotonic() < end
        for _ in range(20):
            most = max(most, in_flight(origin))
            time.sleep(0.001)
    return most


def test_windows_fill_a_long_round_trip() -> None:
    """More than the two with which it begins, and also after many rounds."""
    with stack.null_blk(SIZE, completion_us=20000) as origin, stack.null_blk(8 * SIZE) as ssd, \
            stack.pool(ssd) as pool, stack.cached(origin, pool) as device, \
            Disk(device.path) as disk:
        turns, deep = 0, 0
        # A host without free processors is an origin with a long latency, and has few windows in
        # flight. So not each turn must have more.
        while deep < 4:
            turns += 1
            assert turns <= 40, deep
            for at in range(SIZE):
                disk.write(at * MIB, pattern(turns * SIZE + at, MIB))
            disk.flush()
            # After two seconds without writes, destage runs at full speed.
            deep += most_in_flight(origin, device) > 2 * WINDOW
        with Disk(origin) as below:
            for at in range(SIZE):
                assert below.read(at * MIB, MIB) == pattern(turns * SIZE + at, MIB), at


def test_few_requests_are_sent_at_a_time_before_the_origin_is_known() -> None:
    """A read of a disk that serves one at a time would wait for all that are in its queue."""
    with stack.null_blk(SIZE, completion_us=200000) as origin, stack.null_blk(8 * SIZE) as ssd, \
            stack.pool(ssd) as pool, stack.cached(origin, pool) as device, \
            Disk(device.path) as disk:
        for at in range(64):
            disk.write(at * 64, pattern(at, 8))
        disk.flush()
        assert 2 <= most_in_flight(origin, device) <= FIRST
        with Disk(origin) as below:
            for at in range(64):
                assert below.read(at * 64, 8) == pattern(at, 8), at
