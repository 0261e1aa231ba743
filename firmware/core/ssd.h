/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The SSD as its front ends see it: NVMe/TCP controller, self-test, benchmarks.
 *
 * One caller at a time. A command takes effect, as far as anybody can see, in
 * the order of the calls. What it costs is told, not waited for: each call is
 * given the time at which the command arrived, in ns, never earlier than in the
 * call before, and returns when it completes. A front end on the wall clock
 * answers at that moment, one in virtual time goes on to it.
 */
#ifndef VCACHE_FW_SSD_H
#define VCACHE_FW_SSD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VS_SECTOR 512u
/* Logical block of the FTL; the NVMe front end shows 512 B and 4 KiB formats. */
#define VS_BLOCK 4096u
/* hTag: the host's own I/O, and what carries no tag. */
#define VS_TAG_HOST 0u

typedef uint64_t vs_time;

enum vs_status {
	VS_OK,
	VS_EINVAL,	/* out of range */
	VS_EMEDIA,	/* unrecoverable read error */
	VS_EREADONLY,	/* spare blocks used up, or metadata lost */
	VS_EPOWER,	/* the power is off (cut by the NAND model) */
};

struct vs_result {
	enum vs_status status;
	vs_time done;
};

struct vs_ssd;

/* Blocks are of VS_BLOCK bytes, counted over the whole device. */
struct vs_result vs_read(struct vs_ssd *s, vs_time now, uint64_t block,
			 uint32_t count, void *data);
struct vs_result vs_write(struct vs_ssd *s, vs_time now, uint32_t tag,
			  uint64_t block, uint32_t count, const void *data,
			  bool fua);
struct vs_result vs_trim(struct vs_ssd *s, vs_time now, uint64_t block,
			 uint64_t count);
/* All data of all tags of blocks [first, first + count): an NVMe FLUSH. */
struct vs_result vs_flush(struct vs_ssd *s, vs_time now, uint64_t first,
			  uint64_t count);
/* The tag's own data and hTag's. */
struct vs_result vs_flush_tag(struct vs_ssd *s, vs_time now, uint32_t tag);
uint64_t vs_blocks(const struct vs_ssd *s);

#endif /* VCACHE_FW_SSD_H */
