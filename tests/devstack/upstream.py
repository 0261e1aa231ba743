# SPDX-License-Identifier: Apache-2.0
"""Fetch devstack at the commit with which the plugin is tested."""

import os
import subprocess
from pathlib import Path

from tests.devstack import ROOT

COMMIT = "493835a61a996731a7031861f80c7629acd5d6f2"  # of 2026-07-17
#: Sources, in order. VCACHE_DEVSTACK, a Git repository, comes before them.
SOURCES = ("https://opendev.org/openstack/devstack", "https://github.com/openstack/devstack")


class Unavailable(Exception):
    """No source has it."""


def checkout() -> Path:
    """Return a folder with devstack's files, fetched once.

    :raises Unavailable: if no source is available
    """
    folder = ROOT / "build/devstack/upstream"
    if _commit(folder) == COMMIT:
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    _git(folder, "init", "-q")
    given = os.environ.get("VCACHE_DEVSTACK")
    said = []
    for source in (given,) if given else SOURCES:
        try:
            _git(folder, "fetch", "-q", "--depth", "1", source, COMMIT)
            _git(folder, "checkout", "-q", "-f", COMMIT)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            output = getattr(error, "stderr", "") or str(error)
            said.append(f"{source}: {str(output).strip().splitlines()[0]}")
        else:
            return folder
    raise Unavailable(f"devstack {COMMIT[:12]} cannot be fetched; VCACHE_DEVSTACK names a Git "
                      f"repository that has it. {'; '.join(said)}")


def _git(folder: Path, *words: str) -> str:
    return subprocess.run(
        ["git", "-C", str(folder), *words], check=True, capture_output=True, text=True,
        timeout=300, env={**os.environ, "GIT_TERMINAL_PROMPT": "0"}).stdout


def _commit(folder: Path) -> str:
    # Not the repository around it.
    if not (folder / ".git").is_dir():
        return ""
    try:
        return _git(folder, "rev-parse", "HEAD").strip()
    except subprocess.CalledProcessError:
        return ""
