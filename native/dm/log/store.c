// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: reading and writing the metadata of a pool.
 *
 * All metadata is in memory. It changes under vcache_pool.lock; the chunk table changes under a
 * lock of its own, one block at a time. If a write fails the pool becomes read-only: then
 * no metadata changes any more, and nothing new depends on it.
 */
#include <linux/blkdev.h>
#include <linux/log2.h>
#include <linux/random.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "../../core/direct.h"
#include "internal.h"
#include "round.h"

/*
 * After a crash sequence numbers that were used may not be found on the device. There are
 * always fewer of them than this; see "Order" in format.h.
 */
#define VC_SEQ_GAP BIT_ULL(32)

/* After so many chunks others may run. */
#define VC_SCAN_BATCH 64U

/**
 * vcache_store_io - read or write blocks of the cache device
 * @p: the pool
 * @opf: operation and flags
 * @block: first block
 * @n: how many
 * @buf: memory for them, not on the stack
 *
 * Return: 0 or a negative errno.
 */
int vcache_store_io(struct vcache_pool *p, blk_opf_t opf, u64 block, u32 n, void *buf)
{
	u8 *at = buf;
	int r = 0;

	while (n && !r) {
		u32 part = min_t(u32, n, BIO_MAX_VECS);
		struct bio *bio = bio_alloc_bioset(p->bdev, part, opf,
						   GFP_NOIO, &p->bs);
		u32 i;

		bio->bi_iter.bi_sector = block * VC_BLOCK_SECTORS;
		for (i = 0; i < part; i++) {
			u8 *b = at + (size_t)i * VC_BLOCK_SIZE;
			struct page *page = is_vmalloc_addr(b) ?
					    vmalloc_to_page(b) :
					    virt_to_page(b);

			__bio_add_page(bio, page, VC_BLOCK_SIZE,
				       offset_in_page(b));
		}
		r = submit_bio_wait(bio);
		bio_put(bio);
		n -= part;
		block += part;
		at += (size_t)part * VC_BLOCK_SIZE;
	}
	return r;
}

static int vc_store_read(void *ctx, u64 block, u32 n, void *buf)
{
	return vcache_store_io(ctx, REQ_OP_READ | REQ_SYNC, block, n, buf);
}

static int vc_store_write(void *ctx, u64 block, u32 n, const void *buf)
{
	blk_opf_t opf = REQ_OP_WRITE | REQ_SYNC | REQ_FUA;
	struct vcache_pool *p = ctx;

	if (p->state != VC_POOL_OK && !p->metadata_writable)
		return -EROFS;
	/* Data that the block depends on may still be in the device's volatile cache. */
	if (vcache_isolation_of(p->bdev) == VCACHE_ISOLATION_DEGRADED)
		opf |= REQ_PREFLUSH;
	return vcache_store_io(p, opf, block, n, (void *)buf);
}

/**
 * vcache_store_init - set up access to the cache device for ../core
 * @p: the pool
 */
void vcache_store_init(struct vcache_pool *p)
{
	p->store.ctx = p;
	p->store.read = vc_store_read;
	p->store.write = vc_store_write;
}

/* Metadata could not be written: the pool becomes read-only. */
static int vc_pool_broken(struct vcache_pool *p, int r)
{
	if (r && p->state == VC_POOL_OK) {
		DMERR("%s: cannot write metadata: error %d; the pool is read-only now",
		      dm_device_name(p->md), r);
		p->state = VC_POOL_READ_ONLY;
		vcache_space_kick(p);
	}
	return r;
}

/**
 * vcache_pool_set_flags - change the flags of the superblock
 * @p: the pool, under its lock
 * @flags: VC_SUPER_*
 *
 * Return: 0 or a negative errno.
 */
int vcache_pool_set_flags(struct vcache_pool *p, u32 flags)
{
	lockdep_assert_held(&p->lock);
	p->sb.flags = flags;
	p->sb.next_seq = atomic64_read(&p->seq) + 1;
	return vc_pool_broken(p, vcache_super_save(&p->store, &p->g, &p->sb,
						   p->super));
}

/**
 * vcache_table_entry - get the entry of a chunk in the chunk table in memory
 * @p: the pool
 * @chunk: the chunk
 */
struct vcache_chunk_disk *vcache_table_entry(struct vcache_pool *p, u32 chunk)
{
	u8 *block = p->table + (size_t)(chunk / VC_CHUNKS_PER_BLOCK) *
		    VC_BLOCK_SIZE;

