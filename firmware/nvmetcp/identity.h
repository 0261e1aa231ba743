/* SPDX-License-Identifier: Apache-2.0 */
/* The identity of the SSD. */
#ifndef VCACHE_NVMETCP_IDENTITY_H
#define VCACHE_NVMETCP_IDENTITY_H

#include <stdint.h>

/* Padded with spaces (NVMe Base 1.4 §1.5). */
#define MODEL_NUMBER "nova-vcache emulated SSD                "
#define FIRMWARE_REVISION "1       "

uint64_t identity_hash(const char *name, uint64_t seed);
void identity_uuid(const char *name, uint32_t seed, uint8_t uuid[16]);

#endif /* VCACHE_NVMETCP_IDENTITY_H */
