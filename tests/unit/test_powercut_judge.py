# SPDX-License-Identifier: Apache-2.0
"""Synthetic recordings: a correct one passes, each planted violation is detected."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.powercut import judge, logwrites, pools, stamps
from tests.powercut.crash import Cut, Origin
from tests.powercut.judge import Recording, Verdict
from tests.powercut.logwrites import Flag
from tests.powercut.scenario import Scenario, Tag, Worker

SECTORS = 16
WRITE = 1 << 32 | 1
AGAIN = 1 << 32 | 2
FLUSH = 1 << 32 | 3


class Tape:
    """Creates a recording, event by event."""

    def __init__(self, folder: Path, fs: str = "", cache_mb: int = 0) -> None:
        self.folder = folder
        self.events: list[str] = ["tracing_mark_write: pc mark start"]
        self.entries: list[tuple[Flag, int, int, bytes]] = []
        worker = Worker(1, "range", "a", SECTORS, {"write": 1}, file=1 if fs else 0)
        tag = Tag(7, 1 if fs else 0, SECTORS, ["a"])
        Scenario("tape", "vcache", "ext4" if fs else "", 1, [worker], [tag],
                 megabytes=1, cache_mb=cache_mb).save(folder / "scenario.json")
        # An image in two parts, in the wrong order on the device.
        extents = {"1": [[0, 108, 8], [8, 100, 8]]} if fs else {}
        (folder / "extents.json").write_text(json.dumps(extents))

    def load(self, event: str) -> None:
        self.events.append(f"tracing_mark_write: pc {event}")

    def sent(self, sector: int, count: int, rwbs: str = "WFS") -> None:
        self.events.append(f"block_bio_queue: 252,0 {rwbs} {sector} + {count} [x]")

    def done(self, sector: int, count: int, data: bytes, rwbs: str = "WFS") -> None:
        self.events.append(f"block_bio_complete: 252,0 {rwbs} {sector} + {count} [0]")
        self.entries.append((Flag.FUA if "F" in rwbs else Flag(0), sector, count, data))

    def wrote(self, op: int, sector: int = 0, count: int = 4, file: int = 0) -> None:
        self.load(f"W {op} {file} {sector} {count} -")
        self.load(f"C {op} 0")

    def flushed(self, op: int = FLUSH, file: int = 0) -> None:
        self.load(f"F {op} {file} fdatasync")
        self.load(f"C {op} 0")

    def recording(self) -> Recording:
        self.load("mark end")
        (self.folder / "trace.txt").write_text("".join(
            f" x-1 [000] ..... {time}: {event}\n" for time, event in enumerate(self.events, 1)))
        logwrites.write(self.folder / "log", self.entries)
        return Recording(self.folder)

    def judged(self, origin: Origin | None = None) -> Verdict:
        recording = self.recording()
        cuts = judge.choose(recording.journal, 1, None)
        return judge.judge(recording, cuts, origin or Origin())


@pytest.fixture
def tape(tmp_path: Path) -> Tape:
    return Tape(tmp_path)


def first(verdict: Verdict) -> str:
    assert verdict.findings, "the violation was not noticed"
    return verdict.findings[0].violations[0]


def sound(tape: Tape) -> None:
    data = stamps.make(WRITE, 0, 0, 4)
    tape.wrote(WRITE)
    tape.sent(0, 4)
    tape.done(0, 4, data)
    tape.flushed()


def test_a_sound_recording_passes(tape: Tape) -> None:
    sound(tape)
    verdict = tape.judged()
    assert verdict.cuts > 3
    assert verdict.violations == 0
    assert verdict.demands > 0


def test_a_dropped_fua_is_caught(tape: Tape) -> None:
    tape.wrote(WRITE)
    tape.sent(0, 4, "WS")
    tape.done(0, 4, stamps.make(WRITE, 0, 0, 4), "WS")
    tape.flushed()
    assert "zeroes, but the write sent at" in first(tape.judged())


def test_a_flush_that_completes_early_is_caught(tape: Tape) -> None:
    tape.wrote(WRITE)
    tape.sent(0, 4)
    tape.flushed()
    tape.done(0, 4, stamps.make(WRITE, 0, 0, 4))
    assert "was made durable" in first(tape.judged())


def test_an_older_version_that_comes_last_is_caught(tape: Tape) -> None:
    tape.wrote(WRITE)
    tape.wrote(AGAIN)
    for op in (AGAIN, WRITE):
        tape.sent(0, 4)
        tape.done(0, 4, stamps.make(op, 0, 0, 4))
    tape.flushed()
    assert "op 1.1, but the write sent at" in first(tape.judged())


def test_torn_content_is_caught(tape: Tape) -> None:
    old, new = stamps.make(WRITE, 0, 0, 1), stamps.make(AGAIN, 0, 0, 1)
    tape.wrote(WRITE, count=1)
    tape.wrote(AGAIN, count=1)
    tape.sent(0, 1)
    tape.done(0, 1, old[:100] + new[100:])
    verdict = tape.judged()
    assert "torn when they were written" in first(verdict)
    assert "torn" in verdict.findings[-1].violations[0]


def test_misplaced_content_is_caught(tape: Tape) -> None:
    tape.wrote(WRITE)
    tape.sent(4, 4)
    tape.done(4, 4, stamps.make(WRITE, 0, 0, 4))
    assert "another place's" in first(tape.judged())


def test_two_versions_at_the_origin_at_once_are_caught(tape: Tape) -> None:
    tape.wrote(WRITE, count=1)
    tape.wrote(AGAIN, count=1)
    tape.sent(0, 1)
    tape.sent(0, 2)
    tape.done(0, 1, stamps.make(WRITE, 0, 0, 1))
    tape.done(0, 2, stamps.make(AGAIN, 0, 0, 1) + bytes(512))
    tape.flushed()
    assert "at the origin at once" in first(tape.judged())


def test_a_read_of_old_content_is_caught(tape: Tape) -> None:
    sound(tape)
    tape.load("X 9 0 0 1 2")
    assert "a read saw old content" in first(tape.judged())


@pytest.mark.parametrize("origin", [
    Origin(honours_fua=False), Origin(honours_fua=False, honours_flush=False)])
def test_an_origin_that_lies_is_caught(tape: Tape, origin: Origin) -> None:
    sound(tape)
    assert tape.judged(origin).violations > 0


def test_an_image_is_found_through_its_extents(tmp_path: Path) -> None:
    tape = Tape(tmp_path, fs="ext4")
    tape.wrote(WRITE, sector=6, count=4, file=1)
    data = stamps.make(WRITE, 1, 6, 4)
    rest = [(108, stamps.make(AGAIN, 1, 0, 6)), (102, stamps.make(AGAIN, 1, 10, 6))]
    tape.wrote(AGAIN, sector=0, count=16, file=1)
    for sector, part in [(114, data[:1024]), (100, data[1024:]), *rest]:
        tape.sent(sector, len(part) // 512)
        tape.done(sector, len(part) // 512, part)
    verdict = tape.judged()
    assert verdict.violations == 0
    recording = tape.recording()
    replay = judge.Replay(recording.journal.requests, recording.scenario.sectors)
    end = recording.journal.marks["end"]
    replay.advance(end)
    assert recording.found(replay.image(Cut(end))).tolist() == [AGAIN] * 6 + [WRITE] * 4 + [
        AGAIN] * 6


def test_another_files_content_is_caught(tmp_path: Path) -> None:
    tape = Tape(tmp_path, fs="ext4")
    tape.wrote(WRITE, file=1)
    tape.sent(108, 4)
    tape.done(108, 4, stamps.make(WRITE, 2, 0, 4))
    assert "another owner's content" in first(tape.judged())


def test_the_bytes_of_an_image_are_those_that_were_written(tape: Tape) -> None:
    sound(tape)
    recording = tape.recording()
    replay = judge.Replay(recording.journal.requests, recording.scenario.sectors)
    end = recording.journal.marks["end"]
    replay.advance(end)
    assert list(recording.bytes_of(replay.image(Cut(end)))) == [(0, stamps.make(WRITE, 0, 0, 4))]


def test_nothing_durable_is_no_test(tape: Tape) -> None:
    with pytest.raises(judge.RecordingError, match="nothing was made durable"):
        tape.judged()


CACHE = 2048  # sectors of the cache device; the origin follows it


@pytest.fixture
def pooled(tmp_path: Path) -> Tape:
    return Tape(tmp_path, cache_mb=1)


def test_an_older_version_sent_to_the_origin_of_a_pool_is_caught(pooled: Tape) -> None:
    pooled.wrote(WRITE)
    pooled.wrote(AGAIN)
    for op in (WRITE, AGAIN):
        pooled.sent(CACHE, 4)
        pooled.done(CACHE, 4, stamps.make(op, 0, 0, 4))
    assert pooled.recording().faults() == []
    pooled.sent(CACHE, 4)
    pooled.done(CACHE, 4, stamps.make(WRITE, 0, 0, 4))
    assert "an older version was sent" in pooled.recording().faults()[0]


def test_a_pool_that_does_not_come_back_is_caught(pooled: Tape) -> None:
    pooled.sent(0, 8)
    pooled.done(0, 8, b"x" * 4096)
    assert "the pool does not come back" in first(pooled.judged())


def test_what_is_changed_in_place_is_found(pooled: Tape) -> None:
    for sector in (0, 1280 + 112, 1280 + 16, CACHE + 112):
        pooled.sent(sector, 8)
        pooled.done(sector, 8, bytes(4096))
    assert [w.sector for w in pools.in_place(pooled.recording())] == [0, 1392]


def test_only_what_is_being_discarded_may_become_zeroes() -> None:
    before = np.array([WRITE] * 6, np.uint64)
    after = np.array([WRITE, stamps.ZERO, stamps.ZERO, AGAIN, AGAIN, stamps.TORN], np.uint64)
    discarding = np.array([True, True, False, True, False, True])
    assert list(pools.wrongly_changed(before, after, discarding)) == [2, 3, 4, 5]


def test_every_write_is_cut_before_and_after_its_end(tape: Tape) -> None:
    sound(tape)
    cuts = judge.every_write(tape.recording().journal, 1)
    assert {cut.survives for cut in cuts} == {"none", "all", "some"}
    assert sorted({cut.time for cut in cuts}) == [4, 5]


def test_uses_of_chunks_are_counted(pooled: Tape) -> None:
    for sector in (1280, 1280, 1408, 1416):
        pooled.sent(sector, 8)
        pooled.done(sector, 8, bytes(4096))
    assert pools.chunk_uses(pooled.recording()) == 1.5
