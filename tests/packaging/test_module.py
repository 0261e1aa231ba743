# SPDX-License-Identifier: Apache-2.0
"""The kernel module builds without warnings, and with DKMS."""

import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
#: Where "make test" builds the module, too: .ci/module does not repeat the same build.
OUTPUT = ROOT / "build" / "module"


def kernels_with_headers() -> list[str]:
    """Return the installed kernels with headers."""
    makefiles = pathlib.Path("/lib/modules").glob("*/build/Makefile")
    return sorted(makefile.parts[3] for makefile in makefiles)


def modinfo(module: pathlib.Path, field: str) -> str:
    """Return a field of a module's description."""
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    return subprocess.run(
        ["modinfo", "-F", field, str(module)], check=True, capture_output=True, text=True,
        env={**os.environ, "PATH": path}).stdout.strip()


@pytest.mark.parametrize("release", kernels_with_headers())
def test_builds_without_a_warning(release: str) -> None:
    output = OUTPUT / release
    # .ci/module fails on any warning.
    done = subprocess.run(
        [str(ROOT / ".ci" / "module"), release, str(output), "W=1"],
        capture_output=True, text=True, check=False, timeout=3600)
    assert done.returncode == 0, done.stderr
    module = output / "dm-vcache.ko"
    assert modinfo(module, "vermagic").split()[0] == release
    assert modinfo(module, "license") == "GPL"


def test_builds_under_dkms() -> None:
    release = os.environ.get("VCACHE_KERNEL") or subprocess.run(
        [str(ROOT / ".ci" / "kernel")], check=True, capture_output=True, text=True).stdout.strip()
    done = subprocess.run(
        [str(ROOT / ".ci" / "dkms"), release], capture_output=True, text=True, check=False,
        timeout=3600)
    assert done.returncode == 0, done.stdout + done.stderr
    module = pathlib.Path(done.stdout.splitlines()[-1])
    assert modinfo(module, "vermagic").split()[0] == release
