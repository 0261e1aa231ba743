# SPDX-License-Identifier: Apache-2.0
"""Compile the test programs of the core below build/core/."""

import functools
import shutil
import subprocess
from pathlib import Path

from tests.box.limits import limit

REPO = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
BUILD = REPO / "build" / "core"

WARNINGS = ("-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror",
            "-Wmissing-prototypes", "-Wshadow")
SANITIZERS = ("-g", "-O1", "-fno-omit-frame-pointer",
              "-fsanitize=address,undefined", "-fno-sanitize-recover=all")

#: The source files of each program.
PROGRAMS = {
    "test_crc32c": ("crc32c",),
    "test_epoch": ("epoch",),
    "test_epoch_reader": (),
    "test_ghost": ("ghost",),
    "test_histogram": ("histogram",),
    "test_index": ("index",),
    "test_level": ("level",),
    "test_log": ("log", "meta", "crc32c"),
    "test_meta": ("meta", "crc32c"),
    "test_recover": ("recover", "seal", "index", "log", "meta", "crc32c"),
    "test_replay": ("recover", "seal", "index", "log", "meta", "crc32c"),
    "test_place": (),
    "test_replace": (),
    "test_runs": ("runs",),
    "test_shards": ("shards",),
    "fuzz_recover": ("recover", "seal", "index", "log", "meta", "crc32c"),
    "fuzz_runs": ("runs",),
}


def compile_program(name: str, compiler: str, folder: Path, *flags: str) -> Path:
    """Compile one program and return its path.

    :param name: one of PROGRAMS
    :param compiler: ``gcc`` or ``clang``
    :param folder: folder for the program
    :param flags: further compiler flags
    :raises AssertionError: with the messages of the compiler, if there are any
    """
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / name
    done = subprocess.run(
        [compiler, *WARNINGS, *SANITIZERS, *flags, "-o", str(program),
         str(HERE / f"{name}.c"),
         *(str(REPO / "native" / "core" / f"{file}.c") for file in PROGRAMS[name])],
        capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr
    return program


def _compile_object(source: Path, to: Path) -> Path:
    to.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(["clang", *WARNINGS, *SANITIZERS, "-w", "-c", "-o", str(to), str(source)],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return to


@functools.cache
def _unchanged_object(source: Path) -> Path:
    return _compile_object(source, BUILD / "mutation" / "unchanged" / f"{source.stem}.o")


def compile_mutant(name: str, folder: Path, tree: Path, changed: Path) -> Path:
    """Compile one program with a changed file, with clang; warnings are ignored.

    :param name: one of PROGRAMS
    :param folder: folder for the program
    :param tree: copy of the sources
    :param changed: the changed file, relative to the copy; files that include it are compiled too
    """
    sources = [Path("tests/core") / f"{name}.c",
               *(Path("native/core") / f"{file}.c" for file in PROGRAMS[name])]
    objects = [_compile_object(tree / source, folder / f"{source.stem}.o")
               if source == changed or f'{changed.name}"' in (tree / source).read_text()
               else _unchanged_object(REPO / source) for source in sources]
    program = folder / name
    done = subprocess.run(["clang", *SANITIZERS, "-o", str(program), *map(str, objects)],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return program


def copy_tree(to: Path) -> Path:
    """Copy the sources of the programs, so that they can be changed."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(REPO / "native" / "core", to / "native" / "core")
    (to / "tests" / "core").mkdir(parents=True)
    for source in HERE.glob("*.[ch]"):
        shutil.copy(source, to / "tests" / "core")
    return to


def run(program: Path, *arguments: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """Run a program; the result has its output and status."""
    return subprocess.run([str(program), *arguments], capture_output=True, text=True,
                          timeout=limit(timeout), check=False)
