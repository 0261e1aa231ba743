# SPDX-License-Identifier: Apache-2.0
"""Unreadable pages: nothing that was flushed is ever replaced by an older state unnoticed."""

import itertools
import re
from pathlib import Path

import pytest

from tests.firmware import build
from tests.firmware.mutation import Mutation, broken, fails
from tests.firmware.test_programs import CASES, PERSONALITIES

#: Between commands, every point; power cuts, every seventh.
KINDS = {"idle": "1", "cut": "7"}
#: Shape with one copy of pages without a log.
ONE_COPY = 13


@pytest.fixture(scope="module")
def program() -> Path:
    """Return the sweep, optimised."""
    return build.compile_program("test_media", "gcc", build.BUILD / "fast", kind=build.FAST)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(("shape", "personality"), CASES)
def test_every_page_at_every_point(program: Path, kind: str, shape: int, personality: str,
                                   seed: int) -> None:
    done = build.run(program, kind, str(shape), PERSONALITIES[personality], str(seed),
                     KINDS[kind])
    assert done.returncode == 0, done.stderr
    found = {name: int(count) for count, name in re.findall(r"(\d+) (\w+)", done.stdout)}
    assert found["trials"] > 200
    assert (found["silent"], found["refused"], found["wrong"]) == (0, 0, 0)
    assert found["lost"] > 0, "no data page was unreadable"
    # The one device that has only one copy, see struct vs_config.
    assert (found["exposed"] > 0) == (shape == ONE_COPY)


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_sanitized(compiler: str) -> None:
    program = build.compile_program("test_media", compiler, build.BUILD / compiler)
    for kind, shape in itertools.product(KINDS, ["2", "6", "11", "13"]):
        done = build.run(program, kind, shape, "0", "2", "29")
        assert done.returncode == 0, done.stderr


MUTATIONS = [
    Mutation("roots and logs are programmed once", "meta",
             "status = program(s, lane, now, page, &address[1], &second);",
             "address[1] = address[0];"),
    Mutation("a flush does not wait for the second copy", "meta",
             "*done = vs_later(*done, second);", ""),
    Mutation("a page may tell of one of which the second copy is torn", "frontier",
             "vs_later(now, b->not_before)", "now"),
    Mutation("two copies of a page count as two pages of the root", "recover",
             "search->pages += !s->root_found[seen(s)->index];", "search->pages++;"),
    Mutation("a lost map page ends the mount", "recover",
             "\t\tif (status != VS_OK)\n\t\t\ts->map_at[i] = VS_NONE;",
             "\t\tif (status != VS_OK)\n\t\t\treturn status;"),
    Mutation("blocks of a lost map page read as zeroes", "recover",
             "entry[k] : VS_LOST", "entry[k] : VS_NONE"),
    Mutation("a block is known by its first page only", "recover",
             "status == VS_EMEDIA && page < s->c.geometry.pages; page++",
             "status == VS_EMEDIA && page < 1; page++"),
    Mutation("a root is programmed on word lines of its map pages", "checkpoint",
             "\tvs_mark_committed(s);\n\tfor (i = 0; i < s->blocks_all; i++)",
             "\tfor (i = 0; i < s->blocks_all; i++)"),
    Mutation("a log page is programmed before its checkpoint", "log",
             "\tnow = vs_later(now, s->root_done);\n", ""),
    Mutation("a page lost with its pair is not programmed again", "frontier",
             "status = vs_pair_lost(s, f, page);", ""),
    Mutation("a log names the lost page", "pair", "\t\t\tl->entry[k].slot = to;\n", ""),
    Mutation("the map names the lost page", "pair", "\t\t\ts->map[lpn] = to;\n", ""),
    Mutation("a lost map page of a checkpoint keeps its address", "meta",
             "\t\t\ts->map_new[i] = to;", "\t\t\t;"),
    Mutation("the page before is not told", "frontier", "\toob->before = f->before;\n", ""),
    Mutation("a lost log is ignored", "recover",
             "\t\t\tstatus = VS_EMEDIA;\n\t}\n\treturn status == VS_OK && root_lost",
             "\t\t\t;\n\t}\n\treturn status == VS_OK && root_lost"),
    Mutation("a lost root is ignored", "recover", "\t\t*root_lost = true;", "\t\t;"),
]

#: Program and arguments; bad: blocks that fail.
RUNS: list[tuple[str | int, ...]] = [
    ("test_media", "idle", 0, 0, 2, 3), ("test_media", "idle", 1, 0, 1, 3),
    ("test_media", "cut", 1, 1, 1, 3), ("test_media", "cut", 1, 0, 1, 3),
    ("test_ftl_order", 3), ("test_powercut", "sweep", 1, 1, 1),
    ("test_ftl_media", 1), ("test_ftl", 1),
    ("test_powercut", "sweep", 2, 0, 2), ("test_powercut", "bad-sweep", 1, 0, 2),
    ("test_powercut", "bad-sweep", 2, 0, 2), ("test_powercut", "bad-long", 1, 0, 1),
    ("test_powercut", "bad-long", 2, 0, 1), ("test_powercut", "bad-long", 1, 1, 1),
    ("test_powercut", "bad-long", 2, 1, 1), ("test_powercut", "sweep", 1, 0, 2),
    ("test_powercut", "bad-long", 2, 0, 2), ("test_powercut", "bad-long", 4, 0, 1),
    ("test_powercut", "sweep", 3, 0, 1), ("test_powercut", "long", 3, 0, 1),
    ("test_powercut", "bad-long", 6, 0, 1),
]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.name)
def test_mutation_is_noticed(mutation: Mutation) -> None:
    assert fails(broken(mutation, "media"), RUNS)
