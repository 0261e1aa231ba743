// SPDX-License-Identifier: Apache-2.0
/* The log pages about errors and health. */
#include "ctrl.h"
#include "log.h"

#define NS_PER_HOUR 3600000000000ull
/* SMART counts data in thousands of 512 B, rounded up (Base 1.4 figure 194). */
#define DATA_UNIT 1000u

static struct log_counter counter(uint64_t value)
{
	return (struct log_counter){ .low = cpu_to_le64(value) };
}

static struct log_counter data_units(uint64_t sectors)
{
	return counter((sectors + DATA_UNIT - 1) / DATA_UNIT);
}

/**
 * log_smart - SMART / Health Information, of the SSD as a whole
 * @s: the subsystem
 * @w: the part that is wanted
 *
 * Counters begin with the process. There is no sensor: the temperature is 0,
 * and no wear is known, so that all of the spare is there.
 */
void log_smart(const struct subsys *s, struct log_window *w)
{
	const struct subsys_health *h = &s->health;
	struct log_smart page = {
		.critical_warning = s->read_only ? SMART_WARNING_READ_ONLY : 0,
		.available_spare = 100,
		.available_spare_threshold = 10,
		.data_units_read = data_units(h->sectors_read),
		.data_units_written = data_units(h->sectors_written),
		.host_read_commands = counter(h->reads),
		.host_write_commands = counter(h->writes),
		.power_cycles = counter(1),
		.power_on_hours = counter((s->now - h->start) / NS_PER_HOUR),
		.media_errors = counter(h->media_errors),
		.error_log_entries = counter(h->errors),
	};

	log_put(w, 0, &page, sizeof(page));
}

/**
 * log_errors - Error Information, the newest first
 * @k: the controller
 * @w: the part that is wanted
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
