// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: migration: hot blocks in shared lanes change places with cold blocks in the
 * dedicated lanes of a tag, see ../core/place.h.
 *
 * A hot chunk in shared lanes is reclaimed, and its hot blocks are copied to the
 * dedicated lanes. If there is no space for them, the coldest of the oldest chunks there
 * is reclaimed first, and its cold blocks are copied to the shared lanes. If the log may
 * have no more chunks in the shared lanes, one of its own chunks there is reclaimed before
 * that, so other logs lose nothing.
 *
 * If the oldest chunks in the dedicated lanes are not colder, nothing is exchanged. The
 * next ones are looked at, and heat decays (vc_log_cool()), so only blocks that are read
 * again stay hot.
 *
 * The copies are paid for with the credit of the log, as those of kept blocks are (see
 * vcache_log_paid()). A few chunks migrate at a time, because others use the device, too.
 *
 * A written chunk cannot be reclaimed before older ones. So hot blocks in the middle of a
 * log stay where they are.
 */
#include "internal.h"

/* Time between two runs while logs need migration. */
#define VC_MIGRATE_TICK		(HZ / 10 + 1)

/* The same, if the last run could not migrate anything. */
#define VC_MIGRATE_LATER	HZ

/* Chunks that migrate in one run. */
#define VC_MIGRATE_BATCH	4U

/* Chunks that one run looks at. */
#define VC_MIGRATE_LOOK		1024U

/* Is the hot part of what a log has in shared lanes above the watermark? */
static bool vc_log_needs_migration(struct vcache_log *log)
{
	u64 cells = (u64)vcache_log_has(log, VC_SHARED) *
		    vcache_chunk_capacity(&log->vol->pool->g);

	return READ_ONCE(log->lanes) && vcache_log_own_limit(log) &&
	       vcache_hot_passes(atomic_read(&log->hot), cells,
				 READ_ONCE(log->vol->pool->hot_percent));
}

/**
 * vcache_migrate_soon - a block has become hot in a shared lane
 * @log: its log
 *
 * Called in any context.
 */
void vcache_migrate_soon(struct vcache_log *log)
{
	struct vcache_pool *p = log->vol->pool;

	if (vc_log_needs_migration(log))
		queue_delayed_work(p->wq, &p->space_work, VC_MIGRATE_TICK);
}

/* Is a chunk of shared lanes hot enough to migrate, and can it be reclaimed now? */
static bool vc_chunk_can_migrate(struct vcache_pool *p, struct vcache_log *log,
				 struct vcache_chunk *c)
{
	bool may;

	if (READ_ONCE(c->log) != log || c->own || !vcache_chunk_used(c) ||
	    !vcache_hot_passes(vcache_chunk_heat(p, c, VC_HEAT_SHARED),
			       vcache_chunk_capacity(&p->g), READ_ONCE(p->hot_percent)))
		return false;
	/* Close an open chunk if there is space to migrate to; it migrates in a later run. */
	if (READ_ONCE(c->state) == VC_CHUNK_OPEN && c->reads &&
	    vcache_own_has_space(log))
		vcache_reads_close(log);
	spin_lock_irq(&log->lock);
	may = c->reads || c->warm ? vcache_chunk_reclaimable(c) :
	      vcache_log_oldest(log) == c;
	spin_unlock_irq(&log->lock);
	return may;
}

/* Find the next chunk of shared lanes that can migrate. Return: NULL if there is none. */
static struct vcache_chunk *vc_log_next_hot_chunk(struct vcache_pool *p,
						  struct vcache_log *log)
{
	u32 i, chunks = p->g.chunks - p->g.first_chunk;

	for (i = 0; i < min(chunks, VC_MIGRATE_LOOK); i++) {
		struct vcache_chunk *c;

		log->look_at = (log->look_at + 1) % chunks;
		c = &p->chunk[p->g.first_chunk + log->look_at];
		if (vc_chunk_can_migrate(p, log, c))
			return c;
		if (!(i % 64))
			cond_resched();
	}
	return NULL;
}

