# SPDX-License-Identifier: Apache-2.0
"""Run the program of the simulation on all processors, and collect what it reports."""

import collections
import concurrent.futures
import dataclasses
import functools
import json
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.sim.build import (
    BUILD,
    COVERAGE,
    PLAIN,
    SANITIZED,
    BuildError,
    Variant,
    build,
    module_sources,
)
from tests.sim.mutations import MUTATIONS, NARROW, Mutation

REPORT = BUILD / "report.json"

#: What a case counts.
COUNTS = ("histories", "orders", "cuts", "recoveries", "remembered", "steps")

CONFIGS = ("writeback", "degraded", "plp", "volume", "flush-only", "flush-only-degraded",
           "writethrough")

DIRECTED = ("stale-destage", "cache-lost", "seal-fails", "failed-record", "bad-block",
            "failed-flush", "behind-discard", "through-crash", "two-bad-blocks", "removed-tag",
            "read-only-pool", "late-for-discard", "few-chunks", "unreadable-chunk",
            "unreadable-data", "unreadable-and-bad", "unsealable-chunks", "large-writes",
            "failed-record-past-log", "drain-and-write", "drain-superseded",
            "failed-record-of-two", "full-of-bad-blocks", "damaged-log", "damaged-metadata",
            "reclaimed-early", "discarded-early", "read-while-replaced")

#: Kinds of requests in exhaustive histories.
OPERATIONS = 11


@dataclasses.dataclass
class Result:
    """What one or more runs of the program have reported.

    :param counts: of histories, orders, power cuts and so on
    :param probes: hits by name
    :param violations: as the program prints them
    """

    counts: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    probes: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    violations: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    def add(self, other: "Result") -> None:
        """Add another result."""
        self.counts.update(other.counts)
        self.probes.update(other.probes)
        self.violations.extend(other.violations)


def _parse(command: Sequence[str], output: str, status: int, errors: str) -> Result:
    result = Result()
    ended = False
    for line in output.splitlines():
        try:
            data = json.loads(line)
        except json.JSONDecodeError:
            continue
        if "violation" in data:
            result.violations.append(data)
            ended |= bool(data.get("crashed"))
        else:
            ended = True
            result.counts.update({name: data[name] for name in COUNTS})
            result.probes.update(data["probes"])
    if not ended:
        result.violations.append({"violation": f"the program ends with status {status}: "
                                               f"{errors.strip()[-2000:]}",
                                  "case": " ".join(command[1:])})
    return result


