# SPDX-License-Identifier: Apache-2.0
"""Build the simulation, run experiments in it, read its output."""

import json
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from bench import simulated
from bench.vflush import settings

ROOT = simulated.ROOT
BUILD = ROOT / "build" / "bench" / "vflush"

Run = dict[str, Any]


class Experiment(NamedTuple):
    """One run.

    :param loads: of the VMs ("random/8": an fsync every 8 writes)
    """

    system: str
    loads: str
    seed: int = settings.SEEDS[0]


def build(folder: Path = BUILD, tree: Path = ROOT, *flags: str) -> Path:
    """Compile the simulation.

    :param tree: the repository, or a copy of it with changes
    :param flags: flags of the compiler, instead of optimisation
    """
    return simulated.build(folder / "vflush", ["bench/vflush/*.c"], tree, flags or ("-O3", "-g"))


def random_loads(every: int) -> str:
    """Return the loads of the micro-benchmark: VM1 never syncs, VM2 every `every` writes."""
    return f"random,random/{every}" if every else "random,random"


def experiments() -> list[Experiment]:
    """Return all experiments of the simulation."""
    everything = [Experiment(system, random_loads(every), seed) for system in settings.SYSTEMS
                  for seed in settings.SEEDS[:None if system in settings.ATTRIBUTION else 1]
                  for every in (settings.NEVER, *settings.INTERVALS)]
    everything += [Experiment(system, ",".join(mix)) for system in ("baseline", "tagged")
                   for mix in settings.MIXES]
    return everything


def _run_all(program: Path, personality: str, wanted: Sequence[Experiment],
             hardware: Mapping[str, int], times: str,
             report: Callable[[str], None]) -> list[Run]:
    """Run all experiments of a personality, each from the same preconditioned SSD."""
    lines = [f"loads={loads} seed={seed} {settings.SYSTEMS[system][1]} {times}"
             for system, loads, seed in wanted]
    words = [f"{name}={value}" for name, value in hardware.items()]
    found = []
    with subprocess.Popen([str(program), f"personality={personality}", *words], text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin and process.stdout  # noqa: S101 - for the type checker
        process.stdin.write("\n".join(lines))
        process.stdin.close()
        for experiment, line in zip(wanted, process.stdout, strict=False):
            found.append({**experiment._asdict(), **json.loads(line)})
            report(f"{personality} {len(found)}/{len(wanted)}: {experiment.system}, "
                   f"{experiment.loads}, seed {experiment.seed}")
    if process.returncode or len(found) != len(wanted):
        raise SystemExit(f"bench-vflush: the simulation ended with {process.returncode}")
    return found


def run(program: Path, wanted: Iterable[Experiment],
        hardware: Mapping[str, int] = settings.HARDWARE, warm_ms: int = settings.WARM_MS,
        run_ms: int = settings.RUN_MS, sample_ms: int = settings.SAMPLE_MS,
        report: Callable[[str], None] = lambda _: None) -> list[Run]:
    """Simulate. The result depends only on the arguments.

    :param report: called after each run
    """
    times = f"warm_ms={warm_ms} run_ms={run_ms} sample_ms={sample_ms}"
    wanted = list(wanted)
    groups = {personality: [one for one in wanted
                            if settings.SYSTEMS[one.system][0] == personality]
              for personality in ("baseline", "tagged")}
    with ThreadPoolExecutor() as pool:
        found = [pool.submit(_run_all, program, personality, group, hardware, times, report)
                 for personality, group in groups.items() if group]
        return [one for part in found for one in part.result()]
