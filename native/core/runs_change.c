// SPDX-License-Identifier: GPL-2.0
/*
 * Changes of a map of runs.
 *
 * A change walks over the leaves that it touches. It copies their runs, without what is
 * removed and with what is added, into new leaves. The map changes only when all new leaves
 * and the directory have memory, so a change that fails has changed nothing.
 */
#include "runs.h"

/* A new leaf with fewer runs is merged with the one behind it if both fit into one. */
#define VC_LEAF_FEW	(VC_LEAF_MAX / 4)

#define VC_NO_SECTOR	(~(u64)0)

/* The bit of an owner in a set of owners. Owners may share one. */
static u64 vc_owner_bit(const struct vcache_owner *owner)
{
	return 1ULL << (((u64)(uintptr_t)owner * 0x9e3779b97f4a7c15ULL) >> 58);
}

static u64 vc_leaf_owners(const struct vcache_leaf *leaf)
{
	u64 owners = 0;
	u32 i;

	for (i = 0; i < leaf->nr; i++)
		owners |= vc_owner_bit(leaf->run[i].owner);
	return owners;
}

/* Move the first @n runs of the open leaf to a leaf of exactly that size. */
static int vc_emit(struct vcache_change *c, u32 n)
{
	struct vcache_leaf *open = c->open, *leaf = c->leaf_alloc(n);

	if (!leaf)
		return -ENOMEM;
	leaf->next = NULL;
	leaf->slot = 0;
	leaf->nr = n;
	memcpy(leaf->run, open->run, n * sizeof(*leaf->run));
	open->nr -= n;
	memmove(open->run, open->run + n, open->nr * sizeof(*open->run));
	*c->tail = leaf;
	c->tail = &leaf->next;
	c->nmade++;
	return 0;
}

/* Add a run to the new leaves. A full leaf is divided, so that both parts are half full. */
static int vc_push(struct vcache_change *c, u64 start, u64 end, struct vcache_owner *owner)
{
	struct vcache_leaf *open = c->open;
	int r;

	if (start < c->end) {
		c->clash = start;
		c->other = owner == c->owner ? c->last : owner;
		return -EEXIST;
	}
	if (open->nr == VC_LEAF_MAX) {
		r = vc_emit(c, VC_LEAF_HALF);
		if (r)
			return r;
	}
	open->run[open->nr++] = (struct vcache_run){ start, end - start, owner };
	c->end = end;
	c->last = owner;
	c->has += owner == c->owner;
	return 0;
}

/* Add the sectors to be added that begin before @sector. */
static int vc_push_added(struct vcache_change *c, u64 sector)
{
	int r = 0;

	while (!r && c->next_add < c->adds && c->add[c->next_add].start < sector) {
		const struct vcache_sectors *s = &c->add[c->next_add++];

		r = vc_push(c, s->start, s->start + s->len, c->owner);
	}
	return r;
}

/*
 * Find the first range of a list that ends behind @at. If it begins before *@hole, set *@hole
 * to its beginning, but not before @at, and *@behind to its end.
 */
static void vc_find_hole(const struct vcache_sectors *s, size_t n, size_t *next, u64 at,
			 u64 *hole, u64 *behind)
{
	while (*next < n && s[*next].start + s[*next].len <= at)
		++*next;
	if (*next == n || s[*next].start >= *hole)
		return;
	*hole = s[*next].start > at ? s[*next].start : at;
	*behind = s[*next].start + s[*next].len;
}

/*
 * A run that loses sectors in its middle becomes two. If its owner has no runs left, keep only
 * the longer one.
 */
static void vc_keep_one(const struct vcache_change *c, struct vcache_run *r)
{
	u64 hole = c->remove->start, behind = hole + c->remove->len;
	u64 end = r->start + r->len;

	if (r->owner->runs < c->most || hole <= r->start || behind >= end)
		return;
	if (hole - r->start >= end - behind) {
		r->len = hole - r->start;
	} else {
		r->start = behind;
		r->len = end - behind;
	}
}

