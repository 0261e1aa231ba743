/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dm-vcache: constants, and what the devices below can do.
 */
#ifndef DM_VCACHE_BASE_H
#define DM_VCACHE_BASE_H

#include <linux/bio.h>
#include <linux/device-mapper.h>

#include "../../netlink/vcache_uapi.h"
#include "probe.h"

#define DM_MSG_PREFIX "vcache"

#define VC_PAGE_SECTORS_SHIFT	(PAGE_SHIFT - SECTOR_SHIFT)
#define VC_PAGE_SECTORS		((unsigned int)(PAGE_SIZE >> SECTOR_SHIFT))

static inline pgoff_t vcache_first_page(const struct bio *bio)
{
	return bio->bi_iter.bi_sector >> VC_PAGE_SECTORS_SHIFT;
}

static inline pgoff_t vcache_last_page(const struct bio *bio)
{
	return (bio_end_sector((struct bio *)bio) - 1) >> VC_PAGE_SECTORS_SHIFT;
}

static inline unsigned int vcache_bio_pages(const struct bio *bio)
{
	return vcache_last_page(bio) - vcache_first_page(bio) + 1;
}

#endif /* DM_VCACHE_BASE_H */
