// SPDX-License-Identifier: Apache-2.0
/*
 * CRC32C (Castagnoli), bit-reflected, polynomial 0x1edc6f41, as in RFC 3720
 * appendix B.4. Eight tables, one for each byte of a 64-bit step: every block
 * the host writes passes here.
 */
#include "crc32c.h"

#include <stdbool.h>

#define POLYNOMIAL 0x82f63b78u
#define STEP 8

static uint32_t table[STEP][256];
static bool ready;

static void fill(void)
{
	uint32_t i, k;

	for (i = 0; i < 256; i++) {
		uint32_t c = i;

		for (k = 0; k < 8; k++)
			c = c & 1 ? c >> 1 ^ POLYNOMIAL : c >> 1;
		table[0][i] = c;
	}
	for (k = 1; k < STEP; k++) {
		for (i = 0; i < 256; i++)
			table[k][i] = table[k - 1][i] >> 8 ^
				      table[0][table[k - 1][i] & 0xff];
	}
	ready = true;
}

/**
 * vs_crc32c - checksum of @len bytes
 * @crc: 0, or the checksum of what comes before
 * @data: of any alignment
 * @len: 0 gives @crc
 *
 * The first call must not run concurrently with others: it fills the tables.
 */
uint32_t vs_crc32c(uint32_t crc, const void *data, size_t len)
{
	const uint8_t *p = data;

	if (!ready)
		fill();
	crc = ~crc;
	for (; len >= STEP; len -= STEP, p += STEP) {
		crc ^= p[0] | p[1] << 8 | p[2] << 16 | (uint32_t)p[3] << 24;
		crc = table[7][crc & 0xff] ^ table[6][crc >> 8 & 0xff] ^
		      table[5][crc >> 16 & 0xff] ^ table[4][crc >> 24] ^
		      table[3][p[4]] ^ table[2][p[5]] ^
		      table[1][p[6]] ^ table[0][p[7]];
	}
	while (len--)
		crc = crc >> 8 ^ table[0][(crc ^ *p++) & 0xff];
	return ~crc;
}
