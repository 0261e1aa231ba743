/* SPDX-License-Identifier: GPL-2.0 */
/* The seal at the end of a chunk: all its entries, in two copies. See format.h. */
#ifndef VCACHE_CORE_SEAL_H
#define VCACHE_CORE_SEAL_H

#include "index.h"
#include "log.h"

/**
 * struct vc_seal - a loaded seal
 * @block: its first block, in the buffer of the caller
 * @info: head of the first block
 * @bad: copies that are damaged or older, bit 0 for copy 0
 * @revision: the highest revision of any block, even of a copy that is not complete; the
 *	next revision has to be above it
 */
struct vc_seal {
	u8 *block;
	struct vc_log_info info;
	unsigned int bad;
	u32 revision;
};

/* Bytes of a copy of the seal; the copies follow one another. */
static inline size_t vc_seal_bytes(const struct vc_geometry *g)
{
	return (size_t)g->seal_blocks * VC_BLOCK_SIZE;
}

/* Place of a copy in the chunk. */
static inline u32 vc_seal_place(const struct vc_geometry *g, unsigned int copy)
{
	return vc_chunk_capacity(g) + copy * g->seal_blocks;
}

void vc_seal_put(u8 *seal, u32 i, const struct vc_entry *e);
void vc_seal_finish(const struct vc_geometry *g, u8 *seal, u32 n,
		    const struct vc_log_info *info, unsigned int copy);
void vc_seal_copies(const struct vc_geometry *g, u8 *seal, u32 n,
		    const struct vc_log_info *info);
u32 vc_seal_reads(const struct vc_geometry *g, const struct vc_index *ix,
		  u8 *seal, struct vc_log_info *info);
bool vc_seal_load(const struct vc_store *st, const struct vc_geometry *g,
		  u32 chunk, u64 gen, u8 *work, struct vc_seal *s);
int vc_chunk_reseal(const struct vc_store *st, const struct vc_geometry *g,
		    const struct vc_index *ix, u32 chunk, u64 gen, u8 *work);

#endif /* VCACHE_CORE_SEAL_H */
