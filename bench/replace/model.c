// SPDX-License-Identifier: GPL-2.0
/*
 * The replacement rules of native/core, applied to the chunks of one tag with a
 * cache of its own: model CELLS BLOCKS [LEVEL] < ACCESSES prints JSON. An access has 8
 * bytes: twice the number of a block (below BLOCKS), plus one for a write. LEVEL names the
 * hot level: "target", that of native/core, or another one, see adapt().
 *
 * It is a model of reads.c, promote.c and space.c in native/dm, in which operations
 * take no time. It has no write buffer, record blocks, reserve of the pool, or
 * requests of several blocks.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../native/core/ghost.h"
#include "../../native/core/hot.h"
#include "../../native/core/level.h"
#include "../../native/core/replace.h"

/* A chunk is a 64th of the cache, but not larger than a chunk of the target. */
#define CHUNKS		64U
#define CHUNK_LEAST	4U
#define CHUNK_MOST	256U
#define NONE		(~0U)

enum kind { WRITTEN, SMALL, MAIN, KINDS };

struct queue {
	u32 *chunk;		/* ring of all chunks */
	u32 first, nr;		/* oldest closed chunk, and number of them */
	u32 open, filled;
};

static u32 room, chunks, *free_chunk, nr_free;
static u32 *block_of;		/* by cell: number of a block, or NONE */
static u8 *heat;
static enum kind *kind_of;	/* by chunk */
static u32 *live_in;		/* by chunk: number of live blocks */
static u32 *cell_of;		/* by block */
static u32 live, credit, misses;
static u64 promoted, kept;
static struct queue queue[KINDS];
static struct vcache_ghosts ghosts;
static struct vcache_level level;

/* The hot level: that of the target, a fixed one, or how it adapts. */
enum hot_level { TARGET, FIXED, FEEDBACK, HALF, SMQ };
static struct vcache_hot target;
static enum hot_level how;
static u32 raised;		/* how much the hot level is above the fixed one */
static u32 kept_new, kept_read;	/* recently kept blocks, and those of them that were read */
static u32 hits_now, misses_now;
static u8 *kept_cell;		/* by cell: kept, and not read since */

static void *take(size_t n, size_t size)
{
	void *p = calloc(n, size);

	if (!p)
		exit(1);
	return p;
}

static void forget(u32 cell)
{
	cell_of[block_of[cell]] = NONE;
	block_of[cell] = NONE;
	live_in[cell / room]--;
	live--;
}

/* As vc_chunk_hot() has it, of the oldest chunk of a kind. */
static u32 read_of(enum kind kind)
{
	struct queue *q = &queue[kind];
	u32 cell = q->chunk[q->first] * room, n = 0, i;

	for (i = cell; i < cell + room; i++)
		n += block_of[i] != NONE && heat[i];
	return n;
}

/* As vc_log_emptiest() has it: the chunk with the least in it is the first then. */
static void emptiest_first(struct queue *q)
{
	u32 i, at, least = q->first, n = q->nr < VC_VICTIMS ? q->nr : VC_VICTIMS, chunk;

	for (i = 1; i < n; i++) {
		at = (q->first + i) % chunks;
		if (live_in[q->chunk[at]] < live_in[q->chunk[least]])
			least = at;
	}
	chunk = q->chunk[least];
	for (at = least; at != q->first; at = (at + chunks - 1) % chunks)
		q->chunk[at] = q->chunk[(at + chunks - 1) % chunks];
	q->chunk[q->first] = chunk;
}

/* As vcache_log_victim() has it. */
static enum kind victim(void)
{
	u32 reads = queue[SMALL].nr + queue[MAIN].nr;

	if (queue[SMALL].nr && queue[SMALL].nr * 100 > chunks * VC_SMALL_PERCENT)
		return SMALL;
	if (vcache_keep_any(live, (u64)chunks * room, credit, room) && queue[MAIN].nr) {
		emptiest_first(&queue[MAIN]);
		return queue[WRITTEN].nr &&
		       vcache_written_goes(live_in[queue[WRITTEN].chunk[queue[WRITTEN].first]],
					   live_in[queue[MAIN].chunk[queue[MAIN].first]]) ?
		       WRITTEN : MAIN;
	}
	if (queue[MAIN].nr && (reads * 100 > chunks * VC_READS_PERCENT || !queue[WRITTEN].nr))
		return MAIN;
	if (queue[WRITTEN].nr && queue[MAIN].nr)
		return vcache_written_goes(read_of(WRITTEN), read_of(MAIN)) ? WRITTEN : MAIN;
	return queue[WRITTEN].nr ? WRITTEN : SMALL;
}

