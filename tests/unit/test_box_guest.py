# SPDX-License-Identifier: Apache-2.0
"""The small guest: other programs can read its archive, and its kernel boots."""

import lzma
import struct
import subprocess
from pathlib import Path

import pytest

from tests.box import kernels
from tests.box.guest import image


def test_archive_is_read_by_cpio(tmp_path: Path) -> None:
    members = [("bin", 0o040755, b""), ("bin/odd", 0o100755, b"12345"),
               ("bin/link", 0o120777, b"odd"), ("empty", 0o100644, b"")]
    subprocess.run([image.BUSYBOX, "cpio", "-i"], input=image.cpio(members), cwd=tmp_path,
                   check=True, capture_output=True)
    assert (tmp_path / "bin" / "odd").read_bytes() == b"12345"
    assert (tmp_path / "bin" / "odd").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "bin" / "link").readlink() == Path("odd")
    assert (tmp_path / "empty").read_bytes() == b""


def _bzimage(payload: bytes) -> bytes:
    header = bytearray(1024)
    header[0x1f1] = 1
    header[0x202:0x206] = b"HdrS"
    struct.pack_into("<II", header, 0x248, 16, len(payload))
    return bytes(header) + b"x" * 16 + payload + b"trailer"


def test_kernel_is_unpacked() -> None:
    packed = lzma.compress(b"\x7fELF kernel") + struct.pack("<I", 11)
    assert image.unpack_kernel(_bzimage(packed)) == b"\x7fELF kernel"


@pytest.mark.parametrize("other", [_bzimage(b"\x28\xb5\x2f\xfd zstd"), b"\0" * 2048])
def test_other_kernels_are_left_packed(other: bytes) -> None:
    assert image.unpack_kernel(other) is None


def test_modules_are_in_loading_order() -> None:
    names = [path.name for path in image._module_files(kernels.select())]
    assert names.index("virtio_ring.ko") < names.index("virtio_pci.ko")
    assert names.index("virtio.ko") < names.index("virtio_blk.ko")
    assert len(names) == len(set(names))
