/* SPDX-License-Identifier: Apache-2.0 */
/* A set of blocks: ascending ranges that neither overlap nor touch. */
#ifndef LIBVSSD_SET_H
#define LIBVSSD_SET_H

#include <stdbool.h>

#include "vssd.h"

/**
 * struct vssd_set - a set; zero: empty
 * @range: the ranges
 * @n: how many there are
 * @room: how many there is memory for
 * @blocks: number of blocks
 */
struct vssd_set {
	struct vssd_range *range;
	size_t n;
	size_t room;
	uint32_t blocks;
};

bool vssd_set_has(const struct vssd_set *s, struct vssd_range r);
bool vssd_set_meets(const struct vssd_set *s, struct vssd_range r);
int vssd_set_add(struct vssd_set *s, struct vssd_range r);
int vssd_set_remove(struct vssd_set *s, struct vssd_range r);
int vssd_set_common(const struct vssd_set *s, struct vssd_range r,
		    struct vssd_set *to);
int vssd_set_copy(const struct vssd_set *s, struct vssd_set *to);
void vssd_set_clear(struct vssd_set *s);

#endif /* LIBVSSD_SET_H */
