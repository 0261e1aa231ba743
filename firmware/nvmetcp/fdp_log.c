// SPDX-License-Identifier: Apache-2.0
/* The log pages of the endurance group and of Flexible Data Placement. */
#include <string.h>

#include "fdp.h"
#include "log.h"
#include "subsys.h"

#define FDPA_VALID (1u << 7)
/* Placed data may be in a volatile write cache. */
#define FDPA_VOLATILE (1u << 4)
/* Collection may mix data of handles that were initially apart. */
#define RUHT_INITIALLY_ISOLATED 1u
#define RUHA_HOST 1u
#define BILLION 1000000000u

struct configurations {
	struct le16 count;
	uint8_t version;
	uint8_t reserved3;
	struct le32 size;
	uint8_t reserved8[8];
	struct le16 descriptor_size;
	uint8_t fdpa;
	uint8_t vss;
	struct le32 nrg;
	struct le16 nruh;
	struct le16 maxpids;
	struct le32 nns;
	struct le64 runs;
	struct le32 erutl;
	uint8_t reserved44[36];
	struct {
		uint8_t ruht;
		uint8_t reserved[3];
	} handle[VS_HANDLES];
};

struct usage {
	struct le16 count;
	uint8_t reserved[6];
	struct {
		uint8_t ruha;
		uint8_t reserved[7];
	} handle[VS_HANDLES];
};

struct statistics {
	struct log_counter host_bytes;
	struct log_counter media_bytes;
	struct log_counter erased_bytes;
	uint8_t reserved[16];
};

struct events {
	struct le32 count;
	uint8_t reserved[60];
};

struct endurance_group {
	uint8_t critical_warning;
	uint8_t features;
	uint8_t reserved2;
	uint8_t available_spare;
	uint8_t available_spare_threshold;
	uint8_t percentage_used;
	struct le16 domain;
	uint8_t reserved8[24];
	struct log_counter endurance_estimate;
	struct log_counter data_units_read;
	struct log_counter data_units_written;
	struct log_counter media_units_written;
	struct log_counter host_read_commands;
	struct log_counter host_write_commands;
	struct log_counter media_errors;
	struct log_counter error_log_entries;
	uint8_t reserved160[352];
};

_Static_assert(offsetof(struct configurations, runs) == 32, "FDP configurations");
_Static_assert(offsetof(struct configurations, handle) == 80, "FDP configurations");
_Static_assert(offsetof(struct usage, handle) == 8, "RUH usage");
_Static_assert(sizeof(struct statistics) == 64, "FDP statistics");
_Static_assert(sizeof(struct events) == 64, "FDP events");
_Static_assert(offsetof(struct endurance_group, data_units_read) == 48, "group");
_Static_assert(sizeof(struct endurance_group) == 512, "endurance group");

static struct log_counter counter(uint64_t value)
{
	return (struct log_counter){ .low = cpu_to_le64(value) };
}

static uint32_t handles(const struct subsys *s)
{
	return s->config.device.handles;
}

/* A descriptor is a multiple of 8 bytes. */
static uint32_t descriptor_size(const struct subsys *s)
{
	return (64 + 4 * handles(s) + 7) & ~7u;
}

static uint32_t kept_events(const struct subsys *s, bool host)
{
	uint64_t n = host ? s->fdp.events : 0;

	return n < FDP_EVENTS ? (uint32_t)n : FDP_EVENTS;
}

static void put_configurations(const struct subsys *s, struct log_window *w)
{
	uint64_t unit = vs_unit_blocks(s->config.device.ssd);
	struct configurations page = {
		/* 0's based, as maxpids is: one configuration. */
		.count = cpu_to_le16(0),
		.size = cpu_to_le32(16 + descriptor_size(s)),
		.descriptor_size = cpu_to_le16((uint16_t)descriptor_size(s)),
		.fdpa = FDPA_VALID | FDPA_VOLATILE,
		.nrg = cpu_to_le32(1),
		.nruh = cpu_to_le16((uint16_t)handles(s)),
		.maxpids = cpu_to_le16((uint16_t)(handles(s) - 1)),
		.nns = cpu_to_le32(s->config.namespaces),
		.runs = cpu_to_le64(unit * VS_BLOCK),
	};
	uint32_t i;

	for (i = 0; i < handles(s); i++)
		page.handle[i].ruht = RUHT_INITIALLY_ISOLATED;
	log_put(w, 0, &page, 16 + descriptor_size(s));
}

