/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The interface between vcache-ssd and its SSD, in addition to ../core/ssd.h:
 * open and close.
 */
#ifndef VCACHE_NVMETCP_BACKEND_H
#define VCACHE_NVMETCP_BACKEND_H

#include <stdint.h>

#include "../core/ssd.h"

#define BACKEND_ERROR_SIZE 256

/* In each enumeration, 0 is the value in the image, or the default of a new SSD. */
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
	BACKEND_NO_TIME,	/* TLC without delays */
	BACKEND_SVD,
};

/**
 * struct backend_options - options of an SSD
 * @image: file with its content; NULL: in memory, lost at the end
 * @size: bytes that the host sees; 0: the value in the image
 * @personality: enum backend_personality, or 0
 * @mapping: enum backend_mapping, or 0
 * @nand: enum backend_nand, or 0
 * @tags: tags with state at a time, including the host tag; 0: see above
 * @buffer: bytes of the write buffer; 0: the default of the NAND type
 * @handles: placement handles, or 0; 1: no Flexible Data Placement
 * @slowdown: factor for all times of the NAND, 1 to 1000
 */
struct backend_options {
	const char *image;
	uint64_t size;
	uint32_t personality;
	uint32_t mapping;
	uint32_t nand;
	uint32_t tags;
	uint64_t buffer;
	uint32_t handles;
	uint32_t slowdown;
};

struct backend;

/**
 * struct backend_device - an open SSD
 * @ssd: the SSD
 * @tagged: it supports tagged commands; otherwise they are not reported
 * @max_tag: largest supported tag, at most 65535
 * @max_tags: tags with state at a time, including the host tag
 * @handles: placement handles; 1: no Flexible Data Placement
 * @endurance: erases for which a block is specified; 0: unknown
 * @spare_blocks: blocks reserved to replace bad blocks
 * @backend: private data of the backend
 */
struct backend_device {
	struct vs_ssd *ssd;
	bool tagged;
	uint32_t max_tag;
	uint32_t max_tags;
	uint32_t handles;
	uint32_t endurance;
	uint32_t spare_blocks;
	struct backend *backend;
};

/**
 * backend_open - open or create an SSD
 * @device: the result
 * @o: options
 * @error: reason of a failure, one line
 *
 * Return: 0, or -1 with @error.
 */
int backend_open(struct backend_device *device,
		 const struct backend_options *o,
		 char error[BACKEND_ERROR_SIZE]);

/**
 * backend_close - close an SSD without a flush
 * @device: the SSD
 */
void backend_close(struct backend_device *device);

#endif /* VCACHE_NVMETCP_BACKEND_H */
