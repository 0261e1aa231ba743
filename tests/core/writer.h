/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A cache that follows the rules of format.h, on a disk whose power fails, and an
 * oracle that knows the allowed contents. There is one volume with several logs, each
 * with several records in flight.
 */
#ifndef VCACHE_TESTS_WRITER_H
#define VCACHE_TESTS_WRITER_H

#include "disk.h"
#include "../../native/core/crc32c.h"
#include "../../native/core/recover.h"

#define KEY 0x6b65796b65796b65ULL
#define VOLUME 5
#define SLOT 3
#define TAGS 4
#define INFLIGHT 4
#define ENTRIES 40	/* most in a record */
#define ORIGIN 96	/* blocks */
#define SECTORS (ORIGIN * VC_BLOCK_SECTORS)
#define CHUNKS 32	/* most of a device */
#define NONE (~0U)

enum state { FREE, OPEN, CLOSED, SEALED };

/* A chunk as known by its writer; found has the results of recovery. */
struct chunk {
	enum state state;
	u32 outstanding;
	u32 n;
	struct vcache_entry *e;
};

struct record {
	struct vcache_log_info info;
	struct vcache_entry e[ENTRIES];
	u64 version;
	u8 *image;
	bool arrived;	/* the data of one without checksums */
	bool durable;
};

struct log {
	u32 chunk;	/* where the next record goes, or NONE */
	u32 at;
	u32 pending;
	struct record *record[INFLIGHT];
};

/* The allowed contents of a sector. Version 0 is zeroes. */
struct sector {
	u64 version;
	u64 next;
	u16 tag;	/* owner of the version */
	u16 next_tag;
	bool busy;	/* a record of it is in flight: next may be read */
	bool discard;	/* it is a discard */
	bool fades;	/* a crash has cut off a discard: when a clean copy goes, it is zero */
};

struct writer {
	struct disk d;
	struct vcache_store st;
	struct vcache_geometry g;
	struct vcache_super sb;
	struct vcache_index ix;
	struct vcache_found found[CHUNKS];
	struct chunk chunk[CHUNKS];
	struct log log[TAGS];
	u32 tags;
	u32 entries;	/* most in a record */
	u32 apart;	/* how often a log stays in its own part */
	u64 next_seq;
	u64 version;
	u8 *table;
	u8 *super;
	u8 *work;
	u8 *origin;
	struct sector sector[SECTORS];
	uint64_t rng;
	unsigned long reclaims;
	unsigned long reseals;
	unsigned long warmed;
	unsigned long early;
};

static unsigned int below(struct writer *w, unsigned int n)
{
	return check_below(&w->rng, n);
}

/* ---- the oracle ---- */

static void content(u8 *to, u32 sector, u64 version)
{
	u64 word;
	u32 i;

	memset(to, 0, SECTOR);
	for (i = 0; version && i < SECTOR / 8; i++) {
		word = version << 32 ^ (u64)sector << 8 ^ i;
		memcpy(to + i * 8, &word, 8);
	}
}

static bool is_content(const u8 *at, u32 sector, u64 version)
{
	u8 expected[SECTOR];

	content(expected, sector, version);
	return !memcmp(at, expected, SECTOR);
}

static const u8 *read_sector(struct writer *w, u32 sector)
{
	u32 in = sector % VC_BLOCK_SECTORS;
	u32 cell = vcache_index_find(&w->ix, SLOT, sector / VC_BLOCK_SECTORS,
				     1 << in);

	if (cell == VC_CELL_NONE)
		return w->origin + (size_t)sector * SECTOR;
	return disk_at(&w->d, cell) + in * SECTOR;
}

/* While there is power: only completed writes are read. */
static void check_running(struct writer *w, u32 sector)
{
	const struct sector *s = &w->sector[sector];
	const u8 *at = read_sector(w, sector);

	if (!is_content(at, sector, s->version))
		CHECK(((s->busy && s->discard) || s->fades) && is_content(at, sector, 0));
}

/* After a crash: also writes in flight, which are valid from now on. */
static void check_recovered(struct writer *w)
{
	u32 i;

	for (i = 0; i < SECTORS; i++) {
		struct sector *s = &w->sector[i];
		const u8 *at = read_sector(w, i);

		if (is_content(at, i, s->version)) {
			s->fades |= s->busy && s->discard;
		} else if (s->busy && is_content(at, i, s->next)) {
			s->version = s->next;
			s->tag = s->next_tag;
			s->fades = false;
		} else {
			CHECK(s->fades && is_content(at, i, 0));
			s->version = 0;
		}
		s->busy = false;
		s->discard = false;
	}
}

/* ---- records ---- */

static u32 chunk_index(struct writer *w, u64 cell)
{
	return cell / w->g.chunk_blocks;
}

