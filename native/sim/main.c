// SPDX-License-Identifier: GPL-2.0-only
/*
 * The simulation: the program. It prints a line of JSON for each violation, and one at the end.
 *
 *   sim exhaustive CONFIG LEN SHARD SHARDS SECONDS
 *   sim random FIRST STEP SECONDS COUNT
 *   sim directed NAME FIRST STEP SECONDS COUNT
 *   sim replay CASE
 *
 * All time limits are of processor time, so that they hold on a busy machine.
 */
#include <signal.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "history.h"

static struct sim_case now;
static u32 most = 5;	/* violations */

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static void report(double began)
{
	int i;

	printf("{\"histories\": %llu, \"orders\": %llu, \"cuts\": %llu, \"recoveries\": %llu, "
	       "\"remembered\": %llu, \"steps\": %llu, \"violations\": %llu, "
	       "\"seconds\": %.3f, \"probes\": {", counts.histories, counts.orders,
	       counts.cuts, counts.recoveries, counts.remembered, counts.steps,
	       counts.violations, seconds() - began);
	for (i = 0; i < SIM_PROBES && sim_probes[i].name; i++)
		printf("%s\"%s\": %llu", i ? ", " : "", sim_probes[i].name,
		       sim_probes[i].hits);
	printf("}}\n");
}

/* A crash is a violation as well. The stack of the task may be what is wrong. */
static void crash(int sig)
{
	char text[160];
	int n = snprintf(text, sizeof(text),
			 "{\"violation\": \"%s\", \"case\": \"%s\", \"crashed\": true}\n",
			 sig == SIGPROF ? "a task does not give up the processor" :
			 "the module crashes", now.text);

	fflush(stdout);
	if (write(1, text, n) < 0)
		_exit(5);
	_exit(3);
}

static void run(void)
{
	const struct itimerval limit = { .it_value.tv_sec = 60 };

	setitimer(ITIMER_PROF, &limit, NULL);
	run_case(&now);
}

static u32 config_of(const char *name)
{
	u32 i;

	for (i = 0; i < sim_nconfigs; i++) {
		if (!strcmp(sim_configs[i].name, name))
			return i;
	}
	fprintf(stderr, "sim: no configuration %s\n", name);
	exit(2);
}

static void exhaustive(char **argv)
{
	u32 config = config_of(argv[0]), len = atoi(argv[1]), order;
	u64 shard = atoi(argv[2]), shards = atoi(argv[3]), i, n = exhaustive_count(len);
	double began = seconds(), limit = atof(argv[4]);

	for (i = shard; i < n; i += shards) {
		for (order = 0; order < 3; order++) {
			exhaustive_case(&now, config, len, i, order);
			run();
			counts.orders++;
			counts.histories -= order > 0;
		}
		if ((limit && seconds() - began > limit) || counts.violations >= most)
			break;
	}
	report(began);
}

static void random_(char **argv)
{
	u64 seed = strtoull(argv[0], NULL, 10), step = atoi(argv[1]);
	double began = seconds(), limit = atof(argv[2]);
	u64 n = strtoull(argv[3], NULL, 10);

	for (; n-- && seconds() - began < limit && counts.violations < most; seed += step) {
		random_case(&now, seed);
		run();
		counts.orders++;
	}
	report(began);
}

static void directed(char **argv)
{
	u64 seed = strtoull(argv[1], NULL, 10), step = atoi(argv[2]), n = atoi(argv[4]);
	double began = seconds(), limit = atof(argv[3]);

	for (; n-- && seconds() - began < limit && counts.violations < most; seed += step) {
		if (!directed_case(&now, argv[0], seed))
			exit(2);
		run();
		counts.orders++;
	}
	report(began);
}

static int replay(const char *text)
{
	char config[40];
	unsigned long long index;
	unsigned int order;
	double began = seconds();

	if (sscanf(text, "r:%llu", &index) == 1)
		random_case(&now, index);
	else if (sscanf(text, "d:%39[^:]:%llu", config, &index) == 2) {
		if (!directed_case(&now, config, index))
			return 2;
	} else if (sscanf(text, "x:%39[^:]:%llu:%u", config, &index, &order) == 3)
		exhaustive_case(&now, config_of(config), 0, index, order);
	else
		return 2;
	sim_verbose = getenv("SIM_VERBOSE");
	run();
	counts.orders++;
	report(began);
	return counts.violations ? 1 : 0;
}

int main(int argc, char **argv)
{
	static u8 alt[65536];
	stack_t stack = { .ss_sp = alt, .ss_size = sizeof(alt) };
	struct sigaction act = { .sa_handler = crash, .sa_flags = SA_ONSTACK };

	sigaltstack(&stack, NULL);
#ifndef SIM_ASAN
	sigaction(SIGSEGV, &act, NULL);
	sigaction(SIGBUS, &act, NULL);
	sigaction(SIGFPE, &act, NULL);
	sigaction(SIGILL, &act, NULL);
#endif
	sigaction(SIGPROF, &act, NULL);
	sim_mem_init();
	history_init();
	if (getenv("SIM_MOST"))
		most = atoi(getenv("SIM_MOST"));
	if (argc >= 7 && !strcmp(argv[1], "exhaustive"))
		exhaustive(argv + 2);
	else if (argc >= 6 && !strcmp(argv[1], "random"))
		random_(argv + 2);
	else if (argc >= 7 && !strcmp(argv[1], "directed"))
		directed(argv + 2);
	else if (argc >= 3 && !strcmp(argv[1], "replay"))
		return replay(argv[2]);
	else
		return 2;
	return counts.violations ? 1 : 0;
}
