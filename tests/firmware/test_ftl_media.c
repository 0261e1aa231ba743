// SPDX-License-Identifier: Apache-2.0
/* Pages that cannot be read: where copies are, what is reported, and for how long. */
#include <string.h>

#include "commands.h"
#include "../../firmware/core/internal.h"
#include "../../firmware/core/pairing.h"

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
	/* All but one have much to do: the second copy does not go there too. */
	for (i = 1; i < d.ssd->banks; i++)
		d.ssd->bank[i].done += 1000000000;
	flush_tag(&d, 1);
	for (i = 0; i < all_pages(&d); i++) {
		unsigned int copies = 0;

		if (!is_page(&d, i, VS_PAGE_LOG) &&
		    !is_page(&d, i, VS_PAGE_ROOT) &&
		    !(is_page(&d, i, VS_PAGE_DATA) && d.c.sync_copies == 2))
			continue;
		for (k = 0; k < all_pages(&d); k++) {
			struct vs_page a = vs_place(d.ssd, i);
			struct vs_page b = vs_place(d.ssd, k);

			if (k == i || oob_at(&d, k)->magic != VS_MAGIC ||
			    oob_at(&d, k)->seq != oob_at(&d, i)->seq)
				continue;
			copies++;
			if (banks > 1)
				CHECK(a.bank != b.bank);
			else
				CHECK(a.block != b.block ||
				      is_page(&d, i, VS_PAGE_DATA));
			CHECK(!memcmp(meta_at(&d, i), meta_at(&d, k),
				      d.c.geometry.page_size));
		}
		CHECK(copies == 1);
		found++;
	}
	/* The root; log page or data, if there is a copy. */
	CHECK(found >= (d.c.sync_copies == 1 ? 2 : 4));
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
	CHECK(vs_trim(d.ssd, d.now, 1, 6, 1).status == VS_OK);
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

/* The place of a copy of a block in a page without a log. */
static struct vs_page copy_of(struct device *d, uint32_t block, unsigned int n)
{
	uint32_t i;

	for (i = 0; i < all_pages(d); i++) {
		if (is_page(d, i, VS_PAGE_DATA) && oob_at(d, i)->flags &&
		    oob_at(d, i)->slot[0].lpn == block && !n--)
			return vs_place(d->ssd, i);
	}
	CHECK(false);
	return (struct vs_page){ 0 };
}

/* Of pages without a log one copy is enough, and the loss of all is reported. */
static void test_lost_sync(unsigned int which)
{
	unsigned int lost, i, copies = shape(which, VS_TAGGED).sync_copies;
	struct vs_stats s;

	for (lost = 1; lost < 1u << copies; lost++) {
		struct device d = device_new(shape(which, VS_TAGGED), 1);
		bool all = lost + 1 == 1u << copies;

		device_format(&d);
		flush_block(&d, 1, 7);
		for (i = 0; i < copies; i++) {
			if (lost & 1u << i)
				nand_damage(d.nand, copy_of(&d, 7, i));
		}
		/* Later pages in the same blocks. */
		for (i = 0; i < d.ssd->banks; i++)
			flush_block(&d, 2, 20 + i);
		vs_get_stats(d.ssd, &s);
		CHECK(s.programmed[VS_CAUSE_LOG] == 0);
		CHECK(device_mount(&d) == VS_OK);
		CHECK(read_one(&d, 7) == (all ? VS_EMEDIA : VS_OK));
		CHECK(all || block_data[0] == 8);
		CHECK(read_one(&d, 20) == VS_OK && block_data[0] == 21);
		device_free(&d);
	}
}

/* Second copies in blocks that are not free. */
static uint32_t copies_kept(const struct vs_ssd *s)
{
	uint32_t i, n = 0;

	for (i = 0; i < s->blocks_all; i++)
		n += s->block[i].state == VS_BLOCK_FREE ? 0 : s->block[i].copies;
	return n;
}

