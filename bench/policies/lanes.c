// SPDX-License-Identifier: GPL-2.0
/*
 * An SSD of several lanes as the cache of several tenants, each with a hard disk of its own, in
 * virtual time; a library for occache.py. A lane and a disk serve one request at a time, in order.
 *
 * Each tenant replays a trace with some requests in flight, for ever. A tenant has an LRU list of
 * the blocks in its dedicated lanes, and one of those in the shared lanes. New blocks go to the
 * dedicated lanes while these have space, then to the shared lanes. When the shared lanes are
 * full, a block of a tenant above its quota there leaves: the one of these whose oldest block was
 * used least recently. A tenant at its cap gives up its own oldest block. While more than a
 * watermark of what a tenant has in shared lanes is hot, a hot block there that is read changes
 * places with the oldest block of the dedicated lanes, if that is colder. Heat is the number of
 * reads; it is reduced by a quarter when the tenant has read as many blocks as it has.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../../native/core/histogram.h"
#include "../../native/core/place.h"
#include "../../native/core/shards.h"

#define NONE	UINT32_MAX
#define TENANTS	8U
#define LANES	64U
#define SLOTS	64U

/* Service times in seconds: OC-Cache's device has channels; its tenants have hard disks. */
#define READ	(70 / 1e6)	/* 4 KiB of a NAND page, and its transfer */
#define PROGRAM	(50 / 1e6)	/* a quarter of a page of 16 KiB */
#define ERASE	(3 / 1e3)	/* of a block of 1 MiB, once all of its pages were programmed */
#define ERASED	256U
#define SEEK	(5 / 1e3)	/* a random read of the disk */
#define NEXT	(100 / 1e6)	/* the read of the next block */
#define DESTAGE	(500 / 1e6)	/* a block of a sorted run, while the disk is idle */
#define BACKLOG	2.0	/* writes wait while more than this is to be destaged */

struct node {
	uint64_t block;
	double used, since;
	uint32_t tenant, older, newer, chain, lane;
	uint8_t own, heat;
};

struct list { uint32_t oldest, newest, blocks; };

struct tenant {
	const uint64_t *blocks;
	const uint8_t *writes;
	size_t n, at;
	const double *until;	/* ends of phases, and the depth in each */
	const uint32_t *depth;
	size_t phases, phase;
	struct list list[2];	/* shared, own */
	uint32_t own_cap, quota, cap, hot, reads;
	uint64_t mask;		/* dedicated lanes */
	uint32_t turn;
	double disk, backlog;
	uint64_t disk_at;
	uint64_t requests, hits, written, read_hits, read_ns, read_hist[VC_HIST_BUCKETS];
	uint32_t *done;		/* requests by second */
	struct vcache_shards shards;
	void *memory;
};

struct event { double at; uint32_t tenant; uint32_t slot; uint64_t block; };

struct world {
	double now, useful, from;
	uint32_t lanes, lane_blocks, shared_cap, shared, turn, hot_percent;
	uint64_t shared_mask;
	double lane[LANES];
	uint32_t programmed[LANES];
	uint64_t migrated;
	uint32_t seconds, slots, filled, unused, capacity;
	uint32_t *slot;
	struct node *node;
	struct event *heap;
	size_t nheap, most;
	uint32_t tenants;
	struct tenant tenant[TENANTS];
};

static void push(struct world *w, struct event e)
{
	size_t i = w->nheap++;

	if (w->nheap > w->most)
		abort();
	for (; i && w->heap[(i - 1) / 2].at > e.at; i = (i - 1) / 2)
		w->heap[i] = w->heap[(i - 1) / 2];
	w->heap[i] = e;
}

static struct event pop(struct world *w)
{
	struct event first = w->heap[0], e = w->heap[--w->nheap];
	size_t i = 0, c;

	while ((c = 2 * i + 1) < w->nheap) {
		if (c + 1 < w->nheap && w->heap[c + 1].at < w->heap[c].at)
			c++;
		if (w->heap[c].at >= e.at)
			break;
		w->heap[i] = w->heap[c];
		i = c;
	}
	w->heap[i] = e;
	return first;
}

