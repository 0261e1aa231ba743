/* SPDX-License-Identifier: Apache-2.0 */
/* Single commands to a device, one after another, which must succeed. */
#ifndef VCACHE_TESTS_COMMANDS_H
#define VCACHE_TESTS_COMMANDS_H

#include <string.h>

#include "device.h"

/* The data of the last write. */
static uint8_t block_data[VS_BLOCK];

static inline void write_one(struct device *d, uint32_t tag, uint64_t block)
{
	struct vs_result r;

	memset(block_data, (int)(block + 1), sizeof(block_data));
	r = vs_write(d->ssd, d->now, tag, block, 1, block_data, false);
	CHECK(r.status == VS_OK);
	d->now = r.done;
}

static inline void flush_tag(struct device *d, uint32_t tag)
{
	struct vs_result r = vs_flush_tag(d->ssd, d->now, tag);

	CHECK(r.status == VS_OK);
	d->now = r.done;
}

static inline struct vs_tag_stats tag_stats(struct device *d, uint32_t tag)
{
	struct vs_tag_stats t;

	CHECK(vs_get_tag_stats(d->ssd, tag, &t));
	return t;
}

#endif /* VCACHE_TESTS_COMMANDS_H */
