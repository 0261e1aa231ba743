/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The self-test that every port runs: the same trace, so the same hashes.
 *
 * It prints lines of words and key=value pairs. All but those that begin with
 * "port" must be the same everywhere; the last is "RESULT ok" or "RESULT fail".
 */
#ifndef VCACHE_SELFTEST_H
#define VCACHE_SELFTEST_H

#include "../../nand/nand.h"

/* ---- what a port gives, besides nand_open() and nand_close() ---- */

void port_write(const char *text);
/* Memory of the device, in place of what was given before; or NULL. */
void *port_memory(size_t size);
/* "port" lines, after all else. */
void port_report(void);

/* True: all is well. */
bool selftest_run(void);

/* ---- among the self-test's files ---- */

/* Blocks of the largest device, tags of the trace, tag 0 included. */
#define ST_BLOCKS 8192u
#define ST_TAGS 5u
/* Blocks of a command, at most. */
#define ST_MOST 8u

/**
 * struct st_config - one line of the table
 * @name: a word
 * @drive: geometry and sizes
 * @personality: of its flush
 * @gc: its choice of victims
 * @timing: of the NAND
 * @fail_ppm: programs and erases that fail, in millionths
 * @mapping: where data goes; one lane for VS_MAP_FAST
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
/* Says what is wrong; false, to be returned. */
bool st_fail(const struct st_device *d, const char *what);

/* report.c */
void st_report_config(const struct st_device *d);
void st_report(const struct st_device *d, const char *phase);

/* dram.c */
bool st_dram(void);

/* oracle.c */
void st_oracle_init(void);
void st_oracle_write(uint32_t block, uint32_t tag, void *data);
void st_oracle_trim(uint32_t block);
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
