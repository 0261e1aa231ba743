# SPDX-License-Identifier: Apache-2.0
"""The first error stays the first, whatever the clean-ups do."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.box import inside, steps
from tests.box.inside import InsideError
from tests.box.steps import Stack, at_end, describe, each, on_error, step

REPO = Path(__file__).resolve().parents[2]


class First(Exception):
    pass


def _fails(text: str, done: list[str] | None = None) -> None:
    if done is not None:
        done.append(text)
    raise InsideError(text)


def test_a_failing_clean_up_does_not_replace_the_error() -> None:
    done: list[str] = []
    with pytest.raises(First, match="original") as caught:
        with at_end(done.append, "outer"), at_end(_fails, "second", done), \
                at_end(_fails, "first", done):
            raise First("original")
    assert done == ["first", "second", "outer"]
    assert caught.value.__notes__ == ["clean-up also failed: first",
                                      "clean-up also failed: second"]


def test_a_failing_clean_up_is_an_error_after_a_block_that_did_not_fail() -> None:
    done: list[str] = []
    with pytest.raises(InsideError, match="inner") as caught:
        with at_end(done.append, "last"), at_end(_fails, "outer", done), at_end(_fails, "inner"):
            pass
    assert done == ["outer", "last"]
    assert describe(caught.value) == "inner\nclean-up also failed: outer"


def test_clean_ups_run_without_an_error() -> None:
    done: list[str] = []
    with at_end(done.append, "outer"), at_end(done.append, "inner"):
        assert done == []
    assert done == ["inner", "outer"]


def test_on_error_only() -> None:
    done: list[str] = []
    with on_error(done.append, "not this"):
        pass
    with pytest.raises(First) as caught, on_error(_fails, "that", done):
        raise First("original")
    assert done == ["that"]
    assert caught.value.__notes__ == ["clean-up also failed: that"]


def test_a_stack_follows_the_same_rule() -> None:
    done: list[str] = []

    def work() -> None:
        with Stack() as stack:
            stack.callback(done.append, "outer")
            stack.callback(_fails, "inner", done)
            raise First("original")

    with pytest.raises(First) as caught:
        work()
    assert done == ["inner", "outer"]
    assert caught.value.__notes__ == ["clean-up also failed: inner"]


def test_context_managers_made_of_generators() -> None:
    @contextlib.contextmanager
    def made(name: str) -> Iterator[str]:
        with at_end(_fails, f"remove {name}"):
            yield name

    with pytest.raises(First) as caught, made("disk"), made("pool"):
        raise First("original")
    assert caught.value.__notes__ == ["clean-up also failed: remove pool",
                                      "clean-up also failed: remove disk"]


def test_a_generator_that_is_closed_has_no_error_to_keep() -> None:
    def made() -> Iterator[None]:
        with at_end(_fails, "remove"), step("use"):
            yield

    generator = made()
    next(generator)
    with pytest.raises(InsideError, match="remove"):
        generator.close()  # type: ignore[attr-defined]


def test_an_interrupted_clean_up_is_not_held_up() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), at_end(interrupted):
        raise First("original")


def test_the_steps_that_an_error_has_left() -> None:
    with pytest.raises(InsideError) as caught:
        with step("slow disk"), step("starting instance syncer (instance-00000002)"):
            raise InsideError("virsh -q start instance-00000002: not finished after 120 s")
    assert describe(caught.value) == (
        "slow disk: starting instance syncer (instance-00000002): "
        "virsh -q start instance-00000002: not finished after 120 s")
    assert caught.value.__notes__ == [
        "during: starting instance syncer (instance-00000002)", "during: slow disk"]


def test_a_clean_up_is_told_with_its_own_step() -> None:
    def remove() -> None:
        with step("removing the pool"), at_end(_fails, "deeper"):
            raise InsideError("busy")

    with pytest.raises(First) as caught, step("measuring"), at_end(remove):
        raise First("original")
    assert describe(caught.value).splitlines() == [
        "measuring: First: original",
        "clean-up also failed: removing the pool: busy", "clean-up also failed: deeper"]


def test_repeated_lines_are_told_once() -> None:
    busy = "device-mapper: remove ioctl on slow failed: Device or resource busy"
    text = "dmsetup remove --retry slow: exit status 1: " + "\n".join([busy] * 25)
    with pytest.raises(First) as caught, at_end(_fails, text):
        raise First("original")
    assert describe(caught.value).splitlines()[1:] == [
        f"clean-up also failed: dmsetup remove --retry slow: exit status 1: {busy}",
        f"{busy} (24 times)"]


def test_a_long_error_of_a_clean_up_is_cut() -> None:
    with pytest.raises(First) as caught, at_end(_fails, "\n".join(map(str, range(1, 101)))):
        raise First("x" * 400)
    lines = describe(caught.value).splitlines()
    assert "x" * 400 in lines[0]
    assert lines[1:] == ["clean-up also failed: 1", "2", "... (96 lines left out)", "99", "100"]
    with pytest.raises(First) as caught, at_end(_fails, "y" * 400):
        raise First("original")
    assert len(describe(caught.value).splitlines()[1]) < 330


def test_where_an_error_was_replaced_the_original_is_told_first() -> None:
    def replaced() -> None:
        try:
            _fails("virsh start: not finished")
        finally:
            with step("umount"):
                _fails("busy")

    def explained() -> None:
        try:
            _fails("first")
        except InsideError as error:
            raise InsideError("what it means") from error

    with pytest.raises(InsideError) as caught:
        replaced()
    assert describe(caught.value) == "virsh start: not finished\nthen: umount: busy"
    with pytest.raises(InsideError) as caught:
        explained()
    assert describe(caught.value) == "what it means\nbecause of: first"


def test_other_errors_are_told_by_their_kind() -> None:
    assert describe(KeyError("iops")) == "KeyError: 'iops'"
    assert describe(AssertionError()) == "AssertionError"
    assert describe(AssertionError("no host")) == "no host"
    assert describe(FileNotFoundError(2, "No such file", "x")) == (
        "[Errno 2] No such file: 'x'")


def test_the_output_of_a_failed_command_is_told() -> None:
    with pytest.raises(subprocess.CalledProcessError) as failed:
        subprocess.run(["sh", "-c", "echo figures; echo reason >&2; exit 3"], check=True,
                       capture_output=True)
    assert describe(failed.value).endswith("exit status 3.\nfigures\nreason")
    assert describe(subprocess.TimeoutExpired("fio", 5)).endswith("after 5 seconds")


def test_each_goes_on() -> None:
    done: list[str] = []
    with pytest.raises(InsideError, match="a") as caught:
        each(lambda name: _fails(name, done), ["a", "b", "c"])
    assert done == ["a", "b", "c"]
    assert caught.value.__notes__ == ["clean-up also failed: b", "clean-up also failed: c"]


def _program(body: str) -> subprocess.CompletedProcess[str]:
    text = ("from tests.box import inside, steps\n"
            "with steps.explained('demo'), steps.at_end(inside.run, 'false'):\n"
            f"    with steps.step('measuring'):\n        {body}\n")
    return subprocess.run([sys.executable, "-c", text], cwd=REPO, capture_output=True, text=True,
                          check=False, timeout=60)


def test_a_programs_last_words() -> None:
    done = _program("inside.run('sh', '-c', 'echo gone >&2; exit 3')")
    assert (done.returncode, done.stderr) == (1, (
        "demo: measuring: sh -c echo gone >&2; exit 3: exit status 3: gone\n"
        "clean-up also failed: false: exit status 1:\n"))


def test_a_program_with_a_mistake_shows_where() -> None:
    done = _program("[][1]")
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert done.stderr.splitlines()[-2:] == [
        "demo: measuring: IndexError: list index out of range",
        "clean-up also failed: false: exit status 1:"]


def test_the_host_sees_the_step(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VCACHE_BOX", "1")
    monkeypatch.setattr(steps, "_SHARED", tmp_path)
    file = tmp_path / steps.STEP_FILE
    with step("demo"):
        with step("bare"):
            assert file.read_text() == "demo: bare"
        assert file.read_text() == "demo"
        with pytest.raises(First), step("vcache"):
            raise First
        assert file.read_text() == "demo: vcache"


def test_a_command_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VCACHE_TIME_SCALE", "1")
    with pytest.raises(InsideError) as caught, step("starting"):
        inside.run("sh", "-c", "echo out; echo err >&2; exec sleep 60", timeout=1.5)
    assert describe(caught.value) == (
        "starting: sh -c echo out; echo err >&2; exec sleep 60: not finished after 1.5 s; "
        "its output so far:\nout\nerr")


def test_a_command_that_says_nothing_and_one_that_is_not_there(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VCACHE_TIME_SCALE", "1")
    with pytest.raises(InsideError, match="sleep 60: not finished after 0.2 s; it has printed"):
        inside.run("sleep", "60", timeout=0.2)
    with pytest.raises(InsideError, match="no-such-command: .*No such file"):
        inside.run("no-such-command")


def test_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VCACHE_TIME_SCALE", "1")
    sleeper = subprocess.Popen(["sleep", "60"])
    inside.stop(sleeper, "sleeper")
    assert sleeper.returncode
    deaf = subprocess.Popen(["sh", "-c", "trap '' TERM; echo; exec sleep 60"],
                            stdout=subprocess.PIPE)
    assert deaf.stdout
    deaf.stdout.readline()
    with pytest.raises(InsideError, match="deaf: it did not end within 0.3 s of SIGTERM$"):
        inside.stop(deaf, "deaf", 0.3)
    assert deaf.returncode
