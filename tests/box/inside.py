# SPDX-License-Identifier: Apache-2.0
"""Helpers that run inside the box, as root: the module, KVM and libvirtd.

As a command, for shell scripts: ``python -m tests.box.inside module-load``.
Python takes a second or two to start under TCG, so a script that needs
several of these should rather be one Python program.
"""

import argparse
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.box import steps
from tests.box.limits import Deadline
from tests.box.steps import at_end, on_error

REPO = Path(__file__).resolve().parents[2]
MODULE = "dm_vcache"
LIBVIRT_SOCKET = Path("/run/libvirt/libvirt-sock")
HOOKS = Path("/etc/libvirt/hooks")

# The box has neither systemd nor udev rules for a qemu user.
_QEMU_CONF = """
user = "root"
group = "root"
dynamic_ownership = 0
remember_owner = 0
security_driver = "none"
namespaces = []
"""
_LIBVIRTD_CONF = """
unix_sock_group = "root"
auth_unix_ro = "none"
auth_unix_rw = "none"
"""

# Limits for what has hung, before limits.py adapts them to the machine; the slowest of
# these things has taken a third of that in a box.
_COMMAND_SECONDS = 300
_START_SECONDS = 120
_STOP_SECONDS = 60
# For what has been killed to end. A process that waits for the kernel may never do.
_KILL_SECONDS = 10


class InsideError(Exception):
    """Something the command needs does not work in this box."""


def run(*command: str, timeout: float = _COMMAND_SECONDS) -> str:
    """Run a command and return its output; its errors are in the exception.

    :param timeout: seconds after which the command is taken to hang; limits.py adapts them
    :raises InsideError: if it cannot be started, fails, or does not end
    """
    line = " ".join(command)
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, errors="replace")
    except OSError as error:
        raise InsideError(f"{line}: {error}") from error
    try:
        output, errors = _output_of(process, line, Deadline(timeout))
    except BaseException:
        _kill(process)
        raise
    if process.returncode:
        raise InsideError(f"{line}: exit status {process.returncode}: "
                          f"{errors.strip() or output.strip()}")
    return output


def _output_of(process: subprocess.Popen[str], line: str, deadline: Deadline) -> tuple[str, str]:
    """Wait for a process; return its output and its errors."""
    while True:
        try:
            return process.communicate(timeout=deadline.left())
        except subprocess.TimeoutExpired as expired:
            if not deadline.passed():
                continue
            said = "".join(part.decode(errors="replace") if isinstance(part, bytes) else part or ""
                           for part in (expired.output, expired.stderr)).strip()
            text = f"its output so far:\n{said}" if said else "it has printed nothing"
            raise InsideError(f"{line}: not finished after {deadline}; "
                              f"{text}") from None


def _kill(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    """End a process now, and do not wait for ever."""
    process.kill()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_KILL_SECONDS)


def progress(text: str) -> None:
    """Print a line, with the time since the box has booted."""
    print(f"box {time.monotonic():6.1f} s: {text}", file=sys.stderr, flush=True)


def module_path() -> Path:
    """Return where `make module` puts the module for the running kernel."""
    return REPO / "build" / "module" / os.uname().release / "dm-vcache.ko"


def load_module(*parameters: str, path: Path | None = None) -> None:
    """Load dm-vcache.ko with what it depends on.

    :param parameters: module parameters, such as ``buffer_mb=64``
    :param path: another build of it than that of `make module`
    """
    path = path or module_path()
    if not path.exists():
        raise InsideError(f"{path} does not exist: run `make module` first")
    # Kernels before 6.15 have a module libcrc32c, later ones have it built in.
    needed = subprocess.run(["modinfo", "-F", "depends", str(path)], check=True,
                            capture_output=True, text=True).stdout.strip()
    run("modprobe", "-a", "dm-mod", *filter(None, needed.split(",")))
    run("insmod", str(path), *parameters)


def unload_module() -> None:
    """Unload dm-vcache.ko; fails while a device uses it."""
    run("rmmod", MODULE)


def domain_type() -> str:
    """Return the libvirt domain type that runs here: ``kvm`` or ``qemu``."""
    flags = Path("/proc/cpuinfo").read_text()
    module = "kvm_amd" if " svm " in flags else "kvm_intel" if " vmx " in flags else None
    if module is not None:
        subprocess.run(["modprobe", module], check=False, capture_output=True)
    return "kvm" if os.access("/dev/kvm", os.R_OK | os.W_OK) else "qemu"


