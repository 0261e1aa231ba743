# SPDX-License-Identifier: Apache-2.0
"""Where the disks are, without ever waiting for a path that hangs.

Helper processes look up the paths (locate_pool.py). A thread repeats that at least once
a second, and reads the extents of files that allocate, within a budget
(fiemap_budget.py). Callers get the last known location; only for a path without one do
they wait, up to a deadline.

A path that does not answer, fails or has vanished keeps its last known location as long
as somebody asks for it: QEMU has the file open, and its blocks are where they were.
"""

import dataclasses
import threading
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from oslo_log import log as logging

from vcache_agent import disks
from vcache_agent.blockstack import (
    BlockStack,
    IsVssd,
    LocationUnknown,
    NotCacheable,
    NotOnVcache,
    Segment,
)
from vcache_agent.extent_limit import limit
from vcache_agent.fiemap_budget import Budget, FileId
from vcache_agent.locate_pool import Answer, Pool, Question, Urgency
from vcache_agent.model import Extents, Location
from vcache_agent.packed_extents import pack

LOG = logging.getLogger(__name__)

# Seconds between two looks at all paths: while files allocate, and otherwise.
_BUSY_S, _QUIET_S = 0.4, 0.9
# Longest time in seconds to wait in a look for answers. Later answers count at the next one.
_LOOK_S = 0.3
# Seconds before extents that could not be read are read again.
_EXTENTS_AGAIN_S = 30.0


class Located(NamedTuple):
    """The location of a disk.

    :param location: the last known location; None: there is none
    :param problem: why it is unknown or may be outdated, or empty
    :param age_s: seconds since the path has answered; 0 if it is checked now and then
    :param unknown: the current location is unknown; otherwise, None means that the disk is
        not on a vcache device
    :param left_bytes: written data outside of the location's extents, which are limited in
        number; it belongs to the host tag
    :param cacheable: False: no command of this host can give the disk a cache
    :param vssd: it is an elastic SSD
    """

    location: Location | None
    problem: str
    age_s: float = 0.0
    unknown: bool = False
    left_bytes: int = 0
    cacheable: bool = True
    vssd: bool = False


@dataclasses.dataclass(eq=False)
class _Path:
    """A path.

    :param extents: its extents are needed
    :param used: somebody has asked for it since the last prune
    :param asked: number of questions, including `again`
    :param answered: number of answers
    :param again: a question to ask after the current answer, and its urgency
    :param stalled: the current question has no answer in time
    :param answer: the last answer without an error; None: none
    :param at: monotonic time of it
    :param error: error of the last answer, or empty
    :param missing: according to the last answer, there is nothing at the path
    :param known: the last location that was found
    """

    path: str
    extents: bool = False
    used: bool = True
    asked: int = 0
    answered: int = 0
    again: tuple[Question, Urgency] | None = None
    stalled: bool = False
    answer: Answer | None = None
    at: float = 0.0
    error: str = ""
    missing: bool = False
    known: "_Known | None" = None

    @property
    def problem(self) -> str:
        """Why its answer is missing or may be outdated, or empty."""
        if self.error:
            return self.error
        unanswered = self.stalled or not self.answered
        return f"{self.path} does not answer" if unanswered else ""


class _Known(NamedTuple):
    """A location.

    :param left_bytes: see :class:`Located`
    :param inputs: what it was calculated from; None: that was cheap
    """

    location: Location
    left_bytes: int = 0
    inputs: "tuple[list[Segment], FileId | None, Extents] | None" = None


@dataclasses.dataclass(frozen=True)
class _Extents:
    """The extents of a file; None: they could not be read.

    :param at: monotonic time of the attempt
    :param error: the reason
    :param failed: the attempt has failed; otherwise, the file system does not report them
    """

    extents: Extents | None
    at: float
    error: str = ""
    failed: bool = False


class Ticket(NamedTuple):
    """A request for a path; see :meth:`Locator.ask`.

    :param number: which answer to wait for; 0: none
    """

    item: _Path
    number: int


class _View(NamedTuple):
    """What is known about a path at one moment.

    :param of_file: the extents, if it is a file
    """

    item: _Path
    answer: Answer | None
    of_file: _Extents | None
    last: _Known | None
    problem: str
    age: float

    def located(self, found: _Known | None, problem: str = "", *,
                unknown: bool = False, cacheable: bool = True, vssd: bool = False) -> Located:
        """Return a location, with the problems of the path and of its calculation."""
        return Located(found.location if found else None, self.problem or problem, self.age,
                       bool(self.problem) or unknown, found.left_bytes if found else 0,
                       cacheable, vssd)


