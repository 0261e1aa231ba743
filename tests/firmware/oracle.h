/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The allowed contents of each block: its history, and the versions that a completed
 * flush or FUA write has made durable.
 *
 * Each write or TRIM of a block is a version of it. The content of a version names
 * block and version and fills all 4 KiB, so torn data and data of other blocks are
 * detected. After a power cut, a block must hold its floor or a later version.
 */
#ifndef VCACHE_TESTS_ORACLE_H
#define VCACHE_TESTS_ORACLE_H

#include "device.h"

struct oracle;

struct oracle *oracle_new(uint64_t blocks);
/* Without pending guarantees. */
struct oracle *oracle_copy(const struct oracle *o);
void oracle_free(struct oracle *o);
/* Give the block a new version by a tag; @data gets its content. */
void oracle_write(struct oracle *o, uint64_t block, uint32_t tag, void *data);
void oracle_trim(struct oracle *o, uint64_t block, uint32_t tag);
/*
 * At time @done versions of [first, first + count) are durable: those by @tag
 * and hTag, or of all tags.
 */
void oracle_flush(struct oracle *o, vs_time done, bool all, uint32_t tag,
		  uint64_t first, uint64_t count);
/* Advance the clock to @now: completed operations take effect. */
void oracle_tick(struct oracle *o, vs_time now);
/* Power cut at @time: guarantees with a later completion are void. */
void oracle_cut(struct oracle *o, vs_time time);
/* Without a power cut since: exactly the newest version. */
void oracle_check_read(const struct oracle *o, uint64_t block, const void *data);
/* After a power cut: may the block have this content? */
bool oracle_allows(const struct oracle *o, uint64_t block, const void *data);
/* After a power cut: read and check all blocks, which are valid from now on. */
void oracle_check_recovered(struct oracle *o, struct device *d);
/* The device has lost no data. */
void oracle_check_all(const struct oracle *o, struct device *d);

#endif /* VCACHE_TESTS_ORACLE_H */
