# SPDX-License-Identifier: Apache-2.0
"""The agent's persistent state, in a small SQLite file.

libvirt knows the domains, and the kernel knows the tags. This file records the
tag of each disk, the layers that belong to it, the volume number of each device, the
volumes managed for Cinder, and the settings of operators. If it is lost, disks get new
tags, except those whose tag the kernel still has.

Every change is one transaction in write-ahead mode, so the file is consistent
whenever the process ends. It is not synced at each commit: after a power cut
no domain runs either, and a hook must not wait for a busy disk. Only the volume numbers and the
managed volumes are, because a device without its volume, or with another one, shows old data.

A damaged file is moved aside, and a new one is begun: see :meth:`Store.repair`. On a full
disk, changes fail as a whole and the stored state can be read: see :attr:`Store.problem`.
"""

import contextlib
import dataclasses
import operator
import os
import sqlite3
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from oslo_log import log as logging

from vcache_agent import schema
from vcache_agent.model import VOLUME_TARGET, DiskId
from vcache_agent.overrides import NONE, Override
from vcache_agent.records import DiskRow, LayerRow, ManagedVolume, RowChanges, VolumeState

LOG = logging.getLogger(__name__)


class StoreError(Exception):
    """The file cannot be opened or has an unsupported version."""


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    """Return True if an error says that the content of the file is not valid."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF in (
        sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


_REFUSALS = frozenset({
    sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOMEM})


def is_refusal(error: sqlite3.Error) -> bool:
    """Return True if a change was refused as a whole, for example on a full disk.

    The file is not damaged, and the same change may succeed later.
    """
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF in _REFUSALS


_OVERRIDE = ", ".join(field.name for field in dataclasses.fields(Override))


def _columns(row: type[DiskRow | LayerRow]) -> str:
    return ", ".join(field.name for field in dataclasses.fields(row))


def _write(table: str, row: type[DiskRow | LayerRow], key: tuple[str, ...],
           kept: tuple[str, ...] = ()) -> str:
    """Return the statement that writes a row; it leaves some columns of a present row."""
    names = [field.name for field in dataclasses.fields(row)]
    changed = ", ".join(f"{name} = excluded.{name}" for name in names if name not in (*key, *kept))
    return (f"INSERT INTO {table} ({', '.join(names)}) "  # noqa: S608
            f"VALUES ({', '.join('?' * len(names))}) "
            f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {changed}")


_DISK_COLUMNS, _LAYER_COLUMNS = _columns(DiskRow), _columns(LayerRow)
#: Columns of a disk that only operators set.
SETTINGS = ("weight", "mode", "lanes")
# They may change while a plan is made, so a plan does not write them.
_WRITE_DISK = _write("disks", DiskRow, ("domain", "target"), SETTINGS)
_WRITE_LAYER = _write("layers", LayerRow, ("key",))
# dataclasses.astuple copies each value.
_DISK_VALUES, _LAYER_VALUES = (
    operator.attrgetter(*(field.name for field in dataclasses.fields(row)))
    for row in (DiskRow, LayerRow))


class Store:
    """The file. Thread-safe.

    :param path: the file; created with its directory if missing
    :param heal: move a damaged file aside, and begin a new one; only for its owner, the agent
    :raises StoreError: if it cannot be opened, or a newer agent has written it
    """

    def __init__(self, path: Path, *, heal: bool = False) -> None:
        self._lock = threading.RLock()
        self._path = path
        self._alone = False
        self._problem = ""
        self._read: tuple[dict[DiskId, DiskRow], dict[str, LayerRow]] | None = None
        self._managed: dict[str, ManagedVolume] | None = None
        #: Grows with each change.
        self.version = 0
        #: Held from the look at the numbers in use until a new one is saved.
        self.allocating = threading.RLock()
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._open_alone_if_full() if heal else self._open()
        except sqlite3.DatabaseError as error:
            if not heal or not _is_damage(error):
                raise StoreError(f"{path}: {error}") from None
            self._begin_anew(str(error))
        except OSError as error:
            raise StoreError(f"{path}: {error}") from None

    def _open_alone_if_full(self) -> None:
        """Open the file; on a full disk so that it can be read, but only by this process.

        Processes that share a file in write-ahead mode share an index of it, for which a full
        disk has no space. A process that is alone has that index in its own memory.

        :raises sqlite3.DatabaseError: as :meth:`_open`
        """
        try:
            self._open()
        except sqlite3.OperationalError as error:
            if not self._path.exists() or not is_refusal(error):
                raise
            self._open(alone=True)
            self._refused(error)
            self._alone = True
        else:
            self._alone = False

    def _open(self, *, alone: bool = False) -> None:
        """Open the file, and check it.

        :param alone: no other process can open it
        :raises sqlite3.DatabaseError: if it is damaged
        :raises sqlite3.OperationalError: if it cannot be opened
        """
        self._db = sqlite3.connect(self._path, timeout=10, isolation_level=None,
                                   check_same_thread=False)
        self._read = self._managed = None
        self.version += 1
        try:
            if alone:
                self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            (found,) = self._db.execute("PRAGMA quick_check(1)").fetchone()
            if found != "ok":
                raise sqlite3.DatabaseError(found)
            self._migrate(self._path)
        except BaseException:
            self._db.close()
            raise

    def _begin_anew(self, reason: str) -> None:
        """Move the damaged file aside, and create a new one.

        :raises StoreError: if that is not possible
        """
        name = f"{self._path.name}.damaged-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
        aside = self._path.with_name(name)
        LOG.critical("%s is damaged (%s). It is kept as %s. Tags that the kernel has, and volumes "
                     "of attached devices, are taken over from there. Settings of 'vcache tag "
                     "set', 'instance set' and 'policy set' are lost", self._path, reason, aside)
        try:
            for end in ("", "-wal", "-shm"):
                part = self._path.with_name(self._path.name + end)
                if part.exists():
                    part.rename(aside.with_name(aside.name + end))
            self._open()
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"{self._path} is damaged ({reason}), and cannot be replaced: "
                             f"{error}") from None

    def repair(self) -> bool:
        """Check the file after an error, and open it again; if it is damaged, begin a new one.

        :return: whether it was damaged
        :raises StoreError: if it cannot be replaced
        """
        with self._lock:
            try:
                # Another connection does not have the pages of this one in memory.
                self._db.close()
                self._open_alone_if_full()
            except sqlite3.DatabaseError as error:
                if not _is_damage(error):
                    return False
                self._begin_anew(str(error))
                return True
        return False

    @property
    def problem(self) -> str:
        """Why the last change was refused, for example by a full disk; empty: it was not."""
        return self._problem

    def check(self) -> None:
        """Find out whether changes are possible again, if the last one was refused.

        :raises sqlite3.DatabaseError: if the file is damaged
        """
        if not self._problem:
            return
        with contextlib.suppress(sqlite3.OperationalError), self._transaction():
            # SQLite writes nothing for a value that is the same.
            for change in (1, -1):
                self._db.execute("UPDATE meta SET value = value + ? WHERE name = 'last_tag'",
                                 (change,))

    def _migrate(self, path: Path) -> None:
        with self._begun():
            try:
                schema.upgrade(self._db)
            except schema.UnknownVersion as error:
                raise StoreError(f"{path}: {error}") from None

    def downgrade(self) -> int:
        """Convert the file to the format of the previous version, and close it.

        :return: the version of the format
        :raises StoreError: if it cannot be converted; it has its present format then
        """
        try:
            with self._transaction():
                schema.downgrade(self._db)
        except sqlite3.Error as error:
            raise StoreError(f"the conversion failed: {error}") from None
        self.close()
        return schema.VERSION - 1

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        """Make the statements inside one change, which is written as a whole or not at all."""
        with self._lock:
            try:
                if self._alone:
                    self._db.close()
                    self._open_alone_if_full()
                with self._begun():
                    yield
            except sqlite3.Error as error:
                if is_refusal(error):
                    self._refused(error)
                raise
            if self._problem:
                LOG.warning("%s can be written again", self._path)
                self._problem = ""

    def _refused(self, error: sqlite3.Error) -> None:
        """Note that a change was refused."""
        if not self._problem:
            LOG.error("%s cannot be written (%s). New disks get no tags, and settings cannot be "
                      "changed, until that is possible", self._path, error)
        self._problem = f"{self._path} cannot be written: {error}"

    @contextlib.contextmanager
    def _begun(self) -> Iterator[None]:
        self._read = self._managed = None
        self.version += 1
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

    @contextlib.contextmanager
    def _synced(self) -> Iterator[None]:
        """Make the transactions inside durable before they return."""
        # SQLite refuses the change within a transaction, such as that of another thread.
        with self._lock:
            self._db.execute("PRAGMA synchronous = FULL")
            try:
                yield
            finally:
                # Should this fail, later commits only take longer.
                with contextlib.suppress(sqlite3.Error):
                    self._db.execute("PRAGMA synchronous = NORMAL")

    def disks(self) -> dict[DiskId, DiskRow]:
        """Return all disks by their identity."""
        return dict(self._rows()[0])

    def layers(self) -> dict[str, LayerRow]:
        """Return all layers by their key."""
        return dict(self._rows()[1])

    def _rows(self) -> tuple[dict[DiskId, DiskRow], dict[str, LayerRow]]:
        """Return all disks and layers. Only this object changes them while it is open."""
        with self._lock:
            if self._read is None:
                found = [DiskRow(*row) for row in self._db.execute(
                    f"SELECT {_DISK_COLUMNS} FROM disks")]  # noqa: S608
                disks = [dataclasses.replace(row, persist=bool(row.persist)) for row in found]
                layers = [LayerRow(*row) for row in self._db.execute(
                    f"SELECT {_LAYER_COLUMNS} FROM layers")]  # noqa: S608
                self._read = ({row.id: row for row in disks}, {row.key: row for row in layers})
            return self._read

    def numbers(self) -> set[int]:
        """Return the tag numbers that disks and shared layers have."""
        with self._lock:
            return {tag for (tag,) in self._db.execute(
                "SELECT tag FROM disks UNION SELECT tag FROM layers WHERE tag IS NOT NULL")}

    def last_tag(self) -> int:
        """Return the tag number that was allocated last."""
        with self._lock:
            return int(self._db.execute(
                "SELECT value FROM meta WHERE name = 'last_tag'").fetchone()[0])

    def update(self, changes: RowChanges) -> None:
        """Write and delete rows in one transaction.

        Weight, mode and lanes of a disk that has a row stay as they are.
        """
        with self._transaction():
            self._db.executemany("DELETE FROM disks WHERE domain = ? AND target = ?",
                                 changes.forgotten)
            self._db.executemany("DELETE FROM layers WHERE key = ?",
                                 [(key,) for key in changes.forgotten_layers])
            self._db.executemany(_WRITE_DISK, map(_DISK_VALUES, changes.disks))
            self._db.executemany(_WRITE_LAYER, map(_LAYER_VALUES, changes.layers))
            if changes.last_tag is not None:
                self._db.execute("UPDATE meta SET value = ? WHERE name = 'last_tag'",
                                 (changes.last_tag,))

    def set_tag(self, tag: int, values: Mapping[str, int | str | None]) -> bool:
        """Set what an operator has set for the disks of a tag.

        :param values: new values of some of the columns of :data:`SETTINGS`; None: the flavor's
        :return: False for an unknown tag
        """
        names = [name for name in SETTINGS if name in values]
        changed = ", ".join(f"{name} = ?" for name in names)
        with self._transaction():
            return self._db.execute(
                f"UPDATE disks SET {changed} WHERE tag = ?",  # noqa: S608
                (*(values[name] for name in names), tag)).rowcount > 0

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

    def limits(self) -> str | None:
        """Return the limits of neighbours as :meth:`set_limits` has set them; None: none."""
        with self._lock:
            row = self._db.execute("SELECT value FROM settings WHERE name = 'limits'").fetchone()
        return row[0] if row else None

    def set_limits(self, text: str | None) -> None:
        """Set the limits of neighbours and their original values; see restraints.py."""
        with self._transaction():
            self._db.execute("DELETE FROM settings WHERE name = 'limits'")
            if text is not None:
                self._db.execute("INSERT INTO settings VALUES ('limits', ?)", (text,))

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
            back = [(domain,) for domain, gone in rows if domain in known and gone is not None]
            missing = [(now, domain) for domain, gone in rows
                       if domain not in known and gone is None]
            expired = [(domain,) for domain, gone in rows
                       if domain not in known and gone is not None and now - gone > after]
            if not back + missing + expired:
                return
            with self._transaction():
                self._db.executemany("UPDATE overrides SET gone = NULL WHERE domain = ?", back)
                self._db.executemany("UPDATE overrides SET gone = ? WHERE domain = ?", missing)
                self._db.executemany("DELETE FROM overrides WHERE domain = ?", expired)

    def volumes(self, pool: str) -> dict[str, int]:
        """Return the volume numbers of a pool by the identity of the device.

        :param pool: name of the pool
        """
        with self._lock:
            return dict(self._db.execute(
                "SELECT device, volume FROM volumes WHERE pool = ?", (pool,)).fetchall())

    def holds(self, device: str) -> tuple[str, int] | None:
        """Return the pool that may have data of a device, and the volume number; None: none.

        :param device: identity of the device
        """
        with self._lock:
            found = self._db.execute("SELECT pool, volume FROM volumes WHERE device = ?",
                                     (device,)).fetchone()
            return (found[0], found[1]) if found else None

    def remember_volume(self, pool: str, device: str, volume: int) -> None:
        """Record the device of a volume; it no longer has another volume, nor this one another."""
        with self._synced(), self._transaction():
            self._db.execute("INSERT OR REPLACE INTO volumes VALUES (?, ?, ?)",
                             (pool, device, volume))

    def forget_volume(self, pool: str, volume: int) -> None:
        """Record that a volume belongs to no device."""
        with self._synced(), self._transaction():
            self._db.execute("DELETE FROM volumes WHERE pool = ? AND volume = ?", (pool, volume))

    def managed(self) -> dict[str, ManagedVolume]:
        """Return the volumes that the agent manages, by their id."""
        with self._lock:
            if self._managed is None:
                self._managed = {
                    name: ManagedVolume(name, device, identity, pool, specs, VolumeState(state))
                    for name, device, identity, pool, specs, state in self._db.execute(
                        "SELECT id, device, identity, pool, specs, state FROM managed")}
            return dict(self._managed)

    def manage(self, volume: ManagedVolume, tag: int | None = None) -> None:
        """Write a managed volume.

        :param tag: its tag number, if that is new; None: it has the same as before
        """
        with self._synced(), self._transaction():
            self._db.execute("INSERT OR REPLACE INTO managed VALUES (?, ?, ?, ?, ?, ?)",
                             dataclasses.astuple(volume))
            if tag is not None:
                row = DiskRow(volume.id, VOLUME_TARGET, tag, f"volume-{volume.id}",
                              volume.device, "", "", VOLUME_TARGET)
                self._db.execute(_WRITE_DISK, _DISK_VALUES(row))
                self._db.execute("UPDATE meta SET value = ? WHERE name = 'last_tag'", (tag,))

    def unmanage(self, volume: str) -> None:
        """Forget a managed volume and its tag.

        :param volume: its id
        """
        with self._synced(), self._transaction():
            for table in ("disks", "layers"):
                self._db.execute(f"DELETE FROM {table} WHERE domain = ?",  # noqa: S608
                                 (volume,))
            self._db.execute("DELETE FROM managed WHERE id = ?", (volume,))
