/* SPDX-License-Identifier: Apache-2.0 */
/* The NAND model's own state, shared by its files only. */
#ifndef VCACHE_NAND_ARRAY_H
#define VCACHE_NAND_ARRAY_H

#include "nand.h"

enum page_state {
	PAGE_ERASED,
	PAGE_DONE,
	PAGE_TORN,	/* interrupted; bytes are anything, reads may fail */
};

struct block_state {
	uint32_t next;		/* lowest page that may be programmed */
	uint32_t erases;
	uint8_t bad;		/* carries the mark */
	uint8_t failed;		/* reported a failure */
	uint8_t worn;		/* an erase was interrupted: erase again */
	uint8_t unused;
};

#define IMAGE_MAGIC "vsnand2"

/* First in an image file. */
struct image_head {
	char magic[8];
	struct vs_geometry geometry;
	uint8_t label[NAND_LABEL];
};

enum op_kind { OP_PROGRAM, OP_ERASE, OP_MARK };

/* An operation that a power cut can still hit. */
struct nand_op {
	enum op_kind kind;
	struct vs_page at;
	vs_time start, done;
	struct block_state before;	/* the block's, before it */
	uint8_t *saved;			/* an erased block's pages */
};

struct nand {
	struct nand_config c;
	size_t oob_size;
	size_t image_size;
	uint8_t *image;		/* all that stays without power */
	struct block_state *block;
	uint8_t *state;		/* enum page_state of each page */
	uint8_t *oob;
	uint8_t *data;
	vs_time *bank_free;
	vs_time *channel_free;
	struct nand_counters count;
	uint64_t random;
	uint64_t cut_op;	/* by count.ops; 0: none */
	uint64_t cut_seed;
	vs_time cut_time;
	bool off;
	struct nand_op *op;		/* under way; only while a cut is planned */
	size_t ops, ops_room;
};

static inline uint32_t nand_banks(const struct nand *n)
{
	return n->c.geometry.channels * n->c.geometry.ways;
}

static inline size_t nand_block_index(const struct nand *n, struct vs_page at)
{
	return (size_t)at.bank * n->c.geometry.blocks + at.block;
}

static inline size_t nand_page_index(const struct nand *n, struct vs_page at)
{
	return nand_block_index(n, at) * n->c.geometry.pages + at.page;
}

/* array.c */
uint64_t nand_random(uint64_t *state);
/* Bytes of the array's own state: blocks, page states, spare bytes, data. */
size_t nand_array_size(const struct nand *n);
/* Point into @memory, zeros for a new array; @n has its sizes. */
void nand_lay_out(struct nand *n, uint8_t *memory);
/* Saved pages of a block: states, spare bytes, data. */
size_t nand_saved_size(const struct nand *n);
void nand_save_block(const struct nand *n, struct vs_page at, uint8_t *to);
void nand_restore_block(struct nand *n, struct vs_page at, const uint8_t *from);

/* powercut.c */
void nand_note(struct nand *n, struct nand_op op);
bool nand_cut_now(struct nand *n, struct nand_op op);
void nand_forget(struct nand *n, vs_time over);

/*
 * Of who runs the array: nand.c on the host, a port elsewhere. There is always
 * memory, or nand_alloc() does not return; freeing NULL is allowed.
 */
void *nand_alloc(size_t size);
void nand_free(void *p);
_Noreturn void nand_broken(const char *rule, struct vs_page at);

#endif /* VCACHE_NAND_ARRAY_H */
