// SPDX-License-Identifier: GPL-2.0
#include "crc32c.h"
#include "meta.h"

static u32 vc_div_up(u32 n, u32 d)
{
	return n / d + !!(n % d);
}

static u32 vc_log2(u32 n)
{
	u32 shift = 0;

	while (n >> (shift + 1))
		shift++;
	return shift;
}

/* Compute the layout of a pool with so many chunks, and a table for @max_chunks. */
static int vc_geometry_make(struct vcache_geometry *g, u32 chunk_blocks,
			    u64 chunks, u64 max_chunks)
{
	u32 shift = vc_log2(chunk_blocks);

	if (chunk_blocks < VC_CHUNK_BLOCKS_MIN ||
	    chunk_blocks > VC_CHUNK_BLOCKS_MAX ||
	    (chunk_blocks & (chunk_blocks - 1)))
		return -EINVAL;
	if (chunks > max_chunks || max_chunks > (~0U >> shift))
		return -EFBIG;
	g->chunk_blocks = chunk_blocks;
	g->chunks = chunks;
	g->max_chunks = max_chunks;
	g->slot_blocks = VC_SLOT_BLOCKS;
	g->table_blocks = vc_div_up(chunks, VC_CHUNKS_PER_BLOCK);
	g->copy_blocks = vc_div_up(1 + g->slot_blocks +
				   vc_div_up(max_chunks, VC_CHUNKS_PER_BLOCK),
				   chunk_blocks) * chunk_blocks;
	g->first_chunk = VC_COPIES * (g->copy_blocks >> shift);
	g->seal_blocks = vc_div_up(chunk_blocks, VC_ENTRIES_PER_BLOCK);
	return g->chunks < vcache_geometry_least(g) ? -ENOSPC : 0;
}

/**
 * vcache_geometry_set - compute the layout of a new pool
 * @g: filled in
 * @key: random number of the pool
 * @chunk_blocks: blocks of a chunk
 * @blocks: size of the device
 *
 * Return: 0; -EINVAL if the chunk size is not allowed; -ENOSPC if fewer than two chunks
 * would be left for data; -EFBIG if a place would not fit in 32 bits.
 */
int vcache_geometry_set(struct vcache_geometry *g, u64 key, u32 chunk_blocks,
			u64 blocks)
{
	u32 shift = vc_log2(chunk_blocks), most = ~0U >> shift;
	u64 chunks = blocks >> shift;

	g->key = key;
	return vc_geometry_make(g, chunk_blocks, chunks,
				chunks < most / VC_GROW_TIMES ?
				chunks * VC_GROW_TIMES : most);
}

/**
 * vcache_geometry_least - get the least number of chunks that a pool can have
 * @g: its geometry
 *
 * Two chunks for data. And if there were far fewer chunks than the table has space for, the
 * second superblock could not be found when the first is lost: see vc_super_last().
 */
u32 vcache_geometry_least(const struct vcache_geometry *g)
{
	u32 least = vc_div_up(g->max_chunks, VC_GROW_TIMES * VC_GROW_TIMES);

	return least > g->first_chunk + 2 ? least : g->first_chunk + 2;
}

/**
 * vcache_geometry_resize - change the number of chunks; nothing moves
 * @g: the geometry; not changed on error
 * @chunks: how many
 *
 * Return: 0; -ENOSPC below vcache_geometry_least(), -EFBIG above vcache_geometry.max_chunks.
 */
int vcache_geometry_resize(struct vcache_geometry *g, u32 chunks)
{
	struct vcache_geometry n = *g;
	int r = vc_geometry_make(&n, g->chunk_blocks, chunks, g->max_chunks);

	if (!r)
		*g = n;
	return r;
}

/**
 * vcache_meta_place - find the place of a metadata block
 * @g: the geometry
 * @type: type of the block
 * @index: its number among those of its type
 * @copy: which copy
 *
 * Return: a block number.
 */
u64 vcache_meta_place(const struct vcache_geometry *g, enum vcache_meta_type type,
		      u32 index, unsigned int copy)
{
	u64 base = (u64)g->copy_blocks * copy + index;

	switch (type) {
	case VC_META_SUPER:
		return base;
	case VC_META_SLOTS:
		return base + 1;
	case VC_META_TABLE:
		break;
	}
	return base + 1 + g->slot_blocks;
}

static u32 vc_meta_crc(void *block)
{
	struct vcache_meta_head *h = block;
	__le32 was = h->crc;
	u32 crc;

	h->crc = 0;
	crc = vcache_crc32c(block, VC_BLOCK_SIZE);
	h->crc = was;
	return crc;
}

