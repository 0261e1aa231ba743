// SPDX-License-Identifier: GPL-2.0
#include "crc32c.h"
#include "recover.h"

static u64 vc_chunk_start(const struct vcache_geometry *g, u32 chunk)
{
	return (u64)chunk * g->chunk_blocks;
}

/*
 * Read the generation from what is left of a record. Return: 0 if it was no record of this pool:
 * guests cannot read the key.
 */
static u64 vc_damaged_gen(const struct vcache_geometry *g, const void *block)
{
	const struct vcache_log_head *h = block;

	return le32_to_cpu(h->magic) == VC_LOG_MAGIC && le64_to_cpu(h->key) == g->key ?
	       le64_to_cpu(h->gen) : 0;
}

/*
 * Look for any record of a chunk whose first one is damaged, and that has no seal. Records of
 * other generations are left from before an earlier crash. Return: whether there is one.
 */
static bool vc_chunk_search(const struct vcache_store *st, const struct vcache_geometry *g,
			    u32 chunk, u64 gen, void *block, struct vcache_log_info *info)
{
	u32 at;

	for (at = 1; at < vcache_chunk_capacity(g); at++) {
		if (!st->read(st->ctx, vc_chunk_start(g, chunk) + at, 1, block) &&
		    vcache_log_parse(block, g, chunk, at, info) && info->gen == gen)
			return true;
	}
	return false;
}

static void vc_chunk_found(struct vcache_found *found, const struct vcache_log_info *info)
{
	found->gen = info->gen;
	found->last = info->seq;
	found->volume = info->volume;
	found->tag = info->tag;
	found->reads = info->flags & VC_SEAL_READS;
}

/**
 * vcache_chunk_scan - find out which log a chunk belongs to
 * @st: the cache device
 * @g: its geometry
 * @chunk: the chunk
 * @dead: number of its last dead generation, from the chunk table
 * @block: VC_BLOCK_SIZE bytes to work in
 * @found: filled in
 *
 * The first record, or else the seal, names the log. If the first record is damaged and there is no
 * seal, any other record does. But these are read only if the head of the first one is left: the
 * first block of a chunk that is free, or holds promoted blocks, may have any content.
 *
 * Return: 0; -EIO if the necessary blocks cannot be read.
 */
int vcache_chunk_scan(const struct vcache_store *st, const struct vcache_geometry *g,
		      u32 chunk, u64 dead, void *block, struct vcache_found *found)
{
	const u32 places[] = { 0, vcache_seal_place(g, 0), vcache_seal_place(g, 1) };
	struct vcache_log_info info;
	unsigned int i;
	u64 gen = 0;
	int failed = 0;

	memset(found, 0, sizeof(*found));
	for (i = 0; i < 3; i++) {
		if (st->read(st->ctx, vc_chunk_start(g, chunk) + places[i], 1,
			     block)) {
			failed++;
			continue;
		}
		if (!vcache_log_parse(block, g, chunk, places[i], &info) ||
		    info.gen <= dead) {
			if (!i)
				gen = vc_damaged_gen(g, block);
			continue;
		}
		vc_chunk_found(found, &info);
		found->damaged = i && !found->reads;
		return 0;
	}
	if (gen > dead && vc_chunk_search(st, g, chunk, gen, block, &info)) {
		vc_chunk_found(found, &info);
		found->damaged = true;
		return 0;
	}
	return failed ? -EIO : 0;
}

static void vc_sift_down(u32 *list, u32 root, u32 n,
			 const struct vcache_found *found)
{
	for (;;) {
		u32 child = 2 * root + 1, top = list[root];

		if (child >= n)
			return;
		if (child + 1 < n &&
		    found[list[child]].gen < found[list[child + 1]].gen)
			child++;
		if (found[top].gen >= found[list[child]].gen)
			return;
		list[root] = list[child];
		list[child] = top;
		root = child;
	}
}

/**
 * vcache_chunks_sort - sort chunks by generation
 * @list: their numbers
 * @n: how many
 * @found: what was found in the chunks, by number
 */
