// SPDX-License-Identifier: Apache-2.0
/* The vendor log pages for tags. */
#include <string.h>

#include "log.h"
#include "nvme.h"
#include "subsys.h"

/**
 * log_vcache - log page C0h: tag support
 * @s: the subsystem
 * @w: the requested part
 */
void log_vcache(const struct subsys *s, struct log_window *w)
{
	struct log_vcache page = {
		.version = cpu_to_le16(VCACHE_VERSION),
		.tagged_flush = IO_TAGGED_FLUSH,
		.tagged_write = IO_TAGGED_WRITE,
		.tagged_read = IO_TAGGED_READ,
		.tagged_deallocate = IO_TAGGED_DEALLOCATE,
		.capabilities = cpu_to_le32(VCACHE_TAGGED_FLUSH |
					    VCACHE_TAGGED_WRITE |
					    VCACHE_TAGGED_READ |
					    VCACHE_TAG_STATISTICS |
					    VCACHE_WRITES | VCACHE_ERASES |
					    VCACHE_TAGGED_DEALLOCATE |
					    VCACHE_TAG_WEIGHTS),
		.max_tag = cpu_to_le32(s->tags.max),
		.tags_used = cpu_to_le32(s->tags.count),
		.max_tags = cpu_to_le32(s->config.device.max_tags),
		.flushes = cpu_to_le64(s->health.flushes),
		.late_completions = cpu_to_le64(s->health.late),
		.latest_completion = cpu_to_le64(s->health.latest),
		.instance = cpu_to_le32(s->instance),
	};

	memcpy(page.signature, VCACHE_SIGNATURE, sizeof(page.signature));
	log_put(w, 0, &page, sizeof(page));
}

uint64_t log_vcache_tags_size(const struct subsys *s)
{
	return sizeof(struct log_tags_header) +
	       (uint64_t)s->tags.count * sizeof(struct log_tags_entry);
}

/* The controller's counters of a tag, and the SSD's if the tag has state. */
static void put_entry(const struct subsys *s, const struct tag_stats *t,
		      uint64_t at, struct log_window *w)
{
	struct vs_tag_stats ssd;
	struct log_tags_entry entry = {
		.tag = cpu_to_le32(t->tag),
		.reads = cpu_to_le64(t->reads),
		.writes = cpu_to_le64(t->writes),
		.flushes = cpu_to_le64(t->flushes),
		.sectors_read = cpu_to_le64(t->sectors_read),
		.sectors_written = cpu_to_le64(t->sectors_written),
		.flush_time = cpu_to_le64(t->flush_time),
		.flush_longest = cpu_to_le64(t->flush_longest),
	};

	if (vs_get_tag_stats(s->config.device.ssd, t->tag, &ssd)) {
		entry.flags = cpu_to_le32(TAG_HAS_STATE);
		entry.buffered = cpu_to_le64(ssd.buffered);
		entry.unlogged = cpu_to_le64(ssd.unlogged);
		entry.flushed = cpu_to_le64(ssd.flushed);
		entry.log_pages = cpu_to_le64(ssd.log_pages);
		entry.written = cpu_to_le64(ssd.written);
		entry.weight = cpu_to_le32(vs_get_weight(s->config.device.ssd,
							 t->tag));
		entry.share = cpu_to_le32((uint32_t)ssd.share);
		entry.buffer_wait = cpu_to_le64(ssd.buffer_wait_ns);
		entry.bank_time = cpu_to_le64(ssd.bank_ns);
		entry.bank_wait = cpu_to_le64(ssd.bank_wait_ns);
	}
	log_put(w, at, &entry, sizeof(entry));
}

/**
 * log_vcache_tags - log page C1h: counters of each used tag
 * @s: the subsystem
 * @w: the requested part
 */
void log_vcache_tags(const struct subsys *s, struct log_window *w)
{
	uint64_t at = sizeof(struct log_tags_header);
	struct log_tags_header header = {
		.version = cpu_to_le16(VCACHE_VERSION),
		.entry_size = cpu_to_le16(sizeof(struct log_tags_entry)),
		.entries = cpu_to_le32(s->tags.count),
	};
	uint64_t i = 0;

	memcpy(header.signature, VCACHE_SIGNATURE, sizeof(header.signature));
	log_put(w, 0, &header, sizeof(header));
	if (w->from > at)
		i = (w->from - at) / sizeof(struct log_tags_entry);
	for (; i < s->tags.count; i++) {
		uint64_t entry = at + i * sizeof(struct log_tags_entry);

		if (entry >= w->from + w->length)
			break;
		put_entry(s, &s->tags.stats[i], entry, w);
	}
}
