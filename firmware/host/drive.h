/* SPDX-License-Identifier: Apache-2.0 */
/* The drives that there are: a configuration of the firmware and its NAND. */
#ifndef VCACHE_HOST_DRIVE_H
#define VCACHE_HOST_DRIVE_H

#include "../core/ssd.h"
#include "../nand/timing.h"

/**
 * struct drive - a drive
 * @config: of the firmware, without the blocks of a bank: they follow the size
 * @timing: of its NAND
 * @endurance: erases that a block is made for
 */
struct drive {
	struct vs_config config;
	const struct nand_timing *timing;
	uint32_t endurance;
};

/* A modern TLC drive, small. */
extern const struct drive drive_tlc;
/* The OpenSSD Jasmine board, on which vFLUSH was measured. */
extern const struct drive drive_jasmine;
/* The geometry on which SVD's erases were counted, small. */
extern const struct drive drive_svd;
/* The TLC drive with NAND that takes no time: what is left is our own. */
extern const struct drive drive_no_time;

#endif /* VCACHE_HOST_DRIVE_H */
