# SPDX-License-Identifier: Apache-2.0
"""The whole power-cut replay: python -m tests.powercut; see README.md."""

import argparse
import dataclasses
import json
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

from tests.powercut import judge, mutate, runner, scenario
from tests.powercut.crash import Cut, Origin, Survives
from tests.powercut.judge import Recording, Verdict
from tests.powercut.runner import BUILD
from tests.powercut.scenario import Scenario

# A mutation is caught by one violation; it may take many cuts to meet it.
_MUTATION_CUTS = 6000
_ENOUGH = 3


@dataclasses.dataclass(frozen=True)
class Size:
    """How much is done.

    :param seeds: recordings of each mode
    :param seconds: of load in each
    :param cuts: replayed of each recording at most; None: all
    :param mounted: crash images of each recording that are mounted; a quarter
        of it of each control
    :param controls: how many modes are recorded without the target as well
    :param mutation_seconds: of load in each mutation; the faults show at once
    :param origins: other kinds of origin, under one volume each
    """

    seeds: Sequence[int]
    seconds: float
    cuts: int | None
    mounted: int
    controls: int
    mutation_seconds: float
    origins: Sequence[str] = ()


#: Loads that dwell on few rules; what mutations are recorded with.
FOCUSED = {"hot": scenario.hot, "tags": scenario.tags, "removed": scenario.removed}

SAMPLE = Size(seeds=(1,), seconds=4, cuts=400, mounted=4, controls=2, mutation_seconds=3)
WHOLE = Size(seeds=(1, 2), seconds=12, cuts=6000, mounted=30, controls=3, mutation_seconds=8,
             origins=("write-through",))


def scenarios(size: Size, module: str) -> list[Scenario]:
    """Return what is recorded of the target as it is."""
    made: list[Scenario] = []
    for seed in size.seeds:
        # Every other seed: blocks are reused without a discard between.
        settings: dict[str, Any] = {"module": module, "seconds": size.seconds}
        made.append(scenario.volume(f"volume-{seed}", seed, **settings))
        settings["discard"] = bool(seed % 2)
        made.append(scenario.filesystem(f"ext4-{seed}", "ext4", seed, **settings))
        made.append(scenario.filesystem(f"xfs-{seed}", "xfs", seed, **settings))
    # The loads of the mutations must find nothing where nothing is broken.
    made += [load(name, 1, module=module, seconds=size.mutation_seconds)
             for name, load in FOCUSED.items()]
    for origin in size.origins:
        made.append(scenario.volume(f"volume-{origin}", 1, origin=origin, module=module,
                                    seconds=size.seconds))
    return made


def controls(size: Size) -> list[Scenario]:
    """Return the loads without the target, which must show no violation."""
    return [scenario.linear(s, f"linear-{s.name}") for s in scenarios(size, "")[:size.controls]]


def mutants(seconds: float) -> list[Scenario]:
    """Build the mutations; return what is recorded of each."""
    wanted = mutate.all_mutations()
    modules = mutate.build(wanted, runner.release(), BUILD / "modules")
    return [FOCUSED[m.scenario](m.name, 1, module=modules[m.name], seconds=seconds)
            for m in wanted]


def run_target(size: Size) -> list[dict[str, Any]]:
    """Record and replay the target and the controls; return the report's runs."""
    # A copy: a build meanwhile must not change what is recorded.
    BUILD.mkdir(parents=True, exist_ok=True)
    module = shutil.copy(runner.module(), BUILD / "dm-vcache.ko")
    wanted = [*scenarios(size, str(module)), *controls(size)]
    folders = runner.record_all("target", wanted)
    rows, mountable = [], []
    for recording, verdict in runner.judge_all(folders, size.cuts):
        rows.append(_row(recording, verdict))
        if recording.scenario.fs:
            mountable.append(recording)
        if recording.scenario.target == "vcache":
            rows[-1]["lying_origin_caught"] = caught_lying(recording, size.cuts)
    mounted = runner.mount_some({r: size.mounted // (1 if r.scenario.target == "vcache" else 4)
                                 for r in mountable})
    for row in rows:
        verdict = mounted.get(row["name"], Verdict())
        row["mounted"] = verdict.cuts
        row["violations"] += verdict.violations
        row["first"] = row["first"] or _first(verdict)
    return rows


def _row(recording: Recording, verdict: Verdict) -> dict[str, Any]:
    s = recording.scenario
    return {"name": s.name, "target": s.target, "mode": s.mode, "fs": s.fs or None,
            "seed": s.seed, "cuts": verdict.cuts, "violations": verdict.violations,
            "first": _first(verdict),
            "demands_per_cut": verdict.demands // max(1, verdict.cuts),
            "flushes": flushes((recording.folder / "status.txt").read_text())}


