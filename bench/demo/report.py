# SPDX-License-Identifier: Apache-2.0
"""From single measurements to the report: medians, losses, the table."""

from typing import Any

from bench.demo import figures, slow_report, weights_report
from bench.demo.figures import ReportError
from bench.demo.settings import INTERVALS, NEVER

__all__ = ["HALVES", "METHOD", "ReportError", "build", "noise", "table"]

HALVES = ("bare", "vcache")

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
    halves = {name: figures.half(found[name]["runs"], INTERVALS) for name in HALVES}
    loss = {name: half["loss"] for name, half in halves.items()}
    flush = {name: {k: entry["mean"] for k, entry in half["flush"].items()}
             for name, half in halves.items()}
    return {
        "neighbour_loss_pct": loss,
        "flush_mean_us": flush,
        "aims": _aims(loss, flush),
        "flush_us": {name: half["flush"] for name, half in halves.items()},
        "vms": {name: half["vms"] for name, half in halves.items()},
        "reference_spread_pct": {name: figures.spread(found[name]["runs"]) for name in HALVES},
        "loss_pct_of_each_round": {name: half["loss_rounds"] for name, half in halves.items()},
        "tags": found["vcache"]["tags"],
        "tags_after": found["vcache"]["tags_after"],
        "device": {name: {**found["device"][name],
                          "flush_commands": found[name]["device_flushes"]}
                   for name in HALVES},
        "vcache": {key: found["vcache"][key] for key in ("table", "status")},
        "slow_disk": slow_report.build(found["slow_disk"]),
        "weights": weights_report.build(found["weights"]),
        "method": METHOD,
        "settings": settings,
        "versions": found["versions"],
        "seconds": round(seconds, 1),
        "runs": {name: found[name]["runs"] for name in HALVES},
    }


def noise(report: dict[str, Any]) -> str | None:
    """Return a warning if the machine was too busy for the figures to be trusted."""
    spread = {**report["reference_spread_pct"], **report["slow_disk"]["reference_spread_pct"]}
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
    rows = {}
    for interval in (NEVER, *INTERVALS):
        k = figures.key(interval)
        rows[k] = [
            [f"{vms[half]['quiet']['writes_per_s'][k]:.0f}" for half in HALVES],
            [f"{loss[half][k]:.1f}" if interval else "" for half in HALVES],
            [f"{flush[half][k]['mean'] / 1000:.1f}" if interval else "" for half in HALVES],
            [f"{flush[half][k]['p99'] / 1000:.1f}" if interval else "" for half in HALVES],
            [f"{vms[half]['syncer']['writes_per_s'][k]:.0f}" for half in HALVES],
        ]
    return figures.grid(HALVES, groups, rows)
