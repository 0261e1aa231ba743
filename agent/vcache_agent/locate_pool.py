# SPDX-License-Identifier: Apache-2.0
"""Helper processes that look up paths, of which any number may hang.

A path that does not answer keeps its process until it answers; another process takes
the place of that one. Of each mount, only a few paths may occupy a process in this
way: the others are then not asked, because the file system itself hangs. So the number
of processes is bounded by the number of mounts. If many mounts hang, the processes that
hang longest are killed; those that cannot die stay until the kernel releases them.
"""

import dataclasses
import enum
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from oslo_log import log as logging

from vcache_agent import locate_helper, mounts
from vcache_agent.fiemap_budget import FileId, Status
from vcache_agent.model import DeviceNumber, Extents
from vcache_agent.packed_extents import PackedExtents

LOG = logging.getLogger(__name__)

#: Processes that are ready. One of them is kept for the hook.
READY = 3
# Paths of one mount that may occupy a process without an answer.
_HUNG_OF_MOUNT = 2
# Processes that hang, before the oldest is killed.
_HUNG_MAX = 16
# Paths of one request, which a process answers one after another.
_BATCH = 32
# Longest time in seconds that the start of a process may take.
_START_S = 30.0
# Seconds before another attempt to start a process.
_START_AGAIN = 1.0

# A helper needs only the standard library and the folder of this package. Without the rest of
# Python's paths, it starts in half the time, and takes two thirds of the memory.
_PROGRAM = ("import sys; sys.path.append(sys.argv[2]); "
            f"from {locate_helper.__name__} import main; main()")
_CODE = Path(locate_helper.__file__).parent.parent

_NONE = Status(0, 0, 0, 0)


class Question(NamedTuple):
    """A path to look up.

    :param extents: read the extents, if it is a file
    """

    path: str
    extents: bool = False


@dataclasses.dataclass(frozen=True)
class Answer:
    """What is at a path; without `block` and `device` it is neither a block device nor a file.

    :param error: why it is unknown, or empty; the other fields are then empty
    :param missing: there is nothing at the path
    :param block: number of the block device that it is
    :param device: device of the file system of the file that it is
    :param generation: see :func:`inode.generation`
    :param status: status of the file before its extents were read
    :param extents: its extents, in sectors of the file system's device; None: not read
    :param extents_error: why they could not be read, or empty
    :param failed: the attempt has failed; otherwise, the file system does not report them
    :param unwritten: sectors that are allocated, but not written
    :param settled: no write can have been in progress when the read of the extents began
    :param cost: CPU time of the read in seconds
    """

    error: str = ""
    missing: bool = False
    block: DeviceNumber | None = None
    device: DeviceNumber | None = None
    inode: int = 0
    generation: str = ""
    status: Status = _NONE
    extents: Extents | None = None
    extents_error: str = ""
    failed: bool = False
    unwritten: int = 0
    settled: bool = False
    cost: float = 0.0

    @property
    def file(self) -> FileId | None:
        """The identity of the file; None if it is no file."""
        if self.device is None:
            return None
        return os.makedev(*self.device), self.inode, self.generation


class Urgency(enum.IntEnum):
    """How urgent a question is, the most urgent first."""

    #: libvirt's hook waits for the answer.
    HOOK = 0
    #: A disk without a known location.
    FIRST = 1
    #: A repetition.
    WATCH = 2


class HelperEnded(Exception):
    """A helper process has ended."""


class Helper:
    """The agent's end of the protocol of locate_helper.py."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._runs: list[bytes] = []

    def ask(self, questions: Iterable[Question]) -> None:
        """Send questions.

        :raises HelperEnded: if it has ended
        """
        try:
            self._socket.send(json.dumps(list(questions)).encode())
        except OSError as error:
            raise HelperEnded(str(error)) from None

    def answer(self, question: Question, seconds: float | None) -> Answer:
        """Receive the answer of the next question; continue after a TimeoutError.

        :param seconds: longest time without progress; None: no limit
        :raises TimeoutError: if there was no progress for that time
        :raises HelperEnded: if it has ended
        """
        self._socket.settimeout(seconds)
        while True:
            try:
                message = self._socket.recv(locate_helper.MESSAGE_BYTES)
            except TimeoutError:
                raise
            except OSError as error:
                raise HelperEnded(str(error)) from None
            if not message:
                raise HelperEnded("it has closed its socket")
            if message[:1] == b"E":
                self._runs.append(message[1:])
            elif message[:1] == b"A":
                runs, self._runs = self._runs, []
                return parse(question, json.loads(message[1:]), b"".join(runs))

    def kill(self) -> None:
        """End it, even while it answers. This does not wait."""
        self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End it and free its resources. This does not wait."""
        self._socket.close()


