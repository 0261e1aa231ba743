# SPDX-License-Identifier: Apache-2.0
"""Tag numbers, and the file that stores them."""

import dataclasses
import fcntl
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.store_model import file_of, row, volume
from vcache_agent import schema
from vcache_agent.model import DiskId
from vcache_agent.records import DiskRow, LayerRow, RowChanges, VolumeState
from vcache_agent.store import Store, StoreError
from vcache_agent.tags import TagsExhausted, allocate

LARGEST = 65535


def rows(*found: DiskRow) -> dict[tuple[str, str], DiskRow]:
    return {row.id: row for row in found}


def write(store: Store, *disks: DiskRow, forgotten: str = "", last_tag: int | None = None) -> None:
    store.update(RowChanges(disks, tuple(DiskId(domain, "vda") for domain in forgotten),
                            last_tag=last_tag))


@given(st.integers(0, LARGEST), st.sets(st.integers(1, LARGEST), max_size=50))
def test_the_next_free_number_in_turn(last: int, taken: set[int]) -> None:
    tag = allocate(last, taken)
    assert 1 <= tag <= LARGEST
    assert tag not in taken
    passed_over = range(last + 1, tag) if tag > last else [*range(last + 1, LARGEST + 1),
                                                          *range(1, tag)]
    assert set(passed_over) <= taken


def test_the_last_free_number_and_none() -> None:
    assert allocate(7, set(range(1, LARGEST + 1)) - {3}) == 3
    with pytest.raises(TagsExhausted, match="65535"):
        allocate(7, set(range(1, LARGEST + 1)))


def test_what_is_written_is_there_again(tmp_path: Path) -> None:
    store = Store(tmp_path / "new" / "s.sqlite")
    layers = (LayerRow("file:dm0:1", "/a", "dm0", "a", "vda"),
              LayerRow("file:dm0:2", "/b", "dm0", tag=3, released=2.5))
    store.update(RowChanges((row("a", 1, persist=True), row("b", 2, weight=7, released=1.5)),
                            layers=layers, last_tag=2))
    store.close()
    again = Store(tmp_path / "new" / "s.sqlite")
    assert again.disks() == rows(row("a", 1, persist=True), row("b", 2, weight=7, released=1.5))
    assert again.layers() == {layer.key: layer for layer in layers}
    assert again.last_tag() == 2
    assert again.numbers() == {1, 2, 3}
    shared = dataclasses.replace(layers[1], tag=None, released=None)
    again.update(RowChanges((row("a", 9),), (DiskId("b", "vda"),), (shared,), ("file:dm0:1",)))
    assert again.disks() == rows(row("a", 9))
    assert again.layers() == {shared.key: shared}
    assert again.numbers() == {9}
    assert again.set_tag(9, {"weight": 30})
    assert not again.set_tag(1, {"weight": 30})
    assert again.disks() == rows(row("a", 9, weight=30))
    again.close()


def test_a_plan_does_not_write_what_operators_set(tmp_path: Path) -> None:
    """It was made before the operator's command."""
    store = Store(tmp_path / "s.sqlite")
    planned = row("a", 1, path="/new", device="dm1")
    write(store, row("a", 1))
    store.set_tag(1, {"weight": 30})
    store.set_tag(1, {"mode": "writethrough"})
    store.set_tag(1, {"lanes": "1,3"})
    write(store, planned)
    assert store.disks() == rows(dataclasses.replace(
        planned, weight=30, mode="writethrough", lanes="1,3"))
    store.close()


