# SPDX-License-Identifier: Apache-2.0
"""A device that was written without its cache is recognised."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from vcache_agent import origin_stamp

MIB = 1 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    path = tmp_path / "disk"
    with path.open("wb") as file:
        file.truncate(64 * MIB)
    return path


def poke(path: Path, at: int) -> None:
    """Change a byte."""
    with path.open("r+b") as file:
        file.seek(at)
        old = file.read(1)
        file.seek(at)
        file.write(bytes([old[0] ^ 1]))


@pytest.mark.parametrize("at", [0, 1080, MIB + 1024, 64 * MIB - 1])
def test_a_stamp_differs_after_a_change(disk: Path, at: int) -> None:
    before = origin_stamp.stamp(str(disk))
    assert origin_stamp.changed(str(disk), before) == ""
    poke(disk, at)
    assert "differs" in origin_stamp.changed(str(disk), before)


def test_another_size_is_a_change(disk: Path) -> None:
    before = origin_stamp.stamp(str(disk))
    with disk.open("r+b") as file:
        file.truncate(65 * MIB)
    assert origin_stamp.stamp(str(disk)) != before


def gpt(disk: Path) -> None:
    entry = b"\x11" * 32 + (40 * 2048).to_bytes(8, "little") + (50 * 2048).to_bytes(8, "little")
    with disk.open("r+b") as file:
        file.seek(510)
        file.write(b"\x55\xaa")
        file.seek(512)
        file.write(b"EFI PART" + bytes(64) + (2).to_bytes(8, "little")
                   + (128).to_bytes(4, "little") + (128).to_bytes(4, "little"))
        file.seek(1024)
        file.write(entry)


def mbr(disk: Path) -> None:
    with disk.open("r+b") as file:
        file.seek(446)
        file.write(b"\0\0\0\0\x83\0\0\0" + (40 * 2048).to_bytes(4, "little") + b"\0\x10\0\0")
        file.seek(510)
        file.write(b"\x55\xaa")


@pytest.mark.parametrize("table", [gpt, mbr])
def test_partitions_count(disk: Path, table: Callable[[Path], None]) -> None:
    table(disk)
    before = origin_stamp.stamp(str(disk))
    poke(disk, 30 * MIB)
    assert origin_stamp.stamp(str(disk)) == before, "data between the parts that are read"
    poke(disk, 40 * MIB + 1080)
    assert origin_stamp.stamp(str(disk)) != before


def test_after_a_crash_the_time_of_the_file_system_counts(disk: Path) -> None:
    now = time.time()
    assert origin_stamp.changed(str(disk), "", now - 1000) == "", "no file system"
    subprocess.run(["mkfs.ext4", "-q", str(disk)], check=True)
    assert "after the start of the host" in origin_stamp.changed(str(disk), "", now - 1000)
    assert origin_stamp.changed(str(disk), "", now + 1000) == ""


def test_the_log_of_an_xfs_counts(tmp_path: Path) -> None:
    path = tmp_path / "xfs"
    with path.open("wb") as file:
        file.truncate(400 * MIB)
    subprocess.run(["mkfs.xfs", "-q", str(path)], check=True)
    with path.open("rb") as file:
        log = origin_stamp._xfs_log(file.read(512))
        file.seek(log)
        assert file.read(4) == b"\xfe\xed\xba\xbe", "the magic number of a log record"
    before = origin_stamp.stamp(str(path))
    poke(path, log + 600)
    assert origin_stamp.stamp(str(path)) != before
