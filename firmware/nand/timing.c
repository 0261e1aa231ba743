// SPDX-License-Identifier: Apache-2.0
#include "timing.h"

const struct nand_timing nand_jasmine = {
	.read_ns = 250000,
	.program_lsb_ns = 1300000,
	.program_msb_ns = 1300000,
	.erase_ns = 1500000,
	.byte_ps = 15000,
};

const struct nand_timing nand_mlc = {
	.read_ns = 60000,
	.program_lsb_ns = 800000,
	.program_msb_ns = 800000,
	.erase_ns = 1500000,
	.byte_ps = 25000,
};

const struct nand_timing nand_tlc = {
	.read_ns = 50000,
	.program_lsb_ns = 561000,
	.program_msb_ns = 561000,
	.erase_ns = 3500000,
	.byte_ps = 2222,
};
