/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dm-vcache: the paths of requests.
 */
#ifndef DM_VCACHE_IO_H
#define DM_VCACHE_IO_H

#include "../cache/cache.h"
#include "../ssd/ssd.h"

/* age.c */
void vc_age_work(struct work_struct *work);

/* fallback.c */
bool vc_fallback(struct bio *bio, struct vc_io *io, blk_status_t status);
int vc_fallback_init(struct vc_dev *dev);

/* flush.c */
int vc_flush_bio(struct vc_target *vt, struct bio *bio, struct vc_io *io);
void vc_flush_wake(struct list_head *waiters, bool failed);
void vc_flush_work(struct work_struct *work);
void vc_flush_done(struct bio *bio, struct vc_io *io);
void vc_flush_requeue(struct vc_dev *dev);

/* park.c */
int vc_park(struct vc_dev *dev, struct bio *bio, struct vc_io *io);
void vc_past_done(struct vc_dev *dev, struct vc_io *io, enum req_op op);
void vc_parked_done(struct vc_dev *dev, struct vc_io *io, enum req_op op);
void vc_parked_requeue(struct vc_dev *dev);
void vc_park_work(struct work_struct *work);

/* read.c */
int vc_read_bio(struct vc_tag *tag, struct bio *bio, struct vc_io *io,
		struct bio **send);
void vc_read_done(struct bio *bio, struct vc_io *io, blk_status_t status);

/* write.c */
int vc_write_bio(struct vc_target *vt, struct bio *bio, struct vc_io *io);
void vc_tag_requeue(struct vc_tag *tag);

/* writeout.c */
void vc_granted_work(struct work_struct *work);
void vc_tag_work(struct work_struct *work);

#endif /* DM_VCACHE_IO_H */
