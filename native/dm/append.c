// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: writing records to the log of a tag.
 *
 * A record is one request, at the end of what the log has written so far: a head block,
 * which describes the data, and the data. Several records may be under way. They are
 * completed in order, so a power cut leaves torn records only behind all records that
 * were acknowledged. When a record completes, first the index points to its blocks, and
 * then these leave the buffer. So a read always finds them.
 */
#include <linux/blkdev.h>
#include <linux/slab.h>

#include "reads.h"

/**
 * vc_append_flags - flags of a write that makes a record durable
 * @p: the pool
 */
blk_opf_t vc_append_flags(struct vc_pool *p)
{
	return REQ_OP_WRITE | REQ_SYNC | REQ_IDLE | vc_durable_flags(p->bdev);
}

/**
 * vc_record_free - free a record
 * @p: the pool
 * @rec: the record, without its request
 */
void vc_record_free(struct vc_pool *p, struct vc_record *rec)
{
	mempool_free(rec->head, &p->pages);
	mempool_free(rec, &p->records);
}

/**
 * vc_record_make - begin a record at the end of a log
 * @log: the log, its append lock is held; vc_log_space() was not 0
 * @tag: the tag whose write-out it is, or NULL
 *
 * Return: the record; it still needs entries and a request.
 */
struct vc_record *vc_record_make(struct vc_log *log, struct vc_tag *tag)
{
	struct vc_pool *p = log->vol->pool;
	struct vc_record *rec = mempool_alloc(&p->records, GFP_NOIO);

	memset(rec, 0, sizeof(*rec));
	rec->head = mempool_alloc(&p->pages, GFP_NOIO);
	clear_page(page_address(rec->head));
	rec->log = log;
	rec->tag = tag;
	rec->chunk = log->open;
	rec->info.chunk = vc_chunk_nr(p, log->open);
	rec->info.volume = log->vol->id;
	rec->info.tag = log->tag;
	rec->info.type = VC_LOG_RECORD;
	rec->info.at = log->at;
	return rec;
}

/**
 * vc_record_add - add an entry to a record and to the seal of its chunk
 * @rec: the record
 * @e: the entry
 */
void vc_record_add(struct vc_record *rec, const struct vc_entry *e)
{
	struct vc_sealing *s = rec->chunk->sealing;

	vc_log_put_entry(page_address(rec->head), rec->info.nr++, e);
	vc_seal_put(s->data, s->nr++, e);
}

/* Put the entries of a record into the index; without @good drop what it supersedes. */
static void vc_record_apply(struct vc_record *rec, bool good)
{
	struct vc_volume *v = rec->log->vol;
	u32 base = rec->info.chunk * v->pool->g.chunk_blocks;
	struct vc_entry e;
	unsigned int i;

	for (i = 0; i < rec->info.nr; i++) {
		vc_log_get_entry(page_address(rec->head), i, &e);
		if (e.mask && good)
			vc_lookup_put(v, rec->log, base + e.place, e.block,
				      e.mask);
		else if (e.mask)
			vc_lookup_cut(v, rec->log, e.block, e.mask);
	}
}

/* The blocks of a write-out are durable, or they stay dirty. */
static void vc_record_blocks_done(struct vc_record *rec)
{
	struct bio *bio = rec->bio;
	unsigned int i;

	for (i = 1; i < bio->bi_vcnt; i++) {
		struct page *page = bio->bi_io_vec[i].bv_page;

		vc_block_part_done((struct vc_block *)page_private(page),
				   rec->status);
	}
	vc_writeout_complete(rec->tag, rec->info.data * VC_BLOCK_SECTORS);
}

/* The index has the record, or it has failed: its blocks need not be held for it any more. */
static void vc_record_release(struct vc_record *rec)
{
	struct vc_writeout *w;

	while ((w = rec->through_writes)) {
		rec->through_writes = w->next;
		vc_writeout_put(w);
	}
}

static void vc_record_finish(struct vc_record *rec)
{
	struct vc_log *log = rec->log;
	struct vc_chunk *c = rec->chunk;

	/* Also if a copy failed: the cache has older data than the origin now. */
	if ((!rec->status || rec->copy) && !rec->relocate)
		vc_record_apply(rec, !rec->status);
	vc_record_release(rec);
	if (rec->status)
		atomic_inc(&log->vol->cache_errors);
	vc_pool_record_done(log->vol->pool, rec->status);
	if (!rec->relocate)
		vc_chunk_put_pending(log, c);
	if (rec->copy)
		rec->status = BLK_STS_OK;
	if (rec->tag)
		vc_record_blocks_done(rec);
	if (rec->done) {
		/* The waiter looks at the status, and frees the record. */
		bio_put(rec->bio);
		complete(rec->done);
	} else {
		bio_put(rec->bio);
		vc_record_free(log->vol->pool, rec);
	}
}