	return (struct vcache_chunk_disk *)(block + sizeof(struct vcache_meta_head)) +
	       chunk % VC_CHUNKS_PER_BLOCK;
}

/**
 * vcache_table_save - write the block of the chunk table that has the entry of a chunk
 * @p: the pool, its table is locked
 * @chunk: the chunk
 *
 * Return: 0 or a negative errno.
 */
int vcache_table_save(struct vcache_pool *p, u32 chunk)
{
	u32 i = chunk / VC_CHUNKS_PER_BLOCK;

	lockdep_assert_held(&p->table_lock);
	clear_bit(i, p->table_dirty);
	return vc_pool_broken(p, vcache_meta_save(&p->store, &p->g, VC_META_TABLE,
						  i, p->table +
						  (size_t)i * VC_BLOCK_SIZE));
}

static struct vcache_slot_disk *vc_slot(struct vcache_pool *p, u16 slot)
{
	u8 *block = p->slots + (size_t)(slot / VC_SLOTS_PER_BLOCK) *
		    VC_BLOCK_SIZE;

	return (struct vcache_slot_disk *)(block + sizeof(struct vcache_meta_head)) +
	       slot % VC_SLOTS_PER_BLOCK;
}

/**
 * vcache_slot_save - write the slot of a volume
 * @v: the volume; its pool is locked
 *
 * Return: 0 or a negative errno.
 */
int vcache_slot_save(struct vcache_volume *v)
{
	struct vcache_slot_disk *d = vc_slot(v->pool, v->slot);
	u32 i = v->slot / VC_SLOTS_PER_BLOCK;

	lockdep_assert_held(&v->pool->lock);
	/* The label of the volume that had the slot before. */
	if (d->volume != cpu_to_le32(v->id))
		memset(d->name, 0, sizeof(d->name));
	d->volume = cpu_to_le32(v->id);
	d->mode = cpu_to_le32(v->mode);
	d->floor = cpu_to_le64(v->floor);
	d->sectors = cpu_to_le64(v->sectors);
	d->flags = cpu_to_le64(v->flags);
	return vc_pool_broken(v->pool,
			      vcache_meta_save(&v->pool->store, &v->pool->g,
					       VC_META_SLOTS, i, v->pool->slots +
					       (size_t)i * VC_BLOCK_SIZE));
}

/**
 * vcache_slot_name - get the label of a volume
 * @v: the volume; its pool is loaded and locked
 *
 * Return: the label, valid until the pool is unlocked; empty if there is none.
 */
const char *vcache_slot_name(struct vcache_volume *v)
{
	struct vcache_slot_disk *d = vc_slot(v->pool, v->slot);

	lockdep_assert_held(&v->pool->lock);
	if (le32_to_cpu(d->volume) != v->id)
		return "";
	d->name[VC_VOLUME_NAME_MAX] = 0;
	return (const char *)d->name;
}

/**
 * vcache_slot_label - write the label of a volume
 * @v: the volume; its pool is loaded and locked
 * @text: at most VC_VOLUME_NAME_MAX characters
 *
 * Return: 0 or a negative errno.
 */
int vcache_slot_label(struct vcache_volume *v, const char *text)
{
	struct vcache_slot_disk *d = vc_slot(v->pool, v->slot);

	lockdep_assert_held(&v->pool->lock);
	d->volume = cpu_to_le32(v->id);
	memset(d->name, 0, sizeof(d->name));
	memcpy(d->name, text, strlen(text));
	return vcache_slot_save(v);
}

/*
 * Read all metadata blocks of a type. Return: of how many blocks one copy was damaged, or
 * older because of a crash; or a negative errno.
 */
static int vc_pool_load_meta(struct vcache_pool *p, enum vcache_meta_type type, u32 n,
			     u8 *to, void *spare)
{
	int bad = 0;
	u32 i;

	for (i = 0; i < n; i++) {
		u8 *block = to + (size_t)i * VC_BLOCK_SIZE;
		int r = vcache_meta_load(&p->store, &p->g, type, i, block, spare);

		if (r > 0) {
			bad++;
			r = vcache_meta_repair(&p->store, &p->g, type, i, block, r);
			if (r)
				return r;
		}
		if (r < 0) {
			DMERR("%s: both copies of block %u of the %s are damaged",
			      dm_device_name(p->md), i,
			      type == VC_META_SLOTS ? "volume slots" :
			      "chunk table");
			return r;
		}
		cond_resched();
	}
	return bad;
}

