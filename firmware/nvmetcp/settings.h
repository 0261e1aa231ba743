/* SPDX-License-Identifier: Apache-2.0 */
/* Features that NVMe requires and that have no effect on an emulated SSD. */
#ifndef VCACHE_NVMETCP_SETTINGS_H
#define VCACHE_NVMETCP_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

struct request;

/**
 * struct settings - values of a controller
 * @arbitration: CDW11 of feature 01h; there is one I/O queue at a time to choose from
 * @over: temperature threshold in K, over temperature
 * @under: the same, under temperature
 * @recovery: CDW11 of feature 05h; the medium has no retries to limit
 * @atomicity: CDW11 of feature 0Ah; a write of one block is always atomic
 */
struct settings {
	uint32_t arbitration;
	uint16_t over;
	uint16_t under;
	uint32_t recovery;
	uint32_t atomicity;
};

void settings_reset(struct settings *s);
bool settings_has(uint8_t feature);
uint16_t settings_get(struct request *r);
uint16_t settings_set(struct request *r);

#endif /* VCACHE_NVMETCP_SETTINGS_H */
