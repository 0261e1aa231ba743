/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A latency histogram with four buckets for each power of two, from 4 ns to 8.5 s, in one
 * KiB. A quantile read from it is at most 25 % too high.
 */
#ifndef VCACHE_CORE_HISTOGRAM_H
#define VCACHE_CORE_HISTOGRAM_H

#include "types.h"

#define VC_HIST_BUCKETS 128

unsigned int vcache_hist_bucket(u64 value);
u64 vcache_hist_lower(unsigned int bucket);

#endif /* VCACHE_CORE_HISTOGRAM_H */
