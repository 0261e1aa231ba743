// SPDX-License-Identifier: Apache-2.0
/*
 * Flushes of a few blocks without a log page.
 *
 * The spare bytes of a data page have all that a log page would have: which
 * blocks, and a number that puts the changes in order. So a page can be durable
 * by itself, if recovery looks for it (forward.c). Its changes then need no
 * room in the tag's log.
 *
 * One program is not enough for a promise: if that page cannot be read after a
 * power cut, nothing shows that it had ever been complete. So by default it is
 * programmed twice, side by side on two banks, and takes the time of one. The
 * second copy stays until the next checkpoint.
 */
#include "internal.h"

/**
 * vs_sync_room - may one more page be durable by itself?
 * @s: the device
 *
 * Recovery has memory for sync_max pages since the checkpoint.
 */
bool vs_sync_room(const struct vs_ssd *s)
{
	return s->syncs + s->c.sync_copies <= s->sync_max;
}

/**
 * vs_sync_wanted - should the pages of a flush be durable by themselves?
 * @s: the device
 * @log: index of the log of the tag
 * @blocks: that the flush will program
 *
 * Return: false when it takes a log page anyway, or there are too many blocks.
 */
bool vs_sync_wanted(const struct vs_ssd *s, uint32_t log, uint64_t blocks)
{
	const struct vs_log *l = &s->log[log], *host = &s->log[VS_HTAG_LOG];

	return blocks <= (uint64_t)s->c.sync_pages * s->slots &&
	       !l->full && l->durable == l->count &&
	       !host->full && host->durable == host->count;
}

/**
 * vs_sync_copy - what a page that is durable by itself needs besides
 * @s: the device; s->page and s->oob are the page
 * @lane: of the page
 * @handle: of the page
 * @now: time
 * @first: where it has been programmed, a page address; the map says so
 * @done: when it is programmed; then, when its copy is too
 */
enum vs_status vs_sync_copy(struct vs_ssd *s, uint32_t lane, uint32_t handle,
			    vs_time now, uint32_t first, vs_time *done)
{
	uint32_t address[2] = { first };
	enum vs_status status;
	uint32_t i;
	vs_time second;

	vs_mark_page_committed(s, first);
	s->syncs++;
	s->stats.sync_pages++;
	if (s->c.sync_copies < 2)
		return VS_OK;
	s->oob->flags |= VS_OOB_COPY;
	s->avoid = first / s->c.geometry.pages / s->c.geometry.blocks;
	status = s->placement->program(s, lane, handle, now, s->page, s->oob,
				       &address[1], &second);
	s->avoid = VS_NONE;
	if (status != VS_OK)
		return status;
	vs_mark_page_committed(s, address[1]);
	s->block[address[1] / s->c.geometry.pages].copies++;
	s->syncs++;
	s->stats.sync_pages++;
	*done = vs_later(*done, second);
	vs_copied(s, address, *done);
	for (i = 0; i < 2; i++)
		s->bank[address[i] / s->c.geometry.pages / s->c.geometry.blocks]
			.copied_at = *done;
	return VS_OK;
}

/**
 * vs_sync_durable - changes of a log that need no log page are durable
 * @s: the device
 * @log: the log: all its changes that are not durable are such
 * @now: time
 * @done: when they are
 *
 * They leave the log: its pages do not have to name them.
 */
void vs_sync_durable(struct vs_ssd *s, struct vs_log *log, vs_time now,
		     vs_time *done)
{
	uint32_t first = log->durable;

	*done = vs_later(vs_later(now, log->commit_done), log->data_done);
	log->commit_done = *done;
	s->commit_done = vs_later(s->commit_done, *done);
	vs_log_durable(s, log);
	log->count = first;
	log->durable = first;
}
