// SPDX-License-Identifier: Apache-2.0
/*
 * Tag-based write buffer (vFLUSH, section III-C): one LRU list over all blocks
 * and one list for each tag.
 *
 * Entries whose content is on its way to the NAND are in a list of the tag that waits for
 * them. How many a tag may have is in share.c.
 *
 * A block overwritten under another tag becomes hTag's, which every flush
 * covers, and so both tags' flushes do.
 */
#include "internal.h"

#include "crc32c.h"

static uint32_t *bucket(const struct vs_ssd *s, uint32_t lpn)
{
	/* Knuth's multiplicative hash. */
	return &s->hash[(lpn * 2654435761u >> 7) & s->hash_mask];
}

static void copy(uint8_t *to, const uint8_t *from)
{
	/* The port's memcpy(): a loop over bytes costs twenty times as much. */
	__builtin_memcpy(to, from, VS_BLOCK);
}

/**
 * vs_buffer_init - all entries free
 * @s: the device, otherwise zeroed
 */
void vs_buffer_init(struct vs_ssd *s)
{
	uint32_t i;

	for (i = 0; i <= s->hash_mask; i++)
		s->hash[i] = VS_NONE;
	for (i = 0; i < s->c.buffer_blocks; i++) {
		s->entry[i].lpn = VS_NONE;
		s->entry[i].newer = i + 1;
	}
	s->entry[i - 1].newer = VS_NONE;
	s->free_head = 0;
	s->free_tail = i - 1;
	s->free_count = i;
	s->newest = VS_NONE;
	s->oldest = VS_NONE;
}

/**
 * vs_buffer_find - the entry of a block
 * @s: the device
 * @lpn: the block
 *
 * Return: its index, or VS_NONE.
 */
uint32_t vs_buffer_find(const struct vs_ssd *s, uint32_t lpn)
{
	uint32_t e = *bucket(s, lpn);

	while (e != VS_NONE && s->entry[e].lpn != lpn)
		e = s->entry[e].chain;
	return e;
}

static void lru_add(struct vs_ssd *s, uint32_t e)
{
	s->entry[e].older = s->newest;
	s->entry[e].newer = VS_NONE;
	if (s->newest != VS_NONE)
		s->entry[s->newest].newer = e;
	else
		s->oldest = e;
	s->newest = e;
}

static void lru_remove(struct vs_ssd *s, uint32_t e)
{
	const struct vs_entry *x = &s->entry[e];

	if (x->newer != VS_NONE)
		s->entry[x->newer].older = x->older;
	else
		s->newest = x->older;
	if (x->older != VS_NONE)
		s->entry[x->older].newer = x->newer;
	else
		s->oldest = x->newer;
}

static void tag_add(struct vs_ssd *s, uint32_t log, uint32_t e)
{
	struct vs_log *l = &s->log[log];

	s->entry[e].log = log;
	s->entry[e].tag_older = l->tail;
	s->entry[e].tag_newer = VS_NONE;
	if (l->tail != VS_NONE)
		s->entry[l->tail].tag_newer = e;
	else
		l->head = e;
	l->tail = e;
	l->stats.buffered++;
}

static void tag_remove(struct vs_ssd *s, uint32_t e)
{
	const struct vs_entry *x = &s->entry[e];
	struct vs_log *l = &s->log[x->log];

	if (x->tag_newer != VS_NONE)
		s->entry[x->tag_newer].tag_older = x->tag_older;
	else
		l->tail = x->tag_older;
	if (x->tag_older != VS_NONE)
		s->entry[x->tag_older].tag_newer = x->tag_newer;
	else
		l->head = x->tag_newer;
	l->stats.buffered--;
}

static void free_add(struct vs_ssd *s, uint32_t e)
{
	s->entry[e].newer = VS_NONE;
	if (s->free_count)
		s->entry[s->free_tail].newer = e;
	else
		s->free_head = e;
	s->free_tail = e;
	s->free_count++;
}

static uint32_t free_take(struct vs_ssd *s)
{
	uint32_t e = s->free_head;

	s->free_head = s->entry[e].newer;
	s->free_count--;
	return e;
}

static void leaving_add(struct vs_ssd *s, struct vs_log *l, uint32_t e)
{
	s->entry[e].newer = VS_NONE;
	if (l->leaving)
		s->entry[l->leaving_tail].newer = e;
	else
		l->leaving_head = e;
	l->leaving_tail = e;
	l->leaving++;
}

static uint32_t leaving_take(struct vs_ssd *s, struct vs_log *l)
{
	uint32_t e = l->leaving_head;

	l->leaving_head = s->entry[e].newer;
	l->leaving--;
	return e;
}

/**
 * vs_buffer_reap - entries of a tag that have left for the NAND are free
 * @s: the device
 * @log: index of the tag that waits for them
 * @now: time
 */
