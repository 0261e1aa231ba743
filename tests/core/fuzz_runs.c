// SPDX-License-Identifier: GPL-2.0
/*
 * Extents from user space, arbitrary bytes: extents that vcache_sectors_check() accepts
 * must never break a map. An input is the size of the device (u64), then commands:
 * {u8 kind, u8 owner, u8 n} with n times {u64 start, u64 len}.
 */
#include <assert.h>
#include <string.h>

#include "map.h"

/* Most runs of an owner; more than one input has, but discards reach it. */
#define MOST 300

enum kind {
	REPLACE,
	CHANGE,		/* the first half is removed, the other one is added */
	PUNCH,
	KINDS,
};

static struct vcache_owner owners[4];

struct input {
	const uint8_t *at;
	size_t left;
};

static bool take(struct input *in, void *to, size_t n)
{
	if (in->left < n)
		return false;
	memcpy(to, in->at, n);
	in->at += n;
	in->left -= n;
	return true;
}

static void check_map(const struct vcache_runs *map, u64 size)
{
	u64 sectors[4] = { 0 };
	u32 runs[4] = { 0 };
	size_t i;
	u32 k;

	assert(map_runs(map, size) >= 0);
	for (i = 0; map && i < map->nr; i++) {
		for (k = 0; k < map->leaf[i]->nr; k++) {
			const struct vcache_run *r = &map->leaf[i]->run[k];

			runs[r->owner - owners]++;
			sectors[r->owner - owners] += r->len;
			assert(vcache_runs_owner(map, r->start, r->len) == r->owner);
			assert(vcache_runs_owner(map, r->start + r->len - 1, 1) == r->owner);
		}
	}
	for (i = 0; i < 4; i++)
		assert(owners[i].runs == runs[i] && owners[i].sectors == sectors[i]);
}

static struct vcache_runs *change(struct vcache_runs *map, struct vcache_owner *owner,
				  const struct vcache_sectors *s, size_t n, size_t removes)
{
	struct vcache_change c = { .map = map, .owner = owner, .all = !removes, .remove = s,
				   .removes = removes, .add = s + removes, .adds = n - removes,
				   .most = MOST };
	size_t i;

	if (map_apply(&c))
		return map;
	map = map_finish(&c);
	for (i = removes; i < n; i++)
		assert(vcache_runs_owner(map, s[i].start, s[i].len) == owner);
	return map;
}

static struct vcache_runs *punch(struct vcache_runs *map, const struct vcache_sectors *s,
				 size_t n)
{
	size_t i;

	for (i = 0; i < n; i++) {
		struct vcache_change c = { .map = map, .remove = &s[i], .removes = 1,
					   .most = MOST };

		assert(!map_apply(&c));
		map = map_finish(&c);
		assert(!vcache_runs_owner(map, s[i].start, 1));
		assert(!vcache_runs_owner(map, s[i].start + s[i].len - 1, 1));
	}
	return map;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct input in = { data, len };
	struct vcache_runs *map = NULL;
	uint8_t head[3];
	u64 size;

	if (!take(&in, &size, sizeof(size)))
		return 0;
	memset(owners, 0, sizeof(owners));
	while (take(&in, head, sizeof(head))) {
		size_t n = head[2], half = n / 2;
		struct vcache_sectors *s = malloc(n ? n * sizeof(*s) : 1);

		assert(s);
		if (!take(&in, s, n * sizeof(*s))) {
			free(s);
			break;
		}
		if (head[0] % KINDS == CHANGE) {
			if (!vcache_sectors_check(s, half, 0, size) &&
			    !vcache_sectors_check(s + half, n - half, 0, size))
				map = change(map, &owners[head[1] % 4], s, n, half);
		} else if (!vcache_sectors_check(s, n, 0, size)) {
			if (head[0] % KINDS == PUNCH)
				map = punch(map, s, n);
			else
				map = change(map, &owners[head[1] % 4], s, n, 0);
		}
		check_map(map, size);
		free(s);
	}
	map_free(map);
	return 0;
}
