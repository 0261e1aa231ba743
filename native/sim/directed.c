// SPDX-License-Identifier: GPL-2.0-only
/*
 * The simulation: directed cases, for rules that need a certain failure, or a rare order. The
 * seed varies the details. It is long because it is a list.
 */
#include "history.h"

static struct op *add(struct sim_case *c, enum op_kind kind, u32 sector, u32 n, u32 arg)
{
	struct op *o = &c->op[c->nops++];

	if (c->nops > OPS_MAX)
		sim_bug(__FILE__, __LINE__, "a case has too many operations");
	o->kind = kind;
	o->sector = sector;
	o->n = n;
	o->arg = arg;
	return o;
}

/* A tag's mode changes while it has dirty data, and destage goes on meanwhile. */
static void stale_destage(struct sim_case *c, struct sim_rng *r)
{
	u32 i, n = 3 + sim_below(r, 6);

	c->config = &sim_configs[0];
	c->latency = 1 + sim_below(r, 20);
	for (i = 0; i < n; i++)
		add(c, OP_WRITE_A, 64 + 8 * i, 8, 0);
	add(c, OP_FLUSH_A, 0, 0, 0);
	if (sim_chance(r, 2))
		add(c, OP_TIME, 0, 0, sim_below(r, 700));
	add(c, OP_MODE, 0, 0, sim_below(r, 2));
	if (sim_chance(r, 4))
		add(c, OP_DISCARD, 64, 8 * n, 0);
	add(c, OP_DRAIN, 0, 0, 0);
	for (i = 0; i < 2 * n; i++) {
		add(c, sim_chance(r, 2) ? OP_FUA : OP_WRITE_A, 64 + 8 * sim_below(r, n), 8, 0);
		if (sim_chance(r, 3))
			add(c, OP_FLUSH_A, 0, 0, 0);
	}
	add(c, OP_FLUSH_A, 0, 0, 0);
	c->overlap = true;
}

/* "Tags without dirty data continue with the origin." */
static void cache_lost(struct sim_case *c, struct sim_rng *r)
{
	u32 i;

	c->config = &sim_configs[0];
	c->faults = true;
	add(c, OP_WRITE_A, 64, 8, 0);
	add(c, OP_FLUSH_A, 0, 0, 0);
	add(c, OP_LOSE_CACHE, 0, 0, 0);
	for (i = 0; i < 6; i++) {
		add(c, OP_WRITE_A, 64 + 8 * sim_below(r, 4), 8, 0);
		add(c, OP_FLUSH_A, 0, 0, 0);
	}
	add(c, OP_TIME, 0, 0, 500);
	for (i = 0; i < 3; i++) {
		add(c, OP_WRITE_B, 128 + 8 * sim_below(r, 4), 8, 0)->must = true;
		add(c, OP_FLUSH_B, 0, 0, 0)->must = true;
		add(c, OP_READ, 128, 32, 0)->must = true;
	}
}

/*
 * "If a chunk cannot be sealed again, its tag destages the chunk and all older ones." The host
 * supersedes what A has in a chunk that cannot be written any more, and goes on writing.
 */
static void seal_fails(struct sim_case *c, struct sim_rng *r)
{
	u32 i;

	c->config = &sim_configs[7];
	c->faults = true;
	c->no_heal = true;
	add(c, OP_WRITE_A, 64, 8, 0);
	add(c, OP_WRITE_A, 72, 8, 0);
	add(c, OP_FLUSH_A, 0, 0, 0);
	add(c, OP_FAIL_LAST, 0, 0, 0);
	add(c, OP_WRITE_HOST, 64, 8, 0);
	for (i = 0; i < 100; i++) {
		add(c, OP_WRITE_HOST, 256 + 8 * sim_below(r, 30), 16, 0)->must = true;
		if (i % 2)
			add(c, OP_FLUSH_ALL, 0, 0, 0);
	}
}

/* A record of which the device has a part has failed. What a power cut leaves of it stays. */
static void failed_record(struct sim_case *c, struct sim_rng *r)
{
	seal_fails(c, r);
	c->nops -= 60;
	c->reread = true;
	c->cut_every = 6;
}

