# SPDX-License-Identifier: Apache-2.0
"""The churn: some instances, and an agent that is killed again and again."""

import collections
import time
from pathlib import Path
from typing import Any

from tests.box.inside import run
from tests.host import lab
from tests.host.cached import CachedFilesystem
from tests.host.churn import verdict
from tests.host.churn.actor import Actor
from tests.host.churn.killer import Killer
from tests.host.lab import Agent, cli

_RAW, _QCOW2 = 2, 2


def churn(filesystem: CachedFilesystem, agent: Agent, seconds: float, seed: int) -> dict[str, Any]:
    """Let instances live while the agent is killed; return what was done.

    :param filesystem: has the images; its cache is detached at the end
    :param agent: must run
    :param seed: of all random choices. The order of what threads do is not repeatable.
    :raises AssertionError: if a write was lost, a tag has leaked, or the final state is wrong
    """
    base = _base(filesystem.folder / "0123base")
    actors = [Actor(f"churn{number}", seed, filesystem.folder, base if number >= _RAW else None,
                    filesystem.number) for number in range(_RAW + _QCOW2)]
    killer = Killer(agent, seed)
    threads: list[Actor | Killer] = [*actors, killer]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    while time.monotonic() - began < seconds and not any(
            thread.problem for thread in threads):
        time.sleep(0.5)
    for actor in actors:
        actor.stop()
    # The agent dies until the last of them has ended.
    for actor in actors:
        actor.join()
    killer.stop()
    report = _report(actors, killer, time.monotonic() - began, seed)
    problems = [thread.problem for thread in threads if thread.problem]
    assert not problems, "\n".join(problems)
    _judge(filesystem, agent, actors, base)
    return report


def _base(path: Path) -> Path:
    lab.image(path, 12)
    return path


def _report(actors: list[Actor], killer: Killer, seconds: float, seed: int) -> dict[str, Any]:
    counts: collections.Counter[str] = collections.Counter()
    for actor in actors:
        counts += actor.counts
    return {"seconds": round(seconds, 1), "seed": seed, "kills": killer.kills,
            "killed_while_starting": killer.early,
            "longest_start_s": max(killer.start_seconds, default=0.0),
            "actions": dict(sorted(counts.items()))}


def _judge(filesystem: CachedFilesystem, agent: Agent, actors: list[Actor],
           base: Path) -> None:
    """Check the final state, then all that remains when the instances are deleted."""
    instances = [actor.instance for actor in actors]
    verdict.final(agent, filesystem.number, instances)
    for one in instances:
        one.verify()
    # All of it must be on the disk, too.
    cli("detach", filesystem.NAME)
    run("sh", "-c", "sync; echo 3 > /proc/sys/vm/drop_caches")
    for one in instances:
        one.verify()
    cli("attach", filesystem.NAME, "--pool", filesystem.POOL, "--filesystem")
    verdict.final(agent, filesystem.number, instances)
    for one in instances:
        one.end()
    base.unlink()
    verdict.nothing_left(agent, filesystem.number, filesystem.folder)
