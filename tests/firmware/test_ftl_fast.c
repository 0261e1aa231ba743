// SPDX-License-Identifier: Apache-2.0
/* The device without power cuts: features of the FAST mapping only. */
#include "commands.h"
#include "places.h"
#include "workload.h"

/* A page of several blocks that FAST keeps together belongs to one tag. */
static void test_isolation(void)
{
	struct device d = device_new(shape(7, VS_TAGGED), 1);
	struct vs_stats s;

	device_format(&d);
	write_one(&d, 1, 0);
	write_one(&d, 1, 1);
	write_one(&d, 2, 2);
	write_one(&d, 2, 3);
	flush_tag(&d, 1);
	CHECK(tag_stats(&d, 1).buffered == 0);
	CHECK(tag_stats(&d, 2).buffered == 2);
	write_one(&d, 2, 0);
	write_one(&d, 2, 1);
	flush_tag(&d, 2);
	vs_get_stats(d.ssd, &s);
	CHECK(s.programmed[VS_CAUSE_HOST] == 6);
	CHECK(s.programmed[VS_CAUSE_PADDING] == 2);
	device_free(&d);
}

static const struct vs_ssd *watched;

/* One may be being opened for metadata. */
static enum vs_status watch_erase(void *ctx, vs_time now, struct vs_page at,
				  vs_time *done)
{
	const struct vs_lane *l = &watched->lane[0];

	CHECK(l->free + l->meta + 1 >= l->meta_share);
	return nand_ops.erase(ctx, now, at, done);
}

/* For any number of merges, the blocks for metadata stay reserved. */
static void test_leaves_metadata_room(void)
{
	struct device d = device_new(shape(5, VS_TAGGED), 1);
	struct vs_nand_ops ops = nand_ops;
	uint64_t seed = 5;
	struct oracle *o;

	device_format(&d);
	watched = d.ssd;
	ops.erase = watch_erase;
	d.ssd->ops = &ops;
	o = oracle_new(vs_blocks(d.ssd));
	CHECK(workload_fill(&d, o) == VS_OK);
	CHECK(workload_run(&d, o, &seed, 1500) == VS_OK);
	oracle_free(o);
	device_free(&d);
}

/* Only the unreadable data is lost; its block is not reused. */
static void test_unreadable(void)
{
	struct device d = device_new(shape(5, VS_TAGGED), 1);
	struct vs_stats s;
	uint64_t i, lost = 10;
	uint8_t data[VS_BLOCK];

	device_format(&d);
	for (i = 0; i < vs_blocks(d.ssd); i++)
		write_one(&d, 1, i);
	flush_tag(&d, 1);
	nand_damage(d.nand, vs_place(d.ssd, d.ssd->map[lost]));
	for (i = 0; i < 400; i++)
		write_one(&d, 1, lost + 1 + i * 11 % 37);
	vs_get_stats(d.ssd, &s);
	CHECK(s.merges[VS_MERGE_FULL] > 0);
	CHECK(s.lost_reads > 0);
	for (i = 0; i < vs_blocks(d.ssd); i++) {
		enum vs_status status = vs_read(d.ssd, d.now, i, 1, data).status;

		CHECK(status == (i == lost ? VS_EMEDIA : VS_OK));
	}
	check_data_blocks(d.ssd);
	device_free(&d);
}

/* Invalid or oversized configurations. */
static void test_sizes(void)
{
	struct vs_config page = shape(0, VS_TAGGED), fast = shape(5, VS_TAGGED);
	struct vs_config c = shape(2, VS_TAGGED);

	CHECK(vs_capacity(&fast) == vs_capacity(&page));
	fast.log_blocks = 1;
	CHECK(vs_capacity(&fast) == 0);
	fast.log_blocks = 2;
	CHECK(vs_capacity(&fast) == vs_capacity(&page));
	while (vs_capacity(&fast))
		fast.log_blocks++;
	/* 34 blocks, 17 of metadata, 9 of data, one that merges go to. */
	CHECK(fast.log_blocks == 34 - 17 - 9);
	CHECK(c.lanes == 2 && vs_size_needed(&c));
	c.mapping = VS_MAP_FAST;
	CHECK(vs_size_needed(&c) == 0);
	c.mapping = (enum vs_mapping)2;
	CHECK(vs_size_needed(&c) == 0);
}

/* The contents of a NAND belong to one mapping. */
static void test_is_not_page(void)
{
	struct device d = device_new(shape(0, VS_TAGGED), 1);

	device_format(&d);
	d.c = shape(5, VS_TAGGED);
	free(d.mem);
	d.mem = malloc(vs_size_needed(&d.c));
	CHECK(device_mount(&d) == VS_EMEDIA);
	device_free(&d);
}

int main(int argc, char **argv)
{
	check_seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
	test_isolation();
	test_leaves_metadata_room();
	test_unreadable();
	test_sizes();
	test_is_not_page();
	return 0;
}
