# SPDX-License-Identifier: Apache-2.0
"""Check that the power-cut tests detect errors in the firmware.

Each mutation breaks one rule. One of the runs below must then fail. They run in
order, so the run that is most likely to fail should be the first.
"""

import pytest

from tests.firmware.mutation import Mutation, broken, fails

MUTATIONS = [
    Mutation("a large flush puts collection off", "ssd",
             "b->few = blocks <= (uint64_t)FEW_PAGES * s->banks * s->slots;", "b->few = true;"),
    Mutation("a small flush waits for collection", "ssd", "s->urgent = b->few;", ""),
    Mutation("FUA does not write its log", "ssd",
             "enum vs_status status = vs_log_commit(s, log, now, &own);",
             "enum vs_status status = VS_OK;"),
    Mutation("FUA forgets hTag's log", "ssd",
             "if (status == VS_OK && host && log != VS_HTAG_LOG)", "if (0)"),
    Mutation("FUA leaves the rest of its last page", "ssd",
             "(++fresh == s->slots || i + 1 == count)", "++fresh == s->slots"),
    Mutation("a log page is programmed before its data", "log",
             "now = vs_later(now, log->data_done);", ""),
    Mutation("a log page does not wait for the other half of a word line", "log",
             "now = vs_later(now, s->lane[i].msb_done);", ";"),
    Mutation("what a log made durable may lose its pair", "log",
             "\tvs_mark_log_committed(s, l, address);\n", ""),
    Mutation("only a log page itself keeps its pair, not what it points to", "frontier",
             "commit_page(s, log->entry[i].slot / s->slots);", ";"),
    Mutation("only what a log points to keeps its pair", "frontier",
             "\tcommit_page(s, address[0]);\n\tcommit_page(s, address[1]);\n", ""),
    Mutation("a flush leaves out hTag's data", "ssd",
             "status = batch_tag(s, &batch, VS_HTAG_LOG, now);", ";"),
    Mutation("a flush leaves out hTag's log", "ssd",
             "status = vs_log_commit(s, VS_HTAG_LOG, now, &host);", ";"),
    Mutation("a flush leaves out its own log", "ssd",
             "\t\t\tstatus = vs_log_commit(s, log, now, &own);", ";"),
    Mutation("a flush is acknowledged before its log page is there", "ssd",
             "own = vs_later(vs_later(own, host), batch.done);", "own = batch.done;"),
    Mutation("a flush of a range forgets the logs", "ssd",
             "logged_in(&s->log[i], first, first + count))", "0)"),
    Mutation("a flush of a range forgets changes that were not logged", "ssd",
             "\treturn l->full;", "\treturn false;"),
    Mutation("a flush forgets changes that were not logged", "log",
             "VS_BASELINE || l->full)", "VS_BASELINE)"),
    Mutation("a TRIM is not logged", "map",
             "note(s, &s->log[log], lpn, VS_TRIM | count, VS_NONE, now);", ";"),
    Mutation("a TRIM leaves the buffered block", "trim",
             "\t\t\tvs_buffer_drop(s, e, now);\n", ""),
    Mutation("a block trimmed by another tag is no longer the first one's", "trim",
             "next = VS_HTAG_LOG;", ";"),
    Mutation("a TRIM relies on another tag's that is not durable", "trim",
             "!s->trim_oldest && i < count", "i < count"),
    Mutation("what a TRIM took is erased before it is durable", "trim",
             "return s->trim_oldest && s->block[block].trim >= s->trim_oldest;", "return false;"),
    Mutation("a durable TRIM frees what TRIMs of others took", "trim",
             "\ts->trim_oldest = oldest;", "\ts->trim_oldest = 0;"),
    Mutation("blocks wait for the first TRIM only", "map",
             "s->block[block].trim = s->trims;",
             "s->block[block].trim = s->block[block].trim ? s->block[block].trim : s->trims;"),
    Mutation("only the first block of a TRIM is replayed", "recover",
             "uint32_t blocks = vs_entry_blocks(e), i;", "uint32_t blocks = 1, i;"),
    Mutation("a flush of a range looks at the first block of a TRIM only", "ssd",
             "e->lpn + vs_entry_blocks(e) > first", "e->lpn >= first"),
    Mutation("a block overwritten by another tag is no longer the first one's", "buffer",
             "if (s->entry[e].log != log)\n\t\t\tlog = VS_HTAG_LOG;", ""),
    Mutation("collection does not wait for durability", "block",
             "|| b->valid || b->unsafe || b->copies ||", "|| b->valid || b->copies ||"),
    Mutation("an erase does not wait until it is safe", "block",
             "vs_later(now, b->not_before)", "now"),
    Mutation("when an erase is safe is not noted", "block",
             "\tb->not_before = s->commit_done;\n", ""),
    Mutation("collection moves what is no longer valid", "gc",
             "if (slot[i].lpn >= s->blocks ||\n"
             "\t\t    s->map[slot[i].lpn] != address * s->slots + i)",
             "if (slot[i].lpn >= s->blocks)"),
    Mutation("a root is programmed before its map pages", "checkpoint",
             "*all = vs_later(*all, done);", ""),
    Mutation("a root is programmed before the data", "checkpoint",
             "all = vs_later(now, s->data_done)", "all = now"),
    Mutation("what a root made durable may lose its pair", "checkpoint",
             "\t/* The root itself. */\n\tvs_mark_committed(s);\n", ""),
    Mutation("an unfinished checkpoint frees blocks", "checkpoint",
             "\tstatus = write_map(s, now, &all);",
             "\tadopt(s);\n\tstatus = write_map(s, now, &all);"),
    Mutation("replay ignores the order of changes", "recover",
             "(!next || l->entry[l->durable].order <\n"
             "\t\t\t      next->entry[next->durable].order))", "!next)"),
    Mutation("the oldest page of a log is taken", "recover",
             "l->seq >= meta->seq)", "l->seq <= meta->seq)"),
    Mutation("logs of an older checkpoint are replayed", "recover",
             "if (meta->checkpoint != s->checkpoint || ", "if ("),
    Mutation("logs are not replayed", "recover", "status = replay(s, now, &all);", ";"),
    Mutation("recovery reuses blocks that it still needs", "recover",
             "\ts->block[address / s->c.geometry.pages].root = true;\n\tif (l->count",
             "\tif (l->count"),
    Mutation("handles share their blocks", "page", "handle * s->banks + bank", "bank"),
    Mutation("a flush mixes blocks of handles", "ssd",
             "s->entry[a].handle == s->entry[b].handle &&", ""),
    Mutation("eviction mixes blocks of handles", "buffer",
             "\t\t    s->entry[e].handle == handle &&\n", ""),
    Mutation("a block keeps its first handle", "buffer", "\ts->entry[e].handle = handle;\n",
             "\tif (!s->stats.absorbed)\n\t\ts->entry[e].handle = handle;\n"),
    Mutation("there are no blocks for the handles", "geometry",
             "(s->c.handles + 1) * lane.banks", "2 * lane.banks"),
    Mutation("metadata pages are not checked", "recover",
             "meta->crc != vs_page_crc(s, s->read_page) || ", ""),
]

