# SPDX-License-Identifier: Apache-2.0
"""Relocation: which chunks of a log are copied when it needs space and the origin takes nothing."""

import random

from tests.kernel import stack
from tests.kernel.disk import Disk, pattern
from tests.kernel.stack import linear, mapped

COLD = 1500
HOT = 150
WRITES = 6000


def test_full_chunks_stay_where_they_are(origin: str) -> None:
    """Writes to few blocks leave chunks that are almost empty, behind others that stay full."""
    dice = random.Random(11)
    with stack.null_blk(12, discard=True) as cache, stack.pool(cache, chunk_kib=64) as pool, \
            mapped(linear(origin)) as below:
        expected = dict.fromkeys(range(COLD + HOT), 0)
        with stack.cached(below.path, pool) as device, Disk(device.path) as disk:
            below.swap(f"0 {stack.sectors(origin)} flakey {origin} 0 0 3600 1 error_writes")
            for at in range(COLD):
                expected[at] = at + 1
                disk.write(at * 8, pattern(at + 1, 8))
            disk.flush()
            for number in range(COLD + 1, COLD + 1 + WRITES):
                at = COLD + dice.randrange(HOT)
                expected[at] = number
                disk.write(at * 8, pattern(number, 8), fua=True)
            # These took four times the blocks of the cache. Some hundred blocks are relocated.
            # Relocation of the oldest chunk each time would copy about 36,000.
            relocated = stack.pool_status(pool).relocated
            assert relocated < 4 * COLD, relocated
            disk.check_blocks(expected)
        below.swap(linear(origin))
        with stack.cached(below.path, pool) as device:
            with Disk(device.path) as disk:
                disk.check_blocks(expected)
            device.message("drain")
            assert stack.wait_until(lambda: stack.cache_status(device).state == "clean")
        with Disk(origin) as raw:
            raw.check_blocks(expected)
