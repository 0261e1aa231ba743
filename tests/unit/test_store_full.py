# SPDX-License-Identifier: Apache-2.0
"""The agent's store on a disk that is full: a small tmpfs in a mount namespace of its own."""

import contextlib
import ctypes
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.store_model import CHANGES, content, file_of, filled, in_child, insert_old, row
from vcache_agent import schema
from vcache_agent.records import RowChanges
from vcache_agent.store import Store, StoreError, is_refusal

_CLONE_NEWNS, _CLONE_NEWUSER, _MS_REC, _MS_PRIVATE = 0x20000, 0x10000000, 1 << 14, 1 << 18
_BYTES = 1 << 20
_PAGE = 4096
# More pages than any operation needs.
_MOST = 60


def _mount(folder: Path) -> None:
    """Mount a small file system, which only this process sees; root is not needed."""
    libc = ctypes.CDLL(None, use_errno=True)

    def call(result: int, what: str) -> None:
        if result:
            raise OSError(ctypes.get_errno(), what)

    user, group = os.geteuid(), os.getegid()
    call(libc.unshare(_CLONE_NEWNS | (_CLONE_NEWUSER if user else 0)), "unshare")
    if user:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    call(libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None), "mount /")
    call(libc.mount(b"tmpfs", bytes(folder), b"tmpfs", 0, f"size={_BYTES}".encode()), "mount tmpfs")


class Disk:
    """A small file system.

    :param folder: where it is mounted
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "s.sqlite"
        self._ballast = folder / "ballast"

    def fill(self, free: int = 0) -> None:
        """Fill it, but for some pages."""
        fd = os.open(self._ballast, os.O_WRONLY | os.O_CREAT)
        try:
            with contextlib.suppress(OSError):
                while True:
                    os.write(fd, bytes(_PAGE))
            size = os.fstat(fd).st_size // _PAGE * _PAGE - free * _PAGE
            os.ftruncate(fd, size)
        finally:
            os.close(fd)
        left = os.statvfs(self.folder)
        assert left.f_bavail * left.f_frsize == free * _PAGE

    def empty(self) -> None:
        """Free the space again."""
        self._ballast.unlink()

    def content(self, elsewhere: Path) -> str:
        """Return what another process would read after a crash; without space it cannot."""
        shutil.rmtree(elsewhere, ignore_errors=True)
        elsewhere.mkdir()
        for part in ("s.sqlite", "s.sqlite-wal"):
            if (self.folder / part).exists():
                shutil.copy(self.folder / part, elsewhere)
        return content(elsewhere / "s.sqlite")


OnDisk = Callable[[Callable[[Disk], object]], None]


@pytest.fixture
def on_disk(tmp_path: Path) -> OnDisk:
    """Run a function in a child process with a small file system."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def run(work: Callable[[Disk], object]) -> None:
        def act() -> None:
            _mount(folder)
            work(Disk(folder))

        assert in_child(act) == 0

    return run


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_whole_or_refused(
        on_disk: OnDisk, tmp_path: Path, name: str) -> None:
    """With each number of free pages, until the change succeeds."""
    def work(disk: Disk) -> None:
        refused = 0
        for free in range(_MOST):
            for part in disk.folder.iterdir():
                part.unlink()
            filled(disk.path)
            store = Store(disk.path)
            before = disk.content(tmp_path / "copy")
            disk.fill(free)
            try:
                CHANGES[name](store)
            except (sqlite3.OperationalError, StoreError):
                refused += 1
                assert disk.content(tmp_path / "copy") == before
                if name != "downgrade":
                    assert "full" in store.problem
                assert 1 in store.numbers()  # it can still be read
                disk.empty()
                CHANGES[name](store)
            assert name == "downgrade" or store.problem == ""
            assert disk.content(tmp_path / "copy") != before
            store.close()
            if not refused or free > refused:
                break
        assert 0 < refused < free < _MOST - 1

    on_disk(work)


