# SPDX-License-Identifier: Apache-2.0
"""Files with the cached blocks of a disk: they read back as written, or are refused."""

import os
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcache_agent import mapfile
from vcache_agent.mapfile import MapFileError, MapFolder, SavedMap
from vcache_agent.model import Extent
from vcache_agent.netlink import spec
from vcache_agent.netlink.spec import CachedRun

SECTORS = 1 << 20
RUNS = st.lists(st.builds(
    lambda start, length, heat: CachedRun(start * 8, length * 8, heat),
    st.integers(0, SECTORS // 8 - 200), st.integers(1, 100), st.integers(0, spec.HEAT_MAX)),
    max_size=40)


def blocks(runs: object) -> dict[int, int]:
    return {sector // 8: run.heat for run in runs  # type: ignore[attr-defined]
            for sector in range(run.start, run.start + run.len, 8)}


@given(RUNS, st.text(max_size=50), st.floats(0, 2e9))
def test_what_is_written_is_read(runs: list[CachedRun], key: str, released: float) -> None:
    saved = SavedMap(key, SECTORS, 7, released, mapfile.tidy(runs))
    assert mapfile.parse(mapfile.pack(saved)) == saved


@given(RUNS)
def test_tidy_runs_are_sorted_disjoint_and_complete(runs: list[CachedRun]) -> None:
    found = mapfile.tidy(runs)
    assert blocks(found).keys() == blocks(runs).keys()
    assert all(one.start + one.len <= other.start for one, other in zip(found, found[1:],
                                                                         strict=False))
    hottest = mapfile.tidy(runs, 3)
    assert len(hottest) <= 3
    assert sorted(hottest) == list(hottest)
    left = sorted((run.heat for run in found), reverse=True)[:3]
    assert sorted((run.heat for run in hottest), reverse=True) == left


@given(RUNS, st.lists(st.tuples(st.integers(0, SECTORS), st.integers(1, 5000)), max_size=20))
def test_what_is_within_extents(runs: list[CachedRun], places: list[tuple[int, int]]) -> None:
    extents, end = [], 0
    for start, length in sorted(places):
        if start >= end:
            extents.append(Extent(start, length))
            end = start + length
    tidy = mapfile.tidy(runs)
    found = mapfile.within(tidy, tuple(extents))
    sectors = {sector for extent in extents
               for sector in range(extent.start, extent.start + extent.length)}
    wanted = {block: heat for block, heat in blocks(tidy).items()
              if sectors.issuperset(range(block * 8, block * 8 + 8))}
    # A block that two neighbours share is left out.
    assert blocks(found).items() <= wanted.items()
    whole = {block for block in wanted for extent in extents
             if extent.start <= block * 8 and block * 8 + 8 <= extent.start + extent.length}
    assert blocks(found).keys() == whole


@given(RUNS)
def test_batches_are_the_hottest_first_and_in_order(runs: list[CachedRun]) -> None:
    tidy = mapfile.tidy(runs)
    found = mapfile.batches(tidy)
    assert sorted(run for batch in found for run in batch) == list(tidy)
    assert all(sorted(batch) == list(batch) and len({run.heat for run in batch}) == 1
               for batch in found)
    heats = [batch[0].heat for batch in found]
    assert sorted(heats, reverse=True) == heats


def test_a_batch_is_no_longer_than_a_message() -> None:
    runs = [CachedRun(at * 16, 8, 1) for at in range(5000)]
    assert [len(batch) for batch in mapfile.batches(runs)] == [2048, 2048, 904]


def sealed(data: bytes) -> bytes:
    """Return bytes with a valid checksum, so that their content is checked."""
    size = mapfile._HEADER.size
    if len(data) < size:
        return data
    crc = zlib.crc32(data[size:], zlib.crc32(data[:size - 4]))
    return data[:size - 4] + crc.to_bytes(4, "little") + data[size:]


def valid(data: bytes) -> None:
    """Parse bytes; accepted files must be valid."""
    try:
        saved = mapfile.parse(data)
    except MapFileError:
        return
    assert mapfile.tidy(saved.runs, len(saved.runs)) is not None
    end = 0
    for run in saved.runs:
        assert run.start >= end and run.len > 0 and not (run.start | run.len) % 8
        assert run.heat <= spec.HEAT_MAX
        end = run.start + run.len
    assert end <= saved.sectors


@given(st.binary(max_size=300))
def test_any_bytes(data: bytes) -> None:
    valid(data)
    valid(sealed(data))


@given(RUNS, st.data())
def test_bytes_that_were_changed(runs: list[CachedRun], data: st.DataObject) -> None:
    packed = bytearray(mapfile.pack(SavedMap("volume:a", SECTORS, 7, 1.5, mapfile.tidy(runs))))
    for _ in range(data.draw(st.integers(1, 4))):
        packed[data.draw(st.integers(0, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
    changed = bytes(packed)[:data.draw(st.integers(0, len(packed)))]
    valid(changed)
    valid(sealed(changed))


def test_a_changed_byte_is_noticed() -> None:
    packed = mapfile.pack(SavedMap("volume:a", SECTORS, 7, 1.5, (CachedRun(0, 8, 1),)))
    for at in range(len(packed)):
        changed = bytearray(packed)
        changed[at] ^= 1
        with pytest.raises(MapFileError):
            mapfile.parse(bytes(changed))


def test_a_folder(tmp_path: Path) -> None:
    folder = MapFolder(tmp_path / "swap")
    assert folder.names() == frozenset()
    saved = SavedMap("volume:a", SECTORS, 7, 1.5, (CachedRun(0, 8, 1),))
    # Left by a killed process; it must not be followed.
    (tmp_path / "swap").mkdir()
    left = folder.path("volume:a").with_name(folder.path("volume:a").name + ".new")
    left.symlink_to(tmp_path / "elsewhere")
    folder.save(saved)
    assert not (tmp_path / "elsewhere").exists()
    left.write_bytes(b"half of it")
    folder.sweep()
    assert not left.exists()
    assert folder.load("volume:a") == saved
    assert folder.path("volume:a").stat().st_mode & 0o777 == 0o600
    assert folder.names() == {folder.path("volume:a").name}
    folder.path("volume:b").write_bytes(folder.path("volume:a").read_bytes())
    with pytest.raises(MapFileError, match="belongs to another disk"):
        folder.load("volume:b")
    folder.remove(folder.path("volume:a").name)
    folder.remove(folder.path("volume:a").name)
    with pytest.raises(MapFileError, match="No such file"):
        folder.load("volume:a")


def test_what_is_no_file_of_ours(tmp_path: Path) -> None:
    fifo, link, large = tmp_path / "fifo", tmp_path / "link", tmp_path / "large"
    os.mkfifo(fifo)
    link.symlink_to("/etc/passwd")
    with open(large, "wb") as file:
        file.truncate(1 << 40)
    for path, says in ((fifo, "not a regular file"), (link, "symbolic"),
                       (large, "it has more than"), (tmp_path, "not a regular file|directory")):
        with pytest.raises(MapFileError, match=says):
            mapfile.read(path)
