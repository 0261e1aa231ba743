# SPDX-License-Identifier: Apache-2.0
"""Run the complete power-cut replay: python -m tests.powercut; see README.md."""

import argparse
import dataclasses
import json
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from tests.box.steps import explained
from tests.powercut import judge, mutate, pools, runner, scenario
from tests.powercut.crash import Cut, Origin, Survives
from tests.powercut.judge import Recording, Verdict
from tests.powercut.kernel import KERNELS, Kernel
from tests.powercut.runner import BUILD
from tests.powercut.scenario import Scenario

# One violation is sufficient to detect a mutation. It may take many cuts to find it.
_MUTATION_CUTS = 6000
_ENOUGH = 3
# With a pool, a cut in one of so many recoveries can also detect it.
_MUTATION_INTERRUPTED = 200


@dataclasses.dataclass(frozen=True)
class Size:
    """The extent of a run.

    :param seeds: recordings of each mode
    :param seconds: duration of each load
    :param cuts: maximum number of cuts per recording; None: all
    :param mounted: crash images per recording that are mounted; a quarter of it for each
        control, a sixth for each pool, which the kernel recovers
    :param controls: number of modes that are also recorded without the target
    :param mutation_seconds: duration of the load of a mutation; most faults appear at once
    :param origins: other kinds of origin, each under one volume
    :param pools: all loads on a pool and all mutations of it; otherwise one of them
    :param interrupted: cuts per recording of a pool whose recovery is cut again, at each of
        its writes; see also runner.more_of_pool()
    :param only: parts of the names of loads and mutations to run; none: all
    :param kernel: kernel that runs the loads and mounts the crash images
    """

    seeds: Sequence[int]
    seconds: float
    cuts: int | None
    mounted: int
    controls: int
    mutation_seconds: float
    origins: Sequence[str] = ()
    pools: bool = True
    interrupted: int = 40
    only: Sequence[str] = ()
    kernel: Kernel = KERNELS["uml"]

    def wants(self, name: str) -> bool:
        """Return whether a load or a mutation is part of the run, by its name."""
        return (self.pools or not name.startswith("pool-") or name in _SAMPLE_POOLS) \
            and self.chosen(name)

    def chosen(self, name: str) -> bool:
        """Return whether something with this name was selected."""
        return not self.only or any(word in name for word in self.only)


#: Name of the recording that is cut at every write.
EVERY_WRITE = "pool-every-write"
_SHORT = 2

# The load on a pool in the sample, and two mutations of it.
_SAMPLE_POOLS = ("pool-hot", "pool-no-fua", "pool-seal-too-early")

SAMPLE = Size(seeds=(1,), seconds=4, cuts=400, mounted=4, controls=2, mutation_seconds=3,
              pools=False, interrupted=5)
#: The recordings that are repeated in the emulated box, which has two processors.
BOXED = dataclasses.replace(SAMPLE, kernel=KERNELS["box"], controls=0,
                            only=("volume-1", "pool-hot"))
WHOLE = Size(seeds=(1, 2), seconds=12, cuts=6000, mounted=30, controls=3, mutation_seconds=20,
             origins=("write-through",))


def scenarios(size: Size, module: str) -> list[Scenario]:
    """Return the scenarios for the unchanged target."""
    made: list[Scenario] = []
    for seed in size.seeds:
        # Every other seed: blocks are reused without a discard in between.
        settings: dict[str, Any] = {"module": module, "seconds": size.seconds}
        made.append(scenario.volume(f"volume-{seed}", seed, **settings))
        settings["discard"] = bool(seed % 2)
        made.append(scenario.filesystem(f"ext4-{seed}", "ext4", seed, **settings))
        made.append(scenario.filesystem(f"xfs-{seed}", "xfs", seed, **settings))
    # The loads of the mutations must find no violation in the unchanged target.
    made += [load(name, 1, module=module, seconds=size.mutation_seconds)
             for name, load in scenario.FOCUSED.items() if size.wants(name)]
    for origin in size.origins:
        made.append(scenario.volume(f"volume-{origin}", 1, origin=origin, module=module,
                                    seconds=size.seconds))
    return made + (_pools(size, module) if size.pools else [])


