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
#include "internal.h"

/**
 * vcache_append_flags - flags of a write that makes a record durable
 * @p: the pool
 */
blk_opf_t vcache_append_flags(struct vcache_pool *p)
{
	return REQ_OP_WRITE | REQ_SYNC | REQ_IDLE | vcache_durable_flags(p->bdev);
}

/**
 * vcache_record_free - free a record
 * @p: the pool
 * @rec: the record, without its request
 */
void vcache_record_free(struct vcache_pool *p, struct vcache_record *rec)
{
	mempool_free(rec->head, &p->pages);
	mempool_free(rec, &p->records);
}

/**
 * vcache_record_make - begin a record at the end of a log
 * @log: the log, its append lock is held; vcache_log_space() was not 0
 * @tag: the tag whose write-out it is, or NULL
 * @gfp: GFP_NOIO, or GFP_NOWAIT
 *
 * Return: the record; it still needs entries and a request. Or NULL if there is no memory now.
 */
struct vcache_record *vcache_record_make(struct vcache_log *log, struct vcache_tag *tag,
					 gfp_t gfp)
{
	struct vcache_pool *p = log->vol->pool;
	struct vcache_record *rec = mempool_alloc(&p->records, gfp);

	lockdep_assert_held(&log->append);
	if (!rec)
		return NULL;
	memset(rec, 0, sizeof(*rec));
	rec->head = mempool_alloc(&p->pages, gfp);
	if (!rec->head) {
		mempool_free(rec, &p->records);
		return NULL;
	}
	clear_page(page_address(rec->head));
	rec->log = log;
	rec->tag = tag;
	rec->chunk = log->open;
	rec->info.chunk = vcache_chunk_nr(p, log->open);
	rec->info.volume = log->vol->id;
	rec->info.tag = log->tag;
	rec->info.type = VC_LOG_RECORD;
	rec->info.at = log->at;
	return rec;
}

/**
 * vcache_record_add - add an entry to a record and to the seal of its chunk
 * @rec: the record
 * @e: the entry
 */
void vcache_record_add(struct vcache_record *rec, const struct vcache_entry *e)
{
	struct vcache_sealing *s = rec->chunk->sealing;

	if (!e->mask)
		rec->chunk->discards = true;
	vcache_log_put_entry(page_address(rec->head), rec->info.nr++, e);
	vcache_seal_put(s->data, s->nr++, e);
}

/* Put the entries of a record into the index; without @good drop what it supersedes. */
static void vc_record_apply(struct vcache_record *rec, bool good)
{
	struct vcache_volume *v = rec->log->vol;
	u32 base = rec->info.chunk * v->pool->g.chunk_blocks;
	struct vcache_entry e;
	unsigned int i;

	for (i = 0; i < rec->info.nr; i++) {
		vcache_log_get_entry(page_address(rec->head), i, &e);
		if (e.mask && good)
			vcache_lookup_put(v, rec->log, base + e.place, e.block,
					  e.mask);
		else if (e.mask)
			vcache_lookup_cut(v, rec->log, e.block, e.mask);
	}
}

/* The record has failed, but may be on the device. */
static void vc_record_doubt(struct vcache_record *rec)
{
	struct vcache_entry e;
	unsigned int i;

	for (i = 0; i < rec->info.nr; i++) {
		vcache_log_get_entry(page_address(rec->head), i, &e);
		if (e.mask)
			vcache_doubt_block(rec->log->vol, e.block);
	}
}

/* The blocks of a write-out are durable, or they stay dirty. */
static void vc_record_blocks_done(struct vcache_record *rec)
{
	struct bio *bio = rec->bio;
	unsigned int i;

	for (i = 1; i < bio->bi_vcnt; i++) {
		struct page *page = bio->bi_io_vec[i].bv_page;

		vcache_block_part_done((struct vcache_block *)page_private(page),
				       rec->status);
	}
	vcache_writeout_complete(rec->tag, rec->info.data * VC_BLOCK_SECTORS);
}

/* A write-through is complete. If the origin has refused it, only the cache has the data. */
static void vc_through_done(struct vcache_writeout *w)
{
	if (w->failed)
		vcache_lookup_make_dirty(w->chunk, w->range.first, w->range.last);
	vcache_chunk_put_pending(w->chunk->log, w->chunk);
}

/**
 * vcache_record_write_through - the data of a record is written to the origin as well
 * @rec: the record, not sent yet
 * @w: the write-out to the origin, not sent yet
 *
 * The write-out holds its blocks until the index has the record, and the chunk is not
 * sealed before the origin has the data, or has refused it.
 */
void vcache_record_write_through(struct vcache_record *rec, struct vcache_writeout *w)
{
	atomic_inc(&w->users);
	atomic_inc(&rec->chunk->pending);
	w->chunk = rec->chunk;
	w->release = vc_through_done;
	w->next = rec->through_writes;
	rec->through_writes = w;
}

