// SPDX-License-Identifier: Apache-2.0
/*
 * The host's commands. What each promises is in doc/source/firmware.rst.
 */
#include "internal.h"

#include "crc32c.h"

static bool in_range(const struct vs_ssd *s, uint64_t block, uint64_t count)
{
	return block <= s->blocks && count <= s->blocks - block;
}

/* No command after the power has gone or the media has let us down. */
static struct vs_result result(struct vs_ssd *s, enum vs_status status,
			       vs_time done)
{
	if (status == VS_EPOWER || status == VS_EREADONLY)
		s->status = status;
	return (struct vs_result){ status, done };
}

uint64_t vs_blocks(const struct vs_ssd *s)
{
	return s->blocks;
}

static void fill(uint8_t *to, const uint8_t *from)
{
	if (from)
		__builtin_memcpy(to, from, VS_BLOCK);
	else
		__builtin_memset(to, 0, VS_BLOCK);
}

/* A page read ahead of the blocks that are wanted from it. */
struct page_read {
	uint32_t address;
	enum vs_status status;
	vs_time done;
};

static enum vs_status read_slot(struct vs_ssd *s, vs_time now, uint32_t lpn,
				uint8_t *to, struct page_read *page)
{
	uint32_t slot = s->map[lpn], i = slot % s->slots;
	const struct vs_oob_slot *oob;

	if (page->address != slot / s->slots) {
		page->address = slot / s->slots;
		page->done = now;
		page->status = vs_read_page(s, now, page->address,
					    s->read_page, s->read_oob,
					    &page->done);
	}
	if (page->status != VS_OK)
		return page->status;
	oob = &s->read_oob->slot[i];
	fill(to, s->read_page + i * VS_BLOCK);
	if (oob->lpn != lpn || oob->crc != vs_crc32c(0, to, VS_BLOCK))
		return VS_EMEDIA;
	return VS_OK;
}

struct vs_result vs_read(struct vs_ssd *s, vs_time now, uint64_t block,
			 uint32_t count, void *data)
{
	struct page_read page = { .address = VS_NONE };
	vs_time done = now;
	uint32_t i;

	if (!in_range(s, block, count))
		return (struct vs_result){ VS_EINVAL, now };
	if (s->status == VS_EPOWER)
		return (struct vs_result){ VS_EPOWER, now };
	for (i = 0; i < count; i++) {
		uint32_t lpn = (uint32_t)block + i;
		uint8_t *to = (uint8_t *)data + (size_t)i * VS_BLOCK;
		uint32_t e = vs_buffer_find(s, lpn);
		enum vs_status status;

		if (e != VS_NONE) {
			fill(to, s->data + (size_t)e * VS_BLOCK);
			continue;
		}
		if (s->map[lpn] == VS_NONE) {
			fill(to, NULL);
			continue;
		}
		status = VS_EMEDIA;
		if (s->map[lpn] != VS_LOST) {
			status = read_slot(s, now, lpn, to, &page);
			done = vs_later(done, page.done);
		}
		if (status != VS_OK) {
			s->stats.lost_reads++;
			return result(s, status, done);
		}
	}
	return result(s, VS_OK, done);
}

/*
 * Entries that are being put together to pages. A page has blocks that want
 * the same lane, of one handle.
 */
struct batch {
	uint32_t entry[32];
	uint32_t n;
	bool sync;		/* pages are to be durable by themselves */
	bool few;		/* pages do not wait for other work of the banks */
	vs_time done;
};

/*
 * Collection waits until a flush is complete, if that has at most so many pages for each
 * bank. What is put off follows all at once, in the way of the commands after the flush.
 */
#define FEW_PAGES 4u

static void batch_begin(const struct vs_ssd *s, struct batch *b, uint32_t log,
			uint64_t blocks)
{
	b->sync = vs_sync_wanted(s, log, blocks);
	b->few = blocks <= (uint64_t)FEW_PAGES * s->banks * s->slots;
}

static enum vs_status batch_program(struct vs_ssd *s, struct batch *b,
				    uint32_t *entry, uint32_t n, vs_time now)
{
	enum vs_status status;
	vs_time done = now;

	s->urgent = b->few;
	status = vs_buffer_program(s, entry, n, b->sync, now, &done);
	s->urgent = false;
	b->done = vs_later(b->done, done);
	return status;
}

static enum vs_status batch_end(struct vs_ssd *s, struct batch *b, vs_time now)
{
	uint32_t n = b->n;

	b->n = 0;
	return n ? batch_program(s, b, b->entry, n, now) : VS_OK;
}

static bool fit(const struct vs_ssd *s, uint32_t a, uint32_t b)
{
	return s->entry[a].handle == s->entry[b].handle &&
	       s->log[s->entry[a].log].lane == s->log[s->entry[b].log].lane;
}

