# SPDX-License-Identifier: Apache-2.0
"""FIEMAP on real files, and the extents derived from it."""

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcache_agent import fiemap
from vcache_agent.model import Extent

SECTORS = 8  # sectors of 4 KiB


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path / "image", os.O_RDWR | os.O_CREAT)
    yield fd
    os.close(fd)


def written(fd: int) -> int:
    return sum(extent.length for extent in fiemap.written_extents(fd))


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
    extents = fiemap.written_extents(file)
    assert sum(extent.length for extent in extents) == 3 * SECTORS
    assert list(extents) == sorted(extents)


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
                fiemap.written_extents(fd)
        finally:
            os.close(fd)


@pytest.mark.parametrize("flag", [*fiemap.FLAGS_SKIPPED, *map(lambda bit: bit | 1,
                                                             fiemap.FLAGS_SKIPPED)])
def test_each_doubtful_extent_is_left_out(flag: int) -> None:
    assert list(fiemap._usable([(4096, 4096, flag)])) == []
    # MERGED and LAST do not make an extent uncertain.
    assert list(fiemap._usable([(4096, 4096, 0x1001)])) == [Extent(8, 8)]


def test_rounding_never_adds_a_sector() -> None:
    assert list(fiemap._usable([(511, 1026, 0), (100, 400, 0), (512, 512, 0)])) == [
        Extent(1, 2), Extent(1, 1)]


def test_layout_is_the_kernels() -> None:
    # linux/fiemap.h: 32 bytes before the extents, 56 each.
    assert fiemap._HEADER.size == 32
    assert fiemap._EXTENT.size == 56
    data = struct.pack("=QQQQQIIII", 1, 2, 3, 0, 0, 4, 0, 0, 0)
    assert fiemap._EXTENT.unpack(data) == (1, 2, 3, 4)


@given(st.lists(st.builds(Extent, st.integers(0, 60), st.integers(1, 10)), max_size=20))
def test_joined_extents_cover_the_same_sectors(extents: list[Extent]) -> None:
    def sectors(runs: object) -> set[int]:
        return {sector for start, length in runs  # type: ignore[attr-defined]
                for sector in range(start, start + length)}

    joined = fiemap.join(extents)
    assert sectors(joined) == sectors(extents)
    assert all(a.start + a.length < b.start for a, b in zip(joined, joined[1:], strict=False))
