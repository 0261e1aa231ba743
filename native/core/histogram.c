// SPDX-License-Identifier: GPL-2.0
#include "histogram.h"

/**
 * vcache_hist_bucket - find the bucket of a value
 * @value: for instance a latency in ns
 *
 * Return: 0 to VC_HIST_BUCKETS - 1; the last bucket has all larger values.
 */
unsigned int vcache_hist_bucket(u64 value)
{
	unsigned int log, b;

	if (value < 4)
		return value;
	log = 63 - __builtin_clzll(value);
	b = (log - 1) * 4 + ((value >> (log - 2)) & 3);
	return b < VC_HIST_BUCKETS ? b : VC_HIST_BUCKETS - 1;
}

/**
 * vcache_hist_lower - get the least value of a bucket
 * @bucket: 0 to VC_HIST_BUCKETS
 */
u64 vcache_hist_lower(unsigned int bucket)
{
	if (bucket < 4)
		return bucket;
	return (u64)(4 + bucket % 4) << (bucket / 4 - 1);
}
