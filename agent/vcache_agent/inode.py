# SPDX-License-Identifier: Apache-2.0
"""Tell a file from a later file with the same inode number.

A file system reuses the inode number of a deleted file. It gives each new file
another generation, which NFS servers need as well. So the number and the
generation together identify a file for ever.

``FS_IOC_GETVERSION`` returns the generation on ext4, xfs and btrfs. Another file
system may have the time of birth, which statx(2) returns with the resolution of
the kernel's clock. If it has neither, only the number is known.
"""

import errno
import fcntl
import os
import re
import struct

# _IOR('v', 1, long). The number contains the size of a long, but file systems write an int.
_FS_IOC_GETVERSION = 2 << 30 | struct.calcsize("l") << 16 | ord("v") << 8 | 1

_AT_EMPTY_PATH = 0x1000
_STATX_BTIME = 0x800
# struct statx of linux/stat.h: its size, the mask, and stx_btime.
_STATX_BYTES = 256
_MASK = struct.Struct("=I")
_BTIME = struct.Struct("=qI")
_BTIME_AT = 80

_SUFFIX = re.compile(r":(g[0-9a-f]{8}|b-?\d+\.\d{9})\Z")


def generation(fd: int) -> str:
    """Return what distinguishes an open file from other files with its inode number.

    :return: ``g`` and the generation in hexadecimal, or ``b`` and the time of birth in
        seconds, or an empty text if the file system has neither
    :raises OSError: if the file system cannot read the inode
    """
    buffer = bytearray(struct.calcsize("l"))
    try:
        fcntl.ioctl(fd, _FS_IOC_GETVERSION, buffer, True)
    except OSError as error:
        if error.errno not in (errno.ENOTTY, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise
        return _birth(fd)
    return f"g{struct.unpack_from('=I', buffer)[0]:08x}"


def _birth(fd: int) -> str:
    # Few file systems need it, and each helper process would load it.
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(_STATX_BYTES)
    try:
        status = libc.statx(fd, b"", _AT_EMPTY_PATH, _STATX_BTIME, buffer)
    except AttributeError:
        return ""  # a libc without statx
    if status:
        number = ctypes.get_errno()
        if number == errno.ENOSYS:
            return ""
        raise OSError(number, os.strerror(number))
    if not _MASK.unpack_from(buffer)[0] & _STATX_BTIME:
        return ""
    seconds, nanoseconds = _BTIME.unpack_from(buffer, _BTIME_AT)
    return f"b{seconds}.{nanoseconds:09}"


def with_generation(key: str, text: str) -> str:
    """Return the key of a file's layer, with its generation.

    :param key: the key without a generation, which ends with the inode number
    :param text: the result of :func:`generation`
    """
    return f"{key}:{text}" if text else key


def without_generation(key: str) -> str:
    """Return the key that an agent without generations gave to the same layer."""
    return _SUFFIX.sub("", key)
