// SPDX-License-Identifier: Apache-2.0
#include "crc32c.h"

#include <stdbool.h>

/* Castagnoli's polynomial, bits reversed. */
#define CRC32C_POLYNOMIAL 0x82f63b78u
/* Bytes per step, each with its own table. */
#define SLICES 8

static uint32_t table[SLICES][256];

static void fill_table(void)
{
	unsigned int i, k;

	for (i = 0; i < 256; i++) {
		uint32_t crc = i;

		for (k = 0; k < 8; k++)
			crc = crc >> 1 ^ (crc & 1 ? CRC32C_POLYNOMIAL : 0);
		table[0][i] = crc;
	}
	for (k = 1; k < SLICES; k++) {
		for (i = 0; i < 256; i++) {
			uint32_t crc = table[k - 1][i];

			table[k][i] = crc >> 8 ^ table[0][crc & 0xff];
		}
	}
}

/**
 * crc32c_update - update a CRC32C
 * @crc: CRC32C_SEED, or the result of the previous call
 * @data: the next bytes
 * @n: number of bytes
 *
 * Return: the CRC's register, not inverted.
 */
uint32_t crc32c_update(uint32_t crc, const void *data, size_t n)
{
	static bool filled;
	const uint8_t *p = data;

	if (!filled) {
		fill_table();
		filled = true;
	}
	for (; n >= SLICES; n -= SLICES, p += SLICES) {
		crc ^= p[0] | p[1] << 8 | p[2] << 16 | (uint32_t)p[3] << 24;
		crc = table[7][crc & 0xff] ^ table[6][crc >> 8 & 0xff] ^
		      table[5][crc >> 16 & 0xff] ^ table[4][crc >> 24] ^
		      table[3][p[4]] ^ table[2][p[5]] ^
		      table[1][p[6]] ^ table[0][p[7]];
	}
	while (n--)
		crc = crc >> 8 ^ table[0][(crc ^ *p++) & 0xff];
	return crc;
}
