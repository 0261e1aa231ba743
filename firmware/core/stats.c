// SPDX-License-Identifier: Apache-2.0
/* What the device tells about itself. */
#include "internal.h"

#include "crc32c.h"

void vs_get_stats(const struct vs_ssd *s, struct vs_stats *out)
{
	*out = s->stats;
}

bool vs_get_tag_stats(const struct vs_ssd *s, uint32_t tag,
		      struct vs_tag_stats *out)
{
	uint32_t log = vs_tag_find(s, tag);

	*out = s->log[log].stats;
	out->unlogged = s->log[log].count - s->log[log].durable +
			s->log[log].unlogged;
	return log != VS_HTAG_LOG || tag == VS_TAG_HOST;
}

uint64_t vs_data_blocks(const struct vs_ssd *s)
{
	uint64_t blocks = s->blocks_all;
	uint32_t i;

	for (i = 0; i < s->c.lanes; i++)
		blocks -= s->lane[i].meta_share + s->c.bad_blocks +
			  VS_GC_RESERVE;
	return blocks;
}

void vs_erase_histogram(const struct vs_ssd *s, uint32_t width, uint32_t *out,
			uint32_t buckets)
{
	uint32_t i;

	for (i = 0; i < buckets; i++)
		out[i] = 0;
	for (i = 0; i < s->blocks_all; i++) {
		uint32_t bucket = s->block[i].erases / width;

		if (s->block[i].state != VS_BLOCK_BAD)
			out[bucket < buckets ? bucket : buckets - 1]++;
	}
}

uint32_t vs_map_hash(const struct vs_ssd *s)
{
	return vs_crc32c(0, s->map, (size_t)s->blocks * sizeof(*s->map));
}