void vcache_chunks_sort(u32 *list, u32 n, const struct vcache_found *found)
{
	u32 i;

	for (i = n / 2; i--;)
		vc_sift_down(list, i, n, found);
	for (i = n; i-- > 1;) {
		u32 top = list[0];

		list[0] = list[i];
		list[i] = top;
		vc_sift_down(list, 0, i, found);
	}
}

/*
 * Find the sequence number of the record that a place belongs to. That is needed only if
 * two logs have written the same sectors, see vc_replay_newer(). If the record cannot be
 * read it counts as the oldest of its chunk.
 */
static u64 vc_record_seq(struct vcache_replay *rp, u32 chunk, u32 place)
{
	const struct vcache_geometry *g = rp->g;
	u8 *block = rp->work + (size_t)g->chunk_blocks * VC_BLOCK_SIZE;
	struct vcache_log_info info;
	u32 at;

	/* A record is before its data, at most by this distance. */
	for (at = place + 1; at--;) {
		if (place - at > VC_ENTRIES_PER_BLOCK)
			break;
		if (rp->st->read(rp->st->ctx, vc_chunk_start(g, chunk) + at, 1,
				 block) ||
		    !vcache_log_parse(block, g, chunk, at, &info) ||
		    info.gen != rp->chunk[chunk].gen)
			continue;
		if (at + info.data >= place)
			return info.seq;
	}
	return rp->chunk[chunk].gen;
}

/* The entry that is being applied. */
struct vc_applied {
	u32 chunk;
	u32 place;
	u64 seq; /* 0: not known yet, because the entry comes from a seal */
};

/*
 * Is an entry in the index newer than the one being applied? Within a log, generations and
 * places say so. Two logs may have written at the same time; only then the sequence numbers
 * of their records are needed.
 */
static bool vc_replay_newer(struct vcache_replay *rp, u32 cell,
			    struct vc_applied *a)
{
	u32 chunk = cell / rp->g->chunk_blocks;
	u32 place = cell % rp->g->chunk_blocks;
	const struct vcache_found *there = &rp->chunk[chunk];
	const struct vcache_found *here = &rp->chunk[a->chunk];

	if (chunk == a->chunk)
		return place > a->place;
	if (there->tag == here->tag)
		return there->gen > here->gen;
	if (there->last < here->gen)
		return false;
	if (there->gen > here->last)
		return true;
	if (!a->seq)
		a->seq = vc_record_seq(rp, a->chunk, a->place);
	return vc_record_seq(rp, chunk, place) > a->seq;
}

static void vc_replay_mark(struct vcache_replay *rp, u32 chunk, u32 by)
{
	rp->chunk[chunk].lost = true;
	if (rp->chunk[chunk].tag != rp->chunk[by].tag)
		rp->chunk[chunk].stale = true;
}

/*
 * Lock the cells of a block. The index may be in use for other volumes, which share buckets
 * with this one. Nobody else uses cells of this volume.
 */
static void vc_replay_lock(struct vcache_replay *rp, u64 block, bool on)
{
	if (rp->lock)
		rp->lock(rp->ctx, rp->slot, block, on);
}

static u32 vc_replay_find(struct vcache_replay *rp, u64 block, u8 mask)
{
	u32 cell;

	vc_replay_lock(rp, block, true);
	cell = vcache_index_find(rp->ix, rp->slot, block, mask);
	vc_replay_lock(rp, block, false);
	return cell;
}

/* Find the sectors of a block for which the entry is the newest. */
static u8 vc_replay_wins(struct vcache_replay *rp, struct vc_applied *a, u64 block,
			 u8 mask)
{
	struct vcache_index *ix = rp->ix;
	u8 left = mask, wins = 0;
	u32 cell;

	while (left) {
		u8 has;

		cell = vc_replay_find(rp, block, left);
		if (cell == VC_CELL_NONE)
			return wins | left;
		has = left & vcache_cell_mask(ix, cell);
		if (vc_replay_newer(rp, cell, a))
			vc_replay_mark(rp, a->chunk,
				       cell / rp->g->chunk_blocks);
		else
			wins |= has;
		left &= ~has;
	}
	return wins;
}