/*
 * A record has been written: complete all records that have none under way before them.
 * After the pool has failed all of them get an error. vc_fail_work() waits for those that
 * saw the pool before that.
 */
static void vc_record_end(struct bio *bio)
{
	struct vc_record *rec = bio->bi_private, *next;
	struct vc_log *log = rec->log;
	unsigned long flags;
	LIST_HEAD(list);
	bool dead;

	if (rec->tag)
		vc_writeout_arrived(rec->tag);
	rcu_read_lock();
	dead = READ_ONCE(log->vol->pool->state) == VC_POOL_FAILED;
	spin_lock_irqsave(&log->lock, flags);
	rec->status = bio->bi_status;
	rec->arrived = true;
	list_for_each_entry_safe(rec, next, &log->records, node) {
		if (!rec->arrived)
			break;
		if (dead)
			rec->status = BLK_STS_IOERR;
		/* No later record of the chunk may be acknowledged, see "Order" in format.h. */
		if (rec->status)
			rec->chunk->failed = true;
		else if (rec->chunk->failed)
			rec->status = BLK_STS_IOERR;
		list_move_tail(&rec->node, &list);
	}
	spin_unlock_irqrestore(&log->lock, flags);
	list_for_each_entry_safe(rec, next, &list, node)
		vc_record_finish(rec);
	rcu_read_unlock();
}

/**
 * vc_record_send - send a record, and advance the log behind it
 * @rec: the record; it gets a sequence number unless the caller has set one
 */
void vc_record_send(struct vc_record *rec)
{
	struct vc_log *log = rec->log;
	struct vc_pool *p = log->vol->pool;
	unsigned long flags;

	if (!rec->info.seq)
		rec->info.seq = atomic64_inc_return(&p->seq);
	rec->info.gen = rec->chunk->gen;
	rec->chunk->sealing->seq = rec->info.seq;
	vc_log_finish(page_address(rec->head), p->g.key, &rec->info);
	log->at += 1 + rec->info.data;
	WRITE_ONCE(log->written, jiffies);
	atomic_inc(&rec->chunk->pending);
	spin_lock_irqsave(&log->lock, flags);
	list_add_tail(&rec->node, &log->records);
	spin_unlock_irqrestore(&log->lock, flags);

	rec->bio->bi_iter.bi_sector =
		((u64)rec->info.chunk * p->g.chunk_blocks + rec->info.at) *
		VC_BLOCK_SECTORS;
	rec->bio->bi_private = rec;
	rec->bio->bi_end_io = vc_record_end;
	if (rec->tag) {
		vc_log_paid(log, rec->info.data * VC_CREDIT_WRITE);
		vc_writeout_sent(rec->tag, rec->info.data * VC_BLOCK_SECTORS);
	}
	submit_bio_noacct(rec->bio);
}

/* Clear the sectors that are not valid, so that no old content of the page is written. */
static void vc_block_pad(struct vc_block *b)
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
static struct bio *vc_record_fill(struct vc_record *rec, struct vc_tag *tag,
				  u32 most)
{
	struct bio *through = NULL;

	while (rec->info.data < most && !list_empty(&tag->batch)) {
		struct vc_block *b = list_first_entry(&tag->batch,
						      struct vc_block, node);
		struct vc_entry e = { .block = b->index };

		list_del_init(&b->node);
		if (!vc_block_start(b, rec->through, true))
			continue;
		vc_block_pad(b);
		e.mask = *b->valid;
		e.place = rec->info.at + 1 + rec->info.data++;
		e.arg = vc_crc32c(page_address(b->page), VC_BLOCK_SIZE);
		vc_record_add(rec, &e);
		__bio_add_page(rec->bio, b->page, VC_BLOCK_SIZE, 0);
		if (rec->through)
			through = vc_writeout_add(tag, through, b, rec);
		cond_resched();
	}
	return through;
}

/* Write a record with at most @space blocks of the tag's batch. */
static void vc_append_record(struct vc_tag *tag, u32 space,
			     enum vc_append_kind kind)
{
	struct vc_pool *p = tag->log->vol->pool;
	struct vc_record *rec = vc_record_make(tag->log, tag);
	struct bio *origin;

