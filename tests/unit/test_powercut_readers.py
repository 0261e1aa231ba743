# SPDX-License-Identifier: Apache-2.0
"""The power-cut harness reads logs, traces and stamps."""

from pathlib import Path

import numpy as np
import pytest

from tests.powercut import journal, logwrites, stamps
from tests.powercut.journal import NEVER
from tests.powercut.logwrites import Flag


def trace(*events: str) -> list[str]:
    """Return a trace with these events at times 1, 2, ..."""
    return ["# tracer: nop\n"] + [
        f"   kworker/1:1-29      [001] d..1.          {time}: {event}\n"
        for time, event in enumerate(events, 1)]


def test_stamps_name_their_write_and_place() -> None:
    data = stamps.make(op=5 << 32 | 7, file=3, sector=100, count=3) + bytes(512) + b"x" * 512
    ops, files, sectors = stamps.decode(np.frombuffer(data, np.uint8).reshape(-1, 512))
    assert ops.tolist() == [5 << 32 | 7] * 3 + [stamps.ZERO, stamps.FOREIGN]
    assert files[:3].tolist() == [3, 3, 3]
    assert sectors[:3].tolist() == [100, 101, 102]


def test_a_sector_of_two_writes_is_torn() -> None:
    old, new = stamps.make(1, 0, 8, 1), stamps.make(2, 0, 8, 1)
    ops, _, _ = stamps.decode(np.frombuffer(new[:256] + old[256:], np.uint8).reshape(1, 512))
    assert ops.tolist() == [stamps.TORN]


def test_a_log_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "log"
    data = stamps.make(1, 0, 16, 2)
    logwrites.write(path, [
        (Flag.FUA, 16, 2, data), (Flag.MARK, 0, 0, b"hello"), (Flag.DISCARD, 0, 128, b""),
        (Flag.FLUSH, 0, 0, b""), (Flag(0), 40, 1, data[:512])])
    log = logwrites.read(path)
    assert [(e.sector, e.count, e.flags) for e in log.entries] == [
        (16, 2, Flag.FUA), (0, 128, Flag.DISCARD), (0, 0, Flag.FLUSH), (40, 1, Flag(0))]
    first, discard, _, last = log.entries
    assert log.sectors[first.data:first.data + 2].tobytes() == data
    assert discard.data == 0
    assert log.sectors[last.data].tobytes() == data[:512]


def test_sector_0_of_the_log_stands_for_zeroes(tmp_path: Path) -> None:
    path = tmp_path / "log"
    logwrites.write(path, [])
    assert not logwrites.read(path).sectors[0].any()


def test_a_log_without_its_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log"
    logwrites.write(path, [(Flag.FUA, 0, 1, bytes(512))])
    path.write_bytes(path.read_bytes().replace(logwrites.END_MARK, b"dm-log-writes-eno"))
    with pytest.raises(logwrites.LogError, match="no end mark"):
        logwrites.read(path)


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(bytes(4096))
    with pytest.raises(logwrites.LogError, match="no log of dm-log-writes"):
        logwrites.read(path)


@pytest.mark.parametrize(("rwbs", "flags"), [
    ("W", Flag(0)), ("WS", Flag(0)), ("WFS", Flag.FUA), ("WSM", Flag(0)), ("DS", Flag.DISCARD)])
def test_the_block_layers_letters(rwbs: str, flags: Flag) -> None:
    read = journal.read(trace(f"block_bio_queue: 252,0 {rwbs} 8 + 16 [dd]",
                              f"block_bio_complete: 252,0 {rwbs} 8 + 16 [0]"))
    assert [(r.flags, r.sector, r.count, r.submit, r.complete) for r in read.requests] == [
        (flags, 8, 16, 1, 2)]


@pytest.mark.parametrize("rwbs", ["FWS", "FWFS", "FW"])
def test_an_empty_flush(rwbs: str) -> None:
    read = journal.read(trace(f"block_bio_queue: 252,0 {rwbs} 0 + 0 [dd]",
                              f"block_bio_complete: 252,0 {rwbs} 0 + 0 [0]"))
    assert [(r.flags, r.count) for r in read.requests] == [(Flag.FLUSH, 0)]