def test_disks_that_are_one_have_their_settings_together(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.sqlite")
    write(store, row("a", 1), row("b", 1), row("c", 2))
    assert store.set_tag(1, {"weight": 30})
    assert store.disks() == rows(row("a", 1, weight=30), row("b", 1, weight=30), row("c", 2))
    store.close()


def test_a_file_of_the_first_version_is_kept(tmp_path: Path) -> None:
    old = file_of(tmp_path / "s.sqlite", 1)
    old.execute("INSERT INTO disks VALUES ('file:dm0:1', 1, 'a', 'name', 'vda', '/path', 7, NULL)")
    old.close()
    store = Store(tmp_path / "s.sqlite")
    assert store.disks() == rows(row("a", 1, weight=7, layer="file:dm0:1"))
    assert store.layers() == {"file:dm0:1": LayerRow("file:dm0:1", "/path", "dm0", "a", "vda")}
    assert store.set_tag(1, {"mode": "writethrough"})
    assert not store.set_tag(2, {"mode": None})
    assert store.disks()[DiskId("a", "vda")].mode == "writethrough"
    assert store.set_tag(1, {"lanes": "1,3"})
    assert not store.set_tag(2, {"lanes": "0"})
    assert store.disks()[DiskId("a", "vda")].lanes == "1,3"
    store.close()


OLD_ROW = "INSERT INTO disks VALUES (?, ?, ?, 'name', ?, ?, ?, ?, 'writethrough', 1, '2')"


def test_of_several_files_of_a_disk_the_one_in_use_counts(tmp_path: Path) -> None:
    """The key of a disk was its file, so a disk could have had several."""
    old = file_of(tmp_path / "s.sqlite", 6)
    for values in (("file:dm0:2", 2, "a", "vda", "/2", 20, None),
                   ("file:dm0:1", 1, "a", "vda", "/1", 10, 5.0),
                   ("file:dm0:4", 4, "b", "vda", "/4", 40, 9.0),
                   ("file:dm0:3", 3, "b", "vda", "/3", 30, 8.0)):
        old.execute(OLD_ROW, values)
    old.execute("INSERT INTO settings VALUES ('policy', 'static')")
    old.close()
    store = Store(tmp_path / "s.sqlite")
    kept = {"mode": "writethrough", "persist": True, "lanes": "2"}
    assert store.disks() == rows(
        row("a", 2, path="/2", weight=20, layer="file:dm0:2", **kept),
        row("b", 4, path="/4", weight=40, released=9.0, layer="file:dm0:4", **kept))
    assert {key: layer.owner for key, layer in store.layers().items()} == {
        "file:dm0:1": ("a", "vda"), "file:dm0:2": ("a", "vda"),
        "file:dm0:3": ("b", "vda"), "file:dm0:4": ("b", "vda")}
    assert store.policy() == "static"
    store.close()


@pytest.mark.parametrize(("key", "device"), [
    ("file:a:7", "a"), ("file:a:b:7", "a:b"), ("file:a:254:3:7", "a"), ("file:a:b:254:3:7", "a:b"),
    ("block:a:0", "a"), ("volume:a:b", "a:b"), ("volume:a\nb", "a\nb"), ("odd", ""), ("", "")])
def test_whose_device_an_old_key_names(key: str, device: str) -> None:
    assert schema._device_of(key) == device


def test_managed_volumes(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.sqlite")
    write(store, row("vm", 1))
    store.manage(volume("a"), 7)
    store.manage(volume("b", pool=""), 8)
    assert (store.numbers(), store.last_tag()) == ({1, 7, 8}, 8)
    assert store.disks()[DiskId("a", "volume")].tag == 7
    store.manage(volume("a", state=VolumeState.LEAVING))
    assert store.disks()[DiskId("a", "volume")].tag == 7
    store.close()
    store = Store(tmp_path / "s.sqlite")
    assert store.managed() == {"a": volume("a", state=VolumeState.LEAVING),
                               "b": volume("b", pool="")}
    store.unmanage("a")
    store.unmanage("unknown")
    assert (set(store.managed()), store.numbers()) == ({"b"}, {1, 8})
    store.close()


def test_a_downgraded_file_is_one_of_the_version_before(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    store = Store(path)
    running = row("a", 1, layer="file:dm0:7:g0000001f", weight=5, mode="flush-only", lanes="1")
    store.update(RowChanges(
        (running, row("b", 1, layer=running.layer, released=3.0)),
        layers=(LayerRow(running.layer, "/path", "dm0", "a", "vda"),
                LayerRow("volume:lv", "/dev/lv", "lv", "volume", "volume")), last_tag=9))
    store.remember_volume("8:16", "LVM-a", 1)
    store.manage(volume("volume"), 12)
    assert store.downgrade() == 7
    old = sqlite3.connect(path)
    fresh = file_of(tmp_path / "fresh", 7)
    schemas = [[(name, [column[1:] for column in db.execute(f"PRAGMA table_info({name})")])
                for (name,) in db.execute(
                    "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
               for db in (old, fresh)]
    assert schemas[0] == schemas[1]
    assert old.execute("PRAGMA user_version").fetchone() == (7,)
    assert old.execute("SELECT * FROM volumes").fetchall() == [("8:16", "LVM-a", 1)]
    assert old.execute("SELECT value FROM meta").fetchall() == [(12,)]
    old.close()
    # The way back: only the managed volume is forgotten.
    store = Store(path)
    assert store.disks() == rows(running, row("b", 1, layer=running.layer, released=3.0))
    assert set(store.layers()) == {running.layer}
    assert store.managed() == {}
    store.close()


def agent(path: Path) -> subprocess.CompletedProcess[str]:
    """Run vcache-agent --store-downgrade."""
    (path.parent / "agent.conf").write_text(f"[agent]\nstate_path = {path}\n")
    return subprocess.run(
        [sys.executable, "-m", "vcache_agent.cmd.agent", "--config-file",
         str(path.parent / "agent.conf"), "--store-downgrade"],
        capture_output=True, text=True, check=False)


def test_the_command_that_downgrades(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    done = agent(path)
    assert done.returncode == 1
    assert "does not exist" in done.stdout + done.stderr
    store = Store(path)
    write(store, row("a", 1))
    store.close()
    with open(path.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = agent(path)
        assert (done.returncode, "another vcache-agent" in done.stdout + done.stderr) == (
            1, True)
    done = agent(path)
    assert (done.returncode, done.stdout) == (0, f"{path} has schema version 7 now\n")
    old = sqlite3.connect(path)
    assert old.execute("SELECT layer, tag FROM disks").fetchall() == [("file:dm0:a", 1)]
    old.close()


def test_an_operators_policy_is_kept(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.sqlite")
    assert store.policy() is None
    store.set_policy("static")
    store.set_policy("weighted")
    store.close()
    store = Store(tmp_path / "s.sqlite")
    assert store.policy() == "weighted"
    store.set_policy(None)
    assert store.policy() is None
    store.close()


def test_a_volume_is_of_one_device_and_a_device_has_one(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.sqlite")
    store.remember_volume("8:16", "LVM-a", 1)
    store.remember_volume("8:16", "LVM-b", 2)
    store.remember_volume("8:32", "LVM-a", 1)
    assert store.volumes("8:16") == {"LVM-a": 1, "LVM-b": 2}
    store.forget_volume("8:16", 1)
    assert store.volumes("8:16") == {"LVM-b": 2}
    assert store.volumes("8:32") == {"LVM-a": 1}
    store.remember_volume("8:16", "LVM-c", 2)
    assert store.volumes("8:16") == {"LVM-c": 2}
    store.remember_volume("8:16", "LVM-c", 3)
    assert store.volumes("8:16") == {"LVM-c": 3}
    store.close()


def test_an_update_is_all_or_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.sqlite")
    write(store, row("a", 1))
    with pytest.raises(sqlite3.IntegrityError):
        write(store, row("b", 2), row("c", 65536), forgotten="a", last_tag=5)
    assert store.disks() == rows(row("a", 1))
    assert store.last_tag() == 0
    store.close()


def test_a_commit_that_fails_leaves_no_transaction(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.sqlite")
    real = store._db

    class Refusing:
        def execute(self, text: str, *arguments: object) -> object:
            if text == "COMMIT":
                raise sqlite3.OperationalError("disk I/O error")
            return real.execute(text, *arguments)  # type: ignore[arg-type]

        def __getattr__(self, name: str) -> object:
            return getattr(real, name)

    store._db = Refusing()  # type: ignore[assignment]
    with pytest.raises(sqlite3.OperationalError, match="disk I/O error"):
        write(store, row("a", 1))
    store._db = real
    write(store, row("b", 2))
    assert store.disks() == rows(row("b", 2))
    store.close()


def test_files_that_are_not_ours(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    damaged.write_bytes(b"this is not a database" * 100)
    newer = tmp_path / "newer"
    sqlite3.connect(newer).execute("PRAGMA user_version = 99").connection.close()
    with pytest.raises(StoreError, match="damaged"):
        Store(damaged)
    with pytest.raises(StoreError, match="newer agent.*--store-downgrade"):
        Store(newer)


WRITER = """
import sys
from pathlib import Path
from vcache_agent.model import DiskId
from vcache_agent.records import DiskRow, RowChanges
from vcache_agent.store import Store
store = Store(Path(sys.argv[1]))
first = store.last_tag() + 1
for number in range(first, first + 100000):
    # Two rows that belong together, and the counter.
    store.update(RowChanges(
        tuple(DiskRow(f"{side}{number}", "vda", number % 65535 + 1, "n", "/p", "", "", "vda")
              for side in "ab"),
        tuple(DiskId(f"{side}{number - 50}", "vda") for side in "ab"), last_tag=number))
    print(number, flush=True)
"""


def test_kill_at_any_moment_leaves_whole_updates(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    chance = random.Random(4711)
    said = 0
    for _ in range(8):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)],
                                  stdout=subprocess.PIPE)
        assert writer.stdout
        first = int(writer.stdout.readline())
        time.sleep(chance.random() / 20)
        writer.send_signal(signal.SIGKILL)
        lines = writer.stdout.read().split()
        writer.stdout.close()
        assert writer.wait() == -signal.SIGKILL
        # A line may be truncated, but the lines before it were written.
        said = max([first, *(int(line) for line in lines[:-1])])
        store = Store(path)
        last, domains = store.last_tag(), {disk.domain for disk in store.disks()}
        store.close()
        assert last >= said
        numbers = range(max(1, last - 49), last + 1)
        assert domains == {f"{side}{number}" for number in numbers for side in "ab"}
    assert said > 8


def damage(path: Path) -> None:
    """Overwrite a page in the middle of the file."""
    data = bytearray(path.read_bytes())
    middle = len(data) // 2 // 4096 * 4096
    data[middle:middle + 4096] = b"\xff" * 4096
    path.write_bytes(data)


def filled(path: Path, many: int = 300) -> None:
    store = Store(path)
    write(store, *(row(f"u{number}", number) for number in range(1, many)))
    store.close()


def test_a_damaged_file_is_moved_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "s.sqlite"
    filled(path)
    damage(path)
    with pytest.raises(StoreError):
        Store(path)  # as a command does
    store = Store(path, heal=True)
    assert store.disks() == {}
    write(store, row("u", 5))
    store.close()
    (aside,) = [one for one in tmp_path.iterdir() if "damaged" in one.name]
    assert aside.stat().st_size > 8192
    assert f"It is kept as {aside}" in caplog.text
    again = Store(path)
    assert again.disks() == rows(row("u", 5))
    again.close()


def test_a_file_that_is_no_database_is_moved_aside(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    path.write_bytes(b"not a database, but long enough to be one" * 200)
    store = Store(path, heal=True)
    assert store.last_tag() == 0
    store.close()
    assert any("damaged" in one.name for one in tmp_path.iterdir())


def test_a_file_that_is_damaged_while_it_is_open(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    filled(path)
    store = Store(path)
    assert not store.repair()
    assert len(store.disks()) == 299
    damage(path)
    assert store.repair()
    assert store.disks() == {}
    write(store, row("u", 5))
    assert store.disks() == rows(row("u", 5))
    store.close()


def test_a_file_that_cannot_be_opened_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    path.mkdir()
    with pytest.raises(StoreError, match="unable to open"):
        Store(path, heal=True)
    assert path.is_dir()
    assert list(tmp_path.iterdir()) == [path]


def test_volumes_are_recorded_while_others_write(tmp_path: Path) -> None:
    """SQLite refuses to change how a connection syncs within a transaction."""
    store = Store(tmp_path / "s.sqlite")
    problems: list[BaseException] = []

    def record() -> None:
        try:
            for number in range(1, 200):
                store.remember_volume("pool", f"device{number}", number)
        except sqlite3.Error as error:
            problems.append(error)

    thread = threading.Thread(target=record)
    thread.start()
    number = 0
    while thread.is_alive():
        number += 1
        write(store, row("u", number % LARGEST + 1))
    thread.join()
    assert problems == []
    assert len(store.volumes("pool")) == 199
    store.close()