void vs_buffer_reap(struct vs_ssd *s, uint32_t log, vs_time now)
{
	struct vs_log *l = &s->log[log];

	while (l->leaving && s->entry[l->leaving_head].free_at <= now)
		free_add(s, leaving_take(s, l));
}

/**
 * vs_buffer_drop - take a block out of the buffer
 * @s: the device
 * @entry: its entry
 * @free_at: when its memory can be used again
 */
void vs_buffer_drop(struct vs_ssd *s, uint32_t entry, vs_time free_at)
{
	struct vs_entry *e = &s->entry[entry];
	uint32_t *link = bucket(s, e->lpn);

	while (*link != entry)
		link = &s->entry[*link].chain;
	*link = e->chain;
	lru_remove(s, entry);
	tag_remove(s, entry);
	e->lpn = VS_NONE;
	e->free_at = free_at;
	leaving_add(s, &s->log[s->taker], entry);
	s->buffered--;
}

/**
 * vs_buffer_program - program blocks of the buffer into one page
 * @s: the device
 * @entries: the blocks, of one handle, whose tags all want the same lane
 * @n: 1 ... blocks of a page; the rest of the page is padding
 * @sync: let the page be durable by itself, if recovery can find it
 * @now: time
 * @done: when they are programmed; the map says so then, durable or not
 */
enum vs_status vs_buffer_program(struct vs_ssd *s, uint32_t *entries,
				 uint32_t n, bool sync, vs_time now,
				 vs_time *done)
{
	uint32_t lane = vs_tag_lane(s, s->entry[*entries].log), i, address;
	uint32_t handle = s->entry[*entries].handle;
	enum vs_status status;

	sync = sync && vs_sync_room(s);
	for (i = 0; i < n; i++)
		vs_log_room(s, s->entry[entries[i]].log, n);
	s->oob->flags = sync ? VS_OOB_SYNC : 0;
	for (i = 0; i < s->slots; i++) {
		const uint8_t *data = s->data + (size_t)entries[i < n ? i : 0] *
				      VS_BLOCK;

		s->oob->slot[i] = (struct vs_oob_slot){ .lpn = VS_NONE };
		copy(s->page + i * VS_BLOCK, data);
		if (i >= n)
			continue;
		s->oob->slot[i].lpn = s->entry[entries[i]].lpn;
		s->oob->slot[i].crc = vs_crc32c(0, data, VS_BLOCK);
	}
	status = s->placement->program(s, lane, handle, now, s->page, s->oob,
				       &address, done);
	if (status != VS_OK)
		return status;
	for (i = 0; i < n; i++) {
		struct vs_log *log = &s->log[s->entry[entries[i]].log];

		vs_map_set(s, s->entry[entries[i]].log,
			   s->entry[entries[i]].lpn, address * s->slots + i,
			   *done);
		log->sync += sync && !log->full;
	}
	if (sync)
		status = vs_sync_copy(s, lane, handle, now, address, done);
	for (i = 0; i < n; i++) {
		struct vs_log *log = &s->log[s->entry[entries[i]].log];

		log->data_done = vs_later(log->data_done, *done);
		vs_buffer_drop(s, entries[i], *done);
	}
	return status;
}

static bool goes_with(const struct vs_ssd *s, uint32_t first, uint32_t e)
{
	uint32_t peers[32];

	return s->log[s->entry[e].log].lane == s->log[s->entry[first].log].lane &&
	       s->entry[e].handle == s->entry[first].handle &&
	       !s->placement->whole(s, e, peers);
}

/*
 * Blocks for a page with the least recently used one of a tag: those of its own page, or
 * the next ones that have no page of their own, of one lane and one handle. While tags
 * share, others' blocks only fill up what would be padding.
 */
static uint32_t gather(const struct vs_ssd *s, uint32_t log, uint32_t *entries)
{
	uint32_t first = s->log[log].head, e;
	uint32_t n = s->placement->whole(s, first, entries);

	if (n)
		return n;
	for (e = first; e != VS_NONE && n < s->slots;
	     e = s->alone ? s->entry[e].newer : s->entry[e].tag_newer) {
		if (goes_with(s, first, e))
			entries[n++] = e;
	}
	for (e = s->oldest; !s->alone && e != VS_NONE && n < s->slots;
	     e = s->entry[e].newer) {
		if (s->entry[e].log != log && goes_with(s, first, e))
			entries[n++] = e;
	}
	return n;
}

/* Program the least recently used block of a tag; banks do it on behalf of that tag. */
static enum vs_status evict(struct vs_ssd *s, uint32_t log, vs_time now)
{
	uint32_t entries[32], n = gather(s, log, entries), payer = s->payer;
	enum vs_status status;
	vs_time done;

