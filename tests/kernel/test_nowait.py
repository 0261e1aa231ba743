# SPDX-License-Identifier: Apache-2.0
"""Requests that must not wait (RWF_NOWAIT), as io_uring sends them first.

If a device does not take them, io_uring hands each request to a thread.
"""

import threading
from collections.abc import Iterator

import pytest

from tests.kernel import stack
from tests.kernel.disk import Disk, pattern

MODES = ("flush-only", "writeback", "writethrough", "none")


@pytest.fixture
def cache() -> Iterator[str]:
    """Provide an empty cache device of 64 MiB."""
    with stack.null_blk(discard=True) as path:
        yield path


@pytest.mark.parametrize("mode", MODES)
def test_no_request_has_to_wait(cache: str, origin: str, mode: str) -> None:
    alone = f"0 {stack.sectors(origin)} vcache {mode} {origin} volume 7"
    with stack.pool(cache) as pool, \
            (stack.cached(origin, pool, mode=mode) if mode.startswith("write") else
             stack.mapped(alone)) as device, Disk(device.path) as disk:
        disk.write(0, pattern(1, 8), nowait=True)
        assert disk.read(0, 8, nowait=True) == pattern(1, 8)
        disk.flush()
        assert disk.read(0, 8, nowait=True) == pattern(1, 8)
        disk.write(8, pattern(2, 8), fua=True, nowait=True)
        assert disk.read(0, 16, nowait=True) == pattern(1, 8) + pattern(2, 8)
        assert disk.read(4096, 64, nowait=True) == bytes(64 * 512)


def test_a_busy_cache_device_has_not_failed(origin: str) -> None:
    """It does not take a read that must not wait. The reader learns that, and may try again."""
    with Disk(origin) as below:
        below.write(0, pattern(3, 64))
    stop = threading.Event()

    def keep_busy() -> None:
        while not stop.is_set():
            disk.read(0, 8)

    def is_refused() -> bool:
        try:
            return disk.read(8, 8, nowait=True) != pattern(3, 64)[8 * 512:16 * 512]
        except BlockingIOError:
            return True

    with stack.null_blk(completion_us=5000, depth=1) as slow, stack.pool(slow) as pool, \
            stack.cached(origin, pool) as device, Disk(device.path) as disk:
        disk.read(0, 64)
        assert stack.wait_until(lambda: stack.cache_status(device).promoted == 8)
        others = [threading.Thread(target=keep_busy) for _ in range(3)]
        for other in others:
            other.start()
        try:
            assert stack.wait_until(is_refused)
        finally:
            stop.set()
            for other in others:
                other.join()
        assert disk.read(8, 8, nowait=True) == pattern(3, 64)[8 * 512:16 * 512]
        assert stack.cache_status(device).cache_errors == 0