def test_reads_are_left_out() -> None:
    assert not journal.read(trace("block_bio_queue: 252,0 RA 8 + 16 [dd]")).requests


def test_a_completion_without_its_request_is_refused() -> None:
    with pytest.raises(journal.JournalError, match="never queued"):
        journal.read(trace("block_bio_complete: 252,0 WS 8 + 16 [0]"))


def test_events_of_the_load() -> None:
    read = journal.read(trace(
        "tracing_mark_write: pc mark start",
        "tracing_mark_write: pc W 4294967297 0 8 16 D", "tracing_mark_write: pc C 4294967297 0",
        "tracing_mark_write: pc F 4294967298 0 aio", "tracing_mark_write: pc C 4294967298 5",
        "tracing_mark_write: pc X 4294967299 0 8 1 2", "tracing_mark_write: someone else"))
    write, flush = read.ops
    assert read.marks == {"start": 1}
    assert (write.kind, write.worker, write.sector, write.count) == ("W", 1, 8, 16)
    assert (write.detail, write.submit, write.complete) == ("D", 2, 3)
    assert (flush.kind, flush.detail, flush.error, flush.complete) == ("F", "aio", 5, NEVER)
    assert read.misreads == ["file 0 sector 8: read op 1, wrote op 2"]


def test_what_is_answered_behind_a_crash_is_void() -> None:
    read = journal.read(trace(
        "tracing_mark_write: pc W 1 0 8 2 -", "tracing_mark_write: pc crash",
        "tracing_mark_write: pc C 1 0", "tracing_mark_write: pc alive",
        "tracing_mark_write: pc W 2 0 8 2 -", "tracing_mark_write: pc C 2 0"))
    assert [op.complete for op in read.ops] == [NEVER, 6]
    assert read.marks == {"crash": 2, "alive": 4}


def joined(tmp_path: Path, entries: list[tuple[Flag, int, int, bytes]], *events: str
           ) -> tuple[journal.Journal, logwrites.Log]:
    logwrites.write(tmp_path / "log", entries)
    log = logwrites.read(tmp_path / "log")
    read = journal.read(trace(*events))
    journal.join(read, log)
    return read, log


def test_the_trace_gives_the_order_and_the_log_the_data(tmp_path: Path) -> None:
    # dm-log-writes holds the discard back until the end, but it came first.
    read, log = joined(
        tmp_path, [(Flag.FUA, 0, 1, b"a" * 512), (Flag.FUA, 0, 1, b"b" * 512),
                   (Flag.DISCARD, 0, 8, b"")],
        "block_bio_queue: 252,0 DS 0 + 8 [x]", "block_bio_complete: 252,0 DS 0 + 8 [0]",
        "block_bio_queue: 252,0 WFS 0 + 1 [x]", "block_bio_complete: 252,0 WFS 0 + 1 [0]",
        "block_bio_queue: 252,0 WFS 0 + 1 [x]", "block_bio_complete: 252,0 WFS 0 + 1 [0]")
    discard, first, second = read.requests
    assert discard.complete < first.submit
    assert bytes(log.sectors[first.data][:1]) == b"a"
    assert bytes(log.sectors[second.data][:1]) == b"b"


@pytest.mark.parametrize(("entries", "events", "problem"), [
    ([], ["block_bio_queue: 252,0 WFS 0 + 1 [x]", "block_bio_complete: 252,0 WFS 0 + 1 [0]"],
     "traced but not logged"),
    ([(Flag.FUA, 0, 1, bytes(512))], [], "not in the trace"),
    ([(Flag.FUA, 0, 1, bytes(512))], ["block_bio_queue: 252,0 WFS 0 + 1 [x]"],
     "never completed")])
def test_trace_and_log_must_agree(tmp_path: Path, entries: list[tuple[Flag, int, int, bytes]],
                                  events: list[str], problem: str) -> None:
    with pytest.raises(journal.JournalError, match=problem):
        joined(tmp_path, entries, *events)