/* Sum up the heat of all blocks of a chunk. */
static u32 vc_chunk_total_heat(const struct vcache_pool *p, const struct vcache_chunk *c)
{
	u32 cell = vcache_chunk_nr(p, c) * p->g.chunk_blocks, sum = 0, i;

	for (i = cell; i < cell + vcache_chunk_capacity(&p->g); i++) {
		if (vcache_cell_mask(&p->ix, i))
			sum += READ_ONCE(p->heat[i]);
	}
	return sum;
}

/* Of the oldest chunks in dedicated lanes, find the coldest reclaimable one, or NULL. */
static struct vcache_chunk *vc_log_coldest(struct vcache_pool *p, struct vcache_log *log)
{
	struct vcache_chunk *oldest[VC_READS_KINDS + 1], *c = NULL;
	u32 i, heat, least = U32_MAX;

	spin_lock_irq(&log->lock);
	for (i = 0; i < VC_READS_KINDS; i++)
		oldest[i] = vcache_reads_oldest(log, i, VC_OWN);
	oldest[i] = vcache_log_oldest(log);
	spin_unlock_irq(&log->lock);
	for (i = 0; i < ARRAY_SIZE(oldest); i++) {
		if (!oldest[i] || !oldest[i]->own)
			continue;
		heat = vc_chunk_total_heat(p, oldest[i]);
		if (heat < least) {
			least = heat;
			c = oldest[i];
		}
	}
	return c;
}

static void vc_chunk_cool(struct vcache_pool *p, struct vcache_chunk *c)
{
	u32 cell = vcache_chunk_nr(p, c) * p->g.chunk_blocks, i;
	u8 heat, cooled;

	for (i = cell; i < cell + vcache_chunk_capacity(&p->g); i++) {
		heat = READ_ONCE(p->heat[i]);
		cooled = vcache_heat_cooled(heat);
		WRITE_ONCE(p->heat[i], cooled);
		/* It is not hot any more: drop it from vcache_log.hot, if it is counted there. */
		if (heat >= VC_HEAT_SHARED && cooled < VC_HEAT_SHARED)
			vcache_lookup_sort(p, i);
	}
}

/* Count the blocks that the tag of a log has read from the cache. */
static u64 vc_log_hits(struct vcache_log *log)
{
	struct vcache_tag *tag;
	u64 sectors = 0;

	rcu_read_lock();
	tag = rcu_dereference(log->user);
	if (tag)
		sectors = vcache_stats_get(tag, cache_hit_sectors);
	rcu_read_unlock();
	return sectors / VC_BLOCK_SECTORS;
}

/* Cool the next chunks of a log, in any lane: one for each chunk's worth of cache hits. */
static void vc_log_cool(struct vcache_pool *p, struct vcache_log *log)
{
	u64 hits = vc_log_hits(log);
	u32 n = vcache_cool_chunks(hits - log->cooled_at, vcache_chunk_capacity(&p->g));
	u32 i, chunks = p->g.chunks - p->g.first_chunk;

	if (n)
		log->cooled_at = hits;
	for (i = 0; n && i < min(chunks, VC_MIGRATE_LOOK); i++) {
		struct vcache_chunk *c;

		log->cool_at = (log->cool_at + 1) % chunks;
		c = &p->chunk[p->g.first_chunk + log->cool_at];
		if (READ_ONCE(c->log) != log || !vcache_chunk_used(c))
			continue;
		vc_chunk_cool(p, c);
		n--;
		cond_resched();
	}
}

/* None of the oldest read chunks in dedicated lanes was cold: look at others next. */
static void vc_log_rotate_own(struct vcache_log *log)
{
	u32 i;

	spin_lock_irq(&log->lock);
	for (i = 0; i < VC_READS_KINDS; i++)
		list_rotate_left(&log->reads[i].chunks[VC_OWN]);
	spin_unlock_irq(&log->lock);
}

/*
 * Free a shared chunk of the log, so that cold blocks can be copied there. Without it they
 * would be copied back to the dedicated lanes, again and again. Return: false if no shared
 * chunk can be reclaimed.
 */
