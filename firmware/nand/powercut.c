// SPDX-License-Identifier: Apache-2.0
/*
 * What a power cut leaves.
 *
 * The cut falls into the operation that it was planned for. Of the others
 * issued before, those over by then stay, those not begun have not happened,
 * and those under way end anywhere: a program complete, torn or as if it had
 * not begun; an erase done or not, page by page. A torn page reads as
 * anything, with an error or without. An MSB program under way may take its
 * LSB page along.
 */
#include <string.h>

#include "../core/pairing.h"
#include "array.h"

static void scramble(struct nand *n, struct vs_page at, uint64_t *seed)
{
	size_t size = n->c.geometry.page_size;
	uint8_t *data = nand_data(n, at), *oob = nand_oob(n, at);
	size_t from = nand_random(seed) % (size + 1), i;
	uint64_t how = nand_random(seed);

	/* A prefix stays; in half of the cases the spare bytes do. */
	for (i = from; i < size; i += 16)
		data[i] = (uint8_t)nand_random(seed);
	if (how & 1) {
		for (i = how % n->oob_size; i < n->oob_size; i++)
			oob[i] ^= (uint8_t)nand_random(seed);
	}
	/* Uncorrectable, or read without a complaint. */
	n->state[nand_page_index(n, at)] = PAGE_TORN;
	if (how & 2)
		nand_damage(n, at);
}

/* Reads as erased, but is not. */
static void blank(struct nand *n, struct vs_page at)
{
	memset(nand_data(n, at), 0xff, n->c.geometry.page_size);
	memset(nand_oob(n, at), 0xff, n->oob_size);
	n->state[nand_page_index(n, at)] = PAGE_TORN;
}

static void tear_program(struct nand *n, const struct nand_op *op, uint64_t *seed)
{
	uint32_t pages = n->c.geometry.pages, lsb = VS_NO_PAIR;
	struct vs_page pair = op->at;
	uint64_t how = nand_random(seed) % 8;

	/* Nothing more in this block before it has been erased. */
	n->block[nand_block_index(n, op->at)].worn = 1;
	if (how == 0)
		return;
	if (how < 3)
		blank(n, op->at);
	else
		scramble(n, op->at, seed);
	if (n->c.geometry.paired)
		lsb = vs_pair_of_msb(pages, op->at.page);
	if (lsb == VS_NO_PAIR || how == 7)
		return;
	pair.page = lsb;
	scramble(n, pair, seed);
}

static void tear_erase(struct nand *n, const struct nand_op *op, uint64_t *seed)
{
	struct vs_page at = op->at;
	uint64_t how = nand_random(seed) % 4;

	if (how == 0)
		return;
	n->block[nand_block_index(n, at)] = op->before;
	n->block[nand_block_index(n, at)].worn = 1;
	nand_restore_block(n, at, op->saved);
	for (at.page = 0; at.page < n->c.geometry.pages; at.page++) {
		uint64_t page = nand_random(seed) % 4;

		if (how == 1 || page == 1)
			blank(n, at);
		else if (how == 3 && page == 2)
			scramble(n, at, seed);
	}
}

static void undo(struct nand *n, const struct nand_op *op)
{
	struct block_state *block = &n->block[nand_block_index(n, op->at)];

	*block = op->before;
	if (op->kind == OP_PROGRAM)
		n->state[nand_page_index(n, op->at)] = PAGE_ERASED;
	else if (op->kind == OP_ERASE)
		nand_restore_block(n, op->at, op->saved);
}

static void resolve(struct nand *n, const struct nand_op *op, uint64_t *seed)
{
	if (op->done <= n->cut_time)
		return;
	if (op->start >= n->cut_time)
		undo(n, op);
	else if (op->kind == OP_PROGRAM)
		tear_program(n, op, seed);
	else if (op->kind == OP_ERASE)
		tear_erase(n, op, seed);
	else if (nand_random(seed) & 1)
		undo(n, op);
}

/**
 * nand_note - remember an operation that a power cut could hit
 * @n: the array, in which it has been carried out already
 * @op: takes over @op.saved
 */
void nand_note(struct nand *n, struct nand_op op)
{
	if (n->ops == n->ops_room) {
		size_t room = n->ops_room ? 2 * n->ops_room : 64;
		struct nand_op *grown = nand_alloc(room * sizeof(*grown));

		if (n->ops)
			memcpy(grown, n->op, n->ops * sizeof(*grown));
		nand_free(n->op);
		n->op = grown;
		n->ops_room = room;
	}
	n->op[n->ops++] = op;
}

/**
 * nand_cut_now - if the cut is planned for this operation, do it
 * @n: the array, in which @op has been carried out already
 * @op: the operation, noted
 *
 * Return: true when the power is off now.
 */
bool nand_cut_now(struct nand *n, struct nand_op op)
{
	uint64_t seed = n->cut_seed;
	size_t i;

	if (!n->cut_op || n->count.ops != n->cut_op)
		return false;
	/* At its very end in half of the cases: what overlaps is hit alone. */
	n->cut_time = op.done;
	if (nand_random(&seed) & 1)
		n->cut_time = op.start + 1 + nand_random(&seed) %
			      (op.done - op.start);
	/* The last first: what was built on another goes before that. */
	for (i = n->ops; i-- > 0;)
		resolve(n, &n->op[i], &seed);
	nand_forget(n, UINT64_MAX);
	n->off = true;
	return true;
}

void nand_forget(struct nand *n, vs_time over)
{
	size_t i, kept = 0;

	for (i = 0; i < n->ops; i++) {
		if (n->op[i].done <= over)
			nand_free(n->op[i].saved);
		else
			n->op[kept++] = n->op[i];
	}
	n->ops = kept;
}

void nand_cut(struct nand *n, uint64_t op, uint64_t seed)
{
	n->cut_op = op ? n->count.ops + op : 0;
	n->cut_seed = seed | 1;
}

void nand_tick(struct nand *n, vs_time now)
{
	nand_forget(n, now);
}

bool nand_is_off(const struct nand *n)
{
	return n->off;
}

vs_time nand_cut_time(const struct nand *n)
{
	return n->cut_time;
}

void nand_power_on(struct nand *n)
{
	n->off = false;
	n->cut_op = 0;
	memset(n->bank_free, 0, nand_banks(n) * sizeof(*n->bank_free));
	memset(n->channel_free, 0,
	       n->c.geometry.channels * sizeof(*n->channel_free));
}