static u8 vc_replay_cut(struct vcache_replay *rp, struct vc_applied *a, u64 block,
			u8 mask)
{
	u32 touched[VC_CELLS_PER_BLOCK];
	unsigned int i, n;

	mask = vc_replay_wins(rp, a, block, mask);
	vc_replay_lock(rp, block, true);
	n = vcache_index_cut(rp->ix, rp->slot, block, mask, touched);
	vc_replay_lock(rp, block, false);
	for (i = 0; i < n; i++)
		vc_replay_mark(rp, touched[i] / rp->g->chunk_blocks, a->chunk);
	return mask;
}

/* Apply a discard. If it is larger than the cache, go through the cache. */
static void vc_replay_discard(struct vcache_replay *rp, struct vc_applied *a,
			      u64 block, u64 blocks)
{
	u32 cell;
	u64 i;

	if (blocks <= rp->ix->cells) {
		for (i = 0; i < blocks; i++)
			vc_replay_cut(rp, a, block + i, VC_MASK_ALL);
		return;
	}
	for (cell = 0; cell < rp->ix->cells; cell++) {
		u64 b = vcache_cell_block(rp->ix, cell);

		if (vcache_cell_mask(rp->ix, cell) &&
		    vcache_cell_slot(rp->ix, cell) == rp->slot &&
		    b >= block && b - block < blocks)
			vc_replay_cut(rp, a, b, VC_MASK_ALL);
	}
}

/*
 * Apply an entry. Discards are applied when all entries are: they leave nothing in the index
 * that an older entry, applied later, could be compared with.
 */
static void vc_replay_entry(struct vcache_replay *rp, u32 chunk,
			    const struct vcache_entry *e, u64 seq)
{
	struct vc_applied a = { .chunk = chunk, .place = e->place,
				.seq = seq };
	u32 cell = chunk * rp->g->chunk_blocks + e->place;
	u8 mask;

	if (!e->mask) {
		rp->chunk[chunk].discards = true;
		return;
	}
	/* No other entry may have the same block of the cache. */
	if (e->block >= rp->limit || vcache_cell_mask(rp->ix, cell)) {
		rp->errors++;
		return;
	}
	mask = vc_replay_cut(rp, &a, e->block, e->mask);
	if (!mask)
		return;
	vc_replay_lock(rp, e->block, true);
	vcache_index_put(rp->ix, cell, rp->slot, e->block, mask);
	vc_replay_lock(rp, e->block, false);
}

typedef void vc_replay_fn(struct vcache_replay *rp, u32 chunk,
			  const struct vcache_entry *e, u64 seq);

/* Apply the entries of a seal. */
static void vc_replay_seal(struct vcache_replay *rp, u32 chunk, const u8 *seal,
			   vc_replay_fn *fn)
{
	const struct vcache_log_head *h;
	struct vcache_entry e;
	unsigned int k;
	u32 i;

	for (i = 0; i < rp->g->seal_blocks; i++) {
		const u8 *block = seal + (size_t)i * VC_BLOCK_SIZE;

		h = (const void *)block;
		for (k = 0; k < le16_to_cpu(h->nr); k++) {
			vcache_log_get_entry(block, k, &e);
			fn(rp, chunk, &e, 0);
		}
	}
}

static bool vc_replay_data_good(struct vcache_replay *rp, u8 *chunk,
				const struct vcache_log_info *info,
				const struct vcache_entry *e)
{
	if (!e->mask || info->flags & VC_RECORD_UNCHECKED)
		return true;
	if (vcache_crc32c(chunk + (size_t)e->place * VC_BLOCK_SIZE,
			  VC_BLOCK_SIZE) == e->arg)
		return true;
	rp->bad_blocks++;
	return false;
}

