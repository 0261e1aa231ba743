// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "identity.h"
#include "limits.h"

static const char usage[] =
"usage: vcache-ssd [OPTION]...\n"
"Emulate an SSD to which a host connects over NVMe/TCP.\n"
"\n"
"  --listen ADDR:PORT    address to listen on; port 0 selects a free port\n"
"                        (127.0.0.1:4420)\n"
"  --image FILE          file with the content of the SSD (in memory)\n"
"  --size BYTES          size of the SSD, or with suffix K, M, G or T; needed\n"
"                        for a new SSD (size of the image)\n"
"  --personality tagged|baseline\n"
"                        tagged: flush one tag; baseline: flush all data\n"
"                        (tagged)\n"
"  --mapping page|fast   page mapping or the hybrid mapping FAST (page)\n"
"  --nand tlc|jasmine|none|svd\n"
"                        type of NAND; none: TLC without delays (tlc)\n"
"  --tags N              tags with state at a time, 1 to 256 (64)\n"
"  --buffer MIB          size of the write buffer, 1 to 4096 (8; jasmine: 32)\n"
"  --handles N           placement handles (FDP), 1 to 8; 1: no FDP (1)\n"
"  --namespaces N        namespaces of equal size, 1 to 1024 (1)\n"
"  --block-size BYTES    logical block size, 512 or 4096 (4096)\n"
"  --nqn NQN             name of the subsystem (derived from the image's path)\n"
"  --multipath on|off    report that several controllers are possible (off)\n"
"  --timing on|off       complete commands after the time of the device, or\n"
"                        at once (on)\n"
"  --flush overlapped|exclusive\n"
"                        exclusive: a flush delays all later commands\n"
"                        (overlapped)\n"
"  --slowdown N          multiply all times of the NAND, 1 to 1000 (1)\n"
"  --peer-timeout SECS   close a connection that makes no progress within a\n"
"                        PDU or a handshake, 1 to 3600 (30)\n"
"  --help                show this help\n";

static bool bad(const char *option, const char *value, const char *allowed)
{
	fprintf(stderr, "vcache-ssd: --%s %s: must be %s\n", option, value,
		allowed);
	return false;
}

static bool parse_number(const char *text, uint64_t low, uint64_t high,
			 uint64_t *number)
{
	char *end;

	if (!isdigit((unsigned char)*text))
		return false;
	errno = 0;
	*number = strtoull(text, &end, 10);
	return !errno && !*end && *number >= low && *number <= high;
}

static bool parse_size(const char *text, uint64_t *size)
{
	static const char units[] = "KMGT";
	const char *unit = NULL;
	unsigned int shift = 0;
	char digits[24];
	size_t n = strlen(text);

	if (!n || n >= sizeof(digits))
		return false;
	memcpy(digits, text, n + 1);
	unit = strchr(units, digits[n - 1]);
	if (unit) {
		shift = 10 * (unsigned int)(unit - units + 1);
		digits[n - 1] = '\0';
	}
	if (!parse_number(digits, 1, INT64_MAX >> shift, size))
		return false;
	*size <<= shift;
	return true;
}

/* ADDR:PORT; an IPv6 address is in brackets. */
static bool parse_listen(struct options *o, const char *text)
{
	struct addrinfo hints = {
		.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE,
		.ai_socktype = SOCK_STREAM,
	};
	struct addrinfo *found;
	char host[64];
	const char *colon = strrchr(text, ':');
	const char *from = text, *to = colon;
	uint64_t port;

	if (!colon || !parse_number(colon + 1, 0, 65535, &port))
		return false;
	if (*from == '[') {
		if (to[-1] != ']')
			return false;
		from++;
		to--;
	} else if (memchr(from, ':', (size_t)(to - from))) {
		return false;
	}
	if (to <= from || (size_t)(to - from) >= sizeof(host))
		return false;
	memcpy(host, from, (size_t)(to - from));
	host[to - from] = '\0';
	if (getaddrinfo(host, colon + 1, &hints, &found))
		return false;
	memcpy(&o->address, found->ai_addr, found->ai_addrlen);
	o->address_length = found->ai_addrlen;
	freeaddrinfo(found);
	return true;
}