/* A record has failed, but is on the device. Then the tag does without its cache. */
static void failed_record_past_log(struct sim_case *c, struct sim_rng *r)
{
	u32 i;

	c->config = &sim_configs[sim_below(r, 3)];
	c->faults = true;
	c->cut_every = 2;
	c->latency = 1 + sim_below(r, 8);
	add(c, OP_FAIL_CACHE, 10 * 128, 22 * 128, 0);
	add(c, OP_WRITE_A, 64, 16, 0);
	add(c, OP_FLUSH_A, 0, 0, 0);
	add(c, OP_HEAL, 0, 0, 0);
	add(c, OP_MODE, 0, 0, 1);
	for (i = 0; i < 3; i++) {
		add(c, OP_FLUSH_A, 0, 0, 0);
		if (sim_chance(r, 3))
			add(c, OP_DISCARD, 64, 16, 0);
		add(c, OP_WRITE_A, 64 + 8 * sim_below(r, 2), 8, 0);
	}
	add(c, OP_FLUSH_A, 0, 0, 0);
}

/*
 * Records of B have failed, but are on the device. Others supersede what they have, and their
 * chunks are reclaimed earlier.
 */
static void failed_record_of_two(struct sim_case *c, struct sim_rng *r)
{
	u32 i;

	c->config = &sim_configs[7];
	c->faults = true;
	c->cut_every = 12;
	add(c, OP_WRITE_B, 128, 8, 0);
	add(c, OP_FLUSH_B, 0, 0, 0);
	add(c, OP_FAIL_LAST, 0, 0, 0);
	add(c, OP_WRITE_B, 136, 16, 0);
	add(c, OP_WRITE_B, 64, 16, 0);
	add(c, OP_FLUSH_B, 0, 0, 0);
	add(c, OP_HEAL, 0, 0, 0);
	add(c, OP_WRITE_HOST, 64, 16, 0);
	add(c, OP_WRITE_HOST, 136, 16, 0);
	add(c, OP_FLUSH_ALL, 0, 0, 0);
	for (i = 0; i < 60; i++) {
		add(c, OP_WRITE_HOST, 256 + 8 * sim_below(r, 30), 16, 0);
		if (i % 2)
			add(c, OP_FLUSH_ALL, 0, 0, 0);
	}
	add(c, OP_DRAIN, 0, 0, 0);
	add(c, OP_TIME, 0, 0, HZ);
}

/* A block that the origin does not take stays dirty, and only that. */
static void bad_block(struct sim_case *c, struct sim_rng *r)
{
	u32 i, bad = 40 + sim_below(r, 8);

	c->config = &sim_configs[7];
	c->faults = true;
	c->no_heal = true;
	c->bad_blocks = 1;
	c->settle = 120;
	add(c, OP_FAIL_ORIGIN, bad * 8, 8, 0);
	for (i = 32; i < 56; i++)
		add(c, OP_WRITE_HOST, i * 8, 8, 0);
	add(c, OP_FLUSH_ALL, 0, 0, 0);
	add(c, OP_DRAIN, 0, 0, 0);
	add(c, OP_TIME, 0, 0, 40 * HZ);
}

/* The same with blocks of two tags; and then a suspend ends all the same. */
static void two_bad_blocks(struct sim_case *c, struct sim_rng *r)
{
	u32 i, n = 8 + sim_below(r, 24);

	c->config = &sim_configs[7];
	c->faults = true;
	c->no_heal = true;
	c->bad_blocks = 2;
	c->settle = 20;
	add(c, OP_FAIL_ORIGIN, 120, 16, 0);
	for (i = 0; i < n; i++) {
		if (sim_chance(r, 2))
			add(c, OP_WRITE_A, 64 + 8 * sim_below(r, 8), 8, 0);
		else
			add(c, OP_WRITE_B, 128 + 8 * sim_below(r, 8), 8, 0);
		if (sim_chance(r, 4))
			add(c, OP_FLUSH_ALL, 0, 0, 0);
	}
	add(c, OP_WRITE_A, 120, 8, 0);
	add(c, OP_WRITE_B, 128, 8, 0);
	add(c, OP_FLUSH_ALL, 0, 0, 0);
	add(c, OP_DRAIN, 0, 0, 0);
	add(c, OP_TIME, 0, 0, 40 * HZ);
	add(c, OP_SUSPEND, 0, 0, 0);
}

