/* SPDX-License-Identifier: GPL-2.0 */
/* Metadata of a cache device: its layout, its content, and how it is changed. */
#ifndef VCACHE_CORE_META_H
#define VCACHE_CORE_META_H

#include "format.h"

/**
 * struct vcache_store - access to a cache device
 * @ctx: passed to the functions
 * @read: read @n blocks from @block on into @buf
 * @write: write @n blocks; they are durable on return
 *
 * Both return 0 or a negative errno.
 */
struct vcache_store {
	void *ctx;
	int (*read)(void *ctx, u64 block, u32 n, void *buf);
	int (*write)(void *ctx, u64 block, u32 n, const void *buf);
};

/**
 * struct vcache_geometry - the layout of a cache device
 * @key: random number of the pool
 * @chunk_blocks: blocks of a chunk, VC_CHUNK_BLOCKS_MIN to _MAX, a power of 2
 * @chunks: chunks of the device that are used
 * @max_chunks: chunks that the chunk table has space for
 * @slot_blocks: blocks with volume slots
 * @table_blocks: blocks of the chunk table
 * @copy_blocks: distance between the two copies of the metadata
 * @first_chunk: first chunk for data
 * @seal_blocks: blocks of a copy of a seal
 */
struct vcache_geometry {
	u64 key;
	u32 chunk_blocks;
	u32 chunks;
	u32 max_chunks;
	u32 slot_blocks;
	u32 table_blocks;
	u32 copy_blocks;
	u32 first_chunk;
	u32 seal_blocks;
};

/**
 * struct vcache_super - the decoded superblock
 * @uuid: identifies the pool for administrators and tools
 * @flags: VC_SUPER_*
 * @next_seq: lower bound of the next sequence number
 */
struct vcache_super {
	u8 uuid[16];
	u32 flags;
	u64 next_seq;
};

int vcache_geometry_set(struct vcache_geometry *g, u64 key, u32 chunk_blocks,
			u64 blocks);
u32 vcache_geometry_least(const struct vcache_geometry *g);
int vcache_geometry_resize(struct vcache_geometry *g, u32 chunks);
u64 vcache_meta_place(const struct vcache_geometry *g, enum vcache_meta_type type,
		      u32 index, unsigned int copy);
bool vcache_meta_valid(void *block, u64 key, enum vcache_meta_type type,
		       u32 index);
int vcache_meta_load(const struct vcache_store *st, const struct vcache_geometry *g,
		     enum vcache_meta_type type, u32 index, void *block, void *spare);
int vcache_meta_repair(const struct vcache_store *st, const struct vcache_geometry *g,
		       enum vcache_meta_type type, u32 index, const void *block,
		       unsigned int bad);
int vcache_meta_save(const struct vcache_store *st, const struct vcache_geometry *g,
		     enum vcache_meta_type type, u32 index, void *block);
int vcache_super_load(const struct vcache_store *st, u64 blocks, struct vcache_geometry *g,
		      struct vcache_super *sb, void *block, void *spare);
int vcache_super_find(const struct vcache_store *st, u64 blocks, struct vcache_geometry *g,
		      struct vcache_super *sb, void *block, void *spare);
int vcache_super_save(const struct vcache_store *st, const struct vcache_geometry *g,
		      const struct vcache_super *sb, void *block);
int vcache_pool_format(const struct vcache_store *st, const struct vcache_geometry *g,
		       const u8 uuid[16], void *block);

#endif /* VCACHE_CORE_META_H */
