# SPDX-License-Identifier: Apache-2.0
"""A small model of FAST (Lee et al., ACM TECS 6(3), 2007) that counts operations.

It models logical blocks, log blocks and the place of each host block. It does not model
flushes, maps, free blocks or time.
"""

import dataclasses
from collections.abc import Iterator

#: A command: "w" or "t", first block, number of blocks.
Command = tuple[str, int, int]


@dataclasses.dataclass
class Log:
    """A log block and the data written to it.

    :param lbn: the logical block of a sequential log block
    :param written: blocks in their order
    :param pages: number of used pages
    """

    lbn: int | None = None
    written: list[int] = dataclasses.field(default_factory=list)
    pages: int = 0


class Fast:
    """A drive: pages per erase block, blocks per page, log blocks, size."""

    def __init__(self, pages: int, slots: int, log_blocks: int, blocks: int) -> None:
        self.pages, self.slots, self.log_blocks, self.blocks = pages, slots, log_blocks, blocks
        #: Log block and index of a block in it; None: it is in its data block.
        self.where: dict[int, tuple[int, int] | None] = {}
        self.sequential: Log | None = None
        self.random: list[Log] = []
        self.merges = {"switch": 0, "partial": 0, "full": 0}
        self.copied = {"switch": 0, "partial": 0, "full": 0}
        self.opened = 0

    def run(self, trace: list[Command]) -> None:
        """Execute commands."""
        for what, first, count in trace:
            numbers = range(first, first + count)
            if what == "t":
                for lpn in numbers:
                    self.where.pop(lpn, None)
                continue
            for page, lpns in self.pages_of(numbers):
                self.program(page, lpns)

    def pages_of(self, numbers: range) -> Iterator[tuple[int | None, list[int]]]:
        """Yield whole pages by number, then pages assembled from other blocks."""
        left: list[int] = []
        done = -1
        for lpn in numbers:
            page = lpn // self.slots
            peers = range(page * self.slots, min((page + 1) * self.slots, self.blocks))
            if page == done:
                continue
            if peers[0] in numbers and peers[-1] in numbers:
                done = page
                yield page, list(peers)
            else:
                left.append(lpn)
                if len(left) == self.slots:
                    yield None, left
                    left = []
        if left:
            yield None, left

    def lbn(self, lpn: int) -> int:
        """Return the logical block of a block."""
        return lpn // (self.pages * self.slots)

    def members(self, lbn: int) -> list[int]:
        """Return the existing blocks of a logical block."""
        size = self.pages * self.slots
        return [lpn for lpn in range(lbn * size, (lbn + 1) * size) if lpn in self.where]

    def valid(self, log: Log) -> list[int]:
        """Return the blocks whose newest version is in a log block."""
        return [lpn for i, lpn in enumerate(log.written) if self.where.get(lpn) == (id(log), i)]

    def append(self, log: Log, lpns: list[int]) -> None:
        """Write a page to a log block."""
        for lpn in lpns:
            self.where[lpn] = (id(log), len(log.written))
            log.written.append(lpn)
        log.pages += 1

    def program(self, page: int | None, lpns: list[int]) -> None:
        """Write a page to the appropriate log block."""
        log = self.sequential
        begins = page is not None and page % self.pages == 0
        if log and log.lbn is not None:
            following = log.lbn * self.pages + log.pages
            full = log.pages == self.pages or following * self.slots >= self.blocks
            own = any(self.lbn(lpn) == log.lbn for lpn in lpns)
            if full or begins or (own and page != following):
                self.end()
        if begins:
            self.sequential = Log(self.lbn(lpns[0]))
            self.opened += 1
        log = self.sequential
        if page is not None and log and log.lbn == page // self.pages:
            self.append(log, lpns)
        else:
            self.append(self.open_random(), lpns)

    def open_random(self) -> Log:
        """Return a random log block with free pages; merge old ones if needed."""
        if self.random and self.random[-1].pages < self.pages:
            return self.random[-1]
        self.random = [log for log in self.random if self.valid(log)]
        while len(self.random) > self.log_blocks - 2:
            self.merge_out(self.random.pop(0))
            self.random = [log for log in self.random if self.valid(log)]
        self.random.append(Log())
        self.opened += 1
        return self.random[-1]

    def merge_out(self, log: Log) -> None:
        """Merge each logical block with data in a log block."""
        for i, lpn in enumerate(log.written):
            if self.where.get(lpn) != (id(log), i):
                continue
            if self.sequential and self.sequential.lbn == self.lbn(lpn):
                self.end()
            else:
                self.full(self.lbn(lpn))

    def full(self, lbn: int) -> None:
        """Copy a whole logical block to a new data block."""
        self.count("full", self.members(lbn))
        self.opened += 1
        for lpn in self.members(lbn):
            self.where[lpn] = None

    def end(self) -> None:
        """Turn the sequential log block into a data block, or empty it."""
        log, self.sequential = self.sequential, None
        assert log and log.lbn is not None
        if not self.valid(log):
            return
        begin = log.lbn * self.pages * self.slots + log.pages * self.slots
        members = self.members(log.lbn)
        assert self.valid(log) == [lpn for lpn in members if lpn < begin]
        rest = [lpn for lpn in members if lpn >= begin]
        self.count("partial" if rest else "switch", rest)
        for lpn in members:
            self.where[lpn] = None

    def count(self, kind: str, copied: list[int]) -> None:
        """Count a merge."""
        self.merges[kind] += 1
        self.copied[kind] += len(copied)
