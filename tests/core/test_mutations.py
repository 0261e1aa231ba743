# SPDX-License-Identifier: Apache-2.0
"""The tests of the core notice when the core is wrong.

Each mutation breaks one line of it on purpose; the program that tests the file
has to fail. A line that can be broken unnoticed is a line without a test.
"""

import hashlib
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.core import build

pytestmark = pytest.mark.slow


class Mutation(NamedTuple):
    """One line of the core, or of a writer's rules, and what it is replaced by."""

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
    Mutation("the polynomial is another", "crc32c",
             "0x82f63b78, 0x92a8fc17", "0x82f63b79, 0x92a8fc17"),
    Mutation("the checksum is not inverted", "crc32c",
             "return ~vc_crc32c_more", "return vc_crc32c_more"),
    Mutation("half a byte is left out", "crc32c",
             "crc = crc >> 4 ^ vc_crc32c_nibble[crc & 15];\n\t}", "}"),
    Mutation("the instruction is for one byte", "crc32c",
             "__builtin_ia32_crc32di(crc, word)", "__builtin_ia32_crc32qi(crc, *p)"),
    Mutation("chunks need not be a power of two", "meta",
             "||\n\t    (chunk_blocks & (chunk_blocks - 1))", ""),
    Mutation("the chunk table is too short", "meta", "return n / d + !!(n % d);", "return n / d;"),
    Mutation("a place leaves 32 bits", "meta",
             "if (chunks > room || room > (~0U >> shift))", "if (0)"),
    Mutation("both copies are in one place", "meta",
             "(u64)g->copy_blocks * copy + index;", "index;"),
    Mutation("the checksum is not looked at", "meta",
             "le32_to_cpu(h->crc) == vc_meta_crc(block);", "1;"),
    Mutation("a pool shrinks to nothing", "meta",
             "return g->chunks < vc_geometry_least(g) ? -ENOSPC : 0;", "return 0;"),
    Mutation("a pool that has shrunk is not found by its second superblock", "meta",
             "most = chunks * VC_ROOM_TIMES * VC_ROOM_TIMES;", "most = chunks * VC_ROOM_TIMES;"),
    Mutation("the second copy moves when a pool grows", "meta",
             "vc_div_up(room, VC_CHUNKS_PER_BLOCK)", "vc_div_up(chunks, VC_CHUNKS_PER_BLOCK)"),
    Mutation("another pool's block is ours", "meta", "&& le64_to_cpu(h->key) == key", ""),
    Mutation("another block's copy is ours", "meta",
             "&&\n\t       le32_to_cpu(h->index) == index;", ";"),
    Mutation("the older copy counts", "meta",
             "if (good && le64_to_cpu(h->seq) > seq) {", "if (0) {"),
    Mutation("the newer copy is written over by the older", "meta",
             "||\n\t\t    (good && le64_to_cpu(h->seq) < seq)", ""),
    Mutation("an older copy is as good", "meta", "bad |= good;", ";"),
    Mutation("a damaged copy is not repaired", "meta", "if (bad >> copy & 1)", "if (0)"),
    Mutation("a change has no number", "meta", "le64_to_cpu(h->seq) + 1", "le64_to_cpu(h->seq)"),
    Mutation("copy 1 is written after copy 0 failed", "meta",
             "for (copy = 0; copy < VC_COPIES && !r; copy++)\n\t\tr = st",
             "for (copy = 0; copy < VC_COPIES; copy++)\n\t\tr = st"),
    Mutation("unknown features are ignored", "meta",
             "(needs & ~VC_INCOMPAT_ROOM) || d->ro_compat", "d->ro_compat"),
    Mutation("a pool larger than its device", "meta",
             "if ((u64)chunks * le32_to_cpu(d->chunk_blocks) > blocks)", "if (0)"),
    Mutation("far superblocks are not found", "meta", "last = g.copy_blocks;\n", "last = 4096;\n"),
    Mutation("any superblock is the second", "meta",
             "if (!r && vc_meta_place(g, VC_META_SUPER, 0, 1) == at)", "if (0)"),
    Mutation("older superblocks stay", "meta",
             "memset(block, 0, VC_BLOCK_SIZE);\n\t\tr = st->write(st->ctx, at, 1, block);", ";"),
    Mutation("the superblock comes first", "meta",
             "r = vc_super_wipe(st, (u64)g->chunks * g->chunk_blocks, block);",
             "memset(block, 0, VC_BLOCK_SIZE); memcpy(sb.uuid, uuid, sizeof(sb.uuid));\n"
             "\tr = vc_super_save(st, g, &sb, block);"),
    Mutation("strangers in a bucket are taken", "index",
             "while (c != VC_CELL_NONE && ((ix->where[c] & ~0xffULL) != key ||",
             "while (c != VC_CELL_NONE && ("),
    Mutation("other sectors of the block are taken", "index",
             "||\n\t\t\t\t     !(ix->where[c] & mask)", ""),
    Mutation("strangers in a bucket hold sectors", "index",
             "if ((ix->where[c] & ~0xffULL) == key)\n", ""),
    Mutation("one cell of a block is all", "index", "held |= vc", "held = vc"),
    Mutation("a cut takes the whole cell", "index",
             "ix->where[c] &= ~(u64)mask;", "ix->where[c] &= ~0xffULL;"),
    Mutation("an empty cell stays in its bucket", "index", "*link = ix->next[c];", ";"),
    Mutation("a cut ends at the first cell", "index", "\t\tlink = &ix->next[c];", "\t\tbreak;"),
    Mutation("a new cell replaces its bucket", "index",
             "ix->next[cell] = *head;", "ix->next[cell] = VC_CELL_NONE;"),
    Mutation("a dropped cell keeps its sectors", "index", "ix->where[cell] = 0;", ""),
    Mutation("all volumes are one", "index", "return (u64)slot << 48 | block << 8;",
             "return block << 8;"),
    Mutation("what a guest wrote is a record", "log",
             "le32_to_cpu(h->crc) != vc_log_crc(block)", "0"),
    Mutation("a block of another chunk is a record", "log", "info->chunk == chunk &&", ""),
    Mutation("the place of data is cut off", "log",
             "e->place = where >> VC_WHERE_PLACE_SHIFT;",
             "e->place = (where >> VC_WHERE_PLACE_SHIFT) & 7;"),
    Mutation("data may be in another record", "log",
             "if (e.mask && (e.place < first || e.place > last))", "if (0)"),
    Mutation("a discard may name any record", "log", "e.place < low || e.place > high ||", ""),
    Mutation("a discard may wrap", "log", "||\n\t\t\t\te.arg > VC_WHERE_BLOCK_MAX - e.block", ""),
    Mutation("data may be behind the chunk", "log", "in->data < room - in->at && ", ""),
    Mutation("a record may have any number of entries", "log",
             "in->nr > VC_ENTRIES_PER_BLOCK ||", ""),
    Mutation("a seal of an older life counts", "seal", "||\n\t\t    info.gen != gen) {", ") {"),
    Mutation("half a seal of each writing counts", "seal", "info.turn == first->turn && ", ""),
    Mutation("the older copy of a seal counts", "seal",
             "if (good && info.turn > s->info.turn) {", "if (0) {"),
    Mutation("the newer copy of a seal is passed over", "seal",
             "||\n\t\t    (good && info.turn < s->info.turn)", ""),
    Mutation("the good copy of a seal is written first", "seal",
             "copy = s.bad & 1 ? 0 : 1;", "copy = s.bad & 1 ? 1 : 0;"),
    Mutation("one copy of a seal is sealed again", "seal",
             "for (i = 0; i < VC_SEAL_COPIES && !r; i++, copy ^= 1)", "for (i = 0; i < 1; i++)"),
    Mutation("a seal keeps its turn", "seal", "s.info.turn = s.turn + 1;", ""),
    Mutation("a torn seal's turn is taken again", "seal",
             "s.info.turn = s.turn + 1;", "s.info.turn++;"),
    Mutation("a seal keeps what is superseded", "seal",
             "if (!e.mask)\n\t\t\t\t\tcontinue;", ";"),
    Mutation("a seal loses its discards", "seal", "if (e.mask) {\n", "if (1) {\n"),
    Mutation("the dead live", "recover", "||\n\t\t    info.gen <= dead", ""),
    Mutation("a seal alone is not enough", "recover",
             "for (i = 0; i < 3; i++) {", "for (i = 0; i < 1; i++) {"),
    Mutation("chunks are in the order of their places", "recover",
             "for (i = n / 2; i--;)\n\t\tvc_sift_down(list, i, n, found);", "return;"),
    Mutation("later chunks count more", "recover",
             "return vc_record_seq(rp, chunk, place) > a->seq;", "return false;"),
    Mutation("the order of places is not looked at", "recover",
             "return place > a->place;", "return false;"),
    Mutation("the order of generations is not looked at", "recover",
             "return there->gen > here->gen;", "return false;"),
    Mutation("concurrent logs are taken for successive ones", "recover",
             "there->last < here->gen", "there->gen < here->gen"),
    Mutation("a record has no data", "recover", "if (at + info.data >= place)", "if (at >= place)"),
    Mutation("torn data counts", "recover",
             "if (!vc_replay_data_good(rp, data, &e))\n\t\t\t\tcontinue;", ""),
    Mutation("a record of an older life counts", "recover", "info->gen == f->gen && ", ""),
    Mutation("data is searched for records", "recover",
             "\t\t\tn++;\n\t\t}\n\t\tat += info.data;", "\t\t\tn++;\n\t\t}"),
    Mutation("the first torn record ends a chunk", "recover",
             "&info))\n\t\t\tcontinue;\n\t\tsealed.seq", "&info))\n\t\t\tbreak;\n\t\tsealed.seq"),
    Mutation("discards come with the entries", "recover",
             "rp->chunk[chunk].discards = true;",
             "vc_replay_discard(rp, &a, e->block, e->arg);"),
    Mutation("discards are forgotten", "recover", "if (rp->chunk[list[i]].discards)", "if (0)"),
    Mutation("large discards are forgotten", "recover", "b >= block && b - block < blocks", "0"),
    Mutation("what was taken from a chunk is not marked", "recover",
             "rp->chunk[chunk].stale = true;", ";"),
    Mutation("only the newest chunk of a log is stale", "recover",
             "older->stale |= older->lost;", ""),
    Mutation("a chunk is sealed while only reading", "recover", "if (rp->readonly)", "if (0)"),
    Mutation("what was open is not sealed", "recover", "if (rp->readonly)", "if (1)"),
    Mutation("entries may share a block of the cache", "recover",
             "|| vc_cell_mask(rp->ix, cell)) {", ") {"),
    Mutation("entries may be behind the volume", "recover", "if (e->block >= rp->limit ||", "if ("),
    Mutation("what cannot be read is given up", "recover", "if (failed)\n\t\treturn -EIO;", ""),
    Mutation("every salt is the same", "shards", "(block ^ salt)", "(block ^ 0 * salt)"),
    Mutation("neighbours are sampled alike", "shards",
             "(0x9e3779b97f4a7000ULL | 1)", "0x1001ULL"),
    Mutation("a weight is rounded to whole blocks", "shards",
             "\t\t(distance * (s->weight & VC_SHARDS_FRACTION) >>\n"
             "\t\t VC_SHARDS_ONE_SHIFT);\n\n\tif", "0;\n\n\tif"),
    Mutation("distances are those in the sample", "shards",
             "distance * (s->weight >> VC_SHARDS_ONE_SHIFT) +\n\t\t(distance *",
             "distance + 0 * (distance *"),
    Mutation("rare samples weigh too little", "shards", "w << (zeroes - 15)", "w"),
    Mutation("the least rate is exceeded", "shards",
             "|| setup->limit < VC_SHARDS_LIMIT_MIN", ""),
    Mutation("what follows a free slot is lost", "shards",
             "s->key[slot] = s->key[i];\n\t\ts->place[slot] = s->place[i];\n\t\tslot = i;",
             "break;"),
    Mutation("what follows a free slot moves too far", "shards",
             "\t\t\tcontinue;\n\t\ts->key[slot]", "\t\t\t;\n\t\ts->key[slot]"),
    Mutation("the access itself is behind itself", "shards",
             "VC_WORD - 1 - place % VC_WORD));\n\tfor",
             "VC_WORD - 1 - place % VC_WORD) / 2);\n\tfor"),
    Mutation("a block is before itself in the tree", "shards", "i > child ? n", "i >= child ? n"),
    Mutation("the last word is in the tree", "shards",
             "if (word != s->next / VC_WORD)", "if (1)"),
    Mutation("a full word is not in the tree", "shards", "if (!(++s->next % VC_WORD))",
             "if (s->next++, 0)"),
    Mutation("the older place stays", "shards", "\t\tvc_clear(s, place - 1);\n", ""),
    Mutation("renumbering takes words for empty", "shards", "\t\tbefore += n;\n", ""),
    Mutation("the heap takes any child", "shards",
             "child += s->heap[child] < s->heap[child + 1];", ";"),
    Mutation("there is no heap", "shards", "\twhile (i--)\n\t\tvc_sift_down(s, i);\n", ""),
    Mutation("what is dropped keeps its place", "shards",
             "vc_clear(s, s->place[slot] - 1);", ";"),
    Mutation("what is dropped keeps its slot", "shards", "\t\tvc_free_slot(s, slot);\n", ""),
    Mutation("T stays", "shards", "\t\ts->setup.limit = largest - 1;\n", ""),
    Mutation("the weight stays", "shards",
             "\ts->weight = vc_weight_of(s->setup.limit);\n\treturn", "\treturn"),
    Mutation("a block too many is sampled", "shards", "return hash < largest;", "return true;"),
    Mutation("T rises", "shards", "if (hash[i] <= s->setup.limit &&\n\t\t\t    !", "if (!"),
    Mutation("only the first kind is made coarser", "shards",
             "for (i = 0; i < s->setup.kinds; i++)", "for (i = 0; i < 1; i++)"),
    Mutation("all kinds are one", "shards", "counted = &s->kind[kind];", "counted = s->kind;"),
    Mutation("odd buckets are lost", "shards", "if (2 * i + 1 < n)", "if (0)"),
    Mutation("what there was no room for counts", "shards", "\t\t\t\tdone += which[i];\n", ""),
    Mutation("what was not sampled is forgotten", "shards",
             "(k->accesses << VC_SHARDS_ONE_SHIFT) - k->weighed;", "0;"),
    Mutation("less than no hits are many", "shards", "|| part >> 63", ""),
    Mutation("a cache of no blocks hits", "shards", "if (!size || ", "if ("),
    Mutation("buckets fall at their end", "shards", "\t\tpart += hits;\n", "\t\tpart = hits;\n"),
    Mutation("what was counted is left behind", "shards",
             "\t\tto->kind[i].weighed = from->kind[i].weighed;\n", ""),
    Mutation("places move with their gaps", "shards",
             "= vc_rank(from, from->place[i] - 1);", "= from->place[i];"),
    Mutation("a miss is remembered for ever", "ghost",
             "met = age < VC_GHOST_WINDOW ? age : VC_GHOST_WINDOW;", "met = age;"),
    Mutation("a miss is that of any volume", "ghost", "(u64)slot << 48 ^ block", "block"),
    Mutation("the newest miss goes", "ghost", "if (age >= oldest) {", "if (age <= oldest) {"),
    Mutation("only the first miss counts", "ghost", "\tWRITE_ONCE(e[place],",
             "\tif (met == VC_GHOST_WINDOW)\n\t\tWRITE_ONCE(e[place],"),
    Mutation("what comes back is not heard", "level", "again > first / part", "0"),
    Mutation("once is enough at the first that comes back", "level", "again > first / part",
             "again > 0"),
    Mutation("once is enough for ever", "level", "WRITE_ONCE(l->once, again > first / part);",
             "WRITE_ONCE(l->once, l->once || again > first / part);"),
    Mutation("once ends as it begins", "level",
             "READ_ONCE(l->once) ? VC_LEVEL_ENDS : VC_LEVEL_BEGINS", "VC_LEVEL_BEGINS"),
    Mutation("decided at each miss", "level", "first > cells / VC_LEVEL_PERIODS", "1"),
    Mutation("what was long ago counts as much", "level", "\t\tfirst /= 2;\n\t\tagain /= 2;\n", ""),
    Mutation("what is not hot is kept", "replace", "while (k.level > hot &&", "while (k.level &&"),
    Mutation("one more is kept", "replace", "if (!k->rest)\n\t\treturn false;", ""),
    Mutation("the coldest are kept", "replace", "return heat > k->level;",
             "return heat < k->level;"),
    Mutation("all is kept though nobody has paid", "replace", "credit >= room &&", ""),
    Mutation("chunks of a log die in any order", "writer",
             "w->found[c].gen < w->found[oldest].gen", "w->found[c].gen > w->found[oldest].gen"),
    Mutation("a chunk dies before those it has superseded", "writer",
             "!w->found[c].stale)", "1)"),
    Mutation("only the chunk that was hit is stale", "writer", "o->stale = true;", ";"),
]

