# SPDX-License-Identifier: Apache-2.0
"""Generations of real files, and of file systems that have none."""

import errno
import os
import struct
import time
from pathlib import Path

import pytest

from vcache_agent import inode


def of(path: Path) -> str:
    fd = os.open(path, os.O_RDONLY)
    try:
        return inode.generation(fd)
    finally:
        os.close(fd)


def test_a_file_keeps_it_over_writes_and_a_new_name(tmp_path: Path) -> None:
    path = tmp_path / "image"
    path.write_bytes(b"a")
    first = of(path)
    path.write_bytes(b"bb" * 5000)
    path.chmod(0o600)
    os.utime(path, (1, 1))
    path = path.rename(tmp_path / "moved")
    assert of(path) == first


def test_a_file_with_a_reused_number_has_another(tmp_path: Path) -> None:
    """The first reuse counts: ext4 and tmpfs give a freed number to one of the next files."""
    path = tmp_path / "image"
    seen: dict[int, str] = {}
    for _ in range(200):
        path.write_bytes(b"a")
        number, found = path.stat().st_ino, of(path)
        if not found:
            pytest.skip("the temporary folder's file system has no generations")
        if number in seen:
            assert seen[number] != found
            return
        seen[number] = found
        path.unlink()
    pytest.skip("the temporary folder's file system does not reuse numbers soon")


def refuse(number: int):
    def ioctl(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return ioctl


def test_the_time_of_birth_is_used_without_a_generation(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vcache_agent.inode.fcntl.ioctl", refuse(errno.ENOTTY))
    before = time.time()
    path = tmp_path / "image"
    path.write_bytes(b"a")
    found = of(path)
    if not found:
        pytest.skip("the temporary folder's file system has no times of birth")
    # The clock of a file system lags by at most one tick of the kernel.
    assert before - 1 <= float(found[1:]) <= time.time()
    os.utime(path, (1, 1))
    assert of(path) == found


@pytest.mark.parametrize("mask", [0, 0x7ff])
def test_without_both_it_is_empty(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mask: int) -> None:
    class Libc:
        @staticmethod
        def statx(_fd: int, _path: bytes, _flags: int, _want: int, buffer) -> int:
            struct.pack_into("=I", buffer, 0, mask)
            return 0

    monkeypatch.setattr("vcache_agent.inode.fcntl.ioctl", refuse(errno.ENOTTY))
    monkeypatch.setattr("ctypes.CDLL", lambda *_, **__: Libc)
    path = tmp_path / "image"
    path.write_bytes(b"a")
    assert of(path) == ""
    monkeypatch.setattr("ctypes.CDLL", lambda *_, **__: object())
    assert of(path) == ""


def test_an_error_of_the_disk_is_not_an_absent_generation(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vcache_agent.inode.fcntl.ioctl", refuse(errno.EIO))
    path = tmp_path / "image"
    path.write_bytes(b"a")
    with pytest.raises(OSError, match="Input/output"):
        of(path)


@pytest.mark.parametrize("key", ["file:instances:12", "file:a:b:254:3:12", "block:lv:2048",
                                 "volume:vol", "file:dm:g:12"])
@pytest.mark.parametrize("text", ["", "g0000001f", "b1700000000.000000001", "b-5.100000000"])
def test_the_key_of_an_older_agent_is_found_again(key: str, text: str) -> None:
    assert inode.without_generation(inode.with_generation(key, text)) == key
