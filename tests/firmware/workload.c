// SPDX-License-Identifier: Apache-2.0
#include "workload.h"

#define TAGS 5
#define MOST 8		/* blocks of a command */

/* Choose a place: half of the commands hit an eighth of the device. */
static uint64_t pick(struct device *d, uint64_t *seed)
{
	uint64_t blocks = vs_blocks(d->ssd);

	if (check_below(seed, 2))
		blocks = blocks / 8 + 1;
	return check_below(seed, (unsigned int)blocks);
}

/*
 * The next command starts when this one has completed, or earlier, so that operations of
 * both are in flight.
 */
static void advance(struct device *d, struct oracle *o, uint64_t *seed,
		    vs_time done)
{
	if (check_below(seed, 2))
		d->now = done;
	else
		d->now += check_below(seed, 400000);
	nand_tick(d->nand, d->now);
	oracle_tick(o, d->now);
}

static struct vs_result do_write(struct device *d, struct oracle *o,
				 uint64_t *seed, bool fua)
{
	static uint8_t data[MOST * VS_BLOCK];
	uint64_t block = pick(d, seed);
	uint32_t tag = check_below(seed, TAGS), i;
	uint32_t count = 1 + check_below(seed, check_below(seed, 4) ? 2 : MOST);
	uint32_t handle = 0;
	struct vs_result r;

	if (count > vs_blocks(d->ssd) - block)
		count = 1;
	for (i = 0; i < count; i++)
		oracle_write(o, block + i, tag, data + i * VS_BLOCK);
	if (d->c.handles) {
		handle = check_below(seed, d->c.handles);
		if (check_below(seed, 16) == 0)
			CHECK(vs_unit_next(d->ssd, handle) == VS_OK);
	}
	r = vs_write_placed(d->ssd, d->now, tag, handle, block, count, data,
			    fua);
	if (fua && r.status == VS_OK)
		oracle_flush(o, r.done, true, 0, block, count);
	return r;
}

static struct vs_result do_trim(struct device *d, struct oracle *o,
				uint64_t *seed)
{
	uint64_t blocks = vs_blocks(d->ssd), first = pick(d, seed), i;
	uint64_t count = 1 + check_below(seed, MOST);
	uint32_t tag = check_below(seed, TAGS);

	if (check_below(seed, 40) == 0) {
		first = 0;
		count = blocks;
	}
	if (count > blocks - first)
		count = blocks - first;
	for (i = 0; i < count; i++)
		oracle_trim(o, first + i, tag);
	return vs_trim(d->ssd, d->now, tag, first, count);
}

static struct vs_result do_flush(struct device *d, struct oracle *o,
				 uint64_t *seed)
{
	uint64_t blocks = vs_blocks(d->ssd), first = 0, count = blocks;
	uint32_t tag = check_below(seed, TAGS);
	struct vs_result r;

	if (check_below(seed, 4)) {
		r = vs_flush_tag(d->ssd, d->now, tag);
		if (r.status == VS_OK)
			oracle_flush(o, r.done, false, tag, 0, blocks);
		return r;
	}
	if (check_below(seed, 2)) {
		first = pick(d, seed);
		count = 1 + check_below(seed, (unsigned int)(blocks - first));
	}
	r = vs_flush(d->ssd, d->now, first, count);
	if (r.status == VS_OK)
		oracle_flush(o, r.done, true, 0, first, count);
	return r;
}

static struct vs_result do_read(struct device *d, struct oracle *o,
				uint64_t *seed)
{
	static uint8_t data[MOST * VS_BLOCK];
	uint64_t block = pick(d, seed);
	uint32_t count = 1 + check_below(seed, MOST), i;
	struct vs_result r;

	if (count > vs_blocks(d->ssd) - block)
		count = 1;
	r = vs_read(d->ssd, d->now, block, count, data);
	for (i = 0; r.status == VS_OK && i < count; i++)
		oracle_check_read(o, block + i, data + i * VS_BLOCK);
	return r;
}

enum vs_status workload_run(struct device *d, struct oracle *o, uint64_t *seed,
			    unsigned int steps)
{
	while (steps--) {
		unsigned int what = check_below(seed, 100);
		struct vs_result r;

		if (what < 60)
			r = do_write(d, o, seed, false);
		else if (what < 66)
			r = do_write(d, o, seed, true);
		else if (what < 72)
			r = do_trim(d, o, seed);
		else if (what < 88)
			r = do_flush(d, o, seed);
		else
			r = do_read(d, o, seed);
		if (r.status == VS_EPOWER || r.status == VS_EREADONLY)
			return r.status;
		CHECK(r.status == VS_OK);
		CHECK(r.done >= d->now);
		advance(d, o, seed, r.done);
	}
	return VS_OK;
}

enum vs_status workload_fill(struct device *d, struct oracle *o)
{
	static uint8_t data[VS_BLOCK];
	uint64_t i;

	for (i = 0; i < vs_blocks(d->ssd); i++) {
		struct vs_result r;

		oracle_write(o, i, i % TAGS, data);
		r = vs_write(d->ssd, d->now, i % TAGS, i, 1, data, false);
		if (r.status == VS_EPOWER || r.status == VS_EREADONLY)
			return r.status;
		CHECK(r.status == VS_OK);
		d->now = r.done;
		nand_tick(d->nand, d->now);
		oracle_tick(o, d->now);
	}
	return VS_OK;
}