/*
 * Read everything before the seal. A block that cannot be read is treated like an invalid
 * one. Return: whether there are such blocks.
 */
static bool vc_replay_read(struct vcache_replay *rp, u32 chunk, u8 *data)
{
	u64 start = vc_chunk_start(rp->g, chunk);
	u32 at, capacity = vcache_chunk_capacity(rp->g);
	bool failed = false;

	if (!rp->st->read(rp->st->ctx, start, capacity, data))
		return false;
	for (at = 0; at < capacity; at++) {
		u8 *block = data + (size_t)at * VC_BLOCK_SIZE;

		if (rp->st->read(rp->st->ctx, start + at, 1, block)) {
			memset(block, 0, VC_BLOCK_SIZE);
			failed = true;
		}
	}
	return failed;
}

/* Is this block a record of the chunk? */
static bool vc_replay_record(struct vcache_replay *rp, u32 chunk, u32 at,
			     u8 *block, struct vcache_log_info *info)
{
	const struct vcache_found *f = &rp->chunk[chunk];

	return vcache_log_parse(block, rp->g, chunk, at, info) &&
	       info->gen == f->gen && info->volume == f->volume &&
	       info->tag == f->tag;
}

/*
 * Find the last record of the log that was known to be durable. What is damaged up to there was not
 * torn by a power cut.
 */
static u64 vc_replay_durable(struct vcache_replay *rp, u32 chunk, u8 *data)
{
	struct vcache_log_info info;
	u64 durable = 0;
	u32 at;

	for (at = 0; at < vcache_chunk_capacity(rp->g); at++) {
		if (!vc_replay_record(rp, chunk, at, data + (size_t)at * VC_BLOCK_SIZE, &info))
			continue;
		if (info.durable > durable)
			durable = info.durable;
		at += info.data;
	}
	return durable;
}

/* Durable data of a block is damaged. */
static void vc_replay_lost(struct vcache_replay *rp, u64 block)
{
	rp->lost++;
	if (block < rp->lost_first)
		rp->lost_first = block;
	if (block > rp->lost_last)
		rp->lost_last = block;
}

/*
 * Replay an open chunk: entries whose data has the right checksum are valid, and those whose data
 * was durable before their record.
 */
static int vc_replay_open(struct vcache_replay *rp, u32 chunk, u32 revision)
{
	const struct vcache_geometry *g = rp->g;
	struct vcache_found *f = &rp->chunk[chunk];
	u8 *data = rp->work;
	u8 *seal = data + (size_t)vcache_chunk_capacity(g) * VC_BLOCK_SIZE;
	struct vcache_log_info info, sealed = {
		.gen = f->gen, .seq = f->gen, .volume = f->volume,
		.chunk = chunk, .tag = f->tag, .revision = revision };
	u32 at, k, next = 0, n = 0;
	bool failed = vc_replay_read(rp, chunk, data);
	u64 durable = vc_replay_durable(rp, chunk, data);

	memset(seal, 0, VC_SEAL_COPIES * vcache_seal_bytes(g));
	for (at = 0; at < vcache_chunk_capacity(g); at++) {
		u8 *block = data + (size_t)at * VC_BLOCK_SIZE;

		/* There may be valid records behind an invalid one. */
		if (!vc_replay_record(rp, chunk, at, block, &info))
			continue;
		/* Records follow each other without gaps. A durable one was in this gap. */
		if (durable > sealed.seq)
			rp->lost += at - next;
		sealed.seq = info.seq;
		f->last = info.seq;
		for (k = 0; k < info.nr; k++) {
			struct vcache_entry e;

			vcache_log_get_entry(block, k, &e);
			if (!vc_replay_data_good(rp, data, &info, &e)) {
				if (info.seq <= durable)
					vc_replay_lost(rp, e.block);
				continue;
			}
			vc_replay_entry(rp, chunk, &e, info.seq);
			if (n < vcache_seal_capacity(g))
				vcache_seal_put(seal, n, &e);
			n++;
		}
		at += info.data;
		next = at + 1;
	}
	/* Blocks that cannot be read now may be readable later. */
	if (failed)
		return -EIO;
	if (n > vcache_seal_capacity(g))
		return -EBADMSG;
	if (rp->readonly)
		return 0;
	vcache_seal_copies(g, seal, n, &sealed);
	return rp->st->write(rp->st->ctx, vc_chunk_start(g, chunk) +
			     vcache_chunk_capacity(g), VC_SEAL_COPIES * g->seal_blocks,
			     seal);
}

