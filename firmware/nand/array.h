/* SPDX-License-Identifier: Apache-2.0 */
/* The internal state of the NAND model. */
#ifndef VCACHE_NAND_ARRAY_H
#define VCACHE_NAND_ARRAY_H

#include "nand.h"

enum page_state {
	PAGE_ERASED,
	PAGE_DONE,
	PAGE_TORN,	/* interrupted; bytes are undefined, reads may fail */
};

struct block_state {
	uint32_t next;		/* lowest page that may be programmed */
	uint32_t erases;
	uint8_t bad;		/* has the bad-block mark */
	uint8_t failed;		/* an operation has failed */
	uint8_t worn;		/* was interrupted: must be erased */
	uint8_t unused;
};

#define IMAGE_MAGIC "vsnand3"

/* The beginning of an image file. */
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
	struct block_state before;	/* state of the block before it */
	uint8_t *saved;			/* pages of an erased block */
};

struct nand {
	struct nand_config c;
	size_t oob_size;
	size_t image_size;
	uint8_t *image;		/* the state that survives without power */
	struct block_state *block;
	uint8_t *state;		/* enum page_state of each page */
	uint8_t *oob;
	uint8_t *data;
	vs_time *bank_free;
	vs_time *channel_free;
	struct nand_counters count;
	uint64_t random;
	uint64_t cut_op;	/* value of count.ops for a cut; 0: none */
	uint64_t cut_seed;
	vs_time cut_time;
	bool off;
	struct nand_op *op;		/* in progress; only while a cut is planned */
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
/* Size of the array's state: blocks, page states, spare bytes, data. */
size_t nand_array_size(const struct nand *n);
/* Set the pointers into @memory, which is zero for a new array. */
void nand_lay_out(struct nand *n, uint8_t *memory);
/* Size of the saved pages of a block: states, spare bytes, data. */
size_t nand_saved_size(const struct nand *n);
void nand_save_block(const struct nand *n, struct vs_page at, uint8_t *to);
void nand_restore_block(struct nand *n, struct vs_page at, const uint8_t *from);

/* powercut.c */
void nand_note(struct nand *n, struct nand_op op);
bool nand_cut_now(struct nand *n, struct nand_op op);
void nand_forget(struct nand *n, vs_time over);

/*
 * Provided by nand.c on the host, or by a port. nand_alloc() does not return if
 * memory is exhausted. nand_free() accepts NULL.
 */
void *nand_alloc(size_t size);
void nand_free(void *p);
_Noreturn void nand_broken(const char *rule, struct vs_page at);

#endif /* VCACHE_NAND_ARRAY_H */