static bool vc_meta_intact(void *block)
{
	struct vcache_meta_head *h = block;

	return le32_to_cpu(h->magic) == VC_META_MAGIC &&
	       le32_to_cpu(h->crc) == vc_meta_crc(block);
}

/**
 * vcache_meta_valid - is this a complete metadata block of this pool?
 * @block: VC_BLOCK_SIZE bytes
 * @key: random number of the pool
 * @type: expected type
 * @index: expected number
 */
bool vcache_meta_valid(void *block, u64 key, enum vcache_meta_type type, u32 index)
{
	struct vcache_meta_head *h = block;

	return vc_meta_intact(block) && le64_to_cpu(h->key) == key &&
	       le16_to_cpu(h->type) == type &&
	       le16_to_cpu(h->version) == VC_FORMAT_VERSION &&
	       le32_to_cpu(h->index) == index;
}

/**
 * vcache_meta_load - read a metadata block
 * @st: the device
 * @g: its geometry
 * @type: type of the block
 * @index: its number
 * @block: gets the content
 * @spare: VC_BLOCK_SIZE bytes to work in
 *
 * Return: 0; or the copies that are damaged or older, bit 0 for copy 0: vcache_meta_repair()
 * has to write these before the block is changed; -EBADMSG if no copy is valid.
 */
int vcache_meta_load(const struct vcache_store *st, const struct vcache_geometry *g,
		     enum vcache_meta_type type, u32 index, void *block, void *spare)
{
	struct vcache_meta_head *h = spare;
	unsigned int copy, bit, bad = 0, good = 0;
	u64 seq = 0;

	for (copy = 0; copy < VC_COPIES; copy++) {
		bit = 1U << copy;
		if (st->read(st->ctx, vcache_meta_place(g, type, index, copy), 1,
			     spare) ||
		    !vcache_meta_valid(spare, g->key, type, index) ||
		    (good && le64_to_cpu(h->seq) < seq)) {
			bad |= bit;
			continue;
		}
		if (good && le64_to_cpu(h->seq) > seq) {
			bad |= good;
			good = 0;
		}
		good |= bit;
		seq = le64_to_cpu(h->seq);
		memcpy(block, spare, VC_BLOCK_SIZE);
	}
	return good ? (int)bad : -EBADMSG;
}

/**
 * vcache_meta_repair - make the copies of a metadata block the same
 * @st: the device
 * @g: its geometry
 * @type: type of the block
 * @index: its number
 * @block: its content as it was loaded
 * @bad: what vcache_meta_load() has returned
 *
 * vcache_meta_save() writes copy 0 in place. If that write is torn, copy 1 counts. So copy 1
 * must not be damaged, and not older than the content that was loaded and used.
 *
 * Return: 0 or a negative errno; then the valid copy is still there.
 */
int vcache_meta_repair(const struct vcache_store *st, const struct vcache_geometry *g,
		       enum vcache_meta_type type, u32 index, const void *block,
		       unsigned int bad)
{
	unsigned int copy;
	int r = 0;

	for (copy = 0; copy < VC_COPIES && !r; copy++) {
		if (bad >> copy & 1)
			r = st->write(st->ctx,
				      vcache_meta_place(g, type, index, copy), 1,
				      block);
	}
	return r;
}

/**
 * vcache_meta_save - write a metadata block
 * @st: the device
 * @g: its geometry
 * @type: type of the block
 * @index: its number
 * @block: its content; the head is filled in, with the next sequence number
 *
 * If the copies differed when it was loaded, vcache_meta_repair() must come first.
 *
 * Return: 0, or a negative errno; then it is not known whether the change is durable.
 */
int vcache_meta_save(const struct vcache_store *st, const struct vcache_geometry *g,
		     enum vcache_meta_type type, u32 index, void *block)
{
	struct vcache_meta_head *h = block;
	unsigned int copy;
	int r = 0;

	h->magic = cpu_to_le32(VC_META_MAGIC);
	h->key = cpu_to_le64(g->key);
	h->seq = cpu_to_le64(le64_to_cpu(h->seq) + 1);
	h->type = cpu_to_le16(type);
	h->version = cpu_to_le16(VC_FORMAT_VERSION);
	h->index = cpu_to_le32(index);
	h->crc = cpu_to_le32(vc_meta_crc(block));
	for (copy = 0; copy < VC_COPIES && !r; copy++)
		r = st->write(st->ctx, vcache_meta_place(g, type, index, copy), 1,
			      block);
	return r;
}

