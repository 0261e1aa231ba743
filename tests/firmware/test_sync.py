# SPDX-License-Identifier: Apache-2.0
"""Flushes without log pages: their cost, and mutations of the rules that make them durable."""

import re
from pathlib import Path

import pytest

from tests.firmware import build
from tests.firmware.mutation import Mutation, broken, fails


@pytest.fixture(scope="module")
def program() -> Path:
    """Return the measurement, optimised."""
    return build.compile_program("test_sync", "gcc", build.BUILD / "fast", kind=build.FAST)


def cost(program: Path, pages: int, copies: int, load: int) -> dict[str, float]:
    """Return programs per synced write, and times of the virtual clock."""
    done = build.run(program, str(pages), str(copies), str(load))
    assert done.returncode == 0, done.stderr
    return {name: float(value) for name, value in re.findall(r"(\w+) ([0-9.]+)", done.stdout)}


@pytest.mark.parametrize("load", [0, 1])
def test_programs_of_a_synced_write(program: Path, load: int) -> None:
    """A page of data and two log pages; two copies of the page; the page."""
    logged, twice, once = (cost(program, 0, 0, load), cost(program, 4, 2, load),
                           cost(program, 4, 1, load))
    assert (logged["sync"], twice["sync"], once["sync"]) == (0, 2, 1)
    assert logged["log"] == pytest.approx(2, abs=0.05)
    # Seldom, collection makes changes durable that are not in such pages.
    assert max(twice["log"], once["log"]) < 0.05
    # One program instead of two, one after the other. The clock is virtual.
    assert max(twice["mean"], once["mean"]) < 0.65 * logged["mean"]


MUTATIONS = [
    Mutation("a flush does not wait for the copy", "sync", "*done = vs_later(*done, second);", ""),
    Mutation("both copies are on one bank", "sync",
             "s->avoid = first / s->c.geometry.pages / s->c.geometry.blocks;", ""),
    Mutation("a page may lose its pair", "sync", "vs_mark_page_committed(s, first);", ""),
    Mutation("copies are erased before a checkpoint", "block",
             "b->unsafe || b->copies ||\n", "b->unsafe ||\n"),
    Mutation("more pages than recovery can sort", "sync",
             "return s->syncs + s->c.sync_copies <= s->sync_max;",
             "return s->syncs + s->c.sync_copies != 0;"),
    Mutation("blocks that were open at the checkpoint are not searched", "forward",
             "s->block[s->open_found[i]].not_before = UINT64_MAX;", ";"),
    Mutation("blocks opened since the checkpoint are not searched", "forward",
             "b->not_before > s->since", "b->not_before == UINT64_MAX"),
    Mutation("a torn page is applied", "forward",
             "status == VS_EMEDIA || (status == VS_OK && !is_whole(s))", "status == VS_EMEDIA"),
    Mutation("a lost page is not noticed", "forward", "if (tells_lost(s, *last)) {", "if (0) {"),
    Mutation("one lost copy loses the block", "forward", "return a->lost;", "return b->lost;"),
    Mutation("pages without logs are applied before all logs", "recover",
             "if (page < s->founds && (!next || s->found[page].seq - s->since <\n"
             "\t\t\t\t\t next->entry[next->durable].order)) {", "if (page < s->founds) {"),
]

#: Program and arguments.
RUNS: list[tuple[str | int, ...]] = [
    ("test_ftl_media", 1), ("test_ftl_order",), ("test_media", "idle", 11, 0, 2, 7),
    ("test_media", "cut", 11, 0, 1, 3),
    ("test_media", "cut", 12, 0, 1, 3), ("test_media", "idle", 13, 0, 1, 3),
    ("test_media", "cut", 10, 0, 2, 3), ("test_media", "cut", 12, 0, 3, 1),
    ("test_media", "cut", 11, 0, 3, 1), ("test_powercut", "sweep", 10, 0, 1),
    ("test_powercut", "sweep", 10, 0, 2), ("test_powercut", "sweep", 11, 0, 2),
    ("test_powercut", "sweep", 13, 0, 1), ("test_powercut", "sweep", 13, 0, 2),
    ("test_powercut", "long", 10, 0, 1), ("test_powercut", "long", 11, 0, 1),
    ("test_powercut", "long", 12, 0, 1), ("test_powercut", "long", 13, 0, 1),
    ("test_powercut", "recovery", 10, 0, 2), ("test_powercut", "recovery", 13, 0, 2),
    ("test_powercut", "recovery", 9, 0, 2), ("test_powercut", "sweep", 13, 0, 3),
    ("test_powercut", "sweep", 13, 0, 4), ("test_powercut", "long", 9, 0, 1),
]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.name)
def test_mutation_is_noticed(mutation: Mutation) -> None:
    assert fails(broken(mutation, "sync"), RUNS)
