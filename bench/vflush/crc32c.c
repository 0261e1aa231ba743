// SPDX-License-Identifier: Apache-2.0
/*
 * The firmware's checksum with the processor's instruction, if available, since
 * filling a drive mainly computes checksums. Linked with --wrap=vs_crc32c.
 */
#include <string.h>

#include "../../firmware/core/crc32c.h"
#include "sim.h"

#ifdef __x86_64__
__attribute__((target("sse4.2")))
static uint32_t quick(uint32_t crc, const uint8_t *p, size_t len)
{
	uint64_t c = (uint32_t)~crc, word;

	for (; len >= sizeof(word); len -= sizeof(word), p += sizeof(word)) {
		memcpy(&word, p, sizeof(word));
		c = __builtin_ia32_crc32di(c, word);
	}
	while (len--)
		c = __builtin_ia32_crc32qi((uint32_t)c, *p++);
	return ~(uint32_t)c;
}

uint32_t __wrap_vs_crc32c(uint32_t crc, const void *data, size_t len)
{
	if (__builtin_cpu_supports("sse4.2"))
		return quick(crc, data, len);
	return __real_vs_crc32c(crc, data, len);
}
#else
uint32_t __wrap_vs_crc32c(uint32_t crc, const void *data, size_t len)
{
	return __real_vs_crc32c(crc, data, len);
}
#endif
