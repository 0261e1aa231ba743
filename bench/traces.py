# SPDX-License-Identifier: Apache-2.0
"""Read real traces. They are not part of the project, but in a folder beside it."""

import array
import lzma
import os
from pathlib import Path

#: Folder of the traces; expected/ contains the results of independent programs.
TRACES = Path(os.environ.get(
    "VCACHE_TRACES", Path(__file__).resolve().parents[1].parent / "shared" / "traces"))
SUFFIX = ".csv.xz"


def read(path: Path) -> tuple[array.array, bytearray]:
    """Return the 4 KiB blocks that a trace accesses, and for each access 1 if it is a write."""
    blocks, written = array.array("Q"), bytearray()
    with lzma.open(path, "rt") as file:
        for line in file:
            _, offset, size, op = line.rstrip("\n").split(",")[:4]
            if op in ("R", "W") and int(size):
                first, last = int(offset) // 4096, (int(offset) + int(size) - 1) // 4096
                blocks.extend(range(first, last + 1))
                written.extend((op == "W",) * (last + 1 - first))
    return blocks, written
