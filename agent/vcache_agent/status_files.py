# SPDX-License-Identifier: Apache-2.0
"""Detect changes of running domains by libvirt's status files.

libvirt sends no event for an external snapshot. But it replaces the status file
``DOMAIN.xml`` of a running domain after each change of its state, so that a
restarted libvirtd finds it. The content is private to libvirt; only the change
matters here.

A look costs one stat(2) per domain. It needs no queue of changes that could
overflow, and no watch that ends when the folder is replaced.
"""

import os
import time
from pathlib import Path

_SUFFIX = ".xml"
# Seconds between two looks, and the largest fractions of the time that looks and the work
# for what they find may take. A guest can cause changes, for example of its balloon.
_PAUSE = 0.5
_PART = 0.02
_WORK_PART = 0.1

_State = tuple[int, int, int]


class StatusFiles:
    """The status files of a libvirt driver.

    :param folder: the folder of the files, such as /run/libvirt/qemu. If it does not
        exist, there is never a change.
    :param pause: shortest time between two looks in seconds
    """

    def __init__(self, folder: Path, pause: float = _PAUSE) -> None:
        self._folder = folder
        self._pause = pause
        self._seen: dict[str, _State] = {}
        self._next = 0.0

    @property
    def wait(self) -> float:
        """Seconds until the next look, at least 0."""
        return max(0.0, self._next - time.monotonic())

    def mark(self) -> None:
        """Take the present files as known."""
        self._seen = self._look()

    def changed(self) -> list[str]:
        """Return the names of the domains whose file is new or was replaced.

        Files that have changed since the last call of this function or :meth:`mark` count.
        The list is empty if the time for the next look has not come.
        """
        if self.wait:
            return []
        before, self._seen = self._seen, self._look()
        return sorted(name for name, state in self._seen.items() if before.get(name) != state)

    def worked(self, seconds: float) -> None:
        """Delay the next look in proportion to the work for what the last one found.

        :param seconds: duration of the work for all changed domains
        """
        self._next = max(self._next, time.monotonic() + seconds / _WORK_PART)

    def _look(self) -> dict[str, _State]:
        began = time.monotonic()
        found = {}
        try:
            with os.scandir(self._folder) as entries:
                for entry in entries:
                    if entry.name.endswith(_SUFFIX):
                        state = _state(entry)
                        if state is not None:
                            found[entry.name.removesuffix(_SUFFIX)] = state
        except OSError:
            pass  # libvirt creates the folder with its first domain
        ended = time.monotonic()
        self._next = ended + max(self._pause, (ended - began) / _PART)
        return found


def _state(entry: os.DirEntry[str]) -> _State | None:
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return None  # removed meanwhile
    return status.st_ino, status.st_mtime_ns, status.st_size
