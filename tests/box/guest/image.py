# SPDX-License-Identifier: Apache-2.0
"""Build the small guest: Debian's kernel and an initramfs with vload.

The initramfs holds busybox, the virtio modules of the kernel and the load
generator; it boots to "@vload {"ready": 1}" on the serial console.
"""

import lzma
import os
import struct
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.box import kernels

HERE = Path(__file__).resolve().parent
REPO = HERE.parents[2]
BUSYBOX = Path("/bin/busybox")
MODULES = ("virtio_pci", "virtio_blk")

# What QEMU must tell the kernel: nothing but faults on the console that
# carries vload's replies.
CMDLINE = "root=/dev/vda console=ttyS0 quiet loglevel=1 panic=-1 mitigations=off"


@dataclass(frozen=True)
class Guest:
    """A bootable guest: kernel, initramfs and kernel command line."""

    kernel: Path
    initrd: Path
    cmdline: str = CMDLINE


def _newc(name: str, mode: int, data: bytes, inode: int) -> bytes:
    """Return one member of a cpio archive in the "newc" form the kernel reads."""
    encoded = name.encode() + b"\0"
    # magic, inode, mode, uid, gid, links, mtime, size, device (2), rdev (2),
    # length of the name, checksum
    fields = (inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(encoded), 0)
    header = b"070701" + b"".join(b"%08X" % value for value in fields)
    member = header + encoded
    member += b"\0" * (-len(member) % 4)
    return member + data + b"\0" * (-len(data) % 4)


def cpio(members: Iterable[tuple[str, int, bytes]]) -> bytes:
    """Return a newc archive of (name, mode, content) members."""
    parts = [_newc(name, mode, data, inode)
             for inode, (name, mode, data) in enumerate(members, 1)]
    return b"".join(parts) + _newc("TRAILER!!!", 0, b"", 0)


def _module_files(release: str) -> list[Path]:
    """Return the files of MODULES and what they need, in loading order."""
    found: list[Path] = []
    for module in MODULES:
        out = subprocess.run(
            ["modprobe", "--show-depends", "--ignore-install", "-S", release, module],
            capture_output=True, text=True, check=True).stdout
        for line in out.splitlines():
            words = line.split()
            if words[0] == "insmod" and Path(words[1]) not in found:
                found.append(Path(words[1]))
    return found


def _build_vload(target: Path) -> None:
    subprocess.run(
        [os.environ.get("CC", "cc"), "-std=gnu11", "-O2", "-static", "-Wall", "-Wextra",
         "-Werror", "-o", str(target), str(HERE / "vload.c"), str(HERE / "mix.c")], check=True)


def unpack_kernel(packed: bytes) -> bytes | None:
    """Return the vmlinux inside a bzImage, or None if it is not packed with xz.

    Unpacking takes an emulated processor longer than the rest of the boot, and
    QEMU starts an ELF kernel by its PVH entry. See Documentation/x86/boot.rst
    for the fields; other packers are quick enough to be left to the kernel.
    """
    if packed[0x202:0x206] != b"HdrS":
        return None
    setup_sectors = packed[0x1f1] or 4
    offset, length = struct.unpack_from("<II", packed, 0x248)
    start = (setup_sectors + 1) * 512 + offset
    payload = packed[start:start + length]
    if not payload.startswith(b"\xfd7zXZ\0"):
        return None
    # Behind the archive there is its unpacked size, four bytes.
    return lzma.LZMADecompressor().decompress(payload)


def _kernel(release: str, out: Path) -> Path:
    """Return the kernel to boot, unpacked where that helps."""
    installed = kernels.image(release)
    unpacked = unpack_kernel(installed.read_bytes())
    if unpacked is None:
        return installed
    path = out / "vmlinux"
    path.write_bytes(unpacked)
    return path


def build(kernel: str = "6.1", folder: Path = REPO / "build" / "guest") -> Guest:
    """Build the guest for the newest kernel of a series.

    :param kernel: release or its beginning
    :param folder: where the products go
    """
    release = kernels.select(kernel)
    out = folder / release
    out.mkdir(parents=True, exist_ok=True)
    _build_vload(out / "vload")
    if not BUSYBOX.exists():
        raise FileNotFoundError(f"no {BUSYBOX} (apt-get install busybox-static)")
    files = _module_files(release)
    order = "".join(f"{file.name}\n" for file in files).encode()
    directory, program, plain = 0o040755, 0o100755, 0o100644
    members = [
        ("bin", directory, b""), ("modules", directory, b""),
        ("bin/busybox", program, BUSYBOX.read_bytes()),
        ("bin/vload", program, (out / "vload").read_bytes()),
        ("modules/order", plain, order),
        *((f"modules/{file.name}", plain, file.read_bytes()) for file in files),
        # /bin/sh of the init script
        ("bin/sh", 0o120777, b"busybox"),
        ("init", program, (HERE / "init").read_bytes()),
    ]
    initrd = out / "initrd"
    fresh = initrd.with_suffix(".new")
    fresh.write_bytes(cpio(members))
    fresh.replace(initrd)
    return Guest(_kernel(release, out), initrd)
