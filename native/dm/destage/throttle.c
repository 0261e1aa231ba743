// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: throttle destage while others read from an origin.
 *
 * While reads come, a destage window is small, or one long request, and a pause as long as
 * the window follows it. So a read meets a short queue, and half of the origin's time is left
 * to reads. Several origins often are parts of one disk, and the block layer does
 * not tell which. So a reader of one volume throttles the destage of all volumes of
 * the pool.
 *
 * Some origins serve one request at a time. If several volumes destage to such a
 * disk, the pauses of one are filled by the windows of the others and reads gain
 * nothing. So throttled windows to such origins run one after the other, pauses
 * included: each holds vcache_pool.serial_sem.
 *
 * A log that waits for a chunk destages at full speed in spite of reads of its own
 * volume. In spite of reads of other volumes it does so with small windows, but without
 * pauses: its writers stand still, and the readers do not. A reader with one request in the
 * queue of a disk still has half of the disk's time.
 *
 * A semaphore is fair and can be waited for with a time limit. An origin that hangs
 * must not keep the data of other volumes in the cache, so after VC_SERIAL_WAIT a
 * window runs without it. Windows of very many volumes may overlap for that reason.
 */
#include <linux/delay.h>

#include "internal.h"

/* Longest pause between two windows. */
#define VC_REST_MAX_MS		200U

/* Longest wait for vcache_pool.serial_sem. */
#define VC_SERIAL_WAIT		(HZ / 2)

/*
 * vcache_volume.serial counts up with each window that looked serial and down with each
 * that did not, between 0 and VC_SERIAL_MOST. From VC_SERIAL on the origin is taken to
 * serve one request at a time. Windows of fewer than VC_SERIAL_MIN requests tell
 * nothing.
 */
#define VC_SERIAL_MIN		3U
#define VC_SERIAL_MOST		8U
#define VC_SERIAL		4U

/**
 * vcache_throttle_init - prepare a pool for throttled windows
 * @p: the pool
 */
void vcache_throttle_init(struct vcache_pool *p)
{
	sema_init(&p->serial_sem, 1);
}

/**
 * vcache_throttle_wanted - should the next window of a log be throttled?
 * @log: the log
 */
bool vcache_throttle_wanted(struct vcache_log *log)
{
	struct vcache_volume *v = log->vol;

	if (READ_ONCE(v->stopped))
		return false;
	return vcache_readers_elsewhere(v) ||
	       (vcache_readers_here(v) && !READ_ONCE(log->starved));
}

/**
 * vcache_throttle_serial - does an origin seem to serve one request at a time?
 * @v: the volume
 */
bool vcache_throttle_serial(const struct vcache_volume *v)
{
	return v->serial >= VC_SERIAL;
}

/**
 * vcache_throttle_begin - begin a throttled window
 * @v: the volume
 *
 * Waits until no other throttled window to a serial origin runs, if this origin is
 * serial.
 *
 * Return: whether vcache_pool.serial_sem is held, for vcache_throttle_end().
 */
bool vcache_throttle_begin(struct vcache_volume *v)
{
	return vcache_throttle_serial(v) &&
	       !down_timeout(&v->pool->serial_sem, VC_SERIAL_WAIT);
}

/**
 * vcache_throttle_end - pause after a throttled window, unless a writer waits for the log
 * @log: the log
 * @took: how long the window took, jiffies
 * @held: what vcache_throttle_begin() returned
 */
void vcache_throttle_end(struct vcache_log *log, unsigned long took, bool held)
{
	if (!READ_ONCE(log->starved))
		msleep(min(jiffies_to_msecs(took), VC_REST_MAX_MS));
	if (held)
		up(&log->vol->pool->serial_sem);
}

/**
 * vcache_throttle_learn - find out whether an origin serves one request at a time
 * @v: the volume
 * @w: a window that has just been written to it, alone
 *
 * If it does, n requests take n times as long as the first; if not, hardly longer. The
 * threshold is a quarter of the way from 1 to n times, because the first request may
 * have waited in a queue.
 */
void vcache_throttle_learn(struct vcache_volume *v, const struct vcache_window *w)
{
	u64 took = w->ended - w->began, first = w->first - w->began;

	if (w->requests < VC_SERIAL_MIN)
		return;
	if (took * 4 >= first * (w->requests + 3))
		v->serial = min(v->serial + 1, VC_SERIAL_MOST);
	else if (v->serial)
		v->serial--;
}
