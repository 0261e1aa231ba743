# SPDX-License-Identifier: Apache-2.0
"""Read the SSD's log page C2h (doc/source/reference/nvme.rst)."""

import struct
import subprocess

PAGE, SIZE = 0xC2, 512
_SIGNATURE = b"vcacheSS"
#: Causes of programmed blocks of 4096 bytes.
CAUSES = ("host", "gc", "log", "map", "padding", "merge")


def parse(page: bytes) -> dict[str, int]:
    """Return the counters of a page.

    :raises ValueError: if it is another page, or has other causes
    """
    if len(page) != SIZE or not page.startswith(_SIGNATURE):
        raise ValueError("not log page C2h")
    causes, block = struct.unpack_from("<HI", page, 10)
    if causes != len(CAUSES) or block != 4096:
        raise ValueError(f"log page C2h has {causes} causes and blocks of {block} bytes")
    programmed = struct.unpack_from(f"<{causes}Q", page, 128)
    written, erases = (struct.unpack_from("<Q", page, at)[0] for at in (40, 64))
    flushes, checkpoints = (struct.unpack_from("<Q", page, at)[0] for at in (16, 72))
    return {"written": written, "erases": erases, "flushes": flushes,
            "checkpoints": checkpoints, **dict(zip(CAUSES, programmed, strict=True))}


def read(device: str) -> dict[str, int]:
    """Return the counters of a namespace's SSD, since its start."""
    done = subprocess.run(
        ["nvme", "get-log", device, f"--log-id={PAGE:#x}", f"--log-len={SIZE}", "--raw-binary"],
        capture_output=True, check=True)
    return parse(done.stdout)


def parse_pool(status: str) -> dict[str, int]:
    """Return the chunks of a vcache-pool (doc/source/reference/pool.rst), from dmsetup's output.

    clean: chunks that can be freed at once, since the slow disk has their data.
    """
    words = status.split()
    chunks, free, used, dirty = map(int, words[words.index("vcache-pool") + 3:][:4])
    return {"chunks": chunks, "free": free, "dirty": dirty, "clean": used - dirty}


def difference(after: dict[str, int], before: dict[str, int]) -> dict[str, int]:
    """Return the differences of the counters."""
    return {name: after[name] - before[name] for name in after}
