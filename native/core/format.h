/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What a cache device looks like. Everything is little-endian, in blocks of
 * 4 KiB. doc/source/reference/format.rst says the same in prose.
 *
 * DOC: Layout
 *
 *   | metadata, copy 0 | metadata, copy 1 | chunk | chunk | ...
 *
 * A chunk is the unit of allocation. The two copies of the metadata take the
 * first chunks, as many as they need; each holds the superblock, the volume
 * slots and the chunk table. A metadata block is changed in place, copy 0
 * first, and copy 1 when that is durable; the valid copy of the higher
 * sequence number counts. So a torn write loses a change but never a block.
 *
 * DOC: Chunks
 *
 *   | record | data ... | record | data ... |  ...  | seal | seal |
 *
 * A chunk in use belongs to one log, that of a tag of a volume, for one life,
 * which has a number (the generation). Each record names the data blocks that
 * follow it and their checksums; it is written together with them. The seal
 * at the end repeats all entries of the chunk. It is written when everything
 * before it is durable, so what it names needs no check. It is there twice,
 * because it is changed later, one copy after the other; the copy of the
 * later revision counts. The records still name what was taken out of the seal.
 *
 * What is in the cache because it was read is in chunks that nothing on the
 * device knows of, until a clean shutdown seals them. Such a seal says so: there
 * are no records in front of it, and its entries have no checksums. From then
 * on the chunk is one of the log, the newest.
 *
 * DOC: Order
 *
 * Records have sequence numbers out of one counter for the whole pool, and a
 * generation is one of them. Of two entries for the same sectors the one of
 * the later record counts. A record completes only after all earlier ones of
 * its log; so what was acknowledged is in front of the first invalid record.
 *
 * A chunk is reclaimed when the chunk table says so: its number there is not below
 * its generation. The next sequence number has to be above all of these, too.
 * So that no old entry comes back to life when the one that superseded it is
 * gone, there are two rules:
 *
 * 1. The chunks of a log are reclaimed in the order of their generations. One of reads may
 *    be reclaimed earlier: it has superseded nothing, and the origin has all of it.
 * 2. None is reclaimed before the stale chunks of the other logs of its volume are
 *    sealed, and sealed again without what is superseded.
 *
 * A chunk is stale when a record of another log has superseded an entry of
 * it. The older chunks of its own log are stale then, too, if any of their
 * entries is superseded, by whichever log: what is taken out of the newer chunk
 * may be all that hides it. A log whose open chunk becomes stale puts no more
 * records into it.
 */
#ifndef VCACHE_CORE_FORMAT_H
#define VCACHE_CORE_FORMAT_H

#include "types.h"

#define VC_BLOCK_SHIFT		12
#define VC_BLOCK_SIZE		4096U
#define VC_BLOCK_SECTORS	8U
#define VC_MASK_ALL		0xffU

#define VC_META_MAGIC		0x4d435643U	/* "CVCM" */
#define VC_LOG_MAGIC		0x4c435643U	/* "CVCL" */
#define VC_FORMAT_VERSION	1U

#define VC_COPIES		2U
#define VC_SEAL_COPIES		2U
#define VC_CHUNK_BLOCKS_MIN	16U
#define VC_CHUNK_BLOCKS_MAX	4096U
#define VC_SLOT_BLOCKS		64U

/* Sequence numbers start here, so that 0 can mean none. */
#define VC_SEQ_FIRST		1U

enum vc_meta_type {
	VC_META_SUPER = 1,
	VC_META_SLOTS = 2,
	VC_META_TABLE = 3,
};

/**
 * struct vc_meta_head - the beginning of every metadata block
 * @magic: VC_META_MAGIC
 * @crc: CRC32C of the block with 0 here
 * @key: random number of this pool
 * @seq: grows with each change of this block
 * @type: enum vc_meta_type
 * @version: VC_FORMAT_VERSION
 * @index: number of the block among those of its type
 */
struct vc_meta_head {
	__le32 magic;
	__le32 crc;
	__le64 key;
	__le64 seq;
	__le16 type;
	__le16 version;
	__le32 index;
};

/* The pool was shut down: all chunks are sealed, the chunk table is true. */
#define VC_SUPER_CLEAN		1U
/* Metadata was found damaged: vcache-check has to be run. */
#define VC_SUPER_NEEDS_CHECK	2U

/**
 * struct vc_super_disk - the superblock
 * @head: type VC_META_SUPER
 * @uuid: for people and tools
 * @chunk_blocks: blocks of a chunk
 * @chunks: chunks in use, those of the metadata included
 * @slot_blocks: blocks with volume slots
 * @flags: VC_SUPER_*
 * @next_seq: lower bound of the next sequence number
 * @compat: unknown bits do no harm
 * @ro_compat: unknown bits forbid writing
 * @incompat: unknown bits forbid reading
 * @max_chunks: with VC_INCOMPAT_MAX_CHUNKS: chunks that the table has space for; without: as
 *	many as there are
 */
