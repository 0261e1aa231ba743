/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Little-endian numbers on the wire (NVMe Base 1.4 §1.7). They are structures
 * of bytes. So structures on the wire have no padding and need no alignment,
 * and the compiler rejects their use as plain numbers.
 */
#ifndef VCACHE_NVMETCP_BYTES_H
#define VCACHE_NVMETCP_BYTES_H

#include <stdint.h>

struct le16 {
	uint8_t b[2];
};

struct le32 {
	uint8_t b[4];
};

struct le64 {
	uint8_t b[8];
};

static inline uint16_t le16_to_cpu(struct le16 v)
{
	return (uint16_t)(v.b[0] | v.b[1] << 8);
}

static inline uint32_t le32_to_cpu(struct le32 v)
{
	return v.b[0] | v.b[1] << 8 | v.b[2] << 16 | (uint32_t)v.b[3] << 24;
}

static inline uint64_t le64_to_cpu(struct le64 v)
{
	struct le32 low = {{ v.b[0], v.b[1], v.b[2], v.b[3] }};
	struct le32 high = {{ v.b[4], v.b[5], v.b[6], v.b[7] }};

	return le32_to_cpu(low) | (uint64_t)le32_to_cpu(high) << 32;
}

static inline struct le16 cpu_to_le16(uint16_t v)
{
	return (struct le16){{ v & 0xff, v >> 8 }};
}

static inline struct le32 cpu_to_le32(uint32_t v)
{
	return (struct le32){{ v & 0xff, v >> 8 & 0xff, v >> 16 & 0xff,
			       v >> 24 }};
}

static inline struct le64 cpu_to_le64(uint64_t v)
{
	struct le32 low = cpu_to_le32((uint32_t)v);
	struct le32 high = cpu_to_le32((uint32_t)(v >> 32));

	return (struct le64){{ low.b[0], low.b[1], low.b[2], low.b[3],
			       high.b[0], high.b[1], high.b[2], high.b[3] }};
}

#endif /* VCACHE_NVMETCP_BYTES_H */
