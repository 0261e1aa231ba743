# SPDX-License-Identifier: Apache-2.0
"""The report's part on the slow disk: its figures, its table."""

from typing import Any

from bench.demo import figures
from bench.demo.settings import NEVER, SLOW_INTERVALS

HALVES = ("slow", "cached")
SETTINGS = (NEVER, *SLOW_INTERVALS)

METHOD = (
    "The same pair of VMs on a disk that serves one request at a time, each in slow_us, however "
    "large, and that has no volatile cache; then with vcache in front of it, in mode writeback, on "
    "an SSD that takes cache_us a request; both times are multiplied by slowdown. Writes to the "
    "disk by itself are durable when they complete, so an fsync costs it nothing. Compare a write "
    "with its share of the fsync: mean of the writes + mean of the fsyncs / k."
)

# Documented in doc/source/reference/pool.rst and target.rst.
_POOL_WORDS = ("state", "chunk_sectors", "chunks", "free", "used", "dirty", "volumes", "attached")
_VOLUME_WORDS = ("volume", "state", "dirty_sectors", "destaged_sectors", "errors", "damaged")


def _named(names: tuple[str, ...], words: list[str]) -> dict[str, Any]:
    if len(words) < len(names):
        raise figures.ReportError(f"status {words} is too short")
    return {name: int(word) if word.isdigit() else word
            for name, word in zip(names, words, strict=False)}


def _pool(status: str) -> dict[str, Any]:
    """Return what the status line of a pool says, in chunks."""
    return _named(_POOL_WORDS, status.split()[3:])


def _volume(status: str) -> dict[str, Any]:
    """Return what the status line of a device says of its cache."""
    words = status.split()
    if "cache" not in words:
        raise figures.ReportError(f"status '{status}' is that of a device without a cache")
    return _named(_VOLUME_WORDS, words[words.index("cache") + 1:])


def _with_fsync(half: dict[str, Any]) -> dict[str, float]:
    """Return what a write of the syncer takes with its share of the fsync, in us."""
    writes = half["vms"]["syncer"]["write_us"]
    return {figures.key(k): writes[figures.key(k)]["mean"]
            + (half["flush"][figures.key(k)]["mean"] / k if k else 0) for k in SETTINGS}


def build(found: dict[str, Any]) -> dict[str, Any]:
    """Return the part of the report.

    :param found: what the part in the box measured on the slow disk
    """
    halves = {name: figures.half(found[name]["runs"], SLOW_INTERVALS) for name in HALVES}
    cached = found["cached"]
    return {
        "neighbour_loss_pct": {name: half["loss"] for name, half in halves.items()},
        "write_with_fsync_mean_us": {name: _with_fsync(half) for name, half in halves.items()},
        "fsync_us": {name: half["flush"] for name, half in halves.items()},
        "vms": {name: half["vms"] for name, half in halves.items()},
        "reference_spread_pct": {name: figures.spread(found[name]["runs"]) for name in HALVES},
        "loss_pct_of_each_round": {name: half["loss_rounds"] for name, half in halves.items()},
        "tags": cached["tags"],
        "pool": _pool(cached["pool_status"]),
        "volume": _volume(cached["status"]),
        "detach_seconds": cached["detach_seconds"],
        **{key: cached[key] for key in ("table", "status", "pool_table", "pool_status")},
        "method": METHOD,
        "runs": {name: found[name]["runs"] for name in HALVES},
    }


def table(part: dict[str, Any]) -> str:
    """Return the part's figures as lines of text."""
    loss, fsync, vms = part["neighbour_loss_pct"], part["fsync_us"], part["vms"]
    groups = ("quiet VM, writes/s", "quiet VM loses, %", "syncer, writes/s", "write p50, ms",
              "fsync p50, ms")
    rows = {}
    for interval in SETTINGS:
        k = figures.key(interval)
        rows[k] = [
            [f"{vms[half]['quiet']['writes_per_s'][k]:.0f}" for half in HALVES],
            [f"{loss[half][k]:.1f}" if interval else "" for half in HALVES],
            [f"{vms[half]['syncer']['writes_per_s'][k]:.0f}" for half in HALVES],
            [f"{vms[half]['syncer']['write_us'][k]['p50'] / 1000:.1f}" for half in HALVES],
            [f"{fsync[half][k]['p50'] / 1000:.1f}" if interval else "" for half in HALVES],
        ]
    return figures.grid(HALVES, groups, rows)


def cache_line(part: dict[str, Any]) -> str:
    """Return what was read back of tags, pool and volume at the end, as one line."""
    tags = ", ".join(f"{tag['role']}: tag {tag['id']}, {tag['mode']}, weight {tag['weight']}"
                     for tag in part["tags"])
    pool, volume = part["pool"], part["volume"]
    return (f"{tags}; pool {pool['state']}, {pool['used']} of {pool['chunks']} chunks used, "
            f"{pool['dirty']} dirty; volume {volume['volume']} {volume['state']}, "
            f"{volume['dirty_sectors'] / 2048:.1f} MiB left to write, drained and detached in "
            f"{part['detach_seconds']:.0f} s")
