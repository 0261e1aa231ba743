/* SPDX-License-Identifier: Apache-2.0 */
/* Internal definitions of the port. */
#ifndef ZYNQ_H
#define ZYNQ_H

#include <stddef.h>
#include <stdint.h>

/* A register of a device. */
#define REG(address) (*(volatile uint32_t *)(uintptr_t)(address))

/* Exit status of QEMU. */
#define EXIT_OK 0u
#define EXIT_TEST 1u		/* the self-test has failed */
#define EXIT_FAULT 2u		/* an exception */
#define EXIT_PANIC 3u		/* the firmware has violated a rule */

/* Initial content of the stack, to measure its usage. */
#define PAINT 0xdeadbeefu

/**
 * struct zynq_frame - registers that start.S saves at an exception
 * @r: r0 ... r12
 * @pc: address of the instruction
 * @spsr: saved program status
 * @sp: stack pointer of the program
 * @lr: link register of the program
 */
struct zynq_frame {
	uint32_t sp;
	uint32_t lr;
	uint32_t spsr;
	uint32_t r[13];
	uint32_t pc;
};

/* zynq7000.ld */
extern uint32_t zynq_stack_bottom[], zynq_stack_top[];
extern uint32_t zynq_fault_stack_bottom[], zynq_fault_stack_top[];
extern uint8_t zynq_text[], zynq_text_end[], zynq_ram[], zynq_ram_end[];

/* start.S */
_Noreturn void zynq_semihosting_exit(uint32_t status);

/* mmu.c */
void zynq_mmu_on(void);

/* uart.c */
void zynq_uart_init(void);
void zynq_uart_write(const char *text);
void zynq_uart_drain(void);

/* fault.c */
_Noreturn void zynq_exit(uint32_t status);
_Noreturn void zynq_panic(const char *what);
_Noreturn void zynq_fault(uint32_t kind, const struct zynq_frame *frame);

/* divide.c, under the names of the run-time ABI */
_Noreturn void __aeabi_idiv0(void);
_Noreturn void __aeabi_ldiv0(void);

/* main.c */
_Noreturn void zynq_main(void);

#endif /* ZYNQ_H */
