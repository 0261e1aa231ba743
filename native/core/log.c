// SPDX-License-Identifier: GPL-2.0
#include "crc32c.h"
#include "log.h"

static struct vcache_entry_disk *vc_log_entry(void *block, unsigned int i)
{
	return (struct vcache_entry_disk *)((u8 *)block +
					    sizeof(struct vcache_log_head)) + i;
}

/**
 * vcache_log_put_entry - write an entry to a record or a seal
 * @block: VC_BLOCK_SIZE bytes, zeroed before the first entry
 * @i: which entry, less than VC_ENTRIES_PER_BLOCK
 * @e: the entry
 */
void vcache_log_put_entry(void *block, unsigned int i, const struct vcache_entry *e)
{
	struct vcache_entry_disk *d = vc_log_entry(block, i);
	u64 where = e->block | (u64)e->mask << VC_WHERE_MASK_SHIFT |
		    (u64)e->place << VC_WHERE_PLACE_SHIFT;

	d->where_lo = cpu_to_le32((u32)where);
	d->where_hi = cpu_to_le32((u32)(where >> 32));
	d->arg = cpu_to_le32(e->arg);
}

/**
 * vcache_log_get_entry - read an entry of a record or a seal
 * @block: a block that vcache_log_parse() has accepted
 * @i: which entry, less than the number from vcache_log_parse()
 * @e: filled in
 */
void vcache_log_get_entry(const void *block, unsigned int i, struct vcache_entry *e)
{
	const struct vcache_entry_disk *d = vc_log_entry((void *)block, i);
	u64 where = le32_to_cpu(d->where_lo) |
		    (u64)le32_to_cpu(d->where_hi) << 32;

	e->block = where & VC_WHERE_BLOCK_MAX;
	e->mask = where >> VC_WHERE_MASK_SHIFT;
	e->place = where >> VC_WHERE_PLACE_SHIFT;
	e->arg = le32_to_cpu(d->arg);
}

static u32 vc_log_crc(void *block)
{
	struct vcache_log_head *h = block;
	__le32 was = h->crc;
	u32 crc;

	h->crc = 0;
	crc = vcache_crc32c(block, VC_BLOCK_SIZE);
	h->crc = was;
	return crc;
}

/**
 * vcache_log_finish - write the head of a record or a seal
 * @block: the block with its entries
 * @key: random number of the pool
 * @info: content of the head
 */
void vcache_log_finish(void *block, u64 key, const struct vcache_log_info *info)
{
	struct vcache_log_head *h = block;

	h->magic = cpu_to_le32(VC_LOG_MAGIC);
	h->key = cpu_to_le64(key);
	h->gen = cpu_to_le64(info->gen);
	h->seq = cpu_to_le64(info->seq);
	h->volume = cpu_to_le32(info->volume);
	h->chunk = cpu_to_le32(info->chunk);
	h->tag = cpu_to_le16(info->tag);
	h->type = cpu_to_le16(info->type);
	h->at = cpu_to_le16(info->at);
	h->nr = cpu_to_le16(info->nr);
	h->data = cpu_to_le16(info->data);
	h->flags = cpu_to_le16(info->flags);
	h->revision = cpu_to_le32(info->revision);
	h->durable = cpu_to_le64(info->durable);
	h->crc = cpu_to_le32(vc_log_crc(block));
}

/* Do the sizes fit into the chunk, and together? */
static bool vc_log_fits(const struct vcache_geometry *g,
			const struct vcache_log_info *in)
{
	u32 capacity = vcache_chunk_capacity(g);

	if (in->nr > VC_ENTRIES_PER_BLOCK || in->seq < in->gen)
		return false;
	if (in->type == VC_LOG_SEAL)
		return in->at >= capacity && !in->data &&
		       !(in->flags & ~VC_SEAL_READS);
	return in->type == VC_LOG_RECORD && in->at < capacity &&
	       !(in->flags & ~VC_RECORD_UNCHECKED) &&
	       in->data < capacity - in->at && in->data <= in->nr;
}

/* Are all fields of the entries possible at this place? */
static bool vc_log_entries_fit(const void *block, const struct vcache_geometry *g,
			       const struct vcache_log_info *in)
{
	u32 first = !(in->flags & VC_SEAL_READS);
	u32 last = vcache_chunk_capacity(g) - 1, low = 0, high = last;
	struct vcache_entry e;
	unsigned int i;

	if (in->type == VC_LOG_RECORD) {
		first = in->at + 1;
		last = in->at + in->data;
		low = in->at;
		high = in->at;
	}
	for (i = 0; i < in->nr; i++) {
		vcache_log_get_entry(block, i, &e);
		if (e.mask && (e.place < first || e.place > last))
			return false;
		if (!e.mask && (e.place < low || e.place > high || !e.arg ||
				e.arg > VC_WHERE_BLOCK_MAX - e.block))
			return false;
	}
	return true;
}

/**
 * vcache_log_parse - is this a complete and possible record or seal of this pool?
 * @block: any VC_BLOCK_SIZE bytes
 * @g: the geometry of the pool
 * @chunk: the chunk that it was read from
 * @at: its place in the chunk
 * @info: filled in
 */
bool vcache_log_parse(void *block, const struct vcache_geometry *g, u32 chunk,
		      u32 at, struct vcache_log_info *info)
{
	const struct vcache_log_head *h = block;

	if (le32_to_cpu(h->magic) != VC_LOG_MAGIC ||
	    le64_to_cpu(h->key) != g->key ||
	    le32_to_cpu(h->crc) != vc_log_crc(block))
		return false;
	info->gen = le64_to_cpu(h->gen);
	info->seq = le64_to_cpu(h->seq);
	info->volume = le32_to_cpu(h->volume);
	info->chunk = le32_to_cpu(h->chunk);
	info->tag = le16_to_cpu(h->tag);
	info->type = le16_to_cpu(h->type);
	info->at = le16_to_cpu(h->at);
	info->nr = le16_to_cpu(h->nr);
	info->data = le16_to_cpu(h->data);
	info->flags = le16_to_cpu(h->flags);
	info->revision = le32_to_cpu(h->revision);
	info->durable = le64_to_cpu(h->durable);
	return info->chunk == chunk && info->at == at && info->gen &&
	       info->volume && vc_log_fits(g, info) &&
	       vc_log_entries_fit(block, g, info);
}
