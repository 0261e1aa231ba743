# SPDX-License-Identifier: Apache-2.0
"""The tests of the core notice when the core is wrong.

Each mutation breaks one line of it on purpose; the program that tests the file
has to fail. A line that can be broken unnoticed is a line without a test.
"""

import hashlib
from typing import NamedTuple

import pytest

from tests.core import build


class Mutation(NamedTuple):
    """One line of the core and what it is replaced by."""

    name: str
    file: str
    old: str
    new: str


MUTATIONS = [
    Mutation("flush waits for nothing", "epoch",
             "return e->draining ? !slot : VC_EPOCH_IDLE;", "return VC_EPOCH_IDLE;"),
    Mutation("flush joins the drain that began before it", "epoch",
             "e->wanted = true;\n\t\treturn slot;", "e->wanted = true;\n\t\treturn !slot;"),
    Mutation("flush leaves the epoch open", "epoch", "e->open = !slot;", ""),
    Mutation("the second drain is forgotten", "epoch", "if (!e->wanted)\n\t\t\tbreak;", "break;"),
    Mutation("the second drain leaves its epoch open", "epoch", "e->open = !e->open;", ""),
    Mutation("a failure is not noted", "epoch", "if (failed)\n\t\te->failed[slot] = true;", ""),
    Mutation("a failure is not told", "epoch",
             "if (e->failed[old])\n\t\t\td->failed |= 1U << old;", ""),
    Mutation("an old failure is told again", "epoch",
             "\te->failed[slot] = false;\n\te->draining = true;", "\te->draining = true;"),
    Mutation("a failure is forgotten when a second flush comes", "epoch",
             "if (!e->wanted)\n\t\t\te->failed[slot] = false;", "e->failed[slot] = false;"),
    Mutation("idle looks at one epoch", "epoch",
             "return !e->pending[0] && !e->pending[1];", "return !e->pending[0];"),
    Mutation("extents may be empty", "runs", "!s[i].len || ", ""),
    Mutation("extents may overlap", "runs", "s[i].start < from || ", ""),
    Mutation("extents may begin behind the device", "runs", "s[i].start >= size ||", ""),
    Mutation("extents may end behind the device", "runs",
             "||\n\t\t    s[i].len > size - s[i].start", ""),
    Mutation("the sum of start and length may wrap", "runs",
             "s[i].len > size - s[i].start", "s[i].start + s[i].len > size"),
    Mutation("a sector before the run is owned", "runs", "|| runs[i].start > start", ""),
    Mutation("the run's first sector only is looked at", "runs",
             "if (start >= end)\n\t\t\treturn owner;", "return owner;"),
    Mutation("a gap is overlooked", "runs", "|| runs[i].start != start ||", "||"),
    Mutation("a second owner is overlooked", "runs", "||\n\t\t    runs[i].owner != owner", ""),
    Mutation("the search is off by one", "runs",
             "if (runs[mid].start + runs[mid].len > sector)",
             "if (runs[mid].start + runs[mid].len >= sector)"),
    Mutation("the left rest of a run goes too", "runs", "out[k++].len = start - r.start;", ";"),
    Mutation("the right rest of a run goes too", "runs", "out[k++].len = r_end - end;", ";"),
    Mutation("the old runs of the owner stay", "runs",
             "if (i < n && runs[i].owner == owner) {", "if (0) {"),
    Mutation("another owner's sectors are taken", "runs", "if (r.start < end)", "if (0)"),
    Mutation("buckets are twice as wide", "histogram",
             "((value >> (log - 2)) & 3)", "((value >> (log - 2)) & 2)"),
    Mutation("large values leave the table", "histogram",
             "b < VC_HIST_BUCKETS ? b : VC_HIST_BUCKETS - 1", "b"),
]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.name)
def test_mutation_is_noticed(mutation: Mutation) -> None:
    folder = build.BUILD / "mutation" / hashlib.sha256(mutation.name.encode()).hexdigest()[:12]
    tree = build.copy_tree(folder / "tree")
    source = tree / "native" / "core" / f"{mutation.file}.c"
    text = source.read_text()
    assert text.count(mutation.old) == 1, "the line to be broken is not there (any more)"
    source.write_text(text.replace(mutation.old, mutation.new))
    program = build.compile_program(f"test_{mutation.file}", "clang", folder,
                                    "-Wno-error", "-w", tree=tree)
    assert build.run(program).returncode != 0
