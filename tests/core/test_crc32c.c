// SPDX-License-Identifier: GPL-2.0
/*
 * The checksum, compared with the vectors of RFC 3720, B.4, and others; also
 * without the processor's instruction.
 */
#include <string.h>

#include "check.h"
#define VC_CRC32C_PLAIN
#define vcache_crc32c vc_crc32c_without
#include "../../native/core/crc32c.c"
#undef vcache_crc32c
#undef VCACHE_CORE_CRC32C_H
#include "../../native/core/crc32c.h"

typedef u32 crc_fn(const void *data, size_t len);

static void test_vectors(crc_fn *crc)
{
	static const u8 pdu[48] = {
		[0] = 0x01, [1] = 0xc0, [16] = 0x14, [22] = 0x04,
		[27] = 0x14, [31] = 0x18, [32] = 0x28, [40] = 0x02,
	};
	u8 bytes[32];
	unsigned int i;

	CHECK(crc("", 0) == 0);
	CHECK(crc("123456789", 9) == 0xe3069283);
	memset(bytes, 0, sizeof(bytes));
	CHECK(crc(bytes, sizeof(bytes)) == 0x8a9136aa);
	memset(bytes, 0xff, sizeof(bytes));
	CHECK(crc(bytes, sizeof(bytes)) == 0x62a8ab43);
	for (i = 0; i < sizeof(bytes); i++)
		bytes[i] = i;
	CHECK(crc(bytes, sizeof(bytes)) == 0x46dd794e);
	for (i = 0; i < sizeof(bytes); i++)
		bytes[i] = 31 - i;
	CHECK(crc(bytes, sizeof(bytes)) == 0x113fdb5c);
	CHECK(crc(pdu, sizeof(pdu)) == 0xd9963a56);
}

/* Bit by bit, as the polynomial is defined. */
static u32 model(const u8 *p, size_t len)
{
	u32 crc = ~0U;
	int bit;

	while (len--) {
		crc ^= *p++;
		for (bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
	}
	return ~crc;
}

static void test_model(uint64_t seed)
{
	uint64_t rng = seed;
	size_t len = check_below(&rng, 300);
	u8 *bytes = calloc(1, len ? len : 1);
	size_t i;

	for (i = 0; i < len; i++)
		bytes[i] = check_next(&rng) >> 56;
	CHECK(vcache_crc32c(bytes, len) == model(bytes, len));
	CHECK(vc_crc32c_without(bytes, len) == model(bytes, len));
	free(bytes);
}

int main(int argc, char **argv)
{
	test_vectors(vcache_crc32c);
	test_vectors(vc_crc32c_without);
	check_seeds(argc, argv, 200, test_model);
	return 0;
}
