// SPDX-License-Identifier: Apache-2.0
/*
 * load - the writes of one VM: 4 KiB at random, O_DIRECT, an fdatasync after every
 * K writes (0: never).
 *
 *   load FILE BYTES K THINK_US START_NS RAMP_MS TIME_MS TAIL_MS SEED
 *
 * Starts when CLOCK_MONOTONIC is START_NS, so that several loads start together. It
 * writes for ramp + time + tail, and counts operations that start between ramp and
 * tail. Prints one line of JSON, times in ns.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define BLOCK 4096u

struct sum {
	uint64_t count, ns, max;
};

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void sleep_until(uint64_t ns)
{
	struct timespec t = {
		.tv_sec = (time_t)(ns / 1000000000u),
		.tv_nsec = (long)(ns % 1000000000u),
	};

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

/* xorshift64*, Vigna 2016. */
static uint64_t next_random(uint64_t *x)
{
	*x ^= *x >> 12;
	*x ^= *x << 25;
	*x ^= *x >> 27;
	return *x * 0x2545f4914f6cdd1dULL;
}

static void add(struct sum *s, uint64_t ns)
{
	s->count++;
	s->ns += ns;
	if (ns > s->max)
		s->max = ns;
}

static void print(const char *name, const struct sum *s, const char *end)
{
	printf("\"%s\": {\"count\": %" PRIu64 ", \"ns\": %" PRIu64
	       ", \"max_ns\": %" PRIu64 "}%s", name, s->count, s->ns, s->max,
	       end);
}

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

int main(int argc, char **argv)
{
	uint64_t number[10], blocks, from, to, end, random, begin, t;
	struct sum writes = { 0 }, syncs = { 0 };
	uint64_t since = 0;
	void *buffer;
	int fd;

	if (argc != 10) {
		fprintf(stderr, "usage: load FILE BYTES K THINK_US START_NS "
			"RAMP_MS TIME_MS TAIL_MS SEED\n");
		return 2;
	}
	for (int i = 2; i < argc; i++)
		number[i] = strtoull(argv[i], NULL, 10);
	blocks = number[2] / BLOCK;
	fd = open(argv[1], O_RDWR | O_DIRECT | O_CLOEXEC);
	if (fd < 0 || !blocks)
		fail(argv[1]);
	buffer = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (buffer == MAP_FAILED)
		fail("mmap");
	mlockall(MCL_CURRENT);
	random = number[9] * 0x9e3779b97f4a7c15ULL + 1;
	from = number[5] + number[6] * 1000000u;
	to = from + number[7] * 1000000u;
	end = to + number[8] * 1000000u;
	sleep_until(number[5]);
	for (begin = now(); begin < end; begin = now()) {
		uint64_t block = next_random(&random) % blocks;

		memcpy(buffer, &random, sizeof(random));
		if (pwrite(fd, buffer, BLOCK, (off_t)(block * BLOCK)) != BLOCK)
			fail("pwrite");
		t = now();
		if (begin >= from && begin < to)
			add(&writes, t - begin);
		if (number[3] && ++since == number[3]) {
			since = 0;
			begin = t;
			if (fdatasync(fd))
				fail("fdatasync");
			t = now();
			if (begin >= from && begin < to)
				add(&syncs, t - begin);
		}
		if (number[4])
			sleep_until(t + number[4] * 1000);
	}
	printf("{\"ns\": %" PRIu64 ", ", to - from);
	print("writes", &writes, ", ");
	print("syncs", &syncs, "}\n");
	return 0;
}
