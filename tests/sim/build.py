# SPDX-License-Identifier: Apache-2.0
"""Compile the module with the simulated kernel of native/sim to a program.

The sources of the module are compiled as they are, or with some edits: a mutation. Files that
are not edited are compiled once for all programs.
"""

import concurrent.futures
import dataclasses
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
NATIVE = REPO / "native"
BUILD = REPO / "build" / "sim"

WARNINGS = ("-Wall", "-Wno-unused-function", "-Wno-unused-variable", "-Wno-unused-value",
            "-Wno-unused-but-set-variable", "-Wno-address", "-Wno-format-truncation",
            "-Wno-misleading-indentation", "-Wno-pointer-sign")
FLAGS = ("-std=gnu11", "-g", "-fno-strict-aliasing", "-fno-pie", "-fno-common",
         "-D__KERNEL__", "-D_GNU_SOURCE", "-DVCACHE_PROBES", *WARNINGS)
SANITIZERS = ("-DSIM_ASAN", "-fsanitize=address,undefined", "-fno-omit-frame-pointer",
              "-fno-sanitize=alignment,shift", "-fno-sanitize-recover=undefined")

_INCLUDE = re.compile(r"^\s*#\s*include\s*<((?:linux|net|asm|trace)/[^>]+)>", re.MULTILINE)

# These come from the C library: native/sim needs them for itself.
_REAL = {"asm/errno.h"}


class BuildError(Exception):
    """The program does not compile, or an edit does not apply."""


@dataclasses.dataclass(frozen=True)
class Edit:
    """A change of a source file of the module.

    :param file: name of the file, or the end of its path
    :param old: text that occurs in it exactly once
    :param new: what replaces it
    """

    file: str
    old: str
    new: str


@dataclasses.dataclass(frozen=True)
class Variant:
    """How to compile.

    :param name: folder of the object files
    :param sanitize: with AddressSanitizer and UndefinedBehaviorSanitizer
    :param coverage: count the lines that are executed
    """

    name: str
    sanitize: bool = False
    coverage: bool = False

    def flags(self, *, module: bool) -> tuple[str, ...]:
        """Return the compiler flags for files of the module, or of the simulation."""
        if self.sanitize:
            return ("-O1", *SANITIZERS)
        if self.coverage and module:
            # Each counter in a section of its own, see _world().
            return ("-O1", "--coverage", "-fdata-sections")
        return ("-O1",) if module else ("-O2",)


PLAIN = Variant("plain")
SANITIZED = Variant("sanitized", sanitize=True)
COVERAGE = Variant("coverage", coverage=True)


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"{' '.join(command)}:\n{done.stdout}{done.stderr}")


def module_sources() -> list[Path]:
    """Return the source files of the module, wherever they are below native/dm and core."""
    return sorted(path for folder in ("dm", "core")
                  for path in (NATIVE / folder).rglob("*.c"))


def _headers() -> list[Path]:
    return sorted(path for folder in ("dm", "core", "netlink")
                  for path in (NATIVE / folder).rglob("*.h"))


def _wrappers(texts: Iterable[str], folder: Path) -> None:
    """Make a header that includes the simulated kernel for each header of the kernel."""
    for text in texts:
        for name in _INCLUDE.findall(text):
            path = folder / name
            if name in _REAL or path.exists():
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text('#include "block.h"\n')


def _include_flags(wrappers: Path) -> list[str]:
    return [f"-I{path}" for path in (wrappers, NATIVE / "sim", NATIVE / "sim" / "shim",
                                     NATIVE / "netlink")]


def _find(file: str) -> Path:
    """Find a file of the module by its name, or by the end of its path."""
    found = [path for path in (*module_sources(), *_headers())
             if path.as_posix().endswith(f"/{file}")]
    if len(found) != 1:
        raise BuildError(f"{file}: the module has {len(found)} such files")
    return found[0]


def applies(edits: Sequence[Edit]) -> bool:
    """Tell whether all edits find their places in the sources."""
    return all(_find(edit.file).read_text().count(edit.old) == 1 for edit in edits)


