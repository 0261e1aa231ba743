// SPDX-License-Identifier: Apache-2.0
/* The end of the program, and the report of an exception. */
#include "../selftest/selftest.h"
#include "zynq.h"

enum { UNDEFINED, PREFETCH_ABORT, DATA_ABORT };

static const char *const kinds[] = {
	"undefined instruction", "prefetch abort", "data abort", "interrupt",
	"fast interrupt",
};

/* Decode DFSR or IFSR, for short descriptors. */
static const char *cause(uint32_t status)
{
	switch ((status >> 10 & 1) << 4 | (status & 15)) {
	case 0x01:
		return "alignment";
	case 0x05:
	case 0x07:
		return "not mapped";
	case 0x0d:
	case 0x0f:
		return "not allowed";
	case 0x08:
	case 0x16:
		return "bus error";
	default:
		return "other";
	}
}

static void print_abort(uint32_t kind)
{
	uint32_t status, address;

	if (kind == DATA_ABORT)
		__asm__ volatile("mrc p15, 0, %0, c5, c0, 0\n"	/* DFSR */
			     "mrc p15, 0, %1, c6, c0, 0"	/* DFAR */
			     : "=&r" (status), "=r" (address));
	else
		__asm__ volatile("mrc p15, 0, %0, c5, c0, 1\n"	/* IFSR */
			     "mrc p15, 0, %1, c6, c0, 2"	/* IFAR */
			     : "=&r" (status), "=r" (address));
	st_print_hash("address", address, 8);
	if (kind == DATA_ABORT)
		st_print(status & 1u << 11 ? " access=write" : " access=read");
	st_print_hash("status", status, 8);
	st_print(" cause=\"");
	st_print(cause(status));
	st_print("\"");
}

static void print_registers(const struct zynq_frame *frame)
{
	static const char *const names[] = {
		"r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8", "r9",
		"r10", "r11", "r12",
	};
	unsigned int i;

	st_print("fault registers");
	for (i = 0; i < 13; i++)
		st_print_hash(names[i], frame->r[i], 8);
	st_print_hash("sp", frame->sp, 8);
	st_print_hash("lr", frame->lr, 8);
	st_print_hash("spsr", frame->spsr, 8);
	st_print("\n");
}

_Noreturn void zynq_exit(uint32_t status)
{
	zynq_uart_drain();
	zynq_semihosting_exit(status);
}

_Noreturn void zynq_panic(const char *what)
{
	st_print("\npanic ");
	st_print(what);
	st_print("\nRESULT fail\n");
	zynq_exit(EXIT_PANIC);
}

_Noreturn void zynq_fault(uint32_t kind, const struct zynq_frame *frame)
{
	static bool again;

	/* Stop at a fault in this function, which would otherwise recur for ever. */
	if (again)
		zynq_semihosting_exit(EXIT_FAULT);
	again = true;
	st_print("\nfault ");
	st_print(kinds[kind]);
	st_print_hash("pc", frame->pc, 8);
	if (kind == PREFETCH_ABORT || kind == DATA_ABORT)
		print_abort(kind);
	st_print("\n");
	print_registers(frame);
	st_print("RESULT fail\n");
	zynq_exit(EXIT_FAULT);
}
