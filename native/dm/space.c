// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: room in the cache: who gets chunks, and whose go.
 *
 * A log may have more than its share while a tenth of the pool is free; that
 * tenth is for logs below theirs. So a tag that writes faster than its origin
 * can follow ends up waiting for its own destage, and nobody else does. Every
 * log can have two chunks to write to, whatever its share. The last two that are
 * free are for carrying (see below), and nobody else writes when these are in use.
 *
 * How much is whose share: share.c. When chunks run short the oldest one of a log
 * goes, of the log furthest over its share first. What counts in it has to be on
 * the origin. First the chunk table says that it is dead, then it is trimmed,
 * then it is free.
 *
 * Where none can go like that, and most of what a log has in the cache is
 * superseded, the rest of its oldest chunk is carried to its end: so a log
 * whose data fits into the cache does not wait for its origin.
 *
 * DOC: Waking up
 *
 * Once the pool is said to be short of space, whatever lets one more chunk go
 * has to call vc_space_kick(), or writers wait for ever: nothing dirty is left
 * in a chunk (vc_cell_settled()), who kept one we wanted lets go of it
 * (vc_lookup_done()), a seal is there, something is discarded. What merely has
 * to be tried again is, after VC_SPACE_RETRY.
 */
#include <linux/blkdev.h>
#include <linux/delay.h>

#include "reads.h"

/* Chunks that are carried before others get their turn. */
#define VC_CARRY_BATCH 4U

/* Chunks that go in a tick because they are above a limit. */
#define VC_DEFLATE_BATCH 4U

/* When something could not be done now, look again after so long. */
#define VC_SPACE_RETRY 1UL

static u32 vc_pool_reserve(const struct vc_pool *p)
{
	return (p->g.chunks - p->g.first_chunk) / 10;
}

/* May a log have one more chunk, by its share and by what others need? */
static bool vc_log_may_grow(struct vc_pool *p, struct vc_log *log)
{
	u32 has = vc_log_chunks(log);

	return has < READ_ONCE(log->most) &&
	       (p->nfree > vc_pool_reserve(p) || has < READ_ONCE(log->share));
}

/* Called with the lock of the free list. */
static bool vc_chunk_may_take(struct vc_pool *p, struct vc_log *log,
			      enum vc_take take)
{
	/* Without one to carry to, no chunk could go whose data has to last. */
	if (p->nfree <= (take == VC_TAKE_CARRY ? 0 : vc_pool_for_carry(p)))
		return false;
	switch (take) {
	case VC_TAKE_WRITE:
		return log->nr < VC_CHUNKS_MIN || vc_log_may_grow(p, log);
	case VC_TAKE_READ:
		return vc_log_may_grow(p, log);
	default:
		/* It makes more of them free. */
		return true;
	}
}

/**
 * vc_chunk_take - take a free chunk for a log
 * @p: the pool
 * @log: the log, its lock is held
 * @take: what for
 *
 * Return: NULL when there is none, or the log has to leave it to others.
 */
struct vc_chunk *vc_chunk_take(struct vc_pool *p, struct vc_log *log,
			       enum vc_take take)
{
	struct vc_chunk *c = NULL;
	unsigned long flags;

	spin_lock_irqsave(&p->free_lock, flags);
	if (vc_chunk_may_take(p, log, take)) {
		c = list_first_entry(&p->free, struct vc_chunk, node);
		list_del_init(&c->node);
		c->state = VC_CHUNK_SPARE;
		p->nfree--;
	}
	spin_unlock_irqrestore(&p->free_lock, flags);
	return c;
}

/**
 * vc_chunk_free - a chunk may be used again
 * @p: the pool
 * @c: the chunk; it is dead on the device
 */
void vc_chunk_free(struct vc_pool *p, struct vc_chunk *c)
{
	unsigned long flags;

	spin_lock_irqsave(&p->free_lock, flags);
	p->found[vc_chunk_nr(p, c)].gen = 0;
	c->log = NULL;
	c->gen = 0;
	c->reads = NULL;
	WRITE_ONCE(c->lives, c->lives + 1);
	c->state = VC_CHUNK_FREE;
	list_add_tail(&c->node, &p->free);
	p->nfree++;
	spin_unlock_irqrestore(&p->free_lock, flags);
}

/**
 * vc_chunk_release - nothing is in a chunk any more: trim it, and free it
 * @p: the pool
 * @c: the chunk; it is dead on the device
 */
void vc_chunk_release(struct vc_pool *p, struct vc_chunk *c)
{
	u64 block = (u64)vc_chunk_nr(p, c) * p->g.chunk_blocks;

	if (bdev_max_discard_sectors(p->bdev))
		blkdev_issue_discard(p->bdev, block * VC_BLOCK_SECTORS,
				     p->g.chunk_blocks * VC_BLOCK_SECTORS,
				     GFP_NOIO);
	vc_chunk_free(p, c);
}

