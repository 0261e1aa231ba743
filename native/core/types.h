/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The types of the portable core: those of the kernel, also outside the kernel. The core
 * calls no operating system, allocates nothing and uses no floating point. So the same
 * sources run in the module, in tests under sanitizers, in fuzzers and in tools.
 */
#ifndef VCACHE_CORE_TYPES_H
#define VCACHE_CORE_TYPES_H

#ifdef __KERNEL__
#include <linux/bitops.h>
#include <linux/compiler.h>
#include <linux/errno.h>
#include <linux/math64.h>
#include <linux/sched.h>
#include <linux/string.h>
#include <linux/types.h>
#include <asm/byteorder.h>
#else
#include <endian.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;

#ifdef __linux__
/* <sys/stat.h> includes it as well. */
#include <linux/types.h>
#else
typedef uint16_t __le16;
typedef uint32_t __le32;
typedef uint64_t __le64;
#endif

#define cpu_to_le16(x) htole16(x)
#define cpu_to_le32(x) htole32(x)
#define cpu_to_le64(x) htole64(x)
#define le16_to_cpu(x) le16toh(x)
#define le32_to_cpu(x) le32toh(x)
#define le64_to_cpu(x) le64toh(x)

/* Programs outside the kernel have one thread, which needs no barrier, and can be preempted. */
#define cond_resched() do { } while (0)
#define READ_ONCE(x) (x)
#define WRITE_ONCE(x, to) ((x) = (to))
#define smp_store_release(p, to) (*(p) = (to)) /* one thread */

static inline u64 div_u64(u64 dividend, u32 divisor)
{
	return dividend / divisor;
}

static inline u64 div64_u64(u64 dividend, u64 divisor)
{
	return dividend / divisor;
}
#endif

#endif /* VCACHE_CORE_TYPES_H */
