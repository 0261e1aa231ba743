/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-vcache: what the files of this folder share. */
#ifndef DM_VCACHE_IO_INTERNAL_H
#define DM_VCACHE_IO_INTERNAL_H

#include "io.h"

/* append.c */
bool vcache_append(struct vcache_tag *tag);
void vcache_append_one(struct vcache_tag *tag);
bool vcache_append_copy(struct vcache_tag *tag);
bool vcache_append_refuse(struct vcache_tag *tag);
int vcache_append_discard(struct vcache_log *log, u64 block, u64 blocks);

/* discard.c */
void vcache_discard_begin(struct vcache_io *io);

/* fallback.c */
void vcache_fallback_lost(struct vcache_io *io, const struct bvec_iter *iter);

/* flush.c */
void vcache_flush_write(struct vcache_tag *tag, struct bio *bio, struct vcache_io *io,
			bool commits);

/* large.c */
bool vcache_large_write(struct vcache_tag *tag, struct bio *bio, struct vcache_io *io);
bool vcache_large_wanted(const struct vcache_tag *tag, struct bio *bio,
			 const struct vcache_io *io);
bool vcache_large_covers(struct vcache_dev *dev, pgoff_t first, pgoff_t last);
bool vcache_large_delays(struct vcache_dev *dev, const struct vcache_block *b);

/* park.c */
bool vcache_parked_overlap(struct vcache_dev *dev, struct bio *bio);
bool vcache_parked_wait_writers(struct vcache_io *io);

/* read.c */
unsigned int vcache_read_hits(const struct bvec_iter *iter, struct vcache_read *rd);

/* write.c */
void vcache_write_uncache(struct vcache_dev *dev, struct bio *bio);
void vcache_write_count(struct vcache_tag *tag, struct bio *bio);
void vcache_write_unkeep(struct vcache_tag *tag);
void vcache_write_copied(struct vcache_tag *tag, struct bio *bio, struct vcache_io *io);
void vcache_tag_admit(struct vcache_tag *tag);

/* writeout.c */
bool vcache_writeout_small(struct vcache_tag *tag);
void vcache_writeout_submit(struct vcache_tag *tag, struct bio *bio);
struct bio *vcache_writeout_add(struct vcache_tag *tag, struct bio *bio,
				struct vcache_block *b, struct vcache_record *rec);

#endif /* DM_VCACHE_IO_INTERNAL_H */
