// SPDX-License-Identifier: GPL-2.0
/* All checks of a pool. */
#include <inttypes.h>
#include <stdlib.h>

#include "../core/direct.h"
#include "pool.h"

struct check {
	struct pool *p;
	bool data;
	report_fn *report;
	void *ctx;
	unsigned long problems;
};

#define PROBLEM(c, ...)							\
	do {								\
		struct check *_c = (c);					\
									\
		_c->problems++;						\
		_c->report(_c->ctx, __VA_ARGS__);			\
	} while (0)

static void check_copies(struct check *c, const char *what, u32 index, int bad)
{
	unsigned int copy;

	if (bad < 0) {
		PROBLEM(c, "%s %" PRIu32 ": both copies are lost", what, index);
		return;
	}
	for (copy = 0; copy < VC_COPIES; copy++) {
		if (bad >> copy & 1)
			PROBLEM(c, "%s %" PRIu32 ": copy %u is damaged or old",
				what, index, copy);
	}
}

static void check_slot(struct check *c, u32 i)
{
	const struct vcache_slot_disk *s = pool_slot(c->p, i);
	u32 volume = le32_to_cpu(s->volume), mode = le32_to_cpu(s->mode);

	if (!volume)
		return;
	if (pool_volume(c->p, volume) != s)
		PROBLEM(c, "slot %" PRIu32 ": volume %" PRIu32
			" has another slot", i, volume);
	if (mode != VC_VOLUME_WRITEBACK && mode != VC_VOLUME_WRITETHROUGH &&
	    mode != VC_VOLUME_VSSD)
		PROBLEM(c, "slot %" PRIu32 ": unknown mode %" PRIu32,
			i, mode);
	if (s->name[VC_VOLUME_NAME_MAX])
		PROBLEM(c, "slot %" PRIu32 ": the name is not terminated", i);
	if (!s->sectors)
		PROBLEM(c, "slot %" PRIu32 ": the volume has size 0", i);
}

static void check_entries(struct check *c, const struct view *v, u64 limit)
{
	u8 *used = calloc(1, c->p->g.chunk_blocks);
	u32 i;

	for (i = 0; used && i < v->nr; i++) {
		const struct vcache_entry *e = &v->e[i];

		if (!e->mask)
			continue;
		if (used[e->place]++)
			PROBLEM(c, "chunk %" PRIu32 ": block %u has two entries",
				v->chunk, e->place);
		if (e->block >= limit)
			PROBLEM(c, "chunk %" PRIu32 ": block %u has block %" PRIu64
				" of the volume, behind its end", v->chunk,
				e->place, e->block);
		/* Entries of read chunks and of large writes have no checksum. */
		if (c->data && !(v->seal.info.flags & VC_SEAL_READS) && e->arg &&
		    !pool_data_good(c->p, v->chunk, e))
			PROBLEM(c, "chunk %" PRIu32 ": block %u has damaged data"
				" of block %" PRIu64 " of the volume", v->chunk,
				e->place, e->block);
	}
	free(used);
}

/* A block of an elastic SSD must be inside it. */
static void check_direct(struct check *c, const struct view *v)
{
	u64 blocks = le64_to_cpu(v->direct->sectors) / VC_BLOCK_SECTORS / c->p->g.chunk_blocks;

	if (v->block >= blocks)
		PROBLEM(c, "chunk %" PRIu32 ": block %" PRIu32 " is behind the end of volume %"
			PRIu32, v->chunk, v->block, le32_to_cpu(v->direct->volume));
}

/* Sets @gen to a number that no two chunks may have, or 0. */
static void check_chunk(struct check *c, u32 chunk, u64 *gen)
{
	const struct vcache_slot_disk *slot;
	u64 limit = ~0ULL;
	struct view v;
	unsigned int copy;

	pool_view(c->p, chunk, &v);
	if (v.unreadable)
		PROBLEM(c, "chunk %" PRIu32 ": cannot be read", chunk);
	*gen = v.found.gen;
	if (v.direct) {
		*gen = le64_to_cpu(pool_table(c->p, chunk)->clean);
		check_direct(c, &v);
		return;
	}
	if (!v.found.gen)
		return;
	slot = pool_volume(c->p, v.found.volume);
	if (!slot)
		PROBLEM(c, "chunk %" PRIu32 ": there is no volume %" PRIu32,
			chunk, v.found.volume);
	else if (v.found.gen < le64_to_cpu(slot->floor))
		*gen = 0;
	else
		limit = (le64_to_cpu(slot->sectors) + VC_BLOCK_SECTORS - 1) /
			VC_BLOCK_SECTORS;
	if (!*gen) {
		free(v.e);
		return;
	}
	if (v.found.damaged)
		PROBLEM(c, "chunk %" PRIu32 ": the first record is damaged",
			chunk);
	if (!v.sealed && c->p->sb.flags & VC_SUPER_CLEAN)
		PROBLEM(c, "chunk %" PRIu32 ": the seal is lost", chunk);
	for (copy = 0; v.sealed && copy < VC_SEAL_COPIES; copy++) {
		if (v.seal.bad >> copy & 1)
			PROBLEM(c, "chunk %" PRIu32 ": copy %u of the seal is"
				" damaged or old", chunk, copy);
	}
	if (v.bad_data && c->p->sb.flags & VC_SUPER_CLEAN)
		PROBLEM(c, "chunk %" PRIu32 ": data of %" PRIu32
			" entries is damaged", chunk, v.bad_data);
	check_entries(c, &v, limit);
	free(v.e);
}

static int compare(const void *a, const void *b)
{
	u64 x = *(const u64 *)a, y = *(const u64 *)b;

	return x < y ? -1 : x > y;
}

static void check_chunks(struct check *c)
{
	u32 n = c->p->g.chunks - c->p->g.first_chunk, i;
	u64 *gen = calloc(n, sizeof(*gen));

	if (!gen) {
		PROBLEM(c, "no memory");
		return;
	}
	for (i = 0; i < n; i++)
		check_chunk(c, c->p->g.first_chunk + i, &gen[i]);
	qsort(gen, n, sizeof(*gen), compare);
	for (i = 1; i < n; i++) {
		if (!gen[i] || gen[i] != gen[i - 1])
			continue;
		if (gen[i] & VC_DIRECT_BIT)
			PROBLEM(c, "two chunks have block %" PRIu32 " of an elastic SSD",
				(u32)gen[i]);
		else
			PROBLEM(c, "two chunks have generation %" PRIu64,
				gen[i]);
	}
	free(gen);
}

/**
 * pool_check - check a pool for damage
 * @p: the device, loaded
 * @data: check all data, too
 * @report: called for each problem
 * @ctx: passed to @report
 *
 * Return: the number of problems.
 */
unsigned long pool_check(struct pool *p, bool data, report_fn *report,
			 void *ctx)
{
	struct check c = { .p = p, .data = data, .report = report,
			   .ctx = ctx };
	u32 i;

	check_copies(&c, "superblock", 0, p->super_bad);
	for (i = 0; i < p->g.slot_blocks; i++)
		check_copies(&c, "slot block", i, p->slots_bad[i]);
	for (i = 0; i < p->g.table_blocks; i++)
		check_copies(&c, "table block", i, p->table_bad[i]);
	for (i = 0; i < pool_slots(p); i++)
		check_slot(&c, i);
	check_chunks(&c);
	return c.problems;
}
