# SPDX-License-Identifier: Apache-2.0
"""Devices, tags, disks and orphans as plain values, as ``vcache --json`` prints them.

Sizes are in bytes; other units are at the end of the key.
"""

from typing import TYPE_CHECKING, Any

from vcache_agent import histogram
from vcache_agent.model import HISTOGRAMS, Device, DiskId, Phase, Stats, Tag, lanes_of
from vcache_agent.netlink import spec

if TYPE_CHECKING:
    from vcache_agent.locate import Located
    from vcache_agent.plan.state import DiskReport
    from vcache_agent.worker import Outcome

Json = dict[str, Any]

#: The states of a disk; see :func:`disks`.
DISK_STATES = ("isolated", "preparing", "no-cgroup", "untagged", "not-cacheable", "elastic",
               "failed")


def word(value: spec.Scope | spec.Mode | spec.Isolation) -> str:
    """Return the name of an enumerated value in the netlink specification."""
    return value.name.lower().replace("_", "-")


def device(item: Device) -> Json:
    """Return a device."""
    return {
        "device": str(item.number), "name": item.name, "mode": word(item.mode),
        "scope": word(item.scope), "isolation": word(item.isolation),
        "size_bytes": item.sectors * 512, "origin": item.origin,
        "dirty_bytes": item.dirty_bytes, "tags": item.tags, "suspended": item.suspended,
        "broken": item.broken, "cache": cache(item)}


def cache(item: Device) -> Json | None:
    """Return the cache of a device; None without a pool."""
    if not item.pool:
        return None
    return {"pool": item.pool, "volume": item.volume, "dirty_bytes": item.cache_dirty_bytes,
            "broken": item.cache_broken}


def tag(item: Tag, names: dict[str, str]) -> Json:
    """Return a tag.

    :param names: names of the devices by number
    """
    return {
        "device": str(item.device), "device_name": names.get(str(item.device), ""),
        "tag": item.id, "name": item.name, "weight": item.weight,
        "cgroups": sorted(item.cgroups), "extents": item.extents_count,
        "extents_bytes": item.extents_sectors * 512, "limit_bytes": item.limit_bytes,
        "dirty_bytes": item.dirty_bytes, "inflight_bytes": item.inflight_bytes,
        "mode": word(item.mode), "cached_bytes": item.cached_bytes,
        "cache_dirty_bytes": item.cache_dirty_bytes,
        "cache_min_bytes": item.cache_min_bytes, "cache_max_bytes": item.cache_max_bytes,
        "cache_share_bytes": item.cache_share_bytes,
        "cache_lanes": lanes_of(item.cache_lanes), "cache_own_bytes": item.cache_own_bytes,
        "cache_hot_bytes": item.cache_hot_bytes,
        "broken": item.broken, "flush": flush(item.stats), "read": read(item.stats),
        "write": write(item.stats), "dirty_age_ms": item.dirty_age_ms,
        "cache_dirty_age_ms": item.cache_dirty_age_ms, "stats": stats(item.stats)}


def flush(item: Stats) -> Json:
    """Return count, mean, p50 and p99 of a tag's flush latency, in microseconds.

    Values are None without a flush.
    """
    return _latency(item.flushes, item.flush_ns, item.flush_hist)


def read(item: Stats) -> Json:
    """Return count, mean, p50 and p99 of a tag's read latency; see :func:`flush`."""
    return _latency(sum(item.read_hist), item.read_ns, item.read_hist)


def write(item: Stats) -> Json:
    """Return count, mean, p50 and p99 of a tag's write latency; see :func:`flush`."""
    return _latency(sum(item.write_hist), item.write_ns, item.write_hist)


def _latency(count: int, ns: int, counts: tuple[int, ...]) -> Json:
    def microseconds(ns: float | None) -> float | None:
        return None if ns is None else round(ns / 1000, 3)

    return {
        "count": count, "mean_us": microseconds(ns / count if count else None),
        "p50_us": microseconds(histogram.percentile(counts, 0.50)),
        "p99_us": microseconds(histogram.percentile(counts, 0.99))}