/* A record of @tag has superseded the data of @cell. */
static void mark(struct writer *w, u32 cell, u16 tag)
{
	u32 c = chunk_index(w, cell), i;
	struct vcache_found *f = &w->found[c];

	f->lost = true;
	if (f->tag == tag)
		return;
	f->stale = true;
	if (w->chunk[c].state == OPEN)
		w->chunk[c].state = CLOSED;
	for (i = w->g.first_chunk; i < w->g.chunks; i++) {
		struct vcache_found *o = &w->found[i];

		if (w->chunk[i].state != FREE && o->tag == f->tag &&
		    o->gen < f->gen && o->lost)
			o->stale = true;
	}
}

static void cut(struct writer *w, u64 block, u8 mask, u16 tag)
{
	u32 touched[VC_CELLS_PER_BLOCK];
	unsigned int n;

	n = vcache_index_cut(&w->ix, SLOT, block, mask, touched);
	while (n--)
		mark(w, touched[n], tag);
}

/* Blocks of an entry; a discard may reach behind the end of the origin. */
static u32 span(const struct vcache_entry *e)
{
	if (e->mask)
		return 1;
	return e->arg < ORIGIN - e->block ? e->arg : ORIGIN - e->block;
}

static void zero_origin(struct writer *w, const struct vcache_entry *e)
{
	memset(w->origin + e->block * VC_BLOCK_SIZE, 0,
	       (size_t)span(e) * VC_BLOCK_SIZE);
}

/* The sectors of an entry, from @first up to @end. */
static void sectors(const struct vcache_entry *e, u32 *first, u32 *end)
{
	*first = e->block * VC_BLOCK_SECTORS;
	*end = *first + span(e) * VC_BLOCK_SECTORS;
}

static bool counts(const struct vcache_entry *e, u32 sector)
{
	return !e->mask || e->mask >> sector % VC_BLOCK_SECTORS & 1;
}

static void complete(struct writer *w, struct record *r)
{
	u16 tag = r->info.tag;
	u32 i, s, end;
	u64 b;

	for (i = 0; i < r->info.nr; i++) {
		const struct vcache_entry *e = &r->e[i];

		if (e->mask) {
			cut(w, e->block, e->mask, tag);
			vcache_index_put(&w->ix, r->info.chunk *
					 w->g.chunk_blocks + e->place, SLOT,
					 e->block, e->mask);
		} else {
			for (b = e->block; b < e->block + span(e); b++)
				cut(w, b, VC_MASK_ALL, tag);
			zero_origin(w, e);
		}
		for (sectors(e, &s, &end); s < end; s++) {
			if (!counts(e, s))
				continue;
			w->sector[s].version = e->mask ? r->version : 0;
			w->sector[s].tag = tag;
			w->sector[s].busy = false;
			w->sector[s].discard = false;
			w->sector[s].fades = false;
		}
	}
	w->chunk[r->info.chunk].outstanding--;
	w->found[r->info.chunk].last = r->info.seq;
}

static void record_free(struct record *r)
{
	free(r->image);
	free(r);
}

static u64 record_place(struct writer *w, const struct record *r)
{
	return (u64)r->info.chunk * w->g.chunk_blocks + r->info.at;
}

/* Is the record sent when its data is durable? */
static bool unchecked(const struct record *r)
{
	return r->info.flags & VC_RECORD_UNCHECKED;
}

/* One of the records arrives, or its data; those with none before them complete. */
static void progress(struct writer *w, struct log *log)
{
	struct record *r;

	if (!log->pending)
		return;
	r = log->record[below(w, log->pending)];
	if (unchecked(r) && !r->arrived) {
		memcpy(disk_at(&w->d, record_place(w, r) + 1), r->image + VC_BLOCK_SIZE,
		       r->info.data * (size_t)VC_BLOCK_SIZE);
		r->arrived = true;
		return;
	}
	if (!r->durable)
		memcpy(disk_at(&w->d, record_place(w, r)), r->image,
		       (r->info.data + 1) * (size_t)VC_BLOCK_SIZE);
	r->durable = true;
	while (log->pending && log->record[0]->durable) {
		r = log->record[0];
		log->pending--;
		memmove(log->record, log->record + 1,
			log->pending * sizeof(r));
		complete(w, r);
		record_free(r);
	}
}

/* The power fails: any part of the requests in flight arrives. */
static void lose(struct writer *w)
{
	u32 i, k;

	for (i = 0; i < TAGS; i++) {
		struct log *log = &w->log[i];

		for (k = 0; k < log->pending; k++) {
			struct record *r = log->record[k];

			if (unchecked(r) && !r->arrived)
				disk_tear(&w->d, record_place(w, r) + 1, r->info.data,
					  r->image + VC_BLOCK_SIZE);
			else if (!r->durable)
				disk_tear(&w->d, record_place(w, r),
					  unchecked(r) ? 1 : r->info.data + 1, r->image);
			record_free(r);
		}
		log->pending = 0;
		log->chunk = NONE;
	}
}