/* Decode the superblock in @block. Return: 0 or a negative errno. */
static int vc_super_decode(const void *block, u64 blocks,
			   struct vcache_geometry *g, struct vcache_super *sb)
{
	const struct vcache_super_disk *d = block;
	u32 chunks = le32_to_cpu(d->chunks), max_chunks = le32_to_cpu(d->max_chunks);
	u64 needs = le64_to_cpu(d->incompat);
	int r;

	if (le16_to_cpu(d->head.version) != VC_FORMAT_VERSION ||
	    (needs & ~(VC_INCOMPAT_MAX_CHUNKS | VC_INCOMPAT_UNCHECKED | VC_INCOMPAT_VSSD)) ||
	    d->ro_compat)
		return -EOPNOTSUPP;
	if ((u64)chunks * le32_to_cpu(d->chunk_blocks) > blocks)
		return -ENXIO;
	g->key = le64_to_cpu(d->head.key);
	r = vc_geometry_make(g, le32_to_cpu(d->chunk_blocks), chunks,
			     needs & VC_INCOMPAT_MAX_CHUNKS ? max_chunks : chunks);
	if (r || le32_to_cpu(d->slot_blocks) != g->slot_blocks)
		return -EBADMSG;
	memcpy(sb->uuid, d->uuid, sizeof(sb->uuid));
	sb->flags = le32_to_cpu(d->flags);
	sb->next_seq = le64_to_cpu(d->next_seq);
	return 0;
}

static bool vc_super_intact(void *block)
{
	struct vcache_meta_head *h = block;

	return vc_meta_intact(block) && le16_to_cpu(h->type) == VC_META_SUPER;
}

/*
 * Find the last block where a second superblock can be, in a pool of any chunk size and
 * with the largest possible table. It begins a chunk, so it is at a multiple of
 * VC_CHUNK_BLOCKS_MIN.
 */
static u64 vc_super_last(u64 blocks)
{
	u64 last = 0, chunks, most;
	struct vcache_geometry g;
	u32 n;

	for (n = VC_CHUNK_BLOCKS_MIN; n <= VC_CHUNK_BLOCKS_MAX; n *= 2) {
		most = ~0U >> vc_log2(n);
		chunks = blocks >> vc_log2(n);
		if (chunks > most)
			chunks = most;
		if (chunks < most / (VC_GROW_TIMES * VC_GROW_TIMES))
			most = chunks * VC_GROW_TIMES * VC_GROW_TIMES;
		/* If the device is too small for such chunks it is not there. */
		if (!vc_geometry_make(&g, n, chunks, most) &&
		    g.copy_blocks > last)
			last = g.copy_blocks;
	}
	return last;
}

/* Find the second superblock if the first is lost. */
static int vc_super_search(const struct vcache_store *st, u64 blocks,
			   struct vcache_geometry *g, struct vcache_super *sb,
			   void *block)
{
	u64 at, last = vc_super_last(blocks);
	int r = -EBADMSG;

	for (at = VC_CHUNK_BLOCKS_MIN; at <= last; at += VC_CHUNK_BLOCKS_MIN) {
		if (st->read(st->ctx, at, 1, block) || !vc_super_intact(block))
			continue;
		r = vc_super_decode(block, blocks, g, sb);
		if (!r && vcache_meta_place(g, VC_META_SUPER, 0, 1) == at)
			return 1;
		r = r ? r : -EBADMSG;
	}
	return r;
}

/* Load both superblocks when one was found, and decode the valid one. */
static int vc_super_both(const struct vcache_store *st, u64 blocks,
			 struct vcache_geometry *g, struct vcache_super *sb,
			 void *block, void *spare)
{
	int r, bad;

	bad = vcache_meta_load(st, g, VC_META_SUPER, 0, block, spare);
	if (bad < 0)
		return bad;
	r = vc_super_decode(block, blocks, g, sb);
	return r ? r : bad;
}

/**
 * vcache_super_find - find the pool on a device, even if the device begins with zeroes
 * @st: the device
 * @blocks: its size
 * @g: filled in
 * @sb: filled in
 * @block: gets the superblock, for vcache_super_save()
 * @spare: VC_BLOCK_SIZE bytes to work in
 *
 * Return: as vcache_super_load(), but never -ENODATA.
 */
int vcache_super_find(const struct vcache_store *st, u64 blocks, struct vcache_geometry *g,
		      struct vcache_super *sb, void *block, void *spare)
{
	int r;

	if (!st->read(st->ctx, 0, 1, block) && vc_super_intact(block))
		r = vc_super_decode(block, blocks, g, sb);
	else
		r = vc_super_search(st, blocks, g, sb, block);
	return r < 0 ? r : vc_super_both(st, blocks, g, sb, block, spare);
}