#: Programs of single cases.
SINGLE = ("test_ftl", "test_ftl_flush", "test_ftl_trim", "test_ftl_handles")
#: Kind, shape, personality, seed.
RUNS = [
    ("long", 1, 0, 1), ("sweep", 1, 0, 1), ("sweep", 1, 0, 2), ("sweep", 0, 0, 2),
    ("long", 2, 0, 1),
    ("sweep", 2, 0, 2), ("long", 3, 0, 1), ("recovery", 1, 0, 2), ("long", 1, 1, 1),
    ("sweep", 1, 1, 2), ("long", 4, 0, 1), ("long", 0, 0, 1), ("long", 1, 0, 2),
    ("long", 2, 0, 2), ("long", 1, 0, 3), ("sweep", 1, 0, 4), ("sweep", 4, 0, 4),
    ("long", 4, 0, 2), ("long", 3, 1, 1), ("sweep", 3, 0, 2), ("sweep", 1, 0, 21),
    ("sweep", 1, 0, 14), ("long", 1, 0, 14), ("long", 3, 0, 3),
    ("long", 1, 1, 3), ("long", 3, 1, 8), ("long", 3, 0, 5), ("recovery", 0, 0, 1),
]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.name)
def test_mutation_is_noticed(mutation: Mutation) -> None:
    assert fails(broken(mutation, "mutation"), [
        *((name,) for name in SINGLE), *(("test_powercut", *run) for run in RUNS)])
