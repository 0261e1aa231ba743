// SPDX-License-Identifier: Apache-2.0
/* The vendor log pages for the NAND: programs by cause, and wear. */
#include <string.h>

#include "log.h"
#include "subsys.h"

_Static_assert(VS_CAUSES <= LOG_WRITES_CAUSES, "causes in log page C2h");

/**
 * log_vcache_writes - log page C2h: programmed blocks by cause
 * @s: the subsystem
 * @w: the requested part
 */
void log_vcache_writes(const struct subsys *s, struct log_window *w)
{
	struct log_writes page = {
		.version = cpu_to_le16(VCACHE_VERSION),
		.causes = cpu_to_le16(VS_CAUSES),
		.block_size = cpu_to_le32(VS_BLOCK),
		.flushes = cpu_to_le64(s->health.flushes),
		.late_completions = cpu_to_le64(s->health.late),
		.latest_completion = cpu_to_le64(s->health.latest),
	};
	struct vs_stats stats;
	uint32_t i;

	vs_get_stats(s->config.device.ssd, &stats);
	memcpy(page.signature, VCACHE_SIGNATURE, sizeof(page.signature));
	page.written = cpu_to_le64(stats.written);
	page.absorbed = cpu_to_le64(stats.absorbed);
	page.skipped = cpu_to_le64(stats.skipped);
	page.erases = cpu_to_le64(stats.erases);
	page.checkpoints = cpu_to_le64(stats.checkpoints);
	page.spilled = cpu_to_le64(stats.spilled);
	page.bad_blocks = cpu_to_le64(stats.bad_blocks);
	page.lost_reads = cpu_to_le64(stats.lost_reads);
	page.recovery_pages = cpu_to_le64(stats.recovery_pages);
	page.replayed = cpu_to_le64(stats.replayed);
	page.data_blocks =
		cpu_to_le64(vs_data_blocks(s->config.device.ssd));
	for (i = 0; i < VS_CAUSES; i++)
		page.programmed[i] = cpu_to_le64(stats.programmed[i]);
	log_put(w, 0, &page, sizeof(page));
}

/**
 * log_vcache_erases - log page C3h: histogram of erase counts
 * @s: the subsystem
 * @w: the requested part
 *
 * The buckets have the smallest width for which the last bucket, which has no
 * upper bound, is empty.
 */
void log_vcache_erases(const struct subsys *s, struct log_window *w)
{
	struct log_erases page = {
		.version = cpu_to_le16(VCACHE_VERSION),
		.buckets = cpu_to_le16(LOG_ERASES_BUCKETS),
		.endurance = cpu_to_le32(s->config.device.endurance),
	};
	uint32_t counts[LOG_ERASES_BUCKETS];
	uint32_t width = 1, i;

	for (;;) {
		vs_erase_histogram(s->config.device.ssd, width, counts,
				   LOG_ERASES_BUCKETS);
		if (!counts[LOG_ERASES_BUCKETS - 1] || width >> 31)
			break;
		width *= 2;
	}
	memcpy(page.signature, VCACHE_SIGNATURE, sizeof(page.signature));
	page.width = cpu_to_le32(width);
	for (i = 0; i < LOG_ERASES_BUCKETS; i++)
		page.blocks[i] = cpu_to_le32(counts[i]);
	log_put(w, 0, &page, sizeof(page));
}