def test_an_agent_starts_on_a_full_disk(
        on_disk: OnDisk, tmp_path: Path) -> None:
    def work(disk: Disk) -> None:
        filled(disk.path)
        disk.fill()
        with pytest.raises(StoreError):
            Store(disk.path)  # as a command does
        store = Store(disk.path, heal=True)
        assert "cannot be written" in store.problem
        assert len(store.disks()) == 5
        store.check()
        assert store.problem
        assert not store.repair()
        with pytest.raises(sqlite3.OperationalError):
            store.set_policy("weighted")
        assert store.policy() == "static"
        disk.empty()
        store.check()
        assert store.problem == ""
        store.set_policy("weighted")
        # Other processes can open it again.
        other = Store(disk.path)
        assert other.policy() == "weighted"
        other.set_policy("static")
        other.close()
        assert store.policy() == "static"
        assert disk.content(tmp_path / "copy")
        store.close()

    on_disk(work)


def test_an_agent_that_was_killed_on_a_full_disk_starts(
        on_disk: OnDisk) -> None:
    def work(disk: Disk) -> None:
        filled(disk.path)

        def killed() -> None:
            Store(disk.path).set_policy("weighted")
            disk.fill()
            os._exit(0)  # SQLite does not clean up

        assert in_child(killed) == 0
        store = Store(disk.path, heal=True)
        assert store.policy() == "weighted"
        assert len(store.disks()) == 5
        disk.empty()
        store.set_policy("static")
        assert store.problem == ""
        store.close()

    on_disk(work)


@pytest.mark.parametrize("version", range(1, schema.VERSION))
def test_an_upgrade_is_whole_or_refused(
        on_disk: OnDisk, tmp_path: Path, version: int) -> None:
    def work(disk: Disk) -> None:
        old = file_of(disk.path, version)
        for number in range(1, 40):
            insert_old(old, version, number, "/path" * 100)
        old.close()
        before = disk.content(tmp_path / "copy")
        for free in range(_MOST):
            disk.fill(free)
            try:
                store = Store(disk.path, heal=True)
            except StoreError:
                assert disk.content(tmp_path / "copy") == before
                disk.empty()
                continue
            break
        assert 1 < free < _MOST - 1
        assert len(store.numbers()) == 39
        store.close()

    on_disk(work)


def test_a_damaged_file_on_a_full_disk_is_replaced_later(
        on_disk: OnDisk) -> None:
    def work(disk: Disk) -> None:
        store = Store(disk.path)
        store.update(RowChanges(tuple(row(f"u{number}", number) for number in range(1, 300))))
        store.close()
        store = Store(disk.path, heal=True)
        data = bytearray(disk.path.read_bytes())
        middle = len(data) // 2 // _PAGE * _PAGE
        data[middle:middle + _PAGE] = b"\xff" * _PAGE
        disk.path.write_bytes(data)
        disk.fill()
        with pytest.raises(StoreError, match="cannot be replaced"):
            store.repair()
        with pytest.raises(sqlite3.Error):
            store.disks()
        disk.empty()
        store.repair()
        assert store.disks() == {}
        store.update(RowChanges((row("u", 5),)))
        assert store.numbers() == {5}
        store.close()
        (aside,) = [one for one in disk.folder.iterdir() if one.name.endswith(tuple("0123456789"))]
        assert aside.read_bytes() == bytes(data)

    on_disk(work)


def test_what_is_a_refusal(tmp_path: Path) -> None:
    (tmp_path / "none").write_bytes(b"not a database" * 100)
    for statement, refused in (("PRAGMA max_page_count = 1; CREATE TABLE a (b)", True),
                               ("SELECT * FROM a", False), ("ATTACH 'none' AS c", False)):
        with contextlib.closing(sqlite3.connect(":memory:")) as db:
            statement = statement.replace("none", str(tmp_path / "none"))
            with pytest.raises(sqlite3.Error) as error:
                db.executescript(statement)
            assert is_refusal(error.value) is refused