static uint32_t *bucket(struct world *w, uint32_t tenant, uint64_t block)
{
	return &w->slot[((block * TENANTS + tenant) * 0x9e3779b97f4a7c15ULL >> 32) &
			(w->slots - 1)];
}

static uint32_t find(struct world *w, uint32_t tenant, uint64_t block)
{
	uint32_t i = *bucket(w, tenant, block);

	while (i != NONE && (w->node[i].block != block || w->node[i].tenant != tenant))
		i = w->node[i].chain;
	return i;
}

static void leave(struct world *w, uint32_t i)
{
	struct node *n = &w->node[i];
	struct tenant *t = &w->tenant[n->tenant];
	struct list *l = &t->list[n->own];

	if (n->older == NONE)
		l->oldest = n->newer;
	else
		w->node[n->older].newer = n->newer;
	if (n->newer == NONE)
		l->newest = n->older;
	else
		w->node[n->newer].older = n->older;
	l->blocks--;
	w->shared -= !n->own;
	t->hot -= !n->own && n->heat >= VC_HEAT_SHARED;
}

static void enter(struct world *w, uint32_t i, uint8_t own)
{
	struct node *n = &w->node[i];
	struct tenant *t = &w->tenant[n->tenant];
	struct list *l = &t->list[own];

	n->own = own;
	n->older = l->newest;
	n->newer = NONE;
	if (l->newest == NONE)
		l->oldest = i;
	else
		w->node[l->newest].newer = i;
	l->newest = i;
	l->blocks++;
	w->shared += !own;
	t->hot += !own && n->heat >= VC_HEAT_SHARED;
}

static void drop(struct world *w, uint32_t i)
{
	struct node *n = &w->node[i];
	uint32_t *at = bucket(w, n->tenant, n->block);
	double since = n->since > w->from ? n->since : w->from;

	if (n->used > since)
		w->useful += n->used - since;
	while (*at != i)
		at = &w->node[*at].chain;
	*at = n->chain;
	leave(w, i);
	n->chain = w->unused;
	w->unused = i;
}

/* The shared block that leaves when the shared lanes are full. */
static uint32_t victim(const struct world *w, uint32_t asks)
{
	uint32_t i, found = NONE, over;

	for (over = 1; over + 1 && found == NONE; over--) {
		for (i = 0; i < w->tenants; i++) {
			const struct list *l = &w->tenant[i].list[0];

			if (l->blocks && (!over || l->blocks > w->tenant[i].quota) &&
			    (found == NONE || w->node[l->oldest].used < w->node[found].used))
				found = l->oldest;
		}
		if (over && found == NONE && w->tenant[asks].list[0].blocks)
			found = w->tenant[asks].list[0].oldest;
	}
	return found;
}

/* The next lane of a set, in turn. */
static uint32_t next_lane(uint64_t mask, uint32_t *turn)
{
	uint32_t lane = *turn;

	do {
		lane = (lane + 1) % LANES;
	} while (!(mask >> lane & 1));
	*turn = lane;
	return lane;
}

static double serve(struct world *w, uint32_t lane, double seconds)
{
	double start = w->lane[lane] > w->now ? w->lane[lane] : w->now;

	return w->lane[lane] = start + seconds;
}

static double program(struct world *w, uint32_t lane)
{
	double done = serve(w, lane, PROGRAM);

	if (++w->programmed[lane] == ERASED) {
		w->programmed[lane] = 0;
		w->lane[lane] += ERASE;
	}
	return done;
}

static void set_lane(struct world *w, uint32_t i)
{
	struct node *n = &w->node[i];
	struct tenant *t = &w->tenant[n->tenant];

	n->lane = n->own ? next_lane(t->mask, &t->turn) : next_lane(w->shared_mask, &w->turn);
}