static u32 place(enum kind kind, u32 block);

/* How many eighths of 64 levels are hot, by sixteenths of the hit ratio: dm-cache's table. */
static const u32 smq_levels[16] = { 1, 1, 1, 2, 4, 6, 7, 8, 7, 6, 4, 4, 3, 3, 2, 2 };

/* The least heat of the hottest so many 64ths of the live blocks, at least 1. */
static u32 quantile(u32 parts)
{
	u32 count[VC_HEAT_MAX + 1] = { 0 }, h = VC_HEAT_MAX, n, i;

	for (i = 0; i < chunks * room; i++) {
		if (block_of[i] != NONE)
			count[heat[i]]++;
	}
	for (n = count[h]; h > 1 && (u64)(n + count[h - 1]) * 64 <= (u64)live * parts; h--)
		n += count[h - 1];
	return h;
}

/*
 * After each sixteenth of a cache full of accesses, decide on the hot level again.
 * FIXED: the lowest. FEEDBACK: it rises while less than a quarter of the kept blocks are read
 * again, and falls while more than half of them are. HALF: the hotter half is hot, since the
 * levels of SMQ have equal sizes. SMQ: as many as dm-cache's SMQ promotes at this hit ratio.
 */
static void adapt(void)
{
	u32 n = hits_now + misses_now;

	if (how <= FIXED || n < chunks * room / VC_LEVEL_PERIODS)
		return;
	if (how == HALF)
		raised = quantile(32) - 1;
	else if (how == SMQ)
		raised = quantile(smq_levels[hits_now < n ? 16ULL * hits_now / n : 15]) - 1;
	else if (kept_new * 1ULL > 4ULL * kept_read && raised < VC_HEAT_MAX - VC_HEAT_NEW)
		raised++;
	else if (kept_new < 2 * kept_read && raised)
		raised--;
	kept_new /= 2;
	kept_read /= 2;
	hits_now = 0;
	misses_now = 0;
}

/* The least heat of a hot block. */
static u32 hot_level(enum kind kind)
{
	u32 lowest = kind == MAIN ? VC_HEAT_MAIN : VC_HEAT_NEW, least = lowest + raised;

	if (how == TARGET)
		return vcache_hot_level(&target, lowest);
	return least < VC_HEAT_MAX ? least : VC_HEAT_MAX;
}

/* Reclaim the oldest chunk of a kind. */
static void reclaim_chunk(void)
{
	static u32 blocks[CHUNK_MOST], hot[CHUNK_MOST];
	enum kind kind = victim();
	struct queue *q = &queue[kind];
	u32 cell = q->chunk[q->first] * room, count[VC_HEAT_MAX + 1] = { 0 }, n = 0, i, spent;
	bool any = vcache_keep_any(live, (u64)chunks * room, credit, room);
	struct vcache_keep keep;

	for (i = 0; i < room; i++) {
		if (block_of[cell + i] != NONE)
			count[heat[cell + i]]++;
	}
	keep = vcache_keep_choose(count, any ? 0 : hot_level(kind),
				  vcache_keep_most(room, false));
	vcache_hot_note(&target, count, chunks * room);
	for (i = 0; i < room; i++) {
		if (block_of[cell + i] == NONE)
			continue;
		if (vcache_keep_wants(&keep, heat[cell + i])) {
			blocks[n] = block_of[cell + i];
			hot[n++] = heat[cell + i];
		}
		forget(cell + i);
	}
	free_chunk[nr_free++] = q->chunk[q->first];
	q->first = (q->first + 1) % chunks;
	q->nr--;
	/* This frees more space than it uses: a quarter of the chunk. */
	for (i = 0; i < n; i++) {
		cell = place(MAIN, blocks[i]);
		heat[cell] = hot[i] / 2;
		kept_cell[cell] = 1;
	}
	kept += n;
	kept_new += n;
	spent = n * VC_CREDIT_KEEP;
	credit -= spent < credit ? spent : credit;
}

static u32 place(enum kind kind, u32 block)
{
	struct queue *q = &queue[kind];
	u32 cell;

	if (q->open != NONE && q->filled == room) {
		q->chunk[(q->first + q->nr++) % chunks] = q->open;
		q->open = NONE;
	}
	if (q->open == NONE) {
		if (!nr_free) {
			reclaim_chunk();
			/* The kept blocks may have opened a chunk, or filled it. */
			return place(kind, block);
		}
		q->open = free_chunk[--nr_free];
		q->filled = 0;
		kind_of[q->open] = kind;
	}
	cell = q->open * room + q->filled++;
	block_of[cell] = block;
	heat[cell] = 0;
	kept_cell[cell] = 0;
	cell_of[block] = cell;
	live_in[cell / room]++;
	live++;
	return cell;
}

