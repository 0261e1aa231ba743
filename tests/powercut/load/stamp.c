// SPDX-License-Identifier: Apache-2.0
#include <stddef.h>

#include "stamp.h"

static uint32_t crc_table[256];

/* Call once, before any other function here. */
void stamp_init(void)
{
	for (uint32_t n = 0; n < 256; n++) {
		uint32_t c = n;

		for (int k = 0; k < 8; k++)
			c = c & 1 ? 0xedb88320u ^ (c >> 1) : c >> 1;
		crc_table[n] = c;
	}
}

static uint32_t stamp_crc(const struct stamp *s)
{
	const uint8_t *p = (const uint8_t *)s;
	uint32_t c = ~0u;

	for (size_t i = 0; i < offsetof(struct stamp, crc); i++)
		c = crc_table[(c ^ p[i]) & 0xff] ^ (c >> 8);
	return ~c;
}

void stamp_fill(struct stamp *s, uint64_t op, uint32_t file, uint64_t sector)
{
	uint64_t x = op * 0x9e3779b97f4a7c15ull ^ sector;

	s->magic = STAMP_MAGIC;
	s->op = op;
	s->sector = sector;
	s->file = file;
	s->writer = op >> 32;
	for (size_t i = 0; i < sizeof(s->filler) / sizeof(s->filler[0]); i++)
		s->filler[i] = x += 0x9e3779b97f4a7c15ull;
	s->unused = 0;
	s->crc = stamp_crc(s);
}

bool stamp_valid(const struct stamp *s)
{
	return s->magic == STAMP_MAGIC && s->crc == stamp_crc(s);
}