/* A new block of a tenant gets a place. Return: when it is written; 0 without a place. */
static double insert(struct world *w, uint32_t tenant, uint64_t block)
{
	struct tenant *t = &w->tenant[tenant];
	uint8_t own = t->list[1].blocks < t->own_cap;
	uint32_t i, *head;

	if (!own && (!t->cap || !w->shared_cap)) {
		if (!t->own_cap)
			return 0;
		drop(w, t->list[1].oldest);
		own = 1;
	} else if (!own && t->list[0].blocks >= t->cap) {
		drop(w, t->list[0].oldest);
	} else if (!own && w->shared >= w->shared_cap) {
		drop(w, victim(w, tenant));
	}
	if (w->unused != NONE) {
		i = w->unused;
		w->unused = w->node[i].chain;
	} else {
		i = w->filled++;
	}
	w->node[i] = (struct node){ .block = block, .tenant = tenant, .since = w->now,
				    .used = w->now };
	head = bucket(w, tenant, block);
	w->node[i].chain = *head;
	*head = i;
	enter(w, i, own);
	set_lane(w, i);
	return program(w, w->node[i].lane);
}

/* A hot block in shared lanes changes places with a colder one in dedicated lanes. */
static void migrate(struct world *w, uint32_t i)
{
	struct tenant *t = &w->tenant[w->node[i].tenant];
	uint32_t old = t->list[1].oldest, lane;

	if (!t->own_cap || t->list[1].blocks < t->own_cap || old == NONE ||
	    w->node[old].heat >= w->node[i].heat ||
	    !vcache_hot_passes(t->hot, t->list[0].blocks, w->hot_percent))
		return;
	lane = w->node[i].lane;
	serve(w, lane, READ);
	serve(w, w->node[old].lane, READ);
	leave(w, i);
	leave(w, old);
	enter(w, i, 1);
	enter(w, old, 0);
	w->node[i].lane = w->node[old].lane;
	w->node[old].lane = lane;
	program(w, w->node[i].lane);
	program(w, lane);
	w->migrated += 2;
}

static void cool(struct world *w, uint32_t tenant)
{
	struct tenant *t = &w->tenant[tenant];
	uint32_t own, i;

	t->reads = 0;
	t->hot = 0;
	for (own = 0; own < 2; own++) {
		for (i = t->list[own].oldest; i != NONE; i = w->node[i].newer) {
			w->node[i].heat = vcache_heat_cooled(w->node[i].heat);
			t->hot += !own && w->node[i].heat >= VC_HEAT_SHARED;
		}
	}
}

static double hit(struct world *w, uint32_t i, int write)
{
	struct node *n = &w->node[i];
	struct tenant *t = &w->tenant[n->tenant];
	uint8_t own = n->own;

	n->used = w->now;
	leave(w, i);
	if (n->heat < VC_HEAT_MAX)
		n->heat++;
	enter(w, i, own);
	if (++t->reads > t->list[0].blocks + t->list[1].blocks)
		cool(w, n->tenant);
	if (write) {
		set_lane(w, i);
		return program(w, n->lane);
	}
	if (!own && n->heat >= VC_HEAT_SHARED) {
		double done = serve(w, n->lane, READ);

		migrate(w, i);
		return done;
	}
	return serve(w, n->lane, READ);
}

static void idle(struct tenant *t, double now)
{
	if (t->disk < now) {
		t->backlog -= now - t->disk < t->backlog ? now - t->disk : t->backlog;
		t->disk = now;
	}
}

static double disk_read(struct world *w, struct tenant *t, uint64_t block)
{
	idle(t, w->now);
	t->disk += block == t->disk_at + 1 ? NEXT : SEEK;
	t->disk_at = block;
	return t->disk;
}

static double disk_write(struct world *w, struct tenant *t, double done)
{
	idle(t, w->now);
	t->backlog += DESTAGE;
	return t->backlog > BACKLOG ? done + t->backlog - BACKLOG : done;
}

