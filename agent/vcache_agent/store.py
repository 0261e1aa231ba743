# SPDX-License-Identifier: Apache-2.0
"""The agent's persistent state, in a small SQLite file.

libvirt knows the domains, and the kernel knows the tags. This file records the
tag of each disk, the volume number of each device, and the settings of operators.
If it is lost, disks get new tags, except those whose tag the kernel still has.

Every change is one transaction in write-ahead mode, so the file is consistent
whenever the process ends. It is not synced at each commit: after a power cut
no domain runs either, and a hook must not wait for a busy disk.
"""

import contextlib
import dataclasses
import sqlite3
import threading
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from vcache_agent.overrides import NONE, Override

_VERSION = 6

# Scripts that upgrade the schema, each to the next version.
_SCHEMAS = ("""
CREATE TABLE disks (
    key TEXT PRIMARY KEY,
    tag INTEGER NOT NULL UNIQUE CHECK (tag BETWEEN 1 AND 65535),
    domain TEXT NOT NULL,
    name TEXT NOT NULL,
    target TEXT NOT NULL,
    path TEXT NOT NULL,
    weight INTEGER,
    released REAL
) STRICT;
CREATE TABLE meta (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT;
INSERT INTO meta VALUES ('last_tag', 0);
""", """
ALTER TABLE disks ADD COLUMN mode TEXT;
CREATE TABLE volumes (
    pool TEXT NOT NULL,
    device TEXT NOT NULL,
    volume INTEGER NOT NULL CHECK (volume BETWEEN 1 AND 4294967295),
    PRIMARY KEY (pool, device),
    UNIQUE (pool, volume)
) STRICT;
""", """
CREATE TABLE settings (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;
""", """
ALTER TABLE disks ADD COLUMN persist INTEGER NOT NULL DEFAULT 0;
""", """
CREATE TABLE overrides (
    domain TEXT PRIMARY KEY,
    weight INTEGER,
    slo_flush_ms REAL,
    slo_read_us REAL,
    slo_iops REAL,
    gone REAL
) STRICT;
""", """
ALTER TABLE disks ADD COLUMN lanes TEXT;
""")


class StoreError(Exception):
    """The file cannot be opened or has an unsupported version."""


@dataclasses.dataclass(frozen=True)
class Assignment:
    """A disk and its tag.

    :param key: identity of the disk; see :class:`vcache_agent.model.Location`
    :param tag: the tag number
    :param domain: UUID of the domain that used it last
    :param name: name of that domain
    :param target: name of the disk in that domain, such as ``vda``
    :param path: host path of the disk
    :param weight: weight set by an operator; None: the flavor's
    :param released: Unix time since which no domain uses it; None: it is in use
    :param mode: mode set by an operator; None: the flavor's
    :param persist: the flavor has vcache:persist
    :param lanes: dedicated lanes set by an operator, such as "1,3"; None: as the flavor
        requests
    """

    key: str
    tag: int
    domain: str
    name: str
    target: str
    path: str
    weight: int | None = None
    released: float | None = None
    mode: str | None = None
    persist: bool = False
    lanes: str | None = None


