# SPDX-License-Identifier: Apache-2.0
"""The oracle for files of a mounted crash image."""

import struct

import pytest

from tests.powercut import stamps
from tests.powercut.files import FileOracle
from tests.powercut.journal import NEVER, Journal, Op
from tests.powercut.scenario import Scenario, Tag, Worker

NEW = 8000


def dumped(files: dict[int, list[int]]) -> bytes:
    return b"".join(
        struct.pack("<IIQ", file, len(ops), len(ops) * 512) + struct.pack(f"<{len(ops)}Q", *ops)
        for file, ops in files.items())


def op(number: int, kind: str, submit: int, complete: int = NEVER, *, file: int = NEW,
       sector: int = 0, count: int = 2, detail: str = "-") -> Op:
    return Op(8 << 32 | number, kind, file, sector, count, detail, submit, complete)


def name(number: int) -> int:
    return 8 << 32 | number


CREATE, WRITE, FLUSH = op(1, "N", 1, 2, count=0), op(2, "W", 3, 4), op(3, "F", 5, 6, count=0)
IMAGE = {1: [0, 0]}


def wrong(ops: list[Op], time: int, files: dict[int, list[int]]) -> list[str]:
    scenario = Scenario("s", "vcache", "ext4", 1, [Worker(8, "files", "a", 64, {"append": 1})],
                        [Tag(1, 1, 2, ["a"])])
    return FileOracle(scenario, Journal(ops=ops)).check(time, dumped({**IMAGE, **files}))


def test_a_new_file_may_be_missing_until_it_is_flushed() -> None:
    assert wrong([CREATE, WRITE, FLUSH], 5, {}) == []
    assert wrong([CREATE, WRITE, FLUSH], 6, {}) == [f"file {NEW} is missing"]


def test_an_image_may_never_be_missing() -> None:
    oracle = FileOracle(Scenario("s", "vcache", "ext4", 1, [], [Tag(1, 1, 2, ["a"])]), Journal())
    assert oracle.check(1, b"") == ["file 1 is missing"]


def test_flushed_content_must_be_there() -> None:
    ops = [CREATE, WRITE, FLUSH]
    assert wrong(ops, 6, {NEW: [name(2), name(2)]}) == []
    for content in ([], [name(2)], [name(2), 0]):
        assert wrong(ops, 6, {NEW: content})
        assert wrong(ops, 5, {NEW: content}) == []


@pytest.mark.parametrize("content", [stamps.FOREIGN, stamps.TORN, name(77)])
def test_content_of_others_is_caught_at_any_time(content: int) -> None:
    assert wrong([CREATE, WRITE], 5, {NEW: [content, 0]})


def test_a_deleted_file_may_be_there_cut_short_or_gone() -> None:
    ops = [CREATE, WRITE, FLUSH, op(4, "U", 7, 8, count=0)]
    allowed: list[dict[int, list[int]]] = [{}, {NEW: []}, {NEW: [name(2), name(2)]}]
    for files in allowed:
        assert wrong(ops, 8, files) == []
    assert wrong(ops, 8, {NEW: [stamps.FOREIGN, 0]})


def test_content_behind_all_writes_is_caught() -> None:
    assert wrong([CREATE, WRITE], 5, {NEW: [0, 0, name(2)]}) == [
        f"file {NEW}: content behind all that was written"]


def test_a_file_that_nobody_made_is_caught() -> None:
    assert wrong([], 5, {4242: []}) == ["file 4242 was never made"]