/* A tag is removed while its writes wait for memory. */
static void removed_tag(struct sim_case *c, struct sim_rng *r)
{
	u32 i;

	c->config = &sim_configs[0];
	c->no_memory = true;
	c->overlap = true;
	for (i = 0; i < 40; i++) {
		add(c, sim_chance(r, 5) ? OP_FUA : OP_WRITE_A, 64 + 8 * sim_below(r, 6), 16, 0);
		if (i % 4 == 3)
			add(c, OP_RECREATE, 0, 0, 0);
		if (sim_chance(r, 4))
			add(c, OP_TIME, 0, 0, sim_below(r, 6));
	}
}

/* The metadata of the pool cannot be written any more. The rest goes on, without haste. */
static void read_only_pool(struct sim_case *c, struct sim_rng *r)
{
	u32 i;

	c->config = &sim_configs[7];
	c->faults = true;
	add(c, OP_WRITE_A, 64, 8, 0);
	add(c, OP_FLUSH_A, 0, 0, 0);
	add(c, OP_FAIL_CACHE, 0, 10 * 128, 0);
	for (i = 0; i < 60; i++) {
		add(c, sim_chance(r, 3) ? OP_WRITE_A : OP_WRITE_HOST, 64 + 8 * sim_below(r, 6),
		    16, 0);
		if (i % 2)
			add(c, OP_FLUSH_ALL, 0, 0, 0);
	}
}

/* Few chunks have much dirty data, of which a part is superseded, and the origin hangs. */
static void few_chunks(struct sim_case *c, struct sim_rng *r)
{
	u32 i, blocks = 10 + sim_below(r, 30);

	c->config = &sim_configs[7];
	c->faults = true;
	c->cut_every = 1000;
	add(c, OP_HANG, 0, 512, 0);
	for (i = 0; i < 40; i++) {
		u32 kind = sim_below(r, 6);

		add(c, kind ? OP_WRITE_HOST : sim_chance(r, 2) ? OP_WRITE_A : OP_WRITE_B,
		    64 + 8 * sim_below(r, blocks), 24, 0);
		if (sim_chance(r, 2))
			add(c, OP_FLUSH_ALL, 0, 0, 0);
		if (i == 30 && sim_chance(r, 2))
			add(c, OP_FAIL_CACHE, (10 + sim_below(r, 12)) * 128,
			    128 + sim_below(r, 256), 0);
	}
	add(c, OP_TIME, 0, 0, 10 * HZ);
}

/*
 * The oldest chunk has blocks that the cache device cannot read. They can be neither destaged nor
 * relocated, and the log has so much superseded data that relocation would gain a chunk. @what
 * cannot be read: the chunk, 1, or its data, 2. The origin does not take @origin other blocks.
 */
static void unreadable(struct sim_case *c, struct sim_rng *r, u32 what, u32 origin)
{
	u32 i;

	c->config = &sim_configs[7];
	c->faults = true;
	c->cut_every = 1000;
	for (i = 0; i < 4; i++)
		add(c, OP_WRITE_HOST, 256 + 24 * i, 24, 0);
	add(c, OP_FLUSH_ALL, 0, 0, 0);
	add(c, OP_FAIL_LAST, 0, 0, what);
	if (origin)
		add(c, OP_FAIL_ORIGIN, 64, 8 * origin, 0);
	/* A later chunk supersedes a part of it. */
	if (what == 2)
		add(c, OP_WRITE_HOST, 256, 8 + 8 * sim_below(r, 7), 0);
	for (i = 0; i < 60; i++) {
		add(c, OP_WRITE_HOST, 64 + 8 * sim_below(r, 8), 24, 0);
		if (i % 2)
			add(c, OP_FLUSH_ALL, 0, 0, 0);
	}
	add(c, OP_TIME, 0, 0, 10 * HZ);
}

static void unreadable_chunk(struct sim_case *c, struct sim_rng *r)
{
	unreadable(c, r, 1, 0);
}

/* The same, but the seal of the chunk can be read. So later chunks are reclaimed before it. */
static void unreadable_data(struct sim_case *c, struct sim_rng *r)
{
	unreadable(c, r, 2, 0);
	c->cut_every = 24;
}

/* The origin does not take some blocks of later chunks either. These can be relocated. */
static void unreadable_and_bad(struct sim_case *c, struct sim_rng *r)
{
	unreadable(c, r, 1, 1 + sim_below(r, 12));
}

/*
 * Two logs overwrite blocks of each other in two chunks, of which neither records nor seals can
 * be read: neither can be sealed again before the other one is reclaimed. Their data can be read.
 */
