// SPDX-License-Identifier: GPL-2.0
/*
 * The requests of destage in a model: an origin has channels that serve one request each, and
 * a round trip. A worker sends windows of requests, each request when the queue has room.
 */
#include <string.h>

#include "check.h"
#include "../../native/core/queue.h"

#define US 1000ULL
#define MS 1000000ULL
#define CHANNELS_MOST 256
#define FLIGHT_MOST 4096

struct model {
	struct vcache_queue queue;
	u64 now;
	u64 trip;	/* time of a request apart from its service */
	u64 service;	/* time for which it has a channel */
	u32 channels;
	u64 free[CHANNELS_MOST];	/* when a channel is free */
	u64 end[FLIGHT_MOST];	/* requests in flight */
	u32 n;
	u64 requests;
	u32 deepest;
	u64 longest;	/* the longest queue that a read could have met, ns */
	uint64_t noise;	/* a service takes half to one and a half of it; 0: always the same */
};

static u32 next_channel(const struct model *m)
{
	u32 best = 0, i;

	for (i = 1; i < m->channels; i++) {
		if (m->free[i] < m->free[best])
			best = i;
	}
	return best;
}

static void complete_one(struct model *m)
{
	u32 first = 0, i;

	for (i = 1; i < m->n; i++) {
		if (m->end[i] < m->end[first])
			first = i;
	}
	if (m->end[first] > m->now)
		m->now = m->end[first];
	m->end[first] = m->end[--m->n];
}

static void send_one(struct model *m)
{
	u32 c = next_channel(m);
	u64 service = m->service;

	CHECK(m->queue.depth.value >= 1 && m->queue.depth.value <= VC_QUEUE_MOST);
	if (m->queue.depth.value > m->deepest)
		m->deepest = m->queue.depth.value;
	while (m->n >= m->queue.depth.value)
		complete_one(m);
	if (m->noise)
		service = service / 2 + check_next(&m->noise) % service;
	if (m->free[c] < m->now)
		m->free[c] = m->now;
	m->free[c] += service;
	m->end[m->n++] = m->free[c] + m->trip;
	if (m->free[next_channel(m)] > m->now + m->longest)
		m->longest = m->free[next_channel(m)] - m->now;
	m->now += US;
	m->requests++;
	vcache_queue_sent(&m->queue, m->now);
}

/* Send windows of @width requests for @time, with a pause behind each. */
static void run(struct model *m, u64 time, u32 width, u64 pause)
{
	u64 end = m->now + time;
	u32 i;

	m->requests = 0;
	m->deepest = 0;
	m->longest = 0;
	while (m->now < end) {
		vcache_queue_begin(&m->queue, m->now);
		for (i = 0; i < width; i++)
			send_one(m);
		while (m->n)
			complete_one(m);
		vcache_queue_end(&m->queue, m->now);
		m->now += pause;
	}
}

static struct model origin(u64 trip, u64 service, u32 channels)
{
	struct model m = { .now = MS, .trip = trip, .service = service, .channels = channels };

	vcache_queue_init(&m.queue);
	return m;
}

/* A disk with one request at a time: a read soon waits for few of them, and no time is lost. */
static void serial_disk(u64 noise)
{
	struct model m = origin(0, 4 * MS, 1);

	m.noise = noise;
	run(&m, 5000 * MS, 128, 0);
	CHECK(m.longest <= 120 * MS);
	run(&m, 15000 * MS, 128, 0);
	run(&m, 60000 * MS, 128, 0);
	CHECK(m.longest <= (noise ? 60 : 16) * MS);
	CHECK(m.queue.depth.value <= (noise ? 6 : 3));
	CHECK(m.requests >= 14000);
}

/* A round trip that takes longer than the service. The queue is short. */
static void parallel_device(void)
{
	struct model m = origin(2 * MS, MS, 32);

	run(&m, 1000 * MS, 1024, 0);
	CHECK(m.queue.depth.value >= 80);
	CHECK(m.requests >= 28000);
	CHECK(m.longest <= 10 * MS);
}

