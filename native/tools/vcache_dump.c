// SPDX-License-Identifier: GPL-2.0
/* vcache-dump: print the metadata of a cache device. Changes nothing. */
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>

#include "pool.h"

static bool json, entries;

static int usage(void)
{
	fputs("Usage: vcache-dump [--json] [--entries] DEVICE\n"
	      "Print the superblock, the volumes and the chunks of a cache device.\n"
	      "  --json      print JSON\n"
	      "  --entries   print the entries of each chunk, too\n", stderr);
	return EXIT_USAGE;
}

/* Print a name as a JSON string. It may have any bytes except 0. */
static void put_name(const u8 *name)
{
	u32 i;

	putchar('"');
	for (i = 0; i < VC_VOLUME_NAME_MAX && name[i]; i++) {
		if (name[i] < ' ' || name[i] > '~' || name[i] == '"' ||
		    name[i] == '\\')
			printf("\\u%04x", name[i]);
		else
			putchar(name[i]);
	}
	putchar('"');
}

static const char *mode_name(u32 mode)
{
	switch (mode) {
	case VC_VOLUME_WRITEBACK:
		return "writeback";
	case VC_VOLUME_WRITETHROUGH:
		return "writethrough";
	case VC_VOLUME_VSSD:
		return "vssd";
	}
	return "unknown";
}

static void dump_super(const struct pool *p)
{
	char uuid[37];
	u32 i, at = 0;

	for (i = 0; i < 16; i++)
		at += sprintf(uuid + at, "%s%02x", i == 4 || i == 6 ||
			      i == 8 || i == 10 ? "-" : "", p->sb.uuid[i]);
	printf(json ? "{\"superblock\": {\"uuid\": \"%s\", \"clean\": %s, "
	       "\"needs_check\": %s, \"next_seq\": %" PRIu64 ", "
	       "\"chunk_blocks\": %" PRIu32 ", \"chunks\": %" PRIu32 ", "
	       "\"first_chunk\": %" PRIu32 ", \"bad_copies\": %d},\n" :
	       "superblock: uuid %s, clean %s, needs check %s, next sequence "
	       "number %" PRIu64 ", %" PRIu32 " blocks a chunk, %" PRIu32
	       " chunks, data from chunk %" PRIu32 ", bad copies %d\n",
	       uuid, p->sb.flags & VC_SUPER_CLEAN ? "true" : "false",
	       p->sb.flags & VC_SUPER_NEEDS_CHECK ? "true" : "false",
	       p->sb.next_seq, p->g.chunk_blocks, p->g.chunks,
	       p->g.first_chunk, p->super_bad);
}

static void dump_volumes(const struct pool *p)
{
	const char *comma = "";
	u32 i;

	if (json)
		printf("\"volumes\": [");
	for (i = 0; i < pool_slots(p); i++) {
		const struct vcache_slot_disk *s = pool_slot(p, i);

		if (!s->volume)
			continue;
		printf(json ? "%s\n  {\"volume\": %" PRIu32 ", \"slot\": %"
		       PRIu32 ", \"mode\": \"%s\", \"floor\": %" PRIu64
		       ", \"sectors\": %" PRIu64 ", \"name\": " :
		       "%svolume %" PRIu32 ": slot %" PRIu32 ", %s, floor %"
		       PRIu64 ", %" PRIu64 " sectors, name ",
		       json ? comma : "", le32_to_cpu(s->volume), i,
		       mode_name(le32_to_cpu(s->mode)), le64_to_cpu(s->floor),
		       le64_to_cpu(s->sectors));
		put_name(s->name);
		puts(json ? "}" : "");
		comma = ",";
	}
	if (json)
		puts("],");
}

