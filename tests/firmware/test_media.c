// SPDX-License-Identifier: Apache-2.0
/*
 * Unreadable pages: test_media idle|cut SHAPE PERSONALITY SEED STRIDE [POINT [PAGE]]
 *
 * One short run. At every STRIDE-th point of it, each programmed page in turn is made
 * unreadable, and the device is mounted: it may report that data is lost, of that page
 * only, but must not return an older state.
 *
 * idle: the points are between commands, when all operations are complete
 * cut: the points are programs and erases during which the power is cut
 */
#include <string.h>

#include "places.h"
#include "workload.h"
#include "../../firmware/core/internal.h"
#include "../../firmware/nand/array.h"

#define STEPS 60
#define LIVE_STEPS 12
/* The device is used further after every this many trials. */
#define LIVE_EVERY 32
#define PAUSE 1000000000u

/* A block before a trial changed it. */
struct saved {
	struct vs_page at;
	struct block_state state;
	uint8_t *pages;
};

static struct saved *saved;
static size_t saved_count, saved_room;

/**
 * struct job - arguments and results
 * @point: only this one, if not 0
 * @page: only this page address, if not UINT32_MAX
 * @map: hash of the map if all pages can be read
 * @silent: blocks that had an older state
 * @refused: devices that could not be mounted
 * @lost: blocks reported as lost, which is allowed
 * @exposed: blocks that had an older state, with one copy only, see vs_config
 * @wrong: blocks reported as lost that were not on the page
 */
struct job {
	struct vs_config c;
	uint64_t seed, stride, point;
	uint32_t page, map;
	uint64_t trials, silent, refused, lost, wrong, exposed;
};

static void save(struct nand *n, struct vs_page at)
{
	size_t i;

	at.page = 0;
	for (i = 0; i < saved_count; i++) {
		if (nand_block_index(n, saved[i].at) == nand_block_index(n, at))
			return;
	}
	if (saved_count == saved_room) {
		saved_room = saved_room ? 2 * saved_room : 16;
		saved = realloc(saved, saved_room * sizeof(*saved));
		CHECK(saved);
	}
	saved[saved_count] = (struct saved){
		at, n->block[nand_block_index(n, at)],
		nand_alloc(nand_saved_size(n)),
	};
	nand_save_block(n, at, saved[saved_count++].pages);
}

static void restore(struct nand *n)
{
	while (saved_count) {
		struct saved *b = &saved[--saved_count];

		nand_restore_block(n, b->at, b->pages);
		n->block[nand_block_index(n, b->at)] = b->state;
		nand_free(b->pages);
	}
}

static enum vs_status save_read(void *ctx, vs_time now, struct vs_page at,
				void *data, void *oob, vs_time *done)
{
	return nand_ops.read(ctx, now, at, data, oob, done);
}

static enum vs_status save_program(void *ctx, vs_time now, struct vs_page at,
				   const void *data, const void *oob,
				   vs_time *done)
{
	save(ctx, at);
	return nand_ops.program(ctx, now, at, data, oob, done);
}

static enum vs_status save_erase(void *ctx, vs_time now, struct vs_page at,
				 vs_time *done)
{
	save(ctx, at);
	return nand_ops.erase(ctx, now, at, done);
}

static bool save_is_bad(void *ctx, struct vs_page at)
{
	return nand_ops.is_bad(ctx, at);
}

static enum vs_status save_mark_bad(void *ctx, vs_time now, struct vs_page at,
				    vs_time *done)
{
	save(ctx, at);
	return nand_ops.mark_bad(ctx, now, at, done);
}

static const struct vs_nand_ops save_ops = {
	save_read, save_program, save_erase, save_is_bad, save_mark_bad,
};

/**
 * struct page - what is on the page that becomes unreadable
 * @type: enum vs_page_type, or 0
 * @index: of a map page
 * @count: its entries, or the blocks of a data page
 * @lpn: blocks of a data page
 * @exposed: it is durable by itself, there is one copy, and nothing after it in its block
 */
struct page {
	uint32_t type, index, count;
	uint32_t lpn[32];
	bool exposed;
};

static struct page look_at(const struct device *d, struct vs_page at)
{
	const struct vs_oob *oob = (void *)nand_oob(d->nand, at);
	const struct vs_meta *meta = (void *)nand_data(d->nand, at);
	struct page page = { .type = oob->type };

