# SPDX-License-Identifier: Apache-2.0
"""Compile the test programs of the core below build/core/."""

import dataclasses
import functools
import resource
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.box.limits import limit

REPO = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
BUILD = REPO / "build" / "core"

WARNINGS = ("-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror",
            "-Wmissing-prototypes", "-Wshadow")
SANITIZERS = ("-g", "-O1", "-fno-omit-frame-pointer",
              "-fsanitize=address,undefined", "-fno-sanitize-recover=all")

#: A program with a mutation hangs after this multiple of its usual processor time and some seconds.
HANGS_TIMES, HANGS_SECONDS = 5, 3

#: The source files of each program.
PROGRAMS = {
    "test_crc32c": ("crc32c",),
    "test_epoch": ("epoch",),
    "test_epoch_reader": (),
    "test_flow": ("flow", "depth"),
    "test_queue": ("queue", "depth"),
    "test_ghost": ("ghost",),
    "test_histogram": ("histogram",),
    "test_index": ("index",),
    "test_hot": ("hot",),
    "test_level": ("level",),
    "test_log": ("log", "meta", "crc32c"),
    "test_meta": ("meta", "crc32c"),
    "test_recover": ("recover", "seal", "index", "log", "meta", "crc32c"),
    "test_replay": ("recover", "seal", "index", "log", "meta", "crc32c"),
    "test_pace": ("pace",),
    "test_place": (),
    "test_replace": (),
    "test_runs": ("runs", "runs_change"),
    "test_shards": ("shards",),
    "fuzz_recover": ("recover", "seal", "index", "log", "meta", "crc32c"),
    "fuzz_runs": ("runs", "runs_change"),
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


@dataclasses.dataclass(frozen=True)
class Kind:
    """A way to compile a mutation.

    :param name: name of a folder
    :param command: compiler and flags
    """

    name: str
    command: tuple[str, ...]

    def compile_object(self, source: Path, to: Path) -> Path:
        """Compile one file; warnings are ignored."""
        to.parent.mkdir(parents=True, exist_ok=True)
        done = subprocess.run([*self.command, *WARNINGS, "-w", "-c", "-o", str(to), str(source)],
                              capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return to


#: A mutation is compiled in a quarter of the time without sanitizers, and runs faster.
PLAIN = Kind("plain", ("gcc", "-O1"))
CHECKED = Kind("checked", ("clang", *SANITIZERS))


@functools.cache
def _unchanged_object(kind: Kind, source: Path) -> Path:
    return kind.compile_object(
        source, BUILD / "mutation" / "unchanged" / kind.name / f"{source.stem}.o")


def _link(kind: Kind, program: Path, objects: Sequence[Path]) -> Path:
    done = subprocess.run([*kind.command, "-o", str(program), *map(str, objects)],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return program


def _sources(name: str) -> list[Path]:
    """Return the files of a program, relative to the repository."""
    return [Path("tests/core") / f"{name}.c",
            *(Path("native/core") / f"{file}.c" for file in PROGRAMS[name])]


def compile_mutant(name: str, kind: Kind, folder: Path, tree: Path, changed: Path) -> Path:
    """Compile one program with a changed file; warnings are ignored.

    :param name: one of PROGRAMS
    :param kind: PLAIN or CHECKED
    :param folder: folder for the program
    :param tree: copy of the sources
    :param changed: the changed file, relative to the copy; files that include it are compiled too
    """
    folder = folder / kind.name
    objects = [kind.compile_object(tree / source, folder / f"{source.stem}.o")
               if source == changed or f'{changed.name}"' in (tree / source).read_text()
               else _unchanged_object(kind, REPO / source) for source in _sources(name)]
    return _link(kind, folder / name, objects)


@functools.cache
def unchanged_seconds(name: str, kind: Kind) -> float:
    """Return the processor time of a program without a mutation, which must pass."""
    program = _link(kind, BUILD / "mutation" / "unchanged" / kind.name / name,
                    [_unchanged_object(kind, REPO / source) for source in _sources(name)])
    before = _children_seconds()
    done = run(program)
    assert done.returncode == 0, f"{name} fails without a mutation: {done.stderr}"
    return _children_seconds() - before


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def notices(name: str, program: Path, kind: Kind) -> bool:
    """Return whether a program with a mutation fails. One that hangs fails too.

    It hangs if it takes much more processor time than without the mutation. Unlike the
    duration, that does not depend on other work of the machine.
    """
    most = int(HANGS_TIMES * unchanged_seconds(name, kind)) + HANGS_SECONDS
    return run(Path("prlimit"), f"--cpu={most}", "--core=0", str(program)).returncode != 0


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
