# SPDX-License-Identifier: Apache-2.0
"""From single measurements to the report: medians, losses, the table."""

import statistics
from typing import Any

from bench.demo.settings import INTERVALS, NEVER

HALVES = ("bare", "vcache")
ROLES = ("quiet", "syncer")

# What the report's loss and latencies are compared with, from the project's
# goals: where the bare device loses at least 30 %, vcache may lose 5 %; a
# flush may take half of bare's mean latency.
_BARE_LOSES, _MAY_LOSE, _FLUSH_SHARE = 30.0, 5.0, 0.5

# Runs without fsync differ by less than this on a machine left alone.
_QUIET_MACHINE_SPREAD = 50.0

METHOD = (
    "Both VMs write at random over their whole disks, the syncer 4 KiB and the quiet VM quiet_kb "
    "at a time, one write at a time, O_DIRECT, and sleep for think_us after each; the syncer calls "
    "fdatasync after every k-th write, the quiet VM never does. Each "
    "setting is measured between two runs in which neither fsyncs. Loss at k = 1 - (quiet VM's "
    "writes/s at k) / (mean of its writes/s in the runs without fsync before and after it); the "
    "figure given is the median over the rounds, as for all other figures. A negative loss is a "
    "gain: what a VM that waits for its own fsync does not use is left to its neighbour. "
    "Latencies are those of the system calls in the guest."
)


class ReportError(Exception):
    """The measurements do not hold what the report needs."""


def _key(interval: int) -> str:
    return "never" if interval == NEVER else str(interval)


