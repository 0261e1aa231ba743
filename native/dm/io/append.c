// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: write-outs to the log of a tag, and discards.
 */
#include <linux/blkdev.h>
#include <linux/slab.h>

#include "internal.h"

/* Clear the sectors that are not valid, so that no old content of the page is written. */
static void vc_block_pad(struct vcache_block *b)
{
	unsigned int s;

	for_each_clear_bit(s, b->valid, VC_PAGE_SECTORS)
		memset(page_address(b->page) + (s << SECTOR_SHIFT), 0,
		       SECTOR_SIZE);
}

/*
 * Move blocks from the batch to the record, at most @most. In write-through mode they are
 * also written to the origin. Return: the open request to the origin, or NULL.
 */
static struct bio *vc_record_fill(struct vcache_record *rec, struct vcache_tag *tag,
				  u32 most)
{
	struct bio *through = NULL;

	while (rec->info.data < most && !list_empty(&tag->batch)) {
		struct vcache_block *b = list_first_entry(&tag->batch,
							  struct vcache_block, node);
		struct vcache_entry e = { .block = b->index };

		list_del_init(&b->node);
		if (!vcache_block_start(b, rec->through, true))
			continue;
		vc_block_pad(b);
		e.mask = *b->valid;
		e.place = rec->info.at + 1 + rec->info.data++;
		e.arg = vcache_crc32c(page_address(b->page), VC_BLOCK_SIZE);
		vcache_record_add(rec, &e);
		__bio_add_page(rec->bio, b->page, VC_BLOCK_SIZE, 0);
		if (rec->through)
			through = vcache_writeout_add(tag, through, b, rec);
		cond_resched();
	}
	return through;
}

/* Count the blocks of the batch, up to @most. */
static u32 vc_batch_count(const struct vcache_tag *tag, u32 most)
{
	const struct vcache_block *b;
	u32 n = 0;

	list_for_each_entry(b, &tag->batch, node) {
		if (++n == most)
			break;
	}
	return n;
}

/* Write a record with at most @space blocks of the tag's batch. */
static void vc_append_record(struct vcache_tag *tag, u32 space,
			     enum vcache_append_kind kind)
{
	struct vcache_pool *p = tag->log->vol->pool;
	struct vcache_record *rec = vcache_record_make(tag->log, tag, GFP_NOIO);
	struct bio *origin;

	space = vc_batch_count(tag, space);
	rec->through = kind != VC_APPEND_LOG;
	rec->copy = kind == VC_APPEND_COPY;
	rec->bio = bio_alloc_bioset(p->bdev, space + 1, rec->copy ?
				    REQ_OP_WRITE : vcache_append_flags(p),
				    GFP_NOIO, &p->bs);
	__bio_add_page(rec->bio, rec->head, VC_BLOCK_SIZE, 0);
	origin = vc_record_fill(rec, tag, space);
	if (origin)
		vcache_writeout_submit(tag, origin);
	if (rec->info.data) {
		u32 blocks = 1 + rec->info.data;

		vcache_record_send(rec);
		vcache_log_wrote(tag->log, blocks);
	} else {
		bio_put(rec->bio);
		vcache_record_free(p, rec);
	}
}

/*
 * Note whether write-outs of a tag wait for space, for the causes of the time that flushes take.
 * They do as long as there is none for the batch that is next.
 */
static void vc_tag_note_space(struct vcache_tag *tag, bool space)
{
	u64 since = tag->blocked_since;

	lockdep_assert_held(&tag->writer);
	if (!space == !!since)
		return;
	WRITE_ONCE(tag->blocked_since, space ? 0 : ktime_get_ns());
	if (space)
		WRITE_ONCE(tag->blocked_ns, tag->blocked_ns + ktime_get_ns() - since);
}

/* Write a record, if there is space. Return: whether there is. */
static bool vc_append_locked(struct vcache_tag *tag, enum vcache_append_kind kind)
{
	struct vcache_log *log = tag->log;
	u32 space = 0;

	lockdep_assert_held(&log->append);
	if (kind == VC_APPEND_LOG && vcache_log_is_paced(log)) {
		vc_tag_note_space(tag, false);
		return false;
	}
	if (READ_ONCE(log->vol->pool->state) != VC_POOL_FAILED)
		space = vcache_log_space(log, kind);
	if (kind == VC_APPEND_LOG)
		space = min(space, vcache_log_paced_blocks(log));
	if (kind != VC_APPEND_COPY)
		vc_tag_note_space(tag, space);
	if (space)
		vc_append_record(tag, space, kind);
	return space;
}

static bool vc_append_as(struct vcache_tag *tag, enum vcache_append_kind kind)
{
	struct vcache_log *log = tag->log;
	bool done;

	mutex_lock(&log->append);
	done = vc_append_locked(tag, kind);
	mutex_unlock(&log->append);
	return done;
}

