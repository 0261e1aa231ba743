// SPDX-License-Identifier: GPL-2.0
#include "ghost.h"
#include "hash.h"

#define VC_GHOST_PRINT_BITS	12
#define VC_GHOST_PRINT_MASK	((1U << VC_GHOST_PRINT_BITS) - 1)

/* Age of an entry in hours. An empty one is the oldest. */
static u32 vc_ghost_age(u16 entry, u32 hour)
{
	u32 then = entry >> VC_GHOST_PRINT_BITS;

	if (!then)
		return VC_GHOST_HOURS;
	return (hour + VC_GHOST_HOURS - then) % VC_GHOST_HOURS;
}

/**
 * vcache_ghost_meet - find out how long ago a block was missed, and note that it is missed now
 * @g: the table
 * @slot: the volume
 * @block: the block
 * @hour: clock of its tag, see vcache_ghost_hour()
 *
 * Return: age in hours; VC_GHOST_WINDOW if it was longer ago, or never.
 */
u32 vcache_ghost_meet(const struct vcache_ghosts *g, u16 slot, u64 block, u32 hour)
{
	u64 x = vcache_hash((u64)slot << 48 ^ block);
	u32 i, age, place = 0, oldest = 0, met = VC_GHOST_WINDOW;
	u16 *e, entry, print;

	e = &g->entry[((x & ~0U) * (g->entries / VC_GHOST_WAYS) >> 32) * VC_GHOST_WAYS];
	print = x >> (64 - VC_GHOST_PRINT_BITS);
	for (i = 0; i < VC_GHOST_WAYS; i++) {
		entry = READ_ONCE(e[i]);
		age = vc_ghost_age(entry, hour);
		if (age < VC_GHOST_HOURS &&
		    (entry & VC_GHOST_PRINT_MASK) == print) {
			place = i;
			met = age < VC_GHOST_WINDOW ? age : VC_GHOST_WINDOW;
			break;
		}
		if (age >= oldest) {
			oldest = age;
			place = i;
		}
	}
	WRITE_ONCE(e[place], (u16)(hour << VC_GHOST_PRINT_BITS | print));
	return met;
}
