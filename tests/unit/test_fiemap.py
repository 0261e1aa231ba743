# SPDX-License-Identifier: Apache-2.0
"""FIEMAP on real files, and the extents derived from it."""

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from vcache_agent import fiemap
from vcache_agent.packed_extents import PackedExtents

SECTORS = 8  # sectors of 4 KiB


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path / "image", os.O_RDWR | os.O_CREAT)
    yield fd
    os.close(fd)


def written(fd: int) -> int:
    return extents(fd).sectors


def extents(fd: int) -> PackedExtents:
    return PackedExtents(fiemap.read(fd)[0])


def usable(*found: tuple[int, int, int]) -> list[tuple[int, int]]:
    """Return (first sector, sector after the last) of extents, given as the kernel does."""
    starts: list[int] = []
    ends: list[int] = []
    physical, lengths, flags = ([item[at] for item in found] for at in range(3))
    fiemap._use(physical, lengths, flags, starts, ends)
    return list(zip(starts, ends, strict=True))


def on_plain_filesystem(fd: int) -> bool:
    """Return whether a written and synced block of a file has its own place here."""
    os.pwrite(fd, b"x" * 4096, 0)
    os.fsync(fd)
    try:
        return written(fd) == SECTORS
    except fiemap.FiemapError:
        return False


def test_only_written_blocks_count(file: int) -> None:
    if not on_plain_filesystem(file):
        pytest.skip("the temporary folder's file system tells no places")
    os.posix_fallocate(file, 0, 1 << 20)
    assert written(file) == SECTORS, "allocated, not written"
    os.ftruncate(file, 4 << 20)
    assert written(file) == SECTORS, "a hole"
    os.pwrite(file, b"x" * 8192, 512 << 10)
    os.fsync(file)
    found = extents(file)
    assert found.sectors == 3 * SECTORS
    assert list(found) == sorted(found)


def test_many_extents_take_several_calls(file: int) -> None:
    if not on_plain_filesystem(file):
        pytest.skip("the temporary folder's file system tells no places")
    count = 3000
    os.ftruncate(file, count * 8192)
    for number in range(count):
        os.pwrite(file, b"x" * 4096, number * 8192)
    os.fsync(file)
    assert written(file) == count * SECTORS


def test_what_is_no_file_or_has_no_places_is_refused(tmp_path: Path) -> None:
    for path, words in ((tmp_path, "not a regular file"), (Path("/proc/version"), "FIEMAP")):
        fd = os.open(path, os.O_RDONLY)
        try:
            with pytest.raises(fiemap.FiemapError, match=words):
                fiemap.read(fd)
        finally:
            os.close(fd)


@pytest.mark.parametrize("flag", [*fiemap.FLAGS_SKIPPED, *map(lambda bit: bit | 1,
                                                             fiemap.FLAGS_SKIPPED)])
def test_each_doubtful_extent_is_left_out(flag: int) -> None:
    assert usable((4096, 4096, flag)) == []
    # MERGED and LAST do not make an extent uncertain.
    assert usable((4096, 4096, 0x1001)) == [(8, 16)]


def test_rounding_never_adds_a_sector() -> None:
    found = usable((511, 1026, 0), (100, 400, 0), (512, 512, 0))
    assert [run for run in found if run[0] < run[1]] == [(1, 3), (1, 2)]


def test_layout_is_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    # linux/fiemap.h: 32 bytes before the extents, 56 each.
    assert fiemap._HEADER.size == 32
    batches = [[(0, 10, 4096, 0x10), (4096, 20, 8192, 0x22)], [(12288, 30, 4096, 0x1 | 0x33)]]
    asked = []

    def ioctl(fd: int, request: int, buffer: bytearray, _: bool) -> None:
        offset, length, _, _, room, _ = fiemap._HEADER.unpack_from(buffer)
        asked.append((request, offset, length, room))
        found = batches[len(asked) - 1]
        fiemap._HEADER.pack_into(buffer, 0, offset, length, 0, len(found), room, 0)
        for number, (logical, physical, size, flags) in enumerate(found):
            struct.pack_into("=QQQQQIIII", buffer, 32 + 56 * number, logical, physical, size,
                             7, 7, flags, 7, 7, 7)

    monkeypatch.setattr("vcache_agent.fiemap.fcntl.ioctl", ioctl)
    assert list(fiemap._read(0)) == [
        ([10, 20], [4096, 8192], [0x10, 0x22]), ([30], [4096], [0x33])]
    assert [offset for _, offset, _, _ in asked] == [0, 12288]
    assert {request for request, _, _, _ in asked} == {0xC020660B}