/* Copy what is left of a run of a replaced leaf. */
static int vc_copy(struct vcache_change *c, struct vcache_run run)
{
	bool own = run.owner == c->owner;
	u64 at, end;
	int r;

	c->had += own;
	if (own && c->all)
		return 0;
	if (!c->owner)
		vc_keep_one(c, &run);
	for (at = run.start, end = at + run.len; at < end;) {
		u64 hole = end, behind = end;

		if (own || !c->owner)
			vc_find_hole(c->remove, c->removes, &c->next_remove, at, &hole,
				     &behind);
		if (own)
			vc_find_hole(c->add, c->adds, &c->next_hole, at, &hole, &behind);
		if (hole > at) {
			r = vc_push_added(c, at);
			if (!r)
				r = vc_push(c, at, hole, run.owner);
			if (r)
				return r;
		}
		at = behind;
	}
	return 0;
}

/* The first sector of the leaf behind a leaf. */
static u64 vc_slot_end(const struct vcache_runs *map, size_t slot)
{
	return slot + 1 < map->nr ? map->from[slot + 1] : VC_NO_SECTOR;
}

/* Does a range to be removed meet a run of a leaf? */
static bool vc_meets(const struct vcache_leaf *leaf, const struct vcache_sectors *s)
{
	u32 i = vcache_leaf_find(leaf, s->start);

	return i < leaf->nr && leaf->run[i].start < s->start + s->len;
}

/* Can a leaf have runs that lose sectors? Go past the ranges that end in it and meet none. */
static bool vc_loses(struct vcache_change *c, size_t slot)
{
	bool known = !c->owner || c->map->owners[slot] & vc_owner_bit(c->owner);
	u64 end = vc_slot_end(c->map, slot);
	const struct vcache_sectors *s;

	if (c->all)
		return known;
	for (; c->next_remove < c->removes; c->next_remove++) {
		s = &c->remove[c->next_remove];
		if (s->start >= end)
			return false;
		if (known && vc_meets(c->map->leaf[slot], s))
			return true;
		if (s->start + s->len > end)
			return false;
	}
	return false;
}

/* Must a leaf be replaced? */
static bool vc_touches(struct vcache_change *c, size_t slot)
{
	u32 open = c->open->nr;

	if (c->next_add < c->adds && c->add[c->next_add].start < vc_slot_end(c->map, slot))
		return true;
	/* What was added before it reaches into it. */
	if (c->end > c->map->from[slot])
		return true;
	if (vc_loses(c, slot))
		return true;
	return open && open < VC_LEAF_FEW && open + c->map->leaf[slot]->nr <= VC_LEAF_MAX;
}

static int vc_replace(struct vcache_change *c, size_t slot)
{
	struct vcache_leaf *leaf = c->map->leaf[slot];
	int r = 0;
	u32 i;

	/* An empty set: the leaf is replaced. */
	c->map->owners[slot] = 0;
	leaf->slot = slot;
	leaf->next = c->gone;
	c->gone = leaf;
	c->ngone++;
	for (i = 0; i < leaf->nr && !r; i++)
		r = vc_copy(c, leaf->run[i]);
	return r ?: vc_push_added(c, vc_slot_end(c->map, slot));
}

/* The next leaf to look at behind the first @slot ones. */
static size_t vc_next_slot(const struct vcache_change *c, size_t slot)
{
	u64 sector = VC_NO_SECTOR;
	size_t next;

	if (c->all && c->had < c->owner->runs)
		return slot;
	if (c->next_remove < c->removes)
		sector = c->remove[c->next_remove].start;
	if (c->next_add < c->adds && c->add[c->next_add].start < sector)
		sector = c->add[c->next_add].start;
	if (sector == VC_NO_SECTOR)
		return c->map->nr;
	next = vcache_runs_slot(c->map, sector);
	return next > slot ? next : slot;
}

/* Make all new leaves. */
static int vc_walk(struct vcache_change *c)
{
	size_t slot, nr = c->map ? c->map->nr : 0;
	int r = 0;

	for (slot = nr ? vc_next_slot(c, 0) : 0; slot < nr && !r;) {
		if (vc_touches(c, slot)) {
			r = vc_replace(c, slot++);
			continue;
		}
		if (c->open->nr)
			r = vc_emit(c, c->open->nr);
		slot = vc_next_slot(c, slot + 1);
	}
	if (!r)
		r = vc_push_added(c, VC_NO_SECTOR);
	if (!r && c->open->nr)
		r = vc_emit(c, c->open->nr);
	return r;
}

