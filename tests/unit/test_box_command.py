# SPDX-License-Identifier: Apache-2.0
"""The arguments of the box for virtme-run and for the script inside."""

import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tests.box import kernels, machine
from tests.box.__main__ import parser
from tests.box.box import REPO, Box, BoxError, Disk, KernelSplat


@pytest.fixture(autouse=True)
def image(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(kernels, "select", lambda wanted: "6.1.0-1-amd64")
    monkeypatch.setattr(kernels, "image", lambda release: tmp_path / f"vmlinuz-{release}")
    monkeypatch.setattr(kernels, "kvm_works", lambda image: True)
    monkeypatch.setattr(kernels, "unpacked", lambda image: image.with_suffix(".elf"))


def _line(box: Box, state: Path) -> list[str]:
    return box._virtme_run("6.1.0-1-amd64", state, 9)


def test_icount_takes_one_cpu_and_no_kvm(tmp_path: Path) -> None:
    line = _line(Box(cpus=4, icount=True), tmp_path)
    assert line[line.index("--cpus") + 1] == "1"
    assert "--disable-kvm" in line
    assert line[line.index("-icount") + 1] == "shift=0,sleep=off"


def test_kvm_where_the_probe_passed(tmp_path: Path) -> None:
    assert "--disable-kvm" not in _line(Box(), tmp_path)


def test_an_emulated_processor_does_not_unpack_the_kernel(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "-kernel" not in _line(Box(), tmp_path)
    monkeypatch.setattr(kernels, "kvm_works", lambda image: False)
    line = _line(Box(), tmp_path)
    assert line[line.index("-kernel") + 1].endswith(".elf")
    monkeypatch.setattr(kernels, "unpacked", lambda image: None)
    assert "-kernel" not in _line(Box(), tmp_path)


def test_disk_with_a_comma_in_its_path(tmp_path: Path) -> None:
    line = _line(Box(disks=[Disk(Path("/images/a,b.img"), "ssd")]), tmp_path)
    drive = line[line.index("-drive") + 1]
    assert "file=/images/a,,b.img," in drive
    assert any(option.endswith("serial=ssd") for option in line)


def test_network_devices_in_their_order(tmp_path: Path) -> None:
    line = _line(Box(netdevs=["user,hostfwd=tcp:127.0.0.1:1-:2", "socket,listen=:3"]), tmp_path)
    found = [line[at + 1] for at, word in enumerate(line) if word == "-netdev"]
    assert found == ["user,hostfwd=tcp:127.0.0.1:1-:2,id=boxnet0", "socket,listen=:3,id=boxnet1"]
    assert [word for word in line if word.startswith("virtio-net-pci,netdev=")] == [
        "virtio-net-pci,netdev=boxnet0,romfile=", "virtio-net-pci,netdev=boxnet1,romfile="]


def test_a_disk_that_several_boxes_may_have(tmp_path: Path) -> None:
    image = tmp_path / "image"
    image.touch()
    found = parser().parse_args(["--disk-ro", f"venv={image}", "--", "true"]).disk_ro
    line = _line(Box(disks=[replace(disk, readonly=True) for disk in found]), tmp_path)
    assert line[line.index("-drive") + 1].endswith("readonly=on")


def test_command_survives_the_shell(tmp_path: Path) -> None:
    words = ["printf", "%s|", "a b", "$HOME", "it's", "", "x;y", "\n"]
    Box(env={"WORD": "two words"})._write_state(tmp_path, words)
    script = tmp_path / "io" / "command"
    out = subprocess.run(["sh", str(script)], capture_output=True, text=True, check=True)
    assert out.stdout == "".join(f"{word}|" for word in words[2:])
    env = subprocess.run(["sh", "-c", f". {tmp_path}/io/environment; printf %s \"$WORD\""],
                         capture_output=True, text=True, check=True)
    assert env.stdout == "two words"


def test_writable_folders_are_bound(tmp_path: Path) -> None:
    Box(rw=[REPO / "build", tmp_path])._write_state(tmp_path, ["true"])
    assert (tmp_path / "io" / "binds").read_text() == (
        f"/run/box/rw0 {REPO / 'build'}\n/run/box/rw1 {tmp_path}\n")


def _state(tmp_path: Path, status: str | None, console: str = "") -> Path:
    (tmp_path / "io").mkdir()
    (tmp_path / "console").write_text(console)
    if status is not None:
        (tmp_path / "io" / "status").write_text(status + "\n")
    return tmp_path


def test_exit_status_is_the_commands(tmp_path: Path) -> None:
    result = Box()._judge(_state(tmp_path, "42"), ["false"], False, b"out", 1.0)
    assert (result.status, result.stdout) == (42, b"out")


def test_check_raises(tmp_path: Path) -> None:
    with pytest.raises(BoxError, match="exit status 42"):
        Box()._judge(_state(tmp_path, "42"), ["false"], True, b"", 1.0)


def test_splat_fails_a_command_that_succeeded(tmp_path: Path) -> None:
    state = _state(tmp_path, "0", "Oops: 0002 [#1]")
    with pytest.raises(KernelSplat, match="Oops"):
        Box()._judge(state, ["true"], False, b"", 1.0)
    assert Box(allow_splats=True)._judge(state, ["true"], False, b"", 1.0).status == 0


@pytest.mark.parametrize("status", [None, "setup"])
def test_box_that_failed_itself(tmp_path: Path, status: str | None) -> None:
    with pytest.raises(BoxError, match="last words"):
        Box()._judge(_state(tmp_path, status, "last words"), ["true"], False, b"", 1.0)


def test_no_command() -> None:
    with pytest.raises(ValueError, match="needs a command"):
        Box().run([])


def test_time_limit_starts_with_the_command(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VCACHE_TIME_SCALE", "1")
    sleeper = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        with pytest.raises(machine.BoxTimeout, match="not booted"):
            machine._wait(sleeper, _state(tmp_path, None), 60, ["true"], boot=0)
        (tmp_path / "io" / "started").touch()
        (tmp_path / "io" / "step").write_text("demo: bare")
        with pytest.raises(machine.BoxTimeout,
                           match="not finished after 0.1 s\nits last step: demo: bare"):
            machine._wait(sleeper, tmp_path, 0.1, ["true"], boot=600)
    finally:
        machine._kill_group(sleeper)
    assert sleeper.poll() is not None


def test_a_box_that_boots_slowly_gets_more_time(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VCACHE_TIME_SCALE", raising=False)
    monkeypatch.setattr(machine.limits, "measure", lambda: 1.0)
    state = _state(tmp_path, None)
    process = subprocess.Popen(
        ["sh", "-c", f"sleep 0.4; : > {state}/io/started; sleep 1; : > {state}/io/status"],
        start_new_session=True)
    try:
        # The default is 0.1 s.
        machine._wait(process, state, 0.3, ["true"], boot=1.5)
    finally:
        machine._kill_group(process)
    assert (state / "io" / "status").exists()


def test_a_fault_of_the_kernel_is_what_made_the_box_hang(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VCACHE_TIME_SCALE", "1")
    state = _state(tmp_path, None)
    (state / "io" / "started").touch()
    script = ["sh", "-c", "echo INFO: possible recursive locking detected >&2; exec sleep 60"]
    monkeypatch.setattr(Box, "_virtme_run", lambda *_arguments: script)
    monkeypatch.setattr(Box, "_has_pulse", lambda box: False)
    with open(os.devnull, "wb") as out, \
            pytest.raises(KernelSplat, match="recursive locking(.|\n)*then: .*not finished"):
        Box()._boot("6.1.0-1-amd64", state, ["true"], 1, False, out, out)


def test_output_that_nobody_takes_does_not_stop_the_box(
        capsys: pytest.CaptureFixture[str]) -> None:
    reader, writer = os.pipe()
    taker, sink = os.pipe()
    os.close(taker)
    text = b"x" * 200_000  # more than the size of a pipe
    copy = bytearray()
    with open(sink, "wb", buffering=0) as closed:
        pump = threading.Thread(target=machine._pump, args=(reader, closed, copy))
        pump.start()
        with open(writer, "wb") as qemu:
            qemu.write(text)
        pump.join(30)
    os.close(reader)
    assert not pump.is_alive()
    assert bytes(copy) == text
    assert "box: further output is lost: [Errno 32] Broken pipe" in capsys.readouterr().err


def test_bad_option_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["--disk", "nothing", "--", "true"])
    assert "must be NAME=PATH" in capsys.readouterr().err


def test_sigterm_ends_the_box_too() -> None:
    program = (
        "import subprocess\n"
        "from tests.box import machine\n"
        "child = subprocess.Popen(['sleep', '60'], start_new_session=True)\n"
        "try:\n"
        "    with machine._terminate_as_exit():\n"
        "        print(child.pid, flush=True)\n"
        "        child.wait()\n"
        "finally:\n"
        "    machine._kill_group(child)\n")
    parent = subprocess.Popen([sys.executable, "-c", program], cwd=REPO, text=True,
                              stdout=subprocess.PIPE)
    assert parent.stdout
    child = int(parent.stdout.readline())
    parent.terminate()
    assert parent.wait(10) == 128 + signal.SIGTERM
    parent.stdout.close()
    assert not Path(f"/proc/{child}").exists()


@pytest.mark.parametrize(("deaths", "runs"), [(1, 2), (2, 2)])
def test_a_box_that_does_not_boot_gets_another_try(
        monkeypatch: pytest.MonkeyPatch, deaths: int, runs: int) -> None:
    """One more: the command has not run. A box that fails later is not retried."""
    tries: list[int] = []

    def boot(*_arguments: object) -> machine.Result:
        tries.append(1)
        if len(tries) <= deaths:
            raise machine.BoxNotBooted("box: it ended as it booted")
        return machine.Result(0, b"", 1.0)

    monkeypatch.setattr(Box, "_boot", boot)
    if deaths < runs:
        assert Box().run(["true"]).status == 0
    else:
        with pytest.raises(BoxError, match="as it booted"):
            Box().run(["true"])
    assert len(tries) == runs


def test_a_box_that_ended_before_its_command_gets_no_other_try(tmp_path: Path) -> None:
    (tmp_path / "io").mkdir()
    with pytest.raises(machine.BoxNotBooted):
        Box()._judge(tmp_path, ["true"], False, b"", 1.0)
    (tmp_path / "io" / "started").touch()
    with pytest.raises(BoxError, match="before the command did") as error:
        Box()._judge(tmp_path, ["true"], False, b"", 1.0)
    assert not isinstance(error.value, machine.BoxNotBooted)
