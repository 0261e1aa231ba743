// SPDX-License-Identifier: Apache-2.0
/* Placement handles: what they keep apart, and their reclaim units. */
#include "commands.h"
#include "places.h"
#include "../../firmware/core/internal.h"

#define SHAPE 14	/* the one with handles */

static void write_placed(struct device *d, uint32_t handle, uint64_t block,
			 bool fua)
{
	struct vs_result r = vs_write_placed(d->ssd, d->now, 1, handle, block,
					     1, block_data, fua);

	CHECK(r.status == VS_OK);
	d->now = r.done;
}

/* Blocks of two handles are never in one erase block, however they leave the buffer. */
static void test_apart(bool fua)
{
	struct device d = device_new(shape(SHAPE, VS_TAGGED), 1);
	uint32_t handles = d.c.handles, i, n;
	uint8_t owner[256] = { 0 };

	device_format(&d);
	n = (uint32_t)vs_blocks(d.ssd) / 2;
	for (i = 0; i < n; i++)
		write_placed(&d, i % handles, i, fua && i % 5 == 0);
	CHECK(vs_flush(d.ssd, d.now, 0, n).status == VS_OK);
	CHECK(d.ssd->blocks_all <= sizeof(owner));
	for (i = 0; i < n; i++) {
		uint32_t block = vs_block_of(d.ssd, d.ssd->map[i]);

		CHECK(!owner[block] || owner[block] == i % handles + 1);
		owner[block] = (uint8_t)(i % handles + 1);
	}
	device_free(&d);
}

/* A block belongs to the handle that wrote it last. */
static void test_overwritten_in_the_buffer(void)
{
	struct device d = device_new(shape(SHAPE, VS_TAGGED), 1);
	uint64_t unit;

	device_format(&d);
	unit = vs_unit_blocks(d.ssd);
	write_placed(&d, 0, 5, false);
	write_placed(&d, 1, 5, false);
	flush_tag(&d, 1);
	CHECK(vs_unit_left(d.ssd, 0) == unit && vs_unit_left(d.ssd, 1) < unit);
	device_free(&d);
}

static void test_units(void)
{
	struct device d = device_new(shape(SHAPE, VS_TAGGED), 1);
	const struct vs_geometry *g = &d.c.geometry;
	uint64_t unit, i;

	device_format(&d);
	unit = vs_unit_blocks(d.ssd);
	CHECK(vs_erase_blocks(d.ssd) == g->pages * g->page_size / VS_BLOCK);
	CHECK(unit == g->channels * g->ways * vs_erase_blocks(d.ssd));
	for (i = 0; i < 3; i++)
		CHECK(vs_unit_left(d.ssd, (uint32_t)i) == unit);
	write_placed(&d, 1, 0, true);
	CHECK(vs_unit_left(d.ssd, 0) == unit && vs_unit_left(d.ssd, 2) == unit);
	CHECK(vs_unit_left(d.ssd, 1) < unit);
	CHECK(vs_unit_next(d.ssd, 1) == VS_OK);
	CHECK(vs_unit_left(d.ssd, 1) == unit);
	/* What was written stays. */
	CHECK(vs_read(d.ssd, d.now, 0, 1, block_data).status == VS_OK);
	check_banks(d.ssd);
	CHECK(vs_unit_next(d.ssd, 3) == VS_EINVAL && !vs_unit_left(d.ssd, 3));
	CHECK(vs_write_placed(d.ssd, d.now, 1, 3, 0, 1, block_data,
			      false).status == VS_EINVAL);
	device_free(&d);
}

/* New units as often as the host likes, on a full device. */
static void test_many_units(void)
{
	struct device d = device_new(shape(SHAPE, VS_TAGGED), 1);
	uint64_t i, n;

	device_format(&d);
	n = vs_blocks(d.ssd);
	for (i = 0; i < 4 * n; i++) {
		write_placed(&d, i % 3, i * 7 % n, false);
		CHECK(vs_unit_next(d.ssd, i % 3) == VS_OK);
	}
	CHECK(vs_flush(d.ssd, d.now, 0, n).status == VS_OK);
	check_banks(d.ssd);
	device_free(&d);
}

/* Their number is a property of the device. */
static void test_numbers(void)
{
	struct vs_config c = shape(SHAPE, VS_TAGGED), other = c;
	struct device d = device_new(c, 1);

	device_format(&d);
	d.c.handles--;
	CHECK(device_mount(&d) == VS_EMEDIA);
	d.c.handles++;
	CHECK(device_mount(&d) == VS_OK);
	other.handles = VS_HANDLES + 1;
	CHECK(!vs_capacity(&other));
	other.handles = 1;
	CHECK(vs_capacity(&other) > vs_capacity(&c));
	other.mapping = VS_MAP_FAST;
	CHECK(vs_capacity(&other));
	other.handles = 2;
	CHECK(!vs_capacity(&other));
	device_free(&d);
}

int main(void)
{
	test_apart(false);
	test_apart(true);
	test_overwritten_in_the_buffer();
	test_units();
	test_many_units();
	test_numbers();
	return 0;
}
