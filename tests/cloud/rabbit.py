# SPDX-License-Identifier: Apache-2.0
"""A private RabbitMQ, with its own ports and files and without a service manager."""

import os
import subprocess
from pathlib import Path

from tests.box.steps import at_end, on_error
from tests.cloud.processes import Process, finish, free_port, wait_for

_BIN = Path("/usr/lib/rabbitmq/bin")


class Rabbit:
    """A broker on loopback.

    :param folder: folder for all of its files
    :param at: its address and port
    """

    def __init__(self, folder: Path, at: str) -> None:
        folder.mkdir()
        self._folder = folder
        self._node = f"vcache{os.getpid()}@localhost"
        dist, epmd = free_port(), free_port()
        (folder / "rabbitmq.conf").write_text(f"listeners.tcp.default = {at}\n")
        self._env = {
            "RABBITMQ_NODENAME": self._node, "RABBITMQ_DIST_PORT": str(dist),
            "ERL_EPMD_ADDRESS": "127.0.0.1", "ERL_EPMD_PORT": str(epmd),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder / "log"), "RABBITMQ_PID_FILE": str(folder / "pid"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"), "HOME": str(folder),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}"}
        self.url = f"rabbit://guest:guest@{at}/"
        self.process = Process(folder, "rabbit", [str(_BIN / "rabbitmq-server")], self._env)
        with on_error(self.close):
            self._await()

    def control(self, *words: str) -> str:
        done = self._control(*words)
        assert done.returncode == 0, f"rabbitmqctl {' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout

    def _control(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return finish([str(_BIN / "rabbitmqctl"), "-n", self._node, *words], 120,
                      env={**os.environ, **self._env}, capture_output=True)

    @property
    def pid(self) -> int:
        return self.process.pid

    def stop(self) -> None:
        self.process.stop(60)

    def start(self) -> None:
        self.process.start()
        self._await()

    def close(self) -> None:
        # epmd is a separate daemon, used only for this port.
        with at_end(finish, ["epmd", "-port", self._env["ERL_EPMD_PORT"], "-kill"], 60,
                    env={**os.environ, **self._env}, capture_output=True):
            self.stop()

    def _await(self) -> None:
        wait_for(lambda: self._control("await_startup").returncode == 0, "RabbitMQ", 120)
