/* SPDX-License-Identifier: Apache-2.0 */
/* Byte access to the SSD, for logical blocks that are smaller than VS_BLOCK. */
#ifndef VCACHE_NVMETCP_MEDIA_H
#define VCACHE_NVMETCP_MEDIA_H

#include <stdbool.h>
#include <stdint.h>

#include "subsys.h"

/**
 * struct extent - a range of the SSD
 * @offset: first byte
 * @length: length in bytes, at most MDTS_BYTES for data transfers
 */
struct extent {
	uint64_t offset;
	uint64_t length;
};

/**
 * struct owner - whose data a write is
 * @tag: its tag
 * @handle: its placement handle
 */
struct owner {
	uint32_t tag;
	uint32_t handle;
};

uint16_t media_read(struct subsys *s, struct extent e, void *data,
		    vs_time *done);
uint16_t media_compare(struct subsys *s, struct extent e, const void *data,
		       vs_time *done);
uint16_t media_write(struct subsys *s, struct owner of, struct extent e,
		     const void *data, bool fua, vs_time *done);
uint16_t media_trim(struct subsys *s, uint32_t tag, struct extent e,
		    vs_time *done);
uint16_t media_flush(struct subsys *s, struct extent e, vs_time *done);

static inline bool media_whole_blocks(struct extent e)
{
	return !(e.offset % VS_BLOCK) && !(e.length % VS_BLOCK);
}

#endif /* VCACHE_NVMETCP_MEDIA_H */
