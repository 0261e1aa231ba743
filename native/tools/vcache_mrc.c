// SPDX-License-Identifier: GPL-2.0
/* vcache-mrc: compute the miss-ratio curve of a trace on stdin. */
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "../core/shards.h"
#include "trace.h"

#define EXIT_GOOD 0
#define EXIT_FAILED 1
#define EXIT_USAGE 2

#define SAMPLES_DEFAULT 8192
/* So many that even in the first tenth of a curve a bucket is a thousandth of it. */
#define BUCKETS 32768
#define SPACE_FIRST 65536
#define SIZES_MAX 4096
#define RATE_MIN 0.000000001

static struct vcache_shards_setup setup = {
	.samples = SAMPLES_DEFAULT, .kinds = 1, .buckets = BUCKETS, .limit = VC_SHARDS_ALL,
};
static u64 sizes[SIZES_MAX];
static size_t nr_sizes;
static bool json;

static int usage(const char *why)
{
	if (why)
		fprintf(stderr, "vcache-mrc: %s\n", why);
	fputs("Usage: vcache-mrc [--samples N | --rate R | --exact] [--sizes N,N,...]\n"
	      "                  [--salt N] [--json] < TRACE.csv\n"
	      "Print how many accesses of a trace an LRU cache would miss.\n"
	      "  --samples N      sample up to N blocks (default 8192)\n"
	      "  --rate R         sample blocks at a fixed rate, 1e-9 to 1\n"
	      "  --exact          sample all blocks\n"
	      "  --sizes N,N,...  cache sizes in 4 KiB blocks, in ascending order\n"
	      "  --salt N         another number gives another sample\n"
	      "  --json           print JSON\n", stderr);
	return EXIT_USAGE;
}

static bool number(const char *text, u64 low, u64 high, u64 *value)
{
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	*value = strtoull(text, &end, 10);
	return !errno && !*end && *value >= low && *value <= high;
}

static bool parse_sizes(char *text)
{
	char *one;

	for (nr_sizes = 0; (one = strsep(&text, ",")); nr_sizes++) {
		if (nr_sizes == SIZES_MAX ||
		    !number(one, 1, 1ULL << 52, &sizes[nr_sizes]))
			return false;
		if (nr_sizes && sizes[nr_sizes] <= sizes[nr_sizes - 1])
			return false;
	}
	return true;
}

/* Set T - 1 from a rate, which is fixed then. */
static bool parse_rate(const char *text)
{
	double rate;
	char *end;

	rate = strtod(text, &end);
	if (end == text || *end || !(rate >= RATE_MIN && rate <= 1))
		return false;
	setup.limit = rate < 1 ? (u64)ldexp(rate, 64) - 1 : VC_SHARDS_ALL;
	setup.fixed_rate = true;
	return true;
}

static void *memory(struct vcache_shards *s, const struct vcache_shards_setup *want)
{
	size_t size = vcache_shards_size(want);
	void *p = size ? malloc(size) : NULL;

	if (p)
		vcache_shards_init(s, want, p);
	return p;
}

/* Double the memory. */
static bool grow(struct vcache_shards *s, void **p)
{
	struct vcache_shards_setup want = s->setup;
	struct vcache_shards to;
	void *more;

	want.samples *= 2;
	want.buckets *= 2;
	more = memory(&to, &want);
	if (!more) {
		fprintf(stderr, "vcache-mrc: no memory for %" PRIu32
			" blocks; use a smaller sample: --rate R or --samples N\n",
			want.samples);
		return false;
	}
	vcache_shards_move(&to, s);
	free(*p);
	*p = more;
	*s = to;
	return true;
}

static int estimate(struct vcache_shards *s, void **p)
{
	static struct trace trace;
	u64 blocks[TRACE_BATCH];
	size_t n, done;

	while ((n = trace_blocks(&trace, stdin, blocks))) {
		done = vcache_shards_touch(s, 0, blocks, n);
		while (done < n) {
			if (!grow(s, p))
				return EXIT_FAILED;
			done += vcache_shards_touch(s, 0, blocks + done, n - done);
		}
	}
	if (*trace.error) {
		fprintf(stderr, "vcache-mrc: %s\n", trace.error);
		return EXIT_FAILED;
	}
	return EXIT_GOOD;
}

