/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A NAND array in memory or, on the host, in an image file.
 *
 * It stores data and spare bytes. It aborts if the firmware violates a rule of
 * NAND: a block must be erased before it is programmed; its pages are programmed
 * in ascending order and once; an MSB page needs its LSB page; a block that is
 * marked bad is not used.
 *
 * The caller sets the time. An operation begins when it is issued or when its
 * bank is free, and transfers share the channel. So operations overlap, and a
 * power cut hits all operations in progress.
 */
#ifndef VCACHE_NAND_H
#define VCACHE_NAND_H

#include "../core/ssd.h"
#include "timing.h"

#define NAND_LABEL 16

/**
 * struct nand_config - configuration of an array
 * @geometry: its geometry
 * @timing: its timing
 * @seed: seed of all random decisions
 * @factory_bad: number of blocks that are marked bad from the start
 * @fail_ppm: programs and erases that fail, in parts per million. The failed
 *	program of an MSB page takes its LSB page along
 * @path: image file, created if it does not exist; NULL: memory
 * @label: data of the user, stored in a new image
 * @no_data: do not store data; it reads as zeroes. For long runs on large arrays
 *	in which only times and counters matter
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
 * struct nand_counters - counters since nand_open()
 * @reads: page reads
 * @programs: page programs
 * @erases: block erases
 * @ops: programs, erases and bad-block marks; the unit for power cuts
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

/* NULL on failure; errno is EINVAL for a file that is not such an image. */
struct nand *nand_open(const struct nand_config *c);
/* Read the head of an image; -1 on failure, errno is EINVAL for another file. */
int nand_image_head(const char *path, struct vs_geometry *geometry,
		    uint8_t label[NAND_LABEL]);
void nand_close(struct nand *n);
/* Copy content and state to an array in memory, for experiments. */
struct nand *nand_copy(const struct nand *n);

/*
 * Cut the power during the @op-th program, erase or mark from now on (1: the
 * next; 0: no cut). @seed decides how far each operation in progress gets.
 */
void nand_cut(struct nand *n, uint64_t op, uint64_t seed);
/* The time is @now: a power cut does not hit operations that are complete. */
void nand_tick(struct nand *n, vs_time now);
bool nand_is_off(const struct nand *n);
/* Time of the power cut. */
vs_time nand_cut_time(const struct nand *n);
void nand_power_on(struct nand *n);

struct nand_counters nand_count(const struct nand *n);
uint32_t nand_erase_count(const struct nand *n, uint32_t bank, uint32_t block);
/* Set the programs and erases that fail, in parts per million. */
void nand_wear(struct nand *n, uint32_t fail_ppm);
/* Number of blocks that are marked bad, or have failed since their last erase. */
uint32_t nand_failed(const struct nand *n);
/* The bytes of a page, to inspect or to damage them. */
uint8_t *nand_data(struct nand *n, struct vs_page at);
uint8_t *nand_oob(struct nand *n, struct vs_page at);
/* Make a page unreadable. */
void nand_damage(struct nand *n, struct vs_page at);
/* Mark a page as programmed, with its current bytes. */
void nand_force(struct nand *n, struct vs_page at);

#endif /* VCACHE_NAND_H */
