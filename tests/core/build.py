# SPDX-License-Identifier: Apache-2.0
"""Compile the test programs of the core, below build/core/."""

import shutil
import subprocess
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
BUILD = REPO / "build" / "core"

WARNINGS = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-Wmissing-prototypes", "-Wshadow")
SANITIZERS = ("-g", "-O1", "-fno-omit-frame-pointer",
              "-fsanitize=address,undefined", "-fno-sanitize-recover=all")

#: Each program and the file of the core that it tests.
PROGRAMS = {
    "test_epoch": "epoch",
    "test_histogram": "histogram",
    "test_runs": "runs",
    "fuzz_runs": "runs",
}


def compile_program(name: str, compiler: str, folder: Path, *flags: str,
                    tree: Path = REPO) -> Path:
    """Compile one program and return its path.

    :param name: one of PROGRAMS
    :param compiler: ``gcc`` or ``clang``
    :param folder: where the program goes
    :param flags: further compiler flags
    :param tree: copy of the repository's ``native/core`` and ``tests/core``
    :raises AssertionError: with the compiler's messages, if it has any
    """
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / name
    done = subprocess.run(
        [compiler, *WARNINGS, *SANITIZERS, *flags, "-o", str(program),
         str(tree / "tests" / "core" / f"{name}.c"),
         str(tree / "native" / "core" / f"{PROGRAMS[name]}.c")],
        capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr
    return program


def copy_tree(to: Path) -> Path:
    """Copy what the programs are made of, to be changed there."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(REPO / "native" / "core", to / "native" / "core")
    (to / "tests" / "core").mkdir(parents=True)
    for source in HERE.glob("*.[ch]"):
        shutil.copy(source, to / "tests" / "core")
    return to


def run(program: Path, *arguments: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """Run a program; its output and status are in the result."""
    return subprocess.run([str(program), *arguments], capture_output=True, text=True,
                          timeout=timeout, check=False)
