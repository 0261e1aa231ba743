# SPDX-License-Identifier: Apache-2.0
"""recover/ recovers a cache device as a pool would, also if recovery is interrupted."""

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.powercut.crash import Image
from tests.powercut.recovery import Recovered, Recoverer, RecoveryError, build

BLOCK, CHUNK_BLOCKS, CHUNKS = 4096, 16, 24
SECTORS = CHUNKS * CHUNK_BLOCKS * 8
ORIGIN = 256
COPY = 80            # superblock, 64 blocks of slots, one of the table: five chunks
FIRST = 2 * COPY // CHUNK_BLOCKS
ROOM = CHUNK_BLOCKS - 2
KEY = 0x1122334455667788


def _table() -> list[int]:
    made = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        made.append(value)
    return made


_CRC = _table()


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def finish(block: bytes) -> bytes:
    """Fill in the checksum, after the magic number."""
    block = block.ljust(BLOCK, b"\0")
    return block[:4] + struct.pack("<I", crc32c(block)) + block[8:]


def meta(kind: int, index: int, body: bytes, seq: int = 1) -> bytes:
    head = struct.pack("<IIQQHHI", 0x4D435643, 0, KEY, seq, kind, 1, index)
    return finish(head + body)


class Entry:
    """A block of the origin in a record."""

    def __init__(self, block: int, data: bytes, mask: int = 0xFF) -> None:
        self.block, self.data, self.mask = block, data.ljust(BLOCK, b"\1"), mask

    def packed(self, place: int) -> bytes:
        where = self.block | self.mask << 40 | place << 48
        return struct.pack("<QI", where, crc32c(self.data))


def head(kind: int, chunk: int, at: int, gen: int, seq: int, tag: int, nr: int,
         data: int) -> bytes:
    return struct.pack("<IIQQQIIHHHHH14x", 0x4C435643, 0, KEY, gen, seq, 1, chunk, tag, kind, at,
                       nr, data)


class Cache:
    """A cache device written by hand."""

    def __init__(self) -> None:
        self.bytes = bytearray(SECTORS * 512)
        self.dead = [0] * CHUNKS
        body = bytes(16) + struct.pack("<IIIIQQQQ", CHUNK_BLOCKS, CHUNKS, 64, 0, 1, 0, 0, 0)
        self.meta(0, meta(1, 0, body))
        for index in range(64):
            slot = struct.pack("<IIQQ", 1, 1, 1, ORIGIN) if not index else b""
            self.meta(1 + index, meta(2, index, slot))
        self.table()

    def put(self, block: int, data: bytes) -> None:
        self.bytes[block * BLOCK:block * BLOCK + len(data)] = data

    def meta(self, block: int, data: bytes) -> None:
        for copy in (0, 1):
            self.put(copy * COPY + block, data)

    def table(self, seq: int = 1, copies: Sequence[int] = (0, 1)) -> None:
        body = b"".join(struct.pack("<QQ", dead, 0) for dead in self.dead)
        for copy in copies:
            self.put(copy * COPY + 65, meta(3, 0, body, seq))

    def record(self, chunk: int, at: int, gen: int, seq: int, *entries: Entry,
               tag: int = 7) -> None:
        first = chunk * CHUNK_BLOCKS + at
        packed = b"".join(e.packed(at + 1 + i) for i, e in enumerate(entries))
        self.put(first, finish(head(1, chunk, at, gen, seq, tag, len(entries), len(entries))
                               + packed))
        for number, entry in enumerate(entries):
            self.put(first + 1 + number, entry.data)

    def seal(self, chunk: int, gen: int, seq: int, copy: int, *entries: tuple[Entry, int],
             tag: int = 7) -> None:
        packed = b"".join(e.packed(place) for e, place in entries)
        self.put(chunk * CHUNK_BLOCKS + ROOM + copy,
                 finish(head(2, chunk, ROOM + copy, gen, seq, tag, len(entries), 0) + packed))

    def image(self) -> Image:
        return np.arange(1, SECTORS + 1)


@pytest.fixture
def cache() -> Cache:
    return Cache()


