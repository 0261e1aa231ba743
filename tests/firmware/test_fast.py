# SPDX-License-Identifier: Apache-2.0
"""FAST's merges: single cases, and arbitrary traces compared with a model."""

import functools
import random
import subprocess
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies

from tests.box.limits import limit
from tests.firmware import build
from tests.firmware.fast_model import Command, Fast

#: Erase blocks, pages per block, blocks per page, log blocks (0: all spare blocks). The last
#: logical block of most of them is short.
DRIVES = [(38, 8, 1, 3), (38, 8, 1, 2), (42, 8, 4, 4), (48, 8, 1, 0), (43, 6, 3, 2)]
#: Default numbers of log blocks of these drives.
LOG_BLOCKS = {(48, 8, 1, 0): 7}
PAGES = 8


@pytest.fixture(scope="module")
def program() -> Path:
    """Return the program that runs a trace, optimised."""
    return build.compile_program("test_fast", "gcc", build.BUILD / "fast", kind=build.FAST)


def run(program: Path, drive: tuple[int, int, int, int], trace: list[Command]) -> dict[str, int]:
    """Return the counters of a drive after a trace."""
    lines = "".join(f"{what} {first} {count}\n" for what, first, count in trace)
    done = subprocess.run([program, *map(str, drive)], input=lines, capture_output=True,
                          text=True, check=False, timeout=limit(120))
    assert done.returncode == 0, done.stderr
    words = (line.split() for line in done.stdout.splitlines())
    return {name: int(value) for name, value in words}


@functools.cache
def capacity(program: Path, drive: tuple[int, int, int, int]) -> int:
    """Return the capacity of a drive in blocks."""
    return run(program, drive, [])["blocks"]


