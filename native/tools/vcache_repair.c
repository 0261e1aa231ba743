// SPDX-License-Identifier: GPL-2.0
/*
 * vcache-repair: restore damaged metadata from good copies and records. What cannot be
 * restored is reported and left alone: a guess could bring old data back.
 */
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pool.h"

#define COPY_BLOCKS 256

static unsigned long failures;

static int usage(void)
{
	fputs("Usage: vcache-repair --in-place DEVICE\n"
	      "       vcache-repair --output FILE DEVICE\n"
	      "Restore the damaged metadata of a cache device, or of a copy in a new FILE.\n",
	      stderr);
	return EXIT_USAGE;
}

static void say(void *ctx, const char *fmt, ...)
{
	struct pool *p = ctx;
	va_list args;

	va_start(args, fmt);
	printf("%s: ", p->path);
	vprintf(fmt, args);
	putchar('\n');
	va_end(args);
}

static void repair_copies(struct pool *p, enum vcache_meta_type type,
			  const char *what, u32 i, const void *block, int bad)
{
	if (!bad)
		return;
	if (bad < 0) {
		say(p, "LOST: %s %" PRIu32 ": no copy is valid", what, i);
		failures++;
		return;
	}
	if (vcache_meta_repair(&p->st, &p->g, type, i, block, bad)) {
		say(p, "%s %" PRIu32 ": cannot be written", what, i);
		failures++;
		return;
	}
	say(p, "%s %" PRIu32 ": copy %d restored", what, i, bad >> 1);
}

static int write_seal(struct pool *p, u32 chunk, unsigned int copy, u32 n,
		      const void *seal)
{
	return p->st.write(p, (u64)chunk * p->g.chunk_blocks +
			   vcache_seal_place(&p->g, copy), n * p->g.seal_blocks,
			   seal);
}

/* One copy of the seal is valid: restore the other one from it. */
static void repair_seal(struct pool *p, struct view *v)
{
	unsigned int copy = v->seal.bad >> 1;

	vcache_seal_finish(&p->g, v->seal.block, v->nr, &v->seal.info, copy);
	if (write_seal(p, v->chunk, copy, 1, v->seal.block)) {
		say(p, "chunk %" PRIu32 ": cannot be written", v->chunk);
		failures++;
		return;
	}
	say(p, "chunk %" PRIu32 ": copy %u of the seal restored",
	    v->chunk, copy);
}

static bool all_readable(struct pool *p, u32 chunk)
{
	u8 block[VC_BLOCK_SIZE];
	u32 at;

	for (at = 0; at < vcache_chunk_capacity(&p->g); at++) {
		if (p->st.read(p, (u64)chunk * p->g.chunk_blocks + at, 1,
			       block))
			return false;
	}
	return true;
}

/* There is no seal: make one of the record entries whose data has the right checksum. */
static void rebuild_seal(struct pool *p, struct view *v)
{
	struct vcache_log_info info = {
		.gen = v->found.gen, .seq = v->found.last,
		.volume = v->found.volume, .chunk = v->chunk,
		.tag = v->found.tag, .revision = v->seal.revision + 1 };
	u32 i;

	if (v->unreadable || !all_readable(p, v->chunk)) {
		say(p, "LOST: chunk %" PRIu32 ": not sealed, as a part of it"
		    " cannot be read", v->chunk);
		failures++;
		return;
	}
	memset(p->work, 0, VC_SEAL_COPIES * vcache_seal_bytes(&p->g));
	for (i = 0; i < v->nr; i++)
		vcache_seal_put(p->work, i, &v->e[i]);
	vcache_seal_copies(&p->g, p->work, v->nr, &info);
	if (write_seal(p, v->chunk, 0, VC_SEAL_COPIES, p->work)) {
		say(p, "chunk %" PRIu32 ": cannot be written", v->chunk);
		failures++;
		return;
	}
	say(p, "chunk %" PRIu32 ": sealed from its records: %" PRIu32
	    " entries", v->chunk, v->nr);
	if (v->bad_data)
		say(p, "LOST: chunk %" PRIu32 ": data of %" PRIu32 " entries",
		    v->chunk, v->bad_data);
	if (p->sb.flags & VC_SUPER_CLEAN)
		say(p, "LOST: chunk %" PRIu32 ": entries removed from its seal"
		    " are valid again; volume %" PRIu32 " may read old data",
		    v->chunk, v->found.volume);
}

static void repair_chunks(struct pool *p)
{
	struct view v;
	u32 c;

	for (c = p->g.first_chunk; c < p->g.chunks; c++) {
		pool_view(p, c, &v);
		if (v.found.gen && v.sealed && v.seal.bad)
			repair_seal(p, &v);
		else if (v.found.gen && !v.sealed)
			rebuild_seal(p, &v);
		free(v.e);
	}
}

