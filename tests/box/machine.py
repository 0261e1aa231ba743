# SPDX-License-Identifier: Apache-2.0
"""What the emulated box and User Mode Linux have in common: one command, one boot."""

import compileall
import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from tests.box import console, limits, steps

REPO = Path(__file__).resolve().parents[2]
ENTER = Path(__file__).with_name("enter.sh")

# Each run has a folder here; it stays, with the console log, if the run failed.
_STATES = REPO / "build" / "box"

_POWEROFF_SECONDS = 60

# A box that boots slower than usual is on a slow or busy machine; its command is allowed
# longer by the same factor, but by no more than this one. Usual is this part of the limit.
_USUAL_BOOT = 1 / 15
_LARGEST_FACTOR = 5.0

# Packages whose programs run in boxes.
_PROGRAMS = ("agent", "nova_vcache", "cinder_driver")

class BoxError(Exception):
    """The box did not boot, did not finish, or its kernel failed."""

    def __init__(self, message: str, log: Path | None = None) -> None:
        where = f"\nconsole log: {log}" if log else ""
        super().__init__(message + where)
        self.log = log


class BoxTimeout(BoxError):
    """The command did not end within its time limit."""


class BoxNotBooted(BoxError):
    """The box ended before it began with the command, and its kernel reported nothing."""


class KernelSplat(BoxError):
    """The kernel reported a fault (panic, oops, BUG, lockdep, ...)."""


@dataclass(frozen=True)
class Disk:
    """An extra disk, /dev/disk/by-id/virtio-NAME in the box.

    :param path: image on the host, raw
    :param name: serial number of the disk, at most 20 characters
    :param readonly: the box may not write it
    :param shared: another machine may use it at the same time; only User Mode Linux
    """

    path: Path
    name: str
    readonly: bool = False
    shared: bool = False


@dataclass(frozen=True)
class Result:
    """What a run left behind."""

    status: int
    stdout: bytes
    seconds: float


