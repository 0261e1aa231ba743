// SPDX-License-Identifier: GPL-2.0
/* vcache-check: check a cache device for damage. Changes nothing. */
#include <getopt.h>
#include <stdarg.h>

#include "pool.h"

static bool quiet;

static void report(void *ctx, const char *fmt, ...)
{
	struct pool *p = ctx;
	va_list args;

	if (quiet)
		return;
	va_start(args, fmt);
	printf("%s: ", p->path);
	vprintf(fmt, args);
	putchar('\n');
	va_end(args);
}

static int usage(void)
{
	fputs("Usage: vcache-check [--quiet] [--data] DEVICE\n"
	      "Check a cache device for damage. Changes nothing.\n"
	      "  --quiet   print nothing\n"
	      "  --data    check the checksums of all data blocks, too\n", stderr);
	return EXIT_USAGE;
}

static int check(struct pool *p, const char *path, bool data)
{
	unsigned long problems = 0;
	int r = pool_open(p, path, false);

	if (r) {
		fprintf(stderr, "%s: %s\n", path, strerror(-r));
		return EXIT_USAGE;
	}
	r = pool_load(p);
	if (r == -ENOMEM || r == -EOPNOTSUPP) {
		fprintf(stderr, "%s: %s\n", path, strerror(-r));
		return EXIT_USAGE;
	}
	if (r) {
		report(p, r == -ENXIO ? "the device is too small for its pool" :
					"there is no superblock");
		return EXIT_DAMAGE;
	}
	if (p->sb.flags & VC_SUPER_NEEDS_CHECK) {
		report(p, "the target found damage earlier: its flag is set");
		problems++;
	}
	problems += pool_check(p, data, report, p);
	return problems ? EXIT_DAMAGE : EXIT_GOOD;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "quiet", no_argument, NULL, 'q' },
		{ "data", no_argument, NULL, 'd' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	bool data = false;
	struct pool p;
	int c, status;

	while ((c = getopt_long(argc, argv, "qdh", options, NULL)) != -1) {
		switch (c) {
		case 'q':
			quiet = true;
			break;
		case 'd':
			data = true;
			break;
		default:
			return usage();
		}
	}
	if (optind != argc - 1)
		return usage();
	status = check(&p, argv[optind], data);
	pool_close(&p);
	return status;
}
