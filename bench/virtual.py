# SPDX-License-Identifier: Apache-2.0
"""Boot the box in virtual time, with the module that make has built."""

from collections.abc import Sequence
from pathlib import Path

from tests.box import Box, BoxError, kernels

ROOT = Path(__file__).resolve().parents[1]


def built(name: str) -> tuple[str, Path]:
    """Return the kernel release and the module for it.

    :param name: name of the benchmark, for error messages
    """
    release = kernels.select(kernels.default())
    module = ROOT / "build" / "module" / release / "dm-vcache.ko"
    if not module.exists():
        raise SystemExit(f"{name}: {module} is missing: run `make module`")
    return release, module


def run(name: str, release: str, command: Sequence[str], *, memory: str, timeout: float,
        kernel_args: Sequence[str] = ()) -> None:
    """Run a command in a box whose clock counts instructions.

    :param name: name of the benchmark, for error messages
    :param memory: memory of the box, in the format of QEMU
    :param timeout: seconds of real time, on a machine that is neither slow nor busy
    :param kernel_args: additional parameters of the kernel
    :raises SystemExit: if the box or the command fails
    """
    box = Box(kernel=release, icount=True, memory=memory, kernel_args=list(kernel_args))
    try:
        status = box.run(command, timeout=timeout).status
    except BoxError as error:
        raise SystemExit(f"{name}: {error}") from error
    if status:
        raise SystemExit(f"{name}: the run in the box failed with {status}")