@dataclass
class Machine(ABC):
    """What boots a kernel for one command; each :meth:`run` boots it anew.

    :param memory: memory as QEMU takes it
    :param rw: host folders that the command may write; all else is a
        copy-on-write view that is gone when the machine ends
    :param disks: extra disks
    :param env: variables set for the command
    :param kernel_args: further kernel parameters
    :param cwd: working folder of the command
    :param allow_splats: do not fail when the kernel reports a fault (for
        commands that provoke one)
    """

    memory: str = "2G"
    rw: Sequence[Path] = (REPO / "build",)
    disks: Sequence[Disk] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    kernel_args: Sequence[str] = ()
    cwd: Path = REPO
    allow_splats: bool = False

    @abstractmethod
    def select(self) -> str:
        """Return the release of the kernel to boot."""

    @abstractmethod
    def _start(self, release: str, state: Path, log: BinaryIO, stdout: int,
               stderr: int) -> subprocess.Popen[bytes]:
        """Start it, in a session of its own.

        :param release: of select()
        :param state: folder of the run
        :param log: takes the console
        :param stdout: descriptor that takes the command's output
        :param stderr: descriptor that takes the command's errors
        """

    def _boot_seconds(self, release: str) -> float:
        """Return how long it may take until the command begins."""
        return 60

    def _environment(self) -> Mapping[str, str]:
        """Return the variables that the command needs on this machine."""
        return {}

    def _beside(self, state: Path) -> contextlib.AbstractContextManager[None]:
        """Return what has to go on while it runs."""
        return contextlib.nullcontext()

    def run(self, command: Sequence[str], *, timeout: float = 600,
            check: bool = False, stdout: BinaryIO | None = None,
            stderr: BinaryIO | None = None) -> Result:
        """Boot, run `command` as root, power off.

        :param command: the command and its arguments (no shell)
        :param timeout: seconds the command may take, boot not counted, on a machine that
            is neither slow nor busy
        :param check: raise BoxError if the command's status is not 0
        :param stdout: where its output is streamed to (default: ours)
        :param stderr: likewise for its errors
        :raises BoxTimeout: if the time limit passed
        :raises KernelSplat: if the kernel reported a fault
        :raises BoxError: if the box failed in another way
        """
        if not command:
            raise ValueError("the box needs a command to run")
        release = self.select()
        for folder in self.rw:
            Path(folder).mkdir(parents=True, exist_ok=True)
        # The box cannot keep what it compiles: each start of a program would compile
        # its modules anew.
        for package in _PROGRAMS:
            compileall.compile_dir(REPO / package, quiet=2)
        _STATES.mkdir(parents=True, exist_ok=True)
        try:
            return self._run(release, command, timeout, check, stdout, stderr)
        except BoxNotBooted as error:
            # Rare, under emulation on a busy host. Nothing of the command has run.
            print(f"{error}\nbox: once more", file=sys.stderr, flush=True)
            return self._run(release, command, timeout, check, stdout, stderr)

    def _run(self, release: str, command: Sequence[str], timeout: float, check: bool,
             stdout: BinaryIO | None, stderr: BinaryIO | None) -> Result:
        """Do what run() says, once."""
        state = Path(tempfile.mkdtemp(prefix="run-", dir=_STATES))
        keep = False
        try:
            self._write_state(state, command)
            return self._boot(release, state, command, timeout, check,
                              stdout or sys.stdout.buffer, stderr or sys.stderr.buffer)
        except BoxError:
            keep = True
            raise
        finally:
            if not keep:
                shutil.rmtree(state, ignore_errors=True)

    def _write_state(self, state: Path, command: Sequence[str]) -> None:
        """Fill the folder of the run, of which the box and the host share io/."""
        binds = [f"/run/box/rw{number} {Path(folder).resolve()}\n"
                 for number, folder in enumerate(self.rw)]
        venv = Path(sys.executable).parent
        system = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        env = {
            "HOME": "/root",
            "LANG": "C.UTF-8",
            "PATH": f"{venv}:{system}",
            # pyc files would land in the box's memory and be lost with it
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
            "VCACHE_BOX": "1",
            "VCACHE_BOX_CWD": str(self.cwd),
            **self._environment(),
            **{name: value for name, value in os.environ.items() if name == limits.VARIABLE},
            **self.env,
        }
        (state / "io").mkdir()
        shutil.copy(ENTER, state / "io" / "enter.sh")
        (state / "io" / "binds").write_text("".join(binds))
        (state / "io" / "environment").write_text("".join(
            f"export {name}={shlex.quote(value)}\n" for name, value in env.items()))
        (state / "io" / "command").write_text(f"exec {shlex.join(command)}\n")

    def _boot(self, release: str, state: Path, command: Sequence[str], timeout: float,
              check: bool, stdout: BinaryIO, stderr: BinaryIO) -> Result:
        start = time.monotonic()
        output = bytearray()
        output_reader, output_writer = os.pipe()
        errors_reader, errors_writer = os.pipe()
        try:
            with open(state / "console", "wb") as log:
                process = self._start(release, state, log, output_writer, errors_writer)
        except BaseException:
            os.close(output_reader)
            os.close(errors_reader)
            raise
        finally:
            os.close(output_writer)
            os.close(errors_writer)
        pumps = [threading.Thread(target=_pump, args=(output_reader, stdout, output)),
                 threading.Thread(target=_pump, args=(errors_reader, stderr, None))]
        for pump in pumps:
            pump.start()
        try:
            with _terminate_as_exit(), self._beside(state):
                _wait(process, state, timeout, command, self._boot_seconds(release))
        except BoxTimeout as error:
            # What made it hang is the kernel's fault, if that has reported one.
            splat = None if self.allow_splats else _splat(state)
            if splat:
                raise KernelSplat(f"box: the kernel reported a fault:\n{splat}\n"
                                  f"then: {error}") from None
            raise
        finally:
            _kill_group(process)
            for pump in pumps:
                pump.join()
            os.close(output_reader)
            os.close(errors_reader)
        seconds = time.monotonic() - start
        return self._judge(state, command, check, bytes(output), seconds)

    def _judge(self, state: Path, command: Sequence[str], check: bool, output: bytes,
               seconds: float) -> Result:
        """Turn what the box left into a result or an error."""
        log = state / "console"
        splat = _splat(state)
        if splat and not self.allow_splats:
            raise KernelSplat(f"box: the kernel reported a fault:\n{splat}", log)
        try:
            text = (state / "io" / "status").read_text().strip()
        except OSError:
            if not (state / "io" / "started").exists():
                raise BoxNotBooted("box: it ended as it booted" + _tail(state), log) from None
            raise BoxError("box: it ended before the command did" + _step(state) + _tail(state),
                           log) from None
        if not text.isdecimal():
            raise BoxError("box: its file systems could not be set up" + _tail(state), log)
        status = int(text)
        if check and status:
            raise BoxError(f"box: {shlex.join(command)}: exit status {status}", log)
        return Result(status, output, seconds)