static void dump_entries(const struct view *v)
{
	u32 i;

	if (json)
		printf(", \"entries\": [");
	for (i = 0; i < v->nr; i++) {
		const struct vcache_entry *e = &v->e[i];

		printf(json ? "%s\n    {\"block\": %" PRIu64 ", \"mask\": %u, "
		       "\"place\": %u, \"%s\": %" PRIu32 "}" :
		       "%s  block %" PRIu64 ", mask 0x%02x, place %u, %s %"
		       PRIu32 "\n", json && i ? "," : "", e->block, e->mask,
		       e->place, e->mask ? "crc" : "blocks", e->arg);
	}
	if (json)
		printf("]");
}

/* A chunk of an elastic SSD. */
static void dump_direct(const struct view *v, const char *comma)
{
	printf(json ? "%s\n  {\"chunk\": %" PRIu32 ", \"volume\": %" PRIu32
	       ", \"state\": \"vssd\", \"block\": %" PRIu32 "}" :
	       "%schunk %" PRIu32 ": volume %" PRIu32 ", vssd, block %" PRIu32 "\n",
	       comma, v->chunk, le32_to_cpu(v->direct->volume), v->block);
}

static void dump_chunks(struct pool *p)
{
	const char *comma = "";
	struct view v;
	u32 c;

	if (json)
		printf("\"chunks\": [");
	for (c = p->g.first_chunk; c < p->g.chunks; c++) {
		const struct vcache_chunk_disk *t = pool_table(p, c);

		pool_view(p, c, &v);
		if (v.direct) {
			dump_direct(&v, json ? comma : "");
			comma = ",";
		}
		if (!v.found.gen && !v.unreadable)
			continue;
		printf(json ? "%s\n  {\"chunk\": %" PRIu32 ", \"volume\": %"
		       PRIu32 ", \"tag\": %u, \"generation\": %" PRIu64
		       ", \"last\": %" PRIu64 ", \"dead\": %" PRIu64
		       ", \"clean\": %" PRIu64 ", \"state\": \"%s\", "
		       "\"revision\": %" PRIu32 ", \"count\": %" PRIu32 :
		       "%schunk %" PRIu32 ": volume %" PRIu32 ", tag %u, "
		       "generation %" PRIu64 " to %" PRIu64 ", dead %" PRIu64
		       ", clean %" PRIu64 ", %s, revision %" PRIu32 ", %" PRIu32
		       " entries", json ? comma : "", c, v.found.volume,
		       v.found.tag, v.found.gen, v.found.last,
		       le64_to_cpu(t->dead), le64_to_cpu(t->clean),
		       v.unreadable ? "unreadable" : !v.sealed ? "open" :
		       v.seal.info.flags & VC_SEAL_READS ? "reads" : "sealed",
		       v.sealed ? v.seal.info.revision : 0, v.nr);
		if (!json)
			putchar('\n');
		if (entries)
			dump_entries(&v);
		if (json)
			putchar('}');
		comma = ",";
		free(v.e);
	}
	if (json)
		puts("]}");
}

static int dump(struct pool *p, const char *path)
{
	int r = pool_open(p, path, false);

	if (!r)
		r = pool_load(p);
	if (r) {
		fprintf(stderr, "%s: %s\n", path, r == -EBADMSG ?
			"there is no superblock" : strerror(-r));
		return r == -EBADMSG || r == -ENXIO ? EXIT_DAMAGE : EXIT_USAGE;
	}
	dump_super(p);
	dump_volumes(p);
	dump_chunks(p);
	return EXIT_GOOD;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "json", no_argument, NULL, 'j' },
		{ "entries", no_argument, NULL, 'e' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	struct pool p;
	int c, status;

	while ((c = getopt_long(argc, argv, "jeh", options, NULL)) != -1) {
		switch (c) {
		case 'j':
			json = true;
			break;
		case 'e':
			entries = true;
			break;
		default:
			return usage();
		}
	}
	if (optind != argc - 1)
		return usage();
	status = dump(&p, argv[optind]);
	pool_close(&p);
	return status;
}
