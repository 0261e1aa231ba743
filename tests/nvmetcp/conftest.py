# SPDX-License-Identifier: Apache-2.0
"""The program is built once per run. Most tests share a process, which keeps no state."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nvmetcp import build
from tests.nvmetcp.ssd import Ssd


@pytest.fixture(scope="session")
def program() -> Path:
    """Vcache-ssd with clang's sanitizers, or a mutation of test_mutations.py."""
    if changed := os.environ.get("VCACHE_SSD_PROGRAM"):
        return Path(changed)
    return build.vcache_ssd("clang", build.BUILD / "clang")


@pytest.fixture(scope="session")
def drive_program() -> Path:
    """Vcache-ssd with the real firmware, with clang's sanitizers."""
    if changed := os.environ.get("VCACHE_DRIVE_PROGRAM"):
        return Path(changed)
    return build.compile_files(build.BUILD / "clang-drive" / "vcache-ssd", "clang",
                               build.real_sources(), *build.SANITIZERS)


@pytest.fixture
def ssd(program: Path) -> Iterator[Ssd]:
    """An SSD of 16 MiB in memory, with two namespaces and without timing."""
    with Ssd(program, "--namespaces", "2", "--timing", "off") as running:
        yield running
