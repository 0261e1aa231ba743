# SPDX-License-Identifier: Apache-2.0
"""Tag numbers, and the file that stores them."""

import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcache_agent import store as store_module
from vcache_agent.store import Assignment, Store, StoreError
from vcache_agent.tags import TagsExhausted, allocate

LARGEST = 65535


def row(key: str, tag: int, **fields: object) -> Assignment:
    return Assignment(key, tag, "uuid", "name", "vda", "/path", **fields)  # type: ignore[arg-type]


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
    store.update([row("a", 1), row("b", 2, weight=7, released=1.5)], last_tag=2)
    store.close()
    again = Store(tmp_path / "new" / "s.sqlite")
    assert again.assignments() == {"a": row("a", 1), "b": row("b", 2, weight=7, released=1.5)}
    assert again.last_tag() == 2
    again.update([row("a", 9)], ["b"])
    assert again.assignments() == {"a": row("a", 9)}
    assert again.set_weight(9, 30)
    assert not again.set_weight(1, 30)
    assert again.assignments()["a"].weight == 30
    again.close()


def test_a_file_of_the_first_version_is_kept(tmp_path: Path) -> None:
    old = sqlite3.connect(tmp_path / "s.sqlite")
    for statement in store_module._SCHEMAS[0].split(";"):
        old.execute(statement)
    old.execute("INSERT INTO disks VALUES ('a', 1, 'uuid', 'name', 'vda', '/path', 7, NULL)")
    old.execute("PRAGMA user_version = 1")
    old.commit()
    old.close()
    store = Store(tmp_path / "s.sqlite")
    assert store.assignments() == {"a": row("a", 1, weight=7)}
    assert store.set_mode(1, "writethrough")
    assert not store.set_mode(2, None)
    assert store.assignments()["a"].mode == "writethrough"
    assert store.set_lanes(1, "1,3")
    assert not store.set_lanes(2, "0")
    assert store.assignments()["a"].lanes == "1,3"
    store.close()


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
    store.close()


def test_an_update_is_all_or_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.sqlite")
    store.update([row("a", 1)])
    with pytest.raises(sqlite3.IntegrityError):
        store.update([row("b", 2), row("c", 1)], ["a-not-there"], 5)
    assert store.assignments() == {"a": row("a", 1)}
    assert store.last_tag() == 0
    store.update([row("c", 1)], ["a"])  # a number may move in one transaction
    assert store.assignments() == {"c": row("c", 1)}
    store.close()


def test_a_disk_that_is_full_is_what_is_told(tmp_path: Path) -> None:
    """SQLite rolls back by itself. A second ROLLBACK would hide the error."""
    store = Store(tmp_path / "s.sqlite")
    store._db.execute("PRAGMA max_page_count = 12")
    with pytest.raises(sqlite3.OperationalError, match="full"):
        store.update([row("x" * 5000 + str(number), 1 + number) for number in range(50)])
    store._db.execute("PRAGMA max_page_count = 100000")
    store.update([row("a", 1)])
    assert store.assignments() == {"a": row("a", 1)}
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
        store.update([row("a", 1)])
    store._db = real
    store.update([row("b", 2)])
    assert store.assignments() == {"b": row("b", 2)}
    store.close()


def test_files_that_are_not_ours(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    damaged.write_bytes(b"this is not a database" * 100)
    newer = tmp_path / "newer"
    sqlite3.connect(newer).execute("PRAGMA user_version = 99").connection.close()
    with pytest.raises(StoreError, match="damaged"):
        Store(damaged)
    with pytest.raises(StoreError, match="newer agent"):
        Store(newer)


WRITER = """
import sys
from pathlib import Path
from vcache_agent.store import Assignment, Store
store = Store(Path(sys.argv[1]))
first = store.last_tag() + 1
for number in range(first, first + 100000):
    # Two rows that belong together, and the counter.
    store.update([Assignment(f"{side}{number}", 2 * number + add, "u", "n", "vda", "/p")
                  for add, side in enumerate("ab")],
                 [f"{side}{number - 50}" for side in "ab"], number)
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
        last, rows = store.last_tag(), store.assignments()
        store.close()
        assert last >= said
        numbers = range(max(1, last - 49), last + 1)
        assert set(rows) == {f"{side}{number}" for number in numbers for side in "ab"}
    assert said > 8