static void unsealable_chunks(struct sim_case *c, struct sim_rng *r)
{
	u32 i, blocks = 1 + sim_below(r, 3);

	c->config = &sim_configs[7];
	c->faults = true;
	c->no_heal = true;
	c->cut_every = 24;
	/* What only these chunks have keeps them. */
	add(c, OP_WRITE_A, 96, 8, 0);
	add(c, OP_WRITE_A, 64, 24, 0);
	add(c, OP_FLUSH_ALL, 0, 0, 0);
	add(c, OP_FAIL_LAST, 0, 0, 3);
	add(c, OP_WRITE_HOST, 256, 8, 0);
	add(c, OP_WRITE_HOST, 64, 8 * blocks, 0);
	add(c, OP_FLUSH_ALL, 0, 0, 0);
	add(c, OP_FAIL_LAST, 0, 0, 3);
	add(c, OP_WRITE_A, 64, 8, 0);
	for (i = 0; i < 60; i++) {
		add(c, sim_chance(r, 2) ? OP_WRITE_A : OP_WRITE_HOST, 72 + 8 * sim_below(r, 2), 8,
		    0);
		if (i % 2)
			add(c, OP_FLUSH_ALL, 0, 0, 0);
	}
	add(c, OP_TIME, 0, 0, 10 * HZ);
}

/*
 * Large writes of blocks that others write, flush, discard and relocate meanwhile. @c->large is
 * larger than a block, so that others are copied.
 */
static void large_writes(struct sim_case *c, struct sim_rng *r)
{
	static const enum op_kind kinds[] = { OP_WRITE_A, OP_WRITE_HOST, OP_WRITE_HOST, OP_WRITE_A,
					      OP_FLUSH_A, OP_FLUSH_ALL, OP_DISCARD };
	u32 i, blocks = 2 + sim_below(r, 12), nkinds = 5 + sim_below(r, 3);

	c->config = &sim_configs[7];
	c->large = 8;
	c->overlap = true;
	c->latency = 1 + sim_below(r, 20);
	for (i = 0; i < 45; i++) {
		enum op_kind kind = kinds[sim_below(r, nkinds)];

		add(c, kind, 64 + 8 * sim_below(r, blocks), 8 + 8 * sim_below(r, 3), 0);
		if (sim_chance(r, 6))
			add(c, OP_TIME, 0, 0, sim_below(r, 3));
	}
}

/* The origin takes nothing of what several tags write, until their logs are full. */
static void full_of_bad_blocks(struct sim_case *c, struct sim_rng *r)
{
	static const enum op_kind writes[] = { OP_WRITE_A, OP_WRITE_B, OP_WRITE_HOST, OP_FUA };
	u32 i, blocks = 6 + sim_below(r, 20);

	c->config = &sim_configs[7 + sim_below(r, 2)];
	c->faults = true;
	c->overlap = true;
	c->cut_every = 1000;
	c->latency = 1 + sim_below(r, 6);
	add(c, OP_FAIL_ORIGIN, 64, 8 + 8 * sim_below(r, blocks), 0);
	if (sim_chance(r, 2))
		add(c, OP_DRAIN, 0, 0, 0);
	for (i = 0; i < 50; i++) {
		add(c, writes[sim_below(r, 4)], 64 + 4 * sim_below(r, 2 * blocks), 4 + 4 *
		    sim_below(r, 6), 0);
		if (sim_chance(r, 2))
			add(c, OP_FLUSH_ALL, 0, 0, 0);
		if (sim_chance(r, 20))
			add(c, sim_chance(r, 2) ? OP_DROP : OP_DRAIN, 0, 0, sim_below(r, 3));
	}
}

/*
 * Chunks whose blocks are overwritten are reclaimed before older ones. The other tag, and
 * discards, supersede some of what both have. Then the other tag drops what it has.
 */
