// SPDX-License-Identifier: Apache-2.0
#include "oracle.h"

#include <string.h>

#define WORDS (VS_BLOCK / sizeof(uint64_t))

/* Numbers are never reused, even of lost versions: reuse would hide errors. */
struct version {
	uint32_t number;
	uint32_t tag;
	bool trim;		/* reads as zeroes */
};

/* The version that is certainly durable, and all later ones, by index. */
struct history {
	struct version *version;
	uint32_t count, room;
	uint32_t floor;
	uint32_t next;		/* number */
};

/* Future floors, valid from @done on. */
struct commit {
	vs_time done;
	uint32_t *number;	/* of each block, 0: none */
};

struct oracle {
	uint64_t blocks;
	struct history *block;
	struct commit *commit;
	size_t commits, room;
};

struct oracle *oracle_new(uint64_t blocks)
{
	struct oracle *o = calloc(1, sizeof(*o));
	uint64_t i;

	CHECK(o);
	o->blocks = blocks;
	o->block = calloc(blocks, sizeof(*o->block));
	CHECK(o->block);
	for (i = 0; i < blocks; i++)
		oracle_trim(o, i, VS_TAG_HOST);
	oracle_flush(o, 0, true, 0, 0, blocks);
	oracle_tick(o, 0);
	return o;
}

struct oracle *oracle_copy(const struct oracle *o)
{
	struct oracle *copy = calloc(1, sizeof(*copy));
	uint64_t i;

	CHECK(copy);
	copy->blocks = o->blocks;
	copy->block = calloc(o->blocks, sizeof(*copy->block));
	CHECK(copy->block);
	for (i = 0; i < o->blocks; i++) {
		struct history *h = &copy->block[i];

		*h = o->block[i];
		h->version = malloc(h->room * sizeof(*h->version));
		CHECK(h->version);
		memcpy(h->version, o->block[i].version,
		       h->count * sizeof(*h->version));
	}
	return copy;
}

static void drop_commits(struct oracle *o)
{
	while (o->commits)
		free(o->commit[--o->commits].number);
}

void oracle_free(struct oracle *o)
{
	uint64_t i;

	drop_commits(o);
	for (i = 0; i < o->blocks; i++)
		free(o->block[i].version);
	free(o->block);
	free(o->commit);
	free(o);
}

static struct version *newest(const struct history *h)
{
	return &h->version[h->count - 1];
}

static void append(struct history *h, uint32_t tag, bool trim)
{
	if (h->count == h->room) {
		h->room = h->room ? 2 * h->room : 4;
		h->version = realloc(h->version,
				     h->room * sizeof(*h->version));
		CHECK(h->version);
	}
	h->version[h->count++] = (struct version){ ++h->next, tag, trim };
}

static void content(uint64_t block, uint32_t version, uint64_t *word)
{
	uint64_t state = (block << 32 | version) + 1, i;

	for (i = 0; i < WORDS; i++)
		word[i] = check_next(&state);
	word[0] = block << 32 | version;
}

void oracle_write(struct oracle *o, uint64_t block, uint32_t tag, void *data)
{
	append(&o->block[block], tag, false);
	content(block, newest(&o->block[block])->number, data);
}

void oracle_trim(struct oracle *o, uint64_t block, uint32_t tag)
{
	append(&o->block[block], tag, true);
}

/* The number of the newest version that a flush covers. */
static uint32_t covered(const struct history *h, bool all, uint32_t tag)
{
	uint32_t i;

	for (i = h->count - 1; i > h->floor; i--) {
		uint32_t by = h->version[i].tag;

		if (all || by == tag || by == VS_TAG_HOST)
			break;
	}
	return h->version[i].number;
}

void oracle_flush(struct oracle *o, vs_time done, bool all, uint32_t tag,
		  uint64_t first, uint64_t count)
{
	struct commit *p;
	uint64_t i;

	if (o->commits == o->room) {
		o->room = o->room ? 2 * o->room : 16;
		o->commit = realloc(o->commit, o->room * sizeof(*p));
		CHECK(o->commit);
	}
	p = &o->commit[o->commits++];
	p->done = done;
	p->number = calloc(o->blocks, sizeof(*p->number));
	CHECK(p->number);
	for (i = first; i < first + count; i++)
		p->number[i] = covered(&o->block[i], all, tag);
}

void oracle_tick(struct oracle *o, vs_time now)
{
	size_t i, kept = 0;
	uint64_t b;

	for (i = 0; i < o->commits; i++) {
		struct commit *p = &o->commit[i];

		if (p->done > now) {
			o->commit[kept++] = *p;
			continue;
		}
		for (b = 0; b < o->blocks; b++) {
			struct history *h = &o->block[b];

			while (h->version[h->floor].number < p->number[b])
				h->floor++;
		}
		free(p->number);
	}
	o->commits = kept;
}

void oracle_cut(struct oracle *o, vs_time time)
{
	oracle_tick(o, time);
	drop_commits(o);
}

static bool is_zero(const uint64_t *word)
{
	size_t i;

	for (i = 0; i < WORDS && !word[i]; i++)
		;
	return i == WORDS;
}

/*
 * Return the index of the version that was read; for zeroes, that of the newest
 * TRIM. If it is none of them, return the number of versions.
 */
static uint32_t version_of(const struct oracle *o, uint64_t block,
			   const void *data)
{
	const struct history *h = &o->block[block];
	uint64_t word[WORDS], expected[WORDS];
	uint32_t i;

	memcpy(word, data, sizeof(word));
	for (i = h->count; i-- > 0;) {
		const struct version *v = &h->version[i];

		if (v->trim ? is_zero(word) :
		    word[0] == (block << 32 | v->number))
			break;
	}
	if (i >= h->count || h->version[i].trim)
		return i < h->count ? i : h->count;
	content(block, h->version[i].number, expected);
	return memcmp(word, expected, sizeof(word)) ? h->count : i;
}

void oracle_check_read(const struct oracle *o, uint64_t block, const void *data)
{
	CHECK(version_of(o, block, data) == o->block[block].count - 1);
}

bool oracle_allows(const struct oracle *o, uint64_t block, const void *data)
{
	uint32_t v = version_of(o, block, data);

	return v < o->block[block].count && v >= o->block[block].floor;
}

static void read_block(struct device *d, uint64_t block, void *data)
{
	struct vs_result r = vs_read(d->ssd, d->now, block, 1, data);

	CHECK(r.status == VS_OK);
	d->now = r.done;
}

void oracle_check_recovered(struct oracle *o, struct device *d)
{
	uint64_t i, data[WORDS];

	for (i = 0; i < o->blocks; i++) {
		struct history *h = &o->block[i];
		uint32_t v;

		read_block(d, i, data);
		v = version_of(o, i, data);
		CHECK(v < h->count);
		CHECK(v >= h->floor);
		/* Lost versions must not reappear, present ones must stay. */
		h->version[0] = h->version[v];
		h->count = 1;
		h->floor = 0;
	}
}

void oracle_check_all(const struct oracle *o, struct device *d)
{
	uint64_t i, data[WORDS];

	for (i = 0; i < o->blocks; i++) {
		read_block(d, i, data);
		oracle_check_read(o, i, data);
	}
}
