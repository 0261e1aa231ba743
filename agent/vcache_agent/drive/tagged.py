# SPDX-License-Identifier: Apache-2.0
"""NVMe drives that support tags, by their log page C0h (doc/source/reference/nvme.rst)."""

import dataclasses
import os
import struct

from vcache_agent.drive import nvme_admin

#: The log page, and what is read of it.
LOG_PAGE = 0xC0
LOG_BYTES = 512

_LOG = struct.Struct("<8sHBBB3xIIII24xI")
_SIGNATURE = b"vcacheSS"
_VERSION = 1
_OPCODES = (0xC0, 0xC1)
_TAGGED_FLUSH_AND_WRITE = 0x3


@dataclasses.dataclass(frozen=True)
class TaggedDrive:
    """A drive that supports tags.

    :param nsid: namespace identifier
    :param tag_max: largest supported tag
    :param instance: random number, not 0, that changes with each power-on
    """

    nsid: int
    tag_max: int
    instance: int


def parse_log(nsid: int, page: bytes) -> TaggedDrive | None:
    """Parse log page C0h; return None if it is of another vendor or another version."""
    signature, version, flush, write, _, capabilities, tag_max, _, _, instance = \
        _LOG.unpack_from(page)
    if signature != _SIGNATURE or version != _VERSION or (flush, write) != _OPCODES \
            or capabilities & _TAGGED_FLUSH_AND_WRITE != _TAGGED_FLUSH_AND_WRITE \
            or not instance or not nsid:
        return None
    return TaggedDrive(nsid, tag_max, instance)


def read_drive(path: str) -> TaggedDrive | None:
    """Query a block device; return None if its drive does not support tags.

    :param path: block device of an NVMe namespace, or of a partition of one
    :raises OSError: if the query fails
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        nsid = nvme_admin.namespace(descriptor)
        page = nvme_admin.log_page(descriptor, LOG_PAGE, LOG_BYTES)
    finally:
        os.close(descriptor)
    return None if page is None else parse_log(nsid, page)
