# SPDX-License-Identifier: Apache-2.0
"""Shares of tags in the write buffer and the time of the banks of a drive.

Log page C1h and feature C0h of doc/source/reference/nvme.rst.
"""

import dataclasses
import os
import struct
from collections.abc import Iterable

from vcache_agent.drive import nvme_admin, tagged

LOG_PAGE = 0xC1
FEATURE = 0xC0
WEIGHT_MAX = 10000
#: Size of a block in the drive's write buffer.
BLOCK_BYTES = 4096

_HEADER = struct.Struct("<8sHHI48x")
_ENTRY = struct.Struct("<IIQQQ32xQ32xII3Q")
_HAS_STATE = 1
_WEIGHTS = 1 << 7
_CAPABILITIES = struct.Struct("<16xI")
# Of one command.
_MOST_BYTES = 128 << 10
_INVALID_FIELD = 0x02
_NOT_CHANGEABLE = 0x10E
_CODE = 0x7FF


class SharesError(Exception):
    """The drive has no weights, or refuses one; the text says why."""


@dataclasses.dataclass(frozen=True)
class TagShare:
    """What a tag has and uses of a drive.

    :param weight: 0: none
    :param share: of the write buffer, blocks of 4 KiB; 0: the tag is idle, its share is lent
    :param buffered: blocks of 4 KiB in the write buffer
    :param writes: commands
    :param flushes: commands
    :param buffer_wait_ns: how long its blocks waited for room in the buffer, ns
    :param bank_ns: time of banks used by its programs and erases, ns
    :param bank_wait_ns: how long these waited for operations of other tags, ns
    """

    tag: int
    weight: int
    share: int
    buffered: int
    writes: int
    flushes: int
    buffer_wait_ns: int
    bank_ns: int
    bank_wait_ns: int


def parse(entry: bytes) -> TagShare:
    """Parse an entry of log page C1h. A tag of which the drive has no state has no share."""
    tag, flags, _, writes, flushes, buffered, weight, share, *times = _ENTRY.unpack_from(entry)
    if not flags & _HAS_STATE:
        weight, share, buffered, times = 0, 0, 0, [0, 0, 0]
    return TagShare(tag, weight, share, buffered, writes, flushes, *times)


def _open(path: str) -> int:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        nsid = nvme_admin.namespace(descriptor)
        page = nvme_admin.log_page(descriptor, tagged.LOG_PAGE, tagged.LOG_BYTES)
        if page is None or tagged.parse_log(nsid, page) is None:
            raise SharesError(f"{path}: the drive has no tags")
        if not _CAPABILITIES.unpack_from(page)[0] & _WEIGHTS:
            raise SharesError(f"{path}: the drive has tags without weights")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_shares(path: str) -> list[TagShare]:
    """Return the shares of all tags that the drive has seen since its start, by tag.

    :param path: block device of an NVMe namespace
    :raises SharesError: if the drive has no tags with weights
    :raises OSError: if a command fails
    """
    descriptor = _open(path)
    try:
        header = nvme_admin.log_page(descriptor, LOG_PAGE, _HEADER.size)
        if header is None:
            raise SharesError(f"{path}: the drive has no log page C1h")
        _, _, size, count = _HEADER.unpack(header)
        if size < _ENTRY.size:
            raise SharesError(f"{path}: entries of log page C1h have {size} bytes, "
                              f"{_ENTRY.size} are needed")
        at_once, found = _MOST_BYTES // size, []
        for first in range(0, count, at_once):
            number = min(at_once, count - first)
            page = nvme_admin.log_page(descriptor, LOG_PAGE, number * size,
                                       _HEADER.size + first * size)
            if page is None:
                raise SharesError(f"{path}: the drive refuses log page C1h")
            found += [parse(page[at:at + size]) for at in range(0, number * size, size)]
        return sorted(found, key=lambda share: share.tag)
    finally:
        os.close(descriptor)


def set_weight(path: str, tag: int, weight: int) -> None:
    """Give a tag a weight, until the drive is powered off.

    :param path: block device of an NVMe namespace
    :param weight: 1 to WEIGHT_MAX, or 0 for none
    :raises SharesError: if the drive refuses it, or has no weights
    :raises OSError: if the command fails
    """
    for refusal in set_weights(path, [(tag, weight)]).values():
        raise SharesError(refusal)


def set_weights(path: str, weights: Iterable[tuple[int, int]]) -> dict[int, str]:
    """Give tags weights, until the drive is powered off; return why it refuses some, by tag.

    :param path: block device of an NVMe namespace
    :param weights: tags with a weight of 1 to WEIGHT_MAX, or 0 for none
    :raises SharesError: if the drive has no weights
    :raises OSError: if a command fails
    """
    descriptor = _open(path)
    refused = {}
    try:
        for tag, weight in weights:
            status = nvme_admin.set_feature(descriptor, FEATURE, tag, weight) & _CODE
            if status:
                refused[tag] = _refusal(status, tag, weight)
    finally:
        os.close(descriptor)
    return refused


def _refusal(status: int, tag: int, weight: int) -> str:
    if status == _NOT_CHANGEABLE:
        return f"tag {tag}: the drive has state for as many tags as it can"
    if status == _INVALID_FIELD:
        return f"tag {tag}, weight {weight}: the drive refuses them"
    return f"tag {tag}: the drive refuses its weight: status {status:#x}"
