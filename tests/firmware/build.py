# SPDX-License-Identifier: Apache-2.0
"""Compile the test programs of the firmware below build/firmware/."""

import functools
import hashlib
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.core.build import SANITIZERS, WARNINGS, run

__all__ = ["BUILD", "FAST", "REPO", "compile_files", "compile_program", "copy_tree", "run",
           "sources"]

REPO = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
BUILD = REPO / "build" / "firmware"

#: Tested folders of firmware/.
PARTS = ("core", "nand")
#: Flags instead of the sanitizers, where many runs are more useful than a checked one.
FAST = ("-g", "-O2")


def _compile(source: Path, to: Path, command: tuple[str, ...]) -> Path:
    to.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run([*command, "-c", "-o", str(to), str(source)],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr
    return to


@functools.cache
def _unchanged_object(source: Path, command: tuple[str, ...]) -> Path:
    """Compile a file of the repository, once per run, since many programs contain it."""
    key = hashlib.sha256("\0".join(command).encode()).hexdigest()[:12]
    return _compile(REPO / source, BUILD / "objects" / key / source.with_suffix(".o"), command)


def _unchanged(tree: Path, files: Iterable[Path]) -> bool:
    return all((tree / file).read_bytes() == (REPO / file).read_bytes() for file in files)


def compile_files(program: Path, compiler: str, files: Sequence[Path], *flags: str,
                  tree: Path = REPO) -> Path:
    """Compile and link a program; in a copy of the repository, compile only what has changed.

    :param program: its path
    :param compiler: ``gcc`` or ``clang``
    :param files: C files, relative to the repository
    :param flags: further compiler flags
    :param tree: the repository or a copy of its folders
    :raises AssertionError: with the messages of the compiler, if there are any
    """
    program.parent.mkdir(parents=True, exist_ok=True)
    command = (compiler, *WARNINGS, "-D_GNU_SOURCE", *flags)
    headers = [header.relative_to(tree) for folder in {file.parent for file in files}
               for header in (tree / folder).glob("*.h")]
    same = tree == REPO or _unchanged(tree, headers)
    objects = [_unchanged_object(file, command) if same and _unchanged(tree, [file])
               else _compile(tree / file, program.parent / "changed" / file.with_suffix(".o"),
                             command)
               for file in files]
    done = subprocess.run([*command, "-o", str(program), *map(str, objects)],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr
    return program


def sources(tree: Path, *folders: str) -> list[Path]:
    """Return the C files of folders of firmware/, relative to the repository."""
    return [source.relative_to(tree) for folder in folders
            for source in sorted((tree / "firmware" / folder).glob("*.c"))]


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
    tests = HERE.relative_to(REPO)
    return compile_files(
        folder / name, compiler,
        [tests / f"{name}.c", tests / "oracle.c", tests / "workload.c", *sources(tree, *PARTS)],
        *kind, *flags, tree=tree)


def copy_tree(to: Path) -> Path:
    """Copy the sources of the programs, so that they can be changed."""
    shutil.rmtree(to, ignore_errors=True)
    for folder in ("firmware/core", "firmware/nand", "tests/core", "tests/firmware"):
        (to / folder).mkdir(parents=True)
        for source in (REPO / folder).glob("*.[ch]"):
            shutil.copy(source, to / folder)
    return to
