# SPDX-License-Identifier: Apache-2.0
"""Check that the tests detect errors in FAST and in the handling of bad blocks.

As test_mutations.py. The model checks the counters of FAST, and test_ftl and
test_ftl_fast check the placement.
"""

import random
import subprocess
from pathlib import Path

import pytest

from tests.firmware import test_fast
from tests.firmware.mutation import Mutation, broken, fails

MUTATIONS = [
    Mutation("the sequential log block takes any page of its logical block", "fast",
             "\treturn has_of(s, oob, lbn) &&\n"
             "\t       page != lbn * s->c.geometry.pages + vs_next_page(s, f);",
             "\treturn false && has_of(s, oob, lbn);"),
    Mutation("page 0 begins no sequential log block", "fast",
             "\tif (page != VS_NONE && page % pages == 0)\n\t\treturn open",
             "\tif (0)\n\t\treturn open"),
    Mutation("page 0 does not end the sequential log block", "fast",
             "\tif (page != VS_NONE && page % s->c.geometry.pages == 0)\n\t\treturn true;", ""),
    Mutation("a page that lacks blocks has its place", "fast",
             "if (oob->slot[i].lpn != first + i)", "if (0)"),
    Mutation("a page takes other tags' blocks along", "fast",
             " ||\n\t\t    s->entry[peers[i]].log != s->entry[entry].log)", ")"),
    Mutation("the last logical block has the size of the others", "fast",
             " || f->next * s->slots >= left", " || left == 0"),
    Mutation("one random log block too many", "fast",
             "vs_fast_room(s, s->c.log_blocks - 2, now)",
             "vs_fast_room(s, s->c.log_blocks - 1, now)"),
    Mutation("recovery takes log blocks for data blocks", "fast", "\tfind_logs(s);\n",
             "\t(void)find_logs;\n"),
    Mutation("recovery takes each that could be for the data block", "fast",
             "\tfind_data_blocks(s);\n", "\t(void)find_data_blocks;\n"),
    Mutation("a merge leaves out the last page", "fast_merge",
             "status == VS_OK && page < pages; page++",
             "status == VS_OK && page + 1 < pages; page++"),
    Mutation("merged data is not mapped", "fast_merge",
             "\t\tif (s->stage_oob->slot[i].lpn != VS_NONE)\n", "\t\tif (0)\n"),
    Mutation("merged data loses its checksum", "fast_merge",
             "s->stage_oob->slot[to] = s->read_oob->slot[from];",
             "s->stage_oob->slot[to].lpn = lpn;"),
    Mutation("a merge leaves out LSB pages", "fast_merge",
             "if (!count && page && !s->c.geometry.paired)", "if (!count && page)"),
    Mutation("a merge leaves out the first page", "fast_merge",
             "if (!count && page && !s", "if (!count && !s"),
    Mutation("a partial merge goes on where the pair is durable", "fast_merge",
             "\t\tif (vs_next_page(s, &at) != at.next)\n", "\t\tif (0)\n"),
    Mutation("a merge does not wait for room", "fast_merge",
             "\t\tstatus = vs_fast_reserve(s, now);", "\t\tstatus = VS_OK;"),
    Mutation("a data block stays a log block", "fast_merge",
             "\ts->block[f->block].log = false;\n\ts->block[f->block].lbn = lbn;\n",
             "\ts->block[f->block].lbn = lbn;\n"),
    Mutation("what cannot be read is merged for ever", "fast_merge",
             "\t\t\ts->block[i].state = VS_BLOCK_STUCK;", "\t\t\t;"),
    Mutation("the newest log block is merged out", "fast_room",
             "b->opened < s->block[best].opened", "b->opened > s->block[best].opened"),
    Mutation("wear is not looked at", "fast_room", "= level(s, now);",
             "= s->c.wear_gap == 1 ? level(s, now) : VS_OK;"),
    Mutation("nothing is kept for blocks that fail", "block",
             "return failed < s->c.bad_blocks ? s->c.bad_blocks - failed : 0;",
             "return failed == UINT32_MAX;"),
    Mutation("a worn-out device cannot be mounted", "format", "\ts->status = r.status;\n",
             "\ts->status = r.status;\n\tif (r.status)\n\t\tr.status = VS_EMEDIA;\n"),
]

#: Kind, shape, personality and seed for test_powercut.
RUNS = [("long", 5, 0, 1), ("long", 6, 0, 1), ("sweep", 6, 0, 2), ("bad-long", 5, 0, 1),
        ("bad-long", 4, 0, 3), ("bad-long", 5, 1, 4), ("bad-long", 6, 0, 1), ("sweep", 5, 0, 2),
        ("long", 8, 0, 1), ("sweep", 8, 0, 2), ("bad-long", 0, 0, 38),
        ("bad-long", 9, 0, 36), ("bad-long", 0, 0, 43), ("bad-long", 4, 0, 44)]


def counts_differ(program: Path) -> bool:
    """Run traces as test_fast.py does. The program may crash."""
    for drive in test_fast.DRIVES:
        try:
            blocks = test_fast.capacity(program, drive)
            trace = test_fast.random_trace(random.Random(1), blocks, 600)
            first, then = test_fast.tail_traces(drive, blocks)
            for commands in (trace, first + then):
                test_fast.check_model(program, drive, commands, blocks)
        except (AssertionError, subprocess.TimeoutExpired):
            return True
    return False


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.name)
def test_mutation_is_noticed(mutation: Mutation) -> None:
    programs = broken(mutation, "mutation")
    assert counts_differ(programs("test_fast")) or fails(programs, [
        ("test_ftl",), ("test_ftl_fast",), *(("test_powercut", *run) for run in RUNS)])
