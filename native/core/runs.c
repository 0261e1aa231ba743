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

/**
 * vcache_runs_init - set up a directory
 * @map: memory of vcache_runs_size() bytes
 * @leaves: number of leaves
 */
void vcache_runs_init(struct vcache_runs *map, size_t leaves)
{
	map->nr = leaves;
	map->from = (u64 *)(map + 1);
	map->owners = map->from + leaves;
	map->leaf = (struct vcache_leaf **)(map->owners + leaves);
}

/**
 * vcache_runs_slot - find the leaf that has a sector, if any has it
 * @map: the map
 * @sector: the sector
 *
 * Return: the last leaf that begins at or before it; the first leaf if there is none.
 */
size_t vcache_runs_slot(const struct vcache_runs *map, u64 sector)
{
	size_t lo = 0, hi = map->nr;

	while (hi - lo > 1) {
		size_t mid = lo + (hi - lo) / 2;

		if (map->from[mid] <= sector)
			lo = mid;
		else
			hi = mid;
	}
	return lo;
}

/**
 * vcache_leaf_find - find the first run of a leaf that ends behind a sector
 * @leaf: the leaf
 * @sector: the sector
 *
 * Return: its number, or the number of runs if there is none.
 */
u32 vcache_leaf_find(const struct vcache_leaf *leaf, u64 sector)
{
	u32 lo = 0, hi = leaf->nr;

	while (lo < hi) {
		u32 mid = lo + (hi - lo) / 2;

		if (leaf->run[mid].start + leaf->run[mid].len > sector)
			hi = mid;
		else
			lo = mid + 1;
	}
	return lo;
}

/**
 * vcache_runs_owner - find the owner of a range
 * @map: the map, or NULL
 * @start: first sector of the range
 * @len: its length, not 0
 *
 * A range in two leaves is looked up in one after the other. If a change is made between, each
 * part is answered as it was at some time during the call.
 *
 * Return: the owner of all sectors; NULL if a sector has none, or if there are two owners.
 */
struct vcache_owner *vcache_runs_owner(const struct vcache_runs *map, u64 start, u64 len)
{
	const struct vcache_leaf *leaf;
	struct vcache_owner *owner;
	u64 end = start + len;
	size_t slot;
	u32 i;

	if (!map)
		return NULL;
	slot = vcache_runs_slot(map, start);
	leaf = READ_ONCE(map->leaf[slot]);
	i = vcache_leaf_find(leaf, start);
	if (i == leaf->nr || leaf->run[i].start > start)
		return NULL;
	owner = leaf->run[i].owner;
	for (;;) {
		start = leaf->run[i].start + leaf->run[i].len;
		if (start >= end)
			return owner;
		if (++i == leaf->nr) {
			if (++slot == map->nr)
				return NULL;
			leaf = READ_ONCE(map->leaf[slot]);
			i = 0;
		}
		if (leaf->run[i].start != start || leaf->run[i].owner != owner)
			return NULL;
	}
}
