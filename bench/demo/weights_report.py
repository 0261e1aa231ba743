# SPDX-License-Identifier: Apache-2.0
"""The report's part on weights: what the samples say, and whether it is what was asked for."""

import statistics
from collections.abc import Sequence
from typing import Any

from bench.demo.figures import ReportError

MIB = 1 << 20

METHOD = (
    "Two VMs with vcache:weight 100 and 300 on one slow disk with a cache, policy weighted. Each "
    "reads (mix_reads_pct) and writes blocks of mix_kb at random in a working set of its own "
    "(mix_small_mb, mix_large_mb), both larger than what it gets, and sleeps for mix_think_us "
    "after each. When the cache is full they read mix_settle_mb more; then vcache:max_mb in the "
    "flavor of the one with the large weight is set to mix_most_mb in the running domain, and the "
    "agent tells the kernel. Sizes and shares are those of the kernel's tags; hits are read bytes "
    "that came from the cache or the buffer and not from the slow disk. They read mix_settle_mb "
    "again when the cache is full again. Figures before and after are means over the last half of "
    "either time. Each VM compares whatever it reads with what it wrote, and reads all of it back "
    "at the end. The host's own I/O has a share, too, weight 100, and lends what it does not use."
)

Sample = dict[str, Any]


def _last_half(samples: Sequence[Sample], start: float, end: float) -> list[Sample]:
    """Return the samples of the last half of a time.

    :raises ReportError: if there are too few to say anything
    """
    start = (start + end) / 2
    found = [sample for sample in samples if start <= sample["t"] <= end]
    if len(found) < 3:
        raise ReportError(f"only {len(found)} samples from {start:.1f} to {end:.1f} s")
    return found


def _hits(first: Sample, last: Sample, role: str) -> float | None:
    """Return which part of what a VM has read between two samples was a hit."""
    read = last[role]["read_bytes"] - first[role]["read_bytes"]
    return (last[role]["hit_bytes"] - first[role]["hit_bytes"]) / read if read else None


def _mean_mib(window: list[Sample], role: str) -> float:
    """Return what a VM, or the host, has of the cache in a time."""
    return statistics.mean(sample[role]["cached_bytes"] for sample in window) / MIB


def _figures(window: list[Sample], role: str) -> dict[str, float]:
    """Return the figures of a VM in a time.

    :raises ReportError: if it read nothing
    """
    ratio = _hits(window[0], window[-1], role)
    if ratio is None:
        raise ReportError(f"the VM with the {role} weight read nothing from "
                          f"{window[0]['t']:.1f} to {window[-1]['t']:.1f} s")
    return {"cached_mib": _mean_mib(window, role),
            "share_mib": window[-1][role]["share_bytes"] / MIB, "hit_ratio": ratio}


def series(samples: Sequence[Sample], roles: Sequence[str],
           seconds: float = 5.0) -> dict[str, dict[str, list[float | None]]]:
    """Return what is plotted: sizes, shares, and hit ratios of the last few seconds.

    :param seconds: that a hit ratio is of; fewer at the start
    """
    lines: dict[str, dict[str, list[float | None]]] = {}
    for role in roles:
        ratios = []
        for sample in samples:
            first = next(s for s in samples if s["t"] >= sample["t"] - seconds)
            ratios.append(_hits(first, sample, role))
        lines[role] = {
            "t": [s["t"] for s in samples],
            "cached_mib": [s[role]["cached_bytes"] / MIB for s in samples],
            "share_mib": [s[role]["share_bytes"] / MIB for s in samples],
            "dirty_mib": [s[role]["dirty_bytes"] / MIB for s in samples],
            "hit_ratio": ratios}
    return lines


def _require(truth: bool, text: str) -> None:
    if not truth:
        raise ReportError(f"weights: {text}")