def _pools(size: Size, module: str) -> list[Scenario]:
    """Return the scenarios of pools that are not loads of mutations."""
    settings: dict[str, Any] = {"module": module, "seconds": size.seconds}
    made = [scenario.pool_volume(EVERY_WRITE, 3, **{**settings, "seconds": _SHORT}),
            scenario.pool_volume("pool-write-through", 1, origin="write-through", **settings)]
    for seed in size.seeds:
        made.append(scenario.pool_volume(f"pool-volume-{seed}", seed, **settings))
        made.append(scenario.pool_through(f"pool-through-{seed}", seed, **settings))
        for fs in get_args(scenario.FileSystem):
            load = scenario.filesystem(f"{fs}-{seed}", fs, seed)
            made.append(scenario.pooled(load, cache_mb=8, **settings))
    return made


def controls(size: Size) -> list[Scenario]:
    """Return the loads without the target, which must have no violation."""
    everything = scenarios(dataclasses.replace(size, only=()), "")
    return [scenario.linear(s, f"linear-{s.name}") for s in everything[:size.controls]]


def build_mutations(size: Size) -> dict[str, mutate.Built]:
    """Build all mutations that a run of this size may want."""
    return mutate.build([m for m in mutate.all_mutations() if size.chosen(m.name)], size.kernel,
                        BUILD / "modules")


def mutants(size: Size, built: Mapping[str, mutate.Built]) -> list[Scenario]:
    """Return the scenario of each mutation.

    :param built: the results of build_mutations()
    """
    return [scenario.FOCUSED[m.scenario](m.name, 1, module=built[m.name].module,
                                         recover=built[m.name].recover,
                                         seconds=size.mutation_seconds)
            for m in mutate.all_mutations() if size.wants(m.name)]


def run_target(size: Size) -> list[dict[str, Any]]:
    """Record and replay the target and the controls; return the runs for the report."""
    # Use a copy: a build in the meantime must not change the recorded module.
    BUILD.mkdir(parents=True, exist_ok=True)
    module = shutil.copy(runner.module(size.kernel), BUILD / f"dm-vcache-{size.kernel.name}.ko")
    wanted = [s for s in (*scenarios(size, str(module)), *controls(size)) if size.chosen(s.name)]
    folders = runner.record_all(size.kernel, f"target-{size.kernel.name}", wanted)
    rows, mountable = [], []
    for recording, verdict in runner.judge_all(folders, size.cuts, every_write=EVERY_WRITE):
        rows.append(_row(recording, verdict))
        if recording.scenario.fs or recording.scenario.cache_mb:
            mountable.append(recording)
        if recording.scenario.target == "vcache":
            rows[-1]["lying_origin_caught"] = caught_lying(recording, size.cuts)
        if recording.scenario.cache_mb:
            again = runner.more_of_pool(recording, size.interrupted)
            rows[-1]["interrupted"] = again.cuts
            rows[-1]["violations"] += again.violations
            rows[-1]["first"] = rows[-1]["first"] or _first(again)
    mounted = runner.mount_some(size.kernel, {r: _images(size, r.scenario) for r in mountable})
    for row in rows:
        verdict = mounted.get(row["name"], Verdict())
        row["mounted"] = verdict.cuts
        row["violations"] += verdict.violations
        row["first"] = row["first"] or _first(verdict)
    return rows


