/* SPDX-License-Identifier: Apache-2.0 */
/* Counters of each tag, for the vendor log page. */
#ifndef VCACHE_NVMETCP_TAGS_H
#define VCACHE_NVMETCP_TAGS_H

#include <stdbool.h>
#include <stdint.h>

/**
 * struct tag_stats - counters of one tag
 * @tag: the tag
 * @reads: read commands
 * @writes: write commands
 * @flushes: tagged flushes; for tag 0 also flushes of a namespace
 * @sectors_read: sectors of 512 bytes
 * @sectors_written: sectors of 512 bytes
 * @flush_time: sum of the device's times of the flushes, ns
 * @flush_longest: longest flush, ns
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
 * struct tags - the counters of all used tags
 * @max: the largest tag
 * @count: number of used tags
 * @slot: 1 + index in @stats for each tag; 0: not used
 * @stats: counters in the order of the first use, so that entries keep their
 *	place while the host reads the log page in parts
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
