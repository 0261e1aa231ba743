# SPDX-License-Identifier: Apache-2.0
"""The drives of vcache-ssd, with the real firmware."""

import random
import struct
import subprocess
from pathlib import Path

import pytest

from tests.box.limits import limit
from tests.nvmetcp.ssd import NQN, Host, Ssd, host

VCACHE, TAGS, WRITES, ERASES = range(0xc0, 0xc4)
NANDS = ["tlc", "jasmine", "none", "svd"]


def _blocks(seed: int, count: int) -> bytes:
    return random.Random(seed).randbytes(count * 4096)  # noqa: S311 - no secret


@pytest.mark.parametrize("mapping", ["page", "fast"])
@pytest.mark.parametrize("personality", ["tagged", "baseline"])
@pytest.mark.parametrize("nand", NANDS)
def test_what_was_flushed_survives_a_power_cut(drive_program: Path, tmp_path: Path, nand: str,
                                               personality: str, mapping: str) -> None:
    image = str(tmp_path / "image")
    made = Ssd(drive_program, "--image", image, "--nand", nand, "--personality", personality,
               "--mapping", mapping, "--tags", "5", "--buffer", "2", size="24M")
    with host(made) as h:
        q = h.io()
        for at in range(0, 1024, 64):
            assert q.write(at, _blocks(at, 64)).status == 0
        assert q.flush().status == 0
        assert q.write(1024, _blocks(1, 1)).status == 0
        made.cut_power()
    with Ssd(drive_program, "--image", image, size=None) as ssd, host(ssd) as h:
        q = h.io()
        for at in range(0, 1024, 64):
            assert q.read(at, 64).data == _blocks(at, 64)
        assert q.read(1024).data in (_blocks(1, 1), bytes(4096))
        assert (h.admin.get_log(VCACHE, 32).code == 0) == (personality == "tagged")
        if personality == "tagged":
            assert h.admin.get_log(VCACHE, 32).data[28:] == bytes((5, 0, 0, 0))


@pytest.mark.parametrize(("options", "says"), [
    (["--personality", "tagged"], "was created with --personality baseline"),
    (["--mapping", "fast"], "was created with --mapping page"),
    (["--nand", "tlc"], "was created with --nand jasmine"),
    (["--nand", "none"], "was created with --nand jasmine"),
    (["--tags", "6"], "was created with --tags 7"),
    (["--size", "99M"], "its size differs from --size")], ids=str)
