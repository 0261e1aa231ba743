# SPDX-License-Identifier: Apache-2.0
"""A running vcache-ssd, and a host that is connected to it."""

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.box.limits import Deadline
from tests.nvmetcp.client import Queue

NQN = "nqn.2026-01.org.example:ssd"


class Ssd:
    """A process; environment variables control its replacement for an SSD."""

    def __init__(self, program: Path, *options: str, size: str | None = "16M",
                 nqn: str | None = NQN, env: Mapping[str, str] | None = None,
                 listen: str = "127.0.0.1:0") -> None:
        line = [str(program), "--listen", listen, *options]
        line += ["--size", size] if size else []
        line += ["--nqn", nqn] if nqn else []
        self.process = subprocess.Popen(
            line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, **(env or {})})
        assert self.process.stdout
        said = self.process.stdout.readline().split()
        if len(said) != 4:
            self.process.kill()
            raise RuntimeError(self.process.communicate()[1])
        self.nqn = said[1]
        host, _, port = said[3].rpartition(":")
        self.address = (host.strip("[]"), int(port))

    def end(self, how: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Stop it; return its status and error output."""
        self.process.send_signal(how)
        deadline = Deadline(60)
        while True:
            try:
                errors = self.process.communicate(timeout=deadline.left())[1]
                return self.process.returncode, errors
            except subprocess.TimeoutExpired:
                if not deadline.passed():
                    continue
            self.process.kill()
            raise AssertionError(f"vcache-ssd did not end within {deadline} of {how.name}:\n"
                                 f"{self.process.communicate()[1]}")

    def cut_power(self) -> None:
        """Kill it."""
        assert self.end(signal.SIGKILL)[0] == -signal.SIGKILL

    def __enter__(self) -> "Ssd":
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self._check(failed=error is not None)
        except AssertionError as second:
            if error is None:
                raise
            # In full: a report of a sanitizer is the reason for other failures.
            error.add_note(f"vcache-ssd: {second}")

    def _check(self, failed: bool) -> None:
        """Stop it if it is running, and check that it did not fail or print unexpected errors."""
        if self.process.poll() is None:
            status, errors = self.end()
        else:
            errors = self.process.communicate()[1]
            status = self.process.returncode
        if status not in (0, -signal.SIGKILL) or (errors and not failed):
            raise AssertionError(f"exit status {status}:\n{errors}")


class Host:
    """A host: an admin queue, and I/O queues on demand."""

    def __init__(self, ssd: Ssd, stack: ExitStack, *, kato: int = 0, cattr: int = 0,
                 **options: object) -> None:
        self.ssd, self.stack, self.options, self.cattr = ssd, stack, options, cattr
        self.admin = self._queue()
        done = self.admin.connect(ssd.nqn, kato=kato, cattr=cattr)
        assert done.status == 0
        self.cntlid = done.dw0
        self.admin.enable()

    def _queue(self) -> Queue:
        queue = Queue(self.ssd.address, **self.options)  # type: ignore[arg-type]
        return self.stack.enter_context(queue).initialise()

    def io(self, qid: int = 1, sqsize: int = 127) -> Queue:
        """Connect an I/O queue."""
        queue = self._queue()
        done = queue.connect(self.ssd.nqn, cntlid=self.cntlid, qid=qid, sqsize=sqsize,
                             cattr=self.cattr)
        assert (done.status, done.dw0) == (0, self.cntlid)
        return queue


@contextmanager
def host(ssd: Ssd, **options: object) -> Iterator[Host]:
    """Connect a host; its connections end with the block."""
    with ExitStack() as stack:
        yield Host(ssd, stack, **options)  # type: ignore[arg-type]
