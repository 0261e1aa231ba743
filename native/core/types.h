/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The types that the portable core is written in: the kernel's own names,
 * also outside the kernel. The core calls no operating system, allocates
 * nothing and uses no floating point, so that the same sources run in the
 * module, in the tests under sanitizers, in fuzzers and in tools.
 */
#ifndef VCACHE_CORE_TYPES_H
#define VCACHE_CORE_TYPES_H

#ifdef __KERNEL__
#include <linux/errno.h>
#include <linux/types.h>
#else
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint8_t u8;
typedef uint32_t u32;
typedef uint64_t u64;
#endif

#endif /* VCACHE_CORE_TYPES_H */
