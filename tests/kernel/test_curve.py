# SPDX-License-Identifier: Apache-2.0
"""The kernel's miss-ratio curve of each tag, compared with that of an LRU cache."""

import errno
import random

import pytest

from tests.kernel import stack
from tests.kernel.disk import SECTOR, Disk, pattern
from vcache_agent.netlink import spec
from vcache_agent.netlink.client import Client
from vcache_agent.netlink.errors import NetlinkError

TAG = 7
BLOCK = 8
MIB = 1 << 20


class Lru:
    """Misses of caches of whole MiB, by Mattson's stack."""

    def __init__(self, megabytes: int) -> None:
        self.sizes = [mb * MIB // 4096 for mb in range(megabytes + 1)]
        self.stack: list[int] = []
        self.accesses = {"read": 0, "write": 0}
        self.misses = {kind: [0] * len(self.sizes) for kind in self.accesses}

    def touch(self, kind: str, first: int, blocks: int) -> None:
        """Count reads or writes of blocks."""
        for block in range(first, first + blocks):
            depth = self.stack.index(block) if block in self.stack else None
            for at, size in enumerate(self.sizes):
                self.misses[kind][at] += depth is None or depth >= size
            if depth is not None:
                del self.stack[depth]
            self.stack.insert(0, block)
            self.accesses[kind] += 1


def test_the_curve_is_that_of_an_lru_cache(origin: str, client: Client) -> None:
    """For reads and writes, from any source, also over a reload of the table."""
    rng = random.Random(5)  # noqa: S311 - test data
    model = Lru(8)
    with (stack.null_blk(16, discard=True) as cache, stack.pool(cache, chunk_kib=64) as pool,
          stack.cached(origin, pool) as device, Disk(device.path) as disk):
        for number in range(1200):
            span = rng.choice((300, 1900))
            first, blocks = rng.randrange(span), rng.choice((1, 1, 2, 7))
            kind = rng.choice(("read", "write"))
            model.touch(kind, first, blocks)
            if kind == "read":
                disk.read(first * BLOCK, blocks * BLOCK)
            else:
                disk.write(first * BLOCK, pattern(number, blocks * BLOCK))
            if number % 50 == 49:
                disk.flush()
            if number == 700:
                device.swap(device.table())
        curve = client.curve(device.number, TAG)
    assert curve.grain == MIB
    assert curve.footprint == len(model.stack) * 4096
    assert (curve.reads, curve.writes) == (model.accesses["read"], model.accesses["write"])
    assert len(curve.read_misses) == len(curve.write_misses) == spec.CURVE_POINTS
    assert list(curve.read_misses[:9]) == model.misses["read"]
    assert list(curve.write_misses[:9]) == model.misses["write"]
    # A larger cache has no further benefit, but a smaller one does.
    assert set(curve.read_misses[8:]) == {model.misses["read"][8]}
    assert curve.read_misses[0] == curve.reads > curve.read_misses[2] > curve.read_misses[8] > 0


def test_parts_of_blocks_and_large_requests_count_as_blocks(origin: str, client: Client) -> None:
    with (stack.null_blk(16, discard=True) as cache, stack.pool(cache, chunk_kib=64) as pool,
          stack.cached(origin, pool) as device, Disk(device.path) as disk):
        disk.read(3, 1)
        disk.read(7, 2)
        disk.write(5, pattern(1, 1))
        disk.read(0, 2048)
        curve = client.curve(device.number, TAG)
    assert (curve.reads, curve.writes) == (1 + 2 + 256, 1)
    assert curve.footprint == MIB
    assert curve.read_misses[1] == 256
    assert curve.write_misses[1] == 0
    assert curve.misses(MIB) == (256, 0)
    assert curve.misses(0) == (259, 1)


@pytest.mark.box
def test_each_tag_has_its_own(origin: str, client: Client) -> None:
    with (stack.null_blk(16, discard=True) as cache, stack.pool(cache) as pool,
          stack.cached(origin, pool, scope="filesystem") as device, Disk(device.path) as disk):
        client.tag_set(device.number, 1)
        disk.read(0, 64)
        assert client.curve(device.number, 0).reads == 8
        assert client.curve(device.number, 1).reads == 0


def test_without_a_cache_there_is_none(origin: str, client: Client) -> None:
    with stack.vcache(origin) as device:
        with pytest.raises(NetlinkError, match="the tag has no cache") as caught:
            client.curve(device.number, TAG)
        assert caught.value.errno == errno.ENODATA
        with pytest.raises(NetlinkError, match="no tag with this id"):
            client.curve(device.number, 9)


def test_it_begins_when_there_is_a_cache(origin: str, client: Client) -> None:
    with (stack.null_blk(16, discard=True) as cache, stack.pool(cache) as pool,
          stack.vcache(origin) as device, Disk(device.path) as disk):
        disk.write(0, bytes(8 * SECTOR))
        device.swap(stack.cached_table(origin, pool))
        assert client.curve(device.number, TAG).writes == 0
        disk.read(0, 8)
        assert client.curve(device.number, TAG).reads == 1
