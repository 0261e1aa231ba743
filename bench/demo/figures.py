# SPDX-License-Identifier: Apache-2.0
"""From the single measurements of one half to its figures: medians, losses; and a table."""

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from bench.demo.settings import NEVER

ROLES = ("quiet", "syncer")


class ReportError(Exception):
    """The measurements do not hold what the report needs."""


def key(interval: int) -> str:
    """Return how the report names an fsync interval."""
    return "never" if interval == NEVER else str(interval)


def _reference(runs: list[dict[str, Any]]) -> Callable[[int], float]:
    """Return the quiet VM's speed without fsyncs in a round, as a function of the place of a run.

    That is a line through the speeds of the runs without fsync: the speed of a machine changes.

    :param runs: all runs of the round
    """
    places = [place for place, run in enumerate(runs) if run["interval"] == NEVER]
    rates = [runs[place]["quiet"]["write"]["iops"] for place in places]
    if len(places) < 2 or not all(rates):
        raise ReportError(
            f"round {runs[0]['round'] + 1}: the quiet VM was not measured, or wrote nothing, "
            "without fsync")
    slope, start = statistics.linear_regression(places, rates)
    return lambda place: start + slope * place


def _losses(runs: list[dict[str, Any]], intervals: tuple[int, ...]) -> dict[str, list[float]]:
    """Return the quiet VM's loss in percent, per setting, one value a round."""
    found: dict[str, list[float]] = {key(k): [] for k in intervals}
    for number in sorted({run["round"] for run in runs}):
        one_round = [run for run in runs if run["round"] == number]
        reference = _reference(one_round)
        for place, run in enumerate(one_round):
            if run["interval"] != NEVER:
                share = run["quiet"]["write"]["iops"] / reference(place)
                found[key(run["interval"])].append(100 * (1 - share))
    return found


def _middle(values: Sequence[float]) -> float:
    """Return the mean of the middle half of the values."""
    out = len(values) // 4
    return statistics.mean(sorted(values)[out:len(values) - out])


def _medians(runs: list[dict[str, Any]], role: str, group: str, latency: str,
             intervals: tuple[int, ...]) -> dict[str, dict[str, float]]:
    """Return medians over the rounds of a latency, in us, per setting."""
    table = {}
    for interval in intervals:
        found = [run[role][group][latency] for run in runs if run["interval"] == interval]
        found = [entry for entry in found if entry["N"]]
        if not found:
            raise ReportError(f"the {role} VM has no {group} at setting {key(interval)}")
        table[key(interval)] = {
            "mean": statistics.median(e["mean"] for e in found) / 1000,
            "p50": statistics.median(e["percentile"]["50.000000"] for e in found) / 1000,
            "p99": statistics.median(e["percentile"]["99.000000"] for e in found) / 1000,
            "count": sum(e["N"] for e in found),
        }
    return table


def _throughput(runs: list[dict[str, Any]], role: str,
                intervals: tuple[int, ...]) -> dict[str, float]:
    return {
        key(interval): statistics.median(
            run[role]["write"]["iops"] for run in runs if run["interval"] == interval)
        for interval in (NEVER, *intervals)}


def spread(runs: list[dict[str, Any]]) -> float:
    """Return how far the runs without fsync differ, in percent of their median.

    All of them measure the same thing, so this is the noise of the machine.
    """
    rates = [run["quiet"]["write"]["iops"] for run in runs if run["interval"] == NEVER]
    return 100 * (max(rates) - min(rates)) / statistics.median(rates)


def half(runs: list[dict[str, Any]], intervals: tuple[int, ...]) -> dict[str, Any]:
    """Return the figures of one half from its runs: losses, flushes, what each VM reached."""
    rounds = _losses(runs, intervals)
    return {
        "loss": {k: _middle(values) for k, values in rounds.items()},
        "loss_rounds": rounds,
        "flush": _medians(runs, "syncer", "sync", "lat_ns", intervals),
        "vms": {role: {
            "writes_per_s": _throughput(runs, role, intervals),
            "write_us": _medians(runs, role, "write", "clat_ns", (NEVER, *intervals)),
        } for role in ROLES},
    }


def grid(halves: tuple[str, ...], groups: Sequence[str], rows: dict[str, list[list[str]]]) -> str:
    """Return a table as lines of text: one row for each setting, its groups half by half."""
    lines = [
        "fsync  " + "".join(f"{group:>21}" for group in groups),
        "every  " + "".join(f"{half:>12}" if half == halves[0] else f"{half:>9}"
                            for _ in groups for half in halves)]
    lines += [f"{name:<7}" + "".join(f"{one:>12}{other:>9}" for one, other in pairs)
              for name, pairs in rows.items()]
    return "\n".join(lines)