/* Have the next chunk ready before a flush needs it. */
static void vc_log_provide(struct vc_log *log)
{
	struct vc_pool *p = log->vol->pool;
	bool wake = false;

	spin_lock_irq(&log->lock);
	if (!log->spare && rcu_access_pointer(log->user) &&
	    (log->starved || log->nr)) {
		log->spare = vc_chunk_take(p, log, VC_TAKE_WRITE);
		/* With one there already, it is not a chunk that it lacks. */
		wake = log->spare && log->starved;
	}
	if (log->held && READ_ONCE(p->nfree) >= vc_pool_for_carry(p)) {
		log->held = false;
		wake = true;
	}
	spin_unlock_irq(&log->lock);
	if (wake)
		vc_log_wake(log);
}

/*
 * Called with the lock of the log held. Who reads from the chunk keeps it, and
 * would hold up all others who wait for room.
 */
static bool vc_chunk_may_die(struct vc_chunk *c)
{
	if (c->state != VC_CHUNK_SEALED || atomic_read(&c->dirty))
		return false;
	if (!atomic_read(&c->users))
		return true;
	WRITE_ONCE(c->wanted, true);
	smp_mb(); /* the last one that has it lets go first, and looks then */
	return !atomic_read(&c->users);
}

/* Are so many chunks of a log more than so many percent of what it has? */
static bool vc_log_exceeds(struct vc_log *log, u32 nr, u32 percent)
{
	return (u64)nr * 100 > (u64)vc_log_chunks(log) * percent;
}

/* The oldest chunk of a list of a log, if it may go; or NULL. */
static struct vc_chunk *vc_log_oldest(struct list_head *list)
{
	struct vc_chunk *c = list_first_entry_or_null(list, struct vc_chunk,
						      node);

	return c && vc_chunk_may_die(c) ? c : NULL;
}

/*
 * The chunk of a log that goes first, if there is one that may go; or NULL.
 * What was missed once has little room; what was written goes before what was
 * read, until most of it was read.
 */
static struct vc_chunk *vc_log_victim(struct vc_log *log)
{
	struct vc_reads *small = &log->reads[VC_READS_SMALL];
	struct vc_reads *main = &log->reads[VC_READS_MAIN];
	struct vc_chunk *c = NULL;
	bool reads;

	spin_lock_irq(&log->lock);
	reads = vc_log_exceeds(log, vc_log_reads(log),
			       READ_ONCE(log->vol->pool->reads_percent));
	if (vc_log_exceeds(log, small->nr, VC_SMALL_PERCENT))
		c = vc_log_oldest(&small->chunks);
	c = c ?: vc_log_oldest(reads ? &main->chunks : &log->chunks) ?:
	    vc_log_oldest(reads ? &log->chunks : &main->chunks) ?:
	    vc_log_oldest(&small->chunks);
	spin_unlock_irq(&log->lock);
	return c;
}

/* How far is a log over its share, in thousandths of it? */
static u64 vc_log_excess(struct vc_log *log)
{
	return div_u64((u64)vc_log_chunks(log) * 1000, log->share + 1);
}

/* The chunk that @of finds in the log furthest over its share, or NULL. */
static struct vc_chunk *vc_pool_first(struct vc_pool *p,
				      struct vc_chunk *(*of)(struct vc_log *))
{
	struct vc_chunk *c, *first = NULL;
	struct vc_volume *v;
	struct vc_log *log;
	u64 most = 0;

	list_for_each_entry(v, &p->volumes, node) {
		list_for_each_entry(log, &v->logs, node) {
			if (first && vc_log_excess(log) <= most)
				continue;
			c = of(log);
			if (c) {
				first = c;
				most = vc_log_excess(log);
			}
		}
	}
	return first;
}

/*
 * The oldest chunk of a log, if carrying pays: where three quarters of what
 * the log has are dirty, a chunk that is gained costs three that are copied.
 */
static struct vc_chunk *vc_log_burden(struct vc_log *log)
{
	struct vc_volume *v = log->vol;
	struct vc_chunk *c, *first;
	u64 dirty = 0;

	if (READ_ONCE(v->stopped) || READ_ONCE(v->drain) ||
	    v->pool->state != VC_POOL_OK)
		return NULL;
	spin_lock_irq(&log->lock);
	list_for_each_entry(c, &log->chunks, node)
		dirty += atomic_read(&c->dirty);
	first = list_first_entry_or_null(&log->chunks, struct vc_chunk, node);
	if (first && (first->state != VC_CHUNK_SEALED ||
		      !atomic_read(&first->dirty) ||
		      dirty * 4 > (u64)log->nr * 3 *
				 vc_log_room(&v->pool->g)))
		first = NULL;
	spin_unlock_irq(&log->lock);
	return first;
}