_FIELDS = [field.name for field in dataclasses.fields(Assignment)]
_COLUMNS = ", ".join(_FIELDS)
_OVERRIDE = ", ".join(field.name for field in dataclasses.fields(Override))
_UPSERT = (
    f"INSERT INTO disks ({_COLUMNS}) VALUES ({', '.join('?' * len(_FIELDS))}) "  # noqa: S608
    "ON CONFLICT (key) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in _FIELDS[1:]))


class Store:
    """The file. Thread-safe.

    :param path: the file; created with its directory if missing
    :raises StoreError: if it cannot be opened, or a newer agent has written it
    """

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, timeout=10, isolation_level=None,
                                       check_same_thread=False)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            self._migrate(path)
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"{path}: {error}") from None

    def _migrate(self, path: Path) -> None:
        with self._transaction():
            (version,) = self._db.execute("PRAGMA user_version").fetchone()
            if version > _VERSION:
                raise StoreError(f"{path}: schema version is {version}, from a newer agent; must "
                                 f"be at most {_VERSION}")
            for script in _SCHEMAS[version:]:
                for statement in script.split(";"):
                    self._db.execute(statement)
            if version < _VERSION:
                self._db.execute(f"PRAGMA user_version = {_VERSION}")

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException as error:
                # After some errors, such as a full disk, SQLite has rolled back already.
                if self._db.in_transaction:
                    try:
                        self._db.execute("ROLLBACK")
                    except sqlite3.Error as second:
                        error.add_note(f"ROLLBACK also failed: {second}")
                raise

    def assignments(self) -> dict[str, Assignment]:
        """Return all disks by their key."""
        with self._lock:
            rows = self._db.execute(f"SELECT {_COLUMNS} FROM disks").fetchall()  # noqa: S608
        found = [Assignment(*row) for row in rows]
        return {row.key: dataclasses.replace(row, persist=bool(row.persist)) for row in found}

    def last_tag(self) -> int:
        """Return the tag number that was allocated last."""
        with self._lock:
            return int(self._db.execute(
                "SELECT value FROM meta WHERE name = 'last_tag'").fetchone()[0])

    def update(self, changed: Iterable[Assignment], forgotten: Iterable[str] = (),
               last_tag: int | None = None) -> None:
        """Write and delete rows in one transaction.

        :param changed: rows to write
        :param forgotten: keys of rows to delete
        :param last_tag: the tag number that was allocated last; None: unchanged
        """
        with self._transaction():
            self._db.executemany("DELETE FROM disks WHERE key = ?",
                                 [(key,) for key in forgotten])
            self._db.executemany(_UPSERT, [dataclasses.astuple(row) for row in changed])
            if last_tag is not None:
                self._db.execute("UPDATE meta SET value = ? WHERE name = 'last_tag'", (last_tag,))

    def set_weight(self, tag: int, weight: int | None) -> bool:
        """Set an operator's weight, or clear it with None; return False for an unknown tag."""
        with self._transaction():
            return self._db.execute("UPDATE disks SET weight = ? WHERE tag = ?",
                                    (weight, tag)).rowcount > 0

    def set_mode(self, tag: int, mode: str | None) -> bool:
        """Set an operator's mode, or clear it with None; return False for an unknown tag."""
        with self._transaction():
            return self._db.execute("UPDATE disks SET mode = ? WHERE tag = ?",
                                    (mode, tag)).rowcount > 0

    def set_lanes(self, tag: int, lanes: str | None) -> bool:
        """Set an operator's lanes, or clear them with None; return False for an unknown tag."""
        with self._transaction():
            return self._db.execute("UPDATE disks SET lanes = ? WHERE tag = ?",
                                    (lanes, tag)).rowcount > 0

    def policy(self) -> str | None:
        """Return the policy set by an operator; None: use the configured one."""
        with self._lock:
            row = self._db.execute("SELECT value FROM settings WHERE name = 'policy'").fetchone()
        return row[0] if row else None

    def set_policy(self, name: str | None) -> None:
        """Set an operator's policy, or clear it with None."""
        with self._transaction():
            self._db.execute("DELETE FROM settings WHERE name = 'policy'")
            if name is not None:
                self._db.execute("INSERT INTO settings VALUES ('policy', ?)", (name,))

    def draining(self) -> bool:
        """Return True if the host is draining: its caches must not have dirty data."""
        with self._lock:
            return self._db.execute(
                "SELECT 1 FROM settings WHERE name = 'draining'").fetchone() is not None

    def set_draining(self, draining: bool) -> None:
        """Set whether the host is draining; see :meth:`draining`."""
        with self._transaction():
            self._db.execute("DELETE FROM settings WHERE name = 'draining'")
            if draining:
                self._db.execute("INSERT INTO settings VALUES ('draining', '1')")

    def overrides(self) -> dict[str, Override]:
        """Return the overrides of instances by UUID of the domain."""
        with self._lock:
            return {domain: Override(*values) for domain, *values in self._db.execute(
                f"SELECT domain, {_OVERRIDE} FROM overrides").fetchall()}  # noqa: S608

    def set_override(self, domain: str, override: Override) -> None:
        """Set the overrides of an instance; remove them if none is given."""
        with self._transaction():
            self._db.execute("DELETE FROM overrides WHERE domain = ?", (domain,))
            if override != NONE:
                values = dataclasses.astuple(override)
                self._db.execute(
                    f"INSERT INTO overrides (domain, {_OVERRIDE}) VALUES "  # noqa: S608
                    f"(?{', ?' * len(values)})", (domain, *values))

    def tend_overrides(self, known: Collection[str], now: float, after: float) -> None:
        """Delete the overrides of instances that have been missing for some time.

        :param known: UUIDs of all existing domains
        :param now: Unix time in seconds
        :param after: seconds for which a domain may be missing; a domain that is rebuilt, or
            migrates to another host and back, is undefined for a while
        """
        with self._lock:
            rows = self._db.execute("SELECT domain, gone FROM overrides").fetchall()
        for domain, gone in rows:
            if domain in known:
                if gone is not None:
                    self._mark_override(domain, None)
            elif gone is None:
                self._mark_override(domain, now)
            elif now - gone > after:
                self.set_override(domain, NONE)

    def _mark_override(self, domain: str, gone: float | None) -> None:
        with self._transaction():
            self._db.execute("UPDATE overrides SET gone = ? WHERE domain = ?", (gone, domain))

    def volumes(self, pool: str) -> dict[str, int]:
        """Return the volume numbers of a pool by the identity of the device.

        :param pool: name of the pool
        """
        with self._lock:
            return dict(self._db.execute(
                "SELECT device, volume FROM volumes WHERE pool = ?", (pool,)).fetchall())

    def remember_volume(self, pool: str, device: str, volume: int) -> None:
        """Record the device of a volume."""
        with self._transaction():
            self._db.execute("INSERT OR REPLACE INTO volumes VALUES (?, ?, ?)",
                             (pool, device, volume))

    def forget_volume(self, pool: str, volume: int) -> None:
        """Record that a volume belongs to no device."""
        with self._transaction():
            self._db.execute("DELETE FROM volumes WHERE pool = ? AND volume = ?", (pool, volume))