static void request(struct world *w, uint32_t tenant, uint32_t slot)
{
	struct tenant *t = &w->tenant[tenant];
	uint64_t block = t->blocks[t->at];
	int write = t->writes[t->at];
	uint32_t i = find(w, tenant, block);
	double done;

	if (++t->at == t->n)
		t->at = 0;
	t->requests++;
	t->written += write;
	vcache_shards_touch(&t->shards, write, &block, 1);
	if (i != NONE) {
		t->hits++;
		t->read_hits += !write;
		done = hit(w, i, write);
	} else if (write) {
		done = insert(w, tenant, block);
		/* Without a cache the disk takes the write. */
		done = done ? done : disk_read(w, t, block);
	} else {
		done = disk_read(w, t, block);
		push(w, (struct event){ done, tenant, NONE, block });
	}
	if (write) {
		done = disk_write(w, t, done);
	} else {
		t->read_ns += (done - w->now) * 1e9;
		t->read_hist[vcache_hist_bucket((done - w->now) * 1e9)]++;
	}
	if (done < w->seconds)
		t->done[(uint32_t)done]++;
	push(w, (struct event){ done, tenant, slot, 0 });
}

static void step(struct world *w, struct event e)
{
	struct tenant *t = &w->tenant[e.tenant];

	if (e.slot == NONE) {
		if (find(w, e.tenant, e.block) == NONE)
			insert(w, e.tenant, e.block);
		return;
	}
	while (t->phase + 1 < t->phases && t->until[t->phase] <= w->now)
		t->phase++;
	if (e.slot < t->depth[t->phase]) {
		request(w, e.tenant, e.slot);
	} else {
		e.at = t->until[t->phase] + 1 / 1e9;
		push(w, e);
	}
}

/* Run until a time. */
void lanes_run(struct world *w, double until)
{
	while (w->nheap && w->heap[0].at < until) {
		struct event e = pop(w);

		w->now = e.at;
		step(w, e);
	}
	w->now = until;
}

struct world *lanes_new(uint32_t lanes, uint32_t lane_blocks, uint32_t tenants, uint32_t seconds,
			uint32_t hot_percent)
{
	struct world *w = calloc(1, sizeof(*w));
	uint32_t i;

	if (!w || tenants > TENANTS || lanes > LANES)
		abort();
	w->lanes = lanes;
	w->lane_blocks = lane_blocks;
	w->tenants = tenants;
	w->seconds = seconds;
	w->hot_percent = hot_percent;
	w->capacity = lanes * lane_blocks + 1;
	w->unused = NONE;
	for (w->slots = 1024; w->slots < 2 * w->capacity; w->slots *= 2)
		;
	w->slot = malloc(w->slots * sizeof(*w->slot));
	w->node = malloc((size_t)w->capacity * sizeof(*w->node));
	w->most = 1 << 16;
	w->heap = malloc(w->most * sizeof(*w->heap));
	if (!w->slot || !w->node || !w->heap)
		abort();
	memset(w->slot, 0xff, w->slots * sizeof(*w->slot));
	for (i = 0; i < tenants; i++) {
		struct tenant *t = &w->tenant[i];
		struct vcache_shards_setup setup = {
			.samples = 8192, .kinds = 2, .buckets = 1024, .grain_shift = 4,
			.limit = VC_SHARDS_ALL, .salt = 42 + i,
		};

		t->list[0] = (struct list){ NONE, NONE, 0 };
		t->list[1] = (struct list){ NONE, NONE, 0 };
		t->disk_at = UINT64_MAX - 1;
		t->done = calloc(seconds, sizeof(*t->done));
		t->memory = calloc(1, vcache_shards_size(&setup));
		if (!t->done || !t->memory ||
		    vcache_shards_init(&t->shards, &setup, t->memory))
			abort();
	}
	return w;
}

void lanes_free(struct world *w)
{
	uint32_t i;

	for (i = 0; i < w->tenants; i++) {
		free(w->tenant[i].done);
		free(w->tenant[i].memory);
	}
	free(w->slot);
	free(w->node);
	free(w->heap);
	free(w);
}

