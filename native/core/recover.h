/* SPDX-License-Identifier: GPL-2.0 */
/* Recovery: finding the content of the chunks after a shutdown or a crash. */
#ifndef VCACHE_CORE_RECOVER_H
#define VCACHE_CORE_RECOVER_H

#include "seal.h"

/**
 * struct vcache_found - what the scan has found in a chunk
 * @gen: its generation; 0: it is empty
 * @last: sequence number of its last record, when it is replayed
 * @volume: number of its volume
 * @tag: number of its tag
 * @reads: it was a read chunk, and may be reclaimed before older ones of its log
 * @damaged: its first block is not readable, but its seal is
 * @lost: some of its entries are superseded
 * @stale: it has to be sealed again before a chunk of another log is reclaimed
 * @discards: it has discards
 * @below: a later chunk of its log is stale
 */
struct vcache_found {
	u64 gen;
	u64 last;
	u32 volume;
	u16 tag;
	bool reads;
	bool damaged;
	bool lost;
	bool stale;
	bool discards;
	bool below;
};

/**
 * struct vcache_replay - the replay of a volume
 * @st: the cache device
 * @g: its geometry
 * @ix: the index that gets the entries
 * @chunk: what was found in the chunks, by number
 * @slot: slot of the volume
 * @work: space for a chunk and one more block
 * @lock: takes (@on) or drops the lock of a block's cells; NULL: not needed
 * @ctx: passed to @lock
 * @readonly: do not seal open chunks
 * @limit: size of the volume in blocks; entries beyond it are refused
 * @bad_blocks: blocks of open chunks with a wrong checksum
 * @errors: chunks that could not be read, and entries that were refused
 * @lost: blocks of the last chunk that were durable, but are damaged
 * @lost_first: of these, the first block of the origin that is known
 * @lost_last: and the last one; less than @lost_first: none is known
 */
struct vcache_replay {
	const struct vcache_store *st;
	const struct vcache_geometry *g;
	struct vcache_index *ix;
	struct vcache_found *chunk;
	u16 slot;
	u8 *work;
	void (*lock)(void *ctx, u16 slot, u64 block, bool on);
	void *ctx;
	bool readonly;
	u64 limit;
	u64 bad_blocks;
	u64 errors;
	u32 lost;
	u64 lost_first;
	u64 lost_last;
};

/* Size of vcache_replay.work in bytes. */
static inline size_t vcache_replay_work_size(const struct vcache_geometry *g)
{
	return ((size_t)g->chunk_blocks + 1) * VC_BLOCK_SIZE;
}

int vcache_chunk_scan(const struct vcache_store *st, const struct vcache_geometry *g,
		      u32 chunk, u64 dead, void *block, struct vcache_found *found);
void vcache_chunks_sort(u32 *list, u32 n, const struct vcache_found *found);
int vcache_replay_chunk(struct vcache_replay *rp, u32 chunk);
void vcache_replay_finish(struct vcache_replay *rp, const u32 *list, u32 n);

#endif /* VCACHE_CORE_RECOVER_H */
