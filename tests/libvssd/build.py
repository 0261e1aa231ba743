# SPDX-License-Identifier: Apache-2.0
"""Compile the library and its test programs below build/libvssd/."""

import functools
import subprocess
from pathlib import Path

from tests.core.build import REPO, SANITIZERS, WARNINGS, run

__all__ = ["BUILD", "PROGRAMS", "compile_program", "library", "run"]

HERE = Path(__file__).resolve().parent
SOURCES = REPO / "native" / "libvssd"
BUILD = REPO / "build" / "libvssd"

#: The source files of each program. The fuzzer includes vssd.c.
PROGRAMS = {
    "test_set": ("set",),
    "test_client": ("vssd", "message", "set"),
    "fuzz_client": ("message", "set"),
}


def compile_program(name: str, compiler: str, folder: Path, *flags: str) -> Path:
    """Compile one program with sanitizers and return its path.

    :param compiler: ``gcc`` or ``clang``
    :raises AssertionError: with the messages of the compiler, if there are any
    """
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / name
    done = subprocess.run(
        [compiler, *WARNINGS, *SANITIZERS, *flags, "-o", str(program), str(HERE / f"{name}.c"),
         *(str(SOURCES / f"{file}.c") for file in PROGRAMS[name])],
        capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr
    return program


@functools.cache
def library() -> Path:
    """Build the shared library and return its path."""
    done = subprocess.run(["make", "-s", "-C", str(SOURCES), f"OUT={BUILD}"], capture_output=True,
                          text=True, check=False)
    assert done.returncode == 0, done.stderr
    return BUILD / "libvssd.so.0"
