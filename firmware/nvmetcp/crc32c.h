/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VCACHE_NVMETCP_CRC32C_H
#define VCACHE_NVMETCP_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Initial value; the digest is the inverted final value. */
#define CRC32C_SEED 0xffffffffu

uint32_t crc32c_update(uint32_t crc, const void *data, size_t n);

/* The digest of PDU headers and data (TCP Transport 1.0a §3.3.1). */
static inline uint32_t crc32c(const void *data, size_t n)
{
	return ~crc32c_update(CRC32C_SEED, data, n);
}

#endif /* VCACHE_NVMETCP_CRC32C_H */
