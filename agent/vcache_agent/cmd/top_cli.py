# SPDX-License-Identifier: Apache-2.0
"""The command ``vcache top``: the activity of tags, live."""

import argparse
import contextlib
import json
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from vcache_agent import tables, top
from vcache_agent.admin_client import AdminError, ask
from vcache_agent.netlink import connect

if TYPE_CHECKING:
    from rich.table import Table

_KEYS = {"p": "p99", "i": "iops", "b": "bytes", "s": "share", "h": "hits"}
_HELP = "sort: p flush p99, i IOPS, b bytes, s share, h hit ratio; r reverse; q quit"
# Names of domains change rarely.
_NAMES_SECONDS = 10.0
_COLUMNS = ("DOMAIN", "DISK", "TAG", "DEVICE", "IOPS", "READ/S", "WRITE/S", "FLUSH/S",
            "FLUSH-P50", "FLUSH-P99", "READ-P99", "WRITE-P99", "HITS", "CACHED", "SHARE", "DIRTY")
# The columns from IOPS on are numbers.
_TEXT_COLUMNS = 4


def add_command(commands: Any, seconds: Any) -> None:
    """Add ``top`` to the commands of ``vcache``.

    :param seconds: argparse type that converts a number of seconds
    """
    command = commands.add_parser(
        "top", help="show the activity of the tags, live",
        description=f"Show rates, latencies and the cache of each tag. Keys: {_HELP}. The agent "
                    "need not run; without it, domains are shown by UUID.")
    command.add_argument("--sort", choices=top.SORTS, default="p99",
                         help="column to sort by, the largest value first (%(default)s)")
    command.add_argument("--reverse", action="store_true", help="the smallest value first")
    command.add_argument("--interval", type=seconds, default=2, metavar="SECONDS",
                         help="period of the rates, and time between two updates (%(default)s)")
    command.add_argument("--once", action="store_true",
                         help="print one table for one interval, and end")
    command.add_argument("--json", action="store_true",
                         help="print one JSON object for each interval; with --once only one")
    command.set_defaults(run=_top)


def _top(arguments: argparse.Namespace) -> None:
    view = _View(arguments)
    if arguments.once or arguments.json:
        for rows in view.updates():
            print(json.dumps({"interval_s": view.seconds, "tags": rows}) if arguments.json
                  else plain(rows), flush=True)
            if arguments.once:
                return
    view.live()


class _View:
    """Samples the kernel and shows the activity.

    :param arguments: sort, reverse, interval, socket
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._sort, self._reverse = arguments.sort, arguments.reverse
        self._interval = float(arguments.interval)
        self._socket = arguments.socket
        self._names: dict[str, str] = {}
        self._names_until = 0.0
        #: Length of the last interval in seconds.
        self.seconds = 0.0

    def updates(self, keys: bool = False) -> Iterator[list[top.Row]]:
        """Yield the rows after each interval, and after each key; end after ``q``.

        :param keys: read keys from the terminal
        """
        from vcache_agent.netlink.bulk import TagDecoder
        from vcache_agent.observe.sample import take

        decoder = TagDecoder()
        with connect() as client:
            before = take(client, decoder)
            shown = None
            due = before.monotonic + self._interval
            while True:
                key = _wait(due - time.monotonic(), keys)
                if key == "q":
                    return
                if key:
                    self._press(key)
                else:
                    after = take(client, decoder)
                    self.seconds = round(after.monotonic - before.monotonic, 3)
                    shown, before = (before, after), after
                    due = after.monotonic + self._interval
                if shown:
                    yield top.rows(*shown, self._domains(), self._sort, self._reverse)

    def live(self) -> None:
        """Show the table until ``q`` or Ctrl-C."""
        from rich.live import Live

        with _keys(), Live(screen=sys.stdout.isatty(), auto_refresh=False) as live:
            for rows in self.updates(keys=sys.stdin.isatty()):
                live.update(self._table(rows), refresh=True)

    def _press(self, key: str) -> None:
        self._sort = _KEYS.get(key, self._sort)
        self._reverse ^= key == "r"

    def _domains(self) -> dict[str, str]:
        """Return the names of domains by UUID, as the agent knows them."""
        now = time.monotonic()
        if now >= self._names_until:
            self._names_until = now + _NAMES_SECONDS
            with contextlib.suppress(AdminError):
                state = ask(self._socket, {"op": "state"}, seconds=2.0)
                self._names = {disk["uuid"]: disk["domain"] for disk in state["disks"]}
        return self._names

    def _table(self, rows: list[top.Row]) -> "Table":
        from rich.table import Table

        order = "smallest first" if self._reverse else "largest first"
        table = Table(title=f"vcache top: {self.seconds:g} s, by {self._sort}, {order}",
                      caption=_HELP, box=None, header_style="bold", pad_edge=False)
        for number, name in enumerate(_COLUMNS):
            table.add_column(name, justify="left" if number < _TEXT_COLUMNS else "right",
                             no_wrap=True)
        for row in rows:
            table.add_row(*("-" if cell is None else str(cell) for cell in cells(row)))
        return table


def cells(row: top.Row) -> list[object]:
    """Return the cells of a row, in the order of the columns."""
    ratio = row["hit_ratio"]
    return [
        row["domain"] or ("host" if row["tag"] == 0 else row["name"]), row["disk"] or None,
        row["tag"], row["device_name"] or row["device"], f"{row['iops']:.0f}",
        f"{tables.size(row['read_bytes_per_s'])}", f"{tables.size(row['write_bytes_per_s'])}",
        f"{row['flushes_per_s']:.0f}", tables.microseconds(row["flush_p50_us"]),
        tables.microseconds(row["flush_p99_us"]), tables.microseconds(row["read_p99_us"]),
        tables.microseconds(row["write_p99_us"]),
        None if ratio is None else f"{ratio:.0%}", tables.size(row["cached_bytes"]),
        tables.size(row["share_bytes"]), tables.size(row["dirty_bytes"])]


def plain(rows: list[top.Row]) -> str:
    """Return the rows as a table for scripts and logs."""
    return tables.table(_COLUMNS, [cells(row) for row in rows]) if rows else "no tags"


@contextlib.contextmanager
def _keys() -> Iterator[None]:
    """Deliver keys at once and without an echo; Ctrl-C still interrupts."""
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _wait(seconds: float, keys: bool) -> str:
    """Wait for a key; return it, or an empty text after the time."""
    if not keys:
        time.sleep(max(0.0, seconds))
        return ""
    ready, _, _ = select.select([sys.stdin], [], [], max(0.0, seconds))
    # Unbuffered: select() does not see what sys.stdin has read ahead. The end of the input
    # counts as "quit", else it would be ready for ever.
    return (os.read(sys.stdin.fileno(), 1).decode(errors="replace") or "q") if ready else ""