static int vc_pool_alloc(struct vcache_pool *p)
{
	u32 i, locks;

	if (vcache_map_alloc(p, p->g.chunks))
		return -ENOMEM;
	locks = rounddown_pow_of_two(min_t(u32, 4096, p->ix.buckets >> VC_GROUP_SHIFT));
	p->slots = vzalloc((size_t)p->g.slot_blocks * VC_BLOCK_SIZE);
	p->group = kvmalloc_array(locks, sizeof(*p->group), GFP_KERNEL);
	p->change = kvcalloc(locks, sizeof(*p->change), GFP_KERNEL);
	p->group_mask = locks - 1;
	p->work = vmalloc(vcache_replay_work_size(&p->g));
	p->relocate_round = vcache_round_make(p->g.chunk_blocks, GFP_KERNEL);
	if (!p->slots || !p->change || !p->group || !p->work ||
	    !p->relocate_round || vcache_rounds_init(p))
		return -ENOMEM;
	for (i = 0; i < locks; i++)
		spin_lock_init(&p->group[i]);
	p->limit = p->g.chunks;
	p->leaving = 0;
	vcache_lanes_count(p);
	return 0;
}

/* Make the volume of a slot; it is found by its number when it is attached. */
static int vc_pool_load_volume(struct vcache_pool *p, u16 slot)
{
	struct vcache_slot_disk *d = vc_slot(p, slot);
	struct vcache_volume *v;

	if (!d->volume)
		return 0;
	v = vcache_volume_alloc(p, le32_to_cpu(d->volume), slot);
	if (!v)
		return -ENOMEM;
	v->mode = le32_to_cpu(d->mode);
	v->floor = le64_to_cpu(d->floor);
	v->sectors = le64_to_cpu(d->sectors);
	v->flags = le64_to_cpu(d->flags);
	/* There is nothing to replay. */
	v->replayed = v->mode == VC_VOLUME_VSSD;
	/* After a crash copies may be older than the origin. */
	if (v->mode == VC_VOLUME_WRITETHROUGH &&
	    !(p->sb.flags & VC_SUPER_CLEAN))
		v->floor = U64_MAX;
	return 0;
}

/*
 * Is what the chunk table says of clean chunks true? Without FUA a record may be lost at a
 * power cut although its data is on the origin already. Then an older version is left in the
 * cache, and its chunk is not clean any more.
 */
static bool vc_store_trusts_clean(const struct vcache_pool *p)
{
	return (p->sb.flags & VC_SUPER_CLEAN) ||
	       vcache_isolation_of(p->bdev) != VCACHE_ISOLATION_DEGRADED;
}

/* Set the state of a chunk from what the scan has found. */
static void vc_pool_place_chunk(struct vcache_pool *p, u32 nr, int r)
{
	struct vcache_chunk *c = &p->chunk[nr];
	struct vcache_found *f = &p->found[nr];
	struct vcache_volume *v;

	if (r) {
		DMWARN("%s: chunk %u cannot be read, it is not used",
		       dm_device_name(p->md), nr);
		c->state = VC_CHUNK_BAD;
		return;
	}
	v = f->gen ? vcache_volume_find(p, f->volume) : NULL;
	if (!v || f->gen < v->floor) {
		f->gen = 0;
		spin_lock_irq(&p->free_lock);
		vcache_lane_add(p, c);
		spin_unlock_irq(&p->free_lock);
		return;
	}
	c->gen = f->gen;
	c->state = VC_CHUNK_SEALED;
	c->clean = vc_store_trusts_clean(p) &&
		   le64_to_cpu(vcache_table_entry(p, nr)->clean) >= f->gen;
}

/*
 * Does a chunk belong to an elastic SSD? What the table has of one that is gone is removed: a log
 * may use the chunk next. The pool is locked.
 */
static bool vc_pool_place_direct(struct vcache_pool *p, u32 nr)
{
	struct vcache_chunk_disk *t = vcache_table_entry(p, nr);
	struct vcache_volume *v;
	u32 block;
	u16 slot;

	if (!vcache_direct_unpack(le64_to_cpu(t->clean), &slot, &block))
		return false;
	list_for_each_entry(v, &p->volumes, node) {
		if (v->slot == slot && v->mode == VC_VOLUME_VSSD) {
			p->chunk[nr].state = VC_CHUNK_DIRECT;
			p->lane[0].direct++;
			return true;
		}
	}
	t->clean = 0;
	set_bit(nr / VC_CHUNKS_PER_BLOCK, p->table_dirty);
	return false;
}