static void reclaimed_early(struct sim_case *c, struct sim_rng *r)
{
	u32 i, cold = 6 + sim_below(r, 10);

	c->config = &sim_configs[7 + sim_below(r, 2)];
	c->cut_every = 8;
	c->reread = true;
	for (i = 0; i < cold; i++)
		add(c, OP_WRITE_A, 64 + 8 * i, 8, 0);
	add(c, OP_FLUSH_A, 0, 0, 0);
	for (i = 0; i < 40; i++) {
		u32 at = 64 + 8 * sim_below(r, cold);

		if (sim_chance(r, 3))
			add(c, OP_WRITE_A, at, 8, 0);
		if (sim_chance(r, 4))
			add(c, OP_WRITE_B, at, 8, 0);
		add(c, OP_WRITE_A, 64 + 8 * (cold + sim_below(r, 2)), 16, 0);
		add(c, sim_chance(r, 3) ? OP_FLUSH_ALL : OP_FLUSH_A, 0, 0, 0);
	}
	add(c, OP_DRAIN, 0, 0, 0);
	add(c, OP_TIME, 0, 0, sim_below(r, 4) * HZ);
	add(c, OP_DROP, 0, 0, 2);
	add(c, OP_TIME, 0, 0, HZ);
	add(c, OP_WRITE_A, 64 + 8 * cold, 8, 0);
	add(c, OP_FLUSH_A, 0, 0, 0);
}

/*
 * The same in volume scope, where the log of the tag has the discards. What was discarded is
 * written past the log. The older chunks still have what had been there before.
 */
static void discarded_early(struct sim_case *c, struct sim_rng *r)
{
	u32 i, at, hot = 8 + sim_below(r, 6);

	c->config = &sim_configs[6];
	c->cut_every = 12;
	add(c, OP_WRITE_A, 64, 8 * hot, 0);
	add(c, OP_FLUSH_A, 0, 0, 0);
	for (i = 0; i < 60; i++) {
		at = 64 + 8 * sim_below(r, hot);
		if (sim_chance(r, 6)) {
			add(c, OP_DISCARD, at, 8, 0);
			add(c, OP_MODE, 0, 0, 1);
			add(c, OP_WRITE_A, at, 8, 0);
			add(c, OP_FLUSH_A, 0, 0, 0);
			add(c, OP_MODE, 0, 0, 2);
		} else {
			add(c, OP_WRITE_A, at, 8, 0);
			add(c, OP_WRITE_A, 64 + 8 * (hot + sim_below(r, 2)), 40, 0);
			add(c, OP_FLUSH_A, 0, 0, 0);
		}
	}
}

/* Writers wait while their volume is drained, and its chunks become free. */
static void drain_and_write(struct sim_case *c, struct sim_rng *r)
{
	static const enum op_kind writes[] = { OP_WRITE_A, OP_WRITE_B, OP_WRITE_HOST };
	u32 i;

	c->config = &sim_configs[7 + sim_below(r, 2)];
	c->overlap = true;
	c->cut_every = 1000;
	for (i = 0; i < 50; i++) {
		add(c, writes[sim_below(r, 3)], 64 + 8 * sim_below(r, 24), 24, 0);
		if (sim_chance(r, 2))
			add(c, OP_FLUSH_ALL, 0, 0, 0);
		if (i == 10 || sim_chance(r, 12))
			add(c, sim_chance(r, 2) ? OP_DROP : OP_DRAIN, 0, 0, sim_below(r, 3));
	}
}

/* The same with few blocks: what they supersede empties chunks, which need not be destaged. */
static void drain_superseded(struct sim_case *c, struct sim_rng *r)
{
	static const enum op_kind writes[] = { OP_WRITE_A, OP_WRITE_B, OP_WRITE_HOST };
	u32 i;

	c->config = &sim_configs[7 + sim_below(r, 2)];
	c->overlap = true;
	c->cut_every = 1000;
	c->latency = sim_chance(r, 2) ? 1 + sim_below(r, 6) : 0;
	for (i = 0; i < 50; i++) {
		add(c, writes[sim_below(r, 3)], 64 + 8 * sim_below(r, 6), 24, 0);
		if (sim_chance(r, 2))
			add(c, OP_FLUSH_ALL, 0, 0, 0);
		if (i == 10 || sim_chance(r, 3))
			add(c, OP_DRAIN, 0, 0, 0);
	}
}

/* "The origin fails a write-out: flushes that cover it fail." */
static void failed_flush(struct sim_case *c, struct sim_rng *r)
{
	u32 i;

	c->config = &sim_configs[3 + sim_below(r, 2)];
	c->faults = true;
	c->overlap = true;
	c->no_heal = true;
	add(c, OP_FAIL_ORIGIN, 8 * sim_below(r, 2), 8, 0);
	for (i = 0; i < 2; i++)
		add(c, OP_WRITE_A, 8 * i, i ? 4 : 8, 0);
	for (i = 0; i < 10; i++) {
		add(c, sim_chance(r, 2) ? OP_FLUSH_A : OP_FLUSH_ALL, 0, 0, 0);
		if (sim_chance(r, 3))
			add(c, OP_TIME, 0, 0, sim_below(r, 4));
		if (sim_chance(r, 3))
			add(c, OP_WRITE_A, 4, 4, 0);
	}
	add(c, OP_HEAL, 0, 0, 0);
}