def _images(size: Size, s: Scenario) -> int:
    """Return the number of crash images of a recording that are mounted."""
    if s.cache_mb:
        return max(2, size.mounted // 6)
    return size.mounted if s.target == "vcache" else size.mounted // 4


def _row(recording: Recording, verdict: Verdict) -> dict[str, Any]:
    s = recording.scenario
    return {"name": s.name, "target": s.target, "mode": s.mode, "fs": s.fs or None,
            "seed": s.seed, "cuts": verdict.cuts, "violations": verdict.violations,
            "first": _first(verdict),
            "demands_per_cut": verdict.demands // max(1, verdict.cuts),
            "chunk_uses": pools.chunk_uses(recording),
            "flushes": flushes((recording.folder / "status.txt").read_text())}


def _first(verdict: Verdict) -> str | None:
    """Return one violation as text; None: there is none."""
    return verdict.findings[0].violations[0] if verdict.findings else None


def flushes(status: str) -> dict[str, int]:
    """Return the number of flushes of each tag, from dmsetup status."""
    words = status.splitlines()[0].split()
    if words[2] != "vcache":
        return {}
    # MODE SCOPE ISOLATION DIRTY NTAGS {TAG WEIGHT DIRTY LIMIT FLUSHES MEAN}*, and the state of the
    # cache.
    tags = words[8:8 + 6 * int(words[7])]
    return {tags[at]: int(tags[at + 4]) for at in range(0, len(tags), 6)}


def caught_lying(recording: Recording, cuts: int | None) -> bool:
    """Return whether the oracle detects an origin that ignores FUA and FLUSH."""
    chosen = judge.choose(recording.journal, 1, min(cuts or 100, 100))
    verdict = judge.judge(recording, chosen, Origin(honours_fua=False, honours_flush=False),
                          enough=1)
    return verdict.violations > 0


def run_mutations(size: Size, built: Mapping[str, mutate.Built]) -> list[dict[str, Any]]:
    """Record and replay the mutations; return their part of the report.

    :param built: the results of build_mutations()
    """
    folders = runner.record_all(size.kernel, "mutations", mutants(size, built))
    return [_mutation_row(recording, verdict)
            for recording, verdict in runner.judge_all(folders, _MUTATION_CUTS, _ENOUGH)]


def _mutation_row(recording: Recording, verdict: Verdict) -> dict[str, Any]:
    if recording.scenario.cache_mb and not verdict.violations:
        again = runner.more_of_pool(recording, _MUTATION_INTERRUPTED)
        verdict.cuts += again.cuts
        verdict.findings += again.findings
    return {"name": recording.scenario.name, "caught": verdict.violations > 0,
            "violations": verdict.violations, "cuts": verdict.cuts, "first": _first(verdict)}


def run(size: Size) -> int:
    """Run everything, write report.json; return the exit status."""
    start = time.monotonic()
    runs = run_target(size)
    found = {"runs": [r for r in runs if r["target"] == "vcache"],
             "controls": [r for r in runs if r["target"] == "linear"],
             "mutations": run_mutations(size, build_mutations(size)),
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


def replay(folder: Path, cut: Cut | None, mounted: bool, kernel: Kernel) -> int:
    """Replay one cut of a recording, and print all violations."""
    recording = Recording(folder.resolve())
    if mounted:
        images = runner.Mounted(kernel, BUILD / "replay")
        images.add(recording, [cut] if cut else [])
        wrong = [text for _, _, texts in images.examine() for text in texts]
    elif cut:
        state = recording.replay()
        ledger = recording.ledger()
        state.advance(cut.time)
        ledger.advance(cut.time)
        wrong = [str(v) for v in judge.check(recording, ledger, state.image(cut))]
    else:
        wrong = recording.faults()
        if recording.scenario.cache_mb:
            again = runner.more_of_pool(recording, _MUTATION_INTERRUPTED)
            wrong += [text for finding in again.findings for text in finding.violations]
    print("\n".join([*wrong, f"{len(wrong)} violations"]))
    return 1 if wrong else 0


def _cut(text: str) -> Cut:
    time_, survives, seed = text.split(":")
    if survives not in get_args(Survives):
        raise argparse.ArgumentTypeError(f"{survives!r} is none of {get_args(Survives)}")
    return Cut(int(time_), survives, int(seed))  # type: ignore[arg-type]


def main() -> int:
    """Parse the command line and run."""
    p = argparse.ArgumentParser(prog="python -m tests.powercut", description=__doc__)
    p.add_argument("--sample", action="store_true", help="run a sample of a few minutes")
    p.add_argument("--only", action="append", metavar="WORD", default=[],
                   help="only recordings, controls (linear-...) and mutations with this in "
                        "their names; may be repeated")
    p.add_argument("--replay", type=Path, metavar="FOLDER", help="judge an existing recording")
    p.add_argument("--cut", type=_cut, metavar="TIME:SURVIVES:SEED",
                   help="with --replay: only this cut (default: faults of the whole recording)")
    p.add_argument("--mount", action="store_true", help="with --cut: check its files, in the box")
    p.add_argument("--kernel", choices=KERNELS, default="uml",
                   help="record in User Mode Linux or in the emulated box (default %(default)s)")
    a = p.parse_args()
    if a.replay:
        return replay(a.replay, a.cut, a.mount, KERNELS[a.kernel])
    return run(dataclasses.replace(SAMPLE if a.sample else WHOLE, only=a.only,
                                   kernel=KERNELS[a.kernel]))


if __name__ == "__main__":
    with explained("powercut"):
        sys.exit(main())
