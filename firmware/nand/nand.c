// SPDX-License-Identifier: Apache-2.0
#include "nand.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../core/pairing.h"
#include "array.h"

/* Not a test's failure but a bug of the firmware, so also in production. */
#define RULE(cond, n, at)						\
	do {								\
		if (!(cond))						\
			abort_on(#cond, at);				\
	} while (0)

#define UNREADABLE 0x80		/* with enum page_state, in nand.state */

static void abort_on(const char *rule, struct vs_page at)
{
	fprintf(stderr, "nand: broken rule: %s (bank %u block %u page %u)\n",
		rule, at.bank, at.block, at.page);
	abort();
}

/* xorshift64*: good enough, and the same everywhere. */
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

/* Carried out; may have been cut. */
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
		free(op.saved);
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

/* Erased pages have no bytes in the image, which so stays sparse. */
static void fetch(struct nand *n, struct vs_page at, void *data, void *oob)
{
	size_t size = n->c.geometry.page_size;

	if (n->state[nand_page_index(n, at)] == PAGE_ERASED) {
		if (data)
			memset(data, 0xff, size);
		memset(oob, 0xff, n->oob_size);
		return;
	}
	if (data)
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
	memcpy(nand_data(n, at), data, g->page_size);
	memcpy(nand_oob(n, at), oob, n->oob_size);
	/* The spare bytes have checksums of the data. */
	for (size_t i = 0; i < n->oob_size; i++)
		trace(n, nand_oob(n, at)[i]);
	n->state[nand_page_index(n, at)] = PAGE_DONE;
	if (fails(n)) {
		block->failed = 1;
		n->state[nand_page_index(n, at)] = PAGE_TORN | UNREADABLE;
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
		op.saved = malloc(nand_saved_size(n));
		if (!op.saved)
			abort();
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

/* A mark is a program of spare bytes that the payload does not use. */
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

void nand_wear(struct nand *n, uint32_t fail_ppm)
{
	n->c.fail_ppm = fail_ppm;
}

uint32_t nand_failed(const struct nand *n)
{
	size_t blocks = (size_t)nand_banks(n) * n->c.geometry.blocks, i;
	uint32_t failed = 0;

	for (i = 0; i < blocks; i++)
		failed += n->block[i].bad || n->block[i].failed;
	return failed;
}

static size_t image_size(const struct nand *n)
{
	const struct vs_geometry *g = &n->c.geometry;
	size_t blocks = (size_t)nand_banks(n) * g->blocks;

	return sizeof(struct image_head) + blocks * sizeof(*n->block) +
	       blocks * g->pages * (1 + n->oob_size + g->page_size);
}

/* Point into the image: head, blocks, page states, spare bytes, data. */
static void lay_out(struct nand *n)
{
	const struct vs_geometry *g = &n->c.geometry;
	size_t blocks = (size_t)nand_banks(n) * g->blocks;
	size_t pages = blocks * g->pages;

	n->block = (struct block_state *)(n->image + sizeof(struct image_head));
	n->state = (uint8_t *)(n->block + blocks);
	n->oob = n->state + pages;
	n->data = n->oob + pages * n->oob_size;
}

static void blank_image(struct nand *n)
{
	const struct vs_geometry *g = &n->c.geometry;
	size_t blocks = (size_t)nand_banks(n) * g->blocks, bad = 0;
	struct image_head *head = (struct image_head *)n->image;

	while (bad < n->c.factory_bad && bad < blocks) {
		size_t b = nand_random(&n->random) % blocks;

		bad += !n->block[b].bad;
		n->block[b].bad = 1;
	}
	head->geometry = *g;
	memcpy(head->magic, "vsnand1", sizeof(head->magic));
}

static bool same_geometry(const struct vs_geometry *a,
			  const struct vs_geometry *b)
{
	return a->channels == b->channels && a->ways == b->ways &&
	       a->blocks == b->blocks && a->pages == b->pages &&
	       a->page_size == b->page_size && a->paired == b->paired;
}

/* Map the file, as long as it has to be; it must be new or ours. */
static int map_image(struct nand *n)
{
	struct image_head *head;
	struct stat stat;
	int fd = -1, flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

	if (n->c.path) {
		flags = MAP_SHARED;
		fd = open(n->c.path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		if (fd < 0 || fstat(fd, &stat))
			goto fail;
		if (stat.st_size && stat.st_size != (off_t)n->image_size) {
			close(fd);
			return -EINVAL;
		}
		if (ftruncate(fd, (off_t)n->image_size))
			goto fail;
	}
	n->image = mmap(NULL, n->image_size, PROT_READ | PROT_WRITE, flags, fd,
			0);
	if (n->image == MAP_FAILED) {
		n->image = NULL;
		goto fail;
	}
	if (fd >= 0)
		close(fd);
	lay_out(n);
	head = (struct image_head *)n->image;
	if (!head->magic[0])
		blank_image(n);
	else if (memcmp(head->magic, "vsnand1", sizeof(head->magic)) ||
		 !same_geometry(&head->geometry, &n->c.geometry))
		return -EINVAL;
	return 0;
fail:
	if (fd >= 0)
		close(fd);
	return -errno;
}

int nand_image_geometry(const char *path, struct vs_geometry *geometry)
{
	struct image_head head;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -1;
	n = read(fd, &head, sizeof(head));
	close(fd);
	if (n < 0)
		return -1;
	if (n != sizeof(head) ||
	    memcmp(head.magic, "vsnand1", sizeof(head.magic))) {
		errno = EINVAL;
		return -1;
	}
	*geometry = head.geometry;
	return 0;
}

struct nand *nand_open(const struct nand_config *c)
{
	struct nand *n = calloc(1, sizeof(*n));
	int error;

	if (!n)
		return NULL;
	n->c = *c;
	n->random = c->seed * 2 + 1;
	n->bank_free = calloc(nand_banks(n), sizeof(*n->bank_free));
	n->channel_free = calloc(c->geometry.channels,
				 sizeof(*n->channel_free));
	n->oob_size = VS_OOB_SIZE(c->geometry.page_size);
	n->image_size = image_size(n);
	error = n->bank_free && n->channel_free ? map_image(n) : -ENOMEM;
	if (error) {
		nand_close(n);
		errno = -error;
		return NULL;
	}
	return n;
}

struct nand *nand_copy(const struct nand *n)
{
	struct nand_config c = n->c;
	struct nand *copy;

	c.path = NULL;
	c.factory_bad = 0;
	copy = nand_open(&c);
	if (!copy)
		return NULL;
	memcpy(copy->image, n->image, n->image_size);
	copy->random = n->random;
	return copy;
}

void nand_close(struct nand *n)
{
	nand_forget(n, UINT64_MAX);
	free(n->op);
	if (n->image)
		munmap(n->image, n->image_size);
	free(n->bank_free);
	free(n->channel_free);
	free(n);
}
