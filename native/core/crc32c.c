// SPDX-License-Identifier: GPL-2.0
#include "crc32c.h"

#ifdef __KERNEL__
#include <linux/crc32c.h>

static u32 vc_crc32c_more(u32 crc, const u8 *p, size_t len)
{
	return crc32c(crc, p, len);
}
#else
/* A table for one nibble at a time: small, and correct on any processor. */
static const u32 vc_crc32c_nibble[16] = {
	0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1,
	0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
	0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
	0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75,
};

static u32 vc_crc32c_plain(u32 crc, const u8 *p, size_t len)
{
	while (len--) {
		crc ^= *p++;
		crc = crc >> 4 ^ vc_crc32c_nibble[crc & 15];
		crc = crc >> 4 ^ vc_crc32c_nibble[crc & 15];
	}
	return crc;
}

#if defined(__x86_64__) && !defined(VC_CRC32C_PLAIN)
/* With the processor's instruction a check of all data waits for the disk only. */
__attribute__((target("sse4.2")))
static u32 vc_crc32c_sse42(u32 crc, const u8 *p, size_t len)
{
	u64 word;

	for (; len >= sizeof(word); len -= sizeof(word), p += sizeof(word)) {
		memcpy(&word, p, sizeof(word));
		crc = __builtin_ia32_crc32di(crc, word);
	}
	while (len--)
		crc = __builtin_ia32_crc32qi(crc, *p++);
	return crc;
}

static u32 vc_crc32c_more(u32 crc, const u8 *p, size_t len)
{
	if (__builtin_cpu_supports("sse4.2"))
		return vc_crc32c_sse42(crc, p, len);
	return vc_crc32c_plain(crc, p, len);
}
#else
static u32 vc_crc32c_more(u32 crc, const u8 *p, size_t len)
{
	return vc_crc32c_plain(crc, p, len);
}
#endif
#endif

/**
 * vcache_crc32c - compute the checksum of some bytes
 * @data: the bytes
 * @len: how many
 */
u32 vcache_crc32c(const void *data, size_t len)
{
	return ~vc_crc32c_more(~0U, data, len);
}
