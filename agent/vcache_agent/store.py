# SPDX-License-Identifier: Apache-2.0
"""What the agent intends, in a small SQLite file.

libvirt knows which domains there are and the kernel which tags there are; this
file only remembers which disk has which tag, and what an operator has set. It
may be lost: tags are then given anew, except to disks whose tag the kernel
still has.

Every change is one transaction in write-ahead mode, so the file is consistent
whenever the process ends. It is not synced at each commit: after a power cut
the domains are gone as well, and a hook must not wait for a busy disk.
"""

import contextlib
import dataclasses
import sqlite3
import threading
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from vcache_agent.overrides import NONE, Override

_VERSION = 6

# One script for each version, from the one before.
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
    """The file cannot be used."""


@dataclasses.dataclass(frozen=True)
class Assignment:
    """A disk and its tag.

    :param key: identity of the disk; see :class:`vcache_agent.model.Location`
    :param domain: UUID of the domain that used it last
    :param name: name of that domain
    :param weight: set by an operator, instead of the flavor's; or None
    :param released: when no domain used it any more (Unix time), or None
    :param mode: set by an operator, instead of the flavor's; or None
    :param persist: its flavor says that what it has in the cache is to be there when it is
        started again
    :param lanes: numbers of the pool's lanes that an operator gave it, "1,3", or None
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
    """The file; may be used from several threads.

    :param path: the file, made with its folder when missing
    :raises StoreError: if it is not ours, newer than us, or damaged
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
                raise StoreError(f"{path}: schema version {version} is of a newer agent, "
                                 f"this one knows up to {_VERSION}")
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
        """Return the tag number that was given last."""
        with self._lock:
            return int(self._db.execute(
                "SELECT value FROM meta WHERE name = 'last_tag'").fetchone()[0])

    def update(self, changed: Iterable[Assignment], forgotten: Iterable[str] = (),
               last_tag: int | None = None) -> None:
        """Write disks and drop others, all or nothing."""
        with self._transaction():
            self._db.executemany("DELETE FROM disks WHERE key = ?",
                                 [(key,) for key in forgotten])
            self._db.executemany(_UPSERT, [dataclasses.astuple(row) for row in changed])
            if last_tag is not None:
                self._db.execute("UPDATE meta SET value = ? WHERE name = 'last_tag'", (last_tag,))

    def set_weight(self, tag: int, weight: int | None) -> bool:
        """Set or clear an operator's weight; tell whether there is such a tag."""
        with self._transaction():
            return self._db.execute("UPDATE disks SET weight = ? WHERE tag = ?",
                                    (weight, tag)).rowcount > 0

    def set_mode(self, tag: int, mode: str | None) -> bool:
        """Set or clear an operator's mode; tell whether there is such a tag."""
        with self._transaction():
            return self._db.execute("UPDATE disks SET mode = ? WHERE tag = ?",
                                    (mode, tag)).rowcount > 0

    def set_lanes(self, tag: int, lanes: str | None) -> bool:
        """Set or clear the lanes that a tag has for itself; tell whether there is such a tag."""
        with self._transaction():
            return self._db.execute("UPDATE disks SET lanes = ? WHERE tag = ?",
                                    (lanes, tag)).rowcount > 0

    def policy(self) -> str | None:
        """Return the policy that an operator has set; None: the configured one."""
        with self._lock:
            row = self._db.execute("SELECT value FROM settings WHERE name = 'policy'").fetchone()
        return row[0] if row else None

    def set_policy(self, name: str | None) -> None:
        """Set a policy, or with None the configured one."""
        with self._transaction():
            self._db.execute("DELETE FROM settings WHERE name = 'policy'")
            if name is not None:
                self._db.execute("INSERT INTO settings VALUES ('policy', ?)", (name,))

    def draining(self) -> bool:
        """Tell whether the host is to have nothing in caches that no origin has."""
        with self._lock:
            return self._db.execute(
                "SELECT 1 FROM settings WHERE name = 'draining'").fetchone() is not None

    def set_draining(self, draining: bool) -> None:
        """Note whether the host is to have nothing in caches that no origin has."""
        with self._transaction():
            self._db.execute("DELETE FROM settings WHERE name = 'draining'")
            if draining:
                self._db.execute("INSERT INTO settings VALUES ('draining', '1')")

    def overrides(self) -> dict[str, Override]:
        """Return what was set of instances instead of their flavor's, by UUID of the domain."""
        with self._lock:
            return {domain: Override(*values) for domain, *values in self._db.execute(
                f"SELECT domain, {_OVERRIDE} FROM overrides").fetchall()}  # noqa: S608

    def set_override(self, domain: str, override: Override) -> None:
        """Set what holds of an instance instead of its flavor's."""
        with self._transaction():
            self._db.execute("DELETE FROM overrides WHERE domain = ?", (domain,))
            if override != NONE:
                values = dataclasses.astuple(override)
                self._db.execute(
                    f"INSERT INTO overrides (domain, {_OVERRIDE}) VALUES "  # noqa: S608
                    f"(?{', ?' * len(values)})", (domain, *values))

    def tend_overrides(self, known: Collection[str], now: float, after: float) -> None:
        """Drop overrides of instances that have been gone for a while.

        :param known: UUIDs of all domains that there are
        :param now: Unix time
        :param after: seconds that one may be gone: an instance that is rebuilt, or comes
            back from another host, is not defined for a moment
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
        """Return the volume numbers of a pool by the identity of the device that has them."""
        with self._lock:
            return dict(self._db.execute(
                "SELECT device, volume FROM volumes WHERE pool = ?", (pool,)).fetchall())

    def remember_volume(self, pool: str, device: str, volume: int) -> None:
        """Note whose a volume of a pool is."""
        with self._transaction():
            self._db.execute("INSERT OR REPLACE INTO volumes VALUES (?, ?, ?)",
                             (pool, device, volume))

    def forget_volume(self, pool: str, volume: int) -> None:
        """Note that a volume of a pool is nobody's."""
        with self._transaction():
            self._db.execute("DELETE FROM volumes WHERE pool = ? AND volume = ?", (pool, volume))
