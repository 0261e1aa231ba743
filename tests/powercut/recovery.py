# SPDX-License-Identifier: Apache-2.0
"""Recovery of a pool from its cache device after a power cut.

recover/ contains the program: the sources of native/core, which get the sectors of the
log that the device holds. It returns the map from the origin to the cache, and
records the writes of the recovery itself, so that the power can be cut again in the
middle of it.
"""

import functools
import os
import subprocess
import tempfile
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.powercut.crash import Image
from tests.powercut.stamps import SECTOR

REPO = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
BUILD = REPO / "build" / "powercut"

_MEMORY = "/dev/shm"  # noqa: S108 - both map a file there

_CORE = ("crc32c", "meta", "log", "index", "seal", "recover")

# Space for the writes of a few consecutive recoveries, in sectors.
_ROOM = 1 << 15


class RecoveryError(Exception):
    """The pool, or the volume, is unusable."""


@functools.cache
def build(core: Path = REPO / "native" / "core", name: str = "recover", *flags: str) -> Path:
    """Compile the program.

    :param core: the tested sources
    :param name: name of the program
    :param flags: further flags of the compiler
    :return: its path, below build/powercut
    """
    BUILD.mkdir(parents=True, exist_ok=True)
    sources = [*sorted((HERE / "recover").glob("*.c")), *(core / f"{part}.c" for part in _CORE)]
    # Write to a temporary name and rename: another run may be using the program.
    fresh = BUILD / f"{name}.{os.getpid()}"
    subprocess.run([os.environ.get("CC", "cc"), "-std=gnu11", "-O2", "-g", "-Wall", "-Wextra",
                    "-Werror", *flags, "-o", str(fresh), *map(str, sources)], check=True)
    return fresh.replace(BUILD / name)


@dataclass(frozen=True)
class Recovered:
    """The results of a recovery.

    :param map: for each sector of the origin: the sector of the cache, or -1
    :param errors: chunks and entries that could not be used
    :param bad_blocks: number of invalid blocks
    :param chunks: number of chunks with data
    :param writes: writes of the recovery: (first sector, sectors) of the cache device
    :param first: number of the log sector that represents the first written one
    """

    map: Image
    errors: int
    bad_blocks: int
    chunks: int
    writes: list[tuple[int, int]]
    first: int

    def content(self, cache: Image, origin: Image) -> Image:
        """Return the content of the volume."""
        return np.where(self.map >= 0, cache[self.map], origin)

    def interrupted(self, cache: Image, torn: int) -> Iterator[tuple[Image, int]]:
        """Yield the cache device after a cut at each write of the recovery.

        :param cache: the device before the recovery
        :param torn: how many sectors of the last write are present
        :return: the number of sectors of the recovery that it uses, for recover()
        """
        image = cache.copy()
        at = self.first
        total = sum(count for _, count in self.writes)
        for sector, count in self.writes:
            partly = image.copy()
            there = min(torn, count)
            partly[sector:sector + there] = np.arange(at, at + there)
            yield partly, total
            image[sector:sector + count] = np.arange(at, at + count)
            at += count


class Recoverer:
    """Recovers images of one cache device, in a separate process.

    :param program: result of build()
    :param log: log of the recording
    :param logged: its size in sectors
    :param cache: size of the cache device in sectors
    :param origin: size of the origin
    :param volume: number of the volume
    """

    def __init__(self, program: Path, log: Path, logged: int, cache: int, origin: int,
                 volume: int) -> None:
        self._logged = logged
        self._cache = cache
        with tempfile.NamedTemporaryFile(dir=_MEMORY, prefix="powercut-") as shared:
            shared.truncate((cache + origin) * 8 + _ROOM * SECTOR)
            self._numbers = np.memmap(shared.name, np.int64, "r+", 0, (cache + origin,))
            self._process = subprocess.Popen(
                [str(program), str(log), str(logged), shared.name, str(cache), str(origin),
                 str(_ROOM), str(volume)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                text=True)
            self.close = weakref.finalize(self, _end, self._process)
            # When the program answers, it has mapped the file.
            self._ask(0)

    def _ask(self, used: int) -> list[int]:
        process = self._process
        assert process.stdin and process.stdout
        process.stdin.write(f"{used}\n")
        process.stdin.flush()
        words = process.stdout.readline().split()
        if not words:
            raise RecoveryError(f"the recovery crashed: {process.wait()}")
        return [int(word) for word in words]

    def recover(self, cache: Image, used: int = 0) -> Recovered:
        """Recover an image of the cache device.

        :param cache: for each sector, the sector of the log with its content
        :param used: sectors that earlier recoveries wrote, which are in the image
        :raises RecoveryError: if the pool cannot be recovered
        """
        self._numbers[:self._cache] = cache
        status, errors, bad, chunks, *writes = self._ask(used)
        if status:
            raise RecoveryError(f"the pool does not come back: {os.strerror(-status)}")
        return Recovered(np.array(self._numbers[self._cache:]), errors, bad, chunks,
                         list(zip(writes[::2], writes[1::2], strict=True)),
                         self._logged + used)


def _end(process: "subprocess.Popen[str]") -> None:
    assert process.stdin
    process.stdin.close()
    process.wait()