def _check(part: dict[str, Any], asked: float, chunk_mib: float) -> None:
    """See that the kernel had the weights and the maximum. How well it kept them is an aim.

    :param asked: ratio of the weights
    :param chunk_mib: what a share is rounded to
    :raises ReportError: saying what was not so
    """
    small, large = part["before"]["small"], part["before"]["large"]
    _require(abs(large["share_mib"] - asked * small["share_mib"]) <= (asked + 1) * chunk_mib,
             f"shares of {small['share_mib']:.2f} and {large['share_mib']:.2f} MiB are not "
             f"1:{asked:g}")
    _require(part["largest_after_mib"] <= part["most_mib"],
             f"{part['largest_after_mib']:.2f} MiB after the size had fallen are more than the "
             f"maximum of {part['most_mib']:g}")
    for role, one in part["checked"].items():
        _require(one["written"] > 0, f"the VM with the {role} weight wrote nothing to check")
    _require(part["left_mib"] > 0,
             f"the VM with the large weight left {part['left_mib']:.1f} MiB for its maximum")


def build(found: dict[str, Any]) -> dict[str, Any]:
    """Return the part of the report.

    :param found: what the part in the box measured
    :raises ReportError: if it is not what was asked for
    """
    samples, moments = found["samples"], found["moments"]
    weights = dict(sorted(((tag["role"], tag["weight"]) for tag in found["tags"]),
                          key=lambda item: item[1]))
    roles = list(weights)
    _require(roles == ["small", "large"], f"tags of {', '.join(roles)}, not of both VMs")
    _require(found["policy"] == "weighted", f"the policy is {found['policy']}")
    asked = weights["large"] / weights["small"]
    windows = {"before": _last_half(samples, moments["full"], moments["asked"]),
               "after": _last_half(samples, moments["refilled"], samples[-1]["t"])}
    part: dict[str, Any] = {name: {role: _figures(window, role) for role in roles}
                            for name, window in windows.items()}
    before = part["before"]
    ratio = before["large"]["cached_mib"] / max(before["small"]["cached_mib"], 1 / MIB)
    grown = {role: _mean_mib(windows["after"], role) - _mean_mib(windows["before"], role)
             for role in (*roles, "host")}
    part |= {
        "weights": weights, "size_ratio": ratio, "size_ratio_error": abs(ratio / asked - 1),
        "most_mib": moments["most_bytes"] / MIB,
        "seconds_to_tell": moments["told"] - moments["asked"],
        "seconds_to_fall": moments["fell"] - moments["told"],
        "largest_after_mib": max(s["large"]["cached_bytes"] for s in samples
                                 if s["t"] >= moments["fell"]) / MIB,
        "left_mib": -grown["large"], "gained_mib": grown["small"],
        "host_gained_mib": grown["host"],
        "checked": found["checked"]}
    _check(part, asked, found["chunk_bytes"] / MIB)
    return {**part, "size_mib": found["size_bytes"] / MIB, "moments": moments,
            "series": series(samples, [*roles, "host"]), "tags": found["tags"], "method": METHOD,
            **{key: found[key] for key in ("policy", "chunk_bytes", "status", "pool_status")}}


def table(part: dict[str, Any]) -> str:
    """Return the part's figures as lines of text."""
    lines = ["VM with       |      before the maximum       |             after",
             "weight        |   share     has  read hits    |   share     has  read hits"]
    for role, weight in part["weights"].items():
        cells = [f"{f['share_mib']:>7.1f} {f['cached_mib']:>7.1f}  {f['hit_ratio']:>7.0%}"
                 for f in (part[name][role] for name in ("before", "after"))]
        lines.append(f"{role:<6}{weight:>5}   | {cells[0]}      | {cells[1]}")
    return "\n".join(lines)


def line(part: dict[str, Any]) -> str:
    """Return what became of the maximum, as one line."""
    checked = ", ".join(f"{role} {one['written']} of {one['blocks']} blocks after "
                        f"{one['writes']} writes" for role, one in part["checked"].items())
    return (f"A cache of {part['size_mib']:.1f} MiB; sizes 1:{part['size_ratio']:.2f}; the kernel "
            f"knew a maximum of {part['most_mib']:g} MiB {part['seconds_to_tell']:.1f} s after it "
            f"was asked for, and it was kept {part['seconds_to_fall']:.1f} s after that; of "
            f"{part['left_mib']:.1f} MiB it left the other took {part['gained_mib']:.1f}, the "
            f"host {part['host_gained_mib']:.1f}. All that was written was read back: {checked}")
