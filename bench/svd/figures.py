# SPDX-License-Identifier: Apache-2.0
"""Compute the figures of the comparison from the counters."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from bench.svd import settings

Run = Mapping[str, Any]
_DATA = ("host", "gc", "padding", "merge")
_METADATA = ("log", "map")

#: Definition of the summary, for the JSON.
DEFINITIONS = {
    "erase_reduction_pct": "100 * (1 - erases through vcache / erases direct), both for the same "
                           "number of guest writes; all erases of the SSD count",
    "throughput_gain_pct": "100 * (guest writes/s through vcache / direct - 1)",
    "waf_guest": "all blocks programmed / blocks that the guest wrote",
    "waf_drive": "all blocks programmed / blocks that the SSD was given to write",
    "data_reduction_pct": "as erases, of blocks programmed for data: without the SSD's own "
                          "map and logs, which the paper's simulator does not have",
    "summary": "arithmetic mean over the cases (mapping x image format) of the load "
               f"'{settings.SUMMARY_LOAD}'",
}


def figures(run: Run) -> dict[str, float]:
    """Return the figures of one load in one case."""
    drive, writes = run["drive"], run["writes"]
    data = sum(drive[cause] for cause in _DATA)
    programmed = data + sum(drive[cause] for cause in _METADATA)
    return {
        "writes_s": writes / run["seconds"],
        "fsync_ms": run["fsync_us"]["mean"] / 1000,
        "erases": drive["erases"],
        "erases_per_mib": drive["erases"] / (writes / 256),
        "waf_guest": programmed / writes,
        "waf_drive": programmed / drive["written"],
        "data_per_write": data / writes,
    }


def compare(runs: Iterable[Run]) -> list[dict[str, Any]]:
    """Compare the two places of each case.

    :raises ValueError: if they did not do the same work, or if one is missing
    """
    places: dict[tuple[str, str, str], dict[str, Run]] = {}
    for run in runs:
        key = (run["load"], run["mapping"], run["format"])
        places.setdefault(key, {})[run["place"]] = run
    cases = []
    for (load, mapping, form), by in places.items():
        if set(by) != set(settings.PLACES):
            raise ValueError(f"{load}, {mapping}, {form}: measured only {', '.join(by)}")
        if by["direct"]["writes"] != by["vcache"]["writes"]:
            raise ValueError(f"{load}, {mapping}, {form}: different numbers of writes")
        direct, cached = figures(by["direct"]), figures(by["vcache"])
        cases.append({
            "load": load, "mapping": mapping, "format": form,
            "direct": direct, "vcache": cached,
            "erase_reduction_pct": 100 * (1 - cached["erases"] / direct["erases"]),
            "throughput_gain_pct": 100 * (cached["writes_s"] / direct["writes_s"] - 1),
            "data_reduction_pct": 100 * (1 - cached["data_per_write"] / direct["data_per_write"]),
        })
    return cases


_MEANS = ("erase_reduction_pct", "throughput_gain_pct", "data_reduction_pct")


def mean(cases: Sequence[Mapping[str, Any]], load: str) -> dict[str, float]:
    """Return the means over the cases of a load."""
    mine = [case for case in cases if case["load"] == load]
    return {name: fmean(case[name] for case in mine) for name in _MEANS}


def summary(cases: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the two figures with an aim."""
    means = mean(cases, settings.SUMMARY_LOAD)
    return {name: means[name] for name in settings.AIMS}
