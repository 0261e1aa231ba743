# SPDX-License-Identifier: Apache-2.0
"""The newest matching kernel image is chosen, and errors list the available ones."""

import gzip
import lzma
import os
from collections.abc import Callable
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


@pytest.mark.parametrize("name", ["debug", "kcsan"])
def test_debug_kernel_only_when_asked_for(boot: Path, name: str) -> None:
    (boot / f"vmlinuz-6.1.192-vcache-{name}").touch()
    assert kernels.select("6.1", boot) == "6.1.0-56-amd64"
    assert kernels.select(f"6.1.192-vcache-{name}", boot) == f"6.1.192-vcache-{name}"


def test_none_installed(tmp_path: Path) -> None:
    with pytest.raises(kernels.KernelNotFound, match="none"):
        kernels.select("6.1", tmp_path)


ELF = b"\x7fELF" + bytes(100) + b"\x04\0\0\0\x08\0\0\0\x12\0\0\0Xen\0" + bytes(100)


@pytest.mark.parametrize("pack", [lzma.compress, gzip.compress])
def test_a_packed_kernel_is_unpacked_once(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    image = tmp_path / "vmlinuz-6.1"
    image.write_bytes(b"MZ" + bytes(50) + pack(ELF) + bytes(50))
    found = kernels.unpacked(image, tmp_path / "to")
    assert found and found.read_bytes() == ELF
    found.write_bytes(b"kept")
    assert kernels.unpacked(image, tmp_path / "to") == found
    assert [*(tmp_path / "to").iterdir()] == [found]
    assert found.read_bytes() == b"kept"
    # Another kernel of the same name, after an upgrade.
    os.utime(image, ns=(1, 1))
    other = kernels.unpacked(image, tmp_path / "to")
    assert other and other != found and other.read_bytes() == ELF


@pytest.mark.parametrize("content", [
    b"", b"MZ" + bytes(100), lzma.compress(b"no ELF"), gzip.compress(ELF)[:40],
    gzip.compress(ELF.replace(b"Xen", b"Nex")), b"\xfd7zXZ\0 damaged", b"\x1f\x8b\x08damaged"])
def test_other_kernels_are_booted_as_they_are(tmp_path: Path, content: bytes) -> None:
    image = tmp_path / "vmlinuz-6.1"
    image.write_bytes(content)
    assert kernels.unpacked(image, tmp_path / "to") is None
