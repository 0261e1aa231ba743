/* SPDX-License-Identifier: Apache-2.0 */
/* Log pages: NVMe Base 1.4 §5.14, Fabrics 1.1 §5.3, and vendor pages. */
#ifndef VCACHE_NVMETCP_LOG_H
#define VCACHE_NVMETCP_LOG_H

#include <stddef.h>
#include <stdint.h>

#include "bytes.h"

enum log_identifier {
	LOG_ERROR = 0x01,
	LOG_SMART = 0x02,
	LOG_FIRMWARE_SLOT = 0x03,
	LOG_CHANGED_NAMESPACES = 0x04,
	LOG_EFFECTS = 0x05,
	LOG_ENDURANCE_GROUP = 0x09,
	LOG_FDP_CONFIGURATIONS = 0x20,
	LOG_FDP_USAGE = 0x21,
	LOG_FDP_STATISTICS = 0x22,
	LOG_FDP_EVENTS = 0x23,
	LOG_DISCOVERY = 0x70,
	LOG_VCACHE = 0xc0,
	LOG_VCACHE_TAGS = 0xc1,
	LOG_VCACHE_WRITES = 0xc2,
	LOG_VCACHE_ERASES = 0xc3,
};

#define SMART_WARNING_SPARE (1u << 0)
#define SMART_WARNING_READ_ONLY (1u << 3)

struct log_error_entry {
	struct le64 error_count;
	struct le16 sqid;
	struct le16 cid;
	struct le16 status;
	struct le16 parameter_error_location;
	struct le64 lba;
	struct le32 nsid;
	uint8_t vendor_log_page;
	uint8_t trtype;
	uint8_t reserved[34];
};

/* Counters have 16 bytes; the upper half is always 0 here. */
struct log_counter {
	struct le64 low;
	struct le64 high;
};

struct log_smart {
	uint8_t critical_warning;
	struct le16 composite_temperature;
	uint8_t available_spare;
	uint8_t available_spare_threshold;
	uint8_t percentage_used;
	uint8_t reserved6[26];
	struct log_counter data_units_read;
	struct log_counter data_units_written;
	struct log_counter host_read_commands;
	struct log_counter host_write_commands;
	struct log_counter controller_busy_time;
	struct log_counter power_cycles;
	struct log_counter power_on_hours;
	struct log_counter unsafe_shutdowns;
	struct log_counter media_errors;
	struct log_counter error_log_entries;
	uint8_t reserved192[320];
};

struct log_firmware_slot {
	uint8_t active;
	uint8_t reserved1[7];
	char revision[7][8];
	uint8_t reserved64[448];
};

struct log_effects {
	struct le32 admin[256];
	struct le32 io[256];
	uint8_t reserved2048[2048];
};

struct log_changed_namespaces {
	struct le32 nsid[1024];
};

/* doc/source/reference/nvme.rst describes each byte. */
#define VCACHE_SIGNATURE "vcacheSS"
#define VCACHE_VERSION 1
#define VCACHE_TAGGED_FLUSH (1u << 0)
#define VCACHE_TAGGED_WRITE (1u << 1)
#define VCACHE_TAGGED_READ (1u << 2)
#define VCACHE_TAG_STATISTICS (1u << 3)
#define VCACHE_WRITES (1u << 4)
#define VCACHE_ERASES (1u << 5)
#define VCACHE_TAGGED_DEALLOCATE (1u << 6)
#define VCACHE_TAG_WEIGHTS (1u << 7)

struct log_vcache {
	char signature[8];
	struct le16 version;
	uint8_t tagged_flush;
	uint8_t tagged_write;
	uint8_t tagged_read;
	uint8_t tagged_deallocate;
	uint8_t reserved14[2];
	struct le32 capabilities;
	struct le32 max_tag;
	struct le32 tags_used;
	struct le32 max_tags;
	struct le64 flushes;
	struct le64 late_completions;
	struct le64 latest_completion;
	struct le32 instance;
	uint8_t reserved60[452];
};

