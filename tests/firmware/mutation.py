# SPDX-License-Identifier: Apache-2.0
"""The firmware with one of its rules broken on purpose."""

import functools
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.firmware import build


class Mutation(NamedTuple):
    """One rule of the firmware, and the change that breaks it."""

    name: str
    file: str
    old: str
    new: str


Programs = Callable[[str], Path]


def broken(mutation: Mutation, suite: str) -> Programs:
    """Break a copy of the firmware; return a function that compiles a test program with it.

    :param suite: name of the folder for the copies of a test file
    """
    folder = build.BUILD / suite / hashlib.sha256(mutation.name.encode()).hexdigest()[:12]
    tree = build.copy_tree(folder / "tree")
    source = tree / "firmware" / "core" / f"{mutation.file}.c"
    text = source.read_text()
    assert text.count(mutation.old) == 1, "the line to be broken is not there (any more)"
    source.write_text(text.replace(mutation.old, mutation.new))
    return functools.cache(lambda name: build.compile_program(
        name, "gcc", folder, "-O1", "-w", "-Wno-error", tree=tree, kind=()))


def fails(programs: Programs, runs: Sequence[tuple[str | int, ...]]) -> bool:
    """Return whether one of the runs fails.

    :param runs: a program and its arguments
    """
    return any(build.run(programs(str(name)), *map(str, arguments)).returncode
               for name, *arguments in runs)
