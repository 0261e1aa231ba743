// SPDX-License-Identifier: GPL-2.0
/*
 * A cache that several tenants share, with a quota and a miss-ratio curve for each of them, as
 * a library for simulate.py. Each tenant has an LRU list. When the cache is full, a block of a
 * tenant above its quota leaves: the one of these whose oldest block was used least recently.
 * With quotas of 0 that is one LRU list for all. A tenant at its cap gives up its own oldest block.
 * The curves are those of native/core.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../../native/core/shards.h"

#define NONE	UINT32_MAX
#define TENANTS	64U

struct node {
	uint64_t block, used;
	uint32_t tenant, older, newer, chain;
};

struct tenant {
	uint32_t oldest, newest, blocks, quota, cap;
	struct vcache_shards shards;
	void *memory;
};

struct cache {
	uint32_t capacity, filled, slots, unused;
	uint64_t clock;
	uint32_t *slot;
	struct node *node;
	uint32_t tenants;
	struct tenant tenant[TENANTS];
};

static uint32_t slot_of(const struct cache *c, uint32_t tenant, uint64_t block)
{
	uint64_t x = (block * TENANTS + tenant) * 0x9e3779b97f4a7c15ULL;

	return (x >> 32) & (c->slots - 1);
}

static void unlink_node(struct cache *c, uint32_t i)
{
	struct node *n = &c->node[i];
	struct tenant *t = &c->tenant[n->tenant];

	if (n->older == NONE)
		t->oldest = n->newer;
	else
		c->node[n->older].newer = n->newer;
	if (n->newer == NONE)
		t->newest = n->older;
	else
		c->node[n->newer].older = n->older;
}

static void link_newest(struct cache *c, uint32_t i)
{
	struct node *n = &c->node[i];
	struct tenant *t = &c->tenant[n->tenant];

	n->older = t->newest;
	n->newer = NONE;
	n->used = c->clock;
	if (t->newest == NONE)
		t->oldest = i;
	else
		c->node[t->newest].newer = i;
	t->newest = i;
}

static uint32_t victim(const struct cache *c, uint32_t asks)
{
	uint32_t i, found = NONE;

	for (i = 0; i < c->tenants; i++) {
		const struct tenant *t = &c->tenant[i];

		if (t->blocks > t->quota &&
		    (found == NONE || c->node[t->oldest].used < c->node[found].used))
			found = t->oldest;
	}
	if (found != NONE)
		return found;
	/* All are at their quotas, and these are the whole cache. */
	if (c->tenant[asks].blocks)
		return c->tenant[asks].oldest;
	for (i = 0; i < c->tenants; i++) {
		const struct tenant *t = &c->tenant[i];

		if (t->blocks && (found == NONE || c->node[t->oldest].used < c->node[found].used))
			found = t->oldest;
	}
	return found;
}

static void evict(struct cache *c, uint32_t i)
{
	struct node *n = &c->node[i];
	uint32_t *at = &c->slot[slot_of(c, n->tenant, n->block)];

	while (*at != i)
		at = &c->node[*at].chain;
	*at = n->chain;
	unlink_node(c, i);
	c->tenant[n->tenant].blocks--;
}

/* A block leaves, and none takes its place yet. */
static void release(struct cache *c, uint32_t i)
{
	evict(c, i);
	c->node[i].chain = c->unused;
	c->unused = i;
}

static int touch(struct cache *c, uint32_t tenant, uint64_t block)
{
	uint32_t *head = &c->slot[slot_of(c, tenant, block)], i;
	struct node *n;

	c->clock++;
	for (i = *head; i != NONE; i = c->node[i].chain) {
		if (c->node[i].block == block && c->node[i].tenant == tenant) {
			unlink_node(c, i);
			link_newest(c, i);
			return 1;
		}
	}
	if (c->tenant[tenant].blocks == c->tenant[tenant].cap) {
		i = c->tenant[tenant].oldest;
		evict(c, i);
	} else if (c->unused != NONE) {
		i = c->unused;
		c->unused = c->node[i].chain;
	} else if (c->filled < c->capacity) {
		i = c->filled++;
	} else {
		i = victim(c, tenant);
		evict(c, i);
	}
	n = &c->node[i];
	n->block = block;
	n->tenant = tenant;
	/* The head may have been the evicted one. */
	n->chain = c->slot[slot_of(c, tenant, block)];
	c->slot[slot_of(c, tenant, block)] = i;
	link_newest(c, i);
	c->tenant[tenant].blocks++;
	return 0;
}

struct cache *cache_new(uint32_t capacity, uint32_t tenants, uint32_t samples, uint32_t buckets,
			uint32_t grain_shift)
{
	struct cache *c = calloc(1, sizeof(*c));
	uint32_t i;

	if (!c || tenants > TENANTS || !capacity)
		abort();
	c->capacity = capacity;
	c->tenants = tenants;
	c->unused = NONE;
	for (c->slots = 1024; c->slots < 2 * capacity; c->slots *= 2)
		;
	c->slot = malloc(c->slots * sizeof(*c->slot));
	c->node = malloc(capacity * sizeof(*c->node));
	if (!c->slot || !c->node)
		abort();
	memset(c->slot, 0xff, c->slots * sizeof(*c->slot));
	for (i = 0; i < tenants; i++) {
		struct tenant *t = &c->tenant[i];
		struct vcache_shards_setup setup = {
			.samples = samples, .kinds = 1, .buckets = buckets,
			.grain_shift = grain_shift, .limit = VC_SHARDS_ALL, .salt = 42 + i,
		};

		t->cap = UINT32_MAX;
		t->oldest = NONE;
		t->newest = NONE;
		t->memory = calloc(1, vcache_shards_size(&setup));
		if (!t->memory || vcache_shards_init(&t->shards, &setup, t->memory))
			abort();
	}
	return c;
}

void cache_free(struct cache *c)
{
	uint32_t i;

	for (i = 0; i < c->tenants; i++)
		free(c->tenant[i].memory);
	free(c->slot);
	free(c->node);
	free(c);
}

void cache_quota(struct cache *c, uint32_t tenant, uint32_t blocks)
{
	c->tenant[tenant].quota = blocks;
}

void cache_cap(struct cache *c, uint32_t tenant, uint32_t blocks)
{
	struct tenant *t = &c->tenant[tenant];

	t->cap = blocks ? blocks : 1;
	while (t->blocks > t->cap)
		release(c, t->oldest);
}

uint32_t cache_blocks(const struct cache *c, uint32_t tenant)
{
	return c->tenant[tenant].blocks;
}

/* Access blocks in order, each by its tenant. Counts the misses of each tenant. */
void cache_access(struct cache *c, const uint64_t *blocks, const uint8_t *tenants, size_t n,
		  uint64_t *misses)
{
	size_t i;

	for (i = 0; i < n; i++) {
		uint64_t block = blocks[i];

		vcache_shards_touch(&c->tenant[tenants[i]].shards, 0, &block, 1);
		misses[tenants[i]] += !touch(c, tenants[i], block);
	}
}

/* How many accesses would a cache of each size, ascending, have missed? */
uint64_t cache_curve(const struct cache *c, uint32_t tenant, const uint64_t *sizes, size_t n,
		     uint64_t *misses)
{
	vcache_shards_curve(&c->tenant[tenant].shards, 0, sizes, n, misses);
	return c->tenant[tenant].shards.kind[0].accesses;
}
