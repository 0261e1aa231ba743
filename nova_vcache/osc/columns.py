# SPDX-License-Identifier: Apache-2.0
"""Formatting of values in tables. JSON, YAML and so on have the API's values."""

from typing import Any

from cliff import columns

_STEP = 1024


def size(value: int | None) -> str:
    """Return a number of bytes as text with a unit; empty for None."""
    if value is None:
        return ""
    amount, unit = float(value), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(amount) < _STEP or unit == "TiB":
            break
        amount /= _STEP
    return f"{amount:.0f} B" if unit == "B" else f"{amount:.1f} {unit}"


class Bytes(columns.FormattableColumn[Any]):
    """A number of bytes; None: unknown."""

    def human_readable(self) -> str:
        """Return the number with a unit."""
        return size(self._value)


class Drain(columns.FormattableColumn[Any]):
    """The progress of a drain."""

    def human_readable(self) -> str:
        """Return the part that is done, and what is left."""
        return f"{self._value['percent']} %, {size(self._value['left_bytes'])} left"


class Words(columns.FormattableColumn[Any]):
    """A list of words."""

    def human_readable(self) -> str:
        """Return all words in one line."""
        return ", ".join(self._value)


class Lines(columns.FormattableColumn[Any]):
    """A list of sentences."""

    def human_readable(self) -> str:
        """Return one line for each sentence."""
        return "\n".join(self._value)


class Specs(columns.FormattableColumn[Any]):
    """Values by name."""

    def human_readable(self) -> str:
        """Return one line for each value that is set."""
        return "\n".join(f"{name}={_plain(value)}" for name, value in self._value.items()
                         if value is not None)


class Objectives(columns.FormattableColumn[Any]):
    """The objectives of an instance."""

    def human_readable(self) -> str:
        """Return one line for each objective."""
        return "\n".join(f"{one['disk']}: {one['objective']} {verdict(one)}"
                         for one in self._value)


class Disks(columns.FormattableColumn[Any]):
    """The disks of an instance."""

    def human_readable(self) -> str:
        """Return one line for each disk."""
        return "\n".join(map(_disk, self._value))


def verdict(one: dict[str, Any]) -> str:
    """Return an objective's state, the measured and the promised value, and the cause."""
    measured = "nothing measured" if one["measured"] is None else f"{one['measured']:g}"
    text = f"{one['state']}: {measured}, promised {one['promised']:g}"
    return f"{text} ({one['cause']})" if one["cause"] else text


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _disk(disk: dict[str, Any]) -> str:
    text = f"{disk['disk']}: {disk['mode']}, {disk['state']}"
    if disk.get("tag") is not None:
        text += f", tag {disk['tag']}"
    if disk.get("cached_bytes") is not None:
        text += f", {size(disk['cached_bytes'])} cached"
        if disk.get("share_bytes") is not None:
            text += f" of {size(disk['share_bytes'])}"
    if disk.get("dirty_bytes") is not None:
        text += f", {size(disk['dirty_bytes'])} dirty"
    if disk.get("hit_ratio") is not None:
        text += f", hit ratio {disk['hit_ratio']:.3g}"
    if disk.get("flush_p50_us") is not None:
        text += f", flush p50 {disk['flush_p50_us']:g} us"
    if disk.get("flush_p99_us") is not None:
        text += f", flush p99 {disk['flush_p99_us']:g} us"
    if disk.get("read_p99_us") is not None:
        text += f", read p99 {disk['read_p99_us']:g} us"
    return f"{text} ({disk['note']})" if disk.get("note") else text
