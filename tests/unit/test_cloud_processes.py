# SPDX-License-Identifier: Apache-2.0
"""The processes of tests/cloud: what does not end, and what fails, says so."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.box.inside import InsideError
from tests.cloud import processes


@pytest.fixture(autouse=True)
def unscaled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VCACHE_TIME_SCALE", "1")


def test_a_command_that_does_not_end_says_what_it_printed() -> None:
    with pytest.raises(AssertionError, match="timed out(.|\\n)*on its way"):
        processes.finish(["sh", "-c", "echo on its way; exec sleep 60"], 1.5, capture_output=True)
    assert processes.finish(["sh", "-c", "echo out; exit 3"], 60, stdout=subprocess.PIPE).returncode


def test_a_command_that_fails_says_the_end_of_its_log(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\necho no database\nexit 3\n")
    program.chmod(0o755)
    with pytest.raises(AssertionError, match="exit status 3; end of .*sync.log:\nno database"):
        processes.run(tmp_path, "sync", str(program))


def test_a_process_that_does_not_end(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    made = processes.Process(tmp_path, "deaf", [sys.executable, "-c", (
        "import pathlib, signal, time; signal.signal(15, signal.SIG_IGN); "
        f"pathlib.Path({str(ready)!r}).touch(); time.sleep(60)")])
    processes.wait_for(ready.exists, "it runs")
    with pytest.raises(InsideError, match="deaf: it did not end within 0.2 s"):
        made.stop(0.2)
    assert not made.runs


def test_wait_for_names_what_did_not_come() -> None:
    with pytest.raises(AssertionError, match="a notification: not within 0.2 s"):
        processes.wait_for(lambda: False, "a notification", 0.2)
