# SPDX-License-Identifier: Apache-2.0
"""The benchmarks' loads say what failed."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import inside as boxed
from bench import loads
from tests.box.inside import InsideError
from tests.box.steps import describe


def test_fio_that_fails_names_the_disk_and_the_reason() -> None:
    good = {"jobname": "load", "error": 0}
    assert boxed.fio_jobs("note\n" + json.dumps({"jobs": [good]}), "/dev/x") == [good]
    with pytest.raises(InsideError, match="fio on /dev/x: job load failed with error 5"):
        boxed.fio_jobs(json.dumps({"jobs": [good, {**good, "error": 5}]}), "/dev/x")
    with pytest.raises(InsideError, match="fio on /dev/x printed no figures: 'no such device'"):
        boxed.fio_jobs("no such device\n", "/dev/x")


def test_until_names_what_it_waited_for() -> None:
    with pytest.raises(InsideError, match=r"destage of volume 1: not within 0\.01 s"):
        loads.until(lambda: False, "destage of volume 1", 0.01)


def _use(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """Have a program in the place of fio."""
    popen = subprocess.Popen

    def start(command: list[str], **options: Any) -> "subprocess.Popen[str]":
        assert command[0] == "fio"
        return popen([sys.executable, "-c", program], **options)

    monkeypatch.setattr("bench.loads.subprocess.Popen", start)


def test_fio_that_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loads, "_requests", lambda path: 0)
    _use(monkeypatch, "print('cannot open'); raise SystemExit(3)")
    with pytest.raises(InsideError) as caught, loads.busy("/dev/x", {}):
        raise AssertionError("not reached")
    assert describe(caught.value) == "fio on /dev/x ended with status 3: 'cannot open'"


def test_an_error_beside_a_load_is_the_first(monkeypatch: pytest.MonkeyPatch,
                                             tmp_path: Path) -> None:
    requests = iter(range(0, 10000, 1000))
    monkeypatch.setattr(loads, "_requests", lambda path: next(requests))
    monkeypatch.setattr(loads, "_LIMIT_S", 0.5)
    ready = tmp_path / "ready"
    _use(monkeypatch, "import pathlib, signal, time; signal.signal(2, signal.SIG_IGN); "
                      f"pathlib.Path({str(ready)!r}).touch(); time.sleep(60)")

    def work() -> None:
        while not ready.exists():
            pass
        raise InsideError("first")

    with pytest.raises(InsideError) as caught, loads.busy("/dev/x", {}):
        work()
    assert describe(caught.value).splitlines() == [
        "first", "clean-up also failed: fio on /dev/x did not end within 0.5 s of SIGINT"]
