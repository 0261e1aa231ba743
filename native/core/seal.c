// SPDX-License-Identifier: GPL-2.0
#include "seal.h"

/**
 * vcache_seal_put - write an entry to a seal
 * @seal: a copy, zeroed before the first entry
 * @i: which entry, less than vcache_seal_capacity()
 * @e: the entry; the place of a discard is that of its record
 */
void vcache_seal_put(u8 *seal, u32 i, const struct vcache_entry *e)
{
	vcache_log_put_entry(seal + (size_t)(i / VC_ENTRIES_PER_BLOCK) *
			     VC_BLOCK_SIZE, i % VC_ENTRIES_PER_BLOCK, e);
}

/**
 * vcache_seal_finish - write the heads of a copy of a seal
 * @g: the geometry
 * @seal: the copy with its entries
 * @n: how many entries
 * @info: log and generation, sequence number of the last record, revision
 * @copy: which copy this is
 */
void vcache_seal_finish(const struct vcache_geometry *g, u8 *seal, u32 n,
			const struct vcache_log_info *info, unsigned int copy)
{
	struct vcache_log_info head = *info;
	u32 i;

	head.type = VC_LOG_SEAL;
	head.data = 0;
	for (i = 0; i < g->seal_blocks; i++) {
		u32 nr = n;

		if (nr > VC_ENTRIES_PER_BLOCK)
			nr = VC_ENTRIES_PER_BLOCK;
		head.at = vcache_seal_place(g, copy) + i;
		head.nr = nr;
		vcache_log_finish(seal + (size_t)i * VC_BLOCK_SIZE, g->key, &head);
		n -= nr;
	}
}

/**
 * vcache_seal_copies - make the first seal of a chunk
 * @g: the geometry
 * @seal: VC_SEAL_COPIES times vcache_seal_bytes(), with the entries in the first copy; to be
 *	written at vcache_chunk_capacity() of the chunk
 * @n: how many entries
 * @info: log and generation, sequence number of the last record, revision: 1 or the one
 *	after that from vcache_seal_load()
 *
 * The copies may be written at the same time: until one is complete the records count.
 */
void vcache_seal_copies(const struct vcache_geometry *g, u8 *seal, u32 n,
			const struct vcache_log_info *info)
{
	unsigned int copy;

	for (copy = 1; copy < VC_SEAL_COPIES; copy++)
		memcpy(seal + copy * vcache_seal_bytes(g), seal,
		       vcache_seal_bytes(g));
	for (copy = 0; copy < VC_SEAL_COPIES; copy++)
		vcache_seal_finish(g, seal + copy * vcache_seal_bytes(g), n, info,
				   copy);
}

/**
 * vcache_seal_reads - make the seal of a read chunk
 * @g: the geometry
 * @ix: the index with its cells
 * @seal: VC_SEAL_COPIES times vcache_seal_bytes(); to be written at vcache_chunk_capacity() of the
 *	chunk
 * @info: log, a generation above all older ones, and the same as sequence number
 *
 * Return: the number of entries; 0: the chunk has no valid blocks, and gets no seal.
 */
u32 vcache_seal_reads(const struct vcache_geometry *g, const struct vcache_index *ix,
		      u8 *seal, struct vcache_log_info *info)
{
	u32 cell = info->chunk * g->chunk_blocks, i, n = 0;

	memset(seal, 0, VC_SEAL_COPIES * vcache_seal_bytes(g));
	for (i = 0; i < vcache_chunk_capacity(g) && n < vcache_seal_capacity(g); i++) {
		struct vcache_entry e = { .place = i };

		e.mask = vcache_cell_mask(ix, cell + i);
		if (!e.mask)
			continue;
		e.block = vcache_cell_block(ix, cell + i);
		vcache_seal_put(seal, n++, &e);
	}
	info->flags = VC_SEAL_READS;
	info->revision = 1;
	if (n)
		vcache_seal_copies(g, seal, n, info);
	return n;
}

/* Are all blocks of this copy valid, and of the same revision? */
static bool vc_seal_good(const struct vcache_geometry *g, u32 chunk, u64 gen,
			 u8 *seal, unsigned int copy,
			 struct vcache_log_info *first, u32 *revision)
{
	struct vcache_log_info info;
	bool good = true;
	u32 i;

	for (i = 0; i < g->seal_blocks; i++) {
		if (!vcache_log_parse(seal + (size_t)i * VC_BLOCK_SIZE, g, chunk,
				      vcache_seal_place(g, copy) + i, &info) ||
		    info.gen != gen) {
			good = false;
			continue;
		}
		if (!i)
			*first = info;
		if (info.revision > *revision)
			*revision = info.revision;
		good &= info.revision == first->revision && info.seq == first->seq &&
			info.volume == first->volume &&
			info.tag == first->tag && info.flags == first->flags;
	}
	return good;
}

/**
 * vcache_seal_load - read the seal of a chunk
 * @st: the cache device
 * @g: its geometry
 * @chunk: the chunk
 * @gen: its generation
 * @work: VC_SEAL_COPIES times vcache_seal_bytes()
 * @s: filled in
 *
 * Return: false if the chunk has no seal; then only @s->revision is set.
 */