static void put_usage(const struct subsys *s, struct log_window *w)
{
	struct usage page = { .count = cpu_to_le16((uint16_t)handles(s)) };
	uint32_t i;

	for (i = 0; i < handles(s); i++)
		page.handle[i].ruha = RUHA_HOST;
	log_put(w, 0, &page, 8 + 8 * handles(s));
}

static uint64_t media_bytes(const struct vs_stats *stats)
{
	uint64_t blocks = 0;
	uint32_t i;

	for (i = 0; i < VS_CAUSES; i++)
		blocks += stats->programmed[i];
	return blocks * VS_BLOCK;
}

/* Since the start of the process. Media writes are all, with maps and logs. */
static void put_statistics(const struct subsys *s, struct log_window *w)
{
	struct vs_ssd *ssd = s->config.device.ssd;
	struct statistics page = { 0 };
	struct vs_stats stats;

	vs_get_stats(ssd, &stats);
	page.host_bytes = counter(stats.written * VS_BLOCK);
	page.media_bytes = counter(media_bytes(&stats));
	page.erased_bytes = counter(stats.erases * vs_erase_blocks(ssd) *
				    VS_BLOCK);
	log_put(w, 0, &page, sizeof(page));
}

/* The oldest first. */
static void put_events(const struct subsys *s, bool host, struct log_window *w)
{
	uint32_t n = kept_events(s, host), i;
	struct events head = { .count = cpu_to_le32(n) };

	log_put(w, 0, &head, sizeof(head));
	for (i = 0; i < n; i++)
		log_put(w, sizeof(head) + i * sizeof(struct fdp_event),
			&s->fdp.event[(s->fdp.events - n + i) % FDP_EVENTS],
			sizeof(struct fdp_event));
}

/* Data in units of 10^9 bytes, rounded up (unlike SMART). */
static struct log_counter billions(uint64_t bytes)
{
	return counter((bytes + BILLION - 1) / BILLION);
}

static void put_group(const struct subsys *s, struct log_window *w)
{
	const struct subsys_health *h = &s->health;
	struct endurance_group page = { 0 };
	struct log_window smart_window;
	struct log_smart smart;
	struct vs_stats stats;

	vs_get_stats(s->config.device.ssd, &stats);
	memset(&smart, 0, sizeof(smart));
	smart_window = (struct log_window){ (void *)&smart, 0, sizeof(smart) };
	log_smart(s, &smart_window);
	page.critical_warning = smart.critical_warning;
	page.available_spare = smart.available_spare;
	page.available_spare_threshold = smart.available_spare_threshold;
	page.percentage_used = smart.percentage_used;
	page.data_units_read = billions(h->sectors_read * VS_SECTOR);
	page.data_units_written = billions(h->sectors_written * VS_SECTOR);
	page.media_units_written = billions(media_bytes(&stats));
	page.host_read_commands = smart.host_read_commands;
	page.host_write_commands = smart.host_write_commands;
	page.media_errors = smart.media_errors;
	page.error_log_entries = smart.error_log_entries;
	log_put(w, 0, &page, sizeof(page));
}

uint64_t fdp_log_size(const struct subsys *s, uint8_t lid, bool host_events)
{
	if (!fdp_supported(s))
		return 0;
	switch (lid) {
	case LOG_ENDURANCE_GROUP:
		return sizeof(struct endurance_group);
	case LOG_FDP_CONFIGURATIONS:
		return 16 + descriptor_size(s);
	case LOG_FDP_USAGE:
		return 8 + 8 * handles(s);
	case LOG_FDP_STATISTICS:
		return sizeof(struct statistics);
	case LOG_FDP_EVENTS:
		return sizeof(struct events) +
		       (uint64_t)kept_events(s, host_events) *
		       sizeof(struct fdp_event);
	default:
		return 0;
	}
}

void fdp_log(const struct subsys *s, uint8_t lid, bool host_events,
	     struct log_window *w)
{
	switch (lid) {
	case LOG_ENDURANCE_GROUP:
		put_group(s, w);
		break;
	case LOG_FDP_CONFIGURATIONS:
		put_configurations(s, w);
		break;
	case LOG_FDP_USAGE:
		put_usage(s, w);
		break;
	case LOG_FDP_STATISTICS:
		put_statistics(s, w);
		break;
	case LOG_FDP_EVENTS:
		put_events(s, host_events, w);
		break;
	}
}
