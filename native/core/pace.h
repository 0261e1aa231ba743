/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How long must the records of a log wait, so that its writer does not run out of space?
 *
 * A full log gets space one whole chunk at a time, when an old chunk has been reclaimed. A writer
 * that fills a chunk quickly then waits for the next one, and its flushes wait, too. To avoid one
 * long wait, each record waits a little.
 *
 * The sum of these delays is learned. If the writer ran out of space nevertheless, the sum grows
 * by a quarter of the time for which the writer stood still. At most one second of that time
 * counts, because in a longer one a device may have hung. If the next chunk was free before the
 * writer needed it, the sum shrinks by half of that spare time, and by at most half of itself.
 *
 * A log whose blocks are nearly all dirty gets no space by relocation. The closer it is to its
 * limit of dirty blocks, the more slowly it may grow: by at most (limit - dirty) blocks in
 * VC_PACE_GROW. If it grows no more, its writer is as fast as destage. While at most half of the
 * limit is dirty, it may grow freely.
 *
 * Time is in ns of any clock that does not go back. There are no locks.
 */
#ifndef VCACHE_CORE_PACE_H
#define VCACHE_CORE_PACE_H

#include "types.h"

/* Longest delay of a record, ns. */
#define VC_PACE_WAIT_MAX	50000000ULL

/* Records are split to keep the delay below VC_PACE_WAIT_MAX, but not below so many blocks. */
#define VC_PACE_BLOCKS_MIN	8U

/* No record waits for a shorter delay, ns: it is added to that of the next record. */
#define VC_PACE_WAIT_MIN	50000ULL

/* The time for which a writer stands still counts up to this, ns. */
#define VC_PACE_STOOD_MAX	1000000000ULL

/* At the rate at which a log may grow now, it would reach its limit after so long, ns. */
#define VC_PACE_GROW		500000000ULL

/* Largest sum of the delays of the records of a chunk, ns. */
#define VC_PACE_DELAY_MAX	10000000000ULL

/**
 * struct vcache_pace - the pace of a log's writer
 * @delay: sum of the delays of the records that fill a chunk, ns; 0: none
 * @next: when the next record may be written, ns
 * @since: since when the writer stands still for want of space, ns; 0: it does not
 * @stood: for how long it stood still since it opened its last chunk, ns
 */
struct vcache_pace {
	u64 delay;
	u64 next;
	u64 since;
	u64 stood;
};

void vcache_pace_stop(struct vcache_pace *p, u64 now);
void vcache_pace_go(struct vcache_pace *p, u64 now);
void vcache_pace_open(struct vcache_pace *p, u64 now, u64 early);
void vcache_pace_write(struct vcache_pace *p, u64 now, u32 blocks, u32 capacity);
void vcache_pace_grow(struct vcache_pace *p, u64 now, u32 grown, u32 dirty, u32 limit);
u32 vcache_pace_blocks(const struct vcache_pace *p, u32 capacity, u32 dirty, u32 limit);
u64 vcache_pace_wait(const struct vcache_pace *p, u64 now);

#endif /* VCACHE_CORE_PACE_H */
