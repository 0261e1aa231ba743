/* SPDX-License-Identifier: Apache-2.0 */
/* Counters of each tag, for the vendor log page. */
#ifndef VCACHE_NVMETCP_TAGS_H
#define VCACHE_NVMETCP_TAGS_H

#include <stdbool.h>
#include <stdint.h>

/**
 * struct tag_stats - what the commands of one tag did
 * @tag: the tag
 * @reads: commands
 * @writes: commands
 * @flushes: tagged flushes; of tag 0 also those of a namespace
 * @sectors_read: 512 B sectors
 * @sectors_written: 512 B sectors
 * @flush_time: the device's time in flushes, ns
 * @flush_longest: the longest flush, ns
 */
struct tag_stats {
	uint32_t tag;
	uint64_t reads;
	uint64_t writes;
	uint64_t flushes;
	uint64_t sectors_read;
	uint64_t sectors_written;
	uint64_t flush_time;
	uint64_t flush_longest;
};

/**
 * struct tags - the counters of all tags that were used
 * @max: the largest tag
 * @count: tags used so far
 * @slot: of each tag, 1 + its place in @stats; 0: not used
 * @stats: in the order of their first use, so that a page that is read in
 *	parts does not move underneath
 */
struct tags {
	uint32_t max;
	uint32_t count;
	uint32_t *slot;
	struct tag_stats *stats;
};

bool tags_init(struct tags *t, uint32_t max);
void tags_destroy(struct tags *t);
struct tag_stats *tags_get(struct tags *t, uint32_t tag);

#endif /* VCACHE_NVMETCP_TAGS_H */
