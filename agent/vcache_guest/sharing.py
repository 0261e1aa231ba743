# SPDX-License-Identifier: Apache-2.0
"""Which consumer of the elastic SSD has which blocks, as a function of events. No I/O, no clock.

The dm-cache can only use the first blocks of the disk, and changes its size at its end. So it has
the blocks 0 to :attr:`Sharing.cache` - 1, and applications get blocks from the end of the disk on.
All consumers together have no more than the host allows; which blocks these are, the guest chooses.

Blocks that nobody has any more are discarded at once: then they count no more for the quota on the
host, and read as zeroes for the next consumer. Blocks that are taken by force are *revoked*: nobody
gets them until the application has given them up or its process is gone, because it may still
write to them.
"""

import dataclasses
import logging
from collections.abc import Callable, Iterator
from typing import NamedTuple

from vcache_guest.app_protocol import NEVER_MS, Forced, Grant, Message, Reclaim, lists
from vcache_guest.blocks import Ranges, both, count, last, normal, union, without
from vcache_guest.protocol import Range
from vcache_guest.shares import Claim, divide

LOG = logging.getLogger(__name__)


class Process(NamedTuple):
    """A process of the guest.

    :param pid: its number
    :param start: when it was started, in clock ticks since boot; so a number is not mistaken
    """

    pid: int
    start: int


@dataclasses.dataclass
class App:
    """A consumer other than the dm-cache.

    :param name: for messages
    :param claim: weight and minimum
    :param held: blocks that it has
    :param revoked: blocks that were taken and not given up
    :param told: how many it may keep, as the last request said; None: there is no request
    """

    name: str
    claim: Claim
    held: Ranges = ()
    revoked: Ranges = ()
    told: int | None = None


#: Messages to applications, by their numbers.
Sends = list[tuple[int, Message]]