static bool vc_log_reclaim_shared(struct vcache_pool *p, struct vcache_log *log)
{
	struct vcache_chunk *c = vcache_log_victim(log, VC_SHARED);

	if (!c || c->own || vcache_chunk_reclaim(p, c, VC_RECLAIM_KEEP))
		return false;
	/* Blocks kept in shared lanes would go to the open chunk there: close it. */
	vcache_reads_leave(log, VC_READS_MAIN, VC_SHARED);
	return true;
}

/*
 * Make space for a chunk of shared lanes in the dedicated ones. Sets @space if there is.
 * Return: true if there is space, or if something was done so that there may be later.
 */
static bool vc_log_make_place(struct vcache_pool *p, struct vcache_log *log,
			      const struct vcache_chunk *hot, bool *space)
{
	u32 cells = vcache_chunk_capacity(&p->g), heat = vc_chunk_total_heat(p, hot);
	struct vcache_chunk *c;

	*space = vcache_own_has_space(log);
	if (*space)
		return true;
	c = READ_ONCE(log->credit) >= cells * VC_CREDIT_KEEP ?
	    vc_log_coldest(p, log) : NULL;
	if (!c)
		return false;
	if (!vcache_swap_pays(vc_chunk_total_heat(p, c), heat, cells)) {
		vc_log_rotate_own(log);
		return true;
	}
	if (!vcache_log_may_grow(p, log))
		return vc_log_reclaim_shared(p, log);
	log->stays = vcache_swap_heat(heat, cells);
	return !vcache_chunk_reclaim(p, c, VC_RECLAIM_SWAP);
}

/*
 * Migrate, or compare, up to @left chunks of a log. Return: true if anything was done.
 */
static bool vc_log_migrate(struct vcache_pool *p, struct vcache_log *log, u32 left)
{
	struct vcache_chunk *c;
	bool done = false, space;

	if (!vc_log_needs_migration(log) || READ_ONCE(log->vol->stopped))
		return false;
	vc_log_cool(p, log);
	vcache_reads_leave(log, VC_READS_MAIN, VC_SHARED);
	vcache_reads_leave(log, VC_READS_WARM, VC_OWN);
	for (; left && vc_log_needs_migration(log); left--) {
		c = vc_log_next_hot_chunk(p, log);
		if (!c || !vc_log_make_place(p, log, c, &space) ||
		    (space && vcache_chunk_reclaim(p, c, VC_RECLAIM_SWAP)))
			break;
		done = true;
	}
	return done;
}

/* Count the logs that need migration. */
static u32 vc_pool_count_migrating(struct vcache_pool *p)
{
	struct vcache_volume *v;
	struct vcache_log *log;
	u32 n = 0;

	list_for_each_entry(v, &p->volumes, node) {
		list_for_each_entry(log, &v->logs, node)
			n += vc_log_needs_migration(log) && !READ_ONCE(v->stopped);
	}
	return n;
}

/**
 * vcache_pool_migrate - migrate hot blocks to the dedicated lanes of their tags
 * @p: the pool, locked
 */
void vcache_pool_migrate(struct vcache_pool *p)
{
	u32 logs = vc_pool_count_migrating(p);
	bool done = false;
	struct vcache_volume *v;
	struct vcache_log *log;

	lockdep_assert_held(&p->lock);
	if (!logs || p->state != VC_POOL_OK)
		return;
	if (time_after_eq(jiffies, p->migrate_at)) {
		list_for_each_entry(v, &p->volumes, node) {
			list_for_each_entry(log, &v->logs, node)
				done |= vc_log_migrate(p, log,
						       max(VC_MIGRATE_BATCH /
							   logs, 1U));
		}
		p->migrate_at = jiffies + (done ? VC_MIGRATE_TICK :
						  VC_MIGRATE_LATER);
	}
	queue_delayed_work(p->wq, &p->space_work,
			   max_t(long, p->migrate_at - jiffies, 1));
}
