/* SPDX-License-Identifier: GPL-2.0 */
/* What the tools share: a cache device that is read and looked through. */
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
 * @st: for the core
 * @g: where things are
 * @sb: the superblock, decoded
 * @super: the superblock, as vc_super_save() wants it
 * @super_bad: what vc_super_find() has returned
 * @slots: blocks with volume slots; zeroes where both copies are lost
 * @slots_bad: for each what vc_meta_load() has returned
 * @table: blocks of the chunk table; zeroes where both copies are lost
 * @table_bad: for each what vc_meta_load() has returned
 * @work: room for a chunk
 */
struct pool {
	const char *path;
	int fd;
	u64 blocks;
	struct vc_store st;
	struct vc_geometry g;
	struct vc_super sb;
	u8 super[VC_BLOCK_SIZE];
	int super_bad;
	u8 *slots;
	int *slots_bad;
	u8 *table;
	int *table_bad;
	u8 *work;
};

/**
 * struct view - what is in a chunk
 * @chunk: its number
 * @found: whose it is; generation 0: nothing
 * @unreadable: the blocks that say so cannot be read
 * @sealed: it has a seal
 * @seal: the seal, if it has one
 * @nr: entries
 * @e: the entries; of an open chunk those that are whole
 * @bad_data: entries of an open chunk whose data is not what it was
 */
struct view {
	u32 chunk;
	struct vc_found found;
	bool unreadable;
	bool sealed;
	struct vc_seal seal;
	u32 nr;
	struct vc_entry *e;
	u32 bad_data;
};

int pool_open(struct pool *p, const char *path, bool write);
int pool_load(struct pool *p);
void pool_close(struct pool *p);
u32 pool_slots(const struct pool *p);
const struct vc_slot_disk *pool_slot(const struct pool *p, u32 i);
const struct vc_slot_disk *pool_volume(const struct pool *p, u32 volume);
const struct vc_chunk_disk *pool_table(const struct pool *p, u32 chunk);
void pool_view(struct pool *p, u32 chunk, struct view *v);
bool pool_data_good(struct pool *p, u32 chunk, const struct vc_entry *e);

/* Says one thing that is wrong; @fmt as of printf(). */
typedef void report_fn(void *ctx, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

unsigned long pool_check(struct pool *p, bool data, report_fn *report,
			 void *ctx);

#endif /* VCACHE_TOOLS_POOL_H */