/* The load of a tenant; the arrays must stay. */
void lanes_tenant(struct world *w, uint32_t tenant, const uint64_t *blocks, const uint8_t *writes,
		  size_t n, const double *until, const uint32_t *depth, size_t phases)
{
	struct tenant *t = &w->tenant[tenant];
	uint32_t slot;

	t->blocks = blocks;
	t->writes = writes;
	t->n = n;
	t->until = until;
	t->depth = depth;
	t->phases = phases;
	for (slot = 0; slot < SLOTS; slot++)
		push(w, (struct event){ (slot + 1) / 1e9, tenant, slot, 0 });
}

/* Which lanes are shared; blocks beyond their space leave. */
void lanes_shared(struct world *w, uint64_t mask)
{
	uint32_t i;

	w->shared_mask = mask;
	w->shared_cap = (uint32_t)__builtin_popcountll(mask) * w->lane_blocks;
	while (w->shared > w->shared_cap)
		drop(w, victim(w, 0));
	/* What was in a lane that is not shared any more is copied for nothing. */
	for (i = 0; mask && i < w->filled; i++) {
		struct node *n = &w->node[i];

		if (find(w, n->tenant, n->block) == i && !n->own && !(mask >> n->lane & 1))
			set_lane(w, i);
	}
}

/* The dedicated lanes of a tenant, and its quota and cap in the shared lanes. */
void lanes_give(struct world *w, uint32_t tenant, uint64_t mask, uint32_t quota, uint32_t cap)
{
	struct tenant *t = &w->tenant[tenant];
	uint32_t i;

	t->quota = quota;
	t->cap = cap;
	while (t->list[0].blocks > cap)
		drop(w, t->list[0].oldest);
	if (mask == t->mask)
		return;
	t->mask = mask;
	t->own_cap = (uint32_t)__builtin_popcountll(mask) * w->lane_blocks;
	while (t->list[1].blocks > t->own_cap)
		drop(w, t->list[1].oldest);
	for (i = t->list[1].oldest; i != NONE; i = w->node[i].newer)
		set_lane(w, i);
}

/* Count what is useful from now on. */
void lanes_measure(struct world *w)
{
	w->from = w->now;
	w->useful = 0;
}

/* Block-seconds between the first and the last use of blocks in the cache. */
double lanes_useful(struct world *w)
{
	double sum = w->useful;
	uint32_t i, own, at;

	for (i = 0; i < w->tenants; i++) {
		for (own = 0; own < 2; own++) {
			for (at = w->tenant[i].list[own].oldest; at != NONE;
			     at = w->node[at].newer) {
				const struct node *n = &w->node[at];
				double since = n->since > w->from ? n->since : w->from;

				if (n->used > since)
					sum += n->used - since;
			}
		}
	}
	return sum;
}

void lanes_series(const struct world *w, uint32_t tenant, uint32_t *done)
{
	memcpy(done, w->tenant[tenant].done, w->seconds * sizeof(*done));
}

/* Requests, hits, writes; blocks in shared and in dedicated lanes; blocks migrated. */
void lanes_counts(const struct world *w, uint32_t tenant, uint64_t *out)
{
	const struct tenant *t = &w->tenant[tenant];

	out[0] = t->requests;
	out[1] = t->hits;
	out[2] = t->written;
	out[3] = t->list[0].blocks;
	out[4] = t->list[1].blocks;
	out[5] = w->migrated;
}

/* Reads served by the cache, nanoseconds of all reads, and their histogram. */
void lanes_reads(const struct world *w, uint32_t tenant, uint64_t *out)
{
	const struct tenant *t = &w->tenant[tenant];

	out[0] = t->read_hits;
	out[1] = t->read_ns;
	memcpy(out + 2, t->read_hist, sizeof(t->read_hist));
}

uint64_t lanes_curve(const struct world *w, uint32_t tenant, uint32_t kind,
		     const uint64_t *sizes, size_t n, uint64_t *misses)
{
	vcache_shards_curve(&w->tenant[tenant].shards, kind, sizes, n, misses);
	return w->tenant[tenant].shards.kind[kind].accesses;
}
