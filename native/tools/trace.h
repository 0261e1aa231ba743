/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A trace of block requests. Each line is a request: "ts,offset,size,op" with offset and
 * size in bytes, and R, W or D (discard). A first line that begins with "ts" is a heading.
 * Further fields are ignored.
 */
#ifndef VCACHE_TOOLS_TRACE_H
#define VCACHE_TOOLS_TRACE_H

#include <stdio.h>

#include "../core/types.h"

#define TRACE_BLOCK_SHIFT 12
#define TRACE_BATCH 1024

/**
 * struct trace - a position in a trace; zero before the first line
 * @line: number of the last line read
 * @next: first block of the last request that was not returned yet
 * @end: the block behind its last one
 * @error: what is wrong with the trace; "": nothing
 */
struct trace {
	u64 line;
	u64 next;
	u64 end;
	char error[256];
};

size_t trace_blocks(struct trace *t, FILE *from, u64 *blocks);

#endif /* VCACHE_TOOLS_TRACE_H */
