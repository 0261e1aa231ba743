# SPDX-License-Identifier: Apache-2.0
"""dm-log-writes: all requests that reached a device, in order."""

import contextlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.kernel import stack
from tests.kernel.disk import Disk

# From drivers/md/dm-log-writes.c; all little-endian.
_MAGIC = 0x6A736677736872
_SUPER = struct.Struct("<QQQI")
_ENTRY = struct.Struct("<QQQQ")
_FLUSH, _FUA, _DISCARD, _MARK = 1, 2, 4, 8


class Entry(NamedTuple):
    """One request that reached the device."""

    sector: int
    sectors: int
    flags: int
    mark: str
    data: bytes

    @property
    def flush(self) -> bool:
        """A FLUSH of the whole device."""
        return bool(self.flags & _FLUSH)

    @property
    def fua(self) -> bool:
        """Durable at completion."""
        return bool(self.flags & _FUA)

    @property
    def discard(self) -> bool:
        """A discard."""
        return bool(self.flags & _DISCARD)


@dataclass
class Log:
    """The logging device, and its log once it is closed."""

    device: stack.Mapped
    entries: list[Entry] = field(default_factory=list)

    @property
    def path(self) -> str:
        """Path of the logging device."""
        return self.device.path

    def mark(self, name: str) -> None:
        """Put a mark into the log."""
        self.device.message(f"mark {name}")

    def settle(self) -> None:
        """Send a FLUSH, so that all requests are logged: others are logged at the next FLUSH."""
        with Disk(self.path) as disk:
            disk.flush()

    def between(self, first: str, last: str = "") -> list[Entry]:
        """Return the entries between two marks; the second may be the end."""
        marks = [e.mark for e in self.entries]
        start = marks.index(first) + 1
        end = marks.index(last) if last else len(marks)
        return [e for e in self.entries[start:end] if not e.mark]


def _parse(path: str) -> list[Entry]:
    entries = []
    with Disk(path, readonly=True) as disk:
        magic, _, count, size = _SUPER.unpack_from(disk.read(0, 1))
        assert magic == _MAGIC
        unit = size // stack.SECTOR
        at = unit
        for _ in range(count):
            head = disk.read(at, unit)
            sector, sectors, flags, length = _ENTRY.unpack_from(head)
            at += unit
            mark, data = "", b""
            if flags & _MARK:
                mark = head[_ENTRY.size:_ENTRY.size + length].rstrip(b"\0").decode()
            elif sectors and not flags & _DISCARD:
                data = b"".join(disk.read(at + done, min(2048, sectors - done))
                                for done in range(0, sectors, 2048))
                at += sectors
            entries.append(Entry(sector, sectors, flags, mark, data))
    return entries


@contextlib.contextmanager
def log_writes(origin: str, log_mb: int = 128) -> Iterator[Log]:
    """Put a log over a device; its entries are available after it is closed."""
    with stack.null_blk(log_mb, cache=False) as log_path:
        table = f"0 {stack.sectors(origin)} log-writes {origin} {log_path}"
        with stack.mapped(table, stack.unique("log")) as device:
            log = Log(device)
            yield log
        log.entries = _parse(log_path)
