// SPDX-License-Identifier: Apache-2.0
/*
 * TRIM: a range of blocks that is not mapped any more.
 *
 * It belongs to the tag that has asked for it, as a write does, and is one
 * change in the log of that tag, however long it is. So the old places of its
 * blocks cannot be noted one by one (vs_log.old), and they must stay until the
 * TRIM is durable (rule 3). For this, TRIMs have numbers: a log knows the
 * number of its oldest one that is not durable, and an erase block that of the
 * newest one that took something out of it. Such a block waits for all TRIMs
 * up to that number, of whichever tag.
 */
#include "internal.h"

/**
 * vs_trim_holds - does an erase block wait for a TRIM to be durable?
 * @s: the device
 * @block: index
 */
bool vs_trim_holds(const struct vs_ssd *s, uint32_t block)
{
	return s->trim_oldest && s->block[block].trim >= s->trim_oldest;
}

/**
 * vs_trim_durable - the TRIMs of a log are durable
 * @s: the device
 * @log: the log
 *
 * Blocks that have only waited for them are free.
 */
void vs_trim_durable(struct vs_ssd *s, struct vs_log *log)
{
	uint32_t before = s->trim_oldest, oldest = 0, i, k;

	if (!log->trim)
		return;
	log->trim = 0;
	for (i = 0; i < s->logs; i++) {
		if (s->log[i].trim && (!oldest || s->log[i].trim < oldest))
			oldest = s->log[i].trim;
	}
	s->trim_oldest = oldest;
	for (i = 0; oldest != before && i < s->banks; i++) {
		uint32_t first = i * s->c.geometry.blocks;

		for (k = 0; s->bank[i].pending && k < s->c.geometry.blocks; k++)
			vs_release(s, first + k);
	}
}

/**
 * vs_trim_forget - all TRIMs are durable: there is a checkpoint
 * @s: the device
 */
void vs_trim_forget(struct vs_ssd *s)
{
	uint32_t i;

	for (i = 0; i < s->logs; i++)
		s->log[i].trim = 0;
	for (i = 0; i < s->blocks_all; i++)
		s->block[i].trim = 0;
	s->trims = 0;
	s->trim_oldest = 0;
}

/* Is a block of the range mapped, or perhaps on the NAND? */
static bool is_needed(const struct vs_ssd *s, uint32_t lpn, uint32_t count)
{
	uint32_t i;

	for (i = 0; !s->trim_oldest && i < count && s->map[lpn + i] == VS_NONE;
	     i++)
		;
	return i < count;
}

static void trim_run(struct vs_ssd *s, uint32_t log, uint32_t lpn,
		     uint32_t count, vs_time now)
{
	struct vs_log *l = &s->log[log];

	if (!count || !is_needed(s, lpn, count))
		return;
	/* With the same number they are durable together. */
	s->trims += s->trims < UINT32_MAX;
	if (!l->trim)
		l->trim = s->trims;
	if (!s->trim_oldest)
		s->trim_oldest = s->trims;
	vs_log_room(s, log, 1);
	vs_map_trim(s, log, lpn, count, now);
}

/*
 * As with a write: what is another tag's in the buffer becomes hTag's, whose
 * changes every flush covers, and so that tag's too.
 */
struct vs_result vs_trim(struct vs_ssd *s, vs_time now, uint32_t tag,
			 uint64_t block, uint64_t count)
{
	uint32_t log, first = (uint32_t)block, to, i;

	if (block > s->blocks || count > s->blocks - block)
		return (struct vs_result){ VS_EINVAL, now };
	if (s->status != VS_OK)
		return (struct vs_result){ s->status, now };
	log = vs_tag_get(s, tag);
	s->taker = log;
	to = log;
	for (i = first; i < block + count; i++) {
		uint32_t e = vs_buffer_find(s, i), next = log;

		if (e != VS_NONE) {
			if (s->entry[e].log != log)
				next = VS_HTAG_LOG;
			vs_buffer_drop(s, e, now);
		}
		if (next == to)
			continue;
		trim_run(s, to, first, i - first, now);
		first = i;
		to = next;
	}
	trim_run(s, to, first, i - first, now);
	return (struct vs_result){ VS_OK, now };
}
