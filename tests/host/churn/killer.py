# SPDX-License-Identifier: Apache-2.0
"""A thread that kills the agent at random moments and starts it again."""

import random
import threading
import time

from tests.box.steps import describe
from tests.host.lab import Agent

# Longest times for which the agent runs and is away, in seconds. They are short against what
# domains take for their actions, so that each part of an action meets each state of the agent.
_RUNS = 20.0
_AWAY = 5.0


class Killer:
    """Kills the agent."""

    def __init__(self, agent: Agent, seed: int) -> None:
        self.kills = 0
        self.early = 0
        self.problem = ""
        self.start_seconds: list[float] = []
        self._agent = agent
        self._choose = random.Random(f"{seed} killer")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="killer", daemon=True)

    def start(self) -> None:
        """Start the thread. The agent must run."""
        self._thread.start()

    def stop(self) -> None:
        """Stop killing it; it runs afterwards."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                # Half of the moments are in the first second, when it changes the most.
                self._stopping.wait(self._choose.random() * self._choose.choice((1, _RUNS)))
                self._kill()
                self._stopping.wait(self._choose.random() * self._choose.choice((0, _AWAY)))
                if self._choose.random() < 0.3:
                    self._agent.spawn()
                    time.sleep(self._choose.random() * 3)
                    self.early += 1
                    self._kill()
                began = time.monotonic()
                self._agent.start()
                self.start_seconds.append(round(time.monotonic() - began, 2))
        except Exception as error:
            self.problem = f"the agent: {describe(error)}"

    def _kill(self) -> None:
        assert self._agent.runs, "the agent has ended by itself"
        self._agent.kill()
        self.kills += 1