static bool any_busy(struct writer *w, const struct vcache_entry *e)
{
	u32 s, end;

	for (sectors(e, &s, &end); s < end; s++) {
		if (counts(e, s) && w->sector[s].busy)
			return true;
	}
	return false;
}

/* Choose what to write. Return: false when there is nothing. */
static bool invent(struct writer *w, struct record *r)
{
	u32 want = 1 + below(w, w->entries), i, s, end;
	u32 part = ORIGIN / w->tags;
	u64 block = below(w, ORIGIN);

	if (below(w, w->apart))
		block = r->info.tag * part + block % part;
	r->version = ++w->version;
	for (i = 0; i < want; i++, block = (block + 1) % ORIGIN) {
		struct vcache_entry *e = &r->e[r->info.nr];

		*e = (struct vcache_entry){ .block = block };
		if (!below(w, 8)) {
			u32 most = below(w, 8) ? 4 : ORIGIN;

			e->arg = 1 + below(w, most);
			if (!below(w, 8))
				e->arg = 1U << 30;
		} else {
			e->mask = below(w, 3) ? VC_MASK_ALL :
				  1 + below(w, VC_MASK_ALL);
		}
		if (any_busy(w, e))
			continue;
		for (sectors(e, &s, &end); s < end; s++) {
			if (!counts(e, s))
				continue;
			w->sector[s].busy = true;
			w->sector[s].discard = !e->mask;
			w->sector[s].next = e->mask ? r->version : 0;
			w->sector[s].next_tag = r->info.tag;
		}
		r->info.nr++;
		r->info.data += !!e->mask;
	}
	return r->info.nr;
}

/* Find space for a record in its log. Return: false when there is none. */
static bool take_room(struct writer *w, struct log *log, struct record *r)
{
	u32 c = log->chunk;
	u32 i;

	if (c != NONE && w->chunk[c].state == OPEN &&
	    (log->at + r->info.data >= vcache_chunk_capacity(&w->g) ||
	     w->chunk[c].n + r->info.nr > vcache_seal_capacity(&w->g)))
		w->chunk[c].state = CLOSED;
	if (c == NONE || w->chunk[c].state != OPEN) {
		u32 n = w->g.chunks - w->g.first_chunk;

		c = w->g.first_chunk + below(w, n);
		for (i = 0; i < n && w->chunk[c].state != FREE; i++)
			c = c + 1 < w->g.chunks ? c + 1 : w->g.first_chunk;
		log->chunk = NONE;
		if (w->chunk[c].state != FREE)
			return false;
		log->chunk = c;
		log->at = 0;
		w->chunk[c].state = OPEN;
		w->chunk[c].n = 0;
		memset(&w->found[c], 0, sizeof(w->found[c]));
		w->found[c].gen = w->next_seq;
		w->found[c].tag = r->info.tag;
	}
	r->info.chunk = c;
	r->info.at = log->at;
	r->info.gen = w->found[c].gen;
	r->info.seq = w->next_seq++;
	log->at += r->info.data + 1;
	return true;
}

static void build(struct writer *w, struct record *r)
{
	u32 place = r->info.at, i, s;

	r->image = calloc(r->info.data + 1, VC_BLOCK_SIZE);
	if (r->info.data && !below(w, 3))
		r->info.flags = VC_RECORD_UNCHECKED;
	for (i = 0; i < r->info.nr; i++) {
		struct vcache_entry *e = &r->e[i];
		u8 *data;

		e->place = r->info.at;
		if (e->mask) {
			e->place = ++place;
			data = r->image + (size_t)(place - r->info.at) *
			       VC_BLOCK_SIZE;
			/* Data without valid sectors must not be read. */
			memset(data, 0xee, VC_BLOCK_SIZE);
			for (s = 0; s < VC_BLOCK_SECTORS; s++) {
				if (e->mask >> s & 1)
					content(data + s * SECTOR,
						e->block * VC_BLOCK_SECTORS +
						s, r->version);
			}
			e->arg = unchecked(r) ? 0 : vcache_crc32c(data, VC_BLOCK_SIZE);
		} else {
			zero_origin(w, e);
		}
		vcache_log_put_entry(r->image, i, e);
	}
	vcache_log_finish(r->image, w->g.key, &r->info);
}