static void vc_pool_scan(struct vcache_pool *p, void *block)
{
	u64 seq = p->sb.next_seq;
	u32 i;

	for (i = p->g.first_chunk; i < p->g.chunks; i++) {
		u64 dead = le64_to_cpu(vcache_table_entry(p, i)->dead);
		bool direct = vc_pool_place_direct(p, i);
		int r = direct ? 0 : vcache_chunk_scan(&p->store, &p->g, i, dead, block,
						       &p->found[i]);

		seq = max3(seq, dead, p->found[i].last);
		INIT_LIST_HEAD(&p->chunk[i].node);
		if (!direct)
			vc_pool_place_chunk(p, i, r);
		if (!(i % VC_SCAN_BATCH))
			cond_resched();
	}
	if (!(p->sb.flags & VC_SUPER_CLEAN))
		seq += VC_SEQ_GAP;
	atomic64_set(&p->seq, seq);
}

static int vc_pool_format_new(struct vcache_pool *p, u32 chunk_blocks, void *block,
			      const char **error)
{
	u64 blocks = bdev_nr_sectors(p->bdev) / VC_BLOCK_SECTORS, key;
	u8 uuid[16];
	int r;

	get_random_bytes(&key, sizeof(key));
	generate_random_uuid(uuid);
	r = vcache_geometry_set(&p->g, key, chunk_blocks, blocks);
	if (r) {
		*error = r == -ENOSPC ? "the cache device is too small" :
			 "the cache device is too large for this chunk size";
		return r;
	}
	r = vcache_pool_format(&p->store, &p->g, uuid, block);
	if (r)
		*error = "cannot write to the cache device";
	return r;
}

static int vc_pool_load_super(struct vcache_pool *p, u32 chunk_blocks,
			      void *spare, const char **error)
{
	u64 blocks = bdev_nr_sectors(p->bdev) / VC_BLOCK_SECTORS;
	int r = vcache_super_load(&p->store, blocks, &p->g, &p->sb, p->super,
				  spare);

	/* The first block is zero: is there a pool that has lost it? */
	if (r == -ENODATA && vcache_super_find(&p->store, blocks, &p->g, &p->sb,
					       p->super, spare) >= 0) {
		*error = "the first superblock is lost: run vcache-repair, or blkdiscard -z it";
		return -EBADMSG;
	}
	if (r == -ENODATA) {
		r = vc_pool_format_new(p, chunk_blocks, spare, error);
		if (r)
			return r;
		r = vcache_super_load(&p->store, blocks, &p->g, &p->sb, p->super,
				      spare);
	}
	if (r == -EOPNOTSUPP)
		*error = "the pool was written by a newer version";
	else if (r == -ENXIO)
		*error = "the cache device is smaller than its pool";
	else if (r < 0)
		*error = "the cache device has no pool, and its first 4 KiB are not zero";
	return r;
}

static int vc_pool_load_all(struct vcache_pool *p, u32 chunk_blocks, void *spare,
			    const char **error)
{
	int bad, r = vc_pool_load_super(p, chunk_blocks, spare, error);
	u32 slot;

	if (r < 0)
		return r;
	bad = !!r;
	if (r > 0)
		r = vcache_meta_repair(&p->store, &p->g, VC_META_SUPER, 0,
				       p->super, r);
	if (r)
		return r;
	r = vc_pool_alloc(p);
	if (r) {
		*error = "not enough memory for the map";
		return r;
	}
	*error = "metadata is damaged, run vcache-check";
	r = vc_pool_load_meta(p, VC_META_SLOTS, p->g.slot_blocks, p->slots,
			      spare);
	if (r < 0)
		return r;
	bad += r;
	r = vc_pool_load_meta(p, VC_META_TABLE, p->g.table_blocks, p->table,
			      spare);
	if (r < 0)
		return r;
	bad += r;
	if (bad)
		DMWARN("%s: %d metadata blocks had a damaged or older copy",
		       dm_device_name(p->md), bad);
	*error = "out of memory";
	for (slot = 0; slot < p->g.slot_blocks * VC_SLOTS_PER_BLOCK; slot++) {
		r = vc_pool_load_volume(p, slot);
		if (r)
			return r;
	}
	vc_pool_scan(p, spare);
	return 0;
}

