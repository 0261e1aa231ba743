# SPDX-License-Identifier: Apache-2.0
"""Direct I/O, so that the target gets exactly the requests of a test."""

import ctypes
import errno
import fcntl
import mmap
import os
import random
import struct
from types import TracebackType
from typing import Self

from tests.box.steps import at_end

SECTOR = 512
_BLKDISCARD = 0x1277
_BLKZEROOUT = 0x127F
_IO_SETUP, _IO_DESTROY, _IO_GETEVENTS, _IO_SUBMIT = 206, 207, 208, 209
_IOCB_CMD_FDSYNC = 3


def pattern(seed: int, sectors: int) -> bytes:
    """Return data that depends on the seed; each sector differs."""
    return b"".join(struct.pack("<QQ", seed, sector) * 32 for sector in range(sectors))


class Disk:
    """A block device or file, opened for direct I/O.

    :param path: the device
    :param readonly: do not open it for writing
    """

    def __init__(self, path: str, *, readonly: bool = False) -> None:
        self.fd = os.open(path, (os.O_RDONLY if readonly else os.O_RDWR) | os.O_DIRECT)

    def close(self) -> None:
        os.close(self.fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def write(self, sector: int, data: bytes, *, fua: bool = False,
              nowait: bool = False) -> None:
        """Write at a sector.

        :param fua: it is durable on return
        :param nowait: raise BlockingIOError if it would have to wait
        """
        flags = (os.RWF_DSYNC if fua else 0) | (os.RWF_NOWAIT if nowait else 0)
        with mmap.mmap(-1, max(len(data), mmap.PAGESIZE)) as memory:
            memory[:len(data)] = data
            with memoryview(memory) as view, view[:len(data)] as part:
                done = os.pwritev(self.fd, [part], sector * SECTOR, flags)
        if done != len(data):
            raise OSError(errno.EIO, f"short write: {done} of {len(data)}")

    def write_and_flush(self, sector: int, data: bytes) -> None:
        """Write at a sector, then flush the device."""
        self.write(sector, data)
        self.flush()

    def check_blocks(self, expected: dict[int, int]) -> None:
        """Check what the last write to each block of 4 KiB left.

        :param expected: the seed of its pattern by the number of the block; 0: zeroes
        """
        for block, seed in expected.items():
            assert self.read(block * 8, 8) == (pattern(seed, 8) if seed else bytes(4096)), block

    def read(self, sector: int, sectors: int, *, nowait: bool = False) -> bytes:
        """Read from a sector on.

        :param nowait: raise BlockingIOError if it would have to wait
        """
        length = sectors * SECTOR
        with mmap.mmap(-1, max(length, mmap.PAGESIZE)) as memory:
            with memoryview(memory) as view, view[:length] as part:
                done = os.preadv(self.fd, [part], sector * SECTOR, os.RWF_NOWAIT if nowait else 0)
            if done != length:
                raise OSError(errno.EIO, f"short read: {done} of {length}")
            return memory[:length]

    def flush(self) -> None:
        """Send a flush, in the context of this process."""
        os.fdatasync(self.fd)

    def discard(self, sector: int, sectors: int) -> None:
        """Discard a range."""
        fcntl.ioctl(self.fd, _BLKDISCARD, struct.pack("=QQ", sector * SECTOR, sectors * SECTOR))

    def zero_out(self, sector: int, sectors: int) -> None:
        """Zero a range."""
        fcntl.ioctl(self.fd, _BLKZEROOUT, struct.pack("=QQ", sector * SECTOR, sectors * SECTOR))

    def aio_flush(self) -> None:
        """Flush like QEMU with aio=native: by a kernel worker."""
        libc = ctypes.CDLL(None, use_errno=True)

        def call(number: int, *arguments: object) -> int:
            result: int = libc.syscall(number, *arguments)
            if result < 0:
                raise OSError(ctypes.get_errno(), "aio")
            return result

        context = ctypes.c_ulong(0)
        call(_IO_SETUP, 1, ctypes.byref(context))
        with at_end(call, _IO_DESTROY, context):
            # struct iocb: data, key+flags, opcode+priority, fd, buf, nbytes, offset, ...
            block = ctypes.create_string_buffer(struct.pack(
                "=QIIHhIQQqQII", 0, 0, 0, _IOCB_CMD_FDSYNC, 0, self.fd, 0, 0, 0, 0, 0, 0))
            pointers = (ctypes.c_void_p * 1)(ctypes.addressof(block))
            call(_IO_SUBMIT, context, 1, pointers)
            event = ctypes.create_string_buffer(32)
            call(_IO_GETEVENTS, context, 1, 1, event, None)
            result = struct.unpack("=QQqq", event.raw)[2]
        if result < 0:
            raise OSError(-result, os.strerror(-result))


def read(path: str, sector: int, sectors: int) -> bytes:
    """Read from a device that is opened only for this."""
    with Disk(path, readonly=True) as disk:
        return disk.read(sector, sectors)


def read_and_write(disk: Disk, content: bytearray, rng: random.Random, turns: int = 1500) -> None:
    """Read and write at random, and check each read.

    :param content: of the device from sector 0 on; at least 128 sectors
    """
    size = len(content) // SECTOR
    for turn in range(turns):
        start = rng.randrange(size - 64)
        length = rng.choice([1, 8, 16, 64])
        where = slice(start * SECTOR, (start + length) * SECTOR)
        if rng.random() < 0.4:
            content[where] = pattern(turn, length)
            disk.write(start, bytes(content[where]), fua=rng.random() < 0.2)
        else:
            assert disk.read(start, length) == content[where], turn
