/* SPDX-License-Identifier: GPL-2.0 */
/* Helpers of the test programs of the core. */
#ifndef VCACHE_TESTS_CHECK_H
#define VCACHE_TESTS_CHECK_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* The seed under test, so that a failure can be repeated. */
static uint64_t check_seed;

#define CHECK(cond)							\
	do {								\
		if (!(cond)) {						\
			fprintf(stderr, "%s:%d: not so: %s (seed %llu)\n", \
				__FILE__, __LINE__, #cond,		\
				(unsigned long long)check_seed);	\
			exit(1);					\
		}							\
	} while (0)

/* xorshift64*: sufficient, and identical on all machines. */
static inline uint64_t check_next(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * 0x2545f4914f6cdd1dULL;
}

/* A number in 0 ... n - 1. */
static inline unsigned int check_below(uint64_t *state, unsigned int n)
{
	return (check_next(state) >> 33) % n;
}

/* One of the seeds of a run: argv[1] alone when given, else 1 ... count. */
static inline void check_seeds(int argc, char **argv, unsigned int count,
			       void (*test)(uint64_t seed))
{
	if (argc > 1) {
		check_seed = strtoull(argv[1], NULL, 0);
		test(check_seed);
		return;
	}
	for (check_seed = 1; check_seed <= count; check_seed++)
		test(check_seed);
}

#endif /* VCACHE_TESTS_CHECK_H */
