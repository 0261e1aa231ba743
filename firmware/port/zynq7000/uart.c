// SPDX-License-Identifier: Apache-2.0
/* UART 0, polled, 115200 8N1, with the 50 MHz clock of boot loaders and QEMU. */
#include "zynq.h"

#define UART 0xe0000000u
#define CONTROL 0x00
#define MODE 0x04
#define BAUD_GENERATOR 0x18
#define CHANNEL_STATUS 0x2c
#define FIFO 0x30
#define BAUD_DIVIDER 0x34

#define CONTROL_RESET 0x03u		/* receiver and transmitter */
#define CONTROL_TX_ENABLE 0x10u
#define CONTROL_RX_DISABLE 0x08u
#define MODE_8N1 0x20u
#define STATUS_TX_EMPTY 0x08u
#define STATUS_TX_FULL 0x10u
#define STATUS_TX_ACTIVE 0x800u

/* 50 MHz / (62 * (6 + 1)) = 115207 */
#define GENERATOR 62u
#define DIVIDER 6u

void zynq_uart_init(void)
{
	REG(UART + CONTROL) = CONTROL_RESET;
	while (REG(UART + CONTROL) & CONTROL_RESET)
		;
	REG(UART + MODE) = MODE_8N1;
	REG(UART + BAUD_GENERATOR) = GENERATOR;
	REG(UART + BAUD_DIVIDER) = DIVIDER;
	REG(UART + CONTROL) = CONTROL_TX_ENABLE | CONTROL_RX_DISABLE;
}

void zynq_uart_write(const char *text)
{
	for (; *text; text++) {
		while (REG(UART + CHANNEL_STATUS) & STATUS_TX_FULL)
			;
		REG(UART + FIFO) = (uint8_t)*text;
	}
}

void zynq_uart_drain(void)
{
	while ((REG(UART + CHANNEL_STATUS) &
		(STATUS_TX_EMPTY | STATUS_TX_ACTIVE)) != STATUS_TX_EMPTY)
		;
}
