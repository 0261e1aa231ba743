# SPDX-License-Identifier: Apache-2.0
"""Every operation that changes the agent's store, and its content as one text."""

import contextlib
import dataclasses
import os
import sqlite3
import traceback
from collections.abc import Callable
from pathlib import Path

from vcache_agent import schema
from vcache_agent.model import DiskId
from vcache_agent.overrides import NONE, Override
from vcache_agent.records import DiskRow, LayerRow, ManagedVolume, RowChanges, VolumeState
from vcache_agent.store import Store

DAY = 86400.0


def row(domain: str, tag: int, **fields: object) -> DiskRow:
    """Return the row of disk vda of a domain."""
    made = DiskRow(domain, "vda", tag, "name", "/path", f"file:dm0:{domain}", "dm0",
                   "vda")
    return dataclasses.replace(made, **fields)  # type: ignore[arg-type]


def filled(path: Path) -> None:
    """Create a store with a row of each kind."""
    store = Store(path)
    store.update(RowChanges(
        tuple(row(f"old{number}", number, persist=number == 1) for number in range(1, 6)),
        layers=tuple(LayerRow(f"file:dm0:old{number}", "/path", "dm0", f"old{number}", "vda")
                     for number in range(1, 6)), last_tag=5))
    store.set_tag(2, {"weight": 7})
    store.set_policy("static")
    store.set_draining(True)
    for name in ("back", "missing", "expired", "kept"):
        store.set_override(name, Override(weight=5))
    store.tend_overrides({"missing", "kept"}, 0.0, DAY)
    store.remember_volume("8:16", "LVM-a", 1)
    store.remember_volume("8:16", "LVM-b", 2)
    store.manage(volume("managed"))
    store.close()


def volume(name: str, **fields: object) -> ManagedVolume:
    """Return the record of a managed volume."""
    made = ManagedVolume(name, f"/dev/mapper/{name}", f"LVM-{name}", "fast",
                         '{"vcache:mode": "writeback"}', VolumeState.ATTACHED)
    return dataclasses.replace(made, **fields)  # type: ignore[arg-type]


def insert_old(db: sqlite3.Connection, version: int, number: int, path: str = "/path") -> None:
    """Insert a disk into a file of an older agent."""
    if version < 7:
        db.execute("INSERT INTO disks (key, tag, domain, name, target, path) VALUES "
                   "(?, ?, ?, 'name', 'vda', ?)",
                   (f"file:dm0:{number}", number, str(number), path))
        return
    db.execute("INSERT INTO disks (domain, target, tag, name, path, layer, device, current) "
               "VALUES (?, 'vda', ?, 'name', ?, ?, 'dm0', 'vda')",
               (str(number), number, path, f"file:dm0:{number}"))


def update(store: Store) -> None:
    """Write, change and delete rows, as a pass of the worker does."""
    store.update(RowChanges(
        (row("new", 9), row("old1", 1, path="/moved"), row("old2", 12)),
        (DiskId("old3", "vda"), DiskId("old4", "vda")),
        (LayerRow("file:dm0:new", "/path", "dm0", "new", "vda"),
         LayerRow("file:dm0:base", "/base", "dm0", tag=10)),
        ("file:dm0:old3", "file:dm0:old4"), 10))


#: Operations that change a filled store, by the name of the method and what it does.
CHANGES: dict[str, Callable[[Store], object]] = {
    "update": update,
    "set_tag": lambda store: store.set_tag(
        1, {"weight": 900, "mode": "writethrough", "lanes": "1,3"}),
    "set_policy: another": lambda store: store.set_policy("weighted"),
    "set_policy: none": lambda store: store.set_policy(None),
    "set_draining": lambda store: store.set_draining(False),
    "set_limits": lambda store: store.set_limits('{"boot": "b", "limits": []}'),
    "set_override: change": lambda store: store.set_override(
        "kept", Override(weight=9, slo_flush_ms=2.0)),
    "set_override: remove": lambda store: store.set_override("kept", NONE),
    "tend_overrides": lambda store: store.tend_overrides({"back", "kept"}, 2 * DAY, DAY),
    "remember_volume: another device": lambda store: store.remember_volume("8:16", "LVM-c", 1),
    "remember_volume: another volume": lambda store: store.remember_volume("8:16", "LVM-a", 2),
    "forget_volume": lambda store: store.forget_volume("8:16", 1),
    "manage: another": lambda store: store.manage(volume("new"), 30),
    "manage: change": lambda store: store.manage(
        volume("managed", state=VolumeState.DRAINED, pool="")),
    "unmanage": lambda store: store.unmanage("managed"),
    "downgrade": lambda store: store.downgrade(),
}


def file_of(path: Path, version: int) -> sqlite3.Connection:
    """Create a file of an older agent."""
    old = sqlite3.connect(path, isolation_level=None)
    old.create_function("device_of", 1, schema._device_of, deterministic=True)
    for script in schema._SCHEMAS[:version]:
        for statement in script.split(";"):
            old.execute(statement)
    old.execute(f"PRAGMA user_version = {version}")
    return old


def content(path: Path) -> str:
    """Return the content of a file as SQL, and check the file."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA quick_check").fetchall() == [("ok",)]
        version = db.execute("PRAGMA user_version").fetchone()
        return f"{version}\n" + "\n".join(db.iterdump())


def in_child(work: Callable[[], object]) -> int:
    """Run a function in a child process; return its wait status, 0 if it succeeds."""
    child = os.fork()
    if not child:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1]