	if (oob->magic != VS_MAGIC)
		return (struct page){ 0 };
	page.index = meta->index;
	page.count = meta->count;
	if (oob->type != VS_PAGE_DATA)
		return page;
	for (page.count = 0; page.count < d->c.geometry.page_size / VS_BLOCK;
	     page.count++)
		page.lpn[page.count] = oob->slot[page.count].lpn;
	page.exposed = oob->flags & VS_OOB_SYNC && d->c.sync_copies == 1;
	while (page.exposed && ++at.page < d->c.geometry.pages)
		page.exposed = d->nand->state[nand_page_index(d->nand, at)] !=
			       PAGE_DONE;
	return page;
}

/* May the loss of the page lose a block? */
static bool on_page(const struct page *page, uint32_t lpn)
{
	uint32_t i;

	if (page->type == VS_PAGE_MAP)
		return lpn / page->count == page->index;
	for (i = 0; page->type == VS_PAGE_DATA && i < page->count; i++) {
		if (page->lpn[i] == lpn)
			return true;
	}
	return false;
}

/* Use the device, and keep all data over a shutdown. */
static void live_on(struct device *d, const struct oracle *o, uint64_t seed)
{
	struct oracle *copy = oracle_copy(o);
	struct vs_result r;

	oracle_check_recovered(copy, d);
	CHECK(workload_run(d, copy, &seed, LIVE_STEPS) == VS_OK);
	r = vs_flush(d->ssd, d->now, 0, vs_blocks(d->ssd));
	CHECK(r.status == VS_OK);
	d->now = r.done;
	r = vs_mount(&d->ssd, d->mem, &d->c, &save_ops, d->nand, d->now);
	CHECK(r.status == VS_OK);
	d->now = r.done;
	oracle_check_all(copy, d);
	check_banks(d->ssd);
	oracle_free(copy);
}

/* With the same map as without damage, only blocks of the page can differ. */
static void compare(struct job *job, struct device *d, const struct oracle *o,
		    const struct page *page)
{
	static uint8_t data[VS_BLOCK];
	bool same = vs_map_hash(d->ssd) == job->map;
	uint64_t silent = job->silent, lost = job->lost;
	uint32_t i;

	for (i = 0; i < vs_blocks(d->ssd); i++) {
		bool there = on_page(page, i), old;
		struct vs_result r;

		if (same && !there)
			continue;
		r = vs_read(d->ssd, d->now, i, 1, data);
		CHECK(r.status == VS_OK || r.status == VS_EMEDIA);
		job->lost += r.status == VS_EMEDIA && there;
		job->wrong += r.status == VS_EMEDIA && !there;
		old = r.status == VS_OK && !oracle_allows(o, i, data);
		job->exposed += old && there && page->exposed;
		job->silent += old && !(there && page->exposed);
	}
	if (job->silent == silent && !page->exposed && job->lost == lost && !job->wrong &&
	    job->trials % LIVE_EVERY == 0)
		live_on(d, o, job->seed + job->trials);
}

static void trial(struct job *job, const struct device *from,
		  const struct oracle *o, struct vs_page at)
{
	struct device d = *from;
	uint8_t *state = &d.nand->state[nand_page_index(d.nand, at)];
	struct page page = look_at(from, at);
	uint8_t before = *state;
	struct vs_result r;

	nand_damage(d.nand, at);
	/* A trial may erase the page; then its old state comes back first. */
	r = vs_mount(&d.ssd, d.mem, &d.c, &save_ops, d.nand, d.now);
	job->trials++;
	if (r.status == VS_OK) {
		d.now = r.done;
		compare(job, &d, o, &page);
	} else {
		job->refused++;
	}
	restore(d.nand);
	*state = before;
	nand_power_on(d.nand);
}

/* Without damage, all blocks have an allowed content. */
static void no_page(struct job *job, const struct device *from,
		    const struct oracle *o)
{
	static uint8_t data[VS_BLOCK];
	struct device d = *from;
	struct vs_result r;
	uint32_t i;

	r = vs_mount(&d.ssd, d.mem, &d.c, &save_ops, d.nand, d.now);
	CHECK(r.status == VS_OK);
	for (i = 0; i < vs_blocks(d.ssd); i++) {
		CHECK(vs_read(d.ssd, r.done, i, 1, data).status == VS_OK);
		CHECK(oracle_allows(o, i, data));
	}
	job->map = vs_map_hash(d.ssd);
	restore(d.nand);
	nand_power_on(d.nand);
}