struct log_tags_header {
	char signature[8];
	struct le16 version;
	struct le16 entry_size;
	struct le32 entries;
	uint8_t reserved16[48];
};

struct log_tags_entry {
	struct le32 tag;
	struct le32 flags;
	struct le64 reads;
	struct le64 writes;
	struct le64 flushes;
	struct le64 sectors_read;
	struct le64 sectors_written;
	struct le64 flush_time;
	struct le64 flush_longest;
	struct le64 buffered;
	struct le64 unlogged;
	struct le64 flushed;
	struct le64 log_pages;
	struct le64 written;
	struct le32 weight;
	struct le32 share;
	struct le64 buffer_wait;
	struct le64 bank_time;
	struct le64 bank_wait;
	uint8_t reserved136[24];
};

#define TAG_HAS_STATE (1u << 0)

#define LOG_WRITES_CAUSES 16u

struct log_writes {
	char signature[8];
	struct le16 version;
	struct le16 causes;
	struct le32 block_size;
	struct le64 flushes;
	struct le64 late_completions;
	struct le64 latest_completion;
	struct le64 written;
	struct le64 absorbed;
	struct le64 skipped;
	struct le64 erases;
	struct le64 checkpoints;
	struct le64 spilled;
	struct le64 bad_blocks;
	struct le64 lost_reads;
	struct le64 recovery_pages;
	struct le64 replayed;
	struct le64 data_blocks;
	struct le64 programmed[LOG_WRITES_CAUSES];
	uint8_t reserved256[256];
};

#define LOG_ERASES_BUCKETS 256u

struct log_erases {
	char signature[8];
	struct le16 version;
	struct le16 buckets;
	struct le32 width;
	struct le32 endurance;
	uint8_t reserved20[44];
	struct le32 blocks[LOG_ERASES_BUCKETS];
};

_Static_assert(sizeof(struct log_error_entry) == 64, "error log");
_Static_assert(sizeof(struct log_smart) == 512, "SMART log");
_Static_assert(offsetof(struct log_smart, media_errors) == 160, "SMART log");
_Static_assert(sizeof(struct log_firmware_slot) == 512, "firmware slot log");
_Static_assert(sizeof(struct log_effects) == 4096, "effects log");
_Static_assert(sizeof(struct log_changed_namespaces) == 4096, "changed");
_Static_assert(sizeof(struct log_vcache) == 512, "vendor log");
_Static_assert(sizeof(struct log_tags_header) == 64, "tag log");
_Static_assert(sizeof(struct log_tags_entry) == 160, "tag log entry");
_Static_assert(offsetof(struct log_writes, programmed) == 128, "writes log");
_Static_assert(sizeof(struct log_writes) == 512, "writes log");
_Static_assert(sizeof(struct log_erases) == 1088, "erases log");

struct conn;
struct ctrl;
struct subsys;

/**
 * struct log_window - the requested part of a log page
 * @out: the result, initially zeroes
 * @from: offset of its first byte in the page
 * @length: length in bytes
 */
struct log_window {
	uint8_t *out;
	uint64_t from;
	uint32_t length;
};

void log_put(struct log_window *w, uint64_t at, const void *data, size_t n);

void log_vcache(const struct subsys *s, struct log_window *w);
void log_vcache_tags(const struct subsys *s, struct log_window *w);
uint64_t log_vcache_tags_size(const struct subsys *s);
void log_vcache_writes(const struct subsys *s, struct log_window *w);
void log_vcache_erases(const struct subsys *s, struct log_window *w);
void log_discovery(const struct conn *c, struct log_window *w);
void log_smart(const struct subsys *s, struct log_window *w);
void log_errors(const struct ctrl *k, struct log_window *w);

#define LOG_DISCOVERY_BYTES 2048u

#endif /* VCACHE_NVMETCP_LOG_H */
