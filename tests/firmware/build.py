# SPDX-License-Identifier: Apache-2.0
"""Compile the test programs of the firmware below build/firmware/."""

import shutil
import subprocess
from pathlib import Path

from tests.core.build import SANITIZERS, WARNINGS, run

__all__ = ["BUILD", "FAST", "REPO", "compile_program", "copy_tree", "run"]

REPO = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
BUILD = REPO / "build" / "firmware"

#: Tested folders of firmware/.
PARTS = ("core", "nand")
#: Flags instead of the sanitizers, where many runs are more useful than a checked one.
FAST = ("-g", "-O2")


def compile_program(name: str, compiler: str, folder: Path, *flags: str,
                    tree: Path = REPO, kind: tuple[str, ...] = SANITIZERS) -> Path:
    """Compile one program with the firmware, the NAND model and the oracle.

    :param name: file in this folder, without ``.c``
    :param compiler: ``gcc`` or ``clang``
    :param folder: folder for the program
    :param flags: further compiler flags
    :param tree: copy of the repository made by :func:`copy_tree`
    :param kind: SANITIZERS or FAST
    :raises AssertionError: with the messages of the compiler, if there are any
    """
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / name
    tests = tree / "tests" / "firmware"
    sources = [tests / f"{name}.c", tests / "oracle.c", tests / "workload.c",
               *(source for part in PARTS
                 for source in sorted((tree / "firmware" / part).glob("*.c")))]
    done = subprocess.run(
        [compiler, *WARNINGS, "-D_GNU_SOURCE", *kind, *flags, "-o", str(program),
         *map(str, sources)],
        capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr
    return program


def copy_tree(to: Path) -> Path:
    """Copy the sources of the programs, so that they can be changed."""
    shutil.rmtree(to, ignore_errors=True)
    for folder in ("firmware/core", "firmware/nand", "tests/core", "tests/firmware"):
        (to / folder).mkdir(parents=True)
        for source in (REPO / folder).glob("*.[ch]"):
            shutil.copy(source, to / folder)
    return to