/**
 * vcache_append - write blocks of a tag's batch to its log
 * @tag: the tag; called by its worker
 *
 * If the tag is not in writeback mode its data goes to the origin as well. The log needs
 * a record of it, because it may have older data of the same blocks.
 *
 * Return: false if there is no chunk. Then the worker is woken when there is one.
 */
bool vcache_append(struct vcache_tag *tag)
{
	return vc_append_as(tag, READ_ONCE(tag->mode) == VCACHE_MODE_WRITEBACK ?
			    VC_APPEND_LOG : VC_APPEND_THROUGH);
}

/**
 * vcache_append_one - write one record of a tag's batch, unless somebody else writes to its log
 * @tag: the tag, in writeback mode; its batch is locked
 *
 * Called by a flush, which must not wait for the I/O of others.
 */
void vcache_append_one(struct vcache_tag *tag)
{
	struct vcache_log *log = tag->log;

	lockdep_assert_held(&tag->writer);
	if (!mutex_trylock(&log->append))
		return;
	vc_append_locked(tag, VC_APPEND_LOG);
	mutex_unlock(&log->append);
}

/**
 * vcache_append_copy - write blocks to the origin, and a copy of them to the cache
 * @tag: the tag, called by its worker; its device is in writethrough mode
 *
 * Return: false if the cache has no space for a copy now. Then nothing was done.
 */
bool vcache_append_copy(struct vcache_tag *tag)
{
	return vc_append_as(tag, VC_APPEND_COPY);
}

/**
 * vcache_append_refuse - fail the write-out of a block if the pool cannot be written any more
 * @tag: the tag; called by its worker
 *
 * Return: false if the pool can be written, or there is no block.
 */
bool vcache_append_refuse(struct vcache_tag *tag)
{
	struct vcache_block *b;

	if (READ_ONCE(tag->log->vol->pool->state) == VC_POOL_OK ||
	    list_empty(&tag->batch))
		return false;
	b = list_first_entry(&tag->batch, struct vcache_block, node);
	list_del_init(&b->node);
	vc_tag_note_space(tag, true);
	if (vcache_block_start(b, false, true))
		vcache_block_part_done(b, BLK_STS_IOERR);
	return true;
}

/* Write one record of a discard. Return: 0; -EAGAIN without a chunk; -EIO. */
static int vc_append_discard_one(struct vcache_log *log, u64 block, u32 blocks)
{
	struct vcache_entry e = { .block = block, .arg = blocks };
	struct vcache_pool *p = log->vol->pool;
	DECLARE_COMPLETION_ONSTACK(done);
	struct vcache_record *rec = NULL;
	int r = -EAGAIN;

	mutex_lock(&log->append);
	/* The record may go to a clean chunk or to a dirty one: take what is open. */
	if (vcache_log_space(log, log->open && log->open->clean ?
			     VC_APPEND_COPY : VC_APPEND_LOG)) {
		rec = vcache_record_make(log, NULL, GFP_NOIO);
		rec->done = &done;
		e.place = rec->info.at;
		rec->bio = bio_alloc_bioset(p->bdev, 1, vcache_append_flags(p),
					    GFP_NOIO, &p->bs);
		__bio_add_page(rec->bio, rec->head, VC_BLOCK_SIZE, 0);
		vcache_record_add(rec, &e);
		vcache_record_send(rec);
	}
	mutex_unlock(&log->append);
	if (rec) {
		wait_for_completion_io(&done);
		r = blk_status_to_errno(rec->status);
		vcache_record_free(p, rec);
	}
	return r;
}

/**
 * vcache_append_discard - drop a range from the cache, durably
 * @log: the log that gets the record of it
 * @block: first block
 * @blocks: how many
 *
 * Nothing of the range is being written to the log, and no write to it begins before this
 * returns.
 *
 * Return: 0; -EAGAIN without space in the log, then a part of the range may have been
 * dropped, and the caller may try again; -EIO.
 */
int vcache_append_discard(struct vcache_log *log, u64 block, u64 blocks)
{
	int r = 0;

	/* A relocated block could get a higher sequence number than the record. */
	atomic_inc(&log->vol->discards);
	while (blocks && !r) {
		u32 i, n = min_t(u64, blocks, log->vol->pool->ix.cells);

		if (vcache_lookup_any(log->vol, block, n) ||
		    vcache_doubts(log->vol, block, n)) {
			r = vc_append_discard_one(log, block, n);
			for (i = 0; !r && i < n; i++)
				vcache_lookup_cut(log->vol, log, block + i,
						  VC_MASK_ALL);
		}
		VCACHE_CHECK(!vcache_buffer_covers(log->vol->dev, block, block + n - 1));
		block += n;
		blocks -= n;
		cond_resched();
	}
	atomic_dec(&log->vol->discards);
	/* There is more superseded data now, so relocation may gain space. */
	vcache_space_kick(log->vol->pool);
	return r;
}
