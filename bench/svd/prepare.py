# SPDX-License-Identifier: Apache-2.0
"""Before the box boots: create the host's file system, and a long-used SSD with it."""

import os
import subprocess
from pathlib import Path

from bench.svd import settings
from tests.box.ssd import REPO

HERE = Path(__file__).resolve().parent
SIZE = settings.DRIVE_MB << 20
_BLOCK = 4096
#: qcow2 has its metadata before this offset, and data in order after it.
_SKIP = (1 << 20) // _BLOCK


def build(folder: Path) -> Path:
    """Compile the program that ages an SSD."""
    program = folder / "age"
    sources = [HERE / "age.c", *(path for part in ("core", "nand", "host")
                                 for path in sorted((REPO / "firmware" / part).glob("*.c")))]
    subprocess.run(["cc", "-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror", "-o",
                    program, *sources], check=True)
    return program


def file_system(folder: Path, form: str) -> Path:
    """Create ext4 with a fully written image in it; it fills the SSD."""
    content = folder / f"{form}.d"
    content.mkdir(exist_ok=True)
    raw = folder / "raw"
    raw.write_bytes(bytes(range(1, 256)) * ((settings.IMAGE_MB << 20) // 255 + 1))
    with raw.open("r+b") as file:
        file.truncate(settings.IMAGE_MB << 20)
    image = content / "image"
    image.unlink(missing_ok=True)
    subprocess.run(["qemu-img", "convert", "-S", "0", "-f", "raw", "-O", form, raw, image],
                   check=True)
    system = folder / f"{form}.ext4"
    # It may exist already, or mke2fs prints that it creates it.
    system.write_bytes(b"")
    os.truncate(system, SIZE)
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-b", str(_BLOCK), "-m", "0", "-N", "16", "-J",
                    "size=4", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard,"
                    "root_owner=0:0", "-d", content, system, f"{settings.DRIVE_MB}M"], check=True)
    return system


def numbers(text: str) -> list[int]:
    """Return the block numbers printed by debugfs, in the order of the file."""
    return [int(word) for word in text.split()]


def working_set(blocks: list[int], mb: int) -> list[int]:
    """Return the image's blocks that the guest writes."""
    wanted = blocks[_SKIP:_SKIP + (mb << 20) // _BLOCK]
    if len(wanted) != (mb << 20) // _BLOCK:
        raise ValueError(f"the image has only {len(blocks)} blocks")
    return wanted


def aged(program: Path, folder: Path, system: Path, mapping: str, form: str) -> Path:
    """Create the SSD's image with the file system on it."""
    found = subprocess.run(["debugfs", "-R", "blocks /image", system], capture_output=True,
                           text=True, check=True).stdout
    chosen = working_set(numbers(found), settings.WORKING_SET_MB)
    ssd = folder / f"{mapping}-{form}.ssd"
    ssd.unlink(missing_ok=True)
    subprocess.run([program, ssd, str(SIZE), mapping, system, str(settings.AGE_WRITES),
                    str(settings.SEED)], input=" ".join(map(str, chosen)), text=True, check=True)
    return ssd


def prepare(folder: Path) -> None:
    """Create the initial state of all cases."""
    folder.mkdir(parents=True, exist_ok=True)
    program = build(folder)
    for form in settings.FORMATS:
        system = file_system(folder, form)
        for mapping in settings.MAPPINGS:
            aged(program, folder, system, mapping, form)
