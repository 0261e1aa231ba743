// SPDX-License-Identifier: GPL-2.0
/*
 * Compute exact and sampled miss-ratio curves, and measure the time:
 * measure SALTS RUNS SIZES < BLOCKS prints JSON. BLOCKS and the file SIZES are
 * 64-bit numbers. All data is in memory before the measurement.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "../../native/core/shards.h"

#define SAMPLES 8192
/* The values of vcache-mrc. */
#define BUCKETS 32768
#define ROOM_FIRST 65536
#define RUNS_MAX 99

static u64 *blocks, *sizes, *misses;
static size_t nr, nr_sizes;

static u64 *slurp(FILE *file, size_t *n)
{
	size_t room = 1 << 16, got;
	u64 *p = NULL;

	for (*n = 0;; room *= 2) {
		p = realloc(p, room * sizeof(*p));
		if (!p || !file)
			exit(1);
		got = fread(p + *n, sizeof(*p), room - *n, file);
		*n += got;
		if (*n < room)
			return p;
	}
}

static double cpu(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void *begin(struct vcache_shards *s, const struct vcache_shards_setup *setup)
{
	void *memory = malloc(vcache_shards_size(setup));

	if (!memory || vcache_shards_init(s, setup, memory))
		exit(1);
	return memory;
}

/* Process all blocks, including the allocation of memory. */
static double run(struct vcache_shards *s, struct vcache_shards_setup setup, void **memory)
{
	double start = cpu();
	size_t done;

	*memory = begin(s, &setup);
	done = vcache_shards_touch(s, 0, blocks, nr);
	while (done < nr) {
		struct vcache_shards old = *s;
		void *more;

		setup.samples *= 2;
		setup.buckets *= 2;
		more = begin(s, &setup);
		vcache_shards_move(s, &old);
		free(*memory);
		*memory = more;
		done += vcache_shards_touch(s, 0, blocks + done, nr - done);
	}
	return cpu() - start;
}

static int order(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* Measure @runs runs, and print the curve of the last one. */
static void measure(const char *name, const struct vcache_shards_setup *setup, int runs)
{
	double seconds[RUNS_MAX];
	struct vcache_shards s = { 0 };
	void *memory = NULL;
	size_t j;
	int i;

	for (i = 0; i < runs; i++) {
		seconds[i] = run(&s, *setup, &memory);
		if (i < runs - 1)
			free(memory);
	}
	qsort(seconds, runs, sizeof(*seconds), order);
	vcache_shards_curve(&s, 0, sizes, nr_sizes, misses);
	printf("{\"name\": \"%s\", \"salt\": %" PRIu64 ", \"seconds\": %.9f, "
	       "\"footprint\": %" PRIu64 ", \"misses\": [", name, setup->salt,
	       seconds[runs / 2], vcache_shards_footprint(&s));
	for (j = 0; j < nr_sizes; j++)
		printf("%s%" PRIu64, j ? ", " : "", misses[j]);
	puts("]}");
	free(memory);
}

int main(int argc, char **argv)
{
	struct vcache_shards_setup exact = {
		.samples = ROOM_FIRST, .kinds = 1, .buckets = ROOM_FIRST,
		.fixed_rate = true, .limit = VC_SHARDS_ALL,
	}, sampled = {
		.samples = SAMPLES, .kinds = 1, .buckets = BUCKETS, .limit = VC_SHARDS_ALL,
	};
	int runs = argc == 4 ? atoi(argv[2]) : 0;
	u64 salts = argc == 4 ? strtoull(argv[1], NULL, 10) : 0;

	if (runs < 1 || runs > RUNS_MAX) {
		fputs("Usage: measure SALTS RUNS SIZES < BLOCKS\n", stderr);
		return 2;
	}
	sizes = slurp(fopen(argv[3], "rb"), &nr_sizes);
	misses = malloc((nr_sizes + 1) * sizeof(*misses));
	blocks = slurp(stdin, &nr);
	if (!misses)
		return 1;
	measure("exact", &exact, runs);
	for (sampled.salt = 1; sampled.salt <= salts; sampled.salt++)
		measure("sampled", &sampled, runs);
	return 0;
}
