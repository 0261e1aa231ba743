/* SPDX-License-Identifier: GPL-2.0 */
/* A map of runs in user space: memory that can fail, and a check of its structure. */
#ifndef TESTS_CORE_MAP_H
#define TESTS_CORE_MAP_H

#include <stdlib.h>

#include "../../native/core/runs.h"

/* Allocations until one fails; -1: none fails. */
static int map_fails_after = -1;

static inline bool map_fails(void)
{
	if (map_fails_after < 0)
		return false;
	return !map_fails_after--;
}

/* All memory has exactly the size that is asked for, so that the sanitizer sees one run too many. */
static inline struct vcache_leaf *map_leaf_alloc(size_t runs)
{
	if (map_fails())
		return NULL;
	return malloc(sizeof(struct vcache_leaf) + runs * sizeof(struct vcache_run));
}

static inline void map_leaf_free(struct vcache_leaf *leaf)
{
	free(leaf);
}

static inline struct vcache_runs *map_alloc(size_t leaves)
{
	struct vcache_runs *map = map_fails() ? NULL : malloc(vcache_runs_size(leaves));

	if (map)
		vcache_runs_init(map, leaves);
	return map;
}

/* Apply a change. What it replaces is freed by map_finish(). */
static inline int map_apply(struct vcache_change *c)
{
	c->leaf_alloc = map_leaf_alloc;
	c->leaf_free = map_leaf_free;
	c->map_alloc = map_alloc;
	return vcache_change_apply(c);
}

static inline struct vcache_runs *map_finish(struct vcache_change *c)
{
	struct vcache_leaf *leaf;

	while ((leaf = c->gone)) {
		c->gone = leaf->next;
		free(leaf);
	}
	if (c->to != c->map)
		free(c->map);
	return c->to;
}

static inline void map_free(struct vcache_runs *map)
{
	size_t i;

	for (i = 0; map && i < map->nr; i++)
		free(map->leaf[i]);
	free(map);
}

/* Is every leaf filled and between its borders? Return the number of runs, or -1. */
static inline long map_runs(const struct vcache_runs *map, u64 size)
{
	long runs = 0;
	size_t i;
	u64 end = 0;
	u32 k;

	if (map && !map->nr)
		return -1;
	for (i = 0; map && i < map->nr; i++) {
		const struct vcache_leaf *leaf = map->leaf[i];

		if (!leaf->nr || leaf->nr > VC_LEAF_MAX ||
		    map->from[i] < end || map->from[i] > leaf->run[0].start)
			return -1;
		for (k = 0; k < leaf->nr; k++) {
			const struct vcache_run *r = &leaf->run[k];

			if (!r->len || r->start < end || r->start >= size ||
			    r->len > size - r->start)
				return -1;
			end = r->start + r->len;
		}
		runs += leaf->nr;
	}
	return runs;
}

#endif /* TESTS_CORE_MAP_H */
