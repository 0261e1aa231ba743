/* SPDX-License-Identifier: GPL-2.0 */
/* What is in the chunks of a cache device, after a shutdown or a crash. */
#ifndef VCACHE_CORE_RECOVER_H
#define VCACHE_CORE_RECOVER_H

#include "seal.h"

/**
 * struct vc_found - what is known of a chunk
 * @gen: its generation; 0: nothing is in it
 * @last: sequence number of its last record, once it is replayed
 * @volume: whose it is
 * @tag: whose it is
 * @reads: it is of reads, and may be reclaimed before older ones of its log
 * @damaged: its first block is not readable, its seal is
 * @lost: entries of it are superseded
 * @stale: it has to be sealed again before a chunk of another log is reclaimed
 * @discards: there are discards in it
 * @below: a later chunk of its log is stale
 */
struct vc_found {
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
 * struct vc_replay - the replay of a volume
 * @st: the cache device
 * @g: its geometry
 * @ix: where the entries go
 * @chunk: what is known of the chunks, by number
 * @slot: of the volume
 * @work: room for a chunk and one more block
 * @lock: takes (@on) or drops the lock of a block's cells; NULL: not needed
 * @ctx: for @lock
 * @readonly: do not seal what was open
 * @limit: size of the volume in blocks; entries beyond are refused
 * @bad_blocks: blocks of open chunks whose checksum was wrong
 * @errors: chunks that could not be read, and entries refused
 */
struct vc_replay {
	const struct vc_store *st;
	const struct vc_geometry *g;
	struct vc_index *ix;
	struct vc_found *chunk;
	u16 slot;
	u8 *work;
	void (*lock)(void *ctx, u16 slot, u64 block, bool on);
	void *ctx;
	bool readonly;
	u64 limit;
	u64 bad_blocks;
	u64 errors;
};

/* Bytes that vc_replay.work needs. */
static inline size_t vc_replay_work_size(const struct vc_geometry *g)
{
	return ((size_t)g->chunk_blocks + 1) * VC_BLOCK_SIZE;
}

int vc_chunk_scan(const struct vc_store *st, const struct vc_geometry *g,
		  u32 chunk, u64 dead, void *block, struct vc_found *found);
void vc_chunks_sort(u32 *list, u32 n, const struct vc_found *found);
int vc_replay_chunk(struct vc_replay *rp, u32 chunk);
void vc_replay_finish(struct vc_replay *rp, const u32 *list, u32 n);

#endif /* VCACHE_CORE_RECOVER_H */
