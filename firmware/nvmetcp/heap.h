/* SPDX-License-Identifier: Apache-2.0 */
/* A priority queue of requests by completion time. */
#ifndef VCACHE_NVMETCP_HEAP_H
#define VCACHE_NVMETCP_HEAP_H

#include <stdbool.h>
#include <stddef.h>

struct request;

/**
 * struct heap - a binary heap; each request has its index in it
 * @at: the requests, the earliest first
 * @n: number of requests
 * @room: size of @at
 */
struct heap {
	struct request **at;
	size_t n;
	size_t room;
};

bool heap_init(struct heap *h, size_t room);
void heap_destroy(struct heap *h);
void heap_add(struct heap *h, struct request *r);
void heap_remove(struct heap *h, struct request *r);

static inline struct request *heap_first(const struct heap *h)
{
	return h->n ? h->at[0] : NULL;
}

#endif /* VCACHE_NVMETCP_HEAP_H */
