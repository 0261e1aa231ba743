# SPDX-License-Identifier: Apache-2.0
"""Compare the policies that divide a cache, on real traces: ``python -m bench.policies``.

Writes build/bench/policies.json and policies.png. VCACHE_TRACES names the folder of the traces.
"""

import concurrent.futures
import json
import os
import statistics
import sys
from typing import Any

import numpy as np

from bench.policies import (
    cost,
    nested_shares,
    occache,
    persistence,
    plot,
    plot_papers,
    proportional,
    settings,
    simulate,
    slo,
    week,
    workload,
)
from bench.policies.model import ROOT, Library, build

OUT = ROOT / "build" / "bench"


def offline(library: Library) -> list[dict[str, Any]]:
    """Return the misses of all divisions of all mixes and sizes."""
    found = []
    for mix, names in settings.MIXES.items():
        traces = [workload.trace(name) for name in names]
        for part in settings.SIZES:
            misses = simulate.offline(library, traces, part)
            best = misses["optimum"]
            excess = {name: 100 * (count - best) / best for name, count in misses.items()}
            found.append({"mix": mix, "part": part, "misses": misses, "excess_pct": excess})
            print(f"{mix:16} 1/{1 / part:<4.0f} misses above the optimum: " + ", ".join(
                f"{name} {excess[name]:.2f} %" for name in ("mrc", "hull", "shared", "equal")),
                flush=True)
    return found


def _online(mix: str, kind: str) -> list[dict[str, Any]]:
    """Return the misses of online runs of a mix, for all seeds and sizes, in another process."""
    library = Library(OUT / "policies" / "libmodel.so")
    traces = [workload.trace(name) for name in settings.MIXES[mix]]
    merge = {"steady": workload.steady, "phased": workload.phased}[kind]
    blocks = sum(len(np.unique(one)) for one in traces)
    found = []
    for part in settings.SIZES:
        capacity = round(blocks * part)
        runs = [{policy: simulate.online(library, merged, len(traces), capacity, policy)
                 for policy in ("mrc", "shared", "equal")}
                for merged in (merge(traces, seed) for seed in settings.SEEDS)]
        ratio = statistics.median(run["mrc"] / run["shared"] for run in runs)
        found.append({"mix": mix, "kind": kind, "part": part, "runs": runs,
                      "chosen_on": mix in settings.CHOSEN_ON,
                      "mrc_vs_shared_pct": 100 * (ratio - 1)})
    return found


def online() -> list[dict[str, Any]]:
    """Return the misses of online runs of all mixes, seeds and sizes."""
    found = []
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(_online, mix, kind)
                for mix in settings.MIXES for kind in ("steady", "phased")]
        for job in jobs:
            for row in job.result():
                found.append(row)
                print(f"{row['mix']:16} {row['kind']:7} 1/{1 / row['part']:<4.0f} mrc against one "
                      f"shared LRU: {row['mrc_vs_shared_pct']:+.2f} %", flush=True)
    return found


def _headlines(papers: dict[str, Any]) -> dict[str, Any]:
    """Return the figures without the series of the runs."""
    return {
        "persistence": {key: value for key, value in papers["persistence"].items()
                        if key != "restarts"},
        "nested": {key: value for key, value in papers["nested"].items() if key != "runs"},
        "occache": {name: one["schemes"] for name, one in papers["occache"].items()},
        "week": papers["week"],
        "slo": {name: {scheme: {key: value for key, value in each.items() if key != "runs"}
                       for scheme, each in one["schemes"].items()}
                for name, one in papers["slo"].items()}}


def main() -> int:
    """Simulate and report."""
    library = Library(build(OUT / "policies"))
    ratios = [proportional.run(library, seed) for seed in settings.SEEDS]
    shares = proportional.summary(ratios)
    decision = {policy: cost.measure(policy) for policy in ("mrc", "throughput")}
    print(f"throughput: {shares}; ms of processor time for a decision: {decision}", flush=True)
    papers = {"persistence": persistence.measure(library, settings.SEEDS),
              "nested": nested_shares.measure(library, settings.SEEDS),
              "occache": occache.measure(library, OUT / "policies", settings.SEEDS),
              "week": week.measure(OUT / "policies"), "slo": slo.measure(settings.SEEDS)}
    divisions, runs = offline(library), online()
    excess = {name: {"mean": statistics.mean(row["excess_pct"][name] for row in divisions),
                     "worst": max(row["excess_pct"][name] for row in divisions)}
              for name in ("mrc", "hull", "shared", "equal")}
    report = {
        "optimum": {"excess_misses_pct": excess["mrc"]["mean"], "excess_by_policy_pct": excess,
                    "divisions": divisions},
        "throughput": {**shares, "runs": ratios},
        "decision_cpu_ms": decision, **papers,
        "online": {"worst_vs_shared_pct": max(row["mrc_vs_shared_pct"] for row in runs),
                   "mean_vs_shared_pct": statistics.mean(row["mrc_vs_shared_pct"]
                                                         for row in runs), "runs": runs},
    }
    (OUT / "policies.json").write_text(json.dumps(report, indent=1) + "\n")
    plot.draw(divisions, runs, OUT / "policies.png")
    plot.draw_ratios(ratios[0], OUT / "policies-throughput.png")
    plot.draw_ratios(papers["nested"]["runs"][0], OUT / "policies-nested.png")
    plot_papers.draw_persistence(papers["persistence"], OUT / "policies-persistence.png")
    plot_papers.draw_occache(papers["occache"], OUT / "policies-occache.png")
    plot_papers.draw_slo(papers["slo"], OUT / "policies-slo.png")
    print(json.dumps({"throughput": shares, "decision_cpu_ms": decision,
                      "excess_by_policy_pct": excess, **_headlines(papers),
                      "online_worst_vs_shared_pct": report["online"]["worst_vs_shared_pct"],
                      "online_mean_vs_shared_pct": report["online"]["mean_vs_shared_pct"]},
                     indent=1))
    print("bench-policies: build/bench/policies.json, build/bench/policies.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
