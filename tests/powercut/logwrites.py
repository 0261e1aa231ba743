# SPDX-License-Identifier: Apache-2.0
"""Read the log of dm-log-writes (the format is in drivers/md/dm-log-writes.c)."""

import enum
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.powercut.stamps import SECTOR, Sectors

MAGIC = 0x6A736677736872
VERSION = 1
_SUPER = struct.Struct("<QQQI")
_ENTRY = struct.Struct("<QQQQ")

#: Text of the mark that the target writes when it is removed.
END_MARK = b"dm-log-writes-end"


class LogError(Exception):
    """The log is not one of dm-log-writes, or is incomplete."""


class Flag(enum.IntFlag):
    """Flags of an entry."""

    FLUSH = 1
    FUA = 2
    DISCARD = 4
    MARK = 8
    METADATA = 16


@dataclass(frozen=True)
class Entry:
    """One request that reached the origin.

    :param data: sector of the log where its data begins; 0: it has none
    """

    sector: int
    count: int
    flags: Flag
    data: int


@dataclass(frozen=True)
class Log:
    """A whole log.

    :param sectors: all sectors of the log, a row each; row 0 is zeroed and
        represents sectors that were never written
    """

    entries: list[Entry]
    sectors: Sectors


def read(path: Path) -> Log:
    """Read a log.

    :raises LogError: if it is not a log, or its end is missing
    """
    mapped = np.memmap(path, np.uint8, "r", 0, (path.stat().st_size // SECTOR, SECTOR))
    magic, version, count, sector_size = _SUPER.unpack_from(mapped[0].tobytes())
    if magic != MAGIC or version != VERSION:
        raise LogError(f"{path}: no log of dm-log-writes version {VERSION}")
    if sector_size != SECTOR:
        raise LogError(f"{path}: sectors of {sector_size} bytes, not {SECTOR}")
    entries: list[Entry] = []
    at = 1
    ended = False
    for number in range(count):
        if at >= len(mapped):
            raise LogError(f"{path}: entry {number} lies behind the end")
        header = mapped[at].tobytes()
        sector, sectors, bits, length = _ENTRY.unpack_from(header)
        flags = Flag(bits)
        has_data = bool(sectors) and not flags & (Flag.DISCARD | Flag.MARK)
        if flags & Flag.MARK:
            ended |= header[_ENTRY.size:_ENTRY.size + length] == END_MARK
        else:
            entries.append(Entry(sector, sectors, flags, at + 1 if has_data else 0))
        at += 1 + (sectors if not flags & Flag.DISCARD else 0)
    if not ended:
        raise LogError(f"{path}: no end mark, the recording was cut off")
    return Log(entries, _own(mapped, at))


def _own(mapped: Sectors, used: int) -> Sectors:
    sectors = np.array(mapped[:used])
    sectors[0] = 0
    return sectors


def write(path: Path, entries: list[tuple[Flag, int, int, bytes]]) -> None:
    """Write a log in the format of the target, for tests of the reader.

    :param entries: (flags, sector, sectors, data) each; an end mark is added
    """
    parts = [b""]
    for flags, sector, count, data in [*entries, (Flag.MARK, 0, 0, END_MARK)]:
        if flags & Flag.MARK:
            header = _ENTRY.pack(sector, count, flags, len(data)) + data
            data = b""
        else:
            header = _ENTRY.pack(sector, count, flags, 0)
        parts.append(header.ljust(SECTOR, b"\0") + data)
    super_block = _SUPER.pack(MAGIC, VERSION, len(entries) + 1, SECTOR)
    path.write_bytes(super_block.ljust(SECTOR, b"\0") + b"".join(parts))
