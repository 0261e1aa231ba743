/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A trace of block requests, one a line: "ts,offset,size,op" with offset and
 * size in bytes, and R, W or D (discard). A first line that begins with "ts"
 * is a heading; what follows the fourth field is not looked at.
 */
#ifndef VCACHE_TOOLS_TRACE_H
#define VCACHE_TOOLS_TRACE_H

#include <stdio.h>

#include "../core/types.h"

#define TRACE_BLOCK_SHIFT 12
#define TRACE_BATCH 1024

/**
 * struct trace - where we are in it; zeroes at first
 * @line: number of the last line read
 * @next: the first block of the last request that was not returned yet
 * @end: the block behind its last
 * @error: what is wrong with it, "" nothing
 */
struct trace {
	u64 line;
	u64 next;
	u64 end;
	char error[256];
};

size_t trace_blocks(struct trace *t, FILE *from, u64 *blocks);

#endif /* VCACHE_TOOLS_TRACE_H */