def _first(verdict: Verdict) -> str | None:
    """Return one violation, as people read it; None: there is none."""
    return verdict.findings[0].violations[0] if verdict.findings else None


def flushes(status: str) -> dict[str, int]:
    """Return how many flushes the target counted for each tag, from dmsetup status."""
    words = status.splitlines()[0].split()
    if words[2] != "vcache":
        return {}
    # flush-only SCOPE ISOLATION DIRTY NTAGS {TAG WEIGHT DIRTY LIMIT FLUSHES MEAN}*
    tags = words[8:]
    return {tags[at]: int(tags[at + 4]) for at in range(0, len(tags), 6)}


def caught_lying(recording: Recording, cuts: int | None) -> bool:
    """Tell whether the oracle notices an origin that ignores FUA and FLUSH."""
    chosen = judge.choose(recording.journal, 1, min(cuts or 100, 100))
    verdict = judge.judge(recording, chosen, Origin(honours_fua=False, honours_flush=False),
                          enough=1)
    return verdict.violations > 0


def run_mutations(size: Size) -> list[dict[str, Any]]:
    """Record and replay the mutations; return the report's part."""
    folders = runner.record_all("mutations", mutants(size.mutation_seconds))
    return [{"name": recording.scenario.name, "caught": verdict.violations > 0,
             "violations": verdict.violations, "cuts": verdict.cuts,
             "first": _first(verdict)}
            for recording, verdict in runner.judge_all(folders, _MUTATION_CUTS, _ENOUGH)]


def run(size: Size) -> int:
    """Do all, write report.json; return the exit status."""
    start = time.monotonic()
    runs = run_target(size)
    found = {"runs": [r for r in runs if r["target"] == "vcache"],
             "controls": [r for r in runs if r["target"] == "linear"],
             "mutations": run_mutations(size),
             "seconds": 0}
    found["seconds"] = round(time.monotonic() - start)
    path = BUILD / "report.json"
    path.write_text(json.dumps(found, indent=1) + "\n")
    bad = list(_problems(found))
    for problem in bad:
        print(f"powercut: {problem}", file=sys.stderr)
    print(f"powercut: {path.relative_to(runner.REPO)}, {found['seconds']} s")
    return 1 if bad else 0


def _problems(found: dict[str, Any]) -> Iterator[str]:
    for row in [*found["runs"], *found["controls"]]:
        if row["violations"]:
            yield f"{row['name']}: {row['violations']} violations"
        if not row.get("lying_origin_caught", True):
            yield f"{row['name']}: an origin that ignores FUA and FLUSH was not noticed"
    for row in found["mutations"]:
        if not row["caught"]:
            yield f"mutation {row['name']}: not noticed"


def replay(folder: Path, cut: Cut | None, mounted: bool) -> int:
    """Replay one cut of a recording and print all that is wrong."""
    recording = Recording(folder.resolve())
    if mounted:
        images = runner.Mounted(BUILD / "replay")
        images.add(recording, [cut] if cut else [])
        wrong = [text for _, _, texts in images.examine() for text in texts]
    elif cut:
        state = recording.replay()
        ledger = recording.ledger()
        state.advance(cut.time)
        ledger.advance(cut.time)
        wrong = [str(v) for v in ledger.check(recording.found(state.image(cut)))]
    else:
        wrong = recording.faults()
    print("\n".join([*wrong, f"{len(wrong)} violations"]))
    return 1 if wrong else 0


def _cut(text: str) -> Cut:
    time_, survives, seed = text.split(":")
    if survives not in get_args(Survives):
        raise argparse.ArgumentTypeError(f"{survives!r} is none of {get_args(Survives)}")
    return Cut(int(time_), survives, int(seed))  # type: ignore[arg-type]


def main() -> int:
    """Command line."""
    p = argparse.ArgumentParser(prog="python -m tests.powercut", description=__doc__)
    p.add_argument("--sample", action="store_true", help="a few minutes instead of all")
    p.add_argument("--replay", type=Path, metavar="FOLDER", help="judge a recording again")
    p.add_argument("--cut", type=_cut, metavar="TIME:SURVIVES:SEED",
                   help="with --replay: this cut; without: faults of the whole recording")
    p.add_argument("--mount", action="store_true", help="with --cut: its files, in the box")
    a = p.parse_args()
    if a.replay:
        return replay(a.replay, a.cut, a.mount)
    return run(SAMPLE if a.sample else WHOLE)


if __name__ == "__main__":
    sys.exit(main())
