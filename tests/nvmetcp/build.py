# SPDX-License-Identifier: Apache-2.0
"""Compile vcache-ssd below build/nvmetcp/, with its SSD or with a replacement for it."""

import subprocess
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
BUILD = REPO / "build" / "nvmetcp"

WARNINGS = ("-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-Wmissing-prototypes",
            "-Wshadow", "-Wvla")
SANITIZERS = ("-g", "-O1", "-fno-omit-frame-pointer", "-fsanitize=address,undefined",
              "-fno-sanitize-recover=all")
#: Flags as for an installation, without sanitizers, for the box.
PLAIN = ("-g", "-O2")


def sources(without: tuple[str, ...] = ()) -> list[Path]:
    """Return the C files of the program, without some of them, and the replacement."""
    program = [source for source in sorted((REPO / "firmware" / "nvmetcp").glob("*.c"))
               if source.stem not in without]
    return [*program, HERE / "ram_ssd.c"]


def real_sources() -> list[Path]:
    """Return the C files of the program with its real SSD."""
    folders = ("core", "nand", "host", "nvmetcp")
    return [source for folder in folders
            for source in sorted((REPO / "firmware" / folder).glob("*.c"))]


def compile_files(program: Path, compiler: str, files: list[Path], *flags: str) -> Path:
    """Compile files to a program, and return its path.

    :raises AssertionError: with the messages of the compiler, if there are any
    """
    program.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [compiler, *WARNINGS, *flags, "-o", str(program), *map(str, files)],
        capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr
    return program


def vcache_ssd(compiler: str, folder: Path, *flags: str) -> Path:
    """Compile vcache-ssd.

    :param compiler: ``gcc`` or ``clang``
    :param folder: folder for the program
    :param flags: flags of the compiler; none: with sanitizers
    """
    return compile_files(folder / "vcache-ssd", compiler, sources(), *(flags or SANITIZERS))
