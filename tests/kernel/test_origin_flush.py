# SPDX-License-Identifier: Apache-2.0
"""When flushes of a device with a cache reach an origin that has no FUA."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernel import stack
from tests.kernel.disk import Disk, pattern, read
from tests.kernel.nofua import loop_device
from vcache_agent.netlink.client import Client
from vcache_agent.netlink.spec import Mode


@pytest.fixture
def cache() -> Iterator[str]:
    """Provide a cache device."""
    with stack.null_blk(16) as path:
        yield path


@pytest.fixture
def below() -> Iterator[str]:
    """Provide an origin with a volatile cache and without FUA, whose requests take 5 ms."""
    with stack.null_blk(completion_us=5000) as disk, loop_device(disk) as path:
        yield path


def flushes(path: str) -> int:
    """Return the flush requests of a disk, the 16th number of its stat file."""
    return int(Path(f"/sys/block/{Path(path).name}/stat").read_text().split()[15])


def test_flushes_reach_the_origin_only_after_writes_to_it(cache: str, below: str,
                                                          client: Client) -> None:
    """A tag that is in writeback mode again does not pay for the time before."""
    with stack.pool(cache) as pool, stack.cached(below, pool) as device, \
            Disk(device.path) as disk:

        def sent() -> int:
            # Destage sends others, which are not counted here.
            return client.tag(device.number, 7).stats.device_flushes

        disk.write(0, pattern(1, 8))
        disk.flush()
        assert sent() == 0
        client.tag_set(device.number, 7, mode=Mode.WRITETHROUGH)
        before = flushes(below)
        disk.write(64, pattern(2, 8))
        disk.flush()
        assert read(below, 64, 8) == pattern(2, 8)
        assert sent() == 1
        assert flushes(below) > before
        client.tag_set(device.number, 7, mode=Mode.WRITEBACK)
        for turn in range(10):
            disk.write(128 + 8 * turn, pattern(3, 8))
            disk.flush()
        assert sent() == 1


def test_a_new_table_in_writeback_mode_covers_what_was_written_before(cache: str,
                                                                      below: str) -> None:
    """The write was complete, and its data is in the origin's volatile cache."""
    with stack.pool(cache) as pool, \
            stack.mapped(stack.vcache_table(below, age_ms=stack.NEVER_MS)) as device:
        with Disk(device.path) as disk:
            disk.write(0, pattern(1, 8))
            device.swap(stack.cached_table(below, pool))
            assert read(below, 0, 8) == pattern(1, 8)
            before = flushes(below)
            disk.flush()
            assert flushes(below) == before + 1


def test_flushes_share_a_flush_of_the_origin(cache: str, below: str, client: Client) -> None:
    """While one FLUSH is under way, the flushes that come are served by the next one."""
    with stack.pool(cache) as pool, stack.cached(below, pool) as device:
        client.tag_set(device.number, 7, mode=Mode.WRITETHROUGH)
        before = flushes(below)

        def work(first: int) -> None:
            with Disk(device.path) as disk:
                for turn in range(20):
                    disk.write(first + turn * 8, pattern(first, 8))
                    disk.flush()

        writers = [threading.Thread(target=work, args=(1024 * at,)) for at in range(4)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        assert client.tag(device.number, 7).stats.flushes == 80
        assert 0 < flushes(below) - before < 80
        for at in range(4):
            assert read(below, 1024 * at, 8) == pattern(1024 * at, 8)
