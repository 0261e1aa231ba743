# SPDX-License-Identifier: Apache-2.0
"""Command line of the box: ``python -m tests.box [options] -- command ...``."""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from tests.box.box import Box
from tests.box.kernels import KernelNotFound, default
from tests.box.machine import REPO, BoxError, BoxTimeout, Disk, Machine
from tests.box.uml import Uml


def _disk(text: str) -> Disk:
    name, _, path = text.partition("=")
    if not (name and path and Path(path).exists()):
        raise argparse.ArgumentTypeError(f"{text!r}: must be NAME=PATH of an existing image")
    return Disk(Path(path), name)


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r}: must be NAME=VALUE")
    return name, value


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    p = argparse.ArgumentParser(
        prog="python -m tests.box",
        description="Run a command as root under a real kernel over this root file system.")
    p.add_argument("--uml", action="store_true",
                   help="User Mode Linux: fast, one processor; without the options that say box")
    p.add_argument("--kernel", default=default(), metavar="RELEASE",
                   help="box: release or its beginning; the newest match in /boot (%(default)s)")
    p.add_argument("--cpus", type=int, default=2, help="box: processors (%(default)s)")
    p.add_argument("--memory", default="2G", help="memory (%(default)s)")
    p.add_argument("--icount", action="store_true",
                   help="box: virtual time: 1 ns an instruction, one CPU, no KVM")
    p.add_argument("--icount-sleep", action="store_true",
                   help="box: with --icount: idle time passes at its real pace, is not skipped")
    p.add_argument("--rw", action="append", type=Path, default=[], metavar="DIR",
                   help="host folder the command may write (build/ always is)")
    p.add_argument("--disk", action="append", type=_disk, default=[], metavar="NAME=PATH",
                   help="extra disk, /dev/disk/by-id/virtio-NAME")
    p.add_argument("--disk-ro", action="append", type=_disk, default=[], metavar="NAME=PATH",
                   help="the same, not writable; several boxes may have it")
    p.add_argument("--env", action="append", type=_variable, default=[], metavar="NAME=VALUE",
                   help="variable set for the command")
    p.add_argument("--append", action="append", default=[], metavar="PARAMETER",
                   help="further kernel parameter")
    p.add_argument("--network", action="store_true", help="box: user-mode network")
    p.add_argument("--netdev", action="append", default=[], metavar="NETDEV",
                   help="box: network device, as QEMU takes it: user,hostfwd=... (no id)")
    p.add_argument("--timeout", type=float, default=600, metavar="SECONDS",
                   help="time limit of the command, boot not counted (%(default)s)")
    p.add_argument("--allow-splats", action="store_true",
                   help="a kernel fault in the log does not make the run fail")
    p.add_argument("command", nargs="+", metavar="COMMAND", help="after --")
    return p


def machine(a: argparse.Namespace) -> Machine:
    """Return the machine that the options describe."""
    rw = [REPO / "build", *a.rw]
    disks = [*a.disk, *(replace(disk, readonly=True) for disk in a.disk_ro)]
    if a.uml:
        return Uml(memory=a.memory, rw=rw, disks=disks, env=dict(a.env), kernel_args=a.append,
                   allow_splats=a.allow_splats)
    return Box(kernel=a.kernel, cpus=a.cpus, memory=a.memory, icount=a.icount,
               icount_sleep=a.icount_sleep, rw=rw, disks=disks, network=a.network,
               netdevs=a.netdev, env=dict(a.env), kernel_args=a.append,
               allow_splats=a.allow_splats)


def main() -> int:
    """Run the command in a box and return its exit status."""
    a = parser().parse_args()
    try:
        return machine(a).run(a.command, timeout=a.timeout).status
    except BoxTimeout as error:
        print(error, file=sys.stderr)
        return 124
    except (BoxError, KernelNotFound) as error:
        print(error, file=sys.stderr)
        return 125


if __name__ == "__main__":
    sys.exit(main())
