// SPDX-License-Identifier: GPL-2.0
/* Records and seals: written ones are read back, invalid ones are refused. */
#include <string.h>

#include "check.h"
#include "../../native/core/log.h"

#define KEY 0x1234567890abcdefULL
#define CHUNK 11

static struct vcache_geometry g;
static u8 block[VC_BLOCK_SIZE];

static struct vcache_log_info record(void)
{
	return (struct vcache_log_info){
		.gen = 100, .seq = 105, .volume = 7, .chunk = CHUNK, .tag = 9,
		.type = VC_LOG_RECORD, .at = 3, .nr = 2, .data = 1 };
}

static struct vcache_log_info seal(void)
{
	struct vcache_log_info info = record();

	info.type = VC_LOG_SEAL;
	info.at = vcache_chunk_capacity(&g);
	info.data = 0;
	info.revision = 77;
	return info;
}

static bool parses(struct vcache_log_info info, const struct vcache_entry *e)
{
	struct vcache_log_info out;
	unsigned int i;

	memset(block, 0, sizeof(block));
	for (i = 0; i < info.nr && i < VC_ENTRIES_PER_BLOCK; i++)
		vcache_log_put_entry(block, i, &e[i]);
	vcache_log_finish(block, KEY, &info);
	return vcache_log_parse(block, &g, CHUNK, info.at, &out);
}

static bool parses_record(u64 where, u32 arg, u16 place, u8 mask)
{
	const struct vcache_entry e[2] = {
		{ .block = where, .arg = arg, .place = place, .mask = mask },
		{ .block = 1, .arg = 1, .place = 4, .mask = 1 } };

	return parses(record(), e);
}

static bool parses_seal(u64 where, u32 arg, u16 place, u8 mask)
{
	const struct vcache_entry e[2] = {
		{ .block = where, .arg = arg, .place = place, .mask = mask },
		{ .block = 1, .arg = 1, .place = 4, .mask = 1 } };

	return parses(seal(), e);
}

static void test_entries(void)
{
	const u64 max = VC_WHERE_BLOCK_MAX;

	CHECK(parses_record(max, 0, 4, 0xff));
	CHECK(!parses_record(5, 0, 3, 0xff));
	CHECK(!parses_record(5, 0, 5, 0xff));
	CHECK(parses_record(5, 1, 3, 0));
	CHECK(!parses_record(5, 1, 2, 0));
	CHECK(!parses_record(5, 1, 4, 0));
	CHECK(!parses_record(5, 0, 3, 0));
	CHECK(parses_record(max - 9, 9, 3, 0));
	CHECK(!parses_record(max - 9, 10, 3, 0));
	CHECK(parses_seal(5, 0, 1, 1));
	CHECK(parses_seal(5, 0, vcache_chunk_capacity(&g) - 1, 1));
	CHECK(!parses_seal(5, 0, 0, 1));
	CHECK(!parses_seal(5, 0, vcache_chunk_capacity(&g), 1));
	CHECK(parses_seal(5, 1, 0, 0));
	CHECK(!parses_seal(5, 1, vcache_chunk_capacity(&g), 0));
}

#define REFUSED(what, field, value) do {				\
		struct vcache_log_info wrong = what();			\
									\
		CHECK(parses(wrong, e));				\
		wrong.field = (value);					\
		CHECK(!parses(wrong, e));				\
	} while (0)

static void test_heads(void)
{
	struct vcache_entry e[VC_ENTRIES_PER_BLOCK];
	struct vcache_log_info info;
	unsigned int i;

	for (i = 0; i < VC_ENTRIES_PER_BLOCK; i++)
		e[i] = (struct vcache_entry){ .block = i, .place = 4, .mask = 1 };
	REFUSED(record, gen, 0);
	REFUSED(record, seq, 99);
	REFUSED(record, volume, 0);
	REFUSED(record, chunk, CHUNK + 1);
	REFUSED(record, type, 0);
	REFUSED(record, type, VC_LOG_SEAL);
	REFUSED(record, nr, 337);
	REFUSED(record, data, vcache_chunk_capacity(&g) - 3);
	REFUSED(record, data, 3);
	REFUSED(record, at, vcache_chunk_capacity(&g));
	REFUSED(record, flags, VC_SEAL_READS);
	REFUSED(record, flags, VC_RECORD_UNCHECKED << 1);
	REFUSED(seal, flags, VC_SEAL_READS << 1);
	REFUSED(seal, type, VC_LOG_RECORD);
	REFUSED(seal, data, 1);
	REFUSED(seal, at, vcache_chunk_capacity(&g) - 1);
	REFUSED(seal, nr, 0xffff);
	info = seal();
	e[0].place = 0;
	CHECK(!parses(info, e));
	info.flags = VC_SEAL_READS;
	CHECK(parses(info, e));
	e[0].place = vcache_chunk_capacity(&g);
	CHECK(!parses(info, e));
	e[0].place = 4;
	info = record();
	info.nr = VC_ENTRIES_PER_BLOCK;
	CHECK(parses(info, e));
	info.flags = VC_RECORD_UNCHECKED;
	CHECK(parses(info, e));
	info.flags = 0;
	/* The largest record: to the last block in front of the seal. */
	info.at = 0;
	info.data = vcache_chunk_capacity(&g) - 1;
	CHECK(parses(info, e));
	info.data++;
	CHECK(!parses(info, e));
}

/* All entries are read back; damage, and a wrong place, are detected. */
static void test_random(uint64_t seed)
{
	struct vcache_entry e[VC_ENTRIES_PER_BLOCK], back;
	struct vcache_log_info info = record(), out;
	uint64_t rng = seed;
	u32 i, bit;

	info.data = 1 + check_below(&rng, 200);
	info.nr = info.data + check_below(&rng, 337 - info.data);
	info.seq = check_next(&rng) | 1ULL << 63;
	info.gen = check_next(&rng) >> 1;
	for (i = 0; i < info.nr; i++) {
		e[i] = (struct vcache_entry){
			.block = check_next(&rng) >> 25,
			.arg = check_next(&rng) >> 32,
			.place = 4 + check_below(&rng, info.data),
			.mask = 1 + check_below(&rng, 255) };
	}
	CHECK(parses(info, e));
	CHECK(vcache_log_parse(block, &g, CHUNK, 3, &out));
	CHECK(!memcmp(&info, &out, sizeof(info)));
	for (i = 0; i < info.nr; i++) {
		vcache_log_get_entry(block, i, &back);
		CHECK(back.block == e[i].block && back.arg == e[i].arg &&
		      back.place == e[i].place && back.mask == e[i].mask);
	}
	CHECK(!vcache_log_parse(block, &g, CHUNK + 1, 3, &out));
	CHECK(!vcache_log_parse(block, &g, CHUNK, 4, &out));
	bit = check_below(&rng, VC_BLOCK_SIZE * 8);
	block[bit / 8] ^= 1 << bit % 8;
	CHECK(!vcache_log_parse(block, &g, CHUNK, 3, &out));
	block[bit / 8] ^= 1 << bit % 8;
	g.key++;
	CHECK(!vcache_log_parse(block, &g, CHUNK, 3, &out));
	g.key--;
	CHECK(vcache_log_parse(block, &g, CHUNK, 3, &out));
}

int main(int argc, char **argv)
{
	CHECK(!vcache_geometry_set(&g, KEY, 256, 1 << 16));
	CHECK(vcache_chunk_capacity(&g) == 254);
	test_entries();
	test_heads();
	check_seeds(argc, argv, 300, test_random);
	return 0;
}
