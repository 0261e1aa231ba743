// SPDX-License-Identifier: Apache-2.0
/* The self-test on the board: console, memory, and stack usage. */
#include "../selftest/selftest.h"
#include "zynq.h"

#define DEVICE_SIZE (32u << 20)

static uint8_t device[DEVICE_SIZE]
	__attribute__((section(".arena"), aligned(16)));

void port_write(const char *text)
{
	zynq_uart_write(text);
}

void *port_memory(size_t size)
{
	return size <= DEVICE_SIZE ? device : NULL;
}

void port_report(void)
{
	const uint32_t *p = zynq_stack_bottom;

	while (p < zynq_stack_top && *p == PAINT)
		p++;
	st_print("port zynq7000");
	st_print_number("pointer_bytes", sizeof(void *));
	st_print_number("stack_bytes", (uintptr_t)zynq_stack_top -
				       (uintptr_t)zynq_stack_bottom);
	st_print_number("stack_used", (uintptr_t)zynq_stack_top -
				      (uintptr_t)p);
	st_print("\n");
}

_Noreturn void zynq_main(void)
{
	zynq_uart_init();
	zynq_exit(selftest_run() ? EXIT_OK : EXIT_TEST);
}
