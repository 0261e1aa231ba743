# SPDX-License-Identifier: Apache-2.0
"""The rows of ``vcache top``, from two samples: pure functions."""

from collections.abc import Callable, Mapping
from typing import Any

from vcache_agent.observe import activity
from vcache_agent.observe.activity import Activity
from vcache_agent.observe.sample import Sample

Row = dict[str, Any]

#: Columns to sort by, each with its field in a row. The largest value comes first.
SORTS: Mapping[str, str] = {
    "p99": "flush_p99_us", "iops": "iops", "bytes": "bytes_per_s", "share": "share_bytes",
    "hits": "hit_ratio"}


def rows(before: Sample, after: Sample, domains: Mapping[str, str], sort: str = "p99",
         reverse: bool = False) -> list[Row]:
    """Return one row for each tag, sorted.

    :param domains: names of domains by UUID
    :param sort: a key of :data:`SORTS`
    :param reverse: the smallest value first; tags without a value are always last
    """
    key = SORTS[sort]
    found = [_row(item, after, domains) for item in activity.between(before, after)]
    found.sort(key=_order(key, reverse))
    return found


def _order(key: str, reverse: bool) -> Callable[[Row], tuple[Any, ...]]:
    def order(row: Row) -> tuple[Any, ...]:
        value = row[key]
        rank = (1, 0.0) if value is None else (0, value if reverse else -value)
        return (*rank, row["device"], row["tag"])

    return order


def _row(item: Activity, sample: Sample, domains: Mapping[str, str]) -> Row:
    tag = item.tag
    uuid, colon, disk = tag.name.partition(":")
    return {
        "device": str(tag.device), "device_name": sample.device_names.get(tag.device, ""),
        "tag": tag.id, "name": tag.name, "domain": domains.get(uuid, uuid) if colon else "",
        "disk": disk, "iops": round(item.iops, 1), "reads_per_s": round(item.reads, 1),
        "writes_per_s": round(item.writes, 1), "flushes_per_s": round(item.flushes, 1),
        "read_bytes_per_s": round(item.read_bytes), "write_bytes_per_s": round(item.write_bytes),
        "bytes_per_s": round(item.read_bytes + item.write_bytes),
        "hit_ratio": None if item.hit_ratio is None else round(item.hit_ratio, 4),
        "flush_p50_us": _us(item.flush_p50_ns), "flush_p99_us": _us(item.flush_p99_ns),
        "read_p99_us": _us(item.read_p99_ns), "write_p99_us": _us(item.write_p99_ns),
        "cached_bytes": tag.cached_bytes, "share_bytes": tag.cache_share_bytes,
        "dirty_bytes": tag.dirty_bytes, "cache_dirty_bytes": tag.cache_dirty_bytes}


def _us(value: float | None) -> float | None:
    return None if value is None else round(value / 1000, 1)