/* Without the table it is not known which chunks are dead: leave them alone. */
static bool table_known(const struct pool *p)
{
	u32 i;

	for (i = 0; i < p->g.table_blocks; i++) {
		if (p->table_bad[i] < 0)
			return false;
	}
	return true;
}

static void repair(struct pool *p)
{
	u32 i;

	repair_copies(p, VC_META_SUPER, "superblock", 0, p->super,
		      p->super_bad);
	for (i = 0; i < p->g.slot_blocks; i++)
		repair_copies(p, VC_META_SLOTS, "slot block", i,
			      p->slots + (size_t)i * VC_BLOCK_SIZE,
			      p->slots_bad[i]);
	for (i = 0; i < p->g.table_blocks; i++)
		repair_copies(p, VC_META_TABLE, "table block", i,
			      p->table + (size_t)i * VC_BLOCK_SIZE,
			      p->table_bad[i]);
	if (table_known(p))
		repair_chunks(p);
}

/* Check again. Return: the exit status. */
static int finish(const char *path)
{
	struct pool p;
	int status = EXIT_DAMAGE;

	if (pool_open(&p, path, true) || pool_load(&p))
		goto out;
	if (pool_check(&p, true, say, &p) || failures)
		goto out;
	status = EXIT_GOOD;
	if (!(p.sb.flags & VC_SUPER_NEEDS_CHECK))
		goto out;
	p.sb.flags &= ~VC_SUPER_NEEDS_CHECK;
	if (vcache_super_save(&p.st, &p.g, &p.sb, p.super)) {
		say(&p, "superblock: cannot be written");
		status = EXIT_DAMAGE;
	} else {
		say(&p, "superblock: the damage flag is cleared");
	}
out:
	pool_close(&p);
	return status;
}

static int repair_path(const char *path)
{
	struct pool p;
	int r = pool_open(&p, path, true);

	if (r) {
		fprintf(stderr, "%s: %s\n", path, strerror(-r));
		pool_close(&p);
		return EXIT_USAGE;
	}
	r = pool_load(&p);
	if (r) {
		say(&p, "LOST: %s", r == -EBADMSG ? "no superblock is valid" :
		    strerror(-r));
		pool_close(&p);
		return EXIT_DAMAGE;
	}
	repair(&p);
	pool_close(&p);
	return finish(path);
}

/* Copy a device to a new file; zeroes become holes. */
static int copy(const char *from, const char *to)
{
	static u8 buf[COPY_BLOCKS * VC_BLOCK_SIZE], zeroes[sizeof(buf)];
	struct pool in, out = { 0 };
	u64 at;
	u32 n;
	int r = pool_open(&in, from, false);

	out.fd = r ? -1 : open(to, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (!r && (out.fd < 0 ||
		   ftruncate(out.fd, in.blocks * VC_BLOCK_SIZE)))
		r = -errno;
	for (at = 0; !r && at < in.blocks; at += n) {
		n = in.blocks - at < COPY_BLOCKS ? in.blocks - at :
						   COPY_BLOCKS;
		if (in.st.read(&in, at, n, buf)) {
			/* Read block by block. A lost block becomes a hole: zero is not valid. */
			n = 1;
			if (in.st.read(&in, at, n, buf)) {
				printf("%s: LOST: block %" PRIu64 "\n", from,
				       at);
				continue;
			}
		}
		if (memcmp(buf, zeroes, (size_t)n * VC_BLOCK_SIZE) &&
		    pwrite(out.fd, buf, (size_t)n * VC_BLOCK_SIZE,
			   at * VC_BLOCK_SIZE) != n * (ssize_t)VC_BLOCK_SIZE)
			r = -EIO;
	}
	if (r)
		fprintf(stderr, "%s to %s: %s\n", from, to, strerror(-r));
	pool_close(&in);
	pool_close(&out);
	return r;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "in-place", no_argument, NULL, 'i' },
		{ "output", required_argument, NULL, 'o' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	const char *output = NULL;
	bool in_place = false;
	int c;

	while ((c = getopt_long(argc, argv, "io:h", options, NULL)) != -1) {
		switch (c) {
		case 'i':
			in_place = true;
			break;
		case 'o':
			output = optarg;
			break;
		default:
			return usage();
		}
	}
	if (optind != argc - 1 || in_place == !!output)
		return usage();
	if (output && copy(argv[optind], output))
		return EXIT_USAGE;
	return repair_path(output ? output : argv[optind]);
}
