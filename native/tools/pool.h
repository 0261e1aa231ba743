/* SPDX-License-Identifier: GPL-2.0 */
/* What the tools share: reading a cache device. */
#ifndef VCACHE_TOOLS_POOL_H
#define VCACHE_TOOLS_POOL_H

#include <stdio.h>

#include "../core/seal.h"
#include "../core/recover.h"

/* Exit status of all tools. */
enum {
	EXIT_GOOD = 0,
	EXIT_DAMAGE = 1,
	EXIT_USAGE = 2,
};

/**
 * struct pool - an open cache device
 * @path: its name
 * @fd: file descriptor
 * @blocks: its size
 * @st: access for the core
 * @g: its geometry
 * @sb: the decoded superblock
 * @super: the block of the superblock, for vcache_super_save()
 * @super_bad: what vcache_super_find() has returned
 * @slots: blocks with volume slots; zeroes if both copies are lost
 * @slots_bad: what vcache_meta_load() has returned for each of them
 * @table: blocks of the chunk table; zeroes if both copies are lost
 * @table_bad: what vcache_meta_load() has returned for each of them
 * @work: space for a chunk
 */
struct pool {
	const char *path;
	int fd;
	u64 blocks;
	struct vcache_store st;
	struct vcache_geometry g;
	struct vcache_super sb;
	u8 super[VC_BLOCK_SIZE];
	int super_bad;
	u8 *slots;
	int *slots_bad;
	u8 *table;
	int *table_bad;
	u8 *work;
};

/**
 * struct view - the content of a chunk
 * @chunk: its number
 * @direct: slot of the elastic SSD that has it, or NULL; then there is nothing but @block
 * @block: block of the elastic SSD
 * @found: log and generation; generation 0: it is empty
 * @unreadable: the blocks that say so cannot be read
 * @sealed: it has a seal
 * @seal: the seal, if it has one
 * @nr: number of entries
 * @e: the entries; of an open chunk, those in valid records
 * @bad_data: entries of an open chunk whose data has a wrong checksum
 */
struct view {
	u32 chunk;
	const struct vcache_slot_disk *direct;
	u32 block;
	struct vcache_found found;
	bool unreadable;
	bool sealed;
	struct vcache_seal seal;
	u32 nr;
	struct vcache_entry *e;
	u32 bad_data;
};

int pool_open(struct pool *p, const char *path, bool write);
int pool_load(struct pool *p);
void pool_close(struct pool *p);
u32 pool_slots(const struct pool *p);
const struct vcache_slot_disk *pool_slot(const struct pool *p, u32 i);
const struct vcache_slot_disk *pool_volume(const struct pool *p, u32 volume);
const struct vcache_chunk_disk *pool_table(const struct pool *p, u32 chunk);
const struct vcache_slot_disk *pool_direct(const struct pool *p, u32 chunk, u32 *block);
void pool_view(struct pool *p, u32 chunk, struct view *v);
bool pool_data_good(struct pool *p, u32 chunk, const struct vcache_entry *e);

/* Reports a problem; @fmt as for printf(). */
typedef void report_fn(void *ctx, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

unsigned long pool_check(struct pool *p, bool data, report_fn *report,
			 void *ctx);

#endif /* VCACHE_TOOLS_POOL_H */
