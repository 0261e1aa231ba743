/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VCACHE_FW_CRC32C_H
#define VCACHE_FW_CRC32C_H

#include <stddef.h>
#include <stdint.h>

uint32_t vs_crc32c(uint32_t crc, const void *data, size_t len);

#endif /* VCACHE_FW_CRC32C_H */
