# SPDX-License-Identifier: Apache-2.0
"""The guest's load generator detects data that differs from what was written."""

import json
import os
import pty
import subprocess
import tty
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.box.guest import image

KIB = 1 << 10


class Console:
    """The console of a load generator on a disk."""

    def __init__(self, fd: int, disk: Path) -> None:
        self._fd = fd
        self._disk = disk

    def send(self, command: str, **options: object) -> None:
        words = [command, f"dev={self._disk.name}", *(f"{k}={v}" for k, v in options.items())]
        os.write(self._fd, " ".join(words).encode() + b"\n")

    def receive(self) -> dict[str, Any]:
        line = b""
        while not line.endswith(b"\n"):
            line += os.read(self._fd, 1)
        found: dict[str, Any] = json.loads(line.partition(b"@vload ")[2])
        return found

    def ask(self, command: str, **options: object) -> dict[str, Any]:
        self.send(command, **options)
        return self.receive()

    def mix(self, **options: object) -> dict[str, Any]:
        return self.ask("mix", **{"size": 512 * KIB, "bs": 4096, "reads": 50, "time_ms": 300,
                                  "seed": 3, **options})


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("vload") / "vload"
    image._build_vload(path)
    return path


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    path = tmp_path / "disk"
    path.write_bytes(bytes(1024 * KIB))
    return path


@pytest.fixture
def vload(program: Path, disk: Path) -> Iterator[Console]:
    ours, theirs = pty.openpty()
    tty.setraw(ours)
    # The name of a device must be short, but the folder's is not.
    process = subprocess.Popen([program, os.ttyname(theirs)], cwd=disk.parent)
    try:
        console = Console(ours, disk)
        assert console.receive() == {"ready": 1}
        yield console
    finally:
        process.terminate()
        process.wait(10)
        os.close(theirs)
        os.close(ours)


def test_what_was_written_is_found(vload: Console, disk: Path) -> None:
    found = vload.mix()
    assert found["reads"] > 0
    assert found["writes"] > 0
    answer = vload.ask("verify", size=512 * KIB, bs=4096)
    assert answer["blocks"] == 128
    assert 0 < answer["written"] <= min(128, found["writes"])
    # Nothing was written behind the given range.
    assert not any(disk.read_bytes()[512 * KIB:])


@pytest.mark.parametrize("change", [
    lambda data: bytes(len(data)),
    lambda data: data[4096:] + data[:4096],
    lambda data: data[:512] + bytes(8) + data[520:]])
def test_what_was_lost_or_misplaced_is_said(vload: Console, disk: Path,
                                            change: Callable[[bytes], bytes]) -> None:
    vload.mix(reads=0)
    before = disk.read_bytes()
    with open(disk, "r+b") as file:
        file.write(change(before[:512 * KIB]))
    assert "is not what was written" in vload.ask("verify", size=512 * KIB, bs=4096)["error"]
    assert "is not what was written" in vload.mix(reads=100, time_ms=60_000)["error"]


def test_an_older_state_is_said(vload: Console, disk: Path) -> None:
    vload.mix(size=64 * KIB, reads=0)
    before = disk.read_bytes()
    vload.mix(size=64 * KIB, reads=0, seed=4)
    with open(disk, "r+b") as file:
        file.write(before[:4096])
    assert "sector 0 is not" in vload.ask("verify", size=64 * KIB, bs=4096)["error"]


@pytest.mark.parametrize(("options", "text"), [
    ({"bs": 100}, "bs must be"), ({"bs": 0}, "bs must be"), ({"bs": 2 << 20}, "bs must be"),
    ({"size": 1 << 30}, "size must be at most 1048576")])
def test_a_bad_option_is_said(vload: Console, options: dict[str, object], text: str) -> None:
    assert text in vload.mix(**options)["error"]


def test_the_next_command_ends_a_mix(vload: Console) -> None:
    vload.send("mix", size=64 * KIB, bs=4096, reads=50, time_ms=600_000, seed=1)
    assert "blocks" not in vload.ask("verify", size=64 * KIB, bs=4096)
    assert vload.receive()["blocks"] == 16