def _world(target: Path) -> None:
    """Move the module's variables to sections that the simulation can save and restore.

    The counters of executed lines are not part of the world: they stay where they are.
    """
    listed = subprocess.run(["objdump", "-h", str(target)], capture_output=True, text=True,
                            check=True).stdout
    moved = []
    for section in re.findall(r"^\s+\d+ (\S+)", listed, re.MULTILINE):
        kind, _, name = section.removeprefix(".").partition(".")
        if kind in {"data", "bss"} and not name.startswith(("__gcov", ".LPBX", "LPBX")):
            moved += ["--rename-section", f"{section}=simmod{kind}"]
    _run(["objcopy", *moved, str(target)])


def _apply(edits: Sequence[Edit], folder: Path) -> dict[Path, Path]:
    """Write edited copies into a copy of the sources. Return: where they are."""
    for part in ("core", "dm", "netlink"):
        shutil.copytree(NATIVE / part, folder / part)
    paths: dict[Path, Path] = {}
    for edit in edits:
        source = _find(edit.file)
        path = folder / source.relative_to(NATIVE)
        text = path.read_text()
        if text.count(edit.old) != 1:
            raise BuildError(f"{edit.file}: the edit does not apply any more: {edit.old!r}")
        path.write_text(text.replace(edit.old, edit.new))
        paths[source] = path
    if any(path.suffix == ".h" for path in paths):
        # Files include the headers beside them.
        paths |= {path: folder / path.relative_to(NATIVE) for path in module_sources()}
    return paths


def build(variant: Variant = PLAIN, edits: Sequence[Edit] = (), name: str = "sim",
          jobs: int | None = None) -> Path:
    """Compile the program.

    :param variant: how to compile
    :param edits: changes of the module
    :param name: name of the program
    :param jobs: compilers at a time
    :return: its path
    :raises BuildError: if it does not compile, or an edit does not apply
    """
    folder = BUILD / variant.name
    objects = folder / "objects"
    objects.mkdir(parents=True, exist_ok=True)
    wrappers = BUILD / "include"
    sources = module_sources()
    headers = _headers()
    _wrappers((path.read_text() for path in (*sources, *headers)), wrappers)
    if edits:
        shutil.rmtree(folder / f"{name}-edited", ignore_errors=True)
    edited = _apply(edits, folder / f"{name}-edited") if edits else {}
    includes = _include_flags(wrappers)
    own = sorted((NATIVE / "sim").glob("*.c"))
    own_headers = sorted((NATIVE / "sim").rglob("*.h"))
    # A change of any header compiles everything, unless it is an edited copy's.
    common = hashlib.sha256()
    for path in (*headers, *own_headers):
        common.update(path.read_bytes())
    for source, path in edited.items():
        if source.suffix == ".h":
            common.update(path.read_bytes())

    def compile_one(path: Path) -> Path:
        module = path not in own
        source = edited.get(path, path)
        flags = (*FLAGS, *variant.flags(module=module))
        key = hashlib.sha256(common.digest() + source.read_bytes() +
                             " ".join(flags).encode()).hexdigest()[:16]
        prefix = "" if module else "sim_"
        target = objects / f"{prefix}{path.stem}-{key}.o"
        if target.exists():
            return target
        partial = target.with_suffix(f".{os.getpid()}.o")
        _run(["cc", *flags, *includes, "-c", str(source), "-o", str(partial)])
        if module:
            _world(partial)
        partial.rename(target)
        return target

    with concurrent.futures.ThreadPoolExecutor(jobs or os.cpu_count() or 1) as pool:
        compiled = list(pool.map(compile_one, (*sources, *own)))
    program = folder / name
    _run(["cc", "-g", "-no-pie", *(SANITIZERS if variant.sanitize else ()),
          *(("--coverage",) if variant.coverage else ()),
          "-o", str(program), *map(str, compiled), "-lm"])
    return program