/* What is sent without waiting, because the queue has become deeper, does not count. */
static void nothing_gained(void)
{
	struct model m = origin(0, 2 * MS, 1);

	run(&m, 2000 * MS, 128, 0);
	CHECK(m.deepest == 2 * VC_QUEUE_FIRST);
	/* And while a longer queue becomes shorter, nothing is sent. */
	m = origin(0, 4 * MS, 4);
	run(&m, 10000 * MS, 128, 0);
	CHECK(m.queue.depth.value <= 10);
}

/* An epoch has enough requests to tell something. */
static void epochs(void)
{
	struct vcache_queue q;
	u64 now = MS;
	u32 i;

	vcache_queue_init(&q);
	vcache_queue_begin(&q, now);
	for (i = 0; i < VC_QUEUE_FIRST; i++)
		vcache_queue_sent(&q, now);
	for (i = 1; i < VC_QUEUE_EPOCH; i++)
		vcache_queue_sent(&q, now += 10 * MS);
	CHECK(q.depth.value == VC_QUEUE_FIRST);
	vcache_queue_sent(&q, now += 10 * MS);
	CHECK(q.depth.value == VC_QUEUE_FIRST / 2);
	CHECK(q.depth.latency == VC_QUEUE_FIRST * 10 * MS && q.depth.rate == 100);
}

/* A disk that serves four requests at a time. */
static void some_channels(void)
{
	struct model m = origin(0, 8 * MS, 4);

	run(&m, 5000 * MS, 128, 0);
	run(&m, 20000 * MS, 128, 0);
	CHECK(m.queue.depth.value >= 3 && m.queue.depth.value <= 8);
	CHECK(m.requests >= 9000);
	CHECK(m.longest <= 40 * MS);
}

/* A queue that is never full gets shorter when the windows take long. */
static void small_windows(void)
{
	struct model m = origin(2 * MS, MS, 32);

	run(&m, 1000 * MS, 1024, 0);
	CHECK(m.queue.depth.value >= 80);
	/* Not because of the pauses between them. */
	run(&m, 2000 * MS, 60, 100 * MS);
	CHECK(m.queue.depth.value >= 80);
	m.channels = 1;
	m.service = 8 * MS;
	run(&m, 40000 * MS, 60, 100 * MS);
	run(&m, 20000 * MS, 60, 100 * MS);
	CHECK(m.longest <= 60 * MS);
	/* Short windows tell nothing. */
	m = origin(0, 10 * MS, 1);
	run(&m, 1000 * MS, 12, 100 * MS);
	CHECK(m.queue.depth.value == VC_QUEUE_FIRST);
}

/* A device that takes long for each request, but for many at a time. */
static void long_trip(void)
{
	struct model m = origin(300 * MS, MS, 64);

	run(&m, 30000 * MS, 1024, 0);
	run(&m, 10000 * MS, 1024, 0);
	CHECK(m.queue.depth.value >= 256);
	CHECK(m.requests >= 8000);
}

/* The disk becomes slower, and then faster again. */
static void changes(void)
{
	struct model m = origin(0, 100 * US, 16);

	run(&m, 2000 * MS, 128, 0);
	CHECK(m.queue.depth.value >= 12);
	m.channels = 1;
	m.service = 8 * MS;
	run(&m, 6000 * MS, 128, 0);
	run(&m, 3000 * MS, 128, 0);
	CHECK(m.longest <= 60 * MS);
	m.channels = 16;
	m.service = 100 * US;
	memset(m.free, 0, sizeof(m.free));
	run(&m, 60000 * MS, 128, 0);
	CHECK(m.queue.depth.value >= 8);
}

int main(void)
{
	uint64_t seed;

	serial_disk(0);
	for (seed = 1; seed < 8; seed++)
		serial_disk(seed * 1000003);
	epochs();
	nothing_gained();
	parallel_device();
	some_channels();
	small_windows();
	long_trip();
	changes();
	return 0;
}
