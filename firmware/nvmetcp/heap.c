// SPDX-License-Identifier: Apache-2.0
#include "heap.h"

#include <assert.h>
#include <stdlib.h>

#include "request.h"

bool heap_init(struct heap *h, size_t room)
{
	h->n = 0;
	h->room = room;
	h->at = calloc(room, sizeof(struct request *));
	return h->at;
}

void heap_destroy(struct heap *h)
{
	free(h->at);
}

static void put(struct heap *h, size_t i, struct request *r)
{
	h->at[i] = r;
	r->heap_at = i;
}

static void up(struct heap *h, size_t i, struct request *r)
{
	while (i && h->at[(i - 1) / 2]->done > r->done) {
		put(h, i, h->at[(i - 1) / 2]);
		i = (i - 1) / 2;
	}
	put(h, i, r);
}

static void down(struct heap *h, size_t i, struct request *r)
{
	size_t child;

	while ((child = 2 * i + 1) < h->n) {
		if (child + 1 < h->n &&
		    h->at[child + 1]->done < h->at[child]->done)
			child++;
		if (h->at[child]->done >= r->done)
			break;
		put(h, i, h->at[child]);
		i = child;
	}
	put(h, i, r);
}

/**
 * heap_add - add a request
 * @h: the heap, which has space for all requests
 * @r: the request, with @done set
 */
void heap_add(struct heap *h, struct request *r)
{
	assert(h->n < h->room);
	up(h, h->n++, r);
}

/**
 * heap_remove - remove a request, at any position
 * @h: the heap
 * @r: a request in the heap
 */
void heap_remove(struct heap *h, struct request *r)
{
	size_t i = r->heap_at;
	struct request *last = h->at[--h->n];

	if (last == r)
		return;
	if (i && h->at[(i - 1) / 2]->done > last->done)
		up(h, i, last);
	else
		down(h, i, last);
}
