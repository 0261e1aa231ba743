// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: who reads from an origin now. Destage and prefetches give way to readers.
 */
#include "internal.h"

/* A read counts for so long. */
#define VC_READ_RECENT		(HZ / 5)

static bool vc_recent(const unsigned long *at)
{
	return time_before(jiffies, READ_ONCE(*at) + VC_READ_RECENT);
}

/* Store once a jiffy only: readers of all volumes share the cache line. */
static void vc_stamp(unsigned long *at)
{
	unsigned long now = jiffies;

	if (READ_ONCE(*at) != now)
		WRITE_ONCE(*at, now);
}

/**
 * vcache_readers_init - start without recent reads
 * @p: the pool
 */
void vcache_readers_init(struct vcache_pool *p)
{
	p->read_at = jiffies - VC_READ_RECENT;
	p->mixed_at = p->read_at;
}

/**
 * vcache_readers_note - note that a read is sent to an origin
 * @v: the volume
 *
 * Called in any context, without a lock. If two volumes race, one of them may be missed
 * until its next read.
 */
void vcache_readers_note(struct vcache_volume *v)
{
	struct vcache_pool *p = v->pool;

	vc_stamp(&v->read_at);
	if (READ_ONCE(p->reader) != v->id) {
		if (vc_recent(&p->read_at))
			vc_stamp(&p->mixed_at);
		WRITE_ONCE(p->reader, v->id);
	}
	vc_stamp(&p->read_at);
}

/**
 * vcache_readers_any - was an origin of the pool read recently?
 * @p: the pool
 */
bool vcache_readers_any(const struct vcache_pool *p)
{
	return vc_recent(&p->read_at);
}

/**
 * vcache_readers_here - was the origin of a volume read recently?
 * @v: the volume
 */
bool vcache_readers_here(const struct vcache_volume *v)
{
	return vc_recent(&v->read_at);
}

/**
 * vcache_readers_elsewhere - was the origin of another volume read recently?
 * @v: the volume
 *
 * If reads of two volumes alternate, one was.
 */
bool vcache_readers_elsewhere(const struct vcache_volume *v)
{
	const struct vcache_pool *p = v->pool;

	return vc_recent(&p->mixed_at) ||
	       (READ_ONCE(p->reader) != v->id && vcache_readers_any(p));
}
