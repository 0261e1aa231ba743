// SPDX-License-Identifier: GPL-2.0
/*
 * Arbitrary blocks as the chunks of a cache device: scan, replay and reseal must
 * stay within their memory, terminate, and leave a valid index. The harness
 * corrects the checksums. An input is a byte of flags, then blocks: struct item
 * with its number of entries.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "../../native/core/crc32c.h"
#include "../../native/core/recover.h"

#define KEY 0x66757a7a66757a7aULL
#define CHUNKS 5
#define BLOCKS_MAX (CHUNKS * 512)

struct item {
	uint8_t chunk;
	uint8_t place;	/* above 200: in the seals */
	uint8_t flags;	/* 1: at is wrong, 2: so is the chunk, 4: a seal */
	uint8_t gen;
	uint8_t seq;
	uint8_t tag;
	uint8_t data;
	uint8_t revision;
	uint8_t nr;
};

struct item_entry {
	uint8_t block;
	uint8_t mask;
	uint8_t place;
	uint8_t arg;	/* 255: the maximum */
};

static struct vcache_geometry g;
static u8 disk[BLOCKS_MAX][VC_BLOCK_SIZE];

static int disk_read(void *ctx, u64 block, u32 n, void *buf)
{
	u64 first = (u64)g.first_chunk * g.chunk_blocks;

	(void)ctx;
	assert(block >= first && n && block - first + n <=
	       CHUNKS * g.chunk_blocks);
	memcpy(buf, disk[block - first], (size_t)n * VC_BLOCK_SIZE);
	return 0;
}

static int disk_write(void *ctx, u64 block, u32 n, const void *buf)
{
	u64 first = (u64)g.first_chunk * g.chunk_blocks;

	(void)ctx;
	assert(block >= first && n && block - first + n <=
	       CHUNKS * g.chunk_blocks);
	memcpy(disk[block - first], buf, (size_t)n * VC_BLOCK_SIZE);
	return 0;
}

static const struct vcache_store store = { .read = disk_read,
				       .write = disk_write };

/* Create one block from the input. Return: size of the input used. */
static size_t make(const uint8_t *data, size_t len, u32 crc_of_zeroes)
{
	struct vcache_log_info info = { .volume = 1, .type = VC_LOG_RECORD };
	struct item_entry from;
	struct item item;
	size_t took = sizeof(item);
	u32 chunk, place, i;
	u8 *block;

	if (len < sizeof(item))
		return len;
	memcpy(&item, data, sizeof(item));
	chunk = item.chunk % CHUNKS;
	place = item.place % vcache_chunk_capacity(&g);
	if (item.place > 200)
		place = vcache_chunk_capacity(&g) + item.place % (2 * g.seal_blocks);
	block = disk[chunk * g.chunk_blocks + place];
	memset(block, 0, VC_BLOCK_SIZE);
	for (i = 0; i < item.nr && len - took >= sizeof(from); i++) {
		struct vcache_entry e;

		memcpy(&from, data + took, sizeof(from));
		took += sizeof(from);
		e = (struct vcache_entry){ .block = from.block, .mask = from.mask,
				       .place = from.place, .arg = from.arg };
		if (e.mask)
			e.arg = crc_of_zeroes + (from.arg == 255);
		else if (from.arg == 255)
			e.arg = ~0U - from.place;
		vcache_log_put_entry(block, i, &e);
	}
	info.chunk = g.first_chunk + chunk + !!(item.flags & 2);
	info.at = place + (item.flags & 1);
	info.type += !!(item.flags & 4);
	info.gen = item.gen;
	info.seq = item.seq;
	info.tag = item.tag % 3;
	info.data = item.data;
	info.revision = item.revision;
	info.nr = item.flags & 8 ? 0xffff : i;
	vcache_log_finish(block, KEY, &info);
	return took;
}

/* Each cell is in its bucket once, or in none. */
static void check_index(const struct vcache_index *ix)
{
	u32 b, c, seen = 0, used = 0;

	for (b = 0; b < ix->buckets; b++) {
		for (c = ix->head[b]; c != VC_CELL_NONE; c = vcache_cell_next(ix, c)) {
			assert(vcache_cell_mask(ix, c));
			assert(++seen <= ix->cells);
		}
	}
	for (c = 0; c < ix->cells; c++)
		used += !!vcache_cell_mask(ix, c);
	assert(seen == used);
}

static void replay(struct vcache_replay *rp)
{
	u32 list[CHUNKS], n = 0, c, last = g.first_chunk + CHUNKS;
	u8 block[VC_BLOCK_SIZE];

	vcache_index_init(rp->ix);
	for (c = g.first_chunk; c < last; c++) {
		assert(!vcache_chunk_scan(&store, &g, c, 3, block,
					  &rp->chunk[c]));
		if (rp->chunk[c].gen)
			list[n++] = c;
	}
	vcache_chunks_sort(list, n, rp->chunk);
	for (c = 0; c < n; c++)
		vcache_replay_chunk(rp, list[c]);
	vcache_replay_finish(rp, list, n);
	check_index(rp->ix);
	for (c = 0; c < n && !rp->readonly; c++)
		vcache_chunk_reseal(&store, &g, rp->ix, list[c],
				    rp->chunk[list[c]].gen, rp->work);
}

static void *room(size_t n)
{
	void *p = calloc(n, 1);

	assert(p);
	return p;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	u32 chunk_blocks = len && data[0] & 2 ? 512 : 16;
	u32 meta = 2 * ((66 + chunk_blocks - 1) / chunk_blocks);
	struct vcache_index ix = { .cells = (meta + CHUNKS) * chunk_blocks };
	struct vcache_replay rp = { .st = &store, .g = &g, .ix = &ix, .limit = 99 };
	static const u8 zeroes[VC_BLOCK_SIZE];
	size_t at = 1;

	assert(!vcache_geometry_set(&g, KEY, chunk_blocks, ix.cells));
	memset(disk, 0, (size_t)CHUNKS * chunk_blocks * VC_BLOCK_SIZE);
	while (at < len)
		at += make(data + at, len - at,
			   vcache_crc32c(zeroes, VC_BLOCK_SIZE));
	ix.buckets = vcache_index_buckets(ix.cells);
	ix.where = room(ix.cells * sizeof(u64));
	ix.next = room(ix.cells * sizeof(u16));
	ix.slot = room(ix.cells / chunk_blocks * sizeof(u16));
	ix.chunk_cells = chunk_blocks;
	ix.head = room(ix.buckets * sizeof(u32));
	rp.chunk = room(g.chunks * sizeof(*rp.chunk));
	rp.work = room(vcache_replay_work_size(&g));
	rp.readonly = len && data[0] & 1;
	replay(&rp);
	replay(&rp);
	free(ix.where);
	free(ix.next);
	free(ix.head);
	free(ix.slot);
	free(rp.chunk);
	free(rp.work);
	return 0;
}
