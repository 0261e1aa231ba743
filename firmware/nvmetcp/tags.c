// SPDX-License-Identifier: Apache-2.0
#include "tags.h"

#include <stdlib.h>

/**
 * tags_init - create the counters of all tags
 * @t: the counters
 * @max: the largest tag
 *
 * Memory for all tags is allocated now, so that no command can fail later. The
 * system provides the pages when they are written.
 *
 * Return: false if memory is exhausted.
 */
bool tags_init(struct tags *t, uint32_t max)
{
	t->max = max;
	t->count = 0;
	t->slot = calloc((size_t)max + 1, sizeof(*t->slot));
	t->stats = calloc((size_t)max + 1, sizeof(*t->stats));
	return t->slot && t->stats;
}

void tags_destroy(struct tags *t)
{
	free(t->slot);
	free(t->stats);
}

/**
 * tags_get - get the counters of a tag
 * @t: all counters
 * @tag: the tag, at most @t->max
 *
 * Return: the counters, initially 0.
 */
struct tag_stats *tags_get(struct tags *t, uint32_t tag)
{
	if (!t->slot[tag]) {
		t->stats[t->count].tag = tag;
		t->slot[tag] = ++t->count;
	}
	return &t->stats[t->slot[tag] - 1];
}
