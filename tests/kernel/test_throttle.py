# SPDX-License-Identifier: Apache-2.0
"""Volumes on one slow disk: destage of others does not delay a reader."""

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.box.steps import at_end
from tests.kernel import stack
from tests.kernel.disk import Disk, pattern

MIB = 2048
PART = 16
WRITERS = 3
DONE, SECTORS = 4, 6


def writes(path: str, field: int) -> int:
    """Return a counter of a device (Documentation/admin-guide/iostats.rst, from 0 on)."""
    return int(Path("/sys/block", Path(path).name, "stat").read_text().split()[field])


class Volumes(NamedTuple):
    """A disk that executes one request at a time, 4 ms each, and its volumes.

    :param slow: the disk
    :param parts: its parts, an origin each
    :param disks: the volumes on these
    """

    slow: str
    parts: list[str]
    disks: list[Disk]


@pytest.fixture
def volumes() -> Iterator[Volumes]:
    with contextlib.ExitStack() as on:
        slow = on.enter_context(stack.null_blk((WRITERS + 1) * PART, completion_us=4000, depth=1))
        pool = on.enter_context(stack.pool(on.enter_context(stack.null_blk(discard=True))))
        parts, disks = [], []
        for nr in range(WRITERS + 1):
            part = on.enter_context(stack.mapped(
                f"0 {PART * MIB} linear {slow} {nr * PART * MIB}"))
            device = on.enter_context(stack.cached(part.path, pool, volume=nr + 1))
            parts.append(part.path)
            disks.append(on.enter_context(Disk(device.path)))
        yield Volumes(slow, parts, disks)


@contextlib.contextmanager
def reading(disk: Disk) -> Iterator[None]:
    """Read blocks in the background, all of them missed."""
    stop = threading.Event()

    def read() -> None:
        for nr in range(PART * MIB // 8):
            if stop.is_set():
                return
            disk.read(nr * 8, 8)

    thread = threading.Thread(target=read)
    thread.start()
    with at_end(thread.join), at_end(stop.set):
        yield


def test_a_reader_does_not_wait_for_the_destage_of_others(volumes: Volumes) -> None:
    slow, parts, (reader, *writers) = volumes
    for writer in writers:
        # Every second block, so that each is a separate request.
        for block in range(0, 8 * MIB // 8, 2):
            writer.write(block * 8, pattern(block, 8))
        writer.flush()
    before = writes(slow, DONE)
    # The tags are idle, so destage runs at full speed until there are reads.
    assert stack.wait_until(lambda: writes(slow, DONE) > before + 50)
    with reading(reader):
        time.sleep(3)  # what has been sent before arrives
        # On a busy machine a window may wait too long for its turn. So the best of some
        # seconds counts.
        tries = [together(slow, parts[1:]) for _ in range(5)]
    assert min(tries) < 0.2, tries


def together(slow: str, parts: list[str]) -> float:
    """Return in which part of a second or so several parts have writes in flight."""
    before, seen = writes(slow, DONE), []
    for _ in range(200):
        seen.append(sum(map(stack.writing, parts)))
        time.sleep(0.005)
    # Destage continues, but more slowly.
    assert writes(slow, DONE) - before > 20 and any(seen)
    return sum(n > 1 for n in seen) / len(seen)


def test_a_throttled_window_may_be_one_long_request(volumes: Volumes) -> None:
    """It takes a disk hardly more time than a short one."""
    run, (reader, writer, *_) = 16, volumes.disks
    for block in range(8 * MIB // 8):
        if block % (run + 1) != run:
            writer.write(block * 8, pattern(block, 8))
    writer.flush()
    with reading(reader):
        assert stack.wait_until(lambda: writes(volumes.parts[1], DONE) > 20)
        done, size = (writes(volumes.parts[1], field) for field in (DONE, SECTORS))
        assert stack.wait_until(lambda: writes(volumes.parts[1], DONE) > done + 20)
        done, size = (writes(volumes.parts[1], field) - before
                      for field, before in ((DONE, done), (SECTORS, size)))
    assert size / done > run * 8 * 3 / 4, (size, done)
