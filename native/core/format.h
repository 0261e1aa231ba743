/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The format of a cache device. All numbers are little-endian, all blocks have 4 KiB.
 * doc/source/reference/format.rst describes the same in prose.
 *
 * DOC: Layout
 *
 *   | metadata, copy 0 | metadata, copy 1 | chunk | chunk | ...
 *
 * A chunk is the unit of allocation. The two copies of the metadata take the first
 * chunks, as many as they need. Each copy has the superblock, the volume slots and the
 * chunk table. A metadata block is changed in place: copy 0 first, and copy 1 when copy 0
 * is durable. The valid copy with the higher sequence number counts. So a torn write loses
 * a change but never a block.
 *
 * DOC: Chunks
 *
 *   | record | data ... | record | data ... |  ...  | seal | seal |
 *
 * A chunk in use belongs to one log: that of a tag of a volume. Each time a chunk is used
 * it gets a new number, the generation. Each record names the data blocks behind it and
 * their checksums; it is written together with them. The data of a large write has no
 * checksums: the guest may change the data while it is written. So its record is written when the
 * data is durable.
 *
 * The seal at the end repeats all entries of the chunk. It is written when everything
 * before it is durable, so the data that it names needs no check. It has two copies,
 * because it is changed later, one copy after the other. The copy with the higher revision
 * counts. Records still have the entries that were removed from the seal.
 *
 * Nothing on the device describes read chunks until a clean shutdown seals them. Their
 * seals have a flag: there are no records in front of such a seal, and its entries have
 * no checksums. From then on the chunk is the newest one of its log.
 *
 * DOC: Order
 *
 * The sequence numbers of records come from one counter for the whole pool, and so do
 * generations. Of two entries for the same sectors, the one in the later record counts. A
 * record completes only after all earlier records of its log. So all acknowledged records
 * are in front of the first invalid one.
 *
 * A chunk is dead when the chunk table says so: the number there is not below its
 * generation. The next sequence number has to be above all of these numbers, too. When a
 * chunk is reclaimed, no older entry that it has superseded may become valid again. So
 * there are two rules:
 *
 * 1. The chunks of a log are reclaimed in the order of their generations. Three kinds may be
 *    reclaimed earlier: a read chunk has superseded nothing, and the origin has all its
 *    data; a chunk that has no valid entry any more, no discard and no failed record; and
 *    any chunk after all older ones of its log were sealed again without superseded entries.
 *    What supersedes the entries of the second kind supersedes what they have superseded,
 *    too. If the chunk is stale, the next older one of its log is stale from then on.
 * 2. Before a chunk is reclaimed, the stale chunks of the other logs of its volume are
 *    sealed, and sealed again without superseded entries.
 *
 * If chunks of several logs cannot be sealed again, all chunks of the volume up to the newest of
 * these become dead at once, by the floor in the slot of the volume. They are clean, and stale
 * chunks behind them were sealed again before. Among each other they need no seals.
 *
 * A chunk is stale when a record of another log has superseded an entry of it. Then older
 * chunks of its log are stale, too, if any of their entries is superseded by any log: an
 * entry that is removed from the newer chunk may be the only one that hides them. If the
 * open chunk of a log becomes stale, no more records are written to it.
 *
 * DOC: Chunks of an elastic SSD
 *
 * A volume with mode VC_VOLUME_VSSD has no log and no origin. It maps blocks of the size of a
 * chunk to whole chunks. The chunk table says which chunk has which block, in the field for clean
 * generations, see vcache_direct_pack(). Such an entry is written when the chunk is zeroed and
 * before a request for its block completes, and it is removed before the chunk is used for
 * anything else. An entry of a volume that has no slot, or another mode, counts for nothing.
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

/* The first sequence number: 0 means none. */
#define VC_SEQ_FIRST		1U

enum vcache_meta_type {
	VC_META_SUPER = 1,
	VC_META_SLOTS = 2,
	VC_META_TABLE = 3,
};

/**
 * struct vcache_meta_head - the head of every metadata block
 * @magic: VC_META_MAGIC
 * @crc: CRC32C of the block with 0 here
 * @key: random number of this pool
 * @seq: incremented with each change of this block
 * @type: enum vcache_meta_type
 * @version: VC_FORMAT_VERSION
 * @index: number of the block among those of its type
 */
struct vcache_meta_head {
	__le32 magic;
	__le32 crc;
	__le64 key;
	__le64 seq;
	__le16 type;
	__le16 version;
	__le32 index;
};

/* The pool was shut down cleanly: all chunks are sealed, the chunk table is up to date. */
#define VC_SUPER_CLEAN		1U
/* Damaged metadata was found: vcache-check has to be run. */
#define VC_SUPER_NEEDS_CHECK	2U
/* The pool has, or had, a volume with mode VC_VOLUME_VSSD. */
#define VC_SUPER_VSSD		4U

/**
 * struct vcache_super_disk - the superblock
 * @head: type VC_META_SUPER
 * @uuid: identifies the pool for administrators and tools
 * @chunk_blocks: blocks of a chunk
 * @chunks: chunks in use, including those of the metadata
 * @slot_blocks: blocks with volume slots
 * @flags: VC_SUPER_*
 * @next_seq: lower bound of the next sequence number
 * @compat: features; unknown bits do no harm
 * @ro_compat: features; unknown bits forbid writing
 * @incompat: features; unknown bits forbid reading
 * @max_chunks: with VC_INCOMPAT_MAX_CHUNKS: chunks that the table has space for; without
 *	it: @chunks
 */