class ProcessHelper(Helper):
    """A process of locate_helper.py.

    :raises OSError: if it cannot be started
    """

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        super().__init__(ours)
        with theirs:
            try:
                self.process = subprocess.Popen(
                    [sys.executable, "-IS", "-c", _PROGRAM, str(theirs.fileno()), str(_CODE)],
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, cwd="/",
                    pass_fds=[theirs.fileno()], start_new_session=True)
            except BaseException:
                ours.close()
                raise
        # Its start is not part of the time of a question.
        try:
            ours.settimeout(_START_S)
            if not ours.recv(locate_helper.MESSAGE_BYTES):
                raise OSError(f"it ended with status {self.process.wait(_START_S)}")
        except BaseException:
            self.close()
            raise

    def kill(self) -> None:
        """Kill it. Its socket is closed when it dies."""
        self.process.kill()

    def close(self) -> None:
        """Kill it and free its resources. This does not wait."""
        super().close()
        self.process.kill()
        # It may be unable to die. In that case, the module subprocess reaps it later.
        self.process.poll()


def parse(question: Question, answer: locate_helper.Json, runs: bytes) -> Answer:
    """Return the answer in the messages of a helper.

    :param runs: the extents, as in the messages ``E``
    """
    if "error" in answer:
        return Answer(error=f"{question.path}: {answer['error']}",
                      missing=answer.get("errno") in (2, 20))  # ENOENT, ENOTDIR
    if "other" in answer:
        return Answer()
    if "block" in answer:
        return Answer(block=DeviceNumber(*answer["block"]))
    error = answer.get("extents_error", "")
    extents = PackedExtents(runs) if question.extents and not error else None
    return Answer(device=DeviceNumber(*answer["device"]), inode=answer["inode"],
                  generation=answer["generation"],
                  status=Status(*answer["status"]), extents=extents,
                  extents_error=error, failed=answer.get("failed", False),
                  unwritten=answer.get("unwritten", 0), settled=answer.get("settled", False),
                  cost=answer.get("cost", 0.0))


@dataclasses.dataclass
class _Hung:
    """A path that occupies a helper."""

    path: str
    mount: str
    helper: Helper
    since: float
    killed: bool = False


