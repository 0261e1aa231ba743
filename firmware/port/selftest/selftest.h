/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The self-test, with the same trace and the same hashes on every port.
 *
 * It prints lines with words and key=value pairs. All lines must be the same on
 * all ports, except those that begin with "port". The last line is "RESULT ok" or
 * "RESULT fail".
 */
#ifndef VCACHE_SELFTEST_H
#define VCACHE_SELFTEST_H

#include "../../nand/nand.h"

/* ---- provided by a port, in addition to nand_open() and nand_close() ---- */

void port_write(const char *text);
/* Memory of the device, which replaces the previous one; or NULL. */
void *port_memory(size_t size);
/* Print "port" lines at the end. */
void port_report(void);

/* Return true if the test has passed. */
bool selftest_run(void);

/* ---- internal to the self-test ---- */

/* Blocks of the largest device; tags of the trace, including tag 0. */
#define ST_BLOCKS 8192u
#define ST_TAGS 5u
/* Largest number of blocks of a command. */
#define ST_MOST 8u

/**
 * struct st_config - configuration of a test
 * @name: its name, one word
 * @drive: geometry and sizes
 * @personality: tagged or baseline
 * @gc: policy of garbage collection
 * @timing: timing of the NAND
 * @fail_ppm: programs and erases that fail, in parts per million
 * @mapping: mapping; VS_MAP_FAST has one lane
 */
struct st_config {
	const char *name;
	const struct vs_config *drive;
	enum vs_personality personality;
	enum vs_gc_policy gc;
	const struct nand_timing *timing;
	uint32_t fail_ppm;
	enum vs_mapping mapping;
};

extern const struct st_config st_configs[];
extern const uint32_t st_config_count;

/* A device under test. */
struct st_device {
	const struct st_config *config;
	struct vs_config c;
	struct nand *nand;
	void *memory;
	struct vs_ssd *ssd;
	vs_time now;
	uint64_t random;
};

/* print.c */
void st_print(const char *text);
void st_print_number(const char *key, uint64_t value);
void st_print_hash(const char *key, uint64_t value, unsigned int digits);
/* Print an error; returns false. */
bool st_fail(const struct st_device *d, const char *what);

/* report.c */
void st_report_config(const struct st_device *d);
void st_report(const struct st_device *d, const char *phase);

/* dram.c */
bool st_dram(void);

/* oracle.c */
void st_oracle_init(void);
void st_oracle_write(uint32_t block, uint32_t tag, void *data);
void st_oracle_trim(uint32_t block, uint32_t tag);
void st_oracle_flush(uint32_t first, uint32_t count);
void st_oracle_flush_tag(uint32_t tag);
bool st_oracle_read(uint32_t block, const void *data);
bool st_oracle_recovered(uint32_t block, const void *data);

/* trace.c */
uint32_t st_below(struct st_device *d, uint32_t n);
enum vs_status st_fill(struct st_device *d);
enum vs_status st_trace(struct st_device *d, uint32_t steps);
enum vs_status st_flush(struct st_device *d);

#endif /* VCACHE_SELFTEST_H */