/* As many pages as recovery can sort, and then a checkpoint. */
static void test_many_sync(unsigned int which)
{
	struct device d = device_new(shape(which, VS_TAGGED), 1);
	struct vs_stats s;
	uint32_t i;

	device_format(&d);
	for (i = 0; i < d.ssd->sync_max * 2; i++) {
		flush_block(&d, 1, i % 8);
		CHECK(d.ssd->syncs <= d.ssd->sync_max);
		CHECK(copies_kept(d.ssd) == (d.c.sync_copies < 2 ? 0 :
					     d.ssd->syncs / 2));
	}
	vs_get_stats(d.ssd, &s);
	CHECK(s.checkpoints > 1);
	CHECK(device_mount(&d) == VS_OK);
	for (i = 0; i < 8; i++)
		CHECK(read_one(&d, i) == VS_OK && block_data[0] == i + 1);
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

/* The next MSB page of this type fails. */
static uint32_t fail_type;
static struct vs_page failed;

static enum vs_status program_failing(void *ctx, vs_time now, struct vs_page at,
				      const void *data, const void *oob,
				      vs_time *done)
{
	const struct vs_oob *o = oob;
	enum vs_status status;
	bool fail = o->type == fail_type &&
		    vs_pair_of_msb(8, at.page) != VS_NO_PAIR;

	nand_wear(ctx, fail ? 1000000 : 0);
	status = nand_ops.program(ctx, now, at, data, oob, done);
	nand_wear(ctx, 0);
	if (fail) {
		fail_type = 0;
		failed = at;
		CHECK(status == VS_EMEDIA);
	}
	return status;
}

/* Nothing refers to the page that was lost; the counts of changes are right. */
static void check_no_trace(const struct vs_ssd *s)
{
	uint32_t lost = (failed.bank * s->c.geometry.blocks + failed.block) *
			s->c.geometry.pages +
			vs_pair_of_msb(s->c.geometry.pages, failed.page);
	uint32_t unsafe = 0, sum = 0, i, k;

	for (i = 0; i < s->logs; i++) {
		const struct vs_log *l = &s->log[i];

		for (k = l->durable; k < l->count; k++) {
			CHECK(l->entry[k].slot / s->slots != lost);
			CHECK(l->old[k] / s->slots != lost);
			unsafe += vs_mapped(l->old[k]);
		}
	}
	for (i = 0; i < s->blocks_all; i++)
		sum += s->block[i].unsafe;
	CHECK(sum == unsafe);
	for (i = 0; i < s->blocks; i++)
		CHECK(s->map[i] / s->slots != lost);
}

static void test_pair_of_data(void)
{
	struct vs_nand_ops ops = nand_ops;
	struct vs_config c = shape(1, VS_TAGGED);
	struct device d;
	struct vs_stats s;
	uint32_t i;

	ops.program = program_failing;
	c.geometry.ways = 1;
	c.geometry.blocks = 54;
	c.idle_percent = 0;
	d = device_new(c, 1);
	device_format(&d);
	d.ssd->ops = &ops;
	fail_type = VS_PAGE_DATA;
	/* Each block twice, so that an older version of it is in a log as well. */
	for (i = 0; fail_type; i++)
		CHECK(vs_write(d.ssd, d.now, 1 + i / 2 % 2, i / 4, 1, block_data,
			       false).status == VS_OK);
	vs_get_stats(d.ssd, &s);
	CHECK(s.rescued == 1);
	check_no_trace(d.ssd);
	/* A log page waits for it. */
	for (i = 0; i < d.ssd->logs; i++)
		CHECK(d.ssd->log[i].durable == d.ssd->log[i].count ||
		      i == d.ssd->gc_log ||
		      d.ssd->log[i].data_done >= d.ssd->bank[0].done);
	device_free(&d);
}

/* A map page is lost during its checkpoint. */
static void test_pair_of_map(void)
{
	struct vs_config c = shape(1, VS_TAGGED);
	struct vs_nand_ops ops = nand_ops;
	struct vs_stats s;
	struct device d;
	uint64_t i, n;

	ops.program = program_failing;
	c.geometry.page_size = 4096;
	c.geometry.blocks = 600;
	c.personality = VS_BASELINE;
	d = device_new(c, 1);
	device_format(&d);
	d.ssd->ops = &ops;
	n = vs_blocks(d.ssd);
	CHECK(d.ssd->map_pages > 6);
	for (i = 0; i < n; i++)
		write_one(&d, 1, i);
	fail_type = VS_PAGE_MAP;
	/* One block of each map page. */
	while (fail_type) {
		for (i = 0; i < n; i += d.ssd->map_per_page)
			write_one(&d, 1, i);
		flush_tag(&d, 1);
	}
	vs_get_stats(d.ssd, &s);
	CHECK(s.rescued == 1);
	CHECK(device_mount(&d) == VS_OK);
	for (i = 0; i < n; i++)
		CHECK(read_one(&d, i) == VS_OK && block_data[0] == (uint8_t)(i + 1));
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
		if (shape(i, VS_TAGGED).max_tags > 2 &&
		    !shape(i, VS_TAGGED).sync_pages)
			test_lost_log(i);
	}
	for (i = 9; i < SHAPES; i++) {
		test_lost_sync(i);
		test_many_sync(i);
	}
	test_version();
	test_pair_of_data();
	test_pair_of_map();
	return 0;
}
