# SPDX-License-Identifier: Apache-2.0
"""Boot a Debian kernel over a copy-on-write view of this root, run a command."""

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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from tests.box import console, kernels, limits, pulse, steps

REPO = Path(__file__).resolve().parents[2]
ENTER = Path(__file__).with_name("enter.sh")

# Each run has a folder here; it stays, with the console log, if the run failed.
_STATES = REPO / "build" / "box"

# Seconds a box may need to boot and to power off. 20 to 40 are usual under TCG;
# a machine that others use as well has taken more than 180, and a box that hangs
# is told from a slow one by nothing but time.
_BOOT_SECONDS = 600
_DEBUG_BOOT_SECONDS = 1200
_POWEROFF_SECONDS = 60

# A box that boots slower than usual is on a slow or busy machine; its command is allowed
# longer by the same factor, but by no more than this one. Usual is this part of the limit.
_USUAL_BOOT = 1 / 15
_LARGEST_FACTOR = 5.0

# Packages whose programs run in boxes.
_PROGRAMS = ("agent", "nova_vcache")

# Drivers of what the emulated machine has and no box uses. Under TCG udev takes
# half a minute or more of the boot to load them. Nested VMs are emulated, too.
_UNUSED_DRIVERS = (
    "ahci", "aesni_intel", "button", "ccp", "cryptd", "evdev", "ghash_clmulni_intel",
    "i2c_i801", "i6300esb", "iTCO_wdt", "kvm", "kvm_amd", "kvm_intel", "lpc_ich", "pcspkr",
    "psmouse", "qemu_fw_cfg", "serio_raw", "sha1_ssse3", "sha256_ssse3", "sha512_ssse3")


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
    """An extra virtio disk, /dev/disk/by-id/virtio-NAME in the box.

    :param path: image on the host, raw
    :param name: serial number of the disk, at most 20 characters
    :param readonly: the box may not write it
    """

    path: Path
    name: str
    readonly: bool = False


@dataclass(frozen=True)
class Result:
    """What a run left behind."""

    status: int
    stdout: bytes
    seconds: float