/* Reads look for a block while a newer one takes its place, and its write-out fails. */
static void read_while_replaced(struct sim_case *c, struct sim_rng *r)
{
	u32 i;

	c->config = &sim_configs[3 + sim_below(r, 2)];
	c->faults = true;
	c->overlap = true;
	add(c, OP_FAIL_ORIGIN, 0, 8, 0);
	for (i = 0; i < 8; i++) {
		add(c, OP_WRITE_A, 4 * sim_below(r, 2), 4, 0);
		add(c, OP_FLUSH_A, 0, 0, 0);
		add(c, OP_READ, 0, 8, 0);
		add(c, OP_READ, 0, 8, 0);
	}
	add(c, OP_HEAL, 0, 0, 0);
}

/* Requests that wait behind a discard of their blocks. */
static void behind_discard(struct sim_case *c, struct sim_rng *r)
{
	u32 i;

	c->config = &sim_configs[sim_below(r, 2)];
	c->overlap = true;
	add(c, OP_WRITE_A, 64, 8, 0);
	add(c, OP_DISCARD, 64, 16, 0);
	for (i = 0; i < 3; i++)
		add(c, OP_WRITE_A, 64 + 4 * sim_below(r, 2), 4, 0);
	add(c, OP_FLUSH_A, 0, 0, 0);
}

/*
 * Writes wait for memory, or are buffered late, while a discard of their blocks comes. Then the
 * tag writes past its log, if the cache has nothing of the block.
 */
static void late_for_discard(struct sim_case *c, struct sim_rng *r)
{
	u32 i, k;

	c->config = &sim_configs[sim_chance(r, 2) ? 6 : 0];
	c->overlap = true;
	c->no_memory = !sim_chance(r, 4);
	c->latency = 1 + sim_below(r, 8);
	c->cut_every = 6;
	for (i = 0; i < 8; i++) {
		for (k = sim_below(r, 4); k; k--)
			add(c, OP_WRITE_A, 192 + 8 * sim_below(r, 4), 16, 0);
		add(c, OP_WRITE_A, 64 + 8 * i, 8, 0);
		add(c, OP_DISCARD, 64 + 8 * i, 8, 0);
		if (i < 5) {
			add(c, OP_FUA_B, 128 + 24 * i, 24, 0);
			add(c, OP_DISCARD, 128 + 24 * i + 16, 8, 0);
		}
		add(c, OP_FLUSH_A, 0, 0, 0);
	}
	add(c, OP_FLUSH_A, 0, 0, 0);
	add(c, OP_MODE, 0, 0, 1);
	for (i = 0; i < 8; i++)
		add(c, OP_WRITE_A, 64 + 8 * i, 8, 0);
	add(c, OP_FLUSH_A, 0, 0, 0);
}

/*
 * A tag writes through what it has in the cache. What is read after a power cut stays, also when
 * the cache drops its copies.
 */
static void through_crash(struct sim_case *c, struct sim_rng *r)
{
	u32 i;

	c->config = &sim_configs[2 * sim_below(r, 2)];
	c->cut_every = 3;
	c->reread = true;
	/* Blocks 12 to 15 stay in the first chunk, which is full then. */
	for (i = 0; i < 16; i++) {
		add(c, OP_WRITE_A, i < 8 ? 64 + 8 * i : 64 + 8 * (i % 4), 8, 0);
		if (i % 4 == 3 && i != 3)
			add(c, OP_FLUSH_A, 0, 0, 0);
	}
	add(c, OP_WRITE_B, 128, 8, 0);
	add(c, OP_FLUSH_B, 0, 0, 0);
	add(c, OP_DRAIN, 0, 0, 0);
	add(c, OP_TIME, 0, 0, 3 * HZ);
	/* The death of a chunk writes the chunk table. */
	for (i = 0; i < 3; i++) {
		add(c, OP_DROP, 0, 0, 2);
		add(c, OP_TIME, 0, 0, HZ);
	}
	add(c, OP_MODE, 0, 0, 0);
	for (i = 0; i < 3; i++) {
		add(c, OP_WRITE_A, 96 + 8 * sim_below(r, 4), 8, 0);
		add(c, OP_FLUSH_A, 0, 0, 0);
	}
}