static bool parse_nqn(struct options *o, const char *text)
{
	size_t i, n = strlen(text);

	if (n < 5 || n >= NQN_SIZE || strncmp(text, "nqn.", 4) ||
	    !strcmp(text, DISCOVERY_NQN))
		return false;
	for (i = 0; i < n; i++) {
		if (!isgraph((unsigned char)text[i]))
			return false;
	}
	memcpy(o->nqn, text, n + 1);
	return true;
}

/* The same image always gets the same name, an SSD in memory a random one. */
static void default_nqn(struct options *o)
{
	char seed[PATH_MAX] = "";
	uint8_t u[16];

	if (!o->device.image) {
		uint64_t random = 0;

		if (getrandom(&random, sizeof(random), 0) < 0)
			perror("vcache-ssd: getrandom");
		snprintf(seed, sizeof(seed), "%016" PRIx64, random);
	} else if (!realpath(o->device.image, seed)) {
		snprintf(seed, sizeof(seed), "%s", o->device.image);
	}
	identity_uuid(seed, 0, u);
	snprintf(o->nqn, sizeof(o->nqn),
		 "nqn.2014-08.org.nvmexpress:uuid:"
		 "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-"
		 "%02x%02x%02x%02x%02x%02x",
		 u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9],
		 u[10], u[11], u[12], u[13], u[14], u[15]);
}

enum {
	LISTEN = 1,
	IMAGE,
	SIZE,
	PERSONALITY,
	MAPPING,
	NAND,
	TAGS,
	BUFFER,
	PLACEMENT_HANDLES,
	NAMESPACE_COUNT,
	BLOCK_SIZE,
	NQN,
	MULTIPATH,
	TIMING,
	FLUSH,
	SLOWDOWN,
	PEER_TIMEOUT,
	HELP,
};

static const struct option long_options[] = {
	{ "listen", required_argument, NULL, LISTEN },
	{ "image", required_argument, NULL, IMAGE },
	{ "size", required_argument, NULL, SIZE },
	{ "personality", required_argument, NULL, PERSONALITY },
	{ "mapping", required_argument, NULL, MAPPING },
	{ "nand", required_argument, NULL, NAND },
	{ "tags", required_argument, NULL, TAGS },
	{ "buffer", required_argument, NULL, BUFFER },
	{ "handles", required_argument, NULL, PLACEMENT_HANDLES },
	{ "namespaces", required_argument, NULL, NAMESPACE_COUNT },
	{ "block-size", required_argument, NULL, BLOCK_SIZE },
	{ "nqn", required_argument, NULL, NQN },
	{ "multipath", required_argument, NULL, MULTIPATH },
	{ "timing", required_argument, NULL, TIMING },
	{ "flush", required_argument, NULL, FLUSH },
	{ "slowdown", required_argument, NULL, SLOWDOWN },
	{ "peer-timeout", required_argument, NULL, PEER_TIMEOUT },
	{ "help", no_argument, NULL, HELP },
	{ NULL, 0, NULL, 0 },
};

static bool parse_switch(bool *on, const char *name, const char *value)
{
	*on = !strcmp(value, "on");
	return *on || !strcmp(value, "off") || bad(name, value, "on or off");
}

static bool parse_flush(bool *exclusive, const char *value)
{
	*exclusive = !strcmp(value, "exclusive");
	return *exclusive || !strcmp(value, "overlapped") ||
	       bad("flush", value, "overlapped or exclusive");
}

/* Names are in the order of their enumeration, which begins with 1. */
static bool take_name(uint32_t *choice, const char *option, const char *value,
		      const char *const names[], const char *allowed)
{
	uint32_t i;

	for (i = 0; names[i]; i++) {
		if (!strcmp(value, names[i])) {
			*choice = i + 1;
			return true;
		}
	}
	return bad(option, value, allowed);
}

static const char *const personalities[] = { "tagged", "baseline", NULL };
static const char *const mappings[] = { "page", "fast", NULL };
static const char *const nands[] = { "tlc", "jasmine", "none", "svd",
				     NULL };