def data_erases(drive: tuple[int, int, int, int], counts: dict[str, int]) -> int:
    """Return the erases without those for metadata, whose pages fill two blocks in turn."""
    pages = counts["meta_pages"]
    return counts["erases"] - sum(-(-part // drive[1]) for part in (pages // 2, pages - pages // 2))


def fill(blocks: int, count: int = PAGES) -> list[Command]:
    """Write every block once, in order."""
    return [("w", at, min(count, blocks - at)) for at in range(0, blocks, count)]


def since(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """Return the differences of the counters."""
    return {name: after[name] - before[name] for name in after}


def steps(program: Path, drive: tuple[int, int, int, int], first: list[Command],
          then: list[Command]) -> dict[str, int]:
    """Return what the second part of a trace adds to the counters."""
    before, after = run(program, drive, first), run(program, drive, first + then)
    return since(before, after) | {
        "data_erases": data_erases(drive, after) - data_erases(drive, before)}


def test_sequential_overwrite_of_whole_blocks_switches(program: Path) -> None:
    """One erase for each logical block written, no copies."""
    drive = DRIVES[0]
    blocks = capacity(program, drive) // PAGES * PAGES
    done = steps(program, drive, fill(blocks), fill(blocks) * 3)
    assert done["switch"] == done["data_erases"] == 3 * blocks // PAGES
    assert done["partial"] == done["full"] == done["merge"] == 0


def test_sequential_prefix_is_a_partial_merge(program: Path) -> None:
    """The rest is copied. This takes one erase per block too."""
    drive = DRIVES[0]
    blocks = capacity(program, drive) // PAGES * PAGES
    prefixes: list[Command] = [("w", at, 3) for at in range(0, blocks, PAGES)]
    done = steps(program, drive, fill(blocks), [*prefixes, ("w", 0, 1)])
    assert done["partial"] == done["merge"] // (PAGES - 3) == blocks // PAGES
    assert done["partial_copied"] == done["merge"]
    assert done["data_erases"] == blocks // PAGES + 1
    # The switch of the last block of the first pass was still outstanding.
    assert done["switch"] == 1
    assert done["full"] == 0


def test_random_writes_are_full_merges(program: Path) -> None:
    """A log block with pages of several logical blocks costs as many merges."""
    drive = DRIVES[0]
    blocks = capacity(program, drive) // PAGES * PAGES
    scattered: list[Command] = [("w", at * PAGES + 1, 1) for at in range(PAGES)]
    more: list[Command] = [("w", at * PAGES + 2, 1) for at in range(PAGES)]
    # At this point, two random log blocks are full, and the next write needs a third.
    done = steps(program, drive, [*fill(blocks), *scattered, *more], [("w", 5, 1)])
    assert done["full"] == PAGES
    assert done["full_copied"] == done["merge"] == PAGES * PAGES
    assert done["data_erases"] == PAGES + 1
    # The whole second log block was merged together with the first.
    again = steps(program, drive, [*fill(blocks), *scattered, *more, ("w", 5, 1)],
                  [("w", at * PAGES + 3, 1) for at in range(PAGES - 1)])
    assert again["full"] == again["merge"] == again["data_erases"] == 0


def test_write_behind_the_sequential_block_ends_it(program: Path) -> None:
    """A write to the same logical block that is not the next page: partial merge."""
    done = steps(program, DRIVES[0], [*fill(2 * PAGES), ("w", 0, 3)], [("w", 1, 1)])
    assert done["partial"] == 1
    assert done["partial_copied"] == PAGES - 3
    done = steps(program, DRIVES[0], [*fill(2 * PAGES), ("w", 0, 3)], [("w", PAGES + 1, 1)])
    assert done["partial"] == 0


def tail_traces(drive: tuple[int, int, int, int],
                blocks: int) -> tuple[list[Command], list[Command]]:
    """Fill the drive; then write the last logical block in order, and a block elsewhere."""
    size = drive[1] * drive[2]
    tail = (blocks - 1) // size * size
    elsewhere = ("w", size + 1, 1)
    pages = [("w", at, drive[2]) for at in range(tail, blocks, drive[2])]
    return [*fill(blocks), elsewhere], [*pages, elsewhere]


@pytest.mark.parametrize("drive", DRIVES, ids=str)
def test_a_short_logical_block_switches(program: Path, drive: tuple[int, int, int, int]) -> None:
    """Its sequential log block is complete with fewer pages than others have."""
    done = steps(program, drive, *tail_traces(drive, capacity(program, drive)))
    assert (done["switch"], done["partial"]) == (1, 0)


def check_model(program: Path, drive: tuple[int, int, int, int], trace: list[Command],
                blocks: int) -> Fast:
    """All counters equal those of the model."""
    _, pages, slots, log_blocks = drive
    model = Fast(pages, slots, log_blocks or LOG_BLOCKS[drive], blocks)
    model.run(trace)
    counts = run(program, drive, trace)
    for kind, merges in model.merges.items():
        assert counts[kind] == merges, kind
        assert counts[f"{kind}_copied"] == model.copied[kind], kind
    assert counts["merge"] == sum(model.copied.values())
    assert counts["host"] == sum(count for what, _, count in trace if what == "w")
    assert data_erases(drive, counts) == model.opened
    return model


def random_trace(numbers: random.Random, blocks: int, length: int) -> list[Command]:
    """Return single blocks, runs that continue where another ended, and some TRIMs."""
    trace: list[Command] = []
    at = 0
    for _ in range(length):
        what = "t" if numbers.random() < 0.04 else "w"
        count = numbers.choice([1, 1, 2, 4, 8, 16])
        if numbers.random() < 0.4 or at + count > blocks:
            at = numbers.randrange(blocks)
            if numbers.random() < 0.4:
                at -= at % PAGES
        count = min(count, blocks - at)
        trace.append((what, at, count))
        at += count
    return trace


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("drive", DRIVES, ids=str)
def test_model_counts_the_same(program: Path, drive: tuple[int, int, int, int],
                               seed: int) -> None:
    blocks = capacity(program, drive)
    trace = random_trace(random.Random(seed), blocks, 2500)
    model = check_model(program, drive, trace, blocks)
    assert all(count > 9 for count in model.merges.values()), model.merges


@hypothesis.settings(max_examples=40, deadline=None, derandomize=True, database=None,
                     suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
@hypothesis.given(data=strategies.data())
def test_model_counts_the_same_for_any_trace(program: Path, data: strategies.DataObject) -> None:
    drive = data.draw(strategies.sampled_from(DRIVES))
    blocks = capacity(program, drive)
    trace = [(what, at, min(count, blocks - at)) for what, at, count in data.draw(
        strategies.lists(strategies.tuples(strategies.sampled_from("wwwwwt"),
                                           strategies.integers(0, blocks - 1),
                                           strategies.integers(1, 16)), max_size=300))]
    check_model(program, drive, trace, blocks)
