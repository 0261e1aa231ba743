# SPDX-License-Identifier: Apache-2.0
"""Time limits that grow with the slowness of the machine."""

from pathlib import Path

import pytest

from tests.box import inside, limits


@pytest.fixture(autouse=True)
def own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(limits.VARIABLE, raising=False)
    monkeypatch.delenv("VCACHE_BOX", raising=False)
    monkeypatch.setattr(limits, "_SHARED", tmp_path / "scale")
    monkeypatch.setattr(limits, "_known", 0.0)


def _takes(monkeypatch: pytest.MonkeyPatch, work: float, wait: float) -> None:
    monkeypatch.setattr(limits, "_work", lambda: work * limits._HOST_WORK)
    monkeypatch.setattr(limits, "_wait", lambda: wait * limits._HOST_WAIT)


@pytest.mark.parametrize(("work", "wait", "factor"), [
    (0.2, 0.5, 1), (3, 1, 3), (1, 4, 4), (1000, 1, limits._LARGEST)])
def test_factor(monkeypatch: pytest.MonkeyPatch, work: float, wait: float, factor: float) -> None:
    _takes(monkeypatch, work, wait)
    assert limits.scale() == pytest.approx(factor)
    assert limits.limit(10) == pytest.approx(10 * factor)


def test_measured_once_and_then_a_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    _takes(monkeypatch, 3, 1)
    assert limits.scale() == pytest.approx(3)
    _takes(monkeypatch, 5, 1)
    assert limits.scale() == pytest.approx(3)
    assert limits.again() == pytest.approx(5)
    assert limits.scale() == pytest.approx(4)
    _takes(monkeypatch, 1, 1)
    assert limits.again() == 1
    assert limits.scale() == pytest.approx(2.5)


def test_real_work_is_measured() -> None:
    assert 1 <= limits.measure() <= limits._LARGEST
    assert limits._work() > 0
    assert limits._wait() > 20 * 0.001


def test_the_processes_of_a_box_share_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VCACHE_BOX", "1")
    monkeypatch.setattr(limits, "measure", lambda: 2.5)
    assert limits.scale() == 2.5
    monkeypatch.setattr(limits, "_known", 0.0)
    monkeypatch.setattr(limits, "measure", lambda: 1.0)
    assert limits.scale() == 2.5


def test_the_environment_has_the_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    _takes(monkeypatch, 7, 7)
    monkeypatch.setenv(limits.VARIABLE, "0.5")
    assert limits.scale() == limits.again() == 0.5
    assert limits.Deadline(10, factor=3).seconds == 5
    for wrong in ("fast", "0", "-1", "nan", "inf"):
        monkeypatch.setenv(limits.VARIABLE, wrong)
        with pytest.raises(ValueError, match="must be a number above 0"):
            limits.scale()


def test_a_deadline_is_extended_if_the_machine_has_become_slow(
        monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(limits.time, "monotonic", lambda: now)
    _takes(monkeypatch, 1, 1)
    deadline = limits.Deadline(10)
    now = 109
    assert not deadline.passed()
    assert deadline.left() == 1
    now = 111
    assert deadline.left() == 0
    _takes(monkeypatch, 4, 1)
    assert not deadline.passed()
    assert (str(deadline), deadline.left()) == ("40 s", 29)
    now = 140
    assert deadline.passed()
    assert deadline.left() == 0


def test_a_deadline_of_a_known_slowness(monkeypatch: pytest.MonkeyPatch) -> None:
    _takes(monkeypatch, 2, 1)
    assert limits.Deadline(10, factor=3).seconds == pytest.approx(30)
    assert limits.Deadline(10, factor=0.1).seconds == pytest.approx(20)


def test_a_slow_command_is_not_taken_to_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit passes, then the machine is found to be slow."""
    _takes(monkeypatch, 1, 1)
    assert limits.scale() == 1
    _takes(monkeypatch, 20, 1)
    line = "echo first; sleep 2; echo second"
    assert inside.run("sh", "-c", line, timeout=1) == "first\nsecond\n"