/* The newest chunk of a log that is stale, or NULL. */
static struct vc_chunk *vc_log_stale(struct vc_log *log)
{
	struct vc_chunk *c, *stale = NULL;

	spin_lock_irq(&log->lock);
	list_for_each_entry_reverse(c, &log->chunks, node) {
		if (READ_ONCE(c->stale)) {
			stale = c;
			break;
		}
	}
	spin_unlock_irq(&log->lock);
	return stale;
}

/* Seal a chunk again. Return: 0 or a negative errno. */
static int vc_chunk_refresh(struct vc_pool *p, struct vc_chunk *c)
{
	int r;

	WRITE_ONCE(c->stale, false);
	smp_mb(); /* what makes it stale again empties the cell first */
	r = vc_chunk_reseal(&p->store, &p->g, &p->ix, vc_chunk_nr(p, c),
			    c->gen, p->work);
	if (r)
		WRITE_ONCE(c->stale, true);
	return r;
}

/*
 * Seal the stale chunks of a log again, and those before them: what goes from
 * a seal may have hidden something older. Chunks leave the list only under the
 * lock of the pool, which is held.
 */
static int vc_log_refresh(struct vc_pool *p, struct vc_log *log)
{
	struct vc_chunk *c, *last = vc_log_stale(log);
	int r = 0;

	if (!last)
		return 0;
	if (READ_ONCE(last->state) != VC_CHUNK_SEALED) {
		/* Its seal brings us back here. */
		vc_log_close_idle(log);
		return -EAGAIN;
	}
	list_for_each_entry(c, &log->chunks, node) {
		r = vc_chunk_refresh(p, c);
		if (r || c == last)
			break;
	}
	return r;
}

/*
 * Take out of the seals of other logs what records have superseded that are
 * to go now: it must not come back to life. See rule 2 in format.h. Return: 0,
 * or -EAGAIN when a chunk has no seal yet.
 */
static int vc_kill_reseal(struct vc_pool *p, struct vc_log *log)
{
	struct vc_log *other;
	int r = 0;

	list_for_each_entry(other, &log->vol->logs, node) {
		if (other != log && !r)
			r = vc_log_refresh(p, other);
	}
	return r;
}

/*
 * Say on the device that a chunk is dead; one of reads never was alive there.
 * Return: 0 or a negative errno.
 */
static int vc_chunk_bury(struct vc_pool *p, struct vc_chunk *c)
{
	struct vc_log *log = c->log;
	u32 nr = vc_chunk_nr(p, c);
	int r;

	if (c->reads)
		return 0;
	r = vc_kill_reseal(p, log) ?: vc_volume_harden(log->vol);
	if (r)
		return r;
	mutex_lock(&p->table_lock);
	vc_table_entry(p, nr)->dead = cpu_to_le64(c->gen);
	r = vc_table_save(p, nr);
	mutex_unlock(&p->table_lock);
	return r;
}

/*
 * From here on no round takes the chunk: it would find it in other hands when
 * it says that it is clean. Return: false when a round has it already.
 */
static bool vc_chunk_doom(struct vc_log *log, struct vc_chunk *c)
{
	bool may;

	spin_lock_irq(&log->lock);
	may = vc_chunk_may_die(c);
	if (may)
		c->state = VC_CHUNK_DYING;
	spin_unlock_irq(&log->lock);
	return may;
}

/*
 * Let the oldest chunk of a log die. Until that is durable the index has what
 * is in it: what supersedes that has to know, see vc_kill_reseal(). Return: 0
 * or a negative errno.
 */
static int vc_chunk_kill(struct vc_pool *p, struct vc_chunk *c)
{
	struct vc_log *log = c->log;
	u32 cell = vc_chunk_nr(p, c) * p->g.chunk_blocks, i;
	int r;

	if (!vc_chunk_doom(log, c))
		return -EAGAIN;
	r = vc_chunk_bury(p, c);
	if (r) {
		spin_lock_irq(&log->lock);
		c->state = VC_CHUNK_SEALED;
		spin_unlock_irq(&log->lock);
		return r;
	}
	for (i = 0; i < vc_log_room(&p->g); i++)
		vc_lookup_drop(p, cell + i);
	/* Who found it before is still reading; nobody finds it any more. */
	while (atomic_read(&c->users))
		usleep_range(50, 200);
	spin_lock_irq(&log->lock);
	list_del_init(&c->node);
	if (c->reads)
		c->reads->nr--;
	else
		log->nr--;
	if (!c->clean)
		log->dirty--;
	spin_unlock_irq(&log->lock);
	vc_chunk_release(p, c);
	return 0;
}