def stats(item: Stats) -> Json:
    """Return a tag's counters, without the histograms."""
    return {name: getattr(item, name) for name in Stats.__dataclass_fields__
            if name not in HISTOGRAMS}


def kernel(devices: list[Device], tags: list[Tag]) -> Json:
    """Return the devices and tags, which come from the kernel."""
    names = {str(item.number): item.name for item in devices}
    return {"devices": [device(item) for item in devices],
            "tags": [tag(item, names) for item in tags]}


def disks(outcome: "Outcome", tags: list[Tag]) -> list[Json]:
    """Return the disks of all domains that run or are about to, and their tags."""
    if outcome.plan is None:
        return []
    found = {(item.device, item.id): item for item in tags}
    phases = {entry.domain.uuid: entry.phase for entry in outcome.snapshot.entries}
    rows = []
    for report in outcome.plan.disks:
        state = report.state
        item = found.get(report.key) if report.key else None
        phase = phases.get(state.domain.uuid, Phase.RUNNING)
        note = report.note or state.reason or outcome.cgroup_notes.get(state.domain.uuid, "")
        located = outcome.located.get(DiskId(state.domain.uuid, state.source.target))
        if report.key:
            note = outcome.errors.get(report.key, note)
        rows.append({
            "domain": state.domain.name, "uuid": state.domain.uuid,
            "owner": str(state.domain.owner),
            "disk": state.source.target, "path": state.source.path, "phase": str(phase),
            "device": str(report.device) if report.device else None, "tag": report.tag,
            "also_read": [{"device": str(number), "tag": tag}
                          for number, tag in report.also_read],
            "mode_asked": str(state.specs.mode), "mode": str(report.mode),
            "weight": report.weight if report.tag is not None else None,
            "required": state.specs.required,
            "cgroup": state.cgroup, "cgroup_path": outcome.cgroup_paths.get(state.domain.uuid),
            "state": _state(report, item, phase, outcome, located),
            "note": note, "located_age_s": round(located.age_s, 1) if located else None,
            "extents": item.extents_count if item else None,
            "extents_bytes": item.extents_sectors * 512 if item else None,
            "extents_left_bytes": located.left_bytes if located else None,
            "dirty_bytes": item.dirty_bytes if item else None,
            "cached_bytes": item.cached_bytes if item else None,
            "cache_dirty_bytes": item.cache_dirty_bytes if item else None,
            "flush": flush(item.stats) if item else None,
            "read": read(item.stats) if item else None})
    return rows


def _state(report: "DiskReport", item: Tag | None, phase: Phase, outcome: "Outcome",
           located: "Located | None") -> str:
    """Return the state of a disk, in one word."""
    if report.key is None:
        if located is not None and located.vssd:
            return "elastic"
        return "untagged" if located is None or located.cacheable else "not-cacheable"
    if item is None or report.key in outcome.errors:
        return "failed"
    if phase is Phase.PREPARING:
        return "preparing"
    if report.volume:
        return "isolated"  # by the table line, for I/O from any cgroup
    return "isolated" if report.state.cgroup in item.cgroups else "no-cgroup"


def swapped(outcome: "Outcome") -> list[Json]:
    """Return the progress for the cached blocks of stopped and restarted disks."""
    return [{"device": str(item.device.number), "device_name": item.device.name,
             "tag": item.tag, "domain": item.disk.name, "uuid": item.disk.domain,
             "disk": item.disk.target, "state": item.state, "bytes": item.size,
             "note": item.note} for item in outcome.swapped if item.state != "released"]


def orphans(outcome: "Outcome") -> list[Json]:
    """Return tags without a running domain."""
    if outcome.plan is None:
        return []
    return [{"device": str(item.device) if item.device else None, "tag": item.tag,
             "name": item.name, "dirty_bytes": item.dirty_bytes, "reason": item.reason}
            for item in outcome.plan.orphans]
