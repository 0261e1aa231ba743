# SPDX-License-Identifier: Apache-2.0
"""Which kernels a box can boot, and whether KVM can run them."""

import functools
import hashlib
import json
import lzma
import os
import re
import shutil
import subprocess
import tempfile
import threading
import zlib
from pathlib import Path

#: Where the images of kernels are. Their modules are in ../lib/modules.
BOOT = Path(os.environ.get("VCACHE_BOOT") or "/boot")
# How the releases of .ci/debug-kernel end.
DEBUG = ("-vcache-debug", "-vcache-kcsan")
# Kernels without their compression.
UNPACKED = Path(__file__).resolve().parents[2] / "build" / "kernels"
# The note that names the entry point for PVH: sizes of its name and its content, type, name.
_PVH_NOTE = re.compile(rb"\x04\0\0\0[\x04\x08]\0\0\0\x12\0\0\0Xen\0")
_OWN_QEMU = Path(__file__).resolve().parents[2] / "build/qemu/usr/bin/qemu-system-x86_64"

# A kernel without a root file system panics within about a second of real
# virtualisation; where /dev/kvm exists but cannot run a stock kernel it hangs
# in the firmware instead.
_PROBE_SECONDS = 10


class KernelNotFound(Exception):
    """No kernel image of the wanted release is installed, or no QEMU to boot it."""


def default() -> str:
    """Return the kernel wanted by the environment, as make sets it, or 6.1."""
    return os.environ.get("VCACHE_KERNEL") or "6.1"


def _version_key(release: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", release)]


def installed(boot: Path = BOOT) -> list[str]:
    """Return the releases of the installed kernel images, oldest first."""
    names = (p.name.removeprefix("vmlinuz-") for p in boot.glob("vmlinuz-*"))
    return sorted(names, key=_version_key)


def select(wanted: str = "6.1", boot: Path = BOOT) -> str:
    """Return the newest installed release that is, or starts with, `wanted`.

    :param wanted: a full release or its beginning, such as ``6.1`` or ``6.12``;
        the debug kernel only by its full release
    :raises KernelNotFound: if none is installed
    """
    releases = installed(boot)
    for release in reversed(releases):
        if release == wanted:
            return release
        if re.match(re.escape(wanted) + r"[.\-]", release) and not release.endswith(DEBUG):
            return release
    raise KernelNotFound(
        f"no kernel image {boot}/vmlinuz-{wanted}*; installed: "
        f"{', '.join(releases) or 'none'} (apt-get install linux-image-amd64)")


def qemu() -> str:
    """Return the QEMU to use: the one of .ci/qemu if there is one, else the system's."""
    if _OWN_QEMU.exists():
        return str(_OWN_QEMU)
    found = shutil.which("qemu-system-x86_64")
    if found is None:
        raise KernelNotFound("qemu-system-x86_64 is not on PATH (apt-get install qemu-system-x86)")
    return found


def qemu_environment() -> dict[str, str]:
    """Return what QEMU needs in its environment: where its own modules are."""
    if not _OWN_QEMU.exists():
        return {}
    return {"QEMU_MODULE_DIR": str(_OWN_QEMU.parents[1] / "lib/x86_64-linux-gnu/qemu")}


def image(release: str, boot: Path = BOOT) -> Path:
    """Return the path of a release's kernel image."""
    path = boot / f"vmlinuz-{release}"
    if not path.is_file():
        raise KernelNotFound(f"no kernel image {path}")
    return path


def unpacked(kernel: Path, folder: Path = UNPACKED) -> Path | None:
    """Return a kernel without its compression, which QEMU boots as well (PVH).

    An emulated processor takes several seconds to unpack the kernel of Debian.

    :param kernel: image
    :param folder: where it is kept
    :return: None if the image is not compressed with xz or gzip, or has no PVH entry
    """
    seen = kernel.stat()
    result = folder / f"{kernel.name}-{seen.st_size}-{seen.st_mtime_ns}"
    if not result.exists():
        try:
            elf = _unpack(kernel.read_bytes())
        except (lzma.LZMAError, zlib.error):
            return None
        if not elf.startswith(b"\x7fELF") or not _PVH_NOTE.search(elf):
            return None
        folder.mkdir(parents=True, exist_ok=True)
        # Another box may be doing the same.
        fresh = folder / f"{result.name}.{os.getpid()}.{threading.get_ident()}"
        fresh.write_bytes(elf)
        fresh.replace(result)
    return result


def _unpack(image: bytes) -> bytes:
    """Return what a bzImage contains; empty if it is not compressed in a known way."""
    if (at := image.find(b"\xfd7zXZ\0")) >= 0:
        xz = lzma.LZMADecompressor()
        content = xz.decompress(image[at:])
        return content if xz.eof else b""
    if (at := image.find(b"\x1f\x8b\x08")) >= 0:
        gzip = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        content = gzip.decompress(image[at:])
        return content if gzip.eof else b""
    return b""


def _probe(kernel: Path) -> bool:
    """Boot `kernel` under KVM until it panics for want of a root."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return False
    command = [
        qemu(), "-accel", "kvm", "-cpu", "host", "-m", "256M", "-display", "none",
        "-nodefaults", "-no-reboot", "-serial", "stdio", "-kernel", str(kernel),
        "-append", "console=ttyS0 panic=-1"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True,
            timeout=_PROBE_SECONDS, check=False)
    except (subprocess.TimeoutExpired, FileNotFoundError):
        return False
    return done.returncode == 0 and b"Linux version" in done.stdout


@functools.cache
def kvm_works(kernel: Path) -> bool:
    """Tell whether KVM runs a stock kernel here; probed once per host boot.

    The answer is kept in a small file in the temporary directory, named by the
    host's boot and the kernel, so that a run of many boxes probes only once.
    """
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    key = hashlib.sha256(f"{boot_id} {os.getuid()} {kernel}".encode()).hexdigest()[:16]
    cache = Path(tempfile.gettempdir()) / f"vcache-box-kvm-{key}.json"
    try:
        return bool(json.loads(cache.read_text())["kvm"])
    except (OSError, ValueError, KeyError):
        works = _probe(kernel)
        cache.write_text(json.dumps({"kvm": works}))
        return works