struct vc_super_disk {
	struct vc_meta_head head;
	u8 uuid[16];
	__le32 chunk_blocks;
	__le32 chunks;
	__le32 slot_blocks;
	__le32 flags;
	__le64 next_seq;
	__le64 compat;
	__le64 ro_compat;
	__le64 incompat;
	__le32 max_chunks;
};

/* The second copy of the metadata is where @max_chunks says. */
#define VC_INCOMPAT_MAX_CHUNKS	1ULL

/*
 * A new pool has room for so many times its chunks, and may shrink to one of so
 * many: at 16 bytes a chunk, twice, that costs next to nothing.
 */
#define VC_GROW_TIMES		4U

enum vc_volume_mode {
	VC_VOLUME_WRITEBACK = 1,
	VC_VOLUME_WRITETHROUGH = 2,
};

#define VC_VOLUME_NAME_MAX	127U

/**
 * struct vc_slot_disk - what is known of a volume
 * @volume: its number; 0: the slot is free
 * @mode: enum vc_volume_mode
 * @floor: chunks of older generations are dead
 * @sectors: size of the origin
 * @flags: none yet, 0
 * @name: for people, ends with 0
 * @unused: 0
 */
struct vc_slot_disk {
	__le32 volume;
	__le32 mode;
	__le64 floor;
	__le64 sectors;
	__le64 flags;
	u8 name[VC_VOLUME_NAME_MAX + 1];
	u8 unused[96];
};

#define VC_SLOTS_PER_BLOCK \
	((VC_BLOCK_SIZE - sizeof(struct vc_meta_head)) / \
	 sizeof(struct vc_slot_disk))

/**
 * struct vc_chunk_disk - what is known of a chunk
 * @dead: generations up to this one are dead
 * @clean: generations up to this one are on the origin as well
 */
struct vc_chunk_disk {
	__le64 dead;
	__le64 clean;
};

#define VC_CHUNKS_PER_BLOCK \
	((VC_BLOCK_SIZE - sizeof(struct vc_meta_head)) / \
	 sizeof(struct vc_chunk_disk))

enum vc_log_type {
	VC_LOG_RECORD = 1,
	VC_LOG_SEAL = 2,
};

/* The chunk is one of reads: no records, no checksums, data from its start on. */
#define VC_SEAL_READS		1U

/**
 * struct vc_log_head - the beginning of a record or a seal
 * @magic: VC_LOG_MAGIC
 * @crc: CRC32C of the block with 0 here
 * @key: random number of this pool: what a guest writes never looks like this
 * @gen: generation of the chunk
 * @seq: of this record; in a seal that of the last record
 * @volume: number of the volume
 * @chunk: number of the chunk
 * @tag: number of the tag
 * @type: enum vc_log_type
 * @at: where in the chunk this block is
 * @nr: entries in this block
 * @data: data blocks that follow a record
 * @flags: of a seal: VC_SEAL_*; of a record 0
 * @revision: of a seal: how often the chunk was sealed, the same in all blocks
 * @unused: 0
 */
struct vc_log_head {
	__le32 magic;
	__le32 crc;
	__le64 key;
	__le64 gen;
	__le64 seq;
	__le32 volume;
	__le32 chunk;
	__le16 tag;
	__le16 type;
	__le16 at;
	__le16 nr;
	__le16 data;
	__le16 flags;
	__le32 revision;
	u8 unused[8];
};

/* Fields of vc_entry_disk.where. */
#define VC_WHERE_BLOCK_BITS	40
#define VC_WHERE_MASK_SHIFT	40
#define VC_WHERE_PLACE_SHIFT	48
#define VC_WHERE_BLOCK_MAX	((1ULL << VC_WHERE_BLOCK_BITS) - 1)

/**
 * struct vc_entry_disk - one block of an origin
 * @where_lo: lower half of: its number on the origin, 40 bits; the sectors of
 *	it that count, 8 bits; the place in the chunk, 16 bits: of the data
 *	block, or of the record when no sector counts
 * @where_hi: upper half
 * @arg: CRC32C of the data block; when no sector counts, a number of blocks
 *	from the given one on that were discarded
 */
struct vc_entry_disk {
	__le32 where_lo;
	__le32 where_hi;
	__le32 arg;
};

#define VC_ENTRIES_PER_BLOCK \
	((VC_BLOCK_SIZE - sizeof(struct vc_log_head)) / \
	 sizeof(struct vc_entry_disk))

#endif /* VCACHE_CORE_FORMAT_H */
