/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A NAND array in memory or, on the host, in an image file.
 *
 * It keeps payload and spare bytes, and aborts when the firmware breaks a rule
 * of NAND: a block is erased before it is programmed, its pages are programmed
 * in ascending order and once, an MSB page never without its LSB page, and
 * nothing touches a block marked bad.
 *
 * Time is what the caller says: an operation begins when it is issued or when
 * its bank is free, transfers share the channel. So operations overlap, and a
 * power cut hits all that are under way.
 */
#ifndef VCACHE_NAND_H
#define VCACHE_NAND_H

#include "../core/ssd.h"
#include "timing.h"

#define NAND_LABEL 16

/**
 * struct nand_config - an array
 * @geometry: see there
 * @timing: how fast
 * @seed: of everything random
 * @factory_bad: blocks marked bad from the start, seeded
 * @fail_ppm: programs and erases that fail, in millionths
 * @path: image file, made when it is not there; NULL: memory
 * @label: kept in a new image, for whoever opens it again
 * @no_data: bytes of pages are not kept, and read as zeros: for long runs on
 *	large arrays, of which only time and counters matter
 */
struct nand_config {
	struct vs_geometry geometry;
	struct nand_timing timing;
	uint64_t seed;
	uint32_t factory_bad;
	uint32_t fail_ppm;
	const char *path;
	uint8_t label[NAND_LABEL];
	bool no_data;
};

/**
 * struct nand_counters - since nand_open()
 * @reads: pages
 * @programs: pages
 * @erases: blocks
 * @ops: programs, erases and bad-block marks; what a power cut is counted in
 * @trace: hash of all operations with their addresses, times and content
 */
struct nand_counters {
	uint64_t reads;
	uint64_t programs;
	uint64_t erases;
	uint64_t ops;
	uint64_t trace;
};

struct nand;

extern const struct vs_nand_ops nand_ops;

/* NULL with errno set, or EINVAL for an image of another geometry. */
struct nand *nand_open(const struct nand_config *c);
/* Of an image file; -1 with errno set, or EINVAL when it is none. */
int nand_image_head(const char *path, struct vs_geometry *geometry,
		    uint8_t label[NAND_LABEL]);
void nand_close(struct nand *n);
/* Of the same content and state, in memory; for what-if. */
struct nand *nand_copy(const struct nand *n);

/*
 * Cut the power while the @op-th program, erase or mark from now on (1: the
 * next) is under way; @seed decides how far each operation got. 0: no cut.
 */
void nand_cut(struct nand *n, uint64_t op, uint64_t seed);
/* The caller's clock has reached @now: what is over by then is safe. */
void nand_tick(struct nand *n, vs_time now);
bool nand_is_off(const struct nand *n);
/* When the power went. */
vs_time nand_cut_time(const struct nand *n);
void nand_power_on(struct nand *n);

struct nand_counters nand_count(const struct nand *n);
uint32_t nand_erase_count(const struct nand *n, uint32_t bank, uint32_t block);
/* From now on so many programs and erases fail, in millionths. */
void nand_wear(struct nand *n, uint32_t fail_ppm);
/* Blocks that carry the mark, or have failed since they were erased last. */
uint32_t nand_failed(const struct nand *n);
/* A page's bytes, to look at and to damage. */
uint8_t *nand_data(struct nand *n, struct vs_page at);
uint8_t *nand_oob(struct nand *n, struct vs_page at);
/* From now on the page cannot be read. */
void nand_damage(struct nand *n, struct vs_page at);
/* The page counts as programmed, with whatever bytes it has. */
void nand_force(struct nand *n, struct vs_page at);

#endif /* VCACHE_NAND_H */
