// SPDX-License-Identifier: GPL-2.0-only
/*
 * The simulation: which histories there are: all short ones, and random ones. See directed.c for
 * directed cases.
 */
#include "history.h"

u64 exhaustive_count(u32 len)
{
	u64 n = 0, k = 1;

	while (len--)
		n += k *= OP_EXHAUSTIVE;
	return n;
}

static void place_op(struct op *o, u32 at)
{
	static const u8 a[][2] = { { 8, 4 }, { 0, 8 }, { 4, 8 } };
	static const u8 b[][2] = { { 12, 4 }, { 16, 8 }, { 12, 8 } };
	static const u8 h[][2] = { { 0, 8 }, { 8, 8 }, { 4, 16 } };

	o->arg = at;
	switch (o->kind) {
	case OP_WRITE_A:
	case OP_FUA:
		o->sector = a[at % 3][0];
		o->n = a[at % 3][1];
		break;
	case OP_WRITE_B:
	case OP_FUA_B:
		o->sector = b[at % 3][0];
		o->n = b[at % 3][1];
		break;
	case OP_WRITE_HOST:
		o->sector = h[at % 3][0];
		o->n = h[at % 3][1];
		break;
	case OP_DISCARD:
		o->sector = 0;
		o->n = 16;
		break;
	case OP_PROMOTE:
	case OP_READ:
		o->sector = 0;
		o->n = 32;
		break;
	default:
		o->sector = 0;
		o->n = 0;
	}
}

void exhaustive_case(struct sim_case *c, u32 config, u32 len, u64 index, u32 order)
{
	u64 i = index, k = OP_EXHAUSTIVE;
	u32 n = 1, at, modes = 0, sizes = 0;

	memset(c, 0, sizeof(*c));
	snprintf(c->text, sizeof(c->text), "x:%s:%llu:%u", sim_configs[config].name, index,
		 order);
	c->config = &sim_configs[config];
	c->order = min(order, 2U);
	c->seed = index * 8 + order + 1;
	c->overlap = order >= 2;
	c->large = (index + order) % 2 ? 4 : 0;
	c->cut_every = 1;
	c->settle = 5;
	while (i >= k) {
		i -= k;
		k *= OP_EXHAUSTIVE;
		n++;
	}
	c->nops = n;
	for (at = 0; at < n; at++) {
		c->op[at].kind = i % OP_EXHAUSTIVE;
		i /= OP_EXHAUSTIVE;
		place_op(&c->op[at], at);
		if (c->op[at].kind == OP_MODE)
			c->op[at].arg = modes++;
		if (c->op[at].kind == OP_RESIZE)
			c->op[at].arg = sizes++;
	}
}

static void random_place(struct op *o, struct sim_rng *r, u32 sectors)
{
	static const u16 at_a[] = { 0, 4, 8, 64, 72, 80, 96, 104, 112 };
	static const u16 at_b[] = { 12, 16, 20, 24, 128, 136, 144, 160, 168 };

	o->arg = sim_below(r, 64);
	switch (o->kind) {
	case OP_WRITE_A:
	case OP_FUA:
		o->sector = at_a[sim_below(r, ARRAY_SIZE(at_a))];
		o->n = o->sector < 64 ? 1 + sim_below(r, 12 - o->sector) :
		       1 + sim_below(r, 128 - o->sector > 32 ? 32 : 128 - o->sector);
		break;
	case OP_WRITE_B:
	case OP_FUA_B:
		o->sector = at_b[sim_below(r, ARRAY_SIZE(at_b))];
		o->n = o->sector < 32 ? 1 + sim_below(r, 32 - o->sector) :
		       1 + sim_below(r, 24);
		break;
	case OP_WRITE_HOST:
	case OP_READ:
		o->sector = sim_below(r, sectors - 1);
		o->n = 1 + sim_below(r, min(sectors - o->sector, sim_chance(r, 4) ? 64U : 16U));
		break;
	case OP_DISCARD:
		o->sector = sim_below(r, sectors / 8) * 8;
		o->n = min(sectors - o->sector, (1 + sim_below(r, 4)) * 8);
		break;
	case OP_PROMOTE:
		o->sector = 0;
		o->n = 32;
		break;
	case OP_TIME:
		o->arg = sim_chance(r, 3) ? sim_below(r, 1500) : sim_below(r, 60);
		break;
	case OP_FAIL_ORIGIN:
	case OP_HANG:
		o->sector = sim_below(r, sectors / 8) * 8;
		o->n = 8 * (1 + sim_below(r, 4));
		break;
	case OP_FAIL_CACHE:
		o->sector = 8 * (160 + sim_below(r, 96));
		o->n = 8 * (1 + sim_below(r, 24));
		break;
	default:
		break;
	}
}

