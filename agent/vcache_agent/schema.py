# SPDX-License-Identifier: Apache-2.0
"""The schema of the agent's store, and its conversion between versions.

Version 7 has a row for each disk, which is (domain UUID, target), and one for each
layer. Before, there was a row for each layer with a tag, and its key had no generation
of the inode. Such keys remain until the agent sees the layer under the same disk again.
Version 8 has the volumes that the agent manages for Cinder.
"""

import re
import sqlite3

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
""", """
CREATE TABLE disks_7 (
    domain TEXT NOT NULL,
    target TEXT NOT NULL,
    tag INTEGER NOT NULL CHECK (tag BETWEEN 1 AND 65535),
    name TEXT NOT NULL,
    path TEXT NOT NULL,
    layer TEXT NOT NULL,
    device TEXT NOT NULL,
    current TEXT NOT NULL,
    weight INTEGER,
    released REAL,
    mode TEXT,
    persist INTEGER NOT NULL DEFAULT 0,
    lanes TEXT,
    PRIMARY KEY (domain, target)
) STRICT;
INSERT OR REPLACE INTO disks_7
    SELECT domain, target, tag, name, path, key, device_of(key), target, weight, released, mode,
           persist, lanes
    FROM disks ORDER BY released IS NULL, released;
CREATE TABLE layers (
    key TEXT PRIMARY KEY,
    path TEXT NOT NULL,
    device TEXT NOT NULL,
    domain TEXT,
    target TEXT,
    tag INTEGER CHECK (tag BETWEEN 1 AND 65535),
    released REAL
) STRICT;
INSERT INTO layers SELECT key, path, device_of(key), domain, target, NULL, NULL FROM disks;
DROP TABLE disks;
ALTER TABLE disks_7 RENAME TO disks;
""", """
CREATE TABLE managed (
    id TEXT PRIMARY KEY,
    device TEXT NOT NULL UNIQUE,
    identity TEXT NOT NULL,
    pool TEXT NOT NULL,
    specs TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('attached', 'leaving', 'drained'))
) STRICT;
""")

VERSION = len(_SCHEMAS)

_DOWNGRADE = """
DELETE FROM disks WHERE domain IN (SELECT id FROM managed);
DELETE FROM layers WHERE domain IN (SELECT id FROM managed);
DROP TABLE managed;
"""

# The key of a layer of an older version: its device is between the first colon and the
# number of the inode or sector, or the numbers of the device of the file system.
_KEY = re.compile(r"volume:(?P<volume>.*)|(?:file|block):(?P<device>.*?)(?::\d+:\d+)?:\d+",
                  re.DOTALL)


class UnknownVersion(Exception):
    """The file has a version that this agent does not know."""


def upgrade(db: sqlite3.Connection) -> None:
    """Upgrade an open file to :data:`VERSION`, in the current transaction.

    :raises UnknownVersion: if a newer agent has written it
    """
    version = _version(db)
    if version > VERSION:
        raise UnknownVersion(f"schema version is {version}, from a newer agent; must be at most "
                             f"{VERSION}. That agent can convert the file, by 'vcache-agent "
                             "--store-downgrade'")
    db.create_function("device_of", 1, _device_of, deterministic=True)
    for script in _SCHEMAS[version:]:
        _run(db, script)
    if version < VERSION:
        db.execute(f"PRAGMA user_version = {VERSION}")


def downgrade(db: sqlite3.Connection) -> None:
    """Convert a file of :data:`VERSION` to the version before it, in the current transaction.

    The managed volumes are dropped. Their devices keep their caches, which 'vcache detach' can
    remove.
    """
    _run(db, _DOWNGRADE)
    db.execute(f"PRAGMA user_version = {VERSION - 1}")


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def _run(db: sqlite3.Connection, script: str) -> None:
    for statement in script.split(";"):
        db.execute(statement)


def _device_of(key: str) -> str:
    """Return the name of the device in a key."""
    found = _KEY.fullmatch(key)
    return (found["volume"] or found["device"] or "") if found else ""
