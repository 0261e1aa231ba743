# SPDX-License-Identifier: Apache-2.0
"""Compile benchmarks that contain the firmware on the NAND model, in virtual time."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: The firmware, the NAND model, the drives, and a fast checksum.
PARTS = ("bench/vflush/crc32c.c", "firmware/core/*.c", "firmware/nand/*.c",
         "firmware/host/drive.c")


def build(program: Path, parts: Sequence[str], tree: Path = ROOT,
          flags: Sequence[str] = ("-O3", "-g")) -> Path:
    """Compile a program, and return its path.

    :param parts: patterns of its own sources
    :param tree: the repository, or a copy of it with changes
    :param flags: of the compiler
    """
    program.parent.mkdir(parents=True, exist_ok=True)
    sources = sorted({str(path) for part in (*parts, *PARTS) for path in tree.glob(part)})
    subprocess.run(["cc", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", *flags,
                    "-Wl,--wrap=vs_crc32c", "-o", str(program), *sources], check=True)
    return program
