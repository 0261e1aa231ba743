// SPDX-License-Identifier: GPL-2.0
/*
 * Extents from user space, arbitrary bytes: extents that vcache_sectors_check() accepts
 * must never break a map. An input is the size of the device (u64),
 * then commands: {u8 kind, u8 owner, u8 n} with n times {u64 start, u64 len}.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "../../native/core/runs.h"

static char owners[4];

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

static void *room(size_t n, size_t size)
{
	void *p = malloc(n ? n * size : 1);

	assert(p);
	return p;
}

static void check_map(const struct vcache_run *run, size_t n, u64 size)
{
	u64 end = 0;
	size_t i;

	for (i = 0; i < n; i++) {
		assert(run[i].len && run[i].start >= end);
		assert(run[i].start < size);
		assert(run[i].len <= size - run[i].start);
		end = run[i].start + run[i].len;
		assert(vcache_runs_owner(run, n, run[i].start, run[i].len) ==
		       run[i].owner);
		assert(vcache_runs_owner(run, n, end - 1, 1) == run[i].owner);
	}
}

static void replace(struct vcache_run **run, size_t *n, char *owner,
		    const struct vcache_sectors *s, size_t m)
{
	struct vcache_run *out = room(*n + m, sizeof(*out));
	size_t out_n, i;

	if (vcache_runs_replace(*run, *n, owner, s, m, out, &out_n)) {
		free(out);
		return;
	}
	for (i = 0; i < m; i++)
		assert(vcache_runs_owner(out, out_n, s[i].start, s[i].len) ==
		       owner);
	free(*run);
	*run = out;
	*n = out_n;
}

static void subtract(struct vcache_run **run, size_t *n,
		     const struct vcache_sectors *s, size_t m)
{
	size_t i;

	for (i = 0; i < m; i++) {
		struct vcache_run *out = room(*n + 1, sizeof(*out));

		*n = vcache_runs_subtract(*run, *n, s[i].start, s[i].len, out);
		free(*run);
		*run = out;
		assert(!vcache_runs_owner(*run, *n, s[i].start, 1));
		assert(!vcache_runs_owner(*run, *n, s[i].start + s[i].len - 1, 1));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct input in = { data, len };
	struct vcache_run *run = NULL;
	uint8_t head[3];
	size_t n = 0;
	u64 size;

	if (!take(&in, &size, sizeof(size)))
		return 0;
	while (take(&in, head, sizeof(head))) {
		struct vcache_sectors *s = room(head[2], sizeof(*s));

		if (!take(&in, s, head[2] * sizeof(*s))) {
			free(s);
			break;
		}
		if (!vcache_sectors_check(s, head[2], 0, size)) {
			if (head[0] & 1)
				subtract(&run, &n, s, head[2]);
			else
				replace(&run, &n, &owners[head[1] % 4], s,
					head[2]);
			check_map(run, n, size);
		}
		free(s);
	}
	free(run);
	return 0;
}
