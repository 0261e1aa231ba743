/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest in one sector, which the firmware boots. It writes a pattern that depends on the number of its
 * boots, and checks the pattern of the boot before. Then it writes a counter twice a second. A guest that
 * boots an operating system would be emulated twice, for minutes.
 *
 * Sector 1 has the magic, the number of boots and the counter. The pattern is in 32 chunks of 32 KiB from
 * sector 2048. The firmware's driver does not know flushes, so QEMU makes each write durable before it
 * completes. On the serial port:
 *
 *	boot=00000002 count=0000001f data=ok	what the disk had
 *	wrote=00000003					the next pattern is durable, and so is its number
 *	n=00000020					the counter is durable
 */
	.code16
	.globl	_start

	.equ	RECORD, 0x8000
	.equ	BOOT, RECORD + 4
	.equ	COUNT, RECORD + 8
	.equ	CHUNKS, 32
	.equ	CHUNK_SECTORS, 64
	.equ	PATTERN_SECTOR, 2048
	.equ	READ, 0x42
	.equ	WRITE, 0x43

_start:
	cli
	xorw	%ax, %ax
	movw	%ax, %ds
	movw	%ax, %ss
	movw	$0x7c00, %sp
	sti
	cld
	movb	%dl, drive

	movb	$READ, %ah
	call	record
	cmpl	$0x31474356, RECORD
	je	known
	movl	$0x31474356, RECORD
	movl	$0, BOOT
	movl	$0, COUNT
known:
	movw	$text_boot, %si
	movl	BOOT, %eax
	call	print_number
	movw	$text_count, %si
	movl	COUNT, %eax
	call	print_number
	cmpl	$0, BOOT
	je	new
	movw	$check, %bp
	call	pattern
new:
	movw	$text_data, %si
	call	print

	incl	BOOT
	movw	$fill, %bp
	call	pattern
	movb	$WRITE, %ah
	call	record
	movw	$text_wrote, %si
	movl	BOOT, %eax
	call	print_number
	movw	$text_end, %si
	call	print

again:
	incl	COUNT
	movb	$WRITE, %ah
	call	record
	movw	$text_n, %si
	movl	COUNT, %eax
	call	print_number
	movw	$text_end, %si
	call	print
	movw	$9, %cx			/* of 18.2 Hz */
1:	hlt
	loop	1b
	jmp	again

/* Read or write sector 1; AH: which. */
record:
	movl	$1, sector
	movw	$1, sectors
	movw	$0, segment
	movw	$RECORD, offset
disk:
	movb	drive, %dl
	movw	$packet, %si
	movb	$0, %al
	int	$0x13
	jnc	1f
	movw	$text_error, %si
	call	print
2:	hlt
	jmp	2b
1:	ret

/* Call BP for each chunk: ES:0 is its data, EAX its pattern. */
pattern:
	movl	$PATTERN_SECTOR, sector
	movw	$CHUNK_SECTORS, sectors
	movw	$0x1000, segment
	movw	$0, offset
	movw	$0x1000, %ax
	movw	%ax, %es
	movw	$CHUNKS, %bx
1:	movl	BOOT, %eax
	shll	$16, %eax
	orl	sector, %eax
	xorw	%di, %di
	movw	$(CHUNK_SECTORS * 128), %cx
	pushw	%bx
	call	*%bp
	popw	%bx
	addl	$CHUNK_SECTORS, sector
	decw	%bx
	jnz	1b
	ret

fill:
	rep stosl
	movb	$WRITE, %ah
	jmp	disk

check:
	pushl	%eax
	pushw	%cx
	pushw	%di
	movb	$READ, %ah
	call	disk
	popw	%di
	popw	%cx
	popl	%eax
	repe scasl
	je	1f
	movl	$0x20444142, data_word	/* "BAD " */
1:	ret

/* Print SI, then EAX as eight digits. */
print_number:
	pushl	%eax
	call	print
	popl	%ebx
	movw	$8, %cx
1:	roll	$4, %ebx
	movb	%bl, %al
	andb	$15, %al
	cmpb	$10, %al
	sbbb	$0x69, %al
	das
	call	put
	loop	1b
	ret

print:
	lodsb
	testb	%al, %al
	jz	1f
	call	put
	jmp	print
1:	ret

put:
	pushw	%ax
	movw	$0x3fd, %dx
1:	inb	%dx, %al
	testb	$0x20, %al
	jz	1b
	popw	%ax
	movw	$0x3f8, %dx
	outb	%al, %dx
	ret

packet:	.byte	16, 0
sectors: .word	0
offset:	.word	0
segment: .word	0
sector:	.long	0, 0
drive:	.byte	0

text_boot: .asciz "\r\nboot="
text_count: .asciz " count="
text_data: .ascii " data="
data_word: .asciz "ok  \r\n"
text_wrote: .asciz "wrote="
text_n: .asciz "n="
text_error: .asciz "I/O error"
text_end: .asciz "\r\n"

	/* One partition: Glance refuses a boot sector without. */
	.org	446
	.byte	0x80, 0, 2, 0, 0x83, 0, 0, 0
	.long	1, 32767
	.fill	48, 1, 0
	.word	0xaa55