/* Blocks that fill a page of their own do not wait for others. */
static enum vs_status batch_add(struct vs_ssd *s, struct batch *b,
				uint32_t entry, vs_time now)
{
	enum vs_status status = VS_OK;
	uint32_t peers[32], n = s->placement->whole(s, entry, peers);

	if (n)
		return batch_program(s, b, peers, n, now);
	if (b->n && !fit(s, b->entry[0], entry))
		status = batch_end(s, b, now);
	b->entry[b->n++] = entry;
	if (status == VS_OK && b->n == s->slots)
		status = batch_end(s, b, now);
	return status;
}

/* Will batch_add() of @entry take @other along? */
static bool goes_along(const struct vs_ssd *s, uint32_t entry, uint32_t other)
{
	uint32_t peers[32];

	return other != VS_NONE && s->entry[other].lpn / s->slots ==
				   s->entry[entry].lpn / s->slots &&
	       s->placement->whole(s, entry, peers);
}

/* Program all buffered blocks of one tag. */
static enum vs_status batch_tag(struct vs_ssd *s, struct batch *b, uint32_t log,
				vs_time now)
{
	enum vs_status status = VS_OK;
	uint32_t e = s->log[log].head;

	s->log[log].stats.flushed += s->log[log].stats.buffered;
	while (status == VS_OK && e != VS_NONE) {
		uint32_t next = s->entry[e].tag_newer;

		while (goes_along(s, e, next))
			next = s->entry[next].tag_newer;
		status = batch_add(s, b, e, now);
		e = next;
	}
	return status;
}

/*
 * FUA: program what has just been put into the buffer, and no other tag's.
 * @host: some of it may be in hTag's log. So is what was another tag's in the
 * buffer; of a block that those behind it have pushed out nobody knows.
 */
static enum vs_status batch_blocks(struct vs_ssd *s, struct batch *b,
				   uint32_t lpn, uint32_t count, vs_time now,
				   bool *host)
{
	enum vs_status status = VS_OK;
	uint32_t i;

	for (i = 0; status == VS_OK && i < count; i++) {
		uint32_t entry = vs_buffer_find(s, lpn + i);

		*host |= entry == VS_NONE ||
			 s->entry[entry].log == VS_HTAG_LOG;
		if (entry != VS_NONE)
			status = batch_add(s, b, entry, now);
	}
	/* Entries in the batch must not be pushed out by further blocks. */
	return status == VS_OK ? batch_end(s, b, now) : status;
}

static enum vs_status commit_logs(struct vs_ssd *s, uint32_t log, bool host,
				  vs_time now, vs_time *done)
{
	vs_time own = now, others = now;
	enum vs_status status = vs_log_commit(s, log, now, &own);

	if (status == VS_OK && host && log != VS_HTAG_LOG)
		status = vs_log_commit(s, VS_HTAG_LOG, now, &others);
	*done = vs_later(*done, vs_later(own, others));
	return status;
}

struct vs_result vs_write_placed(struct vs_ssd *s, vs_time now, uint32_t tag,
				 uint32_t handle, uint64_t block,
				 uint32_t count, const void *data, bool fua)
{
	struct batch batch = { .done = now };
	const uint8_t *from = data;
	enum vs_status status = VS_OK;
	uint32_t i, log, fresh = 0;
	bool host = false;
	vs_time done = now;

	if (!in_range(s, block, count) || handle >= s->c.handles)
		return (struct vs_result){ VS_EINVAL, now };
	if (s->status != VS_OK)
		return (struct vs_result){ s->status, now };
	log = vs_tag_get(s, tag);
	vs_share_begin(s, log, now);
	batch_begin(s, &batch, log, count);
	for (i = 0; status == VS_OK && i < count; i++) {
		vs_time at = now;

		status = vs_buffer_put(s, log, handle, (uint32_t)block + i,
				       from + (size_t)i * VS_BLOCK, now, &at);
		done = vs_later(done, at);
		if (status == VS_OK && fua &&
		    (++fresh == s->slots || i + 1 == count)) {
			status = batch_blocks(s, &batch,
					      (uint32_t)block + i + 1 - fresh,
					      fresh, now, &host);
			fresh = 0;
		}
	}
	if (status == VS_OK && fua)
		status = commit_logs(s, log, host, now, &batch.done);
	if (status == VS_OK && fua)
		status = vs_gc_owed(s, now);
	if (status == VS_OK)
		status = vs_buffer_idle(s, now, now);
	return result(s, status, vs_later(done, batch.done));
}

struct vs_result vs_write(struct vs_ssd *s, vs_time now, uint32_t tag,
			  uint64_t block, uint32_t count, const void *data,
			  bool fua)
{
	return vs_write_placed(s, now, tag, 0, block, count, data, fua);
}

