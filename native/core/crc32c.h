/* SPDX-License-Identifier: GPL-2.0 */
/* CRC32C (Castagnoli) as in RFC 3720 appendix B.4; in the kernel, the kernel's own. */
#ifndef VCACHE_CORE_CRC32C_H
#define VCACHE_CORE_CRC32C_H

#include "types.h"

u32 vcache_crc32c(const void *data, size_t len);

#endif /* VCACHE_CORE_CRC32C_H */