def _pump(source: int, sink: BinaryIO, copy: bytearray | None) -> None:
    """Pass on a stream as it comes.

    A sink that takes no more, such as a pipe that was closed, must not stop this: QEMU
    would wait for it, and the box would seem to hang.
    """
    broken = False
    while chunk := os.read(source, 65536):
        if copy is not None:
            copy += chunk
        if broken:
            continue
        try:
            sink.write(chunk)
            sink.flush()
        except (OSError, ValueError) as error:
            broken = True
            with contextlib.suppress(OSError, ValueError):
                print(f"box: further output is lost: {error}", file=sys.stderr, flush=True)


def _wait(process: subprocess.Popen[bytes], state: Path, timeout: float,
          command: Sequence[str], boot: float) -> None:
    """Wait for the box to end; the command's time limit starts with it."""
    def ended(seconds: float) -> bool:
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    log = state / "console"
    booting = limits.Deadline(boot)
    start = time.monotonic()
    while not (state / "io" / "started").exists():
        if ended(0.2):
            return
        if booting.passed():
            raise BoxTimeout(f"box: not booted after {booting}" + _tail(state), log)
    factor = (time.monotonic() - start) / (boot * _USUAL_BOOT)
    deadline = limits.Deadline(timeout, min(_LARGEST_FACTOR, factor))
    while not ended(deadline.left()):
        if deadline.passed():
            break
    else:
        return
    if not (state / "io" / "status").exists():
        raise BoxTimeout(f"box: {shlex.join(command)}: not finished after {deadline}"
                         + _step(state) + _tail(state), log)
    if not ended(limits.limit(_POWEROFF_SECONDS)):
        raise BoxTimeout("box: it did not power off" + _tail(state), log)


@contextlib.contextmanager
def _terminate_as_exit() -> Iterator[None]:
    """Let SIGTERM end this process in order, so that the box does not outlive it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, frame: object) -> None:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """End what is left of a process's session, and reap it."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def _splat(state: Path) -> str | None:
    """Return the first fault that the kernel has reported."""
    log = state / "console"
    return console.find_splat(log.read_text(errors="replace")) if log.exists() else None


def _step(state: Path) -> str:
    """Return which step the command has begun last, for an error message."""
    try:
        step = (state / "io" / steps.STEP_FILE).read_text().strip()
    except OSError:
        return ""
    return f"\nits last step: {step}" if step else ""


def _tail(state: Path, lines: int = 15) -> str:
    """Return the end of the console log for an error message."""
    try:
        text = (state / "console").read_text(errors="replace").replace("\r", "")
    except OSError:
        return ""
    end = "\n".join(text.splitlines()[-lines:])
    return f"\nend of the console:\n{end}" if end else ""
