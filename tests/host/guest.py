# SPDX-License-Identifier: Apache-2.0
"""Guests that fit into the boot sector of a raw image."""

import mmap
import os
import struct
from pathlib import Path
from typing import NamedTuple

_SECTOR = 512
# First sector of the log that LOGS writes.
_LOG = 2048

# Shuts down when it is told to:
#     mov $0x602, %dx    enable the event of the power button (register PM1_EN)
#     mov $0x100, %ax
#     out %ax, %dx
#     mov $0, %dl        PM1_STS
#     in %dx, %ax        wait for the event
#     test $1, %ah
#     jz .-4
#     mov $4, %dl        power off (PM1_CNT)
#     mov $0x2000, %ax
#     out %ax, %dx
#     hlt
SHUTS_DOWN = bytes.fromhex("ba0206 b80001 ef b200 ed f6c401 74fa b204 b80020 ef f4")

# Writes a log, one sector about each millisecond: its number from 1 on, and the time stamp
# counter before the write. It stops at the first error.
#     xor %ax, %ax
#     mov %ax, %ds
#     mov $0x34, %al     timer 0: 1,193,182 Hz / 0x4a9
#     out %al, $0x43
#     mov $0xa9, %al
#     out %al, $0x40
#     mov $0x04, %al
#     out %al, $0x40
#     mov $0x500, %si    packet of INT 13h: one sector from 0:0x600
#     movl $0x00010010, (%si)
#     movl $0x00000600, 4(%si)
#     movl $2047, 8(%si)
#     movl $0, 12(%si)
#     movl $0, 0x600
#     sti
# 1:  hlt                until the next interrupt of the timer
#     incl 8(%si)
#     incl 0x600
#     rdtsc
#     mov %eax, 0x604
#     mov %edx, 0x608
#     mov $0x4300, %ax   extended write
#     mov $0x80, %dl
#     int $0x13
#     jnc 1b
# 2:  hlt
#     jmp 2b
LOGS = bytes.fromhex(
    "31c0 8ed8 b034 e643 b0a9 e640 b004 e640 be0005 66c70410000100 66c7440400060000"
    "66c74408ff070000 66c7440c00000000 66c706000600000000 fb f4 66ff4408 66ff060006 0f31"
    "66a30406 6689160806 b80043 b280 cd13 73e2 f4 ebfd")


class Entry(NamedTuple):
    """A sector of the log.

    :param ticks: of the time stamp counter
    """

    number: int
    ticks: int


def install(path: Path, code: bytes) -> Path:
    """Write a guest to a raw image."""
    with open(path, "r+b") as file:
        file.write(code.ljust(_SECTOR - 2, b"\0") + b"\x55\xaa")
        os.fsync(file.fileno())
    return path


def log(path: Path) -> list[Entry]:
    """Return the log in an image, up to the first sector that was not written."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        size = os.fstat(fd).st_size - _LOG * _SECTOR
        with mmap.mmap(-1, size) as buffer:
            assert os.preadv(fd, [buffer], _LOG * _SECTOR) == size
            found = []
            for start in range(0, size, _SECTOR):
                number, ticks = struct.unpack_from("<IQ", buffer, start)
                if not number:
                    break
                found.append(Entry(number, ticks))
            return found
    finally:
        os.close(fd)