class Host:
    """The program, and a cache device for it."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "log"
        self._open: list[Recoverer] = []

    def __call__(self, cache: Cache, image: Image | None = None, used: int = 0) -> Recovered:
        if not self._open:
            self._log.write_bytes(bytes(512) + cache.bytes)
            self._open.append(Recoverer(build(), self._log, SECTORS + 1, SECTORS, ORIGIN, 1))
        return self._open[0].recover(cache.image() if image is None else image, used)

    def close(self) -> None:
        for program in self._open:
            program.close()


@pytest.fixture
def recover(tmp_path: Path) -> Iterator[Host]:
    host = Host(tmp_path)
    yield host
    host.close()


def place(chunk: int, at: int) -> int:
    return (chunk * CHUNK_BLOCKS + at) * 8


def test_an_empty_pool_has_nothing(cache: Cache, recover: Host) -> None:
    found = recover(cache)
    assert (found.map == -1).all()
    assert (found.chunks, found.errors) == (0, 0)


def test_what_a_record_says_is_found(cache: Cache, recover: Host) -> None:
    cache.record(FIRST, 0, 5, 6, Entry(2, b"a"), Entry(3, b"b", mask=0x0F))
    found = recover(cache)
    assert found.map[16] == place(FIRST, 1)
    assert found.map[24] == place(FIRST, 2)
    assert found.map[28] == -1
    origin = np.zeros(ORIGIN, np.int64)
    assert found.content(cache.image(), origin)[16] == place(FIRST, 1) + 1


def test_torn_data_does_not_count(cache: Cache, recover: Host) -> None:
    cache.record(FIRST, 0, 5, 6, Entry(2, b"a"), Entry(3, b"b"))
    cache.put(FIRST * CHUNK_BLOCKS + 1, b"torn")
    found = recover(cache)
    assert (found.map[16], found.map[24]) == (-1, place(FIRST, 2))
    assert found.bad_blocks == 1


def test_of_two_logs_the_later_record_counts(cache: Cache, recover: Host) -> None:
    cache.record(FIRST, 0, 5, 9, Entry(2, b"new"), tag=1)
    cache.record(FIRST + 1, 0, 7, 8, Entry(2, b"old"), tag=2)
    assert recover(cache).map[16] == place(FIRST, 1)


def test_a_dead_chunk_has_nothing(cache: Cache, recover: Host) -> None:
    cache.record(FIRST, 0, 5, 6, Entry(2, b"a"))
    cache.dead[FIRST] = 5
    cache.table()
    assert recover(cache).map[16] == -1


def test_a_torn_seal_does_not_bring_entries_back(cache: Cache, recover: Host) -> None:
    old, kept = Entry(2, b"old"), Entry(3, b"kept")
    cache.record(FIRST, 0, 5, 6, old, kept)
    cache.seal(FIRST, 5, 6, 0, (kept, 2))
    cache.put(FIRST * CHUNK_BLOCKS + ROOM, b"torn")
    cache.seal(FIRST, 5, 6, 1, (kept, 2))
    found = recover(cache)
    assert (found.map[16], found.map[24]) == (-1, place(FIRST, 2))


def test_a_cut_in_the_recovery_comes_to_the_same(cache: Cache, recover: Host) -> None:
    """Also if an earlier cut has interrupted a change of the chunk table."""
    cache.record(FIRST, 0, 5, 6, Entry(2, b"a"))
    cache.record(FIRST + 2, 0, 7, 8, Entry(3, b"b"))
    cache.dead[FIRST] = 5
    cache.table(seq=2, copies=(0,))
    first = recover(cache)
    assert first.map[16] == -1
    assert len(first.writes) > 3
    for torn in range(8):
        for image, used in first.interrupted(cache.image(), torn):
            assert (recover(cache, image, used).map == first.map).all()


def test_a_pool_that_is_gone_is_noticed(cache: Cache, recover: Host) -> None:
    cache.meta(0, b"gone")
    with pytest.raises(RecoveryError, match="does not come back"):
        recover(cache)
