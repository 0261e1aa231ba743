# SPDX-License-Identifier: Apache-2.0
"""Figures computed from the runs. Pure functions, except for :func:`read`."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.peers.result import DIRECTSYNC, counters

US = "vcache"
LOADS = ("alone", "quiet", "busy", "second", "sqlite")
NEIGHBOURS = ("quiet", "busy", "second")

DEFINITIONS = {
    "alone_vs_best_peer": "alone: transactions per second of PostgreSQL, over those of the peer "
                          "that has most",
    "neighbour_vs_best_peer": "the least of quiet, busy and second: transactions per second of "
                              "tenant 1, over those of the peer that has most",
    "p99_commit_vs_best_peer": "the most of alone, quiet, busy and second: p99 of a transaction, "
                               "which ends with its commit, over that of the best peer",
    "neighbour_loss_pct": "quiet: loss of tenant 1 by a neighbour that never syncs",
    "ssd_bytes_vs_best_peer": "alone: bytes written to the SSD per transaction, over those of the "
                              "peer that writes least",
    "sqlite_vs_best_peer": "sqlite: transactions per second, over those of the peer that has most",
}


@dataclass(frozen=True)
class Run:
    """Results of a load on a stack.

    :param ssd_mib: MiB of SSD for each tenant
    :param seed: number of the run
    :param per_s: transactions per second of tenant 1
    :param transaction_us: p50, p99 and maximum of their durations
    :param neighbour_per_s: reads and writes, or transactions, per second of tenant 2
    :param volume_written: bytes that the database has written to the volume of tenant 1
    :param volume_writes: requests for them
    :param ssd_written: bytes
    :param ssd_writes: requests for them
    :param ssd_copied: bytes of blocks that the stack has copied within the SSD; None: it does not
        tell
    :param ssd_read: bytes
    :param disk_written: bytes
    :param disk_writes: requests for them
    :param flushes: FLUSH commands to the SSD
    :param idle: part of the time in which the processor had nothing to do
    """

    stack: str
    load: str
    ssd_mib: int
    seed: int
    per_s: float
    transaction_us: dict[str, float]
    neighbour_per_s: float
    volume_written: int
    volume_writes: int
    ssd_written: int
    ssd_writes: int
    ssd_copied: int | None
    ssd_read: int
    disk_written: int
    disk_writes: int
    flushes: int
    idle: float


def percentile(ordered: Sequence[float], part: float) -> float:
    """Return a percentile of a sorted sequence, by nearest rank.

    :param part: 0 to 1
    """
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def durations(path: Path, column: int) -> list[float]:
    """Return the sorted durations of transactions, in microseconds.

    :param column: its number in the lines of the file
    :raises SystemExit: if there was no transaction
    """
    found = sorted(float(line.split()[column]) for line in path.read_text().splitlines())
    if not found:
        raise SystemExit(f"bench-database: no transactions in {path}")
    return found


def _neighbour(raw: Path, name: str, seconds: float) -> float:
    """Return requests or transactions per second of tenant 2; 0 if it was idle."""
    if (log := raw / f"{name}.log2").exists():
        return len(log.read_text().splitlines()) / seconds
    if not (path := raw / f"{name}.json").exists():
        return 0
    jobs = json.loads(path.read_text())["jobs"]
    if any(job["error"] for job in jobs):
        raise SystemExit(f"bench-database: {name}: fio failed")
    return sum(float(job["read"]["iops"] + job["write"]["iops"]) for job in jobs)


def _copied(raw: Path, name: str) -> int | None:
    """Return the bytes that vcache has relocated; None for another stack."""
    try:
        # <start> <length> vcache-pool, then what doc/source/reference/pool.rst lists.
        before, after = (int((raw / f"{name}.{when}.pool").read_text().split()[3 + 10])
                         for when in ("before", "after"))
    except FileNotFoundError:
        return None
    return 4096 * (after - before)


def _idle(raw: Path, name: str) -> float:
    """Return the part of the time in which the processor was idle or waited for I/O."""
    # cpu user nice system idle iowait irq softirq ... (Documentation/filesystems/proc.rst)
    before, after = ([int(word) for word in (raw / f"{name}.{when}.cpu").read_text().split()[1:9]]
                     for when in ("before", "after"))
    spent = [end - start for start, end in zip(before, after, strict=True)]
    return (spent[3] + spent[4]) / sum(spent)


def read(raw: Path, stack: str, load: str, ssd_mib: int, seed: int, seconds: float) -> Run:
    """Collect the results of a load from the folder `raw`."""
    name = f"{stack}-{ssd_mib}-{seed}-{load}"
    # pgbench: client, transaction, duration, ...; sqlite.py: duration, commit.
    found = durations(raw / f"{name}.log", 0 if load == "sqlite" else 2)
    ssd, disk, volume = counters(raw, name)
    return Run(stack, load, ssd_mib, seed, len(found) / seconds,
               {"p50": percentile(found, 0.5), "p99": percentile(found, 0.99), "max": found[-1]},
               _neighbour(raw, name, seconds), 512 * volume.write_sectors, volume.writes,
               512 * ssd.write_sectors, ssd.writes, _copied(raw, name), 512 * ssd.read_sectors,
               512 * disk.write_sectors, disk.writes, ssd.flushes, _idle(raw, name))


def written(run: Run) -> float:
    """Return bytes written to the SSD per transaction of tenant 1."""
    return run.ssd_written / (run.per_s or 1)


def _of(runs: Iterable[Run], stack: str, load: str,
        figure: Callable[[Run], float]) -> float:
    """Return the median of a figure over the seeds."""
    return median(figure(run) for run in runs if (run.stack, run.load) == (stack, load))


def _ratio(runs: Sequence[Run], load: str, figure: Callable[[Run], float],
           best: Callable[[Iterable[float]], float]) -> float:
    """Return our figure over that of the best peer."""
    peers = {run.stack for run in runs} - {US, DIRECTSYNC}
    return _of(runs, US, load, figure) / best(_of(runs, peer, load, figure) for peer in peers)


def summary(runs: Sequence[Run]) -> dict[str, float]:
    """Return the figures that have an aim; see DEFINITIONS.

    :param runs: with one size of the SSD; ours, and those of at least one peer. Loads that were
        not run are left out.
    """
    loads = {run.load for run in runs}
    postgres = [load for load in LOADS[:-1] if load in loads]
    beside = [load for load in NEIGHBOURS if load in loads]
    found: dict[str, float] = {}
    if "alone" in loads:
        found["alone_vs_best_peer"] = _ratio(runs, "alone", lambda run: run.per_s, max)
        found["ssd_bytes_vs_best_peer"] = _ratio(runs, "alone", written, min)
    if beside:
        found["neighbour_vs_best_peer"] = min(_ratio(runs, load, lambda run: run.per_s, max)
                                              for load in beside)
    if postgres:
        found["p99_commit_vs_best_peer"] = max(
            _ratio(runs, load, lambda run: run.transaction_us["p99"], min) for load in postgres)
    if {"alone", "quiet"} <= loads:
        found["neighbour_loss_pct"] = 100 * (1 - _of(runs, US, "quiet", lambda run: run.per_s) /
                                             _of(runs, US, "alone", lambda run: run.per_s))
    if "sqlite" in loads:
        found["sqlite_vs_best_peer"] = _ratio(runs, "sqlite", lambda run: run.per_s, max)
    return found
