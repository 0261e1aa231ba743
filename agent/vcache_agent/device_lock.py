# SPDX-License-Identifier: Apache-2.0
"""The lock of all that changes tables of devices: the commands, and the agent's managed volumes.

It is a lock of a file, so it ends with its process. The file has the name of the holder, for
the error of those who wait in vain.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

# Seconds between two attempts.
_AGAIN = 0.1
_NAME_BYTES = 512


class Busy(Exception):
    """The lock is held; the text names the holder."""


@contextlib.contextmanager
def held(path: Path, holder: str, patience: float = 0.0) -> Iterator[None]:
    """Hold the lock; two threads of a process exclude each other, too.

    :param holder: what holds it
    :param patience: seconds to wait for it
    :raises Busy: if it is still held after that time
    :raises OSError: if the file cannot be opened
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _lock(fd, time.monotonic() + patience)
        _name(fd, f"{holder} (process {os.getpid()})")
        try:
            yield
        finally:
            _name(fd, "")
    finally:
        os.close(fd)


def _lock(fd: int, deadline: float) -> None:
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            left = deadline - time.monotonic()
        if left <= 0:
            name = os.pread(fd, _NAME_BYTES, 0).decode(errors="replace")
            raise Busy(f"{name or 'another command'} changes devices now; try again when that has "
                       "ended")
        time.sleep(min(_AGAIN, left))


def _name(fd: int, text: str) -> None:
    """Write the holder. That helps others only, so it may fail, for example on a full disk."""
    with contextlib.suppress(OSError):
        os.ftruncate(fd, 0)
        os.pwrite(fd, text.encode(errors="replace")[:_NAME_BYTES], 0)
