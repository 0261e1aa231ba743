/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A map of owners of sectors: sorted, disjoint runs of sectors, each with an owner.
 *
 * The map is a table of two levels. The runs are in leaves of at most VC_LEAF_MAX, and a
 * directory has the first sector of each leaf. A leaf never changes: a change replaces the
 * leaves that it touches, and the directory only if their number or their borders change.
 * So its cost follows the runs that it touches, and not those of all owners; of the rest,
 * at most the directory is copied, which has one entry of 24 bytes for about a hundred runs.
 * A lookup reads a few cache lines of the directory, which all lookups share, and a few of a
 * leaf of at most 4 KiB.
 *
 * Readers need no lock, if memory is freed after them (RCU in the kernel). Changes exclude one
 * another.
 */
#ifndef VCACHE_CORE_RUNS_H
#define VCACHE_CORE_RUNS_H

#include "types.h"

/*
 * Maximum number of runs of a leaf. With the headers here and in the kernel, 32 bytes, a full
 * leaf fits in 4 KiB and a half one in 2 KiB.
 */
#define VC_LEAF_MAX	168U
#define VC_LEAF_HALF	(VC_LEAF_MAX / 2)

/**
 * struct vcache_owner - an owner of runs; only changes of a map write to it
 * @runs: number of its runs
 * @sectors: their sectors
 */
struct vcache_owner {
	u32 runs;
	u64 sectors;
};

/**
 * struct vcache_run - a run of sectors with an owner
 * @start: first sector
 * @len: number of sectors, not 0
 * @owner: not NULL
 */
struct vcache_run {
	u64 start;
	u64 len;
	struct vcache_owner *owner;
};

/**
 * struct vcache_sectors - a run of sectors as user space sends it
 * @start: first sector
 * @len: number of sectors
 *
 * It has the layout of struct vcache_extent of the netlink interface.
 */
struct vcache_sectors {
	u64 start;
	u64 len;
};

/**
 * struct vcache_leaf - some runs of a map
 * @next: the next one of a list that a change makes; readers do not use it
 * @slot: its place in the directory, while a change replaces it
 * @nr: number of runs, not 0
 * @run: sorted
 */
struct vcache_leaf {
	struct vcache_leaf *next;
	u32 slot;
	u32 nr;
	struct vcache_run run[];
};

/**
 * struct vcache_runs - the directory of a map; an empty map is NULL
 * @nr: number of leaves, not 0
 * @from: of each leaf: a sector not behind its first one, and not before the end of the leaf
 *        before it
 * @owners: of each leaf: a set of its owners, see vcache_change_apply(); readers do not use it
 * @leaf: the leaves; a change may replace one in place
 */
struct vcache_runs {
	size_t nr;
	u64 *from;
	u64 *owners;
	struct vcache_leaf **leaf;
};

/**
 * struct vcache_change - a change of a map
 * @map: the map, or NULL
 * @owner: whose runs change; NULL: the sectors are removed from all owners, and none added
 * @all: remove all runs of @owner
 * @remove: sectors to remove from @owner, checked by vcache_sectors_check()
 * @removes: how many; at most 1 if @owner is NULL
 * @add: sectors to add to @owner then, in the same form; it may have some of them already
 * @adds: how many
 * @most: most runs that an owner may have after this
 * @leaf_alloc: returns memory for a leaf with that many runs, or NULL
 * @leaf_free: frees a leaf that no reader has seen
 * @map_alloc: returns memory for a directory with that many leaves, for vcache_runs_init(),
 *             or NULL
 * @to: set to the new map: @map if it was changed in place, NULL if it is empty
 * @gone: set to a list of the leaves that readers of @map may still use
 * @runs: after 0 and -E2BIG: the runs that @owner has or would have, if it is not NULL
 * @clash: after -EEXIST: a sector of @add that belongs to another owner
 * @other: after -EEXIST: that owner
 */
struct vcache_change {
	struct vcache_runs *map;
	struct vcache_owner *owner;
	bool all;
	const struct vcache_sectors *remove;
	size_t removes;
	const struct vcache_sectors *add;
	size_t adds;
	u32 most;
	struct vcache_leaf *(*leaf_alloc)(size_t runs);
	void (*leaf_free)(struct vcache_leaf *leaf);
	struct vcache_runs *(*map_alloc)(size_t leaves);

	struct vcache_runs *to;
	struct vcache_leaf *gone;
	u64 runs;
	u64 clash;
	struct vcache_owner *other;

	/* private: */
	struct vcache_leaf *open;	/* the leaf being filled */
	struct vcache_leaf *made;	/* finished leaves, in their order */
	struct vcache_leaf **tail;
	size_t nmade;
	size_t ngone;
	u64 end;			/* of the last run in a new leaf */
	struct vcache_owner *last;	/* its owner */
	size_t next_remove;
	size_t next_add;		/* not in a new leaf yet */
	size_t next_hole;		/* of @add, where older runs have to give way */
	u64 had;			/* runs of @owner in replaced leaves */
	u64 has;			/* and in new ones */
};

/* Bytes of a directory with so many leaves. */
static inline size_t vcache_runs_size(size_t leaves)
{
	return sizeof(struct vcache_runs) +
	       leaves * (2 * sizeof(u64) + sizeof(struct vcache_leaf *));
}

void vcache_runs_init(struct vcache_runs *map, size_t leaves);
int vcache_sectors_check(const struct vcache_sectors *s, size_t n, u64 from, u64 size);
struct vcache_owner *vcache_runs_owner(const struct vcache_runs *map, u64 start, u64 len);

/* For runs_change.c. */
size_t vcache_runs_slot(const struct vcache_runs *map, u64 sector);
u32 vcache_leaf_find(const struct vcache_leaf *leaf, u64 sector);

/* runs_change.c */
int vcache_change_apply(struct vcache_change *c);

#endif /* VCACHE_CORE_RUNS_H */
