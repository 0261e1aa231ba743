# SPDX-License-Identifier: Apache-2.0
"""The recorder thread, which writes the observer's samples to a file.

Writing may block, for instance on a network file system. So it has a thread of its own and
a short queue. A sample that finds the queue full is dropped and counted.
"""

import contextlib
import queue
import threading
from pathlib import Path

from oslo_log import log as logging

from vcache_agent.observe.recording import Writer
from vcache_agent.observe.sample import Sample

LOG = logging.getLogger(__name__)

_QUEUE = 30
_STOP_SECONDS = 2.0


class Recorder:
    """Records samples.

    :param path: the file
    :param limit: size of a file in bytes, after which another is begun
    """

    def __init__(self, path: Path, limit: int) -> None:
        self._path = path
        self._limit = limit
        self._queue: queue.Queue[Sample | None] = queue.Queue(_QUEUE)
        self._writer: Writer | None = None
        self._dropped = 0
        self._failing = False
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)

    @property
    def dropped(self) -> int:
        """Number of samples that were not written."""
        return self._dropped

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Write what is queued and stop, unless the file system blocks."""
        with contextlib.suppress(queue.Full):
            self._queue.put_nowait(None)
        self._thread.join(_STOP_SECONDS)

    def add(self, sample: Sample) -> None:
        """Queue a sample; never blocks."""
        try:
            self._queue.put_nowait(sample)
        except queue.Full:
            self._dropped += 1

    def _run(self) -> None:
        while (sample := self._queue.get()) is not None:
            try:
                if self._writer is None:
                    self._writer = Writer(self._path, self._limit)
                self._writer.write(sample)
                self._failing = False
            except OSError as error:
                self._failed(error)
        self._close()

    def _failed(self, error: OSError) -> None:
        self._dropped += 1
        if not self._failing:
            LOG.error("recording to %s failed: %s; trying again with each sample", self._path,
                      error.strerror or error)
        self._failing = True

    def _close(self) -> None:
        if self._writer is not None:
            with contextlib.suppress(OSError):
                self._writer.close()
            self._writer = None
