/* SPDX-License-Identifier: GPL-2.0 */
/* The seal at the end of a chunk: all its entries, in two copies. See format.h. */
#ifndef VCACHE_CORE_SEAL_H
#define VCACHE_CORE_SEAL_H

#include "index.h"
#include "log.h"

/**
 * struct vcache_seal - a loaded seal
 * @block: its first block, in the buffer of the caller
 * @info: head of the first block
 * @bad: copies that are damaged or older, bit 0 for copy 0
 * @revision: the highest revision of any block, even of a copy that is not complete; the
 *	next revision has to be above it
 */
struct vcache_seal {
	u8 *block;
	struct vcache_log_info info;
	unsigned int bad;
	u32 revision;
};

/* Bytes of a copy of the seal; the copies follow one another. */
static inline size_t vcache_seal_bytes(const struct vcache_geometry *g)
{
	return (size_t)g->seal_blocks * VC_BLOCK_SIZE;
}

/* Place of a copy in the chunk. */
static inline u32 vcache_seal_place(const struct vcache_geometry *g, unsigned int copy)
{
	return vcache_chunk_capacity(g) + copy * g->seal_blocks;
}

void vcache_seal_put(u8 *seal, u32 i, const struct vcache_entry *e);
void vcache_seal_finish(const struct vcache_geometry *g, u8 *seal, u32 n,
			const struct vcache_log_info *info, unsigned int copy);
void vcache_seal_copies(const struct vcache_geometry *g, u8 *seal, u32 n,
			const struct vcache_log_info *info);
u32 vcache_seal_reads(const struct vcache_geometry *g, const struct vcache_index *ix,
		      u8 *seal, struct vcache_log_info *info);
bool vcache_seal_load(const struct vcache_store *st, const struct vcache_geometry *g,
		      u32 chunk, u64 gen, u8 *work, struct vcache_seal *s);
int vcache_chunk_reseal(const struct vcache_store *st, const struct vcache_geometry *g,
			const struct vcache_index *ix, u32 chunk, u64 gen, u8 *work);

#endif /* VCACHE_CORE_SEAL_H */