class Locator:
    """Locates disks. Thread-safe.

    :param timeout: seconds after which a path counts as hanging
    :param changed: called in a thread of its own if a location may have changed
    :param most: maximum number of extents of a location
    """

    def __init__(self, timeout: float, changed: Callable[[], object] = lambda: None, *,
                 most: int = 65536) -> None:
        self._most = most
        self._tell = changed
        self._pool = Pool(self._answer, self._stall, timeout)
        self._wake = threading.Condition()
        self._paths: dict[str, _Path] = {}
        self._files: dict[FileId, _Extents] = {}
        self._budget = Budget()
        self._changed = False
        #: Grows when a location, or what is known about it, may have changed.
        self.version = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="locate-watch", daemon=True)

    def start(self) -> None:
        """Start the helpers and the thread."""
        self._pool.start()
        self._thread.start()

    def stop(self) -> None:
        """Stop them. This does not wait for paths, and ends all waits for them."""
        self._stopping.set()
        with self._wake:
            self._wake.notify_all()
        self._pool.stop()

    def ask(self, paths: Iterable[str], *, extents: bool = True, fresh: bool = False,
            urgency: Urgency = Urgency.FIRST) -> dict[str, Ticket]:
        """Ask for paths without waiting; return a ticket for each, for :meth:`locate`.

        :param extents: the extents of files are needed
        :param fresh: ask again, even if the answer is known
        """
        tickets, questions = {}, []
        with self._wake:
            for path in paths:
                item = self._paths.setdefault(path, _Path(path))
                item.used = True
                item.extents |= extents
                tickets[path] = Ticket(item, 0)
                if (fresh or self._unknown(item, extents)) and not item.stalled:
                    questions += self._asked(item, Question(path, extents), urgency)
                    tickets[path] = Ticket(item, item.asked)
        self._pool.ask(questions, urgency)
        return tickets

    def locate(self, kind: str, path: str | None, stack: BlockStack, *,
               readonly: bool = False, extents: bool = True, ticket: Ticket | None = None,
               deadline: float = 0.0) -> Located:
        """Return the location of a disk, or the last known one and a problem.

        :param kind: source type of libvirt
        :param stack: the block devices
        :param extents: include the extents of a file
        :param ticket: of an earlier request for the path; None: request it now
        :param deadline: monotonic time until which to wait for an answer
        """
        try:
            path = disks.check(kind, path, readonly=readonly)
        except NotOnVcache as error:
            return Located(None, str(error), cacheable=not isinstance(error, NotCacheable))
        item, number = ticket or self.ask([path], extents=extents)[path]
        with self._wake:
            self._wake.wait_for(
                lambda: item.stalled or item.answered >= number or self._stopping.is_set(),
                max(0.0, deadline - time.monotonic()))
            view = self._view(item, late=item.answered < number)
        if view.answer is None:
            return view.located(view.last)
        # Without the lock, although this should not block.
        try:
            return view.located(self._map(view, view.answer, stack, extents))
        except NotOnVcache as error:
            return view.located(view.last, str(error),
                                unknown=isinstance(error, LocationUnknown),
                                cacheable=not isinstance(error, NotCacheable),
                                vssd=isinstance(error, IsVssd))
        except OSError as error:  # a device that has just gone
            return view.located(view.last, f"{path}: {error.strerror}", unknown=True)

    def missing(self, path: str) -> bool:
        """Return True if there is nothing at a path; False also if that is unknown."""
        self.ask([path], extents=False)
        with self._wake:
            return path in self._paths and self._paths[path].missing

    def prune(self) -> None:
        """Forget the paths that nobody has asked for since the last call."""
        with self._wake:
            # A path that hangs is kept, because it must not occupy another helper.
            self._paths = {path: item for path, item in self._paths.items()
                           if item.used or item.answered < item.asked}
            files = {item.answer.file for item in self._paths.values() if item.answer}
            self._files = {file: found for file, found in self._files.items() if file in files}
            self._budget.keep(self._files.keys())
            for item in self._paths.values():
                item.used = False

    def _unknown(self, item: _Path, extents: bool) -> bool:
        """Return True if nothing is known about a path, or not its extents."""
        if item.answer is None:
            return not item.answered
        file = item.answer.file
        return extents and file is not None and file not in self._files

    @staticmethod
    def _asked(item: _Path, question: Question, urgency: Urgency) -> list[Question]:
        """Note a question; return what to ask now: a path has one question at a time."""
        if item.answered == item.asked:
            item.asked += 1
            return [question]
        if item.again is None:
            item.asked += 1
        else:
            question = Question(item.path, question.extents or item.again[0].extents)
            urgency = min(urgency, item.again[1])
        item.again = (question, urgency)
        return []

    def _view(self, item: _Path, *, late: bool) -> _View:
        """Return what is known about a path.

        :param late: an answer has not come before the deadline
        """
        answer = item.answer
        file = answer.file if answer else None
        problem = item.problem or (f"{item.path} does not answer in time" if late else "")
        return _View(item, answer, self._files.get(file) if file else None,
                     item.known, problem,
                     time.monotonic() - item.at if problem and answer else 0.0)

    def _map(self, view: _View, answer: Answer, stack: BlockStack, extents: bool) -> _Known:
        """Return the location of what is at a path.

        :raises NotOnVcache: if it is not on a vcache device, or its extents are unknown
        """
        item = view.item
        if answer.block is not None:
            item.known = _Known(disks.of_block(answer.block, stack))
            return item.known
        if answer.device is None:
            raise NotOnVcache(f"{item.path} must be a regular file or a block device")
        runs = view.of_file.extents if view.of_file else None
        if runs is None or not extents:
            where = disks.of_file(answer.device, answer.inode, answer.generation, (), stack)
            if not extents or where.key.startswith("volume:"):
                return _Known(where)
            if view.of_file is None:
                raise LocationUnknown(f"{item.path}: its extents are not read yet")
            raise (LocationUnknown if view.of_file.failed else NotOnVcache)(view.of_file.error)
        known, segments = item.known, stack.segments(answer.device)
        # Extents are compared by identity, because there may be many.
        if known is None or known.inputs is None or known.inputs[2] is not runs \
                or known.inputs[:2] != (segments, answer.file):
            found = disks.of_file(answer.device, answer.inode, answer.generation, runs,
                                  stack)
            kept, left = limit(found.extents, self._most)
            known = _Known(dataclasses.replace(found, extents=pack(kept)), left,
                           (segments, answer.file, runs))
            item.known = known
        return known

    def _stall(self, question: Question) -> None:
        """Note that a path does not answer."""
        with self._wake:
            item = self._paths.get(question.path)
            if item is not None:
                item.stalled = self._changed = True
                self.version += 1
                self._wake.notify_all()

    def _answer(self, question: Question, answer: Answer) -> None:
        """Note an answer."""
        with self._wake:
            item = self._paths.get(question.path)
            if item is None:
                return
            item.answered += 1
            changed = item.stalled or item.error != answer.error
            item.stalled, item.error, item.missing = False, answer.error, answer.missing
            if not answer.error:
                changed |= self._note(item, answer)
            elif question.extents and item.answer and item.answer.file:
                self._budget.failed(item.answer.file, time.monotonic())
            if changed:
                self._changed = True
                self.version += 1
            again, item.again = item.again, None
            self._wake.notify_all()
        if again is not None:
            self._pool.ask([again[0]], again[1])

    def _note(self, item: _Path, answer: Answer) -> bool:
        """Note a good answer; return True if a location may have changed."""
        old, now = item.answer, time.monotonic()
        item.answer, item.at = answer, now
        changed = old is None or (old.file, old.block) != (answer.file, answer.block)
        if changed:
            item.known = None  # there is something else at the path
        if answer.file is None:
            return changed
        if answer.extents_error:
            before = self._files.get(answer.file)
            kept = before.extents if before else None
            self._files[answer.file] = _Extents(kept, now, answer.extents_error, answer.failed)
            self._budget.failed(answer.file, now)
            return changed or before is None
        if answer.extents is None:
            self._budget.saw(answer.file, answer.status)
            return changed
        before = self._files.get(answer.file)
        same = before is not None and before.extents == answer.extents
        # The same object again makes later comparisons cheap.
        self._files[answer.file] = _Extents(before.extents if before and same else answer.extents,
                                            now)
        self._budget.ended(answer.file, answer.status, now, answer.cost,
                           settled=answer.settled, unwritten=answer.unwritten)
        return changed or not same

    def _watch(self) -> None:
        period = _QUIET_S
        while not self._stopping.wait(period):
            try:
                self._look()
            except Exception:  # the next look may succeed
                LOG.exception("locate failed")
            with self._wake:
                period = _BUSY_S if self._budget.busy(time.monotonic()) else _QUIET_S

    def _look(self) -> None:
        """Look at all paths once, and read the extents that are due."""
        now = time.monotonic()
        with self._wake:
            self._ask_and_wait([
                Question(path, item.extents and self._due(item, now))
                for path, item in self._paths.items() if item.answered == item.asked])
            paths = {item.answer.file: path for path, item in self._paths.items()
                     if item.answer and item.extents and item.answered == item.asked}
            picked = self._budget.pick(time.monotonic())
            for file in picked:
                if file not in paths:
                    self._budget.failed(file, now)
            self._ask_and_wait([Question(paths[file], True) for file in picked if file in paths])
            changed, self._changed = self._changed, False
        if changed:
            self._tell()

    def _due(self, item: _Path, now: float) -> bool:
        """Return True if the extents of a file have never been read, or not for long in vain."""
        file = item.answer.file if item.answer else None
        found = self._files.get(file) if file else None
        return found is None or (bool(found.error) and now - found.at > _EXTENTS_AGAIN_S)

    def _ask_and_wait(self, questions: list[Question]) -> None:
        """Ask, and wait for most answers; the lock is held before and after."""
        if not questions:
            return
        items = [self._paths[question.path] for question in questions]
        for item in items:
            item.asked += 1
        self._pool.ask(questions, Urgency.WATCH)
        self._wake.wait_for(lambda: self._stopping.is_set() or all(
            item.stalled or item.answered == item.asked for item in items), _LOOK_S)