#: The programs that test a file, if it is not that of the same name alone.
PROGRAMS = {
    "log": ("log", "recover"),
    "seal": ("replay", "recover"),
    "recover": ("replay", "recover"),
    "writer": ("recover",),
}

#: What is in a header.
HEADERS = {"replace": "native/core/replace.h", "writer": "tests/core/writer.h"}

#: Longer than a program takes: one that hangs has noticed, too.
HANGS = 60


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.name)
def test_mutation_is_noticed(mutation: Mutation) -> None:
    folder = build.BUILD / "mutation" / hashlib.sha256(mutation.name.encode()).hexdigest()[:12]
    tree = build.copy_tree(folder / "tree")
    changed = Path(HEADERS.get(mutation.file, f"native/core/{mutation.file}.c"))
    text = (tree / changed).read_text()
    assert text.count(mutation.old) == 1, "the line to be broken is not there (any more)"
    (tree / changed).write_text(text.replace(mutation.old, mutation.new))
    assert any(notices(build.compile_mutant(f"test_{name}", folder, tree, changed))
               for name in PROGRAMS.get(mutation.file, (mutation.file,)))


def notices(program: Path) -> bool:
    """Tell whether the program fails."""
    try:
        return build.run(program, timeout=HANGS).returncode != 0
    except subprocess.TimeoutExpired:
        return True