	rec->through = kind != VC_APPEND_LOG;
	rec->copy = kind == VC_APPEND_COPY;
	rec->bio = bio_alloc_bioset(p->bdev, space + 1, rec->copy ?
				    REQ_OP_WRITE : vc_append_flags(p),
				    GFP_NOIO, &p->bs);
	__bio_add_page(rec->bio, rec->head, VC_BLOCK_SIZE, 0);
	origin = vc_record_fill(rec, tag, space);
	if (origin)
		vc_writeout_submit(tag, origin);
	if (rec->info.data) {
		vc_record_send(rec);
	} else {
		bio_put(rec->bio);
		vc_record_free(p, rec);
	}
}

static bool vc_append_as(struct vc_tag *tag, enum vc_append_kind kind)
{
	struct vc_log *log = tag->log;
	u32 space = 0;

	mutex_lock(&log->append);
	if (READ_ONCE(log->vol->pool->state) != VC_POOL_FAILED)
		space = vc_log_space(log, kind);
	if (space)
		vc_append_record(tag, space, kind);
	mutex_unlock(&log->append);
	return space;
}

/**
 * vc_append - write blocks of a tag's batch to its log
 * @tag: the tag; called by its worker
 *
 * If the tag is not in writeback mode its data goes to the origin as well. The log needs
 * a record of it, because it may have older data of the same blocks.
 *
 * Return: false if there is no chunk. Then the worker is woken when there is one.
 */
bool vc_append(struct vc_tag *tag)
{
	return vc_append_as(tag, READ_ONCE(tag->mode) == VCACHE_MODE_WRITEBACK ?
			    VC_APPEND_LOG : VC_APPEND_THROUGH);
}

/**
 * vc_append_copy - write blocks to the origin, and a copy of them to the cache
 * @tag: the tag, called by its worker; its device is in writethrough mode
 *
 * Return: false if the cache has no space for a copy now. Then nothing was done.
 */
bool vc_append_copy(struct vc_tag *tag)
{
	return vc_append_as(tag, VC_APPEND_COPY);
}

/**
 * vc_append_refuse - fail the write-out of a block if the pool cannot be written any more
 * @tag: the tag; called by its worker
 *
 * Return: false if the pool can be written, or there is no block.
 */
bool vc_append_refuse(struct vc_tag *tag)
{
	struct vc_block *b;

	if (READ_ONCE(tag->log->vol->pool->state) == VC_POOL_OK ||
	    list_empty(&tag->batch))
		return false;
	b = list_first_entry(&tag->batch, struct vc_block, node);
	list_del_init(&b->node);
	if (vc_block_start(b, false, true))
		vc_block_part_done(b, BLK_STS_IOERR);
	return true;
}

/* Write one record of a discard. Return: 0; -EAGAIN without a chunk; -EIO. */
static int vc_append_discard_one(struct vc_log *log, u64 block, u32 blocks)
{
	struct vc_entry e = { .block = block, .arg = blocks };
	struct vc_pool *p = log->vol->pool;
	DECLARE_COMPLETION_ONSTACK(done);
	struct vc_record *rec = NULL;
	int r = -EAGAIN;

	mutex_lock(&log->append);
	/* The record may go to a clean chunk or to a dirty one: take what is open. */
	if (vc_log_space(log, log->open && log->open->clean ?
			 VC_APPEND_COPY : VC_APPEND_LOG)) {
		rec = vc_record_make(log, NULL);
		rec->done = &done;
		e.place = rec->info.at;
		rec->bio = bio_alloc_bioset(p->bdev, 1, vc_append_flags(p),
					    GFP_NOIO, &p->bs);
		__bio_add_page(rec->bio, rec->head, VC_BLOCK_SIZE, 0);
		vc_record_add(rec, &e);
		vc_record_send(rec);
	}
	mutex_unlock(&log->append);
	if (rec) {
		wait_for_completion_io(&done);
		r = blk_status_to_errno(rec->status);
		vc_record_free(p, rec);
	}
	return r;
}

/**
 * vc_append_discard - drop a range from the cache, durably
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
int vc_append_discard(struct vc_log *log, u64 block, u64 blocks)
{
	int r = 0;

	/* A relocated block could get a higher sequence number than the record. */
	atomic_inc(&log->vol->discards);
	while (blocks && !r) {
		u32 i, n = min_t(u64, blocks, log->vol->pool->ix.cells);

		if (vc_lookup_any(log->vol, block, n)) {
			r = vc_append_discard_one(log, block, n);
			for (i = 0; !r && i < n; i++)
				vc_lookup_cut(log->vol, log, block + i,
					      VC_MASK_ALL);
		}
		block += n;
		blocks -= n;
		cond_resched();
	}
	atomic_dec(&log->vol->discards);
	/* There is more superseded data now, so relocation may gain space. */
	vc_space_kick(log->vol->pool);
	return r;
}
