# SPDX-License-Identifier: Apache-2.0
"""The agent with a profile of its worker: ``python -m bench.agent.profiled FILE [options]``.

cProfile doubles the time of small functions, so figures come from a run without it.
"""

import cProfile
import os
import sys
from pathlib import Path

from vcache_agent.cmd import agent
from vcache_agent.worker import Worker


def main() -> int:
    """Run the agent; at its end, write the profile of all passes but the first."""
    path, profile = Path(sys.argv[1]), cProfile.Profile()
    real = Worker._pass
    passes = 0

    def measured(self: Worker, fresh: bool, periodic: bool = False) -> float:
        nonlocal passes
        passes += 1
        if passes == 1:
            return real(self, fresh, periodic)
        return profile.runcall(real, self, fresh, periodic)

    Worker._pass = measured  # type: ignore[method-assign]
    exit_now = os._exit

    def write_and_exit(status: int) -> None:
        profile.dump_stats(path)
        exit_now(status)

    os._exit = write_and_exit  # type: ignore[assignment]
    return agent.main(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
