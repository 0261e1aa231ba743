# SPDX-License-Identifier: Apache-2.0
"""``vcache top``: rows and their order, output for scripts, and the live table's keys."""

import contextlib
import dataclasses
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from fcntl import ioctl
from pathlib import Path

import pytest

from tests.unit import fake_kernel
from tests.unit.fake_kernel import UUID, Kernel, counts, device, tag
from tests.unit.test_observe import sample
from vcache_agent import histogram, tables, top
from vcache_agent.cmd import cli, top_cli
from vcache_agent.model import Stats
from vcache_agent.netlink import client
from vcache_agent.observe.recording import Writer

ROOT = Path(__file__).resolve().parents[2]
NONE = Stats(flush_hist=counts(), read_hist=counts())


def rows(sort: str, reverse: bool = False) -> list[int]:
    """Return the order of three tags: 1 is slow, 2 has most requests, 3 the largest share."""
    before = sample(10.0, *(tag(number, stats=NONE) for number in (1, 2, 3)), devices=(device(),))
    after = sample(12.0, tag(1, cache_share_bytes=1, stats=Stats(
        flushes=1, flush_hist=counts(b100=1), read_hist=counts(), reads=1, read_bytes=9000,
        cache_hit_bytes=9000)), tag(2, cache_share_bytes=2, stats=Stats(
            flushes=1, flush_hist=counts(b50=1), read_hist=counts(), writes=50, reads=8,
            read_bytes=100, cache_hit_bytes=50)), tag(3, cache_share_bytes=3, stats=NONE),
        devices=(device(),))
    return [row["tag"] for row in top.rows(before, after, {}, sort, reverse)]


def test_the_order() -> None:
    assert rows("p99") == [1, 2, 3]
    assert rows("iops") == [2, 1, 3]
    assert rows("bytes") == [1, 2, 3]
    assert rows("share") == [3, 2, 1]
    assert rows("hits") == [1, 2, 3]
    assert rows("p99", reverse=True) == [2, 1, 3], "without a flush, last in both orders"
    assert rows("share", reverse=True) == [1, 2, 3]


def test_a_row() -> None:
    before = sample(10.0, tag(9, stats=NONE), devices=(device(),))
    now = tag(9)
    after = sample(12.0, dataclasses.replace(now, stats=dataclasses.replace(
        now.stats, write_hist=counts(b60=50, b100=50))), devices=(device(),))
    (row,) = top.rows(before, after, {UUID: "vm"})
    assert row == {
        "device": "254:3", "device_name": "images", "tag": 9, "name": f"{UUID}:vda",
        "domain": "vm", "disk": "vda", "iops": 75.0, "reads_per_s": 50.0, "writes_per_s": 25.0,
        "flushes_per_s": 1.5, "read_bytes_per_s": 204800, "write_bytes_per_s": 102400,
        "bytes_per_s": 307200, "hit_ratio": 0.51, "flush_p50_us": row["flush_p50_us"],
        "flush_p99_us": row["flush_p99_us"], "read_p99_us": row["read_p99_us"],
        "write_p99_us": row["write_p99_us"],
        "cached_bytes": 5 << 20, "share_bytes": 10 << 20, "dirty_bytes": 4096,
        "cache_dirty_bytes": 0}
    assert histogram.lower(100) < 1000 * row["write_p99_us"] < histogram.lower(101)
    assert top_cli.cells(row)[top_cli._COLUMNS.index("WRITE-P99")] == tables.microseconds(
        row["write_p99_us"])
    assert len(top_cli.cells(row)) == len(top_cli._COLUMNS)
    assert top.rows(before, after, {})[0]["domain"] == UUID


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    made = Kernel((device(),), (tag(0), tag(9)), fake_kernel.grow)
    monkeypatch.setattr(client, "socket", fake_kernel.install(made))
    return made


def test_once(kernel: Kernel, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    where = ["--socket", str(tmp_path / "no-agent")]
    assert cli.main([*where, "top", "--once", "--interval", "1"]) == 0
    table = capsys.readouterr().out.splitlines()
    assert table[0].split() == list(top_cli._COLUMNS)
    assert len(table) == 3
    assert table[1].split()[0] == UUID, "the busy tag first"
    assert table[2].split()[0] == "host"
    assert cli.main([*where, "top", "--once", "--json", "--interval", "1", "--sort", "share",
                     "--reverse"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["interval_s"] >= 1
    assert {row["tag"]: row["reads_per_s"] > 0 for row in found["tags"]} == {0: False, 9: True}


def test_without_the_module(kernel: Kernel, capsys: pytest.CaptureFixture[str]) -> None:
    kernel.loaded = False
    assert cli.main(["top", "--once"]) == 3
    assert "modprobe dm-vcache" in capsys.readouterr().err


class Terminal:
    """The command in a terminal of 160 columns."""

    def __init__(self, folder: Path) -> None:
        with Writer(folder / "state") as writer:
            writer.write(sample(0.0, tag(0), tag(9), devices=(device(),)))
        self._ours, theirs = pty.openpty()
        ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
        self.before = termios.tcgetattr(theirs)
        self._theirs = theirs
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.unit.fake_kernel", str(folder / "state"), "cli",
             "--socket", str(folder / "no-agent"), "top", "--interval", "1"],
            stdin=theirs, stdout=theirs, stderr=theirs, cwd=ROOT,
            env={**os.environ, "TERM": "xterm"},
            # Shells let background jobs, such as a test run, ignore it.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        self._shown = ""
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while data := os.read(self._ours, 65536):
                self._shown += data.decode(errors="replace")

    def until(self, text: str) -> None:
        """Wait for a text on the screen, then forget what was shown."""
        end = time.monotonic() + 120
        while text not in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self._shown):
            assert time.monotonic() < end, self._shown[-2000:]
            assert self.process.poll() is None, self._shown[-2000:]
            time.sleep(0.05)
        self._shown = ""

    def press(self, key: str) -> None:
        os.write(self._ours, key.encode())

    def settings(self) -> list[object]:
        return termios.tcgetattr(self._theirs)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._theirs)
        os.close(self._ours)


def test_the_live_table_and_its_keys(tmp_path: Path) -> None:
    with contextlib.closing(Terminal(tmp_path)) as terminal:
        terminal.until("by p99, largest first")
        terminal.press("i")
        terminal.until("by iops, largest first")
        terminal.press("r")
        terminal.until("by iops, smallest first")
        terminal.press("x")  # no such key
        terminal.until("by iops, smallest first")
        terminal.press("q")
        assert terminal.process.wait(120) == 0
        assert terminal.settings() == terminal.before


def test_ctrl_c_ends_the_live_table(tmp_path: Path) -> None:
    with contextlib.closing(Terminal(tmp_path)) as terminal:
        terminal.until("by p99")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.process.wait(120) == 130
        assert terminal.settings() == terminal.before
