/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dm-vcache: miss-ratio curves of tags.
 */
#ifndef DM_VCACHE_CURVE_H
#define DM_VCACHE_CURVE_H

#include <linux/types.h>

#include "../../netlink/vcache_uapi.h"

struct vcache_curve;
struct vcache_tag;

enum vcache_curve_kind {
	VC_CURVE_READ,
	VC_CURVE_WRITE,
	VC_CURVE_KINDS
};

/**
 * struct vcache_curve_said - a miss-ratio curve
 * @sizes: cache sizes of its points, in blocks: 0, and then one grain more each
 * @footprint: about how many different blocks were accessed
 * @accesses: blocks read and written
 * @misses: how many of these a cache of each size would have missed
 */
struct vcache_curve_said {
	u64 sizes[VCACHE_CURVE_POINTS];
	u64 footprint;
	u64 accesses[VC_CURVE_KINDS];
	u64 misses[VC_CURVE_KINDS][VCACHE_CURVE_POINTS];
};

struct vcache_curve *vcache_curve_make(void);
void vcache_curve_free(struct vcache_curve *c);
void vcache_curve_touch(struct vcache_tag *tag, enum vcache_curve_kind kind,
			sector_t sector, unsigned int sectors);
int vcache_curve_read(struct vcache_tag *tag, struct vcache_curve_said *said);

#endif /* DM_VCACHE_CURVE_H */
