// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "set.h"

/* Ranges are valid: they have a block, and first + blocks is at most 2^32 - 1. */
static uint32_t end_of(struct vssd_range r)
{
	return r.first + r.blocks;
}

/* Find the first range that ends behind a block. */
static size_t find(const struct vssd_set *s, uint32_t block)
{
	size_t low = 0, high = s->n;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (end_of(s->range[mid]) > block)
			high = mid;
		else
			low = mid + 1;
	}
	return low;
}

static int reserve(struct vssd_set *s, size_t n)
{
	size_t room = s->room ? 2 * s->room : 16;
	struct vssd_range *range;

	if (n <= s->room)
		return 0;
	if (room < n)
		room = n;
	range = realloc(s->range, room * sizeof(*range));
	if (!range)
		return -ENOMEM;
	s->range = range;
	s->room = room;
	return 0;
}

/* Replace @n ranges from @at on by @to of them. There must be room. */
static void splice(struct vssd_set *s, size_t at, size_t n,
		   const struct vssd_range *by, size_t to)
{
	memmove(s->range + at + to, s->range + at + n,
		(s->n - at - n) * sizeof(*s->range));
	if (to)
		memcpy(s->range + at, by, to * sizeof(*by));
	s->n = s->n - n + to;
}

/* vssd_set_has - whether all blocks of a range are in a set */
bool vssd_set_has(const struct vssd_set *s, struct vssd_range r)
{
	size_t at = find(s, r.first);

	return at < s->n && s->range[at].first <= r.first &&
	       end_of(s->range[at]) >= end_of(r);
}

/* vssd_set_meets - whether a block of a range is in a set */
bool vssd_set_meets(const struct vssd_set *s, struct vssd_range r)
{
	size_t at = find(s, r.first);

	return at < s->n && s->range[at].first < end_of(r);
}

/**
 * vssd_set_add - add a range that does not meet the set
 *
 * Return: 0, or -ENOMEM; then nothing has changed.
 */
int vssd_set_add(struct vssd_set *s, struct vssd_range r)
{
	size_t at = find(s, r.first), n = 0;
	struct vssd_range all = r;
	int error;

	error = reserve(s, s->n + 1);
	if (error)
		return error;
	if (at < s->n && s->range[at].first == end_of(r)) {
		all.blocks += s->range[at].blocks;
		n++;
	}
	if (at && end_of(s->range[at - 1]) == r.first) {
		at--;
		all.first = s->range[at].first;
		all.blocks += s->range[at].blocks;
		n++;
	}
	splice(s, at, n, &all, 1);
	s->blocks += r.blocks;
	return 0;
}

/**
 * vssd_set_remove - remove the blocks of a range, as far as the set has them
 *
 * Return: 0, or -ENOMEM; then nothing has changed.
 */
int vssd_set_remove(struct vssd_set *s, struct vssd_range r)
{
	size_t at = find(s, r.first), last = at, rest = 0;
	struct vssd_range left[2];
	uint32_t removed = 0;
	int error;

	error = reserve(s, s->n + 1);
	if (error)
		return error;
	for (; last < s->n && s->range[last].first < end_of(r); last++) {
		struct vssd_range one = s->range[last];

		removed += one.blocks;
		if (one.first < r.first) {
			left[rest].first = one.first;
			left[rest].blocks = r.first - one.first;
			removed -= left[rest++].blocks;
		}
		if (end_of(one) > end_of(r)) {
			left[rest].first = end_of(r);
			left[rest].blocks = end_of(one) - end_of(r);
			removed -= left[rest++].blocks;
		}
	}
	splice(s, at, last - at, left, rest);
	s->blocks -= removed;
	return 0;
}

/**
 * vssd_set_common - add to a set what another set has of a range
 * @s: the other set
 * @r: the range
 * @to: the set; blocks that it has already are left out
 *
 * Return: 0, or -ENOMEM; then a part was added.
 */
int vssd_set_common(const struct vssd_set *s, struct vssd_range r,
		    struct vssd_set *to)
{
	size_t at = find(s, r.first);

	for (; at < s->n && s->range[at].first < end_of(r); at++) {
		struct vssd_range one = s->range[at];
		uint32_t end = end_of(one);
		int error;

		if (one.first < r.first)
			one.first = r.first;
		if (end > end_of(r))
			end = end_of(r);
		one.blocks = end - one.first;
		error = vssd_set_remove(to, one);
		if (!error)
			error = vssd_set_add(to, one);
		if (error)
			return error;
	}
	return 0;
}

/**
 * vssd_set_copy - make a set equal to another one
 *
 * Return: 0, or -ENOMEM; then nothing has changed.
 */
int vssd_set_copy(const struct vssd_set *s, struct vssd_set *to)
{
	int error = reserve(to, s->n + 1);

	if (error)
		return error;
	splice(to, 0, to->n, s->range, s->n);
	to->blocks = s->blocks;
	return 0;
}

/* vssd_set_clear - make a set empty, and free its memory */
void vssd_set_clear(struct vssd_set *s)
{
	free(s->range);
	memset(s, 0, sizeof(*s));
}