/*
 * The index has the record, or it has failed: its blocks need not be held for it any more.
 * Write-outs that have waited for the record may be sent.
 */
static void vc_record_release(struct vcache_record *rec)
{
	struct vcache_writeout *w;

	while ((w = rec->through_writes)) {
		rec->through_writes = w->next;
		if (w->ordered) {
			w->bio.bi_status = rec->status;
			vcache_writeout_ready(w);
		}
		vcache_writeout_put(w);
	}
}

static void vc_record_finish(struct vcache_record *rec)
{
	struct vcache_log *log = rec->log;
	struct vcache_chunk *c = rec->chunk;

	if (rec->status)
		vc_record_doubt(rec);
	/* Also if a copy failed: the cache has older data than the origin now. */
	if ((!rec->status || rec->copy) && !rec->relocate)
		vc_record_apply(rec, !rec->status);
	vc_record_release(rec);
	if (rec->status)
		atomic_inc(&log->vol->cache_errors);
	vcache_pool_record_done(log->vol->pool, rec->status);
	if (!rec->relocate)
		vcache_chunk_put_pending(log, c);
	if (rec->copy)
		rec->status = BLK_STS_OK;
	if (rec->finish)
		rec->finish(rec);
	else if (rec->tag)
		vc_record_blocks_done(rec);
	if (rec->done) {
		/* The waiter looks at the status, and frees the record. */
		bio_put(rec->bio);
		complete(rec->done);
	} else {
		bio_put(rec->bio);
		vcache_record_free(log->vol->pool, rec);
	}
}

/*
 * A record has been written: complete all records that have none under way before them.
 * After the pool has failed all of them get an error. vcache_fail_work() waits for those that
 * saw the pool before that.
 */
static void vc_record_end(struct bio *bio)
{
	struct vcache_record *rec = bio->bi_private, *next;
	struct vcache_log *log = rec->log;
	unsigned long flags;
	LIST_HEAD(list);
	bool dead;

	vcache_lane_end(log->vol->pool, rec->chunk->lane, true, ktime_get_ns() - rec->sent);
	if (rec->tag)
		vcache_writeout_arrived(rec->tag);
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
		if (rec->status) {
			if (!rec->chunk->failed)
				vcache_doubt_chunk(rec->chunk);
		} else if (rec->chunk->failed) {
			VCACHE_PROBE("failed record fails a later one");
			rec->status = BLK_STS_IOERR;
		}
		if (!rec->status && !rec->copy)
			log->durable = rec->info.seq;
		list_move_tail(&rec->node, &list);
	}
	spin_unlock_irqrestore(&log->lock, flags);
	if (list_empty(&list))
		VCACHE_PROBE("record arrives before an older one");
	list_for_each_entry_safe(rec, next, &list, node)
		vc_record_finish(rec);
	rcu_read_unlock();
}

/*
 * Which record of a log is known to be durable? A replay then knows that it is damaged if it is not
 * complete. Not known on a device where a complete write may be lost without a FLUSH.
 */
static u64 vc_log_durable(struct vcache_log *log)
{
	unsigned long flags;
	u64 seq;

	if (vcache_isolation_of(log->vol->pool->bdev) == VCACHE_ISOLATION_DEGRADED)
		return 0;
	spin_lock_irqsave(&log->lock, flags);
	seq = log->durable;
	spin_unlock_irqrestore(&log->lock, flags);
	return seq;
}

/**
 * vcache_record_place - give a record its place, and advance the log behind it
 * @rec: the record; it gets a sequence number unless the caller has set one
 *
 * The caller sends its request, or ends it with an error: later records of the log wait for it.
 */
void vcache_record_place(struct vcache_record *rec)
{
	struct vcache_log *log = rec->log;
	struct vcache_pool *p = log->vol->pool;
	unsigned long flags;

	lockdep_assert_held(&log->append);
	if (!rec->info.seq)
		rec->info.seq = atomic64_inc_return(&p->seq);
	rec->info.gen = rec->chunk->gen;
	rec->info.durable = vc_log_durable(log);
	rec->chunk->sealing->seq = rec->info.seq;
	vcache_log_finish(page_address(rec->head), p->g.key, &rec->info);
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
	rec->sent = ktime_get_ns();
	vcache_lane_begin(p, rec->chunk->lane);
	atomic64_inc(&log->counts.record);
	atomic64_add(rec->info.data,
		     rec->relocate ? &log->counts.relocated : &log->counts.data);
	if (rec->tag) {
		vcache_log_paid(log, rec->info.data * VC_CREDIT_WRITE);
		vcache_writeout_sent(rec->tag, rec->info.data * VC_BLOCK_SECTORS);
	}
}

/**
 * vcache_record_send - send a record, and advance the log behind it
 * @rec: the record, as for vcache_record_place()
 */
void vcache_record_send(struct vcache_record *rec)
{
	vcache_record_place(rec);
	submit_bio_noacct(rec->bio);
}