	s->payer = log;
	status = vs_buffer_program(s, entries, n, false, now, &done);
	s->payer = payer;
	return status;
}

/* Make a bank the next of its lane that will be done by then. */
static bool find_idle(struct vs_ssd *s, uint32_t log, vs_time now, vs_time until)
{
	uint32_t lane = s->log[log].lane, bank, i;
	struct vs_lane *l;

	/* As vs_tag_lane() will have it, unless that is full. */
	if (lane == VS_LANE_ANY)
		lane = (s->lane_cursor + 1) % s->c.lanes;
	l = &s->lane[lane];
	bank = vs_share_bank(s, lane, log, now);
	if (bank != VS_NONE)
		return vs_bank_free(s, bank) <= until;
	for (i = 0; i < l->banks; i++) {
		if (s->bank[l->first_bank + l->bank_cursor].done <= until)
			return true;
		l->bank_cursor = (l->bank_cursor + 1) % l->banks;
	}
	return false;
}

/**
 * vs_buffer_idle - let banks write back that have nothing to do
 * @s: the device
 * @now: time
 * @until: when they might have something to do again
 */
enum vs_status vs_buffer_idle(struct vs_ssd *s, vs_time now, vs_time until)
{
	uint32_t some = (uint32_t)((uint64_t)s->c.buffer_blocks *
				   s->c.idle_percent / 100);
	enum vs_status status = VS_OK;

	if (!s->c.idle_percent || s->c.mapping == VS_MAP_FAST)
		return VS_OK;
	while (status == VS_OK && s->buffered > some) {
		s->taker = s->entry[s->oldest].log;
		if (!find_idle(s, s->taker, now, until))
			break;
		status = evict(s, s->taker, now);
	}
	return status;
}

/* Free entries that the tag can have. */
static uint32_t free_for(const struct vs_ssd *s)
{
	return s->free_count > s->set_aside ? s->free_count - s->set_aside : 0;
}

/* The entries that the tag waits for are for others first, if these have too little. */
static void give_back(struct vs_ssd *s)
{
	struct vs_log *l = &s->log[s->taker], *back = &s->log[s->gc_log];

	while (vs_share_over(s, s->taker) && l->leaving &&
	       s->free_count + back->leaving < s->guaranteed)
		leaving_add(s, back, leaving_take(s, l));
}

static enum vs_status make_room(struct vs_ssd *s, vs_time now)
{
	uint32_t want = s->alone || vs_share_over(s, s->taker) ?
			vs_share_ahead(s) : 0;
	enum vs_status status = VS_OK;

	give_back(s);
	while (status == VS_OK && s->buffered &&
	       free_for(s) + s->log[s->taker].leaving <= want) {
		status = evict(s, vs_share_victim(s, now), now);
		give_back(s);
	}
	return status;
}

/* A free entry, or one that is on its way: the tag's own, if it waits for any. */
static uint32_t take(struct vs_ssd *s)
{
	struct vs_log *l = &s->log[s->taker];
	uint32_t i;

	if (s->free_count && (free_for(s) || !l->leaving)) {
		l->reserved -= l->reserved > 0;
		return free_take(s);
	}
	/* Nothing is free, and not all is buffered, so somebody waits for some. */
	for (i = 0; !l->leaving; i++)
		l = &s->log[i];
	return leaving_take(s, l);
}

/**
 * vs_buffer_put - a block that the host writes
 * @s: the device
 * @log: index of its tag
 * @handle: its placement handle
 * @lpn: the block
 * @data: its content
 * @now: time
 * @done: when the buffer has taken it
 */
enum vs_status vs_buffer_put(struct vs_ssd *s, uint32_t log, uint32_t handle,
			     uint32_t lpn, const void *data, vs_time now,
			     vs_time *done)
{
	uint32_t e = vs_buffer_find(s, lpn);
	enum vs_status status;

	*done = now;
	if (e != VS_NONE) {
		s->stats.absorbed++;
		lru_remove(s, e);
		tag_remove(s, e);
		if (s->entry[e].log != log)
			log = VS_HTAG_LOG;
	} else {
		vs_buffer_reap(s, s->taker, now);
		status = make_room(s, now);
		if (status != VS_OK)
			return status;
		e = take(s);
		s->buffered++;
		*done = vs_later(now, s->entry[e].free_at);
		s->log[log].stats.buffer_wait_ns += *done - now;
		s->entry[e].lpn = lpn;
		s->entry[e].chain = *bucket(s, lpn);
		*bucket(s, lpn) = e;
	}
	copy(s->data + (size_t)e * VS_BLOCK, data);
	s->entry[e].handle = handle;
	lru_add(s, e);
	tag_add(s, log, e);
	s->stats.written++;
	s->log[log].stats.written++;
	return VS_OK;
}