@dataclass
class Box:
    """One kind of box; each :meth:`run` boots it anew.

    :param kernel: kernel release or its beginning; the newest match is booted
        (default: $VCACHE_KERNEL, else 6.1)
    :param cpus: processors; two of them wait for one another where the machine has not as many
        to spare, so one is better where nothing needs two
    :param memory: memory as QEMU takes it
    :param icount: QEMU's clock counts instructions, 1 ns each (one CPU, TCG)
    :param icount_sleep: with icount, time in which the CPU idles passes at its
        real pace instead of being skipped; needed where the box waits for what
        the clock knows nothing of, such as many files over 9p or nested VMs
    :param rw: host folders that the command may write; all else is a
        copy-on-write view that is gone when the box ends
    :param disks: extra virtio disks
    :param network: user-mode network; the host's loopback is then 10.0.2.2
    :param netdevs: network devices, as QEMU's -netdev takes them but for their id; the box
        finds them in that order, without addresses
    :param env: variables set for the command
    :param kernel_args: further kernel parameters
    :param cwd: working folder of the command
    :param allow_splats: do not fail when the kernel reports a fault (for
        commands that provoke one)
    """

    kernel: str = field(default_factory=kernels.default)
    cpus: int = 2
    memory: str = "2G"
    icount: bool = False
    icount_sleep: bool = False
    rw: Sequence[Path] = (REPO / "build",)
    disks: Sequence[Disk] = ()
    network: bool = False
    netdevs: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    kernel_args: Sequence[str] = ()
    cwd: Path = REPO
    allow_splats: bool = False

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
        release = kernels.select(self.kernel)
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

    def uses_kvm(self) -> bool:
        """Tell whether runs of this box use KVM."""
        release = kernels.select(self.kernel)
        return not self.icount and kernels.kvm_works(kernels.image(release))

    def _has_pulse(self) -> bool:
        """Tell whether the box can stand still, see :mod:`tests.box.pulse`.

        In virtual time the timers run in the processor's own thread, and a pulse would
        make that time another in each run.
        """
        return not self.icount and not self.uses_kvm()

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
            **{name: value for name, value in os.environ.items() if name == limits.VARIABLE},
            **self.env,
        }
        (state / "io").mkdir()
        os.mkfifo(state / "pulse")
        shutil.copy(ENTER, state / "io" / "enter.sh")
        (state / "io" / "binds").write_text("".join(binds))
        (state / "io" / "environment").write_text("".join(
            f"export {name}={shlex.quote(value)}\n" for name, value in env.items()))
        (state / "io" / "command").write_text(f"exec {shlex.join(command)}\n")

    def _virtme_run(self, release: str, state: Path, stderr: int) -> list[str]:
        """Return the virtme-run command line.

        :param stderr: descriptor that takes the command's errors
        """
        tool = Path(sys.executable).with_name("virtme-run")
        found = str(tool) if tool.exists() else shutil.which("virtme-run")
        if found is None:
            raise BoxError(f"virtme-run is neither beside {sys.executable} nor on "
                           "PATH (pip install virtme-ng)")
        overlays = ["/etc", "/home", "/opt", "/root", "/srv", "/usr", "/var", "/tmp"]
        if not any(self.cwd.is_relative_to(folder) for folder in overlays):
            overlays.append(str(self.cwd))
        line = [
            found, "--kimg", str(kernels.image(release)), "--mods", "auto",
            "--force-9p", "--disable-monitor", "--show-boot-console", "--name", "box",
            "--memory", self.memory, "--cpus", str(1 if self.icount else self.cpus),
            "--qemu-bin", kernels.qemu(), "--script-sh", "sh /run/box/io/enter.sh /run/box/io",
            "--rwdir", f"/run/box/io={state / 'io'}"]
        for overlay in overlays:
            line += ["--overlay-rwdir", overlay]
        for number, folder in enumerate(self.rw):
            line += ["--rwdir", f"/run/box/rw{number}={Path(folder).resolve()}"]
        if not self.uses_kvm():
            line += ["--disable-kvm"]
        if self.network:
            line += ["--net", "user", "--no-dhcp"]
        # loglevel=5: warnings and worse, so that every fault is in the log and
        # boot messages do not cost time on an emulated serial port. A stall or
        # hang is judged by the box's own time limit, not by watchdogs that a
        # busy host under TCG sets off.
        for option in ("loglevel=5", "oops=panic", "nowatchdog",
                       "rcupdate.rcu_cpu_stall_timeout=300",
                       f"modprobe.blacklist={','.join(_UNUSED_DRIVERS)}",
                       *self.kernel_args):
            line += ["--kopt", option]
        if self.icount:
            # It tests its ciphers as it boots, which this mode can make fail.
            line += ["--kopt", "cryptomgr.notests"]
        return [*line, "--qemu-opts", *self._qemu_options(state, stderr)]

    def _qemu_options(self, state: Path, stderr: int) -> list[str]:
        # virtme-run sends the kernel's console to its own standard error, so
        # the command's errors get a port of their own.
        # -nodefaults: there is nothing in the CD drive that QEMU adds otherwise,
        # and the firmware of QEMU 10 waits half a minute for it.
        options = [
            "-nodefaults",
            "-chardev", f"file,id=boxerr,path=/proc/self/fd/{stderr}",
            "-device", "virtio-serial-pci",
            "-device", "virtserialport,name=box.stderr,chardev=boxerr"]
        if self._has_pulse():
            options += pulse.qemu_options(state / "pulse")
        if self.icount:
            sleep = "on" if self.icount_sleep else "off"
            options += ["-icount", f"shift=0,sleep={sleep}"]
        for number, netdev in enumerate(self.netdevs):
            options += ["-netdev", f"{netdev},id=boxnet{number}",
                        "-device", f"virtio-net-pci,netdev=boxnet{number},romfile="]
        for number, disk in enumerate(self.disks):
            # QEMU's options double a comma that is part of a value.
            file = str(disk.path.resolve()).replace(",", ",,")
            readonly = "on" if disk.readonly else "off"
            options += [
                "-drive", f"if=none,id=boxdisk{number},format=raw,file={file},"
                          f"readonly={readonly}",
                "-device", f"virtio-blk-pci,drive=boxdisk{number},serial={disk.name}"]
        return options

    def _boot(self, release: str, state: Path, command: Sequence[str], timeout: float,
              check: bool, stdout: BinaryIO, stderr: BinaryIO) -> Result:
        start = time.monotonic()
        reader, writer = os.pipe()
        # A session of its own, so that the whole tree can be ended by its id.
        # TMPDIR: virtme-run leaves its own small files there when it is killed.
        with open(state / "console", "wb") as log:
            process = subprocess.Popen(
                self._virtme_run(release, state, writer), stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=log, pass_fds=(writer,),
                start_new_session=True,
                env={**os.environ, "TMPDIR": str(state), **kernels.qemu_environment()})
        os.close(writer)
        assert process.stdout
        output = bytearray()
        pumps = [
            threading.Thread(target=_pump, args=(process.stdout.fileno(), stdout, output)),
            threading.Thread(target=_pump, args=(reader, stderr, None))]
        for pump in pumps:
            pump.start()
        try:
            beating = (pulse.beating(state / "pulse") if self._has_pulse()
                       else contextlib.nullcontext())
            with _terminate_as_exit(), beating:
                debug = release.endswith(kernels.DEBUG)
                _wait(process, state, timeout, command,
                      _DEBUG_BOOT_SECONDS if debug else _BOOT_SECONDS)
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
            process.stdout.close()
            os.close(reader)
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
          command: Sequence[str], boot: float = _BOOT_SECONDS) -> None:
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