/* Options of the SSD, except its image and its size. */
static bool take_device(struct backend_options *d, int option,
			const char *value)
{
	uint64_t number;

	switch (option) {
	case PERSONALITY:
		return take_name(&d->personality, "personality", value,
				 personalities, "tagged or baseline");
	case MAPPING:
		return take_name(&d->mapping, "mapping", value, mappings,
				 "page or fast");
	case NAND:
		return take_name(&d->nand, "nand", value, nands,
				 "tlc, jasmine, none or svd");
	case TAGS:
		if (!parse_number(value, 1, 256, &number))
			return bad("tags", value, "1 to 256");
		d->tags = (uint32_t)number;
		return true;
	case PLACEMENT_HANDLES:
		if (!parse_number(value, 1, VS_HANDLES, &number))
			return bad("handles", value, "1 to 8");
		d->handles = (uint32_t)number;
		return true;
	case SLOWDOWN:
		if (!parse_number(value, 1, 1000, &number))
			return bad("slowdown", value, "1 to 1000");
		d->slowdown = (uint32_t)number;
		return true;
	default:
		if (!parse_number(value, 1, 4096, &number))
			return bad("buffer", value, "1 to 4096 MiB");
		d->buffer = number << 20;
		return true;
	}
}

static bool take_numbers(struct options *o, int option, const char *value)
{
	uint64_t number;

	switch (option) {
	case NAMESPACE_COUNT:
		if (!parse_number(value, 1, NAMESPACES, &number))
			return bad("namespaces", value, "1 to 1024");
		o->namespaces = (uint32_t)number;
		return true;
	case BLOCK_SIZE:
		if (!parse_number(value, 512, 4096, &number) ||
		    (number != 512 && number != 4096))
			return bad("block-size", value, "512 or 4096");
		o->lba_shift = number == 512 ? 9 : 12;
		return true;
	default:
		if (!parse_number(value, 1, 3600, &number))
			return bad("peer-timeout", value,
				   "1 to 3600 seconds");
		o->peer_timeout = (uint32_t)number;
		return true;
	}
}

static bool take(struct options *o, int option, const char *value)
{
	switch (option) {
	case LISTEN:
		return parse_listen(o, value) ||
		       bad("listen", value,
			   "ADDR:PORT, an IPv6 address in brackets");
	case IMAGE:
		o->device.image = value;
		return *value || bad("image", "''", "the name of a file");
	case SIZE:
		return parse_size(value, &o->device.size) ||
		       bad("size", value,
			   "a number of bytes, with or without suffix K, M, G or T");
	case PERSONALITY:
	case MAPPING:
	case NAND:
	case TAGS:
	case BUFFER:
	case PLACEMENT_HANDLES:
	case SLOWDOWN:
		return take_device(&o->device, option, value);
	case NQN:
		return parse_nqn(o, value) ||
		       bad("nqn", value,
			   "an NVMe qualified name, nqn.YYYY-MM.DOMAIN:NAME, of up to 223 characters");
	case MULTIPATH:
		return parse_switch(&o->multipath, "multipath", value);
	case TIMING:
		return parse_switch(&o->timing, "timing", value);
	case FLUSH:
		return parse_flush(&o->exclusive_flush, value);
	default:
		return take_numbers(o, option, value);
	}
}

/**
 * options_parse - parse the command line
 * @o: the result
 * @argc: number of words
 * @argv: the words
 *
 * Return: the result; an error has been printed.
 */
enum options_result options_parse(struct options *o, int argc, char **argv)
{
	int option;

	*o = (struct options){
		.device.slowdown = 1,
		.namespaces = 1,
		.lba_shift = 12,
		.timing = true,
		.peer_timeout = 30,
	};
	if (!parse_listen(o, "127.0.0.1:4420"))
		return OPTIONS_BAD;
	while ((option = getopt_long(argc, argv, "", long_options, NULL)) !=
	       -1) {
		if (option == HELP) {
			fputs(usage, stdout);
			return OPTIONS_HELP;
		}
		/* getopt_long() has printed the error. */
		if (option == '?' || !take(o, option, optarg))
			return OPTIONS_BAD;
	}
	if (optind < argc) {
		fprintf(stderr, "vcache-ssd: %s: not an option\n",
			argv[optind]);
		return OPTIONS_BAD;
	}
	if (!*o->nqn)
		default_nqn(o);
	return OPTIONS_OK;
}