class Pool:
    """Answers questions in its own threads, each with a helper process.

    :param answered: called in a thread of the pool with each answer
    :param stalled: called in any thread for a question without an answer in time; its answer
        may still follow
    :param timeout: seconds without progress until a question counts as stalled
    """

    def __init__(self, answered: Callable[[Question, Answer], object],
                 stalled: Callable[[Question], object], timeout: float,
                 start: Callable[[], Helper] | None = None,
                 points: Callable[[], frozenset[str]] = mounts.points) -> None:
        self._answered = answered
        self._stalled = stalled
        self._timeout = timeout
        self._start = start or ProcessHelper
        self._points = points
        self._wake = threading.Condition()
        self._queues: dict[Urgency, deque[list[Question]]] = {
            urgency: deque() for urgency in Urgency}
        self._idle = 0
        self._hung: list[_Hung] = []
        self._helpers: set[Helper] = set()
        self._stopping = False

    def start(self) -> None:
        """Start the helpers."""
        for _ in range(READY):
            self._add()

    def stop(self) -> None:
        """End all helpers; those that hang are left alone. This does not wait."""
        with self._wake:
            self._stopping = True
            self._wake.notify_all()
            # The thread of a helper closes it. One that is just being started ends with the
            # agent's end of its socket.
            for helper in self._helpers:
                helper.kill()

    def ask(self, questions: Iterable[Question], urgency: Urgency) -> None:
        """Ask questions; each is answered or stalls."""
        points = self._points()
        batches: dict[tuple[str, bool], list[list[Question]]] = {}
        for question in questions:
            of_mount = batches.setdefault(
                (mounts.point_of(question.path, points), question.extents), [[]])
            # Reading extents may take long, so it does not delay other answers.
            if len(of_mount[-1]) == (1 if question.extents else _BATCH):
                of_mount.append([])
            of_mount[-1].append(question)
        with self._wake:
            for of_mount in batches.values():
                self._queues[urgency].extend(of_mount)
            self._wake.notify_all()

    def _add(self) -> None:
        threading.Thread(target=self._work, name="locate", daemon=True).start()

    def _work(self) -> None:
        helper = self._new_helper()
        while helper is not None:
            batch = self._take()
            if batch is None:
                break
            ended, left = True, batch
            try:
                helper.ask(batch)
                while left:
                    if not self._one(helper, left):
                        return  # another thread has taken the place of this one
                    left = left[1:]
                ended = False
            except HelperEnded as error:
                self._answered(left[0], Answer(
                    error=f"{left[0].path}: the helper process ended: {error}"))
                self._again(left[1:])
            except Exception:
                LOG.exception("locate: %s", left[0].path)
                self._again(left[1:])
            if ended:
                self._drop(helper)
                helper = self._new_helper()
        if helper is not None:
            self._drop(helper)

    def _one(self, helper: Helper, left: list[Question]) -> bool:
        """Receive the next answer; return False after it stalled.

        :param left: the questions without an answer
        """
        question = left[0]
        try:
            self._answered(question, helper.answer(question, self._timeout))
            return True
        except TimeoutError:
            pass
        with self._wake:
            hung = _Hung(question.path, mounts.point_of(question.path, self._points()), helper,
                         time.monotonic())
            self._hung.append(hung)
            oldest = next((item for item in self._hung if not item.killed), None) \
                if len(self._hung) > _HUNG_MAX else None
            if oldest is not None:
                oldest.killed = True
        self._again(left[1:])
        self._add()
        LOG.warning("%s does not answer", question.path)
        if oldest is not None:
            LOG.warning("%d paths do not answer; giving up %s after %.0f s", _HUNG_MAX + 1,
                        oldest.path, time.monotonic() - oldest.since)
            oldest.helper.kill()
        self._stalled(question)
        try:
            answer = helper.answer(question, None)
        except HelperEnded:
            answer = Answer(error=f"{question.path} does not answer")
        with self._wake:
            self._hung.remove(hung)
        self._drop(helper)
        if not self._stopping:
            LOG.warning("%s answers after %.1f s", question.path,
                        time.monotonic() - hung.since + self._timeout)
            self._answered(question, answer)
        return False

    def _again(self, batch: list[Question]) -> None:
        """Ask another helper the rest of a batch."""
        if batch:
            with self._wake:
                self._queues[Urgency.FIRST].append(batch)
                self._wake.notify_all()

    def _take(self) -> list[Question] | None:
        """Return the next batch, or None when the pool stops."""
        while True:
            with self._wake:
                self._idle += 1
                self._wake.notify_all()
                self._wake.wait_for(lambda: self._stopping or self._next())
                queue = self._next()
                self._idle -= 1
                if self._stopping or queue is None:
                    return None
                batch = queue.popleft()
                hung = Counter(item.mount for item in self._hung)
            left = self._without_hung(batch, hung) if hung else batch
            if left:
                return left

    def _next(self) -> deque[list[Question]] | None:
        """Return the queue from which an idle helper takes the next batch; None: from none."""
        return next((queue for urgency, queue in self._queues.items()
                     if queue and (urgency is Urgency.HOOK or self._idle > 1)), None)

    def _without_hung(self, batch: list[Question], hung: Counter[str]) -> list[Question]:
        """Answer the questions whose file system hangs, and return the others.

        :param hung: number of hanging paths by mount
        """
        points, left = self._points(), []
        for question in batch:
            if hung[mounts.point_of(question.path, points)] < _HUNG_OF_MOUNT:
                left.append(question)
            else:
                self._answered(question, Answer(
                    error=f"{question.path}: its file system does not answer"))
        return left

    def _new_helper(self) -> Helper | None:
        """Return a helper that is ready; None when the pool stops."""
        while not self._stopping:
            try:
                helper = self._start()
            except OSError as error:
                LOG.error("cannot start a helper process: %s", error)
                with self._wake:
                    self._wake.wait_for(lambda: self._stopping, _START_AGAIN)
                continue
            with self._wake:
                self._helpers.add(helper)
            return helper
        return None

    def _drop(self, helper: Helper) -> None:
        with self._wake:
            self._helpers.discard(helper)
        helper.close()
