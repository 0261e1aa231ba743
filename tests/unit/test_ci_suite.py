# SPDX-License-Identifier: Apache-2.0
"""The last line of a run, from which continuous integration takes the result."""

import importlib.util
import pathlib
import subprocess
import sys
import types

import pytest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / ".ci" / "suite.py"


@pytest.fixture
def suite(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """Return the script as a module that uses an empty repository."""
    spec = importlib.util.spec_from_file_location("ci_suite", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "ci_suite", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "RESULTS", tmp_path / "build" / "test")
    # Plugins are a third of the start of pytest.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    return module


def write(root: pathlib.Path, folder: str, text: str) -> None:
    (root / "tests" / folder).mkdir(parents=True)
    (root / "tests" / folder / "test_one.py").write_text(text)


def run(suite: types.ModuleType, monkeypatch: pytest.MonkeyPatch, *folders: str) -> int:
    monkeypatch.setattr(sys, "argv", ["suite.py", *folders])
    return int(suite.main())


def test_counts_are_added_over_suites(
        suite: types.ModuleType, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch,
        capfd: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "unit", "def test_a(): pass\ndef test_b(): pass\n")
    write(tmp_path, "core",
          "import pytest\ndef test_c(): pass\n@pytest.mark.skip\ndef test_d(): pass\n")
    assert run(suite, monkeypatch) == 0
    assert capfd.readouterr().out.splitlines()[-1] == "3 passed, 0 failed, 1 skipped"


def test_a_quick_run_leaves_out_what_is_slow(
        suite: types.ModuleType, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch,
        capfd: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "unit", "import pytest\ndef test_a(): pass\n"
          "@pytest.mark.slow\ndef test_b(): assert False\n")
    assert run(suite, monkeypatch, "--quick", "unit") == 0
    assert capfd.readouterr().out.splitlines()[-1] == "1 passed, 0 failed, 0 skipped"
    assert run(suite, monkeypatch, "unit") == 1


def test_a_failure_in_one_suite_does_not_stop_the_next(
        suite: types.ModuleType, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch,
        capfd: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "unit", "def test_a(): assert False\n")
    write(tmp_path, "core", "def test_b(): pass\n")
    assert run(suite, monkeypatch) == 1
    assert capfd.readouterr().out.splitlines()[-1] == "1 passed, 1 failed, 0 skipped"


@pytest.mark.parametrize("text", ["", "import pytest\npytest.exit('gone', 0)\n", "raise OSError\n"])
def test_a_suite_that_ran_nothing_has_failed(
        suite: types.ModuleType, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch,
        capfd: pytest.CaptureFixture[str], text: str) -> None:
    write(tmp_path, "unit", text)
    assert run(suite, monkeypatch) == 1
    assert capfd.readouterr().out.splitlines()[-1] == "0 passed, 1 failed, 0 skipped"


def test_only_what_was_asked_for_runs(
        suite: types.ModuleType, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch,
        capfd: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "unit", "def test_a(): pass\n")
    write(tmp_path, "core", "def test_b(): assert False\n")
    assert run(suite, monkeypatch, "unit") == 0
    assert capfd.readouterr().out.splitlines()[-1] == "1 passed, 0 failed, 0 skipped"


def test_one_that_has_to_be_asked_for_is_no_part_of_all(
        suite: types.ModuleType, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch,
        capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(suite, "SUITES", (
        suite.Suite("unit", boxed=False, minutes=1),
        suite.Suite("far", boxed=False, minutes=1, asked=True)))
    write(tmp_path, "unit", "def test_a(): pass\n")
    write(tmp_path, "far", "def test_b(): pass\ndef test_c(): pass\n")
    assert run(suite, monkeypatch) == 0
    assert capfd.readouterr().out.splitlines()[-1] == "1 passed, 0 failed, 0 skipped"
    assert run(suite, monkeypatch, "far") == 0
    assert capfd.readouterr().out.splitlines()[-1] == "2 passed, 0 failed, 0 skipped"


def test_suites_run_side_by_side(
        suite: types.ModuleType, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch,
        capfd: pytest.CaptureFixture[str]) -> None:
    """Each waits for the other; the output of the second is printed in one piece."""
    meet = ("import pathlib, time\n"
            "def test_meet():\n"
            "    pathlib.Path('{mine}').touch()\n"
            "    limit = time.monotonic() + 240\n"
            "    while not pathlib.Path('{other}').exists():\n"
            "        assert time.monotonic() < limit\n"
            "        time.sleep(0.05)\n")
    write(tmp_path, "unit", meet.format(mine=tmp_path / "a", other=tmp_path / "b"))
    write(tmp_path, "powercut", meet.format(mine=tmp_path / "b", other=tmp_path / "a"))
    assert run(suite, monkeypatch) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[-1] == "2 passed, 0 failed, 0 skipped"
    assert any(line.startswith("tests/unit/test_one.py .") for line in lines)


def test_the_next_suite_does_not_wait_for_a_long_one(
        suite: types.ModuleType, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch,
        capfd: pytest.CaptureFixture[str]) -> None:
    """The first waits for the last; all others have to run beside it."""
    first, *others = [one.folder for one in suite.SUITES if not (one.boxed or one.venv)]
    write(tmp_path, first,
          "import pathlib, time\n"
          "def test_long():\n"
          "    limit = time.monotonic() + 240\n"
          f"    while not pathlib.Path('{tmp_path / 'done'}').exists():\n"
          "        assert time.monotonic() < limit\n"
          "        time.sleep(0.05)\n")
    for folder in others[:2]:
        write(tmp_path, folder, "def test_short(): pass\n")
    write(tmp_path, others[2],
          f"import pathlib\ndef test_last(): pathlib.Path('{tmp_path / 'done'}').touch()\n")
    assert run(suite, monkeypatch) == 0
    assert capfd.readouterr().out.splitlines()[-1] == "4 passed, 0 failed, 0 skipped"


def test_a_second_try_is_the_last(
        suite: types.ModuleType, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch,
        capfd: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "unit",
          "import pathlib\n"
          "def test_a():\n"
          f"    path = pathlib.Path('{tmp_path / 'tried'}')\n"
          "    with open(path, 'a') as file:\n"
          "        file.write('x')\n"
          "    assert path.read_text() == 'xx'\n")
    assert run(suite, monkeypatch) == 0
    assert "a second and last try" in capfd.readouterr().out
    # Without time for a second try, there is only one.
    (tmp_path / "tried").unlink()
    monkeypatch.setattr(suite, "RETRY_UNTIL", 0)
    assert run(suite, monkeypatch) == 1
    assert (tmp_path / "tried").read_text() == "x"


def test_no_suite_at_all_is_a_failure(
        suite: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(suite, monkeypatch) == 1


def test_a_suite_that_hangs_may_end_its_boxes(
        suite: types.ModuleType, tmp_path: pathlib.Path) -> None:
    ended = tmp_path / "ended"
    ready = tmp_path / "ready"
    script = f"trap ': > {ended}; exit 1' TERM; : > {ready}; while :; do sleep 0.1; done"

    for seconds in (1, 5, 25):  # on a busy machine, the shell takes longer to start
        with pytest.raises(subprocess.TimeoutExpired):
            suite.finish(["sh", "-c", script], seconds)
        if ready.exists():
            break
    assert ended.exists()
    assert suite.finish(["sh", "-c", "exit 3"], 60)[0] == 3


def test_processor_time_includes_that_of_children(suite: types.ModuleType, tmp_path: pathlib.Path
                                                  ) -> None:
    work = "import time\nwhile time.process_time() < 1: pass"
    status, used = suite.finish(["sh", "-c", f"{sys.executable} -c '{work}'; true"], 600)
    assert status == 0
    assert 0.5 <= used < 30  # the kernel counts ticks, and rounds down
    assert suite.finish(["sleep", "1"], 600)[1] < 0.5


@pytest.mark.parametrize(("processors", "gib", "wanted"), [
    (1, 64, 3), (2, 23.4, 4), (2, 7.7, 3), (2, 7, 2), (2, 2, 2), (8, 64, 10), (64, 31, 12)])
def test_suites_at_a_time(suite: types.ModuleType, processors: int, gib: float, wanted: int
                          ) -> None:
    assert suite.lanes(processors, gib) == wanted


def test_a_boxed_suite_boots_its_own_box(
        suite: types.ModuleType, tmp_path: pathlib.Path) -> None:
    junit = tmp_path / "x.xml"
    line = suite.command(suite.Suite("kernel", boxed=True, minutes=2), junit, False, [])
    assert line[1:3] == ["-m", "tests.kernel"]
    assert line[3:] == ["-p", "no:cacheprovider", f"--junitxml={junit}", "tests/kernel"]


def test_a_part_of_a_suite_has_its_own_box_and_files(
        suite: types.ModuleType, tmp_path: pathlib.Path) -> None:
    junit = tmp_path / "x.xml"
    part = suite.Suite("kernel", boxed=True, minutes=2, part="smp", marks="smp",
                       box=("--cpus", "2"))
    assert part.name == "kernel-smp"
    line = suite.command(part, junit, False, [])
    assert line[3:] == ["--cpus", "2", "-p", "no:cacheprovider", f"--junitxml={junit}",
                        "-m", "(smp)", "tests/kernel"]
    line = suite.command(part, junit, False, ["tests/kernel/test_one.py::test_a"])
    assert line[7:] == [f"--junitxml={junit}", "tests/kernel/test_one.py::test_a"]


def test_a_quick_run_of_a_part(suite: types.ModuleType, tmp_path: pathlib.Path) -> None:
    """Pytest applies only the last -m."""
    part = suite.Suite("kernel", boxed=True, minutes=2, part="some", marks="a or b")
    line = suite.command(part, tmp_path / "x.xml", True, [])
    assert line[-3:] == ["-m", "(a or b) and (not slow)", "tests/kernel"]


@pytest.mark.parametrize(("names", "selected"), [
    ([], ["kernel", "kernel-smp", "unit"]),
    (["kernel"], ["kernel", "kernel-smp"]),
    (["unit", "kernel-smp"], ["kernel-smp", "unit"]),
    (["kernel-quick"], ["kernel-quick"]),
    (["devstack"], ["devstack"])])
def test_suites_by_name(suite: types.ModuleType, names: list[str], selected: list[str]) -> None:
    suites = [
        suite.Suite("kernel", boxed=True, minutes=2),
        suite.Suite("kernel", boxed=True, minutes=2, part="smp"),
        suite.Suite("kernel", boxed=True, minutes=2, part="quick", asked=True),
        suite.Suite("unit", boxed=False, minutes=2),
        suite.Suite("devstack", boxed=False, minutes=2, asked=True)]
    assert [one.name for one in suites if one.selected(names)] == selected


@pytest.mark.parametrize("smp", [False, True])
@pytest.mark.parametrize("box", [False, True])
def test_each_kernel_test_runs_somewhere(suite: types.ModuleType, smp: bool, box: bool) -> None:
    parts = [one for one in suite.SUITES if one.folder == "kernel" and not one.asked]
    runs = [one for one in parts
            if eval(one.marks, {"smp": smp, "box": box})]  # noqa: S307 - our own
    assert runs
    # Two processors are only in the emulated box.
    assert not smp or not any("--uml" in one.box for one in runs)
    assert not smp or not any("--cpus" in one.box for one in runs)


def test_a_suite_with_an_environment_of_its_own_has_it_made_first(
        suite: types.ModuleType, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch,
        capfd: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "openstack", "def test_a(): pass\n")
    script = tmp_path / ".ci" / "openstack-venv"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\nmkdir -p build/openstack/venv/bin\n"
                      f"ln -sf {sys.executable} build/openstack/venv/bin/python\n"
                      "echo made\n")
    script.chmod(0o755)
    monkeypatch.setenv("PYTHONPATH", ":".join(sys.path))
    assert run(suite, monkeypatch, "openstack") == 0
    out = capfd.readouterr().out.splitlines()
    assert "made" in out and out[-1] == "1 passed, 0 failed, 0 skipped"
    # An environment that cannot be created is a failure.
    script.write_text("#!/bin/sh\nexit 3\n")
    assert run(suite, monkeypatch, "openstack") == 1
    assert "openstack-venv" in capfd.readouterr().out


def test_suites_have_different_names(suite: types.ModuleType) -> None:
    assert len({one.name for one in suite.SUITES}) == len(suite.SUITES)


def test_a_second_try_is_of_what_failed(
        suite: types.ModuleType, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch,
        capfd: pytest.CaptureFixture[str]) -> None:
    """Tests that failed, or whose set-up failed, run again; the others do not."""
    tried = tmp_path / "tried"
    write(tmp_path, "unit",
          "import pathlib, pytest\n"
          f"TRIED = pathlib.Path('{tried}')\n"
          "def once(name):\n"
          "    with open(TRIED, 'a') as file:\n"
          "        file.write(name)\n"
          "    return TRIED.read_text().count(name) > 1\n"
          "@pytest.fixture\n"
          "def setting():\n"
          "    assert once('s')\n"
          "def test_a(): once('a')\n"
          "@pytest.mark.parametrize('x', ['p q', 'r'])\n"
          "def test_b(x): assert x == 'r' or once('b')\n"
          "def test_c(setting): pass\n"
          "@pytest.mark.skip\n"
          "def test_d(): pass\n")
    assert run(suite, monkeypatch) == 0
    assert capfd.readouterr().out.splitlines()[-1] == "4 passed, 0 failed, 1 skipped"
    assert sorted(tried.read_text()) == ["a", "b", "b", "s", "s"]


def test_what_fails_twice_has_failed(
        suite: types.ModuleType, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch,
        capfd: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "unit", "def test_a(): pass\ndef test_b(): assert False\n")
    assert run(suite, monkeypatch) == 1
    assert capfd.readouterr().out.splitlines()[-1] == "1 passed, 1 failed, 0 skipped"
