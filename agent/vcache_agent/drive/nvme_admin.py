# SPDX-License-Identifier: Apache-2.0
"""NVMe commands by the ioctls of the Linux driver (linux/nvme_ioctl.h).

A command has the timeout of the driver (60 s by default for admin commands). A command that
exceeds it makes the driver reset the controller.
"""

import ctypes
import errno
import fcntl
import mmap
import struct

_IOCTL_ID = 0x4E40
_IOCTL_ADMIN_CMD = 0xC0484E41
_IOCTL_SUBMIT_IO = 0x40304E42
_PASSTHRU = struct.Struct("=BBHIIIQQII6III")
_USER_IO = struct.Struct("=BBHHHQQQIIHH")
_DRIVERS_TIMEOUT = 0
_WRITE = 0x01
_CONTROL_FUA = 1 << 14

GET_LOG_PAGE = 0x02
IDENTIFY = 0x06
SET_FEATURES = 0x09
GET_FEATURES = 0x0A
ALL_NAMESPACES = 0xFFFFFFFF


def namespace(descriptor: int) -> int:
    """Return the identifier of an open namespace, or of the namespace of a partition.

    :raises OSError: if the device is not an NVMe namespace
    """
    return fcntl.ioctl(descriptor, _IOCTL_ID)


def read(descriptor: int, opcode: int, nsid: int, size: int, cdw10: int,
         cdw11: int = 0, cdw12: int = 0) -> bytes | None:
    """Send an admin command that returns data; return the data, or None if the drive refuses.

    :param size: of the data in bytes
    :raises OSError: if the command cannot be sent
    """
    page = (ctypes.c_char * size)()
    command = bytearray(_PASSTHRU.pack(
        opcode, 0, 0, nsid, 0, 0, 0, ctypes.addressof(page), 0, size, cdw10, cdw11, cdw12, 0, 0, 0,
        _DRIVERS_TIMEOUT, 0))
    return None if fcntl.ioctl(descriptor, _IOCTL_ADMIN_CMD, command) else page.raw


def log_page(descriptor: int, page: int, size: int, offset: int = 0) -> bytes | None:
    """Return bytes of a log page of the drive; None if it has no such page, or not so many bytes.

    :param size: in bytes, a multiple of 4, at most 256 KiB
    :param offset: of the first byte, a multiple of 4
    :raises OSError: if the command cannot be sent
    """
    return read(descriptor, GET_LOG_PAGE, ALL_NAMESPACES, size, page | (size // 4 - 1) << 16,
                cdw12=offset)


def feature(descriptor: int, number: int, cdw11: int = 0) -> int | None:
    """Return the current value of a feature (dword 0 of the completion); None if there is none.

    :raises OSError: if the command cannot be sent
    """
    command = bytearray(_PASSTHRU.pack(GET_FEATURES, 0, 0, 0, 0, 0, 0, 0, 0, 0, number, cdw11,
                                       0, 0, 0, 0, _DRIVERS_TIMEOUT, 0))
    if fcntl.ioctl(descriptor, _IOCTL_ADMIN_CMD, command):
        return None
    return int(_PASSTHRU.unpack(command)[-1])


def set_feature(descriptor: int, number: int, cdw11: int, cdw12: int = 0) -> int:
    """Set a feature; return the status, 0 for success.

    :raises OSError: if the command cannot be sent
    """
    command = bytearray(_PASSTHRU.pack(SET_FEATURES, 0, 0, 0, 0, 0, 0, 0, 0, 0, number, cdw11,
                                       cdw12, 0, 0, 0, _DRIVERS_TIMEOUT, 0))
    return int(fcntl.ioctl(descriptor, _IOCTL_ADMIN_CMD, command))


def address_of(memory: mmap.mmap) -> int:
    """Return the address of memory, which must stay mapped while a command uses it."""
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def write_fua(descriptor: int, address: int, block: int, blocks: int) -> None:
    """Write with FUA to a namespace, not to a partition, which newer kernels refuse.

    :param address: of the data in memory
    :param block: first logical block
    :param blocks: number of logical blocks
    :raises OSError: if the write fails
    """
    command = _USER_IO.pack(_WRITE, 0, _CONTROL_FUA, blocks - 1, 0, 0, address, block, 0, 0, 0, 0)
    status = int(fcntl.ioctl(descriptor, _IOCTL_SUBMIT_IO, bytearray(command)))
    if status:
        raise OSError(errno.EIO, f"the drive refuses a write with FUA: status {status:#x}")
