/* SPDX-License-Identifier: GPL-2.0 */
/* Records and seals: the content of a chunk. See format.h. */
#ifndef VCACHE_CORE_LOG_H
#define VCACHE_CORE_LOG_H

#include "meta.h"

/**
 * struct vcache_entry - a block of an origin in a log
 * @block: its number on the origin, in units of VC_BLOCK_SIZE
 * @arg: checksum of its data; of a discard: the number of blocks
 * @place: place of the data in the chunk; of a discard: that of its record
 * @mask: valid sectors, bit 0 the first; 0: a discard
 */
struct vcache_entry {
	u64 block;
	u32 arg;
	u16 place;
	u8 mask;
};

/**
 * struct vcache_log_info - decoded head of a record or a seal
 * @gen: generation of the chunk
 * @seq: sequence number of this record; in a seal, of the last record
 * @volume: number of the volume
 * @chunk: number of the chunk
 * @tag: number of the tag
 * @type: enum vcache_log_type
 * @at: place of the block in the chunk
 * @nr: entries in the block
 * @data: data blocks that follow
 * @flags: of a seal: VC_SEAL_*; of a record: VC_RECORD_*
 * @revision: of a seal: how often the chunk was sealed
 * @durable: of a record: the last record of the log that was known to be durable, or 0
 */
struct vcache_log_info {
	u64 gen;
	u64 seq;
	u32 volume;
	u32 chunk;
	u16 tag;
	u16 type;
	u16 at;
	u16 nr;
	u16 data;
	u16 flags;
	u32 revision;
	u64 durable;
};

void vcache_log_put_entry(void *block, unsigned int i, const struct vcache_entry *e);
void vcache_log_get_entry(const void *block, unsigned int i, struct vcache_entry *e);
void vcache_log_finish(void *block, u64 key, const struct vcache_log_info *info);
bool vcache_log_parse(void *block, const struct vcache_geometry *g, u32 chunk,
		      u32 at, struct vcache_log_info *info);

/* Blocks of a chunk for records and data. */
static inline u32 vcache_chunk_capacity(const struct vcache_geometry *g)
{
	return g->chunk_blocks - VC_SEAL_COPIES * g->seal_blocks;
}

/* Entries that a seal can hold. */
static inline u32 vcache_seal_capacity(const struct vcache_geometry *g)
{
	return g->seal_blocks * VC_ENTRIES_PER_BLOCK;
}

#endif /* VCACHE_CORE_LOG_H */