/* Make each programmed page unreadable in turn. */
static void all_pages(struct job *job, const struct device *from,
		      const struct oracle *o, uint64_t point)
{
	const struct vs_geometry *g = &from->c.geometry;
	uint32_t pages = g->channels * g->ways * g->blocks * g->pages, i;
	struct device d = *from;
	uint64_t bad = job->silent + job->refused + job->wrong;

	d.mem = malloc(vs_size_needed(&d.c));
	CHECK(d.mem);
	no_page(job, &d, o);
	for (i = 0; i < pages; i++) {
		struct vs_page at = {
			i / g->pages / g->blocks, i / g->pages % g->blocks,
			i % g->pages,
		};

		if (d.nand->state[i] == PAGE_ERASED ||
		    (job->page != UINT32_MAX && job->page != i))
			continue;
		trial(job, &d, o, at);
		if (job->silent + job->refused + job->wrong != bad)
			fprintf(stderr, "point %llu page %u: %llu silent, %llu refused, %llu wrong\n",
				(unsigned long long)point, i,
				(unsigned long long)job->silent,
				(unsigned long long)job->refused,
				(unsigned long long)job->wrong);
		bad = job->silent + job->refused + job->wrong;
	}
	free(d.mem);
}

static struct oracle *begin(struct device *d, uint64_t seed)
{
	struct oracle *o = oracle_new(vs_blocks(d->ssd));
	struct vs_result r;

	if (seed % 2)
		return o;
	CHECK(workload_fill(d, o) == VS_OK);
	r = vs_flush(d->ssd, d->now, 0, vs_blocks(d->ssd));
	CHECK(r.status == VS_OK);
	d->now = r.done;
	oracle_flush(o, d->now, true, 0, 0, vs_blocks(d->ssd));
	oracle_tick(o, d->now);
	return o;
}

static void sweep_idle(struct job *job)
{
	struct device d = device_new(job->c, job->seed);
	uint64_t seed = job->seed * 2 + 1, point;
	struct oracle *o;

	device_format(&d);
	o = begin(&d, job->seed);
	for (point = 1; point <= STEPS; point++) {
		CHECK(workload_run(&d, o, &seed, 1) == VS_OK);
		d.now += PAUSE;
		nand_tick(d.nand, d.now);
		oracle_tick(o, d.now);
		if (job->point ? job->point == point :
				 point % job->stride == 0)
			all_pages(job, &d, o, point);
	}
	oracle_free(o);
	device_free(&d);
}

static bool cut_at(struct job *job, const struct device *fresh,
		   const struct oracle *start, uint64_t cut)
{
	struct device d = device_copy(fresh);
	struct oracle *o = oracle_copy(start);
	uint64_t seed = job->seed * 2 + 1;
	enum vs_status status;

	CHECK(device_mount(&d) == VS_OK);
	nand_cut(d.nand, cut, job->seed * 1000 + cut);
	status = workload_run(&d, o, &seed, STEPS);
	if (status == VS_EPOWER) {
		oracle_cut(o, nand_cut_time(d.nand));
		nand_power_on(d.nand);
		all_pages(job, &d, o, cut);
	}
	oracle_free(o);
	device_free(&d);
	return status == VS_EPOWER;
}

static void sweep_cuts(struct job *job)
{
	struct device fresh = device_new(job->c, job->seed);
	uint64_t cut = job->point ? job->point : 1;
	struct oracle *start;

	device_format(&fresh);
	start = begin(&fresh, job->seed);
	while (cut_at(job, &fresh, start, cut) && !job->point)
		cut += job->stride;
	oracle_free(start);
	device_free(&fresh);
}

int main(int argc, char **argv)
{
	struct job job = { .page = UINT32_MAX };

	CHECK(argc >= 6 && argc <= 8);
	job.c = shape((unsigned int)atoi(argv[2]),
		      (enum vs_personality)atoi(argv[3]));
	job.seed = strtoull(argv[4], NULL, 0);
	check_seed = job.seed;
	job.stride = strtoull(argv[5], NULL, 0);
	job.point = argc > 6 ? strtoull(argv[6], NULL, 0) : 0;
	job.page = argc > 7 ? (uint32_t)strtoul(argv[7], NULL, 0) : UINT32_MAX;
	if (!strcmp(argv[1], "idle"))
		sweep_idle(&job);
	else
		sweep_cuts(&job);
	free(saved);
	CHECK(job.trials > 0);
	printf("%llu trials, %llu silent, %llu refused, %llu wrong, %llu lost, %llu exposed\n",
	       (unsigned long long)job.trials, (unsigned long long)job.silent,
	       (unsigned long long)job.refused, (unsigned long long)job.wrong,
	       (unsigned long long)job.lost, (unsigned long long)job.exposed);
	CHECK(!job.silent && !job.refused && !job.wrong);
	return 0;
}