def run(program: Path, *arguments: object, most: int = 5) -> Result:
    """Run the program once. It ends itself: its time limits are of processor time.

    :param program: the program
    :param arguments: its arguments
    :param most: end after so many violations
    """
    command = [str(program), *map(str, arguments)]
    environment = {**os.environ, "SIM_MOST": str(most),
                   "ASAN_OPTIONS": "detect_stack_use_after_return=0:detect_leaks=0"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    return _parse(command[1:], done.stdout, done.returncode, done.stderr)


def _used() -> float:
    """Return the processor time of all programs that have ended, in seconds."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def processors() -> int:
    """Return how many programs run at a time."""
    return len(os.sched_getaffinity(0))


def together(calls: Iterable[Callable[[], Result]], jobs: int) -> Result:
    """Run some calls at a time, and add their results."""
    result = Result()
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for part in pool.map(lambda call: call(), list(calls)):
            result.add(part)
    return result


def exhaustive(program: Path, config: str, length: int, seconds: float, jobs: int) -> Result:
    """Run all histories of up to @length requests, each in three orders.

    :param seconds: time limit; 0: none
    """
    return together((functools.partial(run, program, "exhaustive", config, length, shard, jobs,
                                       seconds)
                     for shard in range(jobs)), jobs)


#: As many random histories as there is time for.
ALL = 1 << 60


def randomly(program: Path, first: int, seconds: float, count: int, jobs: int) -> Result:
    """Run random histories for some time, at most @count, from the seed @first on."""
    return together((functools.partial(run, program, "random", first + shard, jobs, seconds,
                                       count // jobs)
                     for shard in range(jobs)), jobs)


def directed(program: Path, count: int, seconds: float, jobs: int) -> Result:
    """Run the directed cases, @count of each, from seed 1 on."""
    return together((functools.partial(run, program, "directed", name, 1, 1, seconds, count)
                     for name in DIRECTED), jobs)


def is_caught(mutation: Mutation, seconds: float) -> dict[str, Any]:
    """Put a defect back and look for it.

    :return: its name, whether it was found, and the case that shows it
    """
    found: dict[str, Any] = {"name": mutation.name, "caught": False}
    try:
        edits = (*NARROW, *mutation.edits) if mutation.narrow else mutation.edits
        program = build(PLAIN, edits, f"mutation-{mutation.name}")
    except BuildError as error:
        return {**found, "error": str(error)}
    tail = (() if mutation.cases[0] == "replay" else
            (1, 1, seconds, 100000) if mutation.cases[0] == "directed" else
            (1, 1, seconds, ALL) if mutation.cases[0] == "random" else (0, 1, seconds))
    result = run(program, *mutation.cases, *tail, most=1)
    if result.violations:
        found |= {"caught": True, "case": result.violations[0]["case"],
                  "violation": result.violations[0]["violation"]}
    return found


#: What the names of cases with NARROW begin with.
_NARROW = "narrow:"


def probe_names() -> list[str]:
    """Return the names of all probes in the module."""
    return sorted({name for path in module_sources()
                   for name in re.findall(r'VCACHE_PROBE\("([^"]+)"\)', path.read_text())})


@dataclasses.dataclass(frozen=True)
class Plan:
    """How long to run what.

    :param lengths: for each configuration, the longest histories of the exhaustive part
    :param exhaustive_seconds: time limit for each configuration; 0: none
    :param random_seconds: how long random histories run
    :param random_count: and how many at most
    :param directed_count: so many cases of each directed kind
    :param mutations: which defects to put back; all if None
    :param sanitized_seconds: how long the program with sanitizers runs random histories
    :param narrow_seconds: how long the one with several windows in flight does, see NARROW
    """

    lengths: dict[str, int]
    exhaustive_seconds: float
    random_seconds: float
    directed_count: int
    mutations: tuple[str, ...] | None = None
    mutation_seconds: float = 60
    sanitized_seconds: float = 0
    narrow_seconds: float = 0
    random_count: int = ALL


def full_plan(seconds: float) -> Plan:
    """Return the plan of ``make sim``. What is exhaustive runs to its end, however long.

    :param seconds: about how long the whole takes on two processors that are not busy
    """
    four = ("writeback", "degraded", "flush-only") if seconds >= 600 else ("writeback",)
    lengths = {config: 4 if config in four else 3 for config in CONFIGS}
    return Plan(lengths, exhaustive_seconds=0, random_seconds=seconds * 0.3,
                directed_count=round(seconds / 3), sanitized_seconds=seconds * 0.05,
                narrow_seconds=seconds * 0.1)


def sample_plan() -> Plan:
    """Return the plan of the tests: about a minute of one processor."""
    return Plan(dict.fromkeys(CONFIGS, 2), exhaustive_seconds=0, random_seconds=3600,
                random_count=120, directed_count=12, mutation_seconds=600, sanitized_seconds=60,
                narrow_seconds=3600, mutations=("1-stale-destage", "7-flush-over-failure",
                                                "failed-window-is-clean"))


def coverage_plan(seconds: float) -> Plan:
    """Return the plan of ``make sim-coverage``: as the full one, without mutations."""
    return dataclasses.replace(full_plan(seconds), lengths=dict.fromkeys(CONFIGS, 2),
                               sanitized_seconds=0, narrow_seconds=0, mutations=())


def _narrow(plan: Plan, first_seed: int, jobs: int) -> Result:
    """Run the directed cases and random histories with several windows of destage in flight."""
    program = build(PLAIN, NARROW, "narrow")
    result = directed(program, plan.directed_count, 3600, jobs)
    result.add(randomly(program, first_seed, plan.narrow_seconds, plan.random_count, jobs))
    for one in result.violations:
        one["case"] = _NARROW + one["case"]
    return result


def forget_counts() -> None:
    """Have the counters of executed lines begin at zero."""
    for path in (BUILD / COVERAGE.name).rglob("*.gcda"):
        path.unlink()


def _within_memory(result: Result, program: Path) -> Result:
    """Run histories that were too long for the program with sanitizers without them.

    The former never uses freed memory again. What the latter finds counts instead.
    """
    found = result.violations
    result.violations = [one for one in found if "has no memory left" not in one["violation"]]
    for one in found:
        if one not in result.violations:
            result.violations += run(program, "replay", one["case"], most=1).violations
    return result


def campaign(plan: Plan, first_seed: int = 1, jobs: int = 0,
             say: Callable[[str], None] = lambda text: print(text, flush=True),
             variant: Variant = PLAIN) -> dict[str, Any]:
    """Run a plan.

    :param variant: how the program is compiled
    :return: the report
    """
    jobs = jobs or processors()
    program = build(variant)
    total = Result()
    parts: dict[str, Any] = {}
    began, used = time.monotonic(), _used()

    def part(name: str, result: Result, started: float) -> None:
        total.add(result)
        parts[name] = {**{count: result.counts[count] for count in COUNTS},
                       "violations": len(result.violations),
                       "seconds": round(time.monotonic() - started, 1)}
        say(f"{name}: {result.counts['histories']} histories, {result.counts['cuts']} power "
            f"cuts, {len(result.violations)} violations")
        for one in result.violations:
            say(f"  {one['violation']}\n  replay: make sim SEED={one['case']}")

    for config, length in plan.lengths.items():
        started = time.monotonic()
        name = f"exhaustive {config} {length}"
        part(name, exhaustive(program, config, length, plan.exhaustive_seconds, jobs), started)
        every = sum(OPERATIONS ** n for n in range(1, length + 1))
        parts[name]["complete"] = parts[name]["histories"] == every
    started = time.monotonic()
    part("directed", directed(program, plan.directed_count, 3600, jobs), started)
    started = time.monotonic()
    part("random", randomly(program, first_seed, plan.random_seconds, plan.random_count,
                            jobs), started)
    if plan.narrow_seconds:
        started = time.monotonic()
        part("narrow", _narrow(plan, first_seed, jobs), started)
    seconds, used = time.monotonic() - began, _used() - used
    cuts = total.counts["cuts"]
    if plan.sanitized_seconds:
        sanitized = build(SANITIZED)
        started = time.monotonic()
        part("sanitized", _within_memory(together([
            lambda: run(sanitized, "exhaustive", "writeback", 2, 0, 7, plan.sanitized_seconds),
            lambda: run(sanitized, "random", first_seed, 1, plan.sanitized_seconds,
                        plan.random_count)], jobs), program), started)
    mutations = [is_caught(mutation, plan.mutation_seconds) for mutation in MUTATIONS
                 if plan.mutations is None or mutation.name in plan.mutations]
    for one in mutations:
        say(f"mutation {one['name']}: {one.get('case') if one['caught'] else 'NOT CAUGHT'}")
    names = probe_names()
    return {
        **{count: total.counts[count] for count in COUNTS},
        "violations": len(total.violations),
        "violation": total.violations,
        "seconds": round(seconds, 1),
        "processor_seconds": round(used, 1),
        "per_hour": round(cuts / seconds * 3600),
        "per_processor_hour": round(cuts / used * 3600),
        "processors": jobs,
        "probes": {name: total.probes[name] for name in names},
        "probes_missed": [name for name in names if not total.probes[name]],
        "mutations": mutations,
        "parts": parts,
    }


def write_report(report: dict[str, Any], path: Path = REPORT) -> None:
    """Write a report to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n")


def replay(case: str, *, verbose: bool = True) -> int:
    """Run one case and print what happens. Return: the exit status of the program."""
    narrow = case.startswith(_NARROW)
    program = build(PLAIN, NARROW, "narrow") if narrow else build(PLAIN)
    case = case.removeprefix(_NARROW)
    environment = {**os.environ, **({"SIM_VERBOSE": "1"} if verbose else {})}
    sys.stdout.flush()
    return subprocess.run([str(program), "replay", case], env=environment,
                          check=False).returncode