struct vcache_super_disk {
	struct vcache_meta_head head;
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

/* @max_chunks says where the second copy of the metadata is. */
#define VC_INCOMPAT_MAX_CHUNKS	1ULL
/* Open chunks may have records with VC_RECORD_UNCHECKED. Not set with VC_SUPER_CLEAN. */
#define VC_INCOMPAT_UNCHECKED	2ULL
/* The chunk table may have chunks of an elastic SSD. Set with VC_SUPER_VSSD. */
#define VC_INCOMPAT_VSSD	4ULL

/*
 * A new pool has space in its table for so many times its chunks, and may shrink to one of
 * so many: two times 16 bytes for each chunk cost next to nothing.
 */
#define VC_GROW_TIMES		4U

enum vcache_volume_mode {
	VC_VOLUME_WRITEBACK = 1,
	VC_VOLUME_WRITETHROUGH = 2,
	VC_VOLUME_VSSD = 3,
};

/* Of a volume with VC_VOLUME_VSSD: some blocks may have been taken by force, see ../dm/vssd. */
#define VC_SLOT_TAKEN		1ULL

#define VC_VOLUME_NAME_MAX	127U

/**
 * struct vcache_slot_disk - the slot of a volume
 * @volume: its number; 0: the slot is free
 * @mode: enum vcache_volume_mode
 * @floor: chunks of older generations are dead
 * @sectors: size of the origin, or of the elastic SSD
 * @flags: VC_SLOT_*
 * @name: a label, such as which device the volume belongs to; ends with 0
 * @unused: 0
 */
struct vcache_slot_disk {
	__le32 volume;
	__le32 mode;
	__le64 floor;
	__le64 sectors;
	__le64 flags;
	u8 name[VC_VOLUME_NAME_MAX + 1];
	u8 unused[96];
};

#define VC_SLOTS_PER_BLOCK \
	((VC_BLOCK_SIZE - sizeof(struct vcache_meta_head)) / \
	 sizeof(struct vcache_slot_disk))

/**
 * struct vcache_chunk_disk - the entry of a chunk in the chunk table
 * @dead: generations up to this one are dead
 * @clean: generations up to this one are clean; or the block of an elastic SSD that the chunk
 *	has, see vcache_direct_pack()
 */
struct vcache_chunk_disk {
	__le64 dead;
	__le64 clean;
};

#define VC_CHUNKS_PER_BLOCK \
	((VC_BLOCK_SIZE - sizeof(struct vcache_meta_head)) / \
	 sizeof(struct vcache_chunk_disk))

enum vcache_log_type {
	VC_LOG_RECORD = 1,
	VC_LOG_SEAL = 2,
};

/* It was a read chunk: no records, no checksums, and data from its first block on. */
#define VC_SEAL_READS		1U

/* The data was durable before the record was sent, and has no checksums: those are 0. */
#define VC_RECORD_UNCHECKED	2U

/**
 * struct vcache_log_head - the head of a record or a seal
 * @magic: VC_LOG_MAGIC
 * @crc: CRC32C of the block with 0 here
 * @key: random number of this pool; guests cannot read it, so they cannot forge a head
 * @gen: generation of the chunk
 * @seq: sequence number of this record; in a seal, of the last record
 * @volume: number of the volume
 * @chunk: number of the chunk
 * @tag: number of the tag
 * @type: enum vcache_log_type
 * @at: place of this block in the chunk
 * @nr: entries in this block
 * @data: data blocks behind a record
 * @flags: of a seal: VC_SEAL_*; of a record: VC_RECORD_*
 * @revision: of a seal: how often the chunk was sealed, the same in all blocks
 * @durable: of a record: sequence number of the last record of its log that was known to be
 *	durable when this one was sent; 0: not known
 */
struct vcache_log_head {
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
	__le64 durable;
};

/* Fields of vcache_entry_disk.where. */
#define VC_WHERE_BLOCK_BITS	40
#define VC_WHERE_MASK_SHIFT	40
#define VC_WHERE_PLACE_SHIFT	48
#define VC_WHERE_BLOCK_MAX	((1ULL << VC_WHERE_BLOCK_BITS) - 1)

/**
 * struct vcache_entry_disk - one block of an origin
 * @where_lo: lower half of: its number on the origin, 40 bits; mask of its valid
 *	sectors, 8 bits; place in the chunk, 16 bits: of the data block, or of the record
 *	if the mask is 0
 * @where_hi: upper half
 * @arg: CRC32C of the data block, or 0 with VC_RECORD_UNCHECKED; if the mask is 0, the
 *	number of blocks that were discarded from the given one on
 */
struct vcache_entry_disk {
	__le32 where_lo;
	__le32 where_hi;
	__le32 arg;
};

#define VC_ENTRIES_PER_BLOCK \
	((VC_BLOCK_SIZE - sizeof(struct vcache_log_head)) / \
	 sizeof(struct vcache_entry_disk))

#endif /* VCACHE_CORE_FORMAT_H */
