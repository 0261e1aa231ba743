# SPDX-License-Identifier: Apache-2.0
"""From single measurements to the report: medians, losses, the table."""

from collections.abc import Callable, Sequence
from typing import Any

from bench.demo import aims, figures, slow_report, weights_report
from bench.demo.figures import ReportError
from bench.demo.settings import INTERVALS, NEVER

__all__ = ["HALVES", "METHOD", "ReportError", "build", "noise", "table"]

HALVES = ("bare", "vcache")

# Runs without fsync differ by less than this on an idle machine, in percent.
_SPREAD = 50.0

METHOD = (
    "Both VMs write at random over their whole disks, the syncer 4 KiB and the quiet VM quiet_kb "
    "at a time, one write at a time, O_DIRECT, and sleep for think_us after each; the syncer calls "
    "fdatasync after every k-th write, the quiet VM never does. In "
    "each round, three runs without any fsync give the quiet VM's speed at any moment of the "
    "round, by a linear fit. Loss at k = 1 - (quiet VM's writes/s at k) / (that speed); the "
    "figure given is the mean of the middle half of the rounds. Other figures are medians over the "
    "rounds. A negative loss is a "
    "gain: what a VM that waits for its own fsync does not use is left to its neighbour. "
    "Latencies are those of the system calls in the guest."
)


def _ssd(found: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of the part on the emulated SSD."""
    halves = {name: figures.half(found[name]["runs"], INTERVALS) for name in HALVES}
    return {
        "neighbour_loss_pct": {name: half["loss"] for name, half in halves.items()},
        "flush_mean_us": {name: {k: entry["mean"] for k, entry in half["flush"].items()}
                          for name, half in halves.items()},
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
        "method": METHOD,
        "runs": {name: found[name]["runs"] for name in HALVES},
    }


# The parts, and how a part that is complete becomes a part of the report.
_BUILD: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "ssd": _ssd,
    "slow_disk": lambda found: {"slow_disk": slow_report.build(found)},
    "weights": lambda found: {"weights": weights_report.build(found)},
}


def build(found: dict[str, dict[str, Any]], settings: dict[str, Any], seconds: float,
          errors: Sequence[str] = ()) -> dict[str, Any]:
    """Return the report.

    A part that is not complete, or whose figures are not as they have to be, makes the
    report partial: its measurements are in "incomplete" as they are.

    :param found: what each part has measured
    :param settings: settings of the run
    :param seconds: how long the demo took
    :param errors: of the boxes
    """
    report: dict[str, Any] = {"partial": False, "errors": list(errors), "incomplete": {}}
    for name, build_part in _BUILD.items():
        part = found.get(name, {})
        try:
            if not part.get("complete"):
                raise ReportError(f"part {name} is not complete")
            report |= build_part(part)
        except ReportError as error:
            report["incomplete"][name] = part
            if part.get("complete") or not errors:
                report["errors"].append(str(error))
    report["partial"] = bool(report["errors"])
    versions = [part["versions"] for part in found.values() if "versions" in part]
    report |= {"settings": settings, "versions": versions[0] if versions else {},
               "seconds": round(seconds, 1)}
    return {**report, "aims": aims.judge(report)}


def noise(report: dict[str, Any]) -> str | None:
    """Return a warning if runs that measure the same differ too much for the figures."""
    spread = {**report.get("reference_spread_pct", {}),
              **report.get("slow_disk", {}).get("reference_spread_pct", {})}
    if max(spread.values(), default=0) <= _SPREAD:
        return None
    found = ", ".join(f"{half} {value:.0f} %" for half, value in spread.items())
    return (f"the runs without fsync differ by more than {_SPREAD:.0f} % ({found}): "
            "the figures are rough")


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
