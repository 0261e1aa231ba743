// SPDX-License-Identifier: Apache-2.0
/*
 * Tag-based map-table logging (vFLUSH, section III-D).
 *
 * Each tag has a log area of one page in memory, with every change of the map
 * since the checkpoint that its blocks have caused. A flush programs the area
 * of its tag as it is, whole and hence atomically, and no other's. When an
 * area is full, the tag's next flush is a checkpoint, which makes all of them
 * empty; who never flushes needs none. Garbage collection logs
 * what it moves in an area of its own: replaying all areas in the order of the
 * changes gives the map, whoever made them.
 */
#include "internal.h"

/**
 * vs_log_room - see to it that a log area has room, or needs none
 * @s: the device
 * @log: index
 * @n: entries
 *
 * What does not fit is not logged, nor is what is not durable of the area: all
 * of it becomes durable with a checkpoint, or not at all.
 */
void vs_log_room(struct vs_ssd *s, uint32_t log, uint32_t n)
{
	struct vs_log *l = &s->log[log];

	if (l->full || l->count + n <= s->log_entries)
		return;
	l->full = true;
	s->full_logs++;
	l->unlogged = l->count - l->durable;
	l->count = l->durable;
	l->sync = 0;
}

/**
 * vs_log_durable - all changes in a log area are durable
 * @s: the device
 * @log: the log
 *
 * What they replaced is not needed any more.
 */
void vs_log_durable(struct vs_ssd *s, struct vs_log *log)
{
	for (; log->durable < log->count; log->durable++) {
		uint32_t old = log->old[log->durable];

		if (!vs_mapped(old))
			continue;
		s->block[vs_block_of(s, old)].unsafe--;
		vs_release(s, vs_block_of(s, old));
	}
	log->lanes = 0;
	log->sync = 0;
	vs_trim_durable(s, log);
}

/*
 * When the log page may be programmed: not before its data is there, nor while
 * a word line with such data is being programmed further (rules 1 and 2). And
 * not before the checkpoint that it names exists: so a log page without its
 * checkpoint shows that the media has lost that.
 */
static vs_time earliest(const struct vs_ssd *s, const struct vs_log *log,
			vs_time now)
{
	uint32_t i;

	now = vs_later(now, log->data_done);
	now = vs_later(now, s->root_done);
	for (i = 0; i < s->c.lanes; i++) {
		if (log->lanes & 1u << i)
			now = vs_later(now, s->lane[i].msb_done);
	}
	return now;
}

/**
 * vs_log_commit - make all changes in a log area durable
 * @s: the device
 * @log: index
 * @now: time
 * @done: when they are
 *
 * In the Baseline personality, when they were more than the area takes, and
 * when metadata is short of room, that is a checkpoint. Pages that are durable
 * by themselves need nothing, until there are too many for recovery.
 */
enum vs_status vs_log_commit(struct vs_ssd *s, uint32_t log, vs_time now,
			     vs_time *done)
{
	struct vs_log *l = &s->log[log];
	struct vs_meta *meta = (struct vs_meta *)l->page;
	enum vs_status status;
	uint32_t address[2];
	vs_time at;

	if (s->c.personality == VS_BASELINE || l->full)
		return vs_checkpoint(s, now, done);
	*done = vs_later(now, l->commit_done);
	if (l->durable == l->count)
		return VS_OK;
	if (vs_meta_tight(s) || (l->sync && !vs_sync_room(s)))
		return vs_checkpoint(s, now, done);
	if (l->durable + l->sync == l->count) {
		vs_sync_durable(s, l, now, done);
		return VS_OK;
	}
	*meta = (struct vs_meta){
		.type = VS_PAGE_LOG,
		.checkpoint = s->checkpoint,
		.index = log,
		.count = l->count,
		.tag = l->tag,
	};
	status = vs_program_twice(s, vs_tag_lane(s, log), earliest(s, l, now),
				  l->page, address, &at);
	if (status != VS_OK)
		return status;
	*done = vs_later(*done, at);
	vs_mark_log_committed(s, l, address);
	l->commit_done = *done;
	l->stats.log_pages++;
	s->commit_done = vs_later(s->commit_done, *done);
	vs_log_durable(s, l);
	return VS_OK;
}
