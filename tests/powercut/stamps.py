# SPDX-License-Identifier: Apache-2.0
"""Contents of sectors that the load wrote, in the layout of load/stamp.h."""

import zlib

import numpy as np
import numpy.typing as npt

SECTOR = 512
MAGIC = 0x7463727770636176

STAMP = np.dtype([
    ("magic", "<u8"), ("op", "<u8"), ("sector", "<u8"), ("file", "<u4"), ("writer", "<u4"),
    ("filler", "<u8", (59,)), ("unused", "<u4"), ("crc", "<u4")])
assert STAMP.itemsize == SECTOR

#: Contents of a sector other than a valid stamp, in place of its op.
ZERO = 0
TORN = (1 << 64) - 1      # a stamp with a wrong checksum: parts of two writes
FOREIGN = (1 << 64) - 2   # anything else: metadata of a file system

Sectors = npt.NDArray[np.uint8]
Ops = npt.NDArray[np.uint64]


def make(op: int, file: int, sector: int, count: int) -> bytes:
    """Return the data of the load for `count` sectors of one write."""
    stamps = np.zeros(count, STAMP)
    stamps["magic"] = MAGIC
    stamps["op"] = op
    stamps["sector"] = np.arange(sector, sector + count)
    stamps["file"] = file
    stamps["writer"] = op >> 32
    for number in range(count):
        stamps["filler"][number] = np.arange(59, dtype=np.uint64) + np.uint64(op ^ number)
        stamps["crc"][number] = zlib.crc32(stamps[number].tobytes()[:SECTOR - 4])
    return stamps.tobytes()


def decode(sectors: Sectors) -> tuple[Ops, npt.NDArray[np.uint32], Ops]:
    """Decode for each sector its write, file and sector in the file.

    :param sectors: one row of 512 bytes for each
    :return: ops (or ZERO, TORN, FOREIGN), file numbers, sectors in the file
    """
    stamps = np.ascontiguousarray(sectors).view(STAMP).reshape(-1)
    ops = stamps["op"].copy()
    marked = stamps["magic"] == MAGIC
    unmarked = np.flatnonzero(~marked)
    ops[unmarked] = np.where(sectors[unmarked].any(axis=1), np.uint64(FOREIGN), np.uint64(ZERO))
    for number in np.flatnonzero(marked):
        if zlib.crc32(sectors[number, :SECTOR - 4].tobytes()) != stamps["crc"][number]:
            ops[number] = TORN
    return ops, stamps["file"].copy(), stamps["sector"].copy()
