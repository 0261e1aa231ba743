// SPDX-License-Identifier: GPL-2.0
#include "runs.h"

/**
 * vcache_sectors_check - check a list of runs from user space
 * @s: the runs, not trusted
 * @n: how many
 * @from: the first sector allowed (the end of the part received before)
 * @size: sectors of the device
 *
 * Return: 0 if they are sorted, not empty, disjoint and on the device; else -EINVAL.
 */
int vcache_sectors_check(const struct vcache_sectors *s, size_t n, u64 from, u64 size)
{
	size_t i;

	for (i = 0; i < n; i++) {
		if (!s[i].len || s[i].start < from || s[i].start >= size ||
		    s[i].len > size - s[i].start)
			return -EINVAL;
		from = s[i].start + s[i].len;
	}
	return 0;
}

/* Find the first run that ends behind @sector; n if there is none. */
static size_t vc_runs_find(const struct vcache_run *runs, size_t n, u64 sector)
{
	size_t lo = 0, hi = n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (runs[mid].start + runs[mid].len > sector)
			hi = mid;
		else
			lo = mid + 1;
	}
	return lo;
}

/**
 * vcache_runs_owner - find the owner of a range
 * @runs: the map
 * @n: its size
 * @start: first sector of the range
 * @len: its length, not 0
 *
 * Return: the owner of all sectors; NULL if a sector has none, or if there are two owners.
 */
void *vcache_runs_owner(const struct vcache_run *runs, size_t n, u64 start, u64 len)
{
	size_t i = vc_runs_find(runs, n, start);
	u64 end = start + len;
	void *owner;

	if (i == n || runs[i].start > start)
		return NULL;
	owner = runs[i].owner;
	for (;;) {
		start = runs[i].start + runs[i].len;
		if (start >= end)
			return owner;
		if (++i == n || runs[i].start != start ||
		    runs[i].owner != owner)
			return NULL;
	}
}

/**
 * vcache_runs_subtract - make a map without a range
 * @runs: the map
 * @n: its size
 * @start: first sector to remove
 * @len: how many
 * @out: space for @n + 1 runs
 *
 * Return: the size of the new map in @out.
 */
size_t vcache_runs_subtract(const struct vcache_run *runs, size_t n, u64 start,
			    u64 len, struct vcache_run *out)
{
	u64 end = start + len;
	size_t i, k = 0;

	for (i = 0; i < n; i++) {
		struct vcache_run r = runs[i];
		u64 r_end = r.start + r.len;

		if (r_end <= start || r.start >= end) {
			out[k++] = r;
			continue;
		}
		if (r.start < start) {
			out[k] = r;
			out[k++].len = start - r.start;
		}
		if (r_end > end) {
			out[k] = r;
			out[k].start = end;
			out[k++].len = r_end - end;
		}
	}
	return k;
}

/**
 * vcache_runs_replace - make a map with other runs for one owner
 * @runs: the map
 * @n: its size
 * @owner: the owner
 * @s: its new runs, checked by vcache_sectors_check(); @m 0: none
 * @m: how many
 * @out: space for @n + @m runs
 * @out_n: the size of the new map
 *
 * Return: 0, or -EEXIST if a new run overlaps a run of another owner.
 */
int vcache_runs_replace(const struct vcache_run *runs, size_t n, void *owner,
			const struct vcache_sectors *s, size_t m, struct vcache_run *out,
			size_t *out_n)
{
	size_t i = 0, j = 0, k = 0;
	u64 end = 0;

	while (i < n || j < m) {
		struct vcache_run r;

		if (i < n && runs[i].owner == owner) {
			i++;
			continue;
		}
		if (j == m || (i < n && runs[i].start <= s[j].start)) {
			r = runs[i++];
		} else {
			r.start = s[j].start;
			r.len = s[j++].len;
			r.owner = owner;
		}
		if (r.start < end)
			return -EEXIST;
		end = r.start + r.len;
		out[k++] = r;
	}
	*out_n = k;
	return 0;
}
