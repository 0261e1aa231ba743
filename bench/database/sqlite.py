# SPDX-License-Identifier: Apache-2.0
"""In the box: commit small transactions to SQLite, and print their durations.

Each transaction updates one row of a table and adds one to a history, in WAL mode with
synchronous=FULL: the commit ends with an fdatasync of the log. Standard library only, since it
runs with the Python of the system.
"""

import random
import sqlite3
import sys
import time

ROWS = 20_000


def prepare(database: sqlite3.Connection) -> None:
    """Create the tables."""
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    with database:
        database.execute("CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER, pad TEXT)")
        database.execute("CREATE TABLE history (account INTEGER, delta INTEGER, pad TEXT)")
        database.executemany("INSERT INTO account VALUES (?, 0, ?)",
                             ((row, "x" * 80) for row in range(ROWS)))


def run(database: sqlite3.Connection, seconds: float, seed: int) -> list[tuple[float, float]]:
    """Return the duration of each transaction and of its commit, in microseconds."""
    choice = random.Random(seed)  # noqa: S311 - a load, not a secret
    found = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        account, delta = choice.randrange(ROWS), choice.randrange(-5000, 5000)
        start = time.monotonic_ns()
        database.execute("BEGIN IMMEDIATE")
        database.execute("UPDATE account SET balance = balance + ? WHERE id = ?", (delta, account))
        database.execute("INSERT INTO history VALUES (?, ?, ?)", (account, delta, "y" * 40))
        commit = time.monotonic_ns()
        database.commit()
        now = time.monotonic_ns()
        found.append(((now - start) / 1000, (now - commit) / 1000))
    return found


def main() -> None:
    """``sqlite.py FILE SECONDS SEED``."""
    path, seconds, seed = sys.argv[1:]
    database = sqlite3.connect(path, isolation_level=None)
    try:
        prepare(database)
        for whole, commit in run(database, float(seconds), int(seed)):
            print(f"{whole:.0f} {commit:.0f}")
    finally:
        database.close()


if __name__ == "__main__":
    main()
