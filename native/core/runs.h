/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A map of owners of sectors: sorted, disjoint runs of sectors, each with an owner. The
 * functions do not change a map. They write a new one into memory of the caller, who
 * replaces the old one (by RCU in the kernel).
 */
#ifndef VCACHE_CORE_RUNS_H
#define VCACHE_CORE_RUNS_H

#include "types.h"

/**
 * struct vcache_run - a run of sectors with an owner
 * @start: first sector
 * @len: number of sectors, not 0
 * @owner: opaque, not NULL
 */
struct vcache_run {
	u64 start;
	u64 len;
	void *owner;
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

int vcache_sectors_check(const struct vcache_sectors *s, size_t n, u64 from, u64 size);
void *vcache_runs_owner(const struct vcache_run *runs, size_t n, u64 start, u64 len);
size_t vcache_runs_subtract(const struct vcache_run *runs, size_t n, u64 start,
			    u64 len, struct vcache_run *out);
int vcache_runs_replace(const struct vcache_run *runs, size_t n, void *owner,
			const struct vcache_sectors *s, size_t m, struct vcache_run *out,
			size_t *out_n);

#endif /* VCACHE_CORE_RUNS_H */
