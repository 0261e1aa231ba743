# SPDX-License-Identifier: Apache-2.0
"""The drives that vcache-ssd can be, with the real firmware."""

import random
import subprocess
from pathlib import Path

import pytest

from tests.nvmetcp.ssd import NQN, Ssd, host

VCACHE = 0xc0
NANDS = ["tlc", "jasmine", "none"]


def _blocks(seed: int, count: int) -> bytes:
    return random.Random(seed).randbytes(count * 4096)  # noqa: S311 - no secret


@pytest.mark.parametrize("personality", ["tagged", "baseline"])
@pytest.mark.parametrize("nand", NANDS)
def test_what_was_flushed_survives_a_power_cut(drive_program: Path, tmp_path: Path, nand: str,
                                               personality: str) -> None:
    image = str(tmp_path / "image")
    made = Ssd(drive_program, "--image", image, "--nand", nand, "--personality", personality,
               "--tags", "5", "--buffer", "2", size="24M")
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
    (["--personality", "tagged"], "made with --personality baseline"),
    (["--nand", "tlc"], "made with --nand jasmine"),
    (["--nand", "none"], "made with --nand jasmine"),
    (["--tags", "6"], "made with --tags 7"),
    (["--size", "99M"], "has not the size of --size")], ids=str)
def test_image_stays_what_it_was_made_as(drive_program: Path, tmp_path: Path, options: list[str],
                                         says: str) -> None:
    image = str(tmp_path / "image")
    same = ["--image", image, "--personality", "baseline", "--nand", "jasmine", "--tags", "7"]
    with Ssd(drive_program, *same, size="24M"):
        pass
    line = [str(drive_program), "--listen", "127.0.0.1:0", "--nqn", NQN, "--image", image]
    done = subprocess.run([*line, *options], capture_output=True, text=True, timeout=20,
                          check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"vcache-ssd: --image {image}: {says}\n"
    # as it was made, and with another buffer, which leaves no trace
    with Ssd(drive_program, *same, "--buffer", "1", size="24M"):
        pass


def _flush_time(program: Path, nand: str) -> int:
    """Return ns that the SSD says a flush of 4 MiB takes it."""
    with Ssd(program, "--nand", nand, "--timing", "off", size="24M") as ssd, host(ssd) as h:
        q = h.io()
        for at in range(0, 1024, 64):
            assert q.write(at, bytes(64 * 4096)).status == 0
        assert q.flush().status == 0
        return int.from_bytes(h.admin.get_log(0xc1, 128).data[112:120], "little")


def test_times_of_the_nands(drive_program: Path) -> None:
    """Of 256 pages on eight dies, 32 rounds, and then a log page."""
    times = {nand: _flush_time(drive_program, nand) for nand in NANDS}
    assert times["none"] == 0
    assert 32 * 561_000 < times["tlc"] < 48 * 561_000
    assert 32 * 1_300_000 < times["jasmine"] < 48 * 1_300_000