static void hit(u32 cell)
{
	if (!heat[cell] && kind_of[cell / room] == SMALL)
		vcache_level_hit(&level);
	kept_read += kept_cell[cell];
	kept_cell[cell] = 0;
	if (heat[cell] < VC_HEAT_MAX)
		heat[cell]++;
	if (credit < VC_CREDIT_MAX)
		credit += VC_CREDIT_READ;
}

/* As vc_promote_kind() has it, of one block. */
static void miss(u32 block)
{
	u32 cells = chunks * room;
	u32 age = vcache_ghost_meet(&ghosts, 0, block, vcache_ghost_hour(misses, cells));
	bool seen = age < VC_GHOST_WINDOW, fits = vcache_fits(live, cells);

	misses += !seen;
	if (credit < VC_CREDIT_MAX)
		credit += VC_CREDIT_READ;
	vcache_level_miss(&level, !seen, !age, cells);
	if (!seen && !fits && !level.once)
		return;
	place(seen || fits ? MAIN : SMALL, block);
	promoted++;
}

static void begin(u32 cells, u32 blocks)
{
	u32 i;

	room = cells / CHUNKS;
	room = room < CHUNK_LEAST ? CHUNK_LEAST : room > CHUNK_MOST ? CHUNK_MOST : room;
	chunks = cells / room;
	/* One for each kind, and one being reclaimed. */
	if (chunks < KINDS + 1) {
		fprintf(stderr, "model: %u cells are too few\n", cells);
		exit(2);
	}
	free_chunk = take(chunks, sizeof(*free_chunk));
	kind_of = take(chunks, sizeof(*kind_of));
	live_in = take(chunks, sizeof(*live_in));
	while (nr_free < chunks) {
		free_chunk[nr_free] = nr_free;
		nr_free++;
	}
	block_of = take((size_t)chunks * room, sizeof(*block_of));
	heat = take((size_t)chunks * room, 1);
	kept_cell = take((size_t)chunks * room, 1);
	for (i = 0; i < chunks * room; i++)
		block_of[i] = NONE;
	cell_of = take(blocks, sizeof(*cell_of));
	for (i = 0; i < blocks; i++)
		cell_of[i] = NONE;
	for (i = 0; i < KINDS; i++) {
		queue[i].chunk = take(chunks, sizeof(u32));
		queue[i].open = NONE;
	}
	ghosts.entries = vcache_ghost_entries(chunks * room);
	ghosts.entry = take(ghosts.entries, sizeof(u16));
	credit = VC_CREDIT_FIRST;
}

int main(int argc, char **argv)
{
	u64 access, n = 0, missed[2] = { 0 }, writes = 0;
	static const char *const levels[] = { "target", "fixed", "feedback", "half", "smq" };
	char *end = "";

	while (argc == 4 && how <= SMQ && strcmp(argv[3], levels[how]))
		how++;
	if (argc < 3 || argc > 4 || how > SMQ ||
	    (begin(strtoul(argv[1], &end, 10), strtoul(argv[2], NULL, 10)), *end)) {
		fprintf(stderr, "usage: model CELLS BLOCKS [LEVEL] < ACCESSES\n");
		return 2;
	}
	while (fread(&access, sizeof(access), 1, stdin) == 1) {
		u32 block = access / 2, cell = cell_of[block];
		bool write = access % 2;

		n++;
		writes += write;
		missed[write] += cell == NONE;
		hits_now += cell != NONE;
		misses_now += cell == NONE;
		adapt();
		if (write) {
			if (credit < VC_CREDIT_MAX)
				credit += VC_CREDIT_WRITE;
			if (cell != NONE)
				forget(cell);
			place(WRITTEN, block);
		} else if (cell == NONE) {
			miss(block);
		} else {
			hit(cell);
		}
	}
	printf("{\"accesses\": %" PRIu64 ", \"writes\": %" PRIu64, n, writes);
	printf(", \"read_misses\": %" PRIu64 ", \"write_misses\": %" PRIu64, missed[0], missed[1]);
	printf(", \"promoted\": %" PRIu64 ", \"kept\": %" PRIu64 "}\n", promoted, kept);
	return 0;
}