/**
 * vcache_pool_load - read the metadata, and scan all chunks
 * @p: the pool, locked; its cache device is known
 * @chunk_blocks: chunk size of a new pool, which is made if the device begins with
 *	zeroes
 * @error: set to what is wrong
 *
 * Return: 0 or a negative errno; then call vcache_pool_unload().
 */
int vcache_pool_load(struct vcache_pool *p, u32 chunk_blocks, const char **error)
{
	void *spare = (void *)__get_free_page(GFP_KERNEL);
	struct vcache_volume *v;
	int r = -ENOMEM;

	lockdep_assert_held(&p->lock);
	p->super = (void *)__get_free_page(GFP_KERNEL);
	*error = "out of memory";
	if (spare && p->super)
		r = vc_pool_load_all(p, chunk_blocks, spare, error);
	free_page((unsigned long)spare);
	if (r)
		return r;
	*error = "cannot write to the cache device";
	list_for_each_entry(v, &p->volumes, node) {
		if (v->floor != U64_MAX)
			continue;
		v->floor = atomic64_read(&p->seq) + 1;
		r = vcache_slot_save(v);
		if (r)
			return r;
	}
	/* What was removed of elastic SSDs. */
	r = vcache_table_save_all(p) ?:
	    vcache_pool_set_flags(p, p->sb.flags & ~VC_SUPER_CLEAN);
	p->loaded = !r;
	return r;
}

/**
 * vcache_table_save_all - write all blocks of the chunk table that have changed in memory only
 * @p: the pool, locked
 *
 * Return: 0 or a negative errno.
 */
int vcache_table_save_all(struct vcache_pool *p)
{
	int r = 0;
	u32 i;

	lockdep_assert_held(&p->lock);
	mutex_lock(&p->table_lock);
	for_each_set_bit(i, p->table_dirty, p->g.table_blocks) {
		r = vcache_table_save(p, i * VC_CHUNKS_PER_BLOCK);
		if (r)
			break;
	}
	mutex_unlock(&p->table_lock);
	return r;
}

/**
 * vcache_pool_close - write all metadata that has changed in memory only
 * @p: the pool, locked; no volume is in use
 *
 * Return: 0 or a negative errno.
 */
int vcache_pool_close(struct vcache_pool *p)
{
	int r = vcache_table_save_all(p);

	lockdep_assert_held(&p->lock);
	return r ?: vcache_pool_set_flags(p, p->sb.flags | VC_SUPER_CLEAN);
}

/**
 * vcache_pool_unload - free what vcache_pool_load() has allocated
 * @p: the pool; nothing uses it
 *
 * It can be loaded again.
 */
void vcache_pool_unload(struct vcache_pool *p)
{
	struct vcache_volume *v, *next;

	list_for_each_entry_safe(v, next, &p->volumes, node)
		vcache_volume_free(v);
	vcache_map_free(p);
	kvfree(p->group);
	kvfree(p->change);
	vfree(p->slots);
	vfree(p->work);
	vcache_round_free(p->relocate_round);
	mempool_exit(&p->rounds);
	free_page((unsigned long)p->super);
	p->group = NULL;
	p->change = NULL;
	p->slots = NULL;
	p->work = NULL;
	p->relocate_round = NULL;
	p->super = NULL;
	vcache_lanes_init(p);
	p->state = VC_POOL_OK;
	p->loaded = false;
}

/* Write the new size to the chunk table and to the superblock. */
int vcache_pool_save_geometry(struct vcache_pool *p, const struct vcache_geometry *g)
{
	u64 seq = atomic64_read(&p->seq);
	struct vcache_geometry was = p->g;
	int r = 0;
	u32 i;

	mutex_lock(&p->table_lock);
	for (i = was.chunks; i < g->chunks; i++) {
		vcache_table_entry(p, i)->dead = cpu_to_le64(seq);
		vcache_table_entry(p, i)->clean = 0;
	}
	for (i = was.chunks; i < g->chunks && !r;
	     i = rounddown(i, VC_CHUNKS_PER_BLOCK) + VC_CHUNKS_PER_BLOCK)
		r = vcache_table_save(p, i);
	mutex_unlock(&p->table_lock);
	if (r)
		return r;
	p->g = *g;
	r = vcache_pool_set_flags(p, p->sb.flags);
	if (r)
		p->g = was;
	return r;
}
