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

# For the writes of a few recoveries on top of one another, in sectors.
_ROOM = 1 << 15


class RecoveryError(Exception):
    """The pool, or the volume, cannot be used any more."""


@functools.cache
def build(core: Path = REPO / "native" / "core", name: str = "recover", *flags: str) -> Path:
    """Compile the program.

    :param core: the sources that it tries
    :param name: of the program
    :param flags: further ones, of the compiler
    :return: its path, below build/powercut
    """
    BUILD.mkdir(parents=True, exist_ok=True)
    sources = [*sorted((HERE / "recover").glob("*.c")), *(core / f"{part}.c" for part in _CORE)]
    # Aside and into place: another run may be using it.
    fresh = BUILD / f"{name}.{os.getpid()}"
    subprocess.run([os.environ.get("CC", "cc"), "-std=gnu11", "-O2", "-g", "-Wall", "-Wextra",
                    "-Werror", *flags, "-o", str(fresh), *map(str, sources)], check=True)
    return fresh.replace(BUILD / name)


@dataclass(frozen=True)
class Recovered:
    """What a recovery has found and done.

    :param map: by sector of the origin: the sector of the cache, or -1
    :param errors: chunks and entries that could not be used
    :param bad_blocks: that were not whole
    :param chunks: that hold something
    :param writes: of the recovery: (first sector, sectors) of the cache device
    :param first: number of the log's sector that stands for the first one written
    """

    map: Image
    errors: int
    bad_blocks: int
    chunks: int
    writes: list[tuple[int, int]]
    first: int

    def content(self, cache: Image, origin: Image) -> Image:
        """Return what the volume holds."""
        return np.where(self.map >= 0, cache[self.map], origin)

    def interrupted(self, cache: Image, torn: int) -> Iterator[tuple[Image, int]]:
        """Yield the cache device after a cut at each write of the recovery.

        :param cache: the device before the recovery
        :param torn: how many sectors of the last write are there
        :return: and how many sectors of the recovery that takes, for recover()
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
    """Recovers images of one cache device, in a process of its own.

    :param program: what build() has made
    :param log: log of the recording
    :param logged: sectors of it
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
            # The program has mapped the file when it answers.
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

        :param cache: for each sector the log's sector that it is a copy of
        :param used: sectors that earlier recoveries wrote, which are in the image
        :raises RecoveryError: if the pool does not come back
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