/**
 * vcache_replay_chunk - put the entries of a chunk into the index
 * @rp: the replay; chunks are replayed in the order of their generations
 * @chunk: its number; vcache_chunk_scan() has found a generation in it
 *
 * An open chunk is sealed. If the replay is repeated, also after a crash, the result is the
 * same. After the last chunk call vcache_replay_finish().
 *
 * Return: 0; -EIO if the chunk cannot be read or sealed; -EBADMSG if its records have more
 * entries than a chunk can have.
 */
int vcache_replay_chunk(struct vcache_replay *rp, u32 chunk)
{
	struct vcache_found *f = &rp->chunk[chunk];
	struct vcache_seal s;
	int r;

	rp->lost = 0;
	rp->lost_first = ~0ULL;
	rp->lost_last = 0;
	if (vcache_seal_load(rp->st, rp->g, chunk, f->gen, rp->work, &s)) {
		f->last = s.info.seq;
		/* Only one copy of the seal is good: have it sealed again. */
		f->stale |= !!s.bad;
		vc_replay_seal(rp, chunk, s.block, vc_replay_entry);
		return 0;
	}
	r = vc_replay_open(rp, chunk, s.revision + 1);
	if (r)
		rp->errors++;
	return r;
}

static void vc_replay_discarded(struct vcache_replay *rp, u32 chunk,
				const struct vcache_entry *e, u64 seq)
{
	struct vc_applied a = { .chunk = chunk, .place = e->place,
				.seq = seq };

	if (!e->mask)
		vc_replay_discard(rp, &a, e->block, e->arg);
}

/* Apply the discards of a chunk. It has no seal if that could not be written. */
static void vc_replay_discards(struct vcache_replay *rp, u32 chunk)
{
	struct vcache_log_info info;
	struct vcache_entry e;
	struct vcache_seal s;
	u32 at, k;

	if (vcache_seal_load(rp->st, rp->g, chunk, rp->chunk[chunk].gen, rp->work,
			     &s)) {
		vc_replay_seal(rp, chunk, s.block, vc_replay_discarded);
		return;
	}
	vc_replay_read(rp, chunk, rp->work);
	for (at = 0; at < vcache_chunk_capacity(rp->g); at++) {
		u8 *block = rp->work + (size_t)at * VC_BLOCK_SIZE;

		if (!vc_replay_record(rp, chunk, at, block, &info))
			continue;
		for (k = 0; k < info.nr; k++) {
			vcache_log_get_entry(block, k, &e);
			vc_replay_discarded(rp, chunk, &e, info.seq);
		}
		at += info.data;
	}
}

/**
 * vcache_replay_finish - apply the discards, and find the stale chunks
 * @rp: the replay; vcache_replay_chunk() was called for all chunks
 * @list: all chunks of the volume, in the order of their generations
 * @n: how many
 */
void vcache_replay_finish(struct vcache_replay *rp, const u32 *list, u32 n)
{
	u32 i, k;

	for (i = 0; i < n; i++) {
		if (rp->chunk[list[i]].discards)
			vc_replay_discards(rp, list[i]);
	}
	/* See rule 2 in format.h. One pass for each log is enough. */
	for (i = n; i--;) {
		struct vcache_found *f = &rp->chunk[list[i]];

		if (!f->stale || f->below)
			continue;
		for (k = i; k--;) {
			struct vcache_found *older = &rp->chunk[list[k]];

			if (older->tag != f->tag)
				continue;
			older->below = true;
			older->stale |= older->lost;
		}
	}
}