bool vcache_seal_load(const struct vcache_store *st, const struct vcache_geometry *g,
		      u32 chunk, u64 gen, u8 *work, struct vcache_seal *s)
{
	u64 start = (u64)chunk * g->chunk_blocks;
	struct vcache_log_info info = { 0 };
	unsigned int copy, good = 0;

	s->bad = 0;
	s->revision = 0;
	for (copy = 0; copy < VC_SEAL_COPIES; copy++) {
		u8 *seal = work + copy * vcache_seal_bytes(g);
		unsigned int bit = 1U << copy;

		if (st->read(st->ctx, start + vcache_seal_place(g, copy),
			     g->seal_blocks, seal) ||
		    !vc_seal_good(g, chunk, gen, seal, copy, &info,
				  &s->revision) ||
		    (good && info.revision < s->info.revision)) {
			s->bad |= bit;
			continue;
		}
		if (good && info.revision > s->info.revision) {
			s->bad |= good;
			good = 0;
		}
		good |= bit;
		s->info = info;
		s->block = seal;
	}
	return good;
}

/*
 * Add the entries of a block to a seal, without what is not in the index. @n entries are in
 * the seal; the block may be a later one of the same seal. Return: how many are in it now.
 */
static u32 vc_seal_filter_block(const struct vcache_geometry *g,
				const struct vcache_index *ix, u32 chunk,
				const u8 *block, u8 *seal, u32 n)
{
	const struct vcache_log_head *h = (const void *)block;
	struct vcache_entry e;
	unsigned int k, nr = le16_to_cpu(h->nr);

	for (k = 0; k < nr; k++) {
		vcache_log_get_entry(block, k, &e);
		if (e.mask) {
			e.mask &= vcache_cell_mask(ix, chunk * g->chunk_blocks +
						   e.place);
			if (!e.mask)
				continue;
		}
		if (n == vcache_seal_capacity(g))
			return n + 1;
		vcache_seal_put(seal, n++, &e);
	}
	return n;
}

/* Remove entries that are not in the index. Return: how many are left. */
static u32 vc_seal_filter(const struct vcache_geometry *g,
			  const struct vcache_index *ix, u32 chunk, u8 *seal)
{
	u32 i, n = 0;

	/* Entries only move towards the front. */
	for (i = 0; i < g->seal_blocks; i++)
		n = vc_seal_filter_block(g, ix, chunk, seal +
					 (size_t)i * VC_BLOCK_SIZE, seal, n);
	return n;
}

/*
 * Make a seal from the records of a chunk, because none could be written, or the chunk has
 * a record that failed. Entries of such a record are not in the index. Sets @n to the number
 * of entries. Return: 0; -EIO if a block that may be a record cannot be read; -EBADMSG if
 * there are no records, or too many entries.
 */
static int vc_seal_collect(const struct vcache_store *st,
			   const struct vcache_geometry *g,
			   const struct vcache_index *ix, u32 chunk, u64 gen,
			   u8 *work, struct vcache_seal *s, u32 *n)
{
	u8 *block = work + vcache_seal_bytes(g);
	struct vcache_log_info info;
	bool found = false;
	u32 at;

	*n = 0;
	s->bad = 1;
	s->block = work;
	memset(work, 0, vcache_seal_bytes(g));
	for (at = 0; at < vcache_chunk_capacity(g); at++) {
		if (st->read(st->ctx, (u64)chunk * g->chunk_blocks + at, 1,
			     block))
			return -EIO;
		if (!vcache_log_parse(block, g, chunk, at, &info) ||
		    info.gen != gen)
			continue;
		s->info = info;
		s->info.flags = 0; /* of the record */
		found = true;
		*n = vc_seal_filter_block(g, ix, chunk, block, work, *n);
		if (*n > vcache_seal_capacity(g))
			return -EBADMSG;
		at += info.data;
	}
	return found ? 0 : -EBADMSG;
}

/**
 * vcache_chunk_reseal - remove superseded entries from a seal, or make it without them
 * @st: the cache device
 * @g: its geometry
 * @ix: the index; what it loses meanwhile is removed by the next call
 * @chunk: the chunk; no record of it is being written
 * @gen: its generation
 * @work: VC_SEAL_COPIES times vcache_seal_bytes()
 *
 * The copy that does not count is written first. If that write is torn, the other copy
 * counts, so no entry comes back that was removed before and that other chunks rely on.
 *
 * Without a seal the records count, until a copy of the first seal is complete.
 *
 * Return: 0; -EBADMSG if the chunk has neither a seal nor records; another negative errno.
 */
int vcache_chunk_reseal(const struct vcache_store *st, const struct vcache_geometry *g,
			const struct vcache_index *ix, u32 chunk, u64 gen, u8 *work)
{
	unsigned int copy, i;
	struct vcache_seal s;
	int r = 0;
	u32 n;

	if (vcache_seal_load(st, g, chunk, gen, work, &s))
		n = vc_seal_filter(g, ix, chunk, s.block);
	else
		r = vc_seal_collect(st, g, ix, chunk, gen, work, &s, &n);
	if (r)
		return r;
	/* It must differ from that of a torn write, of which blocks may be left. */
	s.info.revision = s.revision + 1;
	copy = s.bad & 1 ? 0 : 1;
	for (i = 0; i < VC_SEAL_COPIES && !r; i++, copy ^= 1) {
		vcache_seal_finish(g, s.block, n, &s.info, copy);
		r = st->write(st->ctx, (u64)chunk * g->chunk_blocks +
			      vcache_seal_place(g, copy), g->seal_blocks, s.block);
	}
	return r;
}
