// SPDX-License-Identifier: Apache-2.0
/* The log pages for errors and health. */
#include "ctrl.h"
#include "log.h"

#define NS_PER_HOUR 3600000000000ull
/* SMART counts data in units of 1000 sectors, rounded up (Base 1.4 figure 194). */
#define DATA_UNIT 1000u
#define SPARE_THRESHOLD 10

static struct log_counter counter(uint64_t value)
{
	return (struct log_counter){ .low = cpu_to_le64(value) };
}

static struct log_counter data_units(uint64_t sectors)
{
	return counter((sectors + DATA_UNIT - 1) / DATA_UNIT);
}

/* Unused blocks that are reserved to replace bad blocks, in percent. */
static uint8_t spare(const struct backend_device *d, uint64_t bad_blocks)
{
	if (!d->spare_blocks)
		return 100;
	if (bad_blocks >= d->spare_blocks)
		return 0;
	return (uint8_t)(100 * (d->spare_blocks - bad_blocks) /
			 d->spare_blocks);
}

/* Mean erases of a block, in percent of its endurance, at most 255. */
static uint8_t percentage_used(const struct backend_device *d)
{
	uint32_t blocks[256], i;
	uint64_t sum = 0, all = 0;

	if (d->endurance < 100)
		return 0;
	vs_erase_histogram(d->ssd, d->endurance / 100, blocks, 256);
	for (i = 0; i < 256; i++) {
		sum += (uint64_t)i * blocks[i];
		all += blocks[i];
	}
	return all ? (uint8_t)(sum / all) : 0;
}

/**
 * log_smart - SMART / Health Information of the whole SSD
 * @s: the subsystem
 * @w: the requested part
 *
 * Counters start at 0 with the process; erase counts persist in the image. There
 * is no sensor, so the temperature is 0.
 */
void log_smart(const struct subsys *s, struct log_window *w)
{
	const struct subsys_health *h = &s->health;
	struct log_smart page = {
		.critical_warning = s->read_only ? SMART_WARNING_READ_ONLY : 0,
		.available_spare_threshold = SPARE_THRESHOLD,
		.percentage_used = percentage_used(&s->config.device),
		.data_units_read = data_units(h->sectors_read),
		.data_units_written = data_units(h->sectors_written),
		.host_read_commands = counter(h->reads),
		.host_write_commands = counter(h->writes),
		.power_cycles = counter(1),
		.power_on_hours = counter((s->now - h->start) / NS_PER_HOUR),
		.error_log_entries = counter(h->errors),
	};
	struct vs_stats stats;

	vs_get_stats(s->config.device.ssd, &stats);
	page.media_errors = counter(stats.lost_reads);
	page.available_spare = spare(&s->config.device, stats.bad_blocks);
	if (page.available_spare < SPARE_THRESHOLD)
		page.critical_warning |= SMART_WARNING_SPARE;
	log_put(w, 0, &page, sizeof(page));
}

/**
 * log_errors - Error Information, the newest entry first
 * @k: the controller
 * @w: the requested part
 */
void log_errors(const struct ctrl *k, struct log_window *w)
{
	uint64_t i;

	for (i = 0; i < k->errors && i < ERROR_LOG_ENTRIES; i++) {
		uint64_t n = (k->errors - 1 - i) % ERROR_LOG_ENTRIES;
		const struct error_entry *e = &k->error_log[n];
		struct log_error_entry entry = {
			.error_count = cpu_to_le64(e->count),
			.sqid = cpu_to_le16(e->sqid),
			.cid = cpu_to_le16(e->cid),
			.status = cpu_to_le16((uint16_t)(e->status << 1)),
			.parameter_error_location = cpu_to_le16(e->location),
			.lba = cpu_to_le64(e->lba),
			.nsid = cpu_to_le32(e->nsid),
			.trtype = TRTYPE_TCP,
		};

		log_put(w, i * sizeof(entry), &entry, sizeof(entry));
	}
}
