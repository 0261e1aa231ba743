/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What vcache-ssd is linked with, besides ../core/ssd.h: how the SSD behind it
 * is opened and closed.
 */
#ifndef VCACHE_NVMETCP_BACKEND_H
#define VCACHE_NVMETCP_BACKEND_H

#include <stdint.h>

#include "../core/ssd.h"

#define BACKEND_ERROR_SIZE 256

/* In each enumeration, 0 is: as the image says, or the default of a new SSD. */
enum backend_personality {
	BACKEND_TAGGED = 1,
	BACKEND_BASELINE,
};

enum backend_mapping {
	BACKEND_PAGE = 1,
	BACKEND_FAST,
};

enum backend_nand {
	BACKEND_TLC = 1,
	BACKEND_JASMINE,
	BACKEND_NO_TIME,	/* TLC that takes no time at all */
	BACKEND_SVD,
};

/**
 * struct backend_options - the SSD that is wanted
 * @image: the file that holds its medium; NULL: in memory, gone at the end
 * @size: bytes that the host is to see; 0: as the image says
 * @personality: enum backend_personality, or 0
 * @mapping: enum backend_mapping, or 0
 * @nand: enum backend_nand, or 0
 * @tags: tags that have state at a time, hTag included; 0: see above
 * @buffer: bytes of write buffer; 0: as many as such an SSD has
 * @slowdown: what all times of the NAND are multiplied by, 1 to 1000
 */
struct backend_options {
	const char *image;
	uint64_t size;
	uint32_t personality;
	uint32_t mapping;
	uint32_t nand;
	uint32_t tags;
	uint64_t buffer;
	uint32_t slowdown;
};

struct backend;

/**
 * struct backend_device - an open SSD
 * @ssd: it
 * @tagged: flushes can be of a tag; if not, nothing is said of tags
 * @max_tag: the largest tag that it takes, at most 65535
 * @max_tags: tags that have state at a time, hTag included
 * @endurance: erases that a block is made for; 0: not known
 * @spare_blocks: set aside for blocks that go bad
 * @backend: the backend's own
 */
struct backend_device {
	struct vs_ssd *ssd;
	bool tagged;
	uint32_t max_tag;
	uint32_t max_tags;
	uint32_t endurance;
	uint32_t spare_blocks;
	struct backend *backend;
};

/**
 * backend_open - open or make an SSD
 * @device: it
 * @o: which
 * @error: why not, in one line
 *
 * Return: 0, or -1 with @error.
 */
int backend_open(struct backend_device *device,
		 const struct backend_options *o,
		 char error[BACKEND_ERROR_SIZE]);

/**
 * backend_close - let go of an SSD, without a flush
 * @device: it
 */
void backend_close(struct backend_device *device);

#endif /* VCACHE_NVMETCP_BACKEND_H */
