// SPDX-License-Identifier: Apache-2.0
/* The clock: a heap of events. Events of the same time are in the order of at(). */
#include <stdio.h>
#include <stdlib.h>

#include "sim.h"

void *must(void *memory)
{
	if (!memory) {
		fprintf(stderr, "vflush: no memory\n");
		exit(1);
	}
	return memory;
}

static bool before(const struct event *a, const struct event *b)
{
	return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static void swap(struct event *a, struct event *b)
{
	struct event c = *a;

	*a = *b;
	*b = c;
}

void at(vs_time when, void (*run)(void *who), void *who)
{
	size_t i = sim.events++;

	if (sim.events > sim.event_room) {
		sim.event_room = 2 * sim.events;
		sim.event = must(realloc(sim.event, sim.event_room *
						    sizeof(*sim.event)));
	}
	sim.event[i] = (struct event){
		.at = when > sim.now ? when : sim.now,
		.order = sim.order++,
		.run = run,
		.who = who,
	};
	for (; i && before(&sim.event[i], &sim.event[(i - 1) / 2]);
	     i = (i - 1) / 2)
		swap(&sim.event[i], &sim.event[(i - 1) / 2]);
}

static struct event take(void)
{
	struct event first = sim.event[0];
	size_t i = 0, child;

	sim.event[0] = sim.event[--sim.events];
	while ((child = 2 * i + 1) < sim.events) {
		if (child + 1 < sim.events &&
		    before(&sim.event[child + 1], &sim.event[child]))
			child++;
		if (!before(&sim.event[child], &sim.event[i]))
			break;
		swap(&sim.event[i], &sim.event[child]);
		i = child;
	}
	return first;
}

void run_until(vs_time when)
{
	while (sim.events && sim.event[0].at <= when) {
		struct event e = take();

		sim.now = e.at;
		e.run(e.who);
	}
	sim.now = when;
}

/* xorshift64*, Vigna 2016. */
uint64_t random_below(uint64_t n)
{
	sim.random ^= sim.random >> 12;
	sim.random ^= sim.random << 25;
	sim.random ^= sim.random >> 27;
	return (sim.random * 0x2545f4914f6cdd1dULL >> 16) % n;
}
