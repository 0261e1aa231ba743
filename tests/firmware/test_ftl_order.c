// SPDX-License-Identifier: Apache-2.0
/*
 * The order of programs on different banks.
 *
 * Commands overlap, so their programs do too. When a page is programmed that relies on
 * other pages, those must be complete: a power cut could take one of them and leave the
 * page that relies on it. Programs on one bank follow one another anyway.
 */
#include <string.h>

#include "commands.h"
#include "workload.h"
#include "../../firmware/core/internal.h"
#include "../../firmware/core/pairing.h"

#define STEPS 400
#define MOST_PROGRAMS 16384

struct program {
	struct vs_page at;
	uint64_t seq, checkpoint;
	uint32_t type;
	bool copy;
	vs_time done;
};

static struct program program[MOST_PROGRAMS];
static uint32_t programs;
static const struct vs_ssd *ssd;
/* How often each rule applied to a page of another bank. */
static unsigned int told, waited_for_root, waited_for_map, named, lines;

static bool elsewhere(const struct program *p, struct vs_page at)
{
	return p->at.bank != at.bank;
}

/* A page tells of the one before it in its block: all copies of that are there. */
static void check_told(struct vs_page at, const struct vs_oob *oob, vs_time now)
{
	uint32_t i;

	for (i = 0; oob->before && i < programs; i++) {
		if (program[i].seq != oob->before || !elsewhere(&program[i], at))
			continue;
		CHECK(program[i].done <= now);
		told++;
	}
}

/* All pages of a type that belong to a checkpoint are there. */
static void check_there(uint32_t type, uint64_t checkpoint, struct vs_page at,
			vs_time now, unsigned int *count)
{
	uint32_t i;

	for (i = 0; i < programs; i++) {
		if (program[i].type != type || !elsewhere(&program[i], at) ||
		    program[i].checkpoint != checkpoint)
			continue;
		CHECK(program[i].done <= now);
		(*count)++;
	}
}

/* The word line of a page is not being programmed further: that could destroy the page. */
static void check_line(struct vs_page data, struct vs_page at, vs_time now)
{
	uint32_t pages = ssd->c.geometry.pages, i;

	if (!ssd->c.geometry.paired || data.bank == at.bank)
		return;
	for (i = 0; i < programs; i++) {
		struct vs_page p = program[i].at;

		if (p.bank != data.bank || p.block != data.block ||
		    vs_pair_of_msb(pages, p.page) != data.page)
			continue;
		CHECK(program[i].done <= now);
		lines++;
	}
}

/*
 * The data that a log names is there. What has been replaced since is not needed, and may
 * have been programmed again.
 */
static void check_named(struct vs_page at, const struct vs_meta *meta, vs_time now)
{
	const struct vs_log_entry *entry = (const void *)(meta + 1);
	uint32_t i, k;

	for (k = 0; k < meta->count; k++) {
		struct vs_page to;

		if (entry[k].slot & VS_TRIM ||
		    ssd->map[entry[k].lpn] != entry[k].slot)
			continue;
		to = vs_place(ssd, entry[k].slot / ssd->slots);
		for (i = programs; i-- > 0;) {
			if (!memcmp(&program[i].at, &to, sizeof(to)))
				break;
		}
		CHECK(i < programs);
		if (!elsewhere(&program[i], at))
			continue;
		CHECK(program[i].done <= now);
		named++;
		check_line(to, at, now);
	}
}

static enum vs_status program_checked(void *ctx, vs_time now, struct vs_page at,
				      const void *data, const void *spare,
				      vs_time *done)
{
	const struct vs_oob *oob = spare;
	const struct vs_meta *meta = data;
	enum vs_status status;

	check_told(at, oob, now);
	if (oob->type == VS_PAGE_LOG) {
		check_there(VS_PAGE_ROOT, meta->checkpoint, at, now,
			    &waited_for_root);
		check_named(at, meta, now);
	} else if (oob->type == VS_PAGE_ROOT) {
		check_there(VS_PAGE_MAP, meta->checkpoint, at, now,
			    &waited_for_map);
	}
	status = nand_ops.program(ctx, now, at, data, spare, done);
	CHECK(status == VS_OK && programs < MOST_PROGRAMS);
	program[programs++] = (struct program){
		at, oob->seq, oob->type == VS_PAGE_DATA ? 0 : meta->checkpoint,
		oob->type, (oob->flags & VS_OOB_COPY) != 0, *done,
	};
	return status;
}

static void test_order(struct vs_config c, uint64_t seed)
{
	struct vs_nand_ops ops = nand_ops;
	struct device d = device_new(c, seed);
	struct oracle *o;

	programs = 0;
	device_format(&d);
	o = oracle_new(vs_blocks(d.ssd));
	ops.program = program_checked;
	d.ssd->ops = &ops;
	ssd = d.ssd;
	CHECK(workload_run(&d, o, &seed, STEPS) == VS_OK);
	oracle_free(o);
	device_free(&d);
}

/* A flush whose pages need no log is complete when both copies of them are. */
static void test_copies(struct vs_config c, uint64_t seed)
{
	struct vs_nand_ops ops = nand_ops;
	struct device d = device_new(c, seed);
	uint32_t copies = 0, step, i;

	programs = 0;
	device_format(&d);
	ops.program = program_checked;
	d.ssd->ops = &ops;
	ssd = d.ssd;
	for (step = 0; step < STEPS; step++) {
		/* The second copy may have to wait for another tag's write. */
		write_one(&d, 1 + step % 3, check_below(&seed, (unsigned int)
							vs_blocks(d.ssd)));
		if (check_below(&seed, 3))
			continue;
		i = programs;
		flush_tag(&d, 1 + step % 3);
		for (; i < programs; i++) {
			CHECK(!program[i].copy || program[i].done <= d.now);
			copies += program[i].copy;
		}
	}
	CHECK(copies);
	device_free(&d);
}

int main(int argc, char **argv)
{
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
	unsigned int i;

	check_seed = seed;
	for (i = 0; i < SHAPES; i++)
		test_order(shape(i, VS_TAGGED), seed * 4 + i % 4);
	for (i = 0; i < SHAPES; i++) {
		if (shape(i, VS_TAGGED).sync_copies == 2)
			test_copies(shape(i, VS_TAGGED), seed);
	}
	printf("told of %u pages; waited for %u pages of roots, %u of maps, %u of data, %u of word lines\n",
	       told, waited_for_root, waited_for_map, named, lines);
	CHECK(told && waited_for_root && waited_for_map && named && lines);
	return 0;
}
