# SPDX-License-Identifier: Apache-2.0
"""Build the target with one of its rules broken, to test the harness.

A mutation is a patch in mutations/, made against native/. Its first lines describe
the broken rule, and "Scenario: NAME" names the load that shows it.
"""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.powercut import recovery
from tests.powercut.kernel import Kernel

HERE = Path(__file__).resolve().parent
NATIVE = HERE.parents[1] / "native"

_SCENARIO = re.compile(r"^Scenario: ([a-z-]+)$", re.MULTILINE)


class MutationError(Exception):
    """A mutation does not apply or does not compile."""


@dataclass(frozen=True)
class Mutation:
    """A patch that breaks a rule of the target."""

    patch: Path

    @property
    def name(self) -> str:
        """Its name in reports."""
        return self.patch.stem

    @property
    def scenario(self) -> str:
        """Name of the load that must detect it, one of scenario.FOCUSED."""
        match = _SCENARIO.search(self.patch.read_text())
        if not match:
            raise MutationError(f"{self.patch}: has no line 'Scenario: NAME'")
        return match[1]

    def apply(self, tree: Path, *, back: bool = False) -> None:
        """Patch a copy of native/, or revert the patch.

        :raises MutationError: if it does not apply to native/
        """
        _run(["patch", "-p2", "--batch", "--fuzz=3", "--no-backup-if-mismatch",
              *(["--reverse"] if back else []), "--directory", str(tree),
              "--input", str(self.patch)],
             f"{self.patch}: does not apply to native/ any more")


@dataclass(frozen=True)
class Built:
    """The built files of a mutation.

    :param module: path of the module
    :param recover: path of the program that recovers its pools on the host
    """

    module: str
    recover: str


def build(mutations: Sequence[Mutation], kernel: Kernel, folder: Path) -> dict[str, Built]:
    """Build the module of each mutation for a kernel.

    :param folder: folder for the modules
    :return: by the names of the mutations
    :raises MutationError: if a mutation does not apply or does not compile
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = {}
    # In one tree, one after another, so that only changed files are compiled.
    with tempfile.TemporaryDirectory(dir=folder.resolve()) as work:
        tree = Path(work) / "native"
        shutil.copytree(NATIVE, tree)
        for mutation in mutations:
            mutation.apply(tree)
            _run([*kernel.make(), f"M={tree / 'dm'}", "modules"],
                 f"{mutation.patch}: does not build")
            result = folder.resolve() / f"{mutation.name}.ko"
            shutil.copy(tree / "dm" / "dm-vcache.ko", result)
            program = recovery.build(tree / "core", f"recover-{mutation.name}")
            paths[mutation.name] = Built(str(result), str(program))
            mutation.apply(tree, back=True)
    return paths


def _run(command: list[str], problem: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MutationError(f"{problem}:\n{done.stdout}{done.stderr}")


def all_mutations() -> list[Mutation]:
    """Return the mutations, in the order of their names."""
    return [Mutation(path) for path in sorted((HERE / "mutations").glob("*.patch"))]
