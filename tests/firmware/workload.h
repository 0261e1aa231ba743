/* SPDX-License-Identifier: Apache-2.0 */
/* Random commands, checked against the oracle as they complete. */
#ifndef VCACHE_TESTS_WORKLOAD_H
#define VCACHE_TESTS_WORKLOAD_H

#include "oracle.h"

/*
 * Run @steps commands; VS_EPOWER after a power cut, VS_EREADONLY if the device is
 * worn out.
 */
enum vs_status workload_run(struct device *d, struct oracle *o, uint64_t *seed,
			    unsigned int steps);
/* Write every block once; likewise. */
enum vs_status workload_fill(struct device *d, struct oracle *o);

#endif /* VCACHE_TESTS_WORKLOAD_H */