/* Chunks that should be free: the reserve, and one for each log. */
static u32 vc_pool_low(struct vc_pool *p)
{
	u32 chunks = p->g.chunks - p->g.first_chunk, low;

	low = vc_pool_reserve(p) + p->nlogs + 1;
	return min(low, chunks / 2);
}

/*
 * Nothing can go of what is known: find out what a volume has that was not
 * used since the pool was loaded. Return: there was one.
 */
static bool vc_pool_look_further(struct vc_pool *p)
{
	struct vc_volume *v;

	list_for_each_entry(v, &p->volumes, node) {
		if (!v->replayed && !v->dev)
			return !vc_volume_start(v);
	}
	return false;
}

/* Carry a chunk, @left at most. Return: false: not now; there is more to do. */
static bool vc_pool_carry(struct vc_pool *p, struct vc_chunk *c, u32 *left)
{
	unsigned long delay = 0;

	if (*left) {
		(*left)--;
		if (vc_carry_chunk(c->log, c))
			return true;
		delay = VC_SPACE_RETRY;
	}
	mod_delayed_work(p->wq, &p->space_work, delay);
	return false;
}

/* Keep what is hot in a chunk, and let it die. Return: false: not now. */
static bool vc_pool_kill(struct vc_pool *p, struct vc_chunk *c)
{
	int r;

	vc_reads_keep(c);
	r = vc_chunk_kill(p, c);

	if (r == -EAGAIN)
		mod_delayed_work(p->wq, &p->space_work, VC_SPACE_RETRY);
	return !r;
}

/*
 * Let go what logs have above their limits, a few chunks at a time: others use
 * the device, too. What is dirty goes when it is on the origin; with its share
 * that has become small as well.
 */
static void vc_pool_deflate(struct vc_pool *p)
{
	u32 left = VC_DEFLATE_BATCH;
	struct vc_volume *v;
	struct vc_log *log;
	struct vc_chunk *c;

	list_for_each_entry(v, &p->volumes, node) {
		list_for_each_entry(log, &v->logs, node) {
			while (left && vc_log_chunks(log) >= log->most) {
				c = vc_log_victim(log);
				if (!c || !vc_pool_kill(p, c))
					break;
				left--;
			}
		}
	}
	if (!left)
		mod_delayed_work(p->wq, &p->space_work, VC_SPACE_RETRY);
}

static void vc_pool_make_room(struct vc_pool *p)
{
	u32 left = VC_CARRY_BATCH;
	struct vc_chunk *c, *burden;
	struct vc_volume *v;
	bool more = true, clean = true;

	WRITE_ONCE(p->short_of_space, p->nfree < vc_pool_low(p));
	smp_mb(); /* what we do not see yet of the chunks, kicks us */
	while (more && READ_ONCE(p->nfree) < vc_pool_low(p)) {
		c = vc_pool_first(p, vc_log_victim);
		burden = c ? NULL : vc_pool_first(p, vc_log_burden);
		clean = c;
		if (c)
			more = vc_pool_kill(p, c);
		else if (burden)
			more = vc_pool_carry(p, burden, &left);
		else
			more = vc_pool_look_further(p);
		cond_resched();
	}
	WRITE_ONCE(p->short_of_space, p->nfree < vc_pool_low(p));
	WRITE_ONCE(p->short_of_clean, p->short_of_space && !clean);
	if (!p->short_of_space)
		return;
	list_for_each_entry(v, &p->volumes, node) {
		if (!v->stopped && !v->failing)
			mod_delayed_work(p->wq, &v->destage, 0);
	}
}

/**
 * vc_space_work - give out chunks, and let old ones go
 * @work: vc_pool.space_work
 */
void vc_space_work(struct work_struct *work)
{
	struct vc_pool *p = container_of(to_delayed_work(work), struct vc_pool,
					 space_work);
	struct vc_volume *v;
	struct vc_log *log;

	mutex_lock(&p->lock);
	vc_pool_share(p);
	vc_pool_deflate(p);
	vc_pool_make_room(p);
	list_for_each_entry(v, &p->volumes, node) {
		list_for_each_entry(log, &v->logs, node)
			vc_log_provide(log);
	}
	mutex_unlock(&p->lock);
}

/**
 * vc_log_clear - let all chunks of a log die
 * @log: the log; its pool is locked, nothing uses it, all it has is clean
 *
 * Return: 0 or a negative errno.
 */
int vc_log_clear(struct vc_log *log)
{
	struct vc_pool *p = log->vol->pool;
	struct vc_chunk *c;
	int r = 0;

	vc_reads_close(log);
	while (!r && (c = vc_log_victim(log)))
		r = vc_chunk_kill(p, c);
	return r ?: vc_log_chunks(log) ? -EBUSY : 0;
}
