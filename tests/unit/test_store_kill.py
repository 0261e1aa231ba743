# SPDX-License-Identifier: Apache-2.0
"""The agent is killed before each statement of each operation that changes its store.

A child process executes the operation. It sends SIGKILL to itself before its n-th step, for
all n. A step is an SQL statement, an instruction of SQLite's virtual machine, or a change of
a file by the agent.
"""

import inspect
import os
import shutil
import signal
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.store_model import CHANGES, content, file_of, filled, in_child, insert_old, row
from vcache_agent import schema
from vcache_agent.records import RowChanges
from vcache_agent.store import Store

_MOST = 2000
_FILE_CHANGES = ("os.rename", "os.mkdir", "os.remove", "sqlite3.connect")
_REAL_CONNECT = sqlite3.connect


class Deadly:
    """Kills its process at a step.

    :param left: number of steps before that
    :param every: also count each `every`-th instruction of SQLite; 0: none
    """

    def __init__(self, left: int, every: int = 0) -> None:
        self._left = left
        self._every = every

    def arm(self) -> None:
        """Begin to count; for a process that does nothing else afterwards."""
        sys.addaudithook(self._audit)
        sqlite3.connect = self._connect  # type: ignore[assignment]

    def _connect(self, *arguments: Any, **options: Any) -> sqlite3.Connection:
        db = _REAL_CONNECT(*arguments, **options)
        self.watch(db)
        return db

    def watch(self, db: sqlite3.Connection) -> None:
        """Count the statements of a connection."""
        db.set_trace_callback(self._step)
        if self._every:
            db.set_progress_handler(self._step, self._every)

    def _audit(self, event: str, _: tuple[object, ...]) -> None:
        if event in _FILE_CHANGES:
            self._step()

    def _step(self, *_: object) -> None:
        if not self._left:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1


def sweep(folder: Path, work: Callable[[Path], object], check: Callable[[Path, bool], None], *,
          every: int = 0) -> int:
    """Kill an operation at each of its steps; return the number of steps.

    :param folder: the files before the operation
    :param work: the operation, in a copy of the folder
    :param check: checks the copy; the second parameter is whether the operation was killed
    """
    for step in range(_MOST):
        copy = folder.with_name(f"{folder.name}-{step}")
        shutil.copytree(folder, copy)

        def act(step: int = step, copy: Path = copy) -> None:
            Deadly(step, every).arm()
            work(copy / "s.sqlite")

        status = in_child(act)
        killed = os.WIFSIGNALED(status)
        assert os.WTERMSIG(status) == signal.SIGKILL if killed else status == 0
        check(copy / "s.sqlite", killed)
        shutil.rmtree(copy)
        if not killed:
            return step
    raise AssertionError(f"the operation did not end within {_MOST} steps")


def old_or_new(folder: Path, work: Callable[[Path], object], every: int = 0) -> int:
    """Check that an operation, wherever it is killed, leaves the old or the new content."""
    path = folder / "s.sqlite"
    old = content(path) if path.exists() else "none"
    whole = folder.with_name("whole")
    shutil.copytree(folder, whole)
    assert in_child(lambda: work(whole / "s.sqlite")) == 0
    new = content(whole / "s.sqlite")
    assert new != old
    seen = set()

    def check(path: Path, killed: bool) -> None:
        found = content(path) if path.exists() else "none"
        empty = old == "none" and found == EMPTY
        assert found in ((old, new) if killed else (new,)) or empty
        seen.add("none" if empty else found)
        # The agent that starts then works with it.
        store = Store(path)
        store.update(RowChanges((row("later", 77),)))
        assert 77 in store.numbers()
        store.close()

    steps = sweep(folder, work, check, every=every)
    assert seen == {old, new}
    return steps


#: SQLite has created the file, but no transaction has been committed.
EMPTY = "(0,)\nBEGIN TRANSACTION;\nCOMMIT;"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder for the files before an operation."""
    path = tmp_path / "before"
    path.mkdir()
    return path


def test_all_operations_are_in_the_list() -> None:
    changing = {
        name for name, function in inspect.getmembers(Store, inspect.isfunction)
        if not name.startswith("_") and "self._transaction()" in inspect.getsource(function)}
    # check() changes nothing.
    assert changing - {"check"} == {name.partition(":")[0] for name in CHANGES}
    assert {"tend_overrides", "downgrade", "update"} <= changing


@pytest.mark.parametrize("name", CHANGES)
def test_killed_before_each_statement(folder: Path, name: str) -> None:
    filled(folder / "s.sqlite")

    def work(path: Path) -> None:
        CHANGES[name](Store(path))

    # At least: open, BEGIN, one change, COMMIT.
    assert old_or_new(folder, work) >= 8


@pytest.mark.parametrize("name", ["update", "downgrade"])
def test_killed_within_statements(folder: Path, name: str) -> None:
    filled(folder / "s.sqlite")

    def work(path: Path) -> None:
        CHANGES[name](Store(path))

    assert old_or_new(folder, work, every=10) > 50


@pytest.mark.parametrize("version", range(1, schema.VERSION))
def test_killed_in_an_upgrade(folder: Path, version: int) -> None:
    old = file_of(folder / "s.sqlite", version)
    for number in range(1, 4):
        insert_old(old, version, number)
    old.close()
    assert old_or_new(folder, lambda path: Store(path).close()) >= 10


def test_killed_when_the_file_is_created(folder: Path) -> None:
    assert old_or_new(folder, lambda path: Store(path).close()) >= 10


def test_killed_when_a_damaged_file_is_replaced(folder: Path) -> None:
    path = folder / "s.sqlite"
    store = Store(path)
    store.update(RowChanges(tuple(row(f"u{number}", number) for number in range(1, 300))))
    store.close()
    data = bytearray(path.read_bytes())
    middle = len(data) // 2 // 4096 * 4096
    data[middle:middle + 4096] = b"\xff" * 4096
    path.write_bytes(data)
    kept = 0

    def check(path: Path, killed: bool) -> None:
        nonlocal kept
        # The agent that starts then completes the replacement.
        store = Store(path, heal=True)
        assert store.disks() == {}
        store.close()
        assert content(path)
        # The damaged file is kept for an examination, whatever happens.
        aside = [one for one in path.parent.iterdir() if "damaged" in one.name]
        assert bytes(data) in [one.read_bytes() for one in aside]
        kept += 1

    assert sweep(folder, lambda path: Store(path, heal=True).close(), check) >= 10
    assert kept > 10


def test_a_kill_is_seen(folder: Path) -> None:
    """The sweep finds an operation of two transactions."""
    filled(folder / "s.sqlite")

    def twice(path: Path) -> None:
        store = Store(path)
        store.set_policy("weighted")
        store.set_draining(False)

    with pytest.raises(AssertionError):
        old_or_new(folder, twice)
