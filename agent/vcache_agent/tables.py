# SPDX-License-Identifier: Apache-2.0
"""Text tables of the ``vcache`` command."""

from collections.abc import Sequence
from typing import Any

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return rows under headings; columns of numbers are aligned to the right."""
    cells = [["-" if cell is None or cell == "" else str(cell) for cell in row] for row in rows]
    widths = [max([len(heading), *(len(row[column]) for row in cells)])
              for column, heading in enumerate(headings)]
    right = [all(row[column][:1].isdigit() or row[column] == "-" for row in cells) and bool(cells)
             for column in range(len(headings))]

    def line(row: Sequence[str]) -> str:
        return "  ".join(cell.rjust(width) if flush else cell.ljust(width)
                         for cell, width, flush in zip(row, widths, right, strict=True)).rstrip()

    return "\n".join([line(headings), *map(line, cells)])


def size(count: int | None) -> str | None:
    """Return a number of bytes as text with a unit, such as ``1.5 MiB``."""
    if count is None:
        return None
    value, unit = float(count), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} {_UNITS[unit]}" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


def microseconds(value: float | None) -> str | None:
    """Return a duration as text with a unit.

    :param value: in microseconds
    """
    if value is None:
        return None
    if value < 1000:
        return f"{value:.0f} us"
    return f"{value / 1000:.1f} ms" if value < 1_000_000 else f"{value / 1_000_000:.2f} s"


def status(state: dict[str, Any]) -> str:
    """Return the output of ``vcache status``."""
    parts = attention(state)
    parts.append(table(
        ("DEVICE", "NAME", "MODE", "SCOPE", "ISOLATION", "SIZE", "DIRTY", "POOL", "VOLUME",
         "CACHE-DIRTY", "TAGS", "STATE"),
        [(item["device"], item["name"], item["mode"], item["scope"], _loud(item["isolation"]),
          size(item["size_bytes"]), size(item["dirty_bytes"]), *_cache(item), item["tags"],
          _condition(item))
         for item in state["devices"]]) if state["devices"] else "no vcache device")
    if state["tags"]:
        parts.append(table(
            ("TAG", "DEVICE", "NAME", "MODE", "WEIGHT", "LIMIT", "DIRTY", "CACHED",
             "CACHE-DIRTY", "EXTENTS", "FLUSHES", "MEAN", "P50", "P99"),
            [(item["tag"], item["device_name"] or item["device"],
              "host" if item["tag"] == 0 else item["name"], item["mode"], item["weight"],
              size(item["limit_bytes"]), size(item["dirty_bytes"]), size(item["cached_bytes"]),
              size(item["cache_dirty_bytes"]), item["extents"],
              item["flush"]["count"], *_latencies(item["flush"])) for item in state["tags"]]))
    if state["orphans"]:
        parts.append("Tags without a running domain:\n" + table(
            ("TAG", "DEVICE", "NAME", "DIRTY", "REASON"),
            [(item["tag"], item["device"], item["name"], size(item["dirty_bytes"]),
              item["reason"]) for item in state["orphans"]]))
    if state.get("swapped"):
        parts.append("Caches of stopped domains:\n" + table(
            ("TAG", "DEVICE", "DOMAIN", "DISK", "CACHE", "NOTE"),
            [(item["tag"], item["device_name"], item["domain"], item["disk"], _swapped(item),
              item["note"]) for item in state["swapped"]]))
    return "\n\n".join(parts)


def disks(state: dict[str, Any]) -> str:
    """Return the output of ``vcache disks``."""
    parts = attention(state)
    rows = [(item["owner"], item["domain"], item["disk"], item["tag"], item["device"], item["mode"],
             item["state"], item["weight"], item["extents"], size(item["dirty_bytes"]),
             size(item["cached_bytes"]), size(item["cache_dirty_bytes"]),
             *_latencies(item["flush"]), item["note"]) for item in state["disks"]]
    parts.append(table(
        ("OWNER", "DOMAIN", "DISK", "TAG", "DEVICE", "MODE", "STATE", "WEIGHT", "EXTENTS",
         "DIRTY", "CACHED", "CACHE-DIRTY", "MEAN", "P50", "P99", "NOTE"), rows)
        if rows else "no disks")
    return "\n\n".join(parts)


def pools(rows: list[dict[str, Any]]) -> str:
    """Return the output of ``vcache pool list``."""
    if not rows:
        return "no pools"
    parts = [table(
        ("POOL", "DEVICE", "CACHE DEVICE", "STATE", "CHUNK", "SIZE", "FREE", "DIRTY", "LANES",
         "VOLUMES", "VSSDS"),
        [(row["name"], row["device"], row["cache_device"], row["state"],
          size(row["chunk_bytes"]), size(row["size_bytes"]), size(row["free_bytes"]),
          size(row["dirty_bytes"]), len(row["lanes_bytes"]) or None, row["volumes"],
          len(row["vssds"]))
         for row in rows])]
    members = [(member["name"], member["device"], row["name"], member["volume"], member["mode"],
                member["state"], size(member["dirty_bytes"]), member["cache_errors"])
               for row in rows for member in row["members"]]
    if members:
        parts.append(table(
            ("NAME", "DEVICE", "POOL", "VOLUME", "MODE", "STATE", "DIRTY", "ERRORS"), members))
    return "\n\n".join(parts)


def vssds(rows: list[dict[str, Any]]) -> str:
    """Return the output of ``vcache vssd list``."""
    if not rows:
        return "no elastic SSDs"
    return table(
        ("NAME", "POOL", "MAX", "SIZE", "OWNED", "USED", "TAKEN", "PERSIST", "DOMAIN", "DISK",
         "GUEST", "STATE"),
        [(row["name"], row["pool"], size(row["max_bytes"]), size(row["size_bytes"]),
          size(row["owned_bytes"]), size(row["used_bytes"]), size(row["taken_bytes"]),
          "yes" if row["persist"] else "no", guest.get("domain"), guest.get("disk"),
          guest.get("state", "unknown"), vssd_state(row))
         for row in rows for guest in [row["guest"] or {}]])


def vssd(row: dict[str, Any]) -> str:
    """Return the output of ``vcache vssd show``."""
    guest = row["guest"] or {}
    lines = [("name", row["name"]), ("device", row["path"]), ("pool", row["pool"]),
             ("volume", row["volume"]), ("persist", "yes" if row["persist"] else "no"),
             ("block", size(row["block_bytes"])), ("maximum", size(row["max_bytes"])),
             ("size", size(row["size_bytes"])), ("owned", size(row["owned_bytes"])),
             ("with data", size(row["used_bytes"])), ("taken", size(row["taken_bytes"])),
             ("I/O errors", row["errors"]), ("refused writes", row["refused"]),
             ("domain", guest.get("domain")), ("UUID", guest.get("uuid")),
             ("disk", guest.get("disk")), ("guaranteed", size(guest.get("guaranteed_bytes"))),
             ("note", guest.get("note") or None), ("guest", guest.get("state", "unknown")),
             ("told size", size(guest.get("told_bytes"))),
             ("forced so far", size(guest.get("forced_bytes"))), ("state", vssd_state(row))]
    width = max(len(name) for name, _ in lines)
    return "\n".join(f"{name:{width}}  {'-' if value is None else value}"
                     for name, value in lines)


def vssd_state(row: dict[str, Any]) -> str:
    """Return the state of an elastic SSD: what changes, or nothing."""
    guest = row["guest"] or {}
    if row["owned_bytes"] > row["size_bytes"]:
        left = guest.get("seconds_left")
        return "shrinks" if left is None else f"shrinks, {left:.0f} s left"
    if guest.get("problem"):
        return str(guest["problem"])
    return "settled" if row["settled"] else "grows"


def attention(state: dict[str, Any]) -> list[str]:
    """Return the warnings, which are printed first."""
    lines = []
    if state["agent"]["problem"]:
        lines.append(f"WARNING: {state['agent']['problem']}")
    elif not state["agent"]["libvirt"]:
        lines.append("WARNING: libvirt does not answer; the tags stay unchanged")
    for item in state["devices"]:
        if item["isolation"] == "degraded":
            lines.append(f"WARNING: {item['name']}: isolation=degraded: its origin has a volatile "
                         "write cache and no FUA, so each flush is device-wide and tenants are "
                         "NOT isolated")
        if item["broken"]:
            lines.append(f"WARNING: {item['name']}: writes to the origin {item['origin']} fail; "
                         "the data stays in the write buffer")
        if item["cache"] and item["cache"]["broken"]:
            lines.append(f"WARNING: {item['name']}: I/O to its cache in pool "
                         f"{item['cache']['pool']} or to its origin {item['origin']} fails; "
                         f"{size(item['cache']['dirty_bytes'])} are only in the cache")
    return ["\n".join(lines)] if lines else []


def _latencies(flush: dict[str, Any] | None) -> tuple[str | None, ...]:
    if flush is None:
        return None, None, None
    return tuple(microseconds(flush[name]) for name in ("mean_us", "p50_us", "p99_us"))


def _cache(item: dict[str, Any]) -> tuple[object, ...]:
    cache = item["cache"]
    if cache is None:
        return None, None, None
    return cache["pool"], cache["volume"], size(cache["dirty_bytes"])


def _swapped(item: dict[str, Any]) -> str:
    return item["state"] + (f", {size(item['bytes'])}" if item["bytes"] else "")


def _loud(isolation: str) -> str:
    return "DEGRADED" if isolation == "degraded" else isolation


def _condition(item: dict[str, Any]) -> str:
    words = [word for word in ("suspended", "broken") if item[word]]
    if item["cache"] and item["cache"]["broken"]:
        words.append("cache failing")
    return ", ".join(words) or "active"
