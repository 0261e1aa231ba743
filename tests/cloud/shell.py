# SPDX-License-Identifier: Apache-2.0
"""The command openstack, without the start of an interpreter for each command.

That start, and the imports of all clients, take a second and a half of processor time. So
commands are forked from a server that has done both. Each has a process, an environment and
files for its output of its own, as if a shell had started it.
"""

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.box.limits import limit

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["pytest", "tests.cloud.warm"])


def _main(words: Sequence[str], cwd: str, env: Mapping[str, str], files: tuple[str, str]) -> None:
    """Be the command: in its own process, with its status as the exit status."""
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, path in enumerate(files, 1):
        os.dup2(os.open(path, os.O_WRONLY), number)
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(number, mode, encoding="utf-8") for number, mode in enumerate("rww"))
    sys.argv = ["openstack", *words]
    from openstackclient import shell
    status = shell.main(list(words))
    sys.stdout.flush()
    sys.stderr.flush()
    sys.exit(status)


def openstack(words: Sequence[str], seconds: float, cwd: Path, env: Mapping[str, str],
              ) -> "subprocess.CompletedProcess[str]":
    """Run the command openstack; return its status and its output.

    :param seconds: time limit; limits.py adapts it to the machine
    :param env: its whole environment
    :raises AssertionError: if it does not end in time, with its output so far
    """
    with tempfile.TemporaryDirectory() as folder:
        files = (f"{folder}/stdout", f"{folder}/stderr")
        for path in files:
            Path(path).touch()
        process = _FORKS.Process(target=_main, args=(list(words), str(cwd), dict(env), files))
        process.start()
        process.join(limit(seconds))
        hangs = process.exitcode is None
        if hangs:
            process.kill()
            process.join()
        out, err = (Path(path).read_text(errors="replace") for path in files)
        assert not hangs, f"openstack {' '.join(words)}: not within {seconds} s: {out}{err}"
        return subprocess.CompletedProcess(["openstack", *words], process.exitcode or 0, out, err)
