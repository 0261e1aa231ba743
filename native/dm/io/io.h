/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dm-vcache: the paths of requests.
 */
#ifndef DM_VCACHE_IO_H
#define DM_VCACHE_IO_H

#include "../cache/cache.h"
#include "../ssd/ssd.h"

/* age.c */
void vcache_age_work(struct work_struct *work);

/* fallback.c */
bool vcache_fallback(struct bio *bio, struct vcache_io *io, blk_status_t status);
int vcache_fallback_init(struct vcache_dev *dev);

/* flush.c */
int vcache_flush_bio(struct vcache_target *vt, struct bio *bio, struct vcache_io *io);
void vcache_flush_wake(struct list_head *waiters, bool failed);
void vcache_flush_work(struct work_struct *work);
void vcache_flush_done(struct bio *bio, struct vcache_io *io);
void vcache_flush_requeue(struct vcache_dev *dev);

/* park.c */
int vcache_park(struct vcache_dev *dev, struct bio *bio, struct vcache_io *io);
void vcache_past_done(struct vcache_dev *dev, struct vcache_io *io, enum req_op op);
void vcache_parked_done(struct vcache_dev *dev, struct vcache_io *io, enum req_op op);
void vcache_parked_requeue(struct vcache_dev *dev);
void vcache_park_work(struct work_struct *work);

/* read.c */
int vcache_read_bio(struct vcache_tag *tag, struct bio *bio, struct vcache_io *io,
		    struct bio **send);
void vcache_read_done(struct bio *bio, struct vcache_io *io, blk_status_t status);

/* write.c */
void vcache_write_done(struct vcache_io *io, blk_status_t status);
int vcache_write_bio(struct vcache_target *vt, struct bio *bio, struct vcache_io *io);
void vcache_tag_requeue(struct vcache_tag *tag);

/* writeout.c */
void vcache_granted_work(struct work_struct *work);
void vcache_tag_work(struct work_struct *work);

#endif /* DM_VCACHE_IO_H */
