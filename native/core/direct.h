/* SPDX-License-Identifier: GPL-2.0 */
/* Entries of the chunk table for chunks of elastic SSDs, see format.h. */
#ifndef VCACHE_CORE_DIRECT_H
#define VCACHE_CORE_DIRECT_H

#include "format.h"

/* Generations never have this bit. */
#define VC_DIRECT_BIT		0x8000000000000000ULL
#define VC_DIRECT_SLOT_SHIFT	32
#define VC_DIRECT_SLOT_MASK	0xffffU

/**
 * vcache_direct_pack - make the value of a chunk that has a block of an elastic SSD
 * @slot: slot of the volume
 * @block: number of the block
 *
 * Return: the value of vcache_chunk_disk.clean.
 */
static inline u64 vcache_direct_pack(u16 slot, u32 block)
{
	return VC_DIRECT_BIT | (u64)slot << VC_DIRECT_SLOT_SHIFT | block;
}

/**
 * vcache_direct_unpack - does a chunk have a block of an elastic SSD?
 * @clean: vcache_chunk_disk.clean
 * @slot: gets the slot of the volume
 * @block: gets the number of the block
 *
 * Return: false if it is a chunk of a log, or free; then @slot and @block do not change.
 */
static inline bool vcache_direct_unpack(u64 clean, u16 *slot, u32 *block)
{
	if (!(clean & VC_DIRECT_BIT))
		return false;
	*slot = clean >> VC_DIRECT_SLOT_SHIFT & VC_DIRECT_SLOT_MASK;
	*block = (u32)clean;
	return true;
}

#endif /* VCACHE_CORE_DIRECT_H */
