# SPDX-License-Identifier: Apache-2.0
"""Files with the data of cached blocks: they read back as written, or are refused."""

import os
import random
import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vcache_agent.datafile import Content, Reader, Writer, size_of
from vcache_agent.mapfile import MapFileError
from vcache_agent.netlink.spec import CachedRun

RUNS = (CachedRun(0, 8, 3), CachedRun(16, 24, 1), CachedRun(4096, 64, 15))
CONTENT = Content("disk:dm0:uuid:vda", 1 << 20, 7, 42, 0x1122334455667788, 12.5, RUNS)


def data_of(run: CachedRun) -> bytes:
    """Return data of a run; each block differs."""
    return b"".join(struct.pack("<Q", at) * 512 for at in range(run.start, run.start + run.len, 8))


def written(path: Path, content: Content = CONTENT) -> Path:
    with Writer(path, content) as writer:
        for run in content.runs:
            writer.add(data_of(run))
        writer.commit()
    return path


def pieces(path: Path, runs: tuple[CachedRun, ...],
           most: int = 15) -> list[tuple[CachedRun, bytes]]:
    with Reader(path) as reader:
        return list(reader.pieces(runs, most))


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 30), st.integers(0, 15)),
                min_size=1, max_size=12), st.text(max_size=30), st.integers(1, 20))
@settings(max_examples=60, deadline=None)
def test_what_is_written_is_read(steps: list[tuple[int, int, int]], key: str, most: int) -> None:
    runs, end = [], 0
    for gap, blocks, heat in steps:
        runs.append(CachedRun(end + gap * 8, blocks * 8, heat))
        end += (gap + blocks) * 8
    content = Content(key, end, 3, 5, 2**64 - 1, 1.0, tuple(runs))
    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder) / "a.data", content)
        assert path.stat().st_size == size_of(content)
        assert path.stat().st_mode & 0o777 == 0o600
        with Reader(path) as reader:
            assert reader.content == content
            found = list(reader.pieces(content.runs, most))
    assert all(0 < run.len <= most * 8 and data == data_of(run) for run, data in found)
    covered = [sector for run, _ in found for sector in range(run.start, run.start + run.len)]
    assert covered == [sector for run in runs for sector in range(run.start, run.start + run.len)]


def test_parts_of_its_runs(tmp_path: Path) -> None:
    path = written(tmp_path / "a.data")
    wanted = (CachedRun(24, 8, 1), CachedRun(4104, 16, 15))
    assert pieces(path, wanted) == [(run, data_of(run)) for run in wanted]
    for other in (CachedRun(8, 8, 0), CachedRun(0, 16, 0), CachedRun(1 << 19, 8, 0)):
        with pytest.raises(MapFileError, match="does not have all of these blocks"):
            pieces(path, (other,))


def test_each_damaged_byte_is_noticed(tmp_path: Path) -> None:
    whole = written(tmp_path / "a.data").read_bytes()
    rng = random.Random(4)  # noqa: S311 - test data
    used = len(whole) - CONTENT.size
    meta = 64 + len(CONTENT.key) + 16 * len(RUNS) + 4 * CONTENT.blocks
    assert meta <= used
    for at in [*range(0, meta, 3), *(rng.randrange(used, len(whole)) for _ in range(40))]:
        damaged = bytearray(whole)
        damaged[at] ^= 1 << rng.randrange(8)
        path = tmp_path / "b.data"
        path.write_bytes(damaged)
        path.chmod(0o600)
        with pytest.raises(MapFileError):
            pieces(path, RUNS)


@pytest.mark.parametrize("length", [0, 10, 63, 64, 200, 4095, 4096, -4096, -1])
def test_a_cut_file_is_refused(tmp_path: Path, length: int) -> None:
    path = written(tmp_path / "a.data")
    os.truncate(path, length if length >= 0 else path.stat().st_size + length)
    with pytest.raises(MapFileError):
        Reader(path)


def test_a_file_that_was_not_completed_does_not_exist(tmp_path: Path) -> None:
    with Writer(tmp_path / "a.data", CONTENT) as writer:
        writer.add(data_of(RUNS[0]))
        # What a power failure would leave under its name, at worst.
        os.link(tmp_path / "a.data.new", tmp_path / "torn.data")
        with pytest.raises(MapFileError, match="1 of 12 blocks"):
            writer.commit()
    assert [path.name for path in tmp_path.iterdir()] == ["torn.data"]
    with pytest.raises(MapFileError, match="not complete"):
        Reader(tmp_path / "torn.data")


def test_files_of_others_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "a.data")
    (tmp_path / "link.data").symlink_to(path)
    with pytest.raises(MapFileError):
        Reader(tmp_path / "link.data")
    os.mkfifo(tmp_path / "fifo.data")
    with pytest.raises(MapFileError, match="not a regular file"):
        Reader(tmp_path / "fifo.data")
    for mode in (0o620, 0o602):
        path.chmod(mode)
        with pytest.raises(MapFileError, match="others may write it"):
            Reader(path)
    path.chmod(0o600)
    Reader(path).__exit__(None, None, None)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(MapFileError, match="another user"):
        Reader(path)


@given(st.binary(max_size=600))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_refused_or_read(data: bytes) -> None:
    """With a right magic and version, too."""
    with tempfile.TemporaryDirectory() as folder:
        for head in (b"", b"VCACHDAT" + struct.pack("<I", 1)):
            path = Path(folder) / "a.data"
            path.write_bytes(head + data)
            path.chmod(0o600)
            with pytest.raises(MapFileError):
                Reader(path)


@pytest.mark.parametrize("field", [(12, "<I", 1 << 21), (60, "<I", 1 << 20), (64, "<Q", 1 << 60),
                                   (16, "<Q", 2**64 - 1)])
def test_lengths_of_an_attacker_need_no_memory(tmp_path: Path,
                                               field: tuple[int, str, int]) -> None:
    path = written(tmp_path / "a.data")
    whole = bytearray(path.read_bytes())
    at, form, value = field
    struct.pack_into(form, whole, at, value)
    path.write_bytes(whole)
    with pytest.raises(MapFileError, match="length|checksum|large"):
        Reader(path)
