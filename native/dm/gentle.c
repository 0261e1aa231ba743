// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: destage leaves the origins to those who read from them.
 *
 * While reads come, a window is small, and after it there is a rest for as long
 * as it has taken: a read finds no long queue, and half of the origin's time is
 * its own. Origins often are parts of one disk, of which the block layer tells
 * us nothing: a reader of one volume so makes the destage of all volumes of the
 * pool gentle. And where the origin does one request after the other, half the
 * time is no longer anybody's when many rest by turns, so those windows take
 * turns, the rest included.
 *
 * Who waits for a chunk has its own data destaged at full speed in spite of its
 * own reads, but not of others': it is to wait, not they.
 *
 * A turn is a semaphore, for that is fair and can be waited for with an end: an
 * origin that hangs must not keep others' data in the cache. After that time a
 * window goes without; with so many volumes that turns take longer, some overlap.
 */
#include <linux/delay.h>

#include "round.h"

/* Reads that came so long ago still count. */
#define VC_READ_RECENT		(HZ / 5)

/* Longest rest between two windows. */
#define VC_REST_MAX_MS		200U

/* And longest wait for a turn. */
#define VC_TURN_MAX		(HZ / 2)

/*
 * An origin does one request after the other when most windows of late, of so
 * many requests at least, said so.
 */
#define VC_SERIAL_MIN		3U
#define VC_SERIAL_MOST		8U
#define VC_SERIAL		4U

static bool vc_recent(const unsigned long *at)
{
	return time_before(jiffies, READ_ONCE(*at) + VC_READ_RECENT);
}

/* Readers of all volumes do this: once a jiffy, or they would fight for the line. */
static void vc_stamp(unsigned long *at)
{
	unsigned long now = jiffies;

	if (READ_ONCE(*at) != now)
		WRITE_ONCE(*at, now);
}

/**
 * vc_gentle_init - nobody has read
 * @p: the pool
 */
void vc_gentle_init(struct vc_pool *p)
{
	sema_init(&p->turn, 1);
	p->read_at = jiffies - VC_READ_RECENT;
	p->mixed_at = p->read_at;
}

/**
 * vc_gentle_read - a read is sent to the origin
 * @v: the volume
 *
 * Any context, without a lock: a race may leave one of two readers out, until
 * its next read.
 */
void vc_gentle_read(struct vc_volume *v)
{
	struct vc_pool *p = v->pool;

	vc_stamp(&v->read_at);
	if (READ_ONCE(p->reader) != v->id) {
		if (vc_recent(&p->read_at))
			vc_stamp(&p->mixed_at);
		WRITE_ONCE(p->reader, v->id);
	}
	vc_stamp(&p->read_at);
}

/**
 * vc_pool_is_read - does somebody read from an origin?
 * @p: the pool
 */
bool vc_pool_is_read(const struct vc_pool *p)
{
	return vc_recent(&p->read_at);
}

/* Has somebody else read from an origin? One of two who mix is. */
static bool vc_gentle_others(struct vc_volume *v)
{
	struct vc_pool *p = v->pool;

	return vc_recent(&p->mixed_at) ||
	       (READ_ONCE(p->reader) != v->id && vc_pool_is_read(p));
}

/**
 * vc_gentle - should a window of this log be a gentle one?
 * @log: the log
 */
bool vc_gentle(struct vc_log *log)
{
	struct vc_volume *v = log->vol;

	if (READ_ONCE(v->stopped))
		return false;
	return vc_gentle_others(v) ||
	       (vc_recent(&v->read_at) && !READ_ONCE(log->starved));
}

/**
 * vc_gentle_begin - wait for the turn of a gentle window, if there are turns
 * @v: the volume
 *
 * Return: whether it has one; vc_gentle_end() wants to know.
 */
bool vc_gentle_begin(struct vc_volume *v)
{
	return v->serial >= VC_SERIAL && !down_timeout(&v->pool->turn, VC_TURN_MAX);
}

/**
 * vc_gentle_end - rest after a gentle window
 * @v: the volume
 * @took: how long the window took, jiffies
 * @turn: it had a turn
 */
void vc_gentle_end(struct vc_volume *v, unsigned long took, bool turn)
{
	msleep(min(jiffies_to_msecs(took), VC_REST_MAX_MS));
	if (turn)
		up(&v->pool->turn);
}

/**
 * vc_gentle_learn - find out whether the origin does one request after the other
 * @v: the volume
 * @r: a round that has just written some to it
 *
 * If it does, n requests take n times as long as the first of them; if not, hardly
 * longer. A quarter of the way is the border: the first may have found a queue. One
 * window tells little.
 */
void vc_gentle_learn(struct vc_volume *v, const struct vc_round *r)
{
	u64 took = ktime_get_ns() - r->began, first = r->first - r->began;

	if (r->requests < VC_SERIAL_MIN)
		return;
	if (took * 4 >= first * (r->requests + 3))
		v->serial = min(v->serial + 1, VC_SERIAL_MOST);
	else if (v->serial)
		v->serial--;
}