def _losses(runs: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Return the quiet VM's loss in percent, per setting, one value a round."""
    found: dict[str, list[float]] = {_key(k): [] for k in INTERVALS}
    for number, run in enumerate(runs):
        if run["interval"] == NEVER:
            continue
        # The schedule puts a run without fsync before and after each setting.
        sides = [side for side in runs[max(0, number - 1):number + 2] if side is not run]
        rates = [side["quiet"]["write"]["iops"] for side in sides]
        if len(sides) != 2 or any(side["interval"] != NEVER for side in sides) or not all(rates):
            raise ReportError(
                f"round {run['round'] + 1}, fsync every {run['interval']}: the quiet VM was not "
                "measured, or wrote nothing, without fsync before and after")
        share = run["quiet"]["write"]["iops"] / statistics.mean(rates)
        found[_key(run["interval"])].append(100 * (1 - share))
    return found


def _medians(runs: list[dict[str, Any]], role: str, group: str, latency: str,
             intervals: tuple[int, ...]) -> dict[str, dict[str, float]]:
    """Return medians over the rounds of a latency, in us, per setting."""
    table = {}
    for interval in intervals:
        found = [run[role][group][latency] for run in runs if run["interval"] == interval]
        found = [entry for entry in found if entry["N"]]
        if not found:
            raise ReportError(f"the {role} VM has no {group} at setting {_key(interval)}")
        table[_key(interval)] = {
            "mean": statistics.median(e["mean"] for e in found) / 1000,
            "p50": statistics.median(e["percentile"]["50.000000"] for e in found) / 1000,
            "p99": statistics.median(e["percentile"]["99.000000"] for e in found) / 1000,
            "count": sum(e["N"] for e in found),
        }
    return table


def _throughput(runs: list[dict[str, Any]], role: str) -> dict[str, float]:
    return {
        _key(interval): statistics.median(
            run[role]["write"]["iops"] for run in runs if run["interval"] == interval)
        for interval in (NEVER, *INTERVALS)}


def _spread(runs: list[dict[str, Any]]) -> float:
    """Return how far the runs without fsync differ, in percent of their median.

    All of them measure the same thing, so this is the noise of the machine.
    """
    rates = [run["quiet"]["write"]["iops"] for run in runs if run["interval"] == NEVER]
    return 100 * (max(rates) - min(rates)) / statistics.median(rates)


def _half(found: dict[str, Any]) -> dict[str, Any]:
    runs = found["runs"]
    losses = _losses(runs)
    return {
        "loss": {key: statistics.median(values) for key, values in losses.items()},
        "loss_rounds": losses,
        "flush": _medians(runs, "syncer", "sync", "lat_ns", INTERVALS),
        "vms": {role: {
            "writes_per_s": _throughput(runs, role),
            "write_us": _medians(runs, role, "write", "clat_ns", (NEVER, *INTERVALS)),
        } for role in ROLES},
    }


def _aims(loss: dict[str, Any], flush: dict[str, Any]) -> dict[str, Any]:
    """Return where the project's goals were met; nothing is left out."""
    matter = [k for k, value in loss["bare"].items() if value >= _BARE_LOSES]
    share = {k: flush["vcache"][k] / flush["bare"][k] for k in flush["bare"]}
    return {
        "settings_where_bare_loses_30_pct": matter,
        "quiet_vm_loses_at_most_5_pct_there": all(
            loss["vcache"][k] <= _MAY_LOSE for k in matter),
        "flush_mean_share_of_bare": share,
        "flush_mean_at_most_half_of_bare": all(s <= _FLUSH_SHARE for s in share.values()),
    }


def build(found: dict[str, Any], settings: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Return the report.

    :param found: what the part in the box measured
    :param settings: settings of the run
    :param seconds: how long the demo took
    """
    halves = {name: _half(found[name]) for name in HALVES}
    loss = {name: half["loss"] for name, half in halves.items()}
    flush = {name: {k: entry["mean"] for k, entry in half["flush"].items()}
             for name, half in halves.items()}
    return {
        "neighbour_loss_pct": loss,
        "flush_mean_us": flush,
        "aims": _aims(loss, flush),
        "flush_us": {name: half["flush"] for name, half in halves.items()},
        "vms": {name: half["vms"] for name, half in halves.items()},
        "reference_spread_pct": {name: _spread(found[name]["runs"]) for name in HALVES},
        "loss_pct_of_each_round": {name: half["loss_rounds"] for name, half in halves.items()},
        "tags": found["vcache"]["tags"],
        "tags_after": found["vcache"]["tags_after"],
        "device": {name: {**found["device"][name],
                          "flush_commands": found[name]["device_flushes"]}
                   for name in HALVES},
        "vcache": {key: found["vcache"][key] for key in ("table", "status")},
        "method": METHOD,
        "settings": settings,
        "versions": found["versions"],
        "seconds": round(seconds, 1),
        "runs": {name: found[name]["runs"] for name in HALVES},
    }


def noise(report: dict[str, Any]) -> str | None:
    """Return a warning if the machine was too busy for the figures to be trusted."""
    spread = report["reference_spread_pct"]
    if max(spread.values()) <= _QUIET_MACHINE_SPREAD:
        return None
    found = ", ".join(f"{half} {value:.0f} %" for half, value in spread.items())
    return (f"the runs without fsync differ by more than {_QUIET_MACHINE_SPREAD:.0f} % ({found}): "
            "the machine was busy with other work, the figures are rough")


def table(report: dict[str, Any]) -> str:
    """Return the report's figures as lines of text."""
    loss, flush, vms = report["neighbour_loss_pct"], report["flush_us"], report["vms"]
    groups = ("quiet VM, writes/s", "quiet VM loses, %", "flush mean, ms", "flush p99, ms",
              "syncer, writes/s")
    lines = [
        "fsync  " + "".join(f"{group:>21}" for group in groups),
        "every  " + "".join(f"{half:>12}" if half == HALVES[0] else f"{half:>9}"
                            for _ in groups for half in HALVES)]
    for interval in (NEVER, *INTERVALS):
        k = _key(interval)
        pairs = [
            [f"{vms[half]['quiet']['writes_per_s'][k]:.0f}" for half in HALVES],
            [f"{loss[half][k]:.1f}" if interval else "" for half in HALVES],
            [f"{flush[half][k]['mean'] / 1000:.1f}" if interval else "" for half in HALVES],
            [f"{flush[half][k]['p99'] / 1000:.1f}" if interval else "" for half in HALVES],
            [f"{vms[half]['syncer']['writes_per_s'][k]:.0f}" for half in HALVES],
        ]
        lines.append(f"{k:<7}" + "".join(f"{bare:>12}{vcache:>9}" for bare, vcache in pairs))
    return "\n".join(lines)