static void submit(struct writer *w, u32 tag)
{
	struct log *log = &w->log[tag];
	struct record *r;
	struct chunk *c;
	u32 i, s, end;

	if (log->pending == INFLIGHT)
		return;
	r = calloc(1, sizeof(*r));
	r->info.type = VC_LOG_RECORD;
	r->info.volume = VOLUME;
	r->info.tag = tag;
	if (!invent(w, r) || !take_room(w, log, r)) {
		for (i = 0; i < r->info.nr; i++) {
			for (sectors(&r->e[i], &s, &end); s < end; s++) {
				if (counts(&r->e[i], s))
					w->sector[s].busy = false;
			}
		}
		free(r);
		return;
	}
	build(w, r);
	c = &w->chunk[r->info.chunk];
	c->outstanding++;
	memcpy(c->e + c->n, r->e, r->info.nr * sizeof(*r->e));
	c->n += r->info.nr;
	log->record[log->pending++] = r;
	disk_fails(&w->d);
}

/* ---- chunks ---- */

static void seal(struct writer *w, u32 c)
{
	const struct vcache_found *f = &w->found[c];
	struct chunk *k = &w->chunk[c];
	struct vcache_log_info info = { .gen = f->gen, .seq = f->last,
				    .volume = VOLUME, .chunk = c,
				    .tag = f->tag, .revision = 1 };
	u8 *image;
	u32 i;

	if (k->state != CLOSED || k->outstanding)
		return;
	image = calloc(VC_SEAL_COPIES, vcache_seal_bytes(&w->g));
	for (i = 0; i < k->n; i++)
		vcache_seal_put(image, i, &k->e[i]);
	vcache_seal_copies(&w->g, image, k->n, &info);
	if (!w->st.write(&w->d, (u64)c * w->g.chunk_blocks +
			 vcache_chunk_capacity(&w->g), VC_SEAL_COPIES *
			 w->g.seal_blocks, image)) {
		k->state = SEALED;
		if (w->log[f->tag].chunk == c)
			w->log[f->tag].chunk = NONE;
	}
	free(image);
}

static bool reseal(struct writer *w, u32 c)
{
	if (vcache_chunk_reseal(&w->st, &w->g, &w->ix, c, w->found[c].gen,
				w->work)) {
		CHECK(w->d.dead);
		return false;
	}
	w->found[c].lost = false;
	w->found[c].stale = false;
	w->reseals++;
	return true;
}

/* Rule 2 of format.h. Return: false when it has to be tried again later. */
static bool reseal_others(struct writer *w, u16 tag)
{
	bool done = true;
	u32 c;

	for (c = w->g.first_chunk; c < w->g.chunks; c++) {
		struct chunk *k = &w->chunk[c];

		if (k->state == FREE || w->found[c].tag == tag ||
		    !w->found[c].stale)
			continue;
		CHECK(k->state != OPEN);
		seal(w, c);
		if (k->state != SEALED || !reseal(w, c))
			done = false;
	}
	return done;
}

/* Write the live data of a chunk to the origin. */
static bool destage(struct writer *w, u32 c)
{
	u32 place, s;

	for (place = 0; place < w->g.chunk_blocks; place++) {
		u32 cell = c * w->g.chunk_blocks + place;
		u8 mask = vcache_cell_mask(&w->ix, cell);

		if (!mask)
			continue;
		disk_fails(&w->d);
		for (s = 0; s < VC_BLOCK_SECTORS; s++) {
			size_t to = vcache_cell_block(&w->ix, cell) *
				    VC_BLOCK_SIZE + s * SECTOR;

			if (!(mask >> s & 1) || (w->d.dead && below(w, 2)))
				continue;
			memcpy(w->origin + to,
			       disk_at(&w->d, cell) + s * SECTOR, SECTOR);
		}
		if (w->d.dead)
			return false;
	}
	return true;
}

static struct vcache_chunk_disk *table_entry(struct writer *w, u32 c)
{
	return (struct vcache_chunk_disk *)(w->table +
					    sizeof(struct vcache_meta_head)) + c;
}

/* Reclaim a chunk whose live data is all on the origin. */
static bool mark_dead(struct writer *w, u32 c)
{
	u32 place;

	table_entry(w, c)->dead = cpu_to_le64(w->found[c].gen);
	if (vcache_meta_save(&w->st, &w->g, VC_META_TABLE, 0, w->table))
		return false;
	for (place = 0; place < w->g.chunk_blocks; place++)
		vcache_index_drop(&w->ix, c * w->g.chunk_blocks + place);
	w->chunk[c].state = FREE;
	return true;
}

/* Reclaim the oldest chunk of a log, if possible. */
static void reclaim_oldest(struct writer *w, u16 tag)
{
	u32 c, oldest = NONE;

	for (c = w->g.first_chunk; c < w->g.chunks; c++) {
		if (w->chunk[c].state != FREE && w->found[c].tag == tag &&
		    (oldest == NONE || w->found[c].gen < w->found[oldest].gen))
			oldest = c;
	}
	c = oldest;
	if (c == NONE || w->chunk[c].state != SEALED)
		return;
	if (reseal_others(w, tag) && destage(w, c) && mark_dead(w, c))
		w->reclaims++;
}

#endif /* VCACHE_TESTS_WRITER_H */
