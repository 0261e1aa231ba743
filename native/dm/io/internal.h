/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-vcache: what the files of this folder share. */
#ifndef DM_VCACHE_IO_INTERNAL_H
#define DM_VCACHE_IO_INTERNAL_H

#include "io.h"

/* append.c */
bool vc_append(struct vc_tag *tag);
bool vc_append_copy(struct vc_tag *tag);
bool vc_append_refuse(struct vc_tag *tag);
int vc_append_discard(struct vc_log *log, u64 block, u64 blocks);

/* discard.c */
void vc_discard_begin(struct vc_io *io);

/* fallback.c */
void vc_fallback_lost(struct vc_io *io, const struct bvec_iter *iter);

/* flush.c */
void vc_flush_write(struct vc_tag *tag, struct bio *bio, struct vc_io *io);

/* park.c */
bool vc_parked_overlap(struct vc_dev *dev, struct bio *bio);

/* read.c */
unsigned int vc_read_hits(const struct bvec_iter *iter, struct vc_read *rd);

/* write.c */
void vc_write_uncache(struct vc_dev *dev, struct bio *bio);
void vc_tag_admit(struct vc_tag *tag);

/* writeout.c */
void vc_writeout_submit(struct vc_tag *tag, struct bio *bio);
struct bio *vc_writeout_add(struct vc_tag *tag, struct bio *bio,
			    struct vc_block *b, struct vc_record *rec);

#endif /* DM_VCACHE_IO_INTERNAL_H */
