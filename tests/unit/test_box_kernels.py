# SPDX-License-Identifier: Apache-2.0
"""The newest matching kernel image is chosen, and errors list the available ones."""

from pathlib import Path

import pytest

from tests.box import kernels


@pytest.fixture
def boot(tmp_path: Path) -> Path:
    for release in ("6.1.0-9-amd64", "6.1.0-56-amd64", "6.12.95+deb12-amd64"):
        (tmp_path / f"vmlinuz-{release}").touch()
    (tmp_path / "initrd.img-6.1.0-99-amd64").touch()
    return tmp_path


def test_newest_of_a_series(boot: Path) -> None:
    assert kernels.select("6.1", boot) == "6.1.0-56-amd64"


def test_series_is_not_a_mere_prefix(boot: Path) -> None:
    # "6.1" must not match 6.12
    (boot / "vmlinuz-6.1.0-9-amd64").unlink()
    (boot / "vmlinuz-6.1.0-56-amd64").unlink()
    with pytest.raises(kernels.KernelNotFound, match="6.12.95"):
        kernels.select("6.1", boot)


def test_full_release(boot: Path) -> None:
    assert kernels.select("6.1.0-9-amd64", boot) == "6.1.0-9-amd64"
    assert kernels.image("6.1.0-9-amd64", boot) == boot / "vmlinuz-6.1.0-9-amd64"


def test_debug_kernel_only_when_asked_for(boot: Path) -> None:
    (boot / "vmlinuz-6.1.192-vcache-debug").touch()
    assert kernels.select("6.1", boot) == "6.1.0-56-amd64"
    assert kernels.select("6.1.192-vcache-debug", boot) == "6.1.192-vcache-debug"


def test_none_installed(tmp_path: Path) -> None:
    with pytest.raises(kernels.KernelNotFound, match="none"):
        kernels.select("6.1", tmp_path)
