/* SPDX-License-Identifier: Apache-2.0 */
/* NAND timings, with the source of the numbers. */
#ifndef VCACHE_NAND_TIMING_H
#define VCACHE_NAND_TIMING_H

#include <stdint.h>

/**
 * struct nand_timing - timing of one type of chip
 * @read_ns: transfer from the array to the page register
 * @program_lsb_ns: program of an LSB page, or of any page if there are no pairs
 * @program_msb_ns: program of an MSB page
 * @erase_ns: erase of a block
 * @byte_ps: transfer of one byte over the channel, in picoseconds
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
 * ICE3028, "Tutorial FTL", 2014), a 30 ns cycle of 16 bits (nand.h). Separate
 * times for LSB and MSB are not published, so both have the mean.
 */
extern const struct nand_timing nand_jasmine;

/*
 * MLC chips with pages of 4 KiB and blocks of 512 KiB, such as Samsung's
 * K9GAG08U0M. The times are typical values for such chips, not measured: 60 us,
 * 800 us, 1.5 ms, and 25 ns for each byte.
 */
extern const struct nand_timing nand_mlc;

/*
 * A modern TLC drive. NVMeVirt's model of the ZN540: 50 us for 4 KiB, 561 us for
 * a one-shot program, 450 MB/s. Erase: 3.5 ms from AERO (arXiv 2404.10355).
 */
extern const struct nand_timing nand_tlc;

#endif /* VCACHE_NAND_TIMING_H */
