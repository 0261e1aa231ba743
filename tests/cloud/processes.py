# SPDX-License-Identifier: Apache-2.0
"""Processes that a test starts and stops by their process IDs."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.box.inside import stop
from tests.box.limits import Deadline, limit
from tests.box.steps import describe

BIN = Path(sys.executable).parent


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(condition: Callable[[], object], what: str, seconds: float = 60.0) -> None:
    """Wait until a condition holds.

    :param seconds: time limit; limits.py adapts it to the machine
    """
    deadline = Deadline(seconds)
    while not condition():
        assert not deadline.passed(), f"{what}: not within {deadline}"
        time.sleep(0.1)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Process:
    """One process in a separate session.

    :param folder: folder of its log
    :param name: name of its log
    :param cwd: its working directory; None: the folder
    """

    def __init__(self, folder: Path, name: str, command: list[str],
                 env: Mapping[str, str] | None = None, cwd: Path | None = None) -> None:
        self.log = folder / f"{name}.log"
        self._name = name
        self._command = command
        self._cwd = cwd or folder
        self._env = {**os.environ, **(env or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=self._cwd, env=self._env, stdin=subprocess.DEVNULL,
                stdout=log, stderr=subprocess.STDOUT, start_new_session=True)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(30)

    def stop(self, seconds: float = 60.0) -> None:
        assert self._process is not None
        stop(self._process, self._name, seconds)


def finish(command: Sequence[str], seconds: float,
           **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; return its status and output.

    :param seconds: time limit; limits.py adapts it to the machine
    :raises AssertionError: if it does not end in time, with its output so far
    """
    try:
        return subprocess.run(command, check=False, stdin=subprocess.DEVNULL, text=True,
                              timeout=limit(seconds), **options)
    except subprocess.TimeoutExpired as error:
        raise AssertionError(describe(error)) from None


def run(folder: Path, name: str, *command: str) -> None:
    """Run a command to its end; its output is in a log.

    :raises AssertionError: if it fails or does not end in time
    """
    path = folder / f"{name}.log"
    with open(path, "ab") as log:
        done = finish([str(BIN / command[0]), *command[1:]], 300, cwd=folder, stdout=log,
                      stderr=subprocess.STDOUT)
    assert done.returncode == 0, (f"{' '.join(command)}: exit status {done.returncode}; end of "
                                  f"{path}:\n{path.read_text(errors='replace')[-2000:]}")


def uwsgi(folder: Path, name: str, module: str, port: int, *, processes: int = 1,
          **env: str) -> Process:
    """Serve an application. It answers when this function returns."""
    # "Connection: close": uWSGI's own server resets persistent connections.
    made = Process(folder, name, [
        str(BIN / "uwsgi"), "--http-socket", f"127.0.0.1:{port}", "--module",
        f"{module}:application", "--master", "--lazy-apps", "--processes", str(processes),
        "--threads", "4", "--enable-threads", "--buffer-size", "65535", "--die-on-term",
        "--need-app", "--http-chunked-input", "--add-header", "Connection: close",
        # A snapshot is sent in parts of 1 MiB, which exceed the default with their headers.
        "--chunked-input-limit", str(4 << 20)], env)
    wait_for(lambda: listens(port), name)
    return made
