# SPDX-License-Identifier: Apache-2.0
"""Decide of which files the extents are read again, within a budget of CPU time.

Reading the extents of a fragmented image takes long, and every write to an image changes
its times. So the budget is one for the host, and it is spent where writes allocate:

* The number of allocated blocks has changed. Writes to the new blocks have the host tag
  until their extents are known.
* Some extents were not written when they were read last. A write makes them written,
  which changes only the times of the file.
* Any other change, such as a write to written blocks, cannot change the extents, except
  if the file system moves them. This is checked only now and then.

Each file has an equal part of the budget. What some do not use goes to the files with
the most new blocks.

The decision is a pure function of what was reported; times come from the caller.
"""

import dataclasses
import math
from collections.abc import Collection
from typing import NamedTuple

#: Part of one CPU that reading extents may take.
PART = 0.05
# Unused budget that is kept for later, in seconds of that CPU's time.
_SAVED = 0.25
# Shortest time in seconds between two reads of a file, by :class:`Need`.
_PAUSE = (0.0, 1.0, 30.0)

# Seconds after an allocation for which another one is expected.
_BUSY_S = 10.0

#: Identity of a file: numbers of its device and its inode.
FileId = tuple[int, int, str]


class Status(NamedTuple):
    """What a file shows of its changes.

    :param size: bytes
    :param blocks: allocated, in units of 512 bytes
    :param mtime: nanoseconds
    :param ctime: nanoseconds
    """

    size: int
    blocks: int
    mtime: int
    ctime: int


class Need(NamedTuple):
    """How much a read of a file's extents is needed; the least value first.

    :param kind: 0: blocks were allocated or freed; 1: extents may have been written since;
        2: only a check
    :param blocks: minus the number of blocks that were allocated or freed
    """

    kind: int
    blocks: int


@dataclasses.dataclass
class _File:
    """A file.

    :param status: its latest status
    :param seen: its status before the last read of its extents
    :param settled: no write can have been in progress at that time
    :param unwritten: sectors that were allocated, but not written, at that time
    :param cost: CPU time of the last read in seconds
    :param ended: monotonic time of the end of the last read
    :param allocated: monotonic time of the last read that followed an allocation
    :param reading: it has been picked, and its read has not ended
    """

    status: Status
    seen: Status
    settled: bool
    unwritten: int
    cost: float
    ended: float
    allocated: float = -math.inf
    reading: bool = False

    def need(self, now: float) -> Need | None:
        """Return how much a read is needed; None: not now."""
        if self.reading or (self.settled and self.seen == self.status):
            return None
        changed = abs(self.status.blocks - self.seen.blocks)
        kind = 0 if changed else 1 if self.unwritten else 2
        return Need(kind, -changed) if now >= self.ended + _PAUSE[kind] else None


class Budget:
    """Chooses files; not thread-safe.

    :param part: part of one CPU that the reads may take
    """

    def __init__(self, part: float = PART) -> None:
        self._part = part
        self._left = _SAVED
        self._at: float | None = None
        self._files: dict[FileId, _File] = {}

    def saw(self, file: FileId, status: Status) -> None:
        """Record the current status of a file whose extents have been read before."""
        if file in self._files:
            self._files[file].status = status

    def ended(self, file: FileId, status: Status, now: float, cost: float, *,
              settled: bool, unwritten: int) -> None:
        """Record the end of a read.

        :param status: status of the file before the read
        :param now: monotonic time in seconds
        :param cost: CPU time in seconds
        :param settled: no write can have been in progress when it began
        :param unwritten: sectors that are allocated, but not written
        """
        old = self._files.get(file)
        allocated = -math.inf
        if old is not None:
            allocated = now if status.blocks != old.seen.blocks else old.allocated
            # The first read of a file is not optional, so it is not paid from the budget.
            self._left += old.cost - cost if old.reading else -cost
        self._files[file] = _File(status, status, settled, unwritten, cost, now, allocated)

    def failed(self, file: FileId, now: float) -> None:
        """Record that a read has failed; it is repeated after a pause."""
        if file in self._files:
            self._files[file].reading = False
            self._files[file].ended = now + _PAUSE[1]

    def keep(self, files: Collection[FileId]) -> None:
        """Forget all other files."""
        self._files = {file: item for file, item in self._files.items() if file in files}

    def busy(self, now: float) -> bool:
        """Return True if files allocate, or did a moment ago: a look should follow soon."""
        return any(now - item.allocated < _BUSY_S or item.seen.blocks != item.status.blocks
                   for item in self._files.values())

    def pick(self, now: float) -> list[FileId]:
        """Return the files whose extents are to be read now, the most urgent first.

        :param now: monotonic time in seconds
        """
        if self._at is not None:
            self._left = min(self._left + (now - self._at) * self._part, _SAVED)
        self._at = now
        needs = {file: need for file, item in self._files.items()
                 if (need := item.need(now)) is not None}
        if not needs:
            return []
        share = self._part / len(needs)
        own = {file for file in needs
               if now >= self._files[file].ended + self._files[file].cost / share}
        picked, full = [], self._left >= _SAVED
        for file in sorted(needs, key=lambda file: (file not in own, needs[file])):
            item = self._files[file]
            # The sum of all own parts is the budget, so they are never refused.
            # For an expensive file it is enough that all that can be saved has been saved.
            if file not in own and self._left < item.cost and not (full and self._left > 0):
                continue
            self._left -= item.cost
            item.reading = True
            picked.append(file)
        return picked
