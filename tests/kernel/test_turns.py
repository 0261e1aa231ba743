# SPDX-License-Identifier: Apache-2.0
"""Writers that are short of space get chunks in turn."""

import contextlib
import random
import threading

from tests.kernel import stack
from tests.kernel.disk import Disk, pattern

BLOCK = 8
TENANTS = 4
# Blocks that a writer overwrites: more than half of its share, so relocation has much to do.
HOT = 420
WRITES = 2500


class Syncing(threading.Thread):
    """Overwrites random blocks, with a flush after each, until any of all has done enough."""

    def __init__(self, path: str, seed: int, enough: threading.Event) -> None:
        super().__init__()
        self._path, self._random, self._enough = path, random.Random(seed), enough
        self._seed = seed
        self.done = 0

    def run(self) -> None:
        with Disk(self._path) as disk:
            while not self._enough.is_set():
                disk.write_and_flush(self._random.randrange(HOT) * BLOCK,
                                     pattern(self._seed + self.done, BLOCK))
                self.done += 1
                if self.done >= WRITES:
                    self._enough.set()


def test_equal_tenants_write_about_equally_much() -> None:
    """How evenly is a figure of bench-write; here no tenant stands still."""
    with contextlib.ExitStack() as stay:
        origins = [stay.enter_context(stack.null_blk(8, completion_us=4000, depth=1))
                   for _ in range(TENANTS)]
        ssd = stay.enter_context(stack.null_blk(13))
        pool = stay.enter_context(stack.pool(ssd, chunk_kib=256))
        enough = threading.Event()
        writers = [Syncing(stay.enter_context(
            stack.cached(origin, pool, number, f"volume {number}")).path, number * 100000, enough)
            for number, origin in enumerate(origins, 1)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        done = sorted(writer.done for writer in writers)
        assert stack.pool_status(pool).relocated > 0
        assert done[0] > done[-1] / 2, done
