/* SPDX-License-Identifier: Apache-2.0 */
/* The vendor feature for weights of tags. */
#ifndef VCACHE_NVMETCP_WEIGHT_H
#define VCACHE_NVMETCP_WEIGHT_H

#include <stdint.h>

struct request;

uint16_t weight_get(struct request *r);
uint16_t weight_set(struct request *r);

#endif /* VCACHE_NVMETCP_WEIGHT_H */
