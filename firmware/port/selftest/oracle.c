// SPDX-License-Identifier: Apache-2.0
/*
 * The allowed content of each block.
 *
 * Every write and TRIM of a block is a version. Versions ascend over the whole
 * device. The bytes of a version depend on its number and the block, so a torn
 * version, or one of another block, is detected. A block has its newest version;
 * after a power cut it has its durable version or a later one.
 */
#include "selftest.h"

#define WORDS (VS_BLOCK / 4)

/**
 * struct history - versions of one block; 0: never written
 * @newest: version that a read returns
 * @durable: oldest version that is allowed after a power cut
 * @trim: newest TRIM
 * @of: newest write or TRIM of each tag
 */
struct history {
	uint32_t newest;
	uint32_t durable;
	uint32_t trim;
	uint32_t of[ST_TAGS];
};

static struct history history[ST_BLOCKS];
static uint32_t version;

static uint32_t word(uint32_t i, uint32_t block, uint32_t v)
{
	if (i < 2)
		return i ? v : block;
	return (i * 2654435761u ^ v) * 2246822519u + block;
}

static bool is_version(const uint32_t *w, uint32_t block, uint32_t v)
{
	uint32_t i;

	for (i = 0; i < WORDS; i++) {
		if (w[i] != word(i, block, v))
			return false;
	}
	return true;
}

static bool is_zero(const uint32_t *w)
{
	uint32_t i;

	for (i = 0; i < WORDS; i++) {
		if (w[i])
			return false;
	}
	return true;
}

void st_oracle_init(void)
{
	uint32_t i;

	for (i = 0; i < ST_BLOCKS; i++)
		history[i] = (struct history){ 0 };
	version = 0;
}

/* Create the next version of the block, with its bytes at @data. */
void st_oracle_write(uint32_t block, uint32_t tag, void *data)
{
	struct history *h = &history[block];
	uint32_t *w = data, i;

	h->newest = ++version;
	h->of[tag] = version;
	for (i = 0; i < WORDS; i++)
		w[i] = word(i, block, version);
}

void st_oracle_trim(uint32_t block, uint32_t tag)
{
	struct history *h = &history[block];

	h->newest = ++version;
	h->trim = version;
	h->of[tag] = version;
}

void st_oracle_flush(uint32_t first, uint32_t count)
{
	uint32_t i;

	for (i = first; i < first + count; i++)
		history[i].durable = history[i].newest;
}

void st_oracle_flush_tag(uint32_t tag)
{
	uint32_t i;

	for (i = 0; i < ST_BLOCKS; i++) {
		struct history *h = &history[i];

		if (h->durable < h->of[tag])
			h->durable = h->of[tag];
		if (h->durable < h->of[VS_TAG_HOST])
			h->durable = h->of[VS_TAG_HOST];
	}
}

/* Return true if the host may read this data. */
bool st_oracle_read(uint32_t block, const void *data)
{
	const struct history *h = &history[block];

	if (h->newest == h->trim)
		return is_zero(data);
	return is_version(data, block, h->newest);
}

/* The same after a power cut; the version found is durable from then on. */
bool st_oracle_recovered(uint32_t block, const void *data)
{
	struct history *h = &history[block];
	const uint32_t *w = data;
	uint32_t found = w[1], tag;

	if (is_zero(w)) {
		if (h->durable && h->trim < h->durable)
			return false;
		found = 0;
	} else if (found < h->durable || found > h->newest ||
		   !is_version(w, block, found)) {
		return false;
	}
	h->newest = found;
	h->durable = found;
	h->trim = 0;
	for (tag = 0; tag < ST_TAGS; tag++)
		h->of[tag] = found;
	return true;
}