/**
 * vcache_super_load - find the pool on a device
 * @st: the device
 * @blocks: its size
 * @g: filled in
 * @sb: filled in
 * @block: gets the superblock, for vcache_super_save()
 * @spare: VC_BLOCK_SIZE bytes to work in
 *
 * Return: as vcache_meta_load(); -ENODATA if the device begins with zeroes; -EBADMSG if there
 * is no superblock of a pool; -EOPNOTSUPP if it needs a newer version; -ENXIO if the device
 * is too small for its pool.
 */
int vcache_super_load(const struct vcache_store *st, u64 blocks, struct vcache_geometry *g,
		      struct vcache_super *sb, void *block, void *spare)
{
	const u8 *byte = block;
	unsigned int i;

	if (!st->read(st->ctx, 0, 1, block)) {
		for (i = 0; i < VC_BLOCK_SIZE && !byte[i]; i++)
			;
		if (i == VC_BLOCK_SIZE)
			return -ENODATA;
	}
	return vcache_super_find(st, blocks, g, sb, block, spare);
}

/**
 * vcache_super_save - write the superblock
 * @st: the device
 * @g: its geometry
 * @sb: its content
 * @block: the superblock as it was last read or written
 *
 * Return: 0 or a negative errno.
 */
int vcache_super_save(const struct vcache_store *st, const struct vcache_geometry *g,
		      const struct vcache_super *sb, void *block)
{
	struct vcache_super_disk *d = block;

	memcpy(d->uuid, sb->uuid, sizeof(d->uuid));
	d->chunk_blocks = cpu_to_le32(g->chunk_blocks);
	d->chunks = cpu_to_le32(g->chunks);
	d->slot_blocks = cpu_to_le32(g->slot_blocks);
	d->flags = cpu_to_le32(sb->flags);
	d->next_seq = cpu_to_le64(sb->next_seq);
	d->incompat = cpu_to_le64(VC_INCOMPAT_MAX_CHUNKS |
				  (sb->flags & VC_SUPER_CLEAN ? 0 : VC_INCOMPAT_UNCHECKED) |
				  (sb->flags & VC_SUPER_VSSD ? VC_INCOMPAT_VSSD : 0));
	d->max_chunks = cpu_to_le32(g->max_chunks);
	return vcache_meta_save(st, g, VC_META_SUPER, 0, block);
}

/*
 * Destroy the superblocks of older pools. Otherwise an interrupted format could leave a
 * superblock whose other blocks are gone, and a second superblock, at another place, could
 * later be taken for one of the new pool.
 */
static int vc_super_wipe(const struct vcache_store *st, u64 blocks, void *block)
{
	u64 at, last = vc_super_last(blocks);
	int r;

	memset(block, 0, VC_BLOCK_SIZE);
	r = st->write(st->ctx, 0, 1, block);
	for (at = VC_CHUNK_BLOCKS_MIN; at <= last && !r;
	     at += VC_CHUNK_BLOCKS_MIN) {
		if (st->read(st->ctx, at, 1, block) || !vc_super_intact(block))
			continue;
		memset(block, 0, VC_BLOCK_SIZE);
		r = st->write(st->ctx, at, 1, block);
	}
	return r;
}

/**
 * vcache_pool_format - make an empty pool
 * @st: the device
 * @g: its geometry, with a key that no pool on this device has had before
 * @uuid: identifies the pool for administrators and tools
 * @block: VC_BLOCK_SIZE bytes to work in
 *
 * Older superblocks are destroyed first, and the new ones are written last. So an
 * interrupted format leaves no pool.
 *
 * Return: 0 or a negative errno.
 */
int vcache_pool_format(const struct vcache_store *st, const struct vcache_geometry *g,
		       const u8 uuid[16], void *block)
{
	struct vcache_super sb = { .flags = VC_SUPER_CLEAN,
			       .next_seq = VC_SEQ_FIRST };
	u32 i;
	int r;

	r = vc_super_wipe(st, (u64)g->chunks * g->chunk_blocks, block);
	for (i = 0; i < g->slot_blocks && !r; i++) {
		memset(block, 0, VC_BLOCK_SIZE);
		r = vcache_meta_save(st, g, VC_META_SLOTS, i, block);
	}
	for (i = 0; i < g->table_blocks && !r; i++) {
		memset(block, 0, VC_BLOCK_SIZE);
		r = vcache_meta_save(st, g, VC_META_TABLE, i, block);
	}
	memcpy(sb.uuid, uuid, sizeof(sb.uuid));
	memset(block, 0, VC_BLOCK_SIZE);
	return r ? r : vcache_super_save(st, g, &sb, block);
}
