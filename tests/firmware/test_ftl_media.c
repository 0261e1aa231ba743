// SPDX-License-Identifier: Apache-2.0
/* Pages that cannot be read: where copies are, what is reported, and for how long. */
#include <string.h>

#include "commands.h"
#include "../../firmware/core/internal.h"

static const struct vs_oob *oob_at(struct device *d, uint32_t address)
{
	return (void *)nand_oob(d->nand, vs_place(d->ssd, address));
}

static const struct vs_meta *meta_at(struct device *d, uint32_t address)
{
	return (void *)nand_data(d->nand, vs_place(d->ssd, address));
}

static bool is_page(struct device *d, uint32_t address, uint32_t type)
{
	const struct vs_oob *oob = oob_at(d, address);

	return oob->magic == VS_MAGIC && oob->type == type;
}

static uint32_t all_pages(const struct device *d)
{
	return d->ssd->blocks_all * d->c.geometry.pages;
}

/* Of each root and log page there are two, on two banks if there are as many. */
static void test_copies(unsigned int which, enum vs_personality personality)
{
	struct device d = device_new(shape(which, personality), 1);
	uint32_t i, k, banks = d.c.geometry.channels / d.c.lanes *
			       d.c.geometry.ways;
	unsigned int found = 0;

	device_format(&d);
	write_one(&d, 1, 1);
	flush_tag(&d, 1);
	for (i = 0; i < all_pages(&d); i++) {
		unsigned int copies = 0;

		if (!is_page(&d, i, VS_PAGE_LOG) && !is_page(&d, i, VS_PAGE_ROOT))
			continue;
		for (k = 0; k < all_pages(&d); k++) {
			struct vs_page a = vs_place(d.ssd, i);
			struct vs_page b = vs_place(d.ssd, k);

			if (k == i || oob_at(&d, k)->magic != VS_MAGIC ||
			    oob_at(&d, k)->seq != oob_at(&d, i)->seq)
				continue;
			copies++;
			CHECK(banks == 1 ? a.block != b.block :
					   a.bank != b.bank);
			CHECK(!memcmp(meta_at(&d, i), meta_at(&d, k),
				      d.c.geometry.page_size));
		}
		CHECK(copies == 1);
		found++;
	}
	CHECK(found >= 4);
	device_free(&d);
}

static enum vs_status read_one(struct device *d, uint64_t block)
{
	return vs_read(d->ssd, d->now, block, 1, block_data).status;
}

static void damage_map(struct device *d)
{
	uint32_t i;

	for (i = 0; i < d->ssd->map_pages; i++)
		nand_damage(d->nand, vs_place(d->ssd, d->ssd->map_at[i]));
}

/* Blocks of a lost map page are lost until they are written or trimmed. */
static void test_lost_map(unsigned int which)
{
	struct device d = device_new(shape(which, VS_TAGGED), 1);
	static const uint8_t zero[VS_BLOCK];
	struct vs_stats s;
	uint64_t i, n;

	device_format(&d);
	n = vs_blocks(d.ssd);
	for (i = 0; i < n; i++)
		write_one(&d, 1, i);
	CHECK(device_mount(&d) == VS_OK);
	write_one(&d, 2, 3);
	flush_tag(&d, 2);
	damage_map(&d);
	CHECK(device_mount(&d) == VS_OK);
	vs_get_stats(d.ssd, &s);
	/* The log has a change that is newer than the map page. */
	CHECK(s.lost_blocks == n - 1);
	CHECK(read_one(&d, 3) == VS_OK && block_data[0] == 4);
	CHECK(read_one(&d, 4) == VS_EMEDIA);
	write_one(&d, 1, 5);
	CHECK(vs_trim(d.ssd, d.now, 6, 1).status == VS_OK);
	flush_tag(&d, 1);
	for (i = 0; i < 2; i++) {
		CHECK(read_one(&d, 4) == VS_EMEDIA);
		CHECK(read_one(&d, 5) == VS_OK && block_data[0] == 6);
		CHECK(read_one(&d, 6) == VS_OK);
		CHECK(!memcmp(block_data, zero, sizeof(zero)));
		CHECK(device_mount(&d) == VS_OK);
	}
	vs_get_stats(d.ssd, &s);
	CHECK(s.lost_blocks == n - 3);
	/* All of it can be used again. */
	for (i = 0; i < n; i++)
		write_one(&d, 1, i);
	flush_tag(&d, 1);
	CHECK(device_mount(&d) == VS_OK);
	for (i = 0; i < n; i++)
		CHECK(read_one(&d, i) == VS_OK && block_data[0] == (uint8_t)(i + 1));
	device_free(&d);
}

/* Damage both copies of the newest page of a log. */
static void damage_log(struct device *d, uint32_t log)
{
	uint64_t newest = 0;
	uint32_t i;

	for (i = 0; i < all_pages(d); i++) {
		if (is_page(d, i, VS_PAGE_LOG) &&
		    oob_at(d, i)->slot[0].lpn == log && oob_at(d, i)->seq > newest)
			newest = oob_at(d, i)->seq;
	}
	CHECK(newest);
	for (i = 0; i < all_pages(d); i++) {
		if (is_page(d, i, VS_PAGE_LOG) && oob_at(d, i)->seq == newest)
			nand_damage(d->nand, vs_place(d->ssd, i));
	}
}

static void flush_block(struct device *d, uint32_t tag, uint64_t block)
{
	write_one(d, tag, block);
	flush_tag(d, tag);
}

/* Nobody knows what was in a log of which both copies are lost. */
static void test_lost_log(unsigned int which)
{
	struct device d = device_new(shape(which, VS_TAGGED), 1);

	/* Pages of another log follow in the same blocks. */
	device_format(&d);
	flush_block(&d, 1, 1);
	damage_log(&d, 1);
	flush_block(&d, 2, 2);
	CHECK(device_mount(&d) == VS_EMEDIA);
	device_free(&d);
	/* A later page of the same log has all that is lost. */
	d = device_new(shape(which, VS_TAGGED), 1);
	device_format(&d);
	flush_block(&d, 1, 1);
	damage_log(&d, 1);
	flush_block(&d, 1, 2);
	CHECK(device_mount(&d) == VS_OK);
	CHECK(read_one(&d, 1) == VS_OK && block_data[0] == 2);
	CHECK(read_one(&d, 2) == VS_OK && block_data[0] == 3);
	device_free(&d);
	/* The pages programmed last look like torn ones. */
	d = device_new(shape(which, VS_TAGGED), 1);
	device_format(&d);
	flush_block(&d, 1, 1);
	damage_log(&d, 1);
	CHECK(device_mount(&d) == VS_OK);
	device_free(&d);
}

/* Another version of the format is none of ours. */
static void test_version(void)
{
	struct device d = device_new(shape(1, VS_TAGGED), 1);
	uint32_t i;

	device_format(&d);
	for (i = 0; i < all_pages(&d); i++) {
		struct vs_oob *oob = (void *)nand_oob(d.nand, vs_place(d.ssd, i));

		if (oob->magic != VS_MAGIC)
			continue;
		oob->version++;
		oob->crc = vs_oob_crc(d.ssd, oob);
	}
	CHECK(device_mount(&d) == VS_EMEDIA);
	device_free(&d);
}

int main(int argc, char **argv)
{
	unsigned int i;

	check_seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
	for (i = 0; i < SHAPES; i++) {
		test_copies(i, VS_TAGGED);
		test_lost_map(i);
		/* Tags with logs of their own. */
		if (shape(i, VS_TAGGED).max_tags > 2)
			test_lost_log(i);
	}
	test_version();
	return 0;
}