/* One write to the cache is misdirected, or rots: a record in one of a few chunks, mostly open. */
static void damaged_log(struct sim_case *c, struct sim_rng *r)
{
	static const u8 configs[] = { 0, 2, 6, 7 };
	u32 i, tags = sim_below(r, 2);

	c->config = &sim_configs[configs[sim_below(r, 4)]];
	c->damage.kind = sim_chance(r, 2) ? SIM_ROT : SIM_MISDIRECT;
	c->damage.nth = 1 + sim_below(r, 12);
	c->cut_every = 2;
	for (i = 0; i < 12; i++) {
		u32 block = sim_below(r, 6);

		if (tags && sim_chance(r, 2))
			add(c, OP_FUA_B, 128 + 8 * block, 8, 0);
		else
			add(c, OP_FUA, 64 + 8 * block, 8 + 8 * sim_below(r, 2), 0);
	}
}

/* The same of seals and metadata: chunks are reclaimed, and used again. */
static void damaged_metadata(struct sim_case *c, struct sim_rng *r)
{
	u32 i;

	c->config = &sim_configs[7];
	c->damage.kind = sim_chance(r, 2) ? SIM_ROT : SIM_MISDIRECT;
	c->damage.nth = 8 + sim_below(r, 60);
	c->cut_every = 8;
	for (i = 0; i < 50; i++) {
		add(c, sim_chance(r, 3) ? OP_FUA_B : OP_FUA, (sim_chance(r, 2) ? 64 : 128) + 8 *
		    sim_below(r, 6), 24, 0);
		if (sim_chance(r, 8))
			add(c, OP_DRAIN, 0, 0, 0);
		if (sim_chance(r, 8))
			add(c, OP_DROP, 0, 0, sim_below(r, 3));
		if (sim_chance(r, 16))
			add(c, OP_RESIZE, 0, 0, sim_below(r, 2));
	}
}

static const struct {
	const char *name;
	void (*make)(struct sim_case *c, struct sim_rng *r);
} directed[] = {
	{ "stale-destage", stale_destage },
	{ "cache-lost", cache_lost },
	{ "seal-fails", seal_fails },
	{ "failed-record", failed_record },
	{ "failed-record-past-log", failed_record_past_log },
	{ "failed-record-of-two", failed_record_of_two },
	{ "bad-block", bad_block },
	{ "failed-flush", failed_flush },
	{ "read-while-replaced", read_while_replaced },
	{ "behind-discard", behind_discard },
	{ "late-for-discard", late_for_discard },
	{ "through-crash", through_crash },
	{ "two-bad-blocks", two_bad_blocks },
	{ "removed-tag", removed_tag },
	{ "read-only-pool", read_only_pool },
	{ "few-chunks", few_chunks },
	{ "reclaimed-early", reclaimed_early },
	{ "discarded-early", discarded_early },
	{ "unreadable-chunk", unreadable_chunk },
	{ "unreadable-data", unreadable_data },
	{ "unreadable-and-bad", unreadable_and_bad },
	{ "unsealable-chunks", unsealable_chunks },
	{ "large-writes", large_writes },
	{ "drain-and-write", drain_and_write },
	{ "drain-superseded", drain_superseded },
	{ "full-of-bad-blocks", full_of_bad_blocks },
	{ "damaged-log", damaged_log },
	{ "damaged-metadata", damaged_metadata },
};

const char *directed_name(u32 nr)
{
	return nr < ARRAY_SIZE(directed) ? directed[nr].name : NULL;
}

bool directed_case(struct sim_case *c, const char *name, u64 seed)
{
	struct sim_rng r = sim_seeded(seed);
	u32 i;

	memset(c, 0, sizeof(*c));
	snprintf(c->text, sizeof(c->text), "d:%s:%llu", name, seed);
	c->order = seed % 16 ? SIM_RANDOM : SIM_FIFO;
	c->large = seed % 4 == 3 ? 4 : 0;
	c->seed = seed;
	c->cut_every = 12;
	c->settle = 3;
	for (i = 0; i < ARRAY_SIZE(directed); i++) {
		if (strcmp(directed[i].name, name))
			continue;
		directed[i].make(c, &r);
		/* Nothing verifies the data of large writes, so nobody finds damage in it. */
		if (c->damage.kind)
			c->large = 0;
		return true;
	}
	return false;
}
