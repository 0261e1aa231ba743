/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A hash of numbers that are close to one another, like those of blocks: the finalizer of
 * MurmurHash3 (A. Appleby, public domain).
 */
#ifndef VCACHE_CORE_HASH_H
#define VCACHE_CORE_HASH_H

#include "types.h"

/* It is a bijection. */
static inline u64 vcache_hash(u64 x)
{
	x ^= x >> 33;
	x *= 0xff51afd7ed558ccdULL;
	x ^= x >> 33;
	x *= 0xc4ceb9fe1a85ec53ULL;
	return x ^ x >> 33;
}

#endif /* VCACHE_CORE_HASH_H */
