// SPDX-License-Identifier: Apache-2.0
/*
 * The array: rules, timing, and the effect of operations. It is freestanding,
 * like powercut.c and timing.c. The memory comes from nand.c or from a port.
 */
#include <string.h>

#include "../core/pairing.h"
#include "array.h"

/* A violation is a bug of the firmware, so rules are also checked in production. */
#define RULE(cond, n, at)						\
	do {								\
		if (!(cond))						\
			nand_broken(#cond, at);				\
	} while (0)

#define UNREADABLE 0x80		/* with enum page_state, in nand.state */

/* xorshift64*: random enough, and identical on all platforms. */
uint64_t nand_random(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * 0x2545f4914f6cdd1dULL >> 16;
}

uint8_t *nand_data(struct nand *n, struct vs_page at)
{
	return n->data + nand_page_index(n, at) * n->c.geometry.page_size;
}

uint8_t *nand_oob(struct nand *n, struct vs_page at)
{
	return n->oob + nand_page_index(n, at) * n->oob_size;
}

void nand_damage(struct nand *n, struct vs_page at)
{
	n->state[nand_page_index(n, at)] |= UNREADABLE;
}

void nand_force(struct nand *n, struct vs_page at)
{
	n->state[nand_page_index(n, at)] = PAGE_DONE;
	if (n->block[nand_block_index(n, at)].next <= at.page)
		n->block[nand_block_index(n, at)].next = at.page + 1;
}

size_t nand_saved_size(const struct nand *n)
{
	return n->c.geometry.pages *
	       (1 + n->oob_size + n->c.geometry.page_size);
}

void nand_save_block(const struct nand *n, struct vs_page at, uint8_t *to)
{
	size_t pages = n->c.geometry.pages, size = n->c.geometry.page_size;
	size_t first;

	at.page = 0;
	first = nand_page_index(n, at);
	memcpy(to, n->state + first, pages);
	to += pages;
	memcpy(to, n->oob + first * n->oob_size, pages * n->oob_size);
	to += pages * n->oob_size;
	memcpy(to, n->data + first * size, pages * size);
}

void nand_restore_block(struct nand *n, struct vs_page at, const uint8_t *from)
{
	size_t pages = n->c.geometry.pages, size = n->c.geometry.page_size;
	size_t first;

	at.page = 0;
	first = nand_page_index(n, at);
	memcpy(n->state + first, from, pages);
	from += pages;
	memcpy(n->oob + first * n->oob_size, from, pages * n->oob_size);
	from += pages * n->oob_size;
	memcpy(n->data + first * size, from, pages * size);
}

static bool fails(struct nand *n)
{
	return n->c.fail_ppm && nand_random(&n->random) % 1000000 <
				n->c.fail_ppm;
}

/* FNV-1a, 64 bit. */
static void trace(struct nand *n, uint64_t value)
{
	n->count.trace = (n->count.trace ^ value) * 0x100000001b3ULL;
}

static void trace_op(struct nand *n, const struct nand_op *op)
{
	trace(n, op->kind);
	trace(n, nand_page_index(n, op->at));
	trace(n, op->start);
	trace(n, op->done);
}

/* Complete an operation; a power cut may hit it. */
static enum vs_status finish(struct nand *n, struct nand_op op, enum vs_status status,
			     vs_time *done)
{
	n->count.ops++;
	trace_op(n, &op);
	if (n->cut_op) {
		nand_note(n, op);
		if (nand_cut_now(n, op))
			return VS_EPOWER;
	} else {
		nand_free(op.saved);
	}
	*done = op.done;
	return status;
}

static vs_time transfer(struct nand *n, vs_time now, struct vs_page at,
			uint64_t bytes)
{
	vs_time *channel = &n->channel_free[at.bank / n->c.geometry.ways];

	if (*channel < now)
		*channel = now;
	*channel += bytes * n->c.timing.byte_ps / 1000;
	return *channel;
}

static vs_time bank_ready(const struct nand *n, vs_time now, struct vs_page at)
{
	return n->bank_free[at.bank] > now ? n->bank_free[at.bank] : now;
}

/* Erased pages have no bytes in the image, so that it stays sparse. */
static void fetch(struct nand *n, struct vs_page at, void *data, void *oob)
{
	size_t size = n->c.geometry.page_size;

	if (n->state[nand_page_index(n, at)] == PAGE_ERASED) {
		if (data)
			memset(data, 0xff, size);
		memset(oob, 0xff, n->oob_size);
		return;
	}
	if (data && n->c.no_data)
		memset(data, 0, size);
	else if (data)
		memcpy(data, nand_data(n, at), size);
	memcpy(oob, nand_oob(n, at), n->oob_size);
}

static enum vs_status nand_read(void *ctx, vs_time now, struct vs_page at,
				void *data, void *oob, vs_time *done)
{
	struct nand *n = ctx;
	size_t page = nand_page_index(n, at), bytes = n->oob_size;

	if (n->off)
		return VS_EPOWER;
	RULE(at.bank < nand_banks(n), n, at);
	RULE(at.block < n->c.geometry.blocks, n, at);
	RULE(at.page < n->c.geometry.pages, n, at);
	if (data)
		bytes += n->c.geometry.page_size;
	fetch(n, at, data, oob);
	n->count.reads++;
	*done = transfer(n, bank_ready(n, now, at) + n->c.timing.read_ns, at,
			 bytes);
	n->bank_free[at.bank] = *done;
	trace(n, page);
	trace(n, *done);
	return n->state[page] & UNREADABLE ? VS_EMEDIA : VS_OK;
}

static void program_time(struct nand *n, struct nand_op *op, vs_time now)
{
	const struct vs_geometry *g = &n->c.geometry;
	uint64_t busy = n->c.timing.program_lsb_ns;

	if (g->paired && vs_pair_of_msb(g->pages, op->at.page) != VS_NO_PAIR)
		busy = n->c.timing.program_msb_ns;
	op->start = transfer(n, bank_ready(n, now, op->at), op->at,
			     g->page_size + n->oob_size);
	op->done = op->start + busy;
	n->bank_free[op->at.bank] = op->done;
}

static enum vs_status nand_program(void *ctx, vs_time now, struct vs_page at,
				   const void *data, const void *oob,
				   vs_time *done)
{
	struct nand *n = ctx;
	const struct vs_geometry *g = &n->c.geometry;
	struct block_state *block;
	struct nand_op op = { .kind = OP_PROGRAM, .at = at };
	struct vs_page pair = at;

	if (n->off)
		return VS_EPOWER;
	RULE(at.bank < nand_banks(n) && at.block < g->blocks, n, at);
	RULE(at.page < g->pages, n, at);
	block = &n->block[nand_block_index(n, at)];
	RULE(!block->bad && !block->failed && !block->worn, n, at);
	RULE(at.page >= block->next, n, at);
	RULE(n->state[nand_page_index(n, at)] == PAGE_ERASED, n, at);
	if (g->paired)
		pair.page = vs_pair_of_msb(g->pages, at.page);
	if (pair.page != at.page && pair.page != VS_NO_PAIR)
		RULE(n->state[nand_page_index(n, pair)] == PAGE_DONE, n, at);

	op.before = *block;
	program_time(n, &op, now);
	block->next = at.page + 1;
	n->count.programs++;
	if (!n->c.no_data)
		memcpy(nand_data(n, at), data, g->page_size);
	memcpy(nand_oob(n, at), oob, n->oob_size);
	/* The spare bytes include checksums of the data. */
	for (size_t i = 0; i < n->oob_size; i++)
		trace(n, nand_oob(n, at)[i]);
	n->state[nand_page_index(n, at)] = PAGE_DONE;
	if (fails(n)) {
		block->failed = 1;
		n->state[nand_page_index(n, at)] = PAGE_TORN | UNREADABLE;
		/* The word line is lost, with the LSB page in it. */
		if (pair.page != at.page && pair.page != VS_NO_PAIR)
			nand_damage(n, pair);
		return finish(n, op, VS_EMEDIA, done);
	}
	return finish(n, op, VS_OK, done);
}

static enum vs_status nand_erase(void *ctx, vs_time now, struct vs_page at,
				 vs_time *done)
{
	struct nand *n = ctx;
	const struct vs_geometry *g = &n->c.geometry;
	struct block_state *block;
	struct nand_op op = { .kind = OP_ERASE, .at = at };

	if (n->off)
		return VS_EPOWER;
	RULE(at.bank < nand_banks(n) && at.block < g->blocks, n, at);
	RULE(at.page == 0, n, at);
	block = &n->block[nand_block_index(n, at)];
	RULE(!block->bad, n, at);

	op.before = *block;
	op.start = bank_ready(n, now, at);
	op.done = op.start + n->c.timing.erase_ns;
	n->bank_free[at.bank] = op.done;
	if (n->cut_op) {
		op.saved = nand_alloc(nand_saved_size(n));
		nand_save_block(n, at, op.saved);
	}
	n->count.erases++;
	block->erases++;
	if (fails(n)) {
		block->failed = 1;
		return finish(n, op, VS_EMEDIA, done);
	}
	block->next = 0;
	block->failed = 0;
	block->worn = 0;
	memset(n->state + nand_page_index(n, at), PAGE_ERASED, g->pages);
	return finish(n, op, VS_OK, done);
}

static bool nand_is_bad(void *ctx, struct vs_page at)
{
	struct nand *n = ctx;

	return n->block[nand_block_index(n, at)].bad;
}

/* Marking is a program of spare bytes that the firmware does not use. */
static enum vs_status nand_mark_bad(void *ctx, vs_time now, struct vs_page at,
				    vs_time *done)
{
	struct nand *n = ctx;
	struct block_state *block;
	struct nand_op op = { .kind = OP_MARK, .at = at };

	if (n->off)
		return VS_EPOWER;
	RULE(at.bank < nand_banks(n) && at.block < n->c.geometry.blocks, n, at);
	block = &n->block[nand_block_index(n, at)];
	op.before = *block;
	op.start = bank_ready(n, now, at);
	op.done = op.start + n->c.timing.program_lsb_ns;
	n->bank_free[at.bank] = op.done;
	block->bad = 1;
	return finish(n, op, VS_OK, done);
}

const struct vs_nand_ops nand_ops = {
	.read = nand_read,
	.program = nand_program,
	.erase = nand_erase,
	.is_bad = nand_is_bad,
	.mark_bad = nand_mark_bad,
};

struct nand_counters nand_count(const struct nand *n)
{
	return n->count;
}

uint32_t nand_erase_count(const struct nand *n, uint32_t bank, uint32_t block)
{
	struct vs_page at = { bank, block, 0 };

	return n->block[nand_block_index(n, at)].erases;
}

size_t nand_array_size(const struct nand *n)
{
	const struct vs_geometry *g = &n->c.geometry;
	size_t blocks = (size_t)nand_banks(n) * g->blocks;

	return blocks * sizeof(*n->block) +
	       blocks * g->pages * (1 + n->oob_size + g->page_size);
}

void nand_lay_out(struct nand *n, uint8_t *memory)
{
	const struct vs_geometry *g = &n->c.geometry;
	size_t blocks = (size_t)nand_banks(n) * g->blocks;
	size_t pages = blocks * g->pages;

	n->block = (struct block_state *)memory;
	n->state = (uint8_t *)(n->block + blocks);
	n->oob = n->state + pages;
	n->data = n->oob + pages * n->oob_size;
}