/* Without --sizes: fractions of the footprint. */
static void default_sizes(u64 footprint)
{
	static const unsigned int per_mille[] = {
		1, 2, 5, 10, 20, 50, 100, 200, 300, 400, 500, 600, 700, 800,
		900, 1000,
	};
	size_t i;

	for (i = 0; i < sizeof(per_mille) / sizeof(*per_mille); i++) {
		u64 size = (footprint / 1000) * per_mille[i] +
			(footprint % 1000) * per_mille[i] / 1000;

		if (size && (!nr_sizes || size > sizes[nr_sizes - 1]))
			sizes[nr_sizes++] = size;
	}
}

static void print(const struct vcache_shards *s)
{
	u64 footprint = vcache_shards_footprint(s), accesses = s->kind[0].accesses;
	static u64 misses[SIZES_MAX];
	size_t i;

	if (!nr_sizes)
		default_sizes(footprint);
	vcache_shards_curve(s, 0, sizes, nr_sizes, misses);
	if (json)
		printf("{\"accesses\": %" PRIu64 ", \"sizes\": [", accesses);
	else
		printf("%" PRIu64 " accesses to %" PRIu64 " blocks of 4 KiB, of "
		       "which %.3g %% are sampled\n"
		       "      BLOCKS        MISSES  MISS-RATIO", accesses,
		       footprint, ldexp(100, VC_SHARDS_ONE_SHIFT) / s->weight);
	for (i = 0; i < nr_sizes; i++)
		printf(json ? "%s\n  {\"blocks\": %" PRIu64 ", \"misses\": %"
		       PRIu64 ", \"miss_ratio\": %.9f}" :
		       "%s\n%12" PRIu64 "  %12" PRIu64 "  %10.6f",
		       json && i ? "," : "", sizes[i], misses[i],
		       accesses ? (double)misses[i] / accesses : 0);
	puts(json ? "]}" : "");
}

static const char *parse(int argc, char **argv)
{
	static const struct option options[] = {
		{ "samples", required_argument, NULL, 'n' },
		{ "rate", required_argument, NULL, 'r' },
		{ "exact", no_argument, NULL, 'x' },
		{ "sizes", required_argument, NULL, 's' },
		{ "salt", required_argument, NULL, 'a' },
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	int c, ways = 0;
	u64 value;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		ways += c == 'n' || c == 'r' || c == 'x';
		if (c == 'n' && !number(optarg, VC_SHARDS_MIN, VC_SHARDS_MAX, &value))
			return "--samples: must be an integer from 16 to 268435456";
		if (c == 'n')
			setup.samples = value;
		if (c == 'r' && !parse_rate(optarg))
			return "--rate: must be a number from 1e-9 to 1";
		if (c == 'x')
			setup.fixed_rate = true;
		if (c == 's' && !parse_sizes(optarg))
			return "--sizes: must be up to 4096 integers from 1 to 2^52, "
				"in ascending order";
		if (c == 'a' && !number(optarg, 0, ~0ULL, &setup.salt))
			return "--salt: must be an integer from 0 to 2^64 - 1";
		if (c == 'j')
			json = true;
		if (c == 'h' || c == '?')
			return "";
	}
	if (ways > 1)
		return "only one of --samples, --rate and --exact is allowed";
	return optind == argc ? NULL : "no more arguments: the trace is read from stdin";
}

int main(int argc, char **argv)
{
	const char *wrong = parse(argc, argv);
	struct vcache_shards s;
	int status;
	void *p;

	if (wrong)
		return usage(*wrong ? wrong : NULL);
	if (setup.fixed_rate) {
		setup.samples = SPACE_FIRST;
		setup.buckets = SPACE_FIRST;
	} else if (setup.buckets < setup.samples) {
		/* Exact while all blocks are in the sample. */
		setup.buckets = setup.samples;
	}
	p = memory(&s, &setup);
	if (!p) {
		fprintf(stderr, "vcache-mrc: no memory for %" PRIu32 " blocks\n",
			setup.samples);
		return EXIT_FAILED;
	}
	status = estimate(&s, &p);
	if (!status)
		print(&s);
	free(p);
	if (fflush(stdout) || ferror(stdout)) {
		perror("vcache-mrc: stdout");
		return EXIT_FAILED;
	}
	return status;
}