def test_image_stays_what_it_was_made_as(drive_program: Path, tmp_path: Path, options: list[str],
                                         says: str) -> None:
    image = str(tmp_path / "image")
    same = ["--image", image, "--personality", "baseline", "--nand", "jasmine", "--tags", "7"]
    with Ssd(drive_program, *same, size="24M"):
        pass
    line = [str(drive_program), "--listen", "127.0.0.1:0", "--nqn", NQN, "--image", image]
    done = subprocess.run([*line, *options], capture_output=True, text=True, timeout=limit(20),
                          check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"vcache-ssd: --image {image}: {says}\n"
    # with the original options, and with another buffer, which the image does not store
    with Ssd(drive_program, *same, "--buffer", "1", size="24M"):
        pass


def _flush_time(program: Path, nand: str, slowdown: int = 1) -> int:
    """Return the ns that a flush of 4 MiB takes according to the SSD.

    The data is less than the part of the buffer that idle banks leave alone.
    """
    options = ("--nand", nand, "--slowdown", str(slowdown), "--timing", "off", "--buffer", "256")
    with Ssd(program, *options, size="24M") as ssd, host(ssd) as h:
        q = h.io()
        for at in range(0, 1024, 64):
            assert q.write(at, bytes(64 * 4096)).status == 0
        assert q.flush().status == 0
        return int.from_bytes(h.admin.get_log(TAGS, 128).data[112:120], "little")


def test_times_of_the_nands(drive_program: Path) -> None:
    """256 pages on eight dies take 32 rounds, and then a log page; svd: 1024 on four."""
    times = {nand: _flush_time(drive_program, nand) for nand in NANDS}
    assert times["none"] == 0
    assert 32 * 561_000 < times["tlc"] < 48 * 561_000
    assert 32 * 1_300_000 < times["jasmine"] < 48 * 1_300_000
    assert 256 * 800_000 < times["svd"] < 384 * 800_000


def test_times_of_a_slow_nand(drive_program: Path) -> None:
    assert _flush_time(drive_program, "none", 1000) == 0
    assert 32_000 * 561_000 < _flush_time(drive_program, "tlc", 1000) < 48_000 * 561_000


HOST, GC, LOG, MAP, PADDING = range(5)
_COUNTERS = ("flushes", "late", "latest", "written", "absorbed", "skipped", "erases",
             "checkpoints", "spilled", "bad_blocks", "lost_reads", "recovery_pages", "replayed",
             "data_blocks")


def _writes(h: Host) -> tuple[dict[str, int], tuple[int, ...]]:
    """Return log page C2h: counters, and programmed blocks by cause."""
    data = h.admin.get_log(WRITES, 512).data
    numbers = struct.unpack("<14Q", data[16:128])
    return dict(zip(_COUNTERS, numbers, strict=True)), struct.unpack("<16Q", data[128:256])


def _erase_counts(h: Host) -> tuple[int, int]:
    """Return the number of blocks in log page C3h, and the minimum number of erases."""
    data = h.admin.get_log(ERASES, 1088).data
    width = struct.unpack("<I", data[12:16])[0]
    blocks = struct.unpack("<256I", data[64:])
    return sum(blocks), sum(i * width * n for i, n in enumerate(blocks))


def test_writes_are_told_by_cause(drive_program: Path, tmp_path: Path) -> None:
    """Random overwrites until garbage collection, then another mount."""
    image = str(tmp_path / "image")
    some = random.Random(1)  # noqa: S311 - no secret
    with Ssd(drive_program, "--image", image, "--nand", "none", size="24M") as ssd:
        with host(ssd) as h:
            q = h.io()
            new, _ = _writes(h)
            blocks, formatted = _erase_counts(h)
            assert blocks % 8 == 0
            for _ in range(5000):
                assert q.write(some.randrange(6000), bytes(32768)).status == 0
            assert q.flush().status == 0
            counters, programmed = _writes(h)
            assert counters["written"] == 5000 * 8
            # each block is programmed, or absorbed by a later write
            assert programmed[HOST] == counters["written"] - counters["absorbed"]
            assert min(programmed[GC], programmed[MAP], programmed[PADDING]) > 0
            # pages of four blocks
            assert sum(programmed) % 4 == 0
            assert not any(programmed[5:])
            assert counters["erases"] > new["erases"]
            erases = counters["erases"] - new["erases"]
            assert _erase_counts(h) == (blocks, formatted + erases)
            before = _erase_counts(h)
    with Ssd(drive_program, "--image", image, size=None) as ssd, host(ssd) as h:
        counters, _ = _writes(h)
        assert counters["written"] == 0
        assert counters["recovery_pages"] > 0
        # erase counts of free blocks are not stored, and become the mean
        found = _erase_counts(h)
        assert found[0] == before[0]
        assert abs(found[1] - before[1]) <= before[0]


def test_state_of_a_tag(drive_program: Path) -> None:
    with Ssd(drive_program, "--nand", "none", size="24M") as ssd, host(ssd) as h:
        q = h.io()
        assert q.write(0, bytes(3 * 4096), opcode=0xc1, tag=9).status == 0
        entry = struct.unpack("<II12QII3Q24x", h.admin.get_log(TAGS, 224).data[64:])
        assert entry[:14] == (9, 1, 0, 1, 0, 0, 24, 0, 0, 3, 0, 0, 0, 3)
        # no weight; the only active tag has the whole buffer; no program yet
        assert entry[14:] == (0, 2048, 0, 0, 0)
        assert q.flush(opcode=0xc0, tag=9).status == 0
        flags, *_, buffered, unlogged, flushed, log_pages, written = struct.unpack(
            "<4xI12Q56x", h.admin.get_log(TAGS, 224).data[64:])
        assert (buffered, unlogged) == (0, 0)
        # A flush of a few blocks needs no log page.
        assert (flags, flushed, log_pages, written) == (1, 3, 0, 3)