/* Make a directory of the leaves that stay and the new ones. */
static int vc_make_map(struct vcache_change *c)
{
	size_t nr = c->map ? c->map->nr : 0, i = 0, k = 0;
	struct vcache_leaf *leaf = c->made;
	struct vcache_runs *to;

	c->to = NULL;
	if (nr == c->ngone && !leaf)
		return 0;
	to = c->map_alloc(nr - c->ngone + c->nmade);
	if (!to)
		return -ENOMEM;
	while (i < nr || leaf) {
		if (i < nr && !c->map->owners[i]) {
			i++;
		} else if (leaf && (i == nr || leaf->run[0].start < c->map->from[i])) {
			to->from[k] = leaf->run[0].start;
			to->owners[k] = vc_leaf_owners(leaf);
			to->leaf[k++] = leaf;
			leaf = leaf->next;
		} else {
			to->from[k] = c->map->from[i];
			to->owners[k] = c->map->owners[i];
			to->leaf[k++] = c->map->leaf[i++];
		}
	}
	c->to = to;
	return 0;
}

/* Can the only new leaf have the place of the only one that is replaced? */
static bool vc_fits_in_place(const struct vcache_change *c)
{
	return c->ngone == 1 && c->nmade == 1 &&
	       c->made->run[0].start >= c->map->from[c->gone->slot];
}

static void vc_count(struct vcache_leaf *leaf, bool more)
{
	u32 i;

	for (; leaf; leaf = leaf->next) {
		for (i = 0; i < leaf->nr; i++) {
			struct vcache_run *r = &leaf->run[i];

			r->owner->runs += more ? 1 : -1;
			r->owner->sectors += more ? r->len : -r->len;
		}
	}
}

/* Put the new leaves into the map, or into a new one. */
static int vc_commit(struct vcache_change *c)
{
	u32 slot;
	int r;

	if (vc_fits_in_place(c)) {
		slot = c->gone->slot;
		c->map->owners[slot] = vc_leaf_owners(c->made);
		/* Readers see the leaf after its runs. */
		smp_store_release(&c->map->leaf[slot], c->made);
	} else if (c->ngone || c->nmade) {
		r = vc_make_map(c);
		if (r)
			return r;
	}
	vc_count(c->gone, false);
	vc_count(c->made, true);
	return 0;
}

static void vc_abort(struct vcache_change *c)
{
	struct vcache_leaf *leaf;

	for (leaf = c->gone; leaf; leaf = leaf->next)
		c->map->owners[leaf->slot] = vc_leaf_owners(leaf);
	c->gone = NULL;
	while ((leaf = c->made)) {
		c->made = leaf->next;
		c->leaf_free(leaf);
	}
	c->to = c->map;
}

/**
 * vcache_change_apply - change a map
 * @c: the change; all fields behind @map_alloc are set by this
 *
 * The caller publishes @c->to if it is another map than @c->map, and frees @c->gone, and
 * @c->map then, after their readers.
 *
 * A directory has for each leaf a set of 64 bits of its owners, so that the runs of one owner
 * are found without reading the leaves of others.
 *
 * If @c->owner is NULL and an owner with @c->most runs would have one more, it loses the
 * shorter part of that run.
 *
 * Return: 0; on an error nothing has changed: -EEXIST if a sector to be added belongs to
 * another owner, -E2BIG if @c->owner would have more than @c->most runs, -ENOMEM.
 */
int vcache_change_apply(struct vcache_change *c)
{
	int r;

	c->to = c->map;
	c->gone = NULL;
	c->made = NULL;
	c->tail = &c->made;
	c->nmade = 0;
	c->ngone = 0;
	c->end = 0;
	c->last = NULL;
	c->next_remove = 0;
	c->next_add = 0;
	c->next_hole = 0;
	c->had = 0;
	c->has = 0;
	c->open = c->leaf_alloc(VC_LEAF_MAX);
	if (!c->open)
		return -ENOMEM;
	c->open->nr = 0;
	r = vc_walk(c);
	c->leaf_free(c->open);
	if (c->owner) {
		c->runs = c->owner->runs - c->had + c->has;
		if (!r && c->runs > c->most)
			r = -E2BIG;
	}
	if (!r)
		r = vc_commit(c);
	if (r)
		vc_abort(c);
	return r;
}
