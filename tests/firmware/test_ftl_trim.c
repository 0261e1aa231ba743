// SPDX-License-Identifier: Apache-2.0
/* TRIMs: whose flushes cover them, what they cost, and what they keep from being erased. */
#include "commands.h"
#include "places.h"
#include "../../firmware/core/internal.h"

/* Has a block the content that write_one() gave it as block @number - 1? 0: none. */
static bool is_number(struct device *d, uint64_t block, uint64_t number)
{
	CHECK(vs_read(d->ssd, d->now, block, 1, block_data).status == VS_OK);
	return block_data[0] == (uint8_t)number;
}

static void trim(struct device *d, uint32_t tag, uint64_t block, uint64_t count)
{
	CHECK(vs_trim(d->ssd, d->now, tag, block, count).status == VS_OK);
}

/* A TRIM belongs to its tag, and is one change, however long it is. */
static void test_trim_of_a_tag(unsigned int which)
{
	struct device d = device_new(shape(which, VS_TAGGED), 1);
	uint64_t n, i, checkpoints;
	struct vs_stats s;

	device_format(&d);
	n = vs_blocks(d.ssd);
	for (i = 0; i < n; i++)
		write_one(&d, 1, i);
	CHECK(vs_flush(d.ssd, d.now, 0, n).status == VS_OK);
	CHECK(device_mount(&d) == VS_OK);
	vs_get_stats(d.ssd, &s);
	checkpoints = s.checkpoints;
	trim(&d, 1, n / 2, n - n / 2);
	CHECK(tag_stats(&d, 1).unlogged == 1);
	/* Flushes of others neither program it nor make it durable. */
	write_one(&d, 2, 0);
	flush_tag(&d, 2);
	CHECK(tag_stats(&d, 1).unlogged == 1 && !tag_stats(&d, 1).log_pages);
	vs_get_stats(d.ssd, &s);
	CHECK(s.checkpoints == checkpoints);
	CHECK(device_mount(&d) == VS_OK);
	CHECK(is_number(&d, n - 1, n) && is_number(&d, 0, 1));
	/* Its own flush does. */
	trim(&d, 1, n / 2, n - n / 2);
	flush_tag(&d, 1);
	CHECK(tag_stats(&d, 1).unlogged == 0 && tag_stats(&d, 1).log_pages == 1);
	CHECK(device_mount(&d) == VS_OK);
	for (i = n / 2; i < n; i++)
		CHECK(is_number(&d, i, 0));
	CHECK(is_number(&d, n / 2 - 1, n / 2));
	device_free(&d);
}

/* What another tag has in the buffer is covered by the flushes of both. */
static void test_trim_of_another_tag(unsigned int by)
{
	struct device d = device_new(shape(1, VS_TAGGED), 1);

	device_format(&d);
	write_one(&d, 1, 1);
	write_one(&d, 1, 2);
	write_one(&d, 1, 3);
	flush_tag(&d, 1);
	write_one(&d, 2, 2);
	trim(&d, 1, 1, 3);
	flush_tag(&d, by);
	CHECK(device_mount(&d) == VS_OK);
	CHECK(is_number(&d, 1, by == 1 ? 0 : 2));
	CHECK(is_number(&d, 2, 0));
	CHECK(is_number(&d, 3, by == 1 ? 0 : 4));
	device_free(&d);
}

/* Blocks that a TRIM has emptied are not free before its tag's flush. */
static void test_trim_keeps_blocks(void)
{
	struct device d = device_new(shape(0, VS_TAGGED), 1);
	uint32_t i, pages = d.c.geometry.pages, free;

	device_format(&d);
	for (i = 0; i <= 3 * pages; i++)
		write_one(&d, 1, i);
	CHECK(vs_flush(d.ssd, d.now, 0, i).status == VS_OK);
	free = d.ssd->bank[0].free;
	trim(&d, 1, 0, pages);
	trim(&d, 2, pages, pages);
	CHECK(d.ssd->bank[0].pending == 2);
	check_banks(d.ssd);
	/* Those of a later TRIM wait for the earlier one too. */
	flush_tag(&d, 2);
	CHECK(d.ssd->bank[0].free == free && d.ssd->bank[0].pending == 2);
	flush_tag(&d, 1);
	CHECK(d.ssd->bank[0].free == free + 2 && !d.ssd->bank[0].pending);
	check_banks(d.ssd);
	/* The rest of a block of which a part was trimmed durably. */
	trim(&d, 1, 2 * pages, pages / 2);
	flush_tag(&d, 1);
	CHECK(!d.ssd->bank[0].pending);
	trim(&d, 2, 2 * pages + pages / 2, pages / 2);
	CHECK(d.ssd->bank[0].free == free + 2 && d.ssd->bank[0].pending == 1);
	flush_tag(&d, 2);
	CHECK(d.ssd->bank[0].free == free + 3 && !d.ssd->bank[0].pending);
	device_free(&d);
}

/* A flush of a range covers a TRIM that only overlaps it. */
static void test_flush_of_trimmed_range(void)
{
	struct device d = device_new(shape(1, VS_TAGGED), 1);
	uint64_t i;

	device_format(&d);
	for (i = 10; i < 20; i++)
		write_one(&d, 1, i);
	flush_tag(&d, 1);
	trim(&d, 1, 10, 4);
	CHECK(vs_flush(d.ssd, d.now, 14, 6).status == VS_OK);
	CHECK(tag_stats(&d, 1).unlogged == 1);
	CHECK(vs_flush(d.ssd, d.now, 13, 1).status == VS_OK);
	CHECK(tag_stats(&d, 1).unlogged == 0);
	CHECK(device_mount(&d) == VS_OK);
	for (i = 10; i < 20; i++)
		CHECK(is_number(&d, i, i < 14 ? 0 : i + 1));
	device_free(&d);
}

int main(void)
{
	unsigned int i;

	for (i = 0; i < SHAPES; i++) {
		/* Tags with logs of their own. */
		if (shape(i, VS_TAGGED).max_tags > 2)
			test_trim_of_a_tag(i);
	}
	test_trim_of_another_tag(1);
	test_trim_of_another_tag(2);
	test_trim_keeps_blocks();
	test_flush_of_trimmed_range();
	return 0;
}