class Sharing:
    """The consumers of one elastic SSD.

    :param discard: discards blocks
    :param claim: that of the dm-cache; None: there is none
    """

    def __init__(self, discard: Callable[[Ranges], None], claim: Claim | None) -> None:
        self._discard, self._claim, self._request = discard, claim, 0
        #: Size of the disk, and how many blocks all consumers may have.
        self.most = self.size = 0
        #: How many blocks the dm-cache has.
        self.cache = 0
        #: The applications by number.
        self.apps: dict[int, App] = {}
        #: What processes may still use that have lost their connection.
        self.absent: dict[Process, App] = {}
        # Blocks that could not be discarded.
        self._stuck: Ranges = ()

    def attached(self, most: int, size: int) -> None:
        """Note what the host allows: `size` blocks of a disk of `most`."""
        self.most, self.size, self._stuck = most, size, ()

    @property
    def used(self) -> int:
        """How many blocks all consumers have."""
        return self.cache + sum(count(app.held) for app in self._all())

    def targets(self) -> tuple[int, dict[int, int]]:
        """Return the parts by weight: that of the dm-cache, and those of the applications."""
        claims = [self._claim] if self._claim else []
        parts = divide(self.size, [*claims, *(app.claim for app in self.apps.values())])
        cache = parts.pop(0) if self._claim else 0
        return cache, dict(zip(self.apps, parts, strict=True))

    def cache_wanted(self) -> int:
        """Return how many blocks the dm-cache should have now.

        More than it has only as far as no other consumer is in its way.
        """
        target = self.targets()[0]
        if target <= self.cache:
            return target
        taken = self._taken()
        lowest = taken[0].first if taken else self.most
        return max(self.cache, min(target, lowest, self.cache + max(self.size - self.used, 0)))

    def unused(self) -> Ranges:
        """Return the blocks that nobody has or may still use."""
        return without((Range(0, self.most),) if self.most else (), self._taken(self.cache))

    def join(self, number: int, name: str, claim: Claim) -> None:
        """Add an application, or change its claim."""
        if number in self.apps:
            self.apps[number].claim = claim
        else:
            self.apps[number] = App(name, claim)

    def leave(self, number: int) -> None:
        """Remove an application that has ended its connection, and so uses no block any more."""
        app = self.apps.pop(number, None)
        if app is not None:
            self._free(union(app.held, app.revoked))

    def abandon(self, number: int, process: Process) -> None:
        """Remove an application whose process may go on to use its blocks."""
        app = self.apps.pop(number, None)
        if app is not None:
            self.keep_absent(process, app.name, app.held, app.revoked)

    def keep_absent(self, process: Process, name: str, held: Ranges, revoked: Ranges = ()) -> None:
        """Keep blocks that a process may still use."""
        before = self.absent.get(process, App(name, Claim()))
        self.absent[process] = App(name, Claim(), union(before.held, held),
                                   union(before.revoked, revoked))

    def gone(self, process: Process) -> None:
        """Note that a process uses none of its earlier blocks any more."""
        app = self.absent.pop(process, None)
        if app is not None:
            self._free(union(app.held, app.revoked))

    def gave(self, number: int, ranges: tuple[Range, ...]) -> None:
        """Note that an application does not use blocks any more; only its own ones count."""
        app = self.apps[number]
        given = normal(ranges)
        mine = both(union(app.held, app.revoked), given)
        app.held, app.revoked = without(app.held, given), without(app.revoked, given)
        self._free(mine)

    def lost(self, ranges: tuple[Range, ...]) -> Sends:
        """Note that the host has taken blocks by force; return what applications are told."""
        gone = normal(ranges)
        for app in self.absent.values():
            app.revoked = union(app.revoked, both(app.held, gone))
            app.held = without(app.held, gone)
        return [send for number, app in self.apps.items()
                for send in self._take(number, app, both(app.held, gone))]

    def force(self) -> Sends:
        """Take blocks until no more than allowed are used; return what applications are told.

        Those of processes without a connection are taken first, then the last ones of
        applications that have more than their part. The dm-cache shrinks by itself.
        """
        sends: Sends = []
        parts = self.targets()[1]
        for app in self.absent.values():
            taken = last(app.held, self.used - self.size)
            app.held, app.revoked = without(app.held, taken), union(app.revoked, taken)
            self._release(taken)
        for number, app in self.apps.items():
            taken = last(app.held, min(count(app.held) - parts[number], self.used - self.size))
            sends += self._take(number, app, taken)
            self._release(taken)
        return sends

    def balance(self, deadline_ms: int = NEVER_MS) -> Sends:
        """Return the requests and grants that bring the applications to their parts.

        :param deadline_ms: of the requests; with a deadline, all are made again
        """
        cache, parts = self.targets()
        sends: Sends = []
        for number, app in self.apps.items():
            sends += self._ask(number, app, parts[number], deadline_ms)
        free = without(self.unused(), (Range(0, cache),) if cache else ())
        for number, app in self.apps.items():
            lacking = min(parts[number] - count(app.held), self.size - self.used)
            granted = last(free, lacking)
            free = without(free, granted)
            app.held = union(app.held, granted)
            sends += [(number, message) for message in lists(Grant, granted)]
        return sends

    def _ask(self, number: int, app: App, part: int,
             deadline_ms: int) -> Iterator[tuple[int, Message]]:
        have = count(app.held)
        if have > part:
            ask = app.told != part or deadline_ms != NEVER_MS
            app.told = part
        else:
            # A request that is under way has become too strict.
            ask = app.told is not None and app.told < have
            app.told = None
        if ask:
            self._request += 1
            yield number, Reclaim(self._request & 0xFFFFFFFF, part, deadline_ms)

    def _take(self, number: int, app: App, taken: Ranges) -> Sends:
        app.held, app.revoked = without(app.held, taken), union(app.revoked, taken)
        return [(number, message) for message in lists(Forced, taken)]

    def _all(self) -> Iterator[App]:
        yield from self.apps.values()
        yield from self.absent.values()

    def _taken(self, cache: int = 0) -> Ranges:
        """Return the blocks that are not free; of the dm-cache, the first `cache` ones."""
        found = list(self._stuck)
        if cache:
            found.append(Range(0, cache))
        for app in self._all():
            found += app.held + app.revoked
        return normal(found)

    def _free(self, ranges: Ranges) -> None:
        if ranges and not self._release(ranges):
            self._stuck = union(self._stuck, ranges)

    def _release(self, ranges: Ranges) -> bool:
        try:
            self._discard(ranges)
        except OSError as error:
            LOG.error("cannot discard blocks: %s", error)
            return False
        return True
