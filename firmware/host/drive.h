/* SPDX-License-Identifier: Apache-2.0 */
/* The emulated drives: a configuration of the firmware and its NAND. */
#ifndef VCACHE_HOST_DRIVE_H
#define VCACHE_HOST_DRIVE_H

#include "../core/ssd.h"
#include "../nand/timing.h"

/**
 * struct drive - a drive
 * @config: configuration of the firmware; the size sets the blocks of a bank
 * @timing: timing of its NAND
 * @endurance: erases for which a block is specified
 */
struct drive {
	struct vs_config config;
	const struct nand_timing *timing;
	uint32_t endurance;
};

/* A small modern TLC drive. */
extern const struct drive drive_tlc;
/* The OpenSSD Jasmine board, on which vFLUSH was measured. */
extern const struct drive drive_jasmine;
/* The geometry of the simulator in the SVD paper, but smaller. */
extern const struct drive drive_svd;
/* The TLC drive without NAND delays, to measure the time of the emulator. */
extern const struct drive drive_no_time;

#endif /* VCACHE_HOST_DRIVE_H */