static bool logged_in(const struct vs_log *l, uint64_t first, uint64_t end)
{
	uint32_t i;

	for (i = l->durable; i < l->count; i++) {
		const struct vs_log_entry *e = &l->entry[i];

		if (e->lpn < end && e->lpn + vs_entry_blocks(e) > first)
			return true;
	}
	return l->full;
}

/* How many blocks of a range are buffered. */
static uint32_t buffered_in(const struct vs_ssd *s, uint64_t first, uint64_t end)
{
	uint32_t n = 0, e;

	for (e = s->oldest; e != VS_NONE; e = s->entry[e].newer)
		n += s->entry[e].lpn >= first && s->entry[e].lpn < end;
	return n;
}

/* Program what is buffered of a range of blocks, of all tags. */
static enum vs_status batch_range(struct vs_ssd *s, struct batch *b,
				  uint64_t first, uint64_t end, vs_time now)
{
	enum vs_status status = VS_OK;
	uint32_t e = s->oldest;

	while (status == VS_OK && e != VS_NONE) {
		uint32_t next = s->entry[e].newer;
		bool in = s->entry[e].lpn >= first && s->entry[e].lpn < end;

		while (in && goes_along(s, e, next))
			next = s->entry[next].newer;
		if (in)
			status = batch_add(s, b, e, now);
		e = next;
	}
	return status == VS_OK ? batch_end(s, b, now) : status;
}

struct vs_result vs_flush(struct vs_ssd *s, vs_time now, uint64_t first,
			  uint64_t count)
{
	struct batch batch = { .done = now };
	enum vs_status status;
	uint32_t i, before;

	if (!in_range(s, first, count))
		return (struct vs_result){ VS_EINVAL, now };
	if (s->status != VS_OK)
		return (struct vs_result){ s->status, now };
	if (s->c.personality == VS_BASELINE) {
		first = 0;
		count = s->blocks;
	}
	vs_share_begin(s, VS_HTAG_LOG, now);
	before = s->buffered;
	batch_begin(s, &batch, VS_HTAG_LOG,
		    buffered_in(s, first, first + count));
	status = batch_range(s, &batch, first, first + count, now);
	s->log[VS_HTAG_LOG].stats.flushed += before - s->buffered;
	for (i = 0; status == VS_OK && i < s->gc_log; i++) {
		vs_time at = now;

		/* What became durable on its own may still be under way. */
		batch.done = vs_later(batch.done, s->log[i].commit_done);
		if (s->c.personality == VS_BASELINE ? !i :
		    logged_in(&s->log[i], first, first + count))
			status = vs_log_commit(s, i, now, &at);
		batch.done = vs_later(batch.done, at);
	}
	if (status == VS_OK)
		status = vs_gc_owed(s, now);
	return result(s, status, batch.done);
}

/* Blocks that a flush of a tag programs. */
static uint64_t to_flush(const struct vs_ssd *s, uint32_t log)
{
	uint64_t n = s->log[log].stats.buffered;

	return log == VS_HTAG_LOG ? n : n + s->log[VS_HTAG_LOG].stats.buffered;
}

struct vs_result vs_flush_tag(struct vs_ssd *s, vs_time now, uint32_t tag)
{
	uint32_t log = vs_tag_find(s, tag);
	struct vs_tag_stats *stats = &s->log[log].stats;
	struct batch batch = { .done = now };
	enum vs_status status;
	vs_time host = now, own = now;

	if (s->status != VS_OK)
		return (struct vs_result){ s->status, now };
	if (s->c.personality == VS_BASELINE) {
		struct vs_result r = vs_flush(s, now, 0, s->blocks);

		status = r.status;
		own = r.done;
	} else {
		vs_share_begin(s, log, now);
		batch_begin(s, &batch, log, to_flush(s, log));
		status = batch_tag(s, &batch, log, now);
		if (status == VS_OK && log != VS_HTAG_LOG)
			status = batch_tag(s, &batch, VS_HTAG_LOG, now);
		if (status == VS_OK)
			status = batch_end(s, &batch, now);
		if (status == VS_OK)
			status = vs_log_commit(s, log, now, &own);
		if (status == VS_OK && log != VS_HTAG_LOG)
			status = vs_log_commit(s, VS_HTAG_LOG, now, &host);
	}
	own = vs_later(vs_later(own, host), batch.done);
	if (status == VS_OK)
		status = vs_gc_owed(s, now);
	if (status == VS_OK)
		status = vs_buffer_idle(s, now, own);
	stats->flushes++;
	stats->flush_ns += own - now;
	stats->flush_max_ns = vs_later(stats->flush_max_ns, own - now);
	return result(s, status, own);
}
