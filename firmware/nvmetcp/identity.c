// SPDX-License-Identifier: Apache-2.0
/* Identifiers derived from names, so that they are the same at each start. */
#include "identity.h"

#include <string.h>

/**
 * identity_hash - hash a name
 * @name: the name
 * @seed: selects one of several hashes
 *
 * FNV-1a with a final mixing step, because the low bits of FNV-1a depend too
 * little on some parts of the name.
 *
 * Return: the hash.
 */
uint64_t identity_hash(const char *name, uint64_t seed)
{
	uint64_t h = 0xcbf29ce484222325ull ^ seed;

	for (; *name; name++)
		h = (h ^ (uint8_t)*name) * 0x100000001b3ull;
	h ^= h >> 32;
	h *= 0x9e3779b97f4a7c15ull;
	return h ^ h >> 29;
}

/**
 * identity_uuid - derive a UUID of version 8 (RFC 9562) from a name
 * @name: the name
 * @seed: selects one of several UUIDs
 * @uuid: the UUID
 */
void identity_uuid(const char *name, uint32_t seed, uint8_t uuid[16])
{
	uint64_t halves[2] = {
		identity_hash(name, seed), identity_hash(name, ~(uint64_t)seed),
	};

	memcpy(uuid, halves, 16);
	uuid[6] = (uuid[6] & 0x0f) | 0x80;
	uuid[8] = (uuid[8] & 0x3f) | 0x80;
}
