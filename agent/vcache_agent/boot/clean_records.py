# SPDX-License-Identifier: Apache-2.0
"""Which devices had no dirty data in their cache when the host stopped.

They may continue without the cache if its device is missing at the next start. The records are
empty files beside the agent's store. A record is removed, durably, before its device is attached.
"""

import contextlib
import hashlib
import os
from pathlib import Path


class CleanRecords:
    """The records.

    :param state: path of the agent's store; the records are in the folder ``clean`` beside it
    """

    def __init__(self, state: Path) -> None:
        self._folder = state.with_name("clean")

    def _path(self, pool: str, identity: str) -> Path:
        return self._folder / hashlib.sha256(f"{pool}\n{identity}".encode()).hexdigest()[:32]

    def has(self, pool: str, identity: str) -> bool:
        """Return True if a device had no dirty data in a pool."""
        return self._path(pool, identity).exists()

    def put(self, pool: str, identity: str) -> None:
        """Record that a device has no dirty data in a pool.

        :raises OSError: if that is not possible
        """
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._path(pool, identity).write_text(f"{pool} {identity}\n")
        self._sync()

    def remove(self, pool: str, identity: str) -> None:
        """Remove the record of a device.

        :raises OSError: if that is not possible
        """
        with contextlib.suppress(FileNotFoundError):
            self._path(pool, identity).unlink()
            self._sync()

    def _sync(self) -> None:
        fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