/*
 * The cache device damages one write. What it has of a discarded block that was promoted again is
 * zeroes, of which nobody can tell whose they are: so either discards, or reads.
 */
static void random_damage(struct sim_case *c, u64 seed, u32 *weight)
{
	struct sim_rng r = sim_seeded(seed ^ 0xda3a9e);

	if (!c->config->chunks || c->faults || !sim_chance(&r, 4))
		return;
	c->damage.kind = sim_chance(&r, 2) ? SIM_ROT : SIM_MISDIRECT;
	c->damage.nth = 1 + sim_below(&r, sim_chance(&r, 2) ? 8 : 60);
	if (sim_chance(&r, 2)) {
		weight[OP_DISCARD] = 0;
	} else {
		weight[OP_READ] = 0;
		weight[OP_PROMOTE] = 0;
	}
}

/* Let some writes go to the log without a copy. These have whole blocks. */
static void make_large(struct sim_case *c, struct sim_rng *r)
{
	u32 i;

	c->large = 4U << sim_below(r, 3);
	for (i = 0; i < c->nops; i++) {
		struct op *o = &c->op[i];
		bool write = o->kind == OP_WRITE_A || o->kind == OP_WRITE_B ||
			     o->kind == OP_WRITE_HOST || o->kind == OP_FUA;

		if (!write || sim_chance(r, 3))
			continue;
		o->n = (o->sector % 8 + o->n + 7) / 8 * 8;
		o->sector -= o->sector % 8;
	}
}

/* Swarm testing: each history has only some kinds of requests, in other proportions. */
void random_case(struct sim_case *c, u64 seed)
{
	struct sim_rng r = sim_seeded(seed);
	u32 weight[OP_KINDS], total = 0, i, k;

	memset(c, 0, sizeof(*c));
	snprintf(c->text, sizeof(c->text), "r:%llu", seed);
	c->config = &sim_configs[sim_below(&r, sim_nconfigs)];
	c->order = sim_chance(&r, 8) ? SIM_LIFO : SIM_RANDOM;
	c->seed = seed + 1;
	c->overlap = !sim_chance(&r, 4);
	c->faults = sim_chance(&r, 4);
	c->no_memory = sim_chance(&r, 6);
	c->latency = sim_chance(&r, 3) ? 1 + sim_below(&r, 30) : 0;
	c->rounds = c->faults ? 1 : 1 + sim_below(&r, 3);
	c->nops = 10 + sim_below(&r, sim_chance(&r, 4) ? 150 : 40);
	c->cut_every = 2 + c->nops / 4;
	c->settle = 3;
	for (k = 0; k < OP_KINDS; k++) {
		weight[k] = sim_chance(&r, 3) ? 0 : 1 + sim_below(&r, 8);
		if (k == OP_FAIL_LAST)
			weight[k] = 0;
		if (k >= OP_FAIL_ORIGIN && k <= OP_HEAL)
			weight[k] = c->faults && !sim_chance(&r, 3) ? 1 : 0;
		if (k == OP_MODE || k == OP_RECREATE || k == OP_RESIZE || k == OP_SUSPEND ||
		    k == OP_NOFLUSH)
			weight[k] = (weight[k] + 3) / 4;
	}
	random_damage(c, seed, weight);
	for (k = 0; k < OP_KINDS; k++)
		total += weight[k];
	if (!weight[OP_WRITE_A] && !weight[OP_WRITE_HOST]) {
		weight[OP_WRITE_A] = 4;
		total += 4;
	}
	for (i = 0; i < c->nops; i++) {
		u32 x = sim_below(&r, total);

		for (k = 0; x >= weight[k]; k++)
			x -= weight[k];
		c->op[i].kind = k;
		random_place(&c->op[i], &r, sectors_of(c->config));
	}
	/* Nothing verifies the data of large writes, so nobody finds damage in it. */
	if (!c->damage.kind && sim_chance(&r, 2))
		make_large(c, &r);
}
