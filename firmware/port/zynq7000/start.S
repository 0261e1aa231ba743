/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reset and exceptions. The image runs where it is loaded, so .data needs no
 * copy. This code clears .bss and paints the stacks. The loader (QEMU or a
 * first-stage boot loader) has set up DDR, clocks and pins, and starts only the
 * first core.
 */
	.syntax unified
	.arm

	.equ	MODE_FIQ, 0x11
	.equ	MODE_IRQ, 0x12
	.equ	MODE_SVC, 0x13
	.equ	MODE_ABT, 0x17
	.equ	MODE_UND, 0x1b
	.equ	PAINT, 0xdeadbeef

	.section .vectors, "ax", %progbits
	.balign	32
vectors:
	b	zynq_start
	b	undefined_instruction
	b	stop			/* SVC: semihosting without a debugger */
	b	prefetch_abort
	b	data_abort
	b	stop
	b	interrupt
	b	fast_interrupt

	.global	zynq_start
	.type	zynq_start, %function
zynq_start:
	cpsid	aif
	ldr	r0, =vectors
	mcr	p15, 0, r0, c12, c0, 0	/* VBAR */
	/* An exception ends the program, so all modes share one stack. */
	ldr	r0, =zynq_fault_stack_top
	cps	#MODE_FIQ
	mov	sp, r0
	cps	#MODE_IRQ
	mov	sp, r0
	cps	#MODE_ABT
	mov	sp, r0
	cps	#MODE_UND
	mov	sp, r0
	cps	#MODE_SVC
	ldr	sp, =zynq_stack_top

	ldr	r0, =zynq_bss
	ldr	r1, =zynq_bss_end
	mov	r2, #0
	bl	fill
	ldr	r0, =zynq_stack_bottom
	ldr	r1, =zynq_stack_top
	ldr	r2, =PAINT
	bl	fill
	bl	zynq_mmu_on
	cpsie	a			/* late aborts of the bus */
	bl	zynq_main
stop:
	wfi
	b	stop

/* Fill the words from r0 to r1 with r2. */
fill:
	cmp	r0, r1
	bxhs	lr
	str	r2, [r0], #4
	b	fill

/* \adjust: distance of the link register from the instruction. */
	.macro	exception name, kind, adjust
\name:
	sub	lr, lr, #\adjust
	push	{r0-r12, lr}
	mov	r0, #\kind
	b	report
	.endm

	exception undefined_instruction, 0, 4
	exception prefetch_abort, 1, 4
	exception data_abort, 2, 8
	exception interrupt, 3, 4
	exception fast_interrupt, 4, 4

/* Complete struct zynq_frame; the program ran in SVC mode. */
report:
	mrs	r1, spsr
	mrs	r4, cpsr
	cps	#MODE_SVC
	mov	r2, sp
	mov	r3, lr
	msr	cpsr_c, r4
	push	{r1}
	push	{r2, r3}
	mov	r1, sp
	bic	sp, sp, #7
	bl	zynq_fault
	b	stop

/*
 * SYS_EXIT_EXTENDED of Arm's semihosting: exit QEMU with the status in r0.
 * Without semihosting it is an exception, which stops the core.
 */
	.global	zynq_semihosting_exit
	.type	zynq_semihosting_exit, %function
zynq_semihosting_exit:
	ldr	r1, =0x20026		/* the application has ended */
	push	{r1, r2}
	str	r0, [sp, #4]
	mov	r0, #0x20
	mov	r1, sp
	svc	#0x123456
	b	stop
	.ltorg

	.section .note.GNU-stack, "", %progbits