def stop(process: subprocess.Popen[str] | subprocess.Popen[bytes], name: str,
         seconds: float = _STOP_SECONDS) -> None:
    """Have a process end; kill it if it does not.

    :param name: what it is called in the error
    :param seconds: that it may take; limits.py adapts them
    :raises InsideError: if it has not ended in time
    """
    process.terminate()
    deadline = Deadline(seconds)
    while True:
        try:
            process.wait(deadline.left())
            return
        except subprocess.TimeoutExpired:
            if not deadline.passed():
                continue
        _kill(process)
        ended = "" if process.poll() is not None else ", nor when it was killed"
        raise InsideError(f"{name}: it did not end within {deadline} of "
                          f"SIGTERM{ended}")


def _wait_for(socket: Path, process: subprocess.Popen[bytes], log: Path) -> None:
    name = log.stem
    deadline = Deadline(_START_SECONDS)
    while not socket.exists():
        if process.poll() is not None:
            raise InsideError(f"{name}: ended with status {process.returncode}: "
                              f"{log.read_text()[-2000:]}")
        if deadline.passed():
            raise InsideError(f"{name}: no {socket} after {deadline}: "
                              f"{log.read_text()[-2000:]}")
        time.sleep(0.1)


def _daemon(command: Sequence[str], socket: Path, logs: Path) -> subprocess.Popen[bytes]:
    log = logs / f"{Path(command[0]).name}.log"
    with open(log, "ab") as file:
        process = subprocess.Popen(list(command), stdin=subprocess.DEVNULL,
                                   stdout=file, stderr=file)
    with on_error(stop, process, log.stem):
        _wait_for(socket, process, log)
    return process


def domains() -> list[str]:
    """Return the names of the running domains."""
    return run("virsh", "-q", "list", "--name").split()


@contextlib.contextmanager
def libvirt(hook: Path | None = None, options: Sequence[str] = ()) -> Iterator[None]:
    """Run virtlogd and libvirtd; at the end destroy all domains and stop them.

    :param hook: program to be installed as a qemu hook (as a link, so that it
        finds what lies beside it)
    :param options: options of libvirtd
    """
    logs = Path("/var/log/libvirt")
    configuration = Path("/etc/libvirt")
    with open(configuration / "qemu.conf", "a") as file:
        file.write(_QEMU_CONF)
    with open(configuration / "libvirtd.conf", "a") as file:
        file.write(_LIBVIRTD_CONF)
    if hook is not None:
        (HOOKS / "qemu.d").mkdir(parents=True, exist_ok=True)
        (HOOKS / "qemu.d" / hook.name).symlink_to(hook.resolve())
    virtlogd = _daemon(["virtlogd"], Path("/run/libvirt/virtlogd-sock"), logs)
    with at_end(stop, virtlogd, "virtlogd"):
        libvirtd = _daemon(["libvirtd", *options], LIBVIRT_SOCKET, logs)
        with at_end(stop, libvirtd, "libvirtd"):
            run("virsh", "-q", "list")
            with at_end(_destroy_all):
                yield


def _destroy_all() -> None:
    """Destroy all domains that run."""
    steps.each(lambda name: run("virsh", "destroy", name), domains())


def main() -> None:
    """Command line for shell scripts in the box."""
    p = argparse.ArgumentParser(prog="python -m tests.box.inside", description=__doc__)
    commands = p.add_subparsers(dest="command", required=True)
    load = commands.add_parser("module-load", help="load dm-vcache.ko")
    load.add_argument("parameters", nargs="*", metavar="NAME=VALUE")
    commands.add_parser("module-unload", help="unload dm-vcache.ko")
    commands.add_parser("domain-type", help="print kvm or qemu")
    with_libvirt = commands.add_parser("with-libvirt", help="run a command beside libvirtd")
    with_libvirt.add_argument("argv", nargs="+", metavar="COMMAND")
    a = p.parse_args()
    with steps.explained("box"):
        _do(a)


def _do(a: argparse.Namespace) -> None:
    """Do what the command line says."""
    if a.command == "module-load":
        load_module(*a.parameters)
    elif a.command == "module-unload":
        unload_module()
    elif a.command == "domain-type":
        print(domain_type())
    else:
        with libvirt():
            subprocess.run(a.argv, check=True)


if __name__ == "__main__":
    main()
