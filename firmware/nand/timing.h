/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of NAND timings; each names where its numbers come from. */
#ifndef VCACHE_NAND_TIMING_H
#define VCACHE_NAND_TIMING_H

#include <stdint.h>

/**
 * struct nand_timing - of one kind of chip
 * @read_ns: array to page register
 * @program_lsb_ns: page register to array; the only one without paired pages
 * @program_msb_ns: the same for MSB pages
 * @erase_ns: of a block
 * @byte_ps: one byte over the channel, picoseconds
 */
struct nand_timing {
	uint64_t read_ns;
	uint64_t program_lsb_ns;
	uint64_t program_msb_ns;
	uint64_t erase_ns;
	uint64_t byte_ps;
};

/*
 * OpenSSD Jasmine, K9LCG08U1M, 35 nm MLC: 250 us, 1.3 ms, 1.5 ms (SKKU
 * ICE3028, "Tutorial FTL", 2014), a 30 ns cycle of 16 bit (nand.h). No split
 * of LSB and MSB is published, so both have the mean.
 */
extern const struct nand_timing nand_jasmine;

/*
 * MLC chips with pages of 4 KiB and blocks of 512 KiB, such as Samsung's
 * K9GAG08U0M. The times are assumed, of the order of such chips: 60 us, 800 us,
 * 1.5 ms, a cycle of 25 ns for each byte.
 */
extern const struct nand_timing nand_mlc;

/*
 * A modern TLC drive: ZN540 as NVMeVirt has it, 50 us for 4 KiB, 561 us for a
 * one-shot program, 450 MB/s; erase 3.5 ms as AERO (arXiv 2404.10355) has it.
 */
extern const struct nand_timing nand_tlc;

#endif /* VCACHE_NAND_TIMING_H */
