// SPDX-License-Identifier: Apache-2.0
/*
 * The memory map in 1 MiB sections, and the first-level caches.
 *
 * All other sections are not mapped: accesses to address 0 and to the sections
 * below the stacks fault. Code cannot be written, and data cannot be executed.
 * Alignment faults are enabled. The compiler generates no unaligned accesses, so
 * an alignment fault means a wrong pointer.
 *
 * There is one core and no DMA, so the second-level cache, the snoop control unit
 * and the GIC stay off.
 */
#include "zynq.h"

#define SECTION_SHIFT 20
#define SECTION 2u			/* descriptor type */
#define EXECUTE_NEVER (1u << 4)
#define PRIVILEGED (1u << 10)		/* AP[1:0] = 01 */
#define READ_ONLY (1u << 15)		/* AP[2] */
#define DEVICE (1u << 2)		/* TEX, C, B = 0, 0, 1 */
#define WRITE_BACK (1u << 12 | 3u << 2)	/* TEX, C, B = 1, 1, 1 */

#define SCTLR_MMU (1u << 0)
#define SCTLR_ALIGNMENT (1u << 1)
#define SCTLR_DCACHE (1u << 2)
#define SCTLR_BRANCH (1u << 11)
#define SCTLR_ICACHE (1u << 12)

#define UART 0xe0000000u

/* The 32 KiB data cache of the Zynq-7000's Cortex-A9. */
#define DCACHE_WAYS 4u
#define DCACHE_SETS 256u
#define DCACHE_LINE_SHIFT 5

static uint32_t table[4096] __attribute__((aligned(16384)));

static void map(uintptr_t from, uintptr_t end, uint32_t attributes)
{
	uint32_t i = (uint32_t)from >> SECTION_SHIFT;

	for (; (uintptr_t)i << SECTION_SHIFT < end; i++)
		table[i] = i << SECTION_SHIFT | attributes | PRIVILEGED |
			   SECTION;
}

static void build_table(void)
{
	uint32_t ram = WRITE_BACK | EXECUTE_NEVER;

	map((uintptr_t)zynq_text, (uintptr_t)zynq_text_end,
	    WRITE_BACK | READ_ONLY);
	map((uintptr_t)zynq_ram, (uintptr_t)zynq_ram_end, ram);
	map((uintptr_t)zynq_fault_stack_bottom,
	    (uintptr_t)zynq_fault_stack_top, ram);
	map((uintptr_t)zynq_stack_bottom, (uintptr_t)zynq_stack_top, ram);
	map(UART, UART + 1, DEVICE | EXECUTE_NEVER);
}

/* The content of the caches is undefined after a reset. */
static void invalidate_caches(void)
{
	uint32_t way, set;

	for (way = 0; way < DCACHE_WAYS; way++) {
		for (set = 0; set < DCACHE_SETS; set++) {
			uint32_t line = way << 30 | set << DCACHE_LINE_SHIFT;

			__asm__ volatile("mcr p15, 0, %0, c7, c6, 2"	/* DCISW */
				     : : "r" (line) : "memory");
		}
	}
	__asm__ volatile("mcr p15, 0, %0, c7, c5, 0\n"	/* ICIALLU */
		     "mcr p15, 0, %0, c7, c5, 6\n"	/* BPIALL */
		     "mcr p15, 0, %0, c8, c7, 0\n"	/* TLBIALL */
		     "dsb\n"
		     "isb"
		     : : "r" (0) : "memory");
}

void zynq_mmu_on(void)
{
	uint32_t control;

	build_table();
	invalidate_caches();
	__asm__ volatile("mcr p15, 0, %1, c2, c0, 2\n"	/* TTBCR: TTBR0 only */
		     "mcr p15, 0, %2, c2, c0, 0\n"	/* TTBR0, write-back */
		     "mcr p15, 0, %3, c3, c0, 0\n"	/* DACR: check domain 0 */
		     "mrc p15, 0, %0, c1, c0, 0\n"	/* SCTLR */
		     "isb"
		     : "=&r" (control)
		     : "r" (0), "r" ((uintptr_t)table | 0x9u), "r" (1)
		     : "memory");
	control |= SCTLR_MMU | SCTLR_ALIGNMENT | SCTLR_DCACHE | SCTLR_BRANCH |
		   SCTLR_ICACHE;
	__asm__ volatile("dsb\n"
		     "mcr p15, 0, %0, c1, c0, 0\n"
		     "isb"
		     : : "r" (control) : "memory");
}
