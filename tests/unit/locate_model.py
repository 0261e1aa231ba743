# SPDX-License-Identifier: Apache-2.0
"""Helpers of the locator as threads, with paths that hang as long as a test wants.

A thread starts faster than a process, and looks up paths with this process's functions,
which a test can replace.
"""

import contextlib
import os
import socket
import threading
from collections.abc import Iterator

import pytest

from vcache_agent import locate_helper
from vcache_agent.locate_pool import Helper


class ThreadHelper(Helper):
    """A helper in a thread."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        super().__init__(ours)
        threading.Thread(target=self._serve, args=(theirs,), daemon=True).start()

    @staticmethod
    def _serve(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            locate_helper.serve(connection)


class Hanging:
    """Paths whose look-ups block.

    :param waiting: paths of the look-ups that are blocked now
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.waiting: list[str] = []
        self._hanging: dict[str, threading.Event] = {}
        self._stat = os.stat
        monkeypatch.setattr(os, "stat", self._look)

    def _look(self, path: str, **options: object) -> os.stat_result:
        # Only helpers use texts; Path.stat() uses a Path.
        event = self._hanging.get(path) if isinstance(path, str) else None
        if event is not None:
            self.waiting.append(path)
            event.wait()
            self.waiting.remove(path)
        return self._stat(path, **options)  # type: ignore[arg-type]

    def hang(self, path: object) -> None:
        """Let look-ups of a path block."""
        self._hanging[str(path)] = threading.Event()

    def go_on(self, path: object) -> None:
        """Let the look-ups of a path continue."""
        self._hanging.pop(str(path)).set()

    def end(self) -> None:
        """Let all look-ups continue."""
        for path in list(self._hanging):
            self.go_on(path)


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hanging]:
    made = Hanging(monkeypatch)
    yield made
    made.end()


@pytest.fixture
def thread_helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vcache_agent.locate_pool.ProcessHelper", ThreadHelper)
