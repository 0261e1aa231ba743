// SPDX-License-Identifier: GPL-2.0
/*
 * make_image FILE clean|crashed|vssd|vssd-bad: create a small pool with two volumes and chunks of
 * 16 blocks. The chunks for data are: 10 (volume 1, tag 1) and 11 (volume 1, tag 2), both
 * sealed; 12 (volume 2, tag 1), which a crash leaves open; 13, which is dead; and 14
 * (volume 1, tag 2), a read chunk.
 *
 * With vssd there is also volume 3, an elastic SSD of 6 blocks: chunk 15 has its block 1, chunk 16
 * its block 2. With vssd-bad, chunk 17 has block 2 as well, and chunk 18 block 6.
 */
#include <stdio.h>
#include <stdlib.h>

#include "../../native/core/crc32c.h"
#include "../../native/core/direct.h"
#include "../../native/core/seal.h"

#define BLOCKS 320
#define KEY 0x7465737474657374ULL

static u8 image[BLOCKS][VC_BLOCK_SIZE];
static struct vcache_geometry g;

static int image_read(void *ctx, u64 block, u32 n, void *buf)
{
	(void)ctx;
	memcpy(buf, image[block], (size_t)n * VC_BLOCK_SIZE);
	return 0;
}

static int image_write(void *ctx, u64 block, u32 n, const void *buf)
{
	(void)ctx;
	memcpy(image[block], buf, (size_t)n * VC_BLOCK_SIZE);
	return 0;
}

static const struct vcache_store store = { .read = image_read,
				       .write = image_write };

static void volumes(u32 n)
{
	static u8 block[VC_BLOCK_SIZE];
	struct vcache_slot_disk *s;
	u32 i;

	image_read(NULL, vcache_meta_place(&g, VC_META_SLOTS, 0, 0), 1, block);
	s = (void *)(block + sizeof(struct vcache_meta_head));
	for (i = 0; i < n; i++) {
		s[i].volume = cpu_to_le32(i + 1);
		s[i].mode = cpu_to_le32(i + 1);
		s[i].sectors = cpu_to_le64(800);
		sprintf((char *)s[i].name, "volume-%u", i + 1);
	}
	vcache_meta_save(&store, &g, VC_META_SLOTS, 0, block);
}

/* A chunk with two records of one block each, and a discard in the second. */
static void chunk(u32 c, u32 volume, u16 tag, u64 gen, bool sealed)
{
	struct vcache_log_info info = {
		.gen = gen, .seq = gen, .volume = volume, .chunk = c,
		.tag = tag, .type = VC_LOG_RECORD, .revision = 0 };
	static u8 seal[VC_SEAL_COPIES][VC_BLOCK_SIZE];
	u8 (*at)[VC_BLOCK_SIZE] = &image[c * 16];
	struct vcache_entry e;
	u32 i, n = 0;

	memset(seal, 0, sizeof(seal));
	for (i = 0; i < 2; i++) {
		info.at = 2 * i;
		info.data = 1;
		info.nr = 1 + i;
		memset(at[info.at + 1], 'a' + i, VC_BLOCK_SIZE);
		e = (struct vcache_entry){
			.block = gen + i, .mask = VC_MASK_ALL,
			.place = info.at + 1,
			.arg = vcache_crc32c(at[info.at + 1], VC_BLOCK_SIZE) };
		vcache_log_put_entry(at[info.at], 0, &e);
		vcache_seal_put(seal[0], n++, &e);
		e = (struct vcache_entry){ .block = 90, .arg = 3,
				       .place = info.at };
		if (i) {
			vcache_log_put_entry(at[info.at], 1, &e);
			vcache_seal_put(seal[0], n++, &e);
		}
		vcache_log_finish(at[info.at], KEY, &info);
		info.seq++;
	}
	info.seq--;
	info.revision = 1;
	vcache_seal_copies(&g, seal[0], n, &info);
	if (sealed)
		image_write(NULL, c * 16 + vcache_chunk_capacity(&g), 2, seal);
}

/* A read chunk: no records, no checksums, data from its start on. */
static void reads(u32 c, u32 volume, u16 tag, u64 gen)
{
	static u8 seal[VC_SEAL_COPIES][VC_BLOCK_SIZE];
	struct vcache_log_info info = {
		.gen = gen, .seq = gen, .volume = volume, .chunk = c,
		.tag = tag, .flags = VC_SEAL_READS, .revision = 1 };
	struct vcache_entry e = { .block = gen, .mask = VC_MASK_ALL };

	memset(image[c * 16], 'r', VC_BLOCK_SIZE);
	vcache_seal_put(seal[0], 0, &e);
	vcache_seal_copies(&g, seal[0], 1, &info);
	image_write(NULL, c * 16 + vcache_chunk_capacity(&g), 2, seal);
}

/* The chunks of the elastic SSD, which is in slot 2. */
static void table(bool vssd, bool bad)
{
	static u8 block[VC_BLOCK_SIZE];
	struct vcache_chunk_disk *t = (void *)(block + sizeof(struct vcache_meta_head));

	image_read(NULL, vcache_meta_place(&g, VC_META_TABLE, 0, 0), 1, block);
	t[13].dead = cpu_to_le64(5);
	if (vssd) {
		t[15].clean = cpu_to_le64(vcache_direct_pack(2, 1));
		t[16].clean = cpu_to_le64(vcache_direct_pack(2, 2));
	}
	if (bad) {
		t[17].clean = cpu_to_le64(vcache_direct_pack(2, 2));
		t[18].clean = cpu_to_le64(vcache_direct_pack(2, 6));
	}
	vcache_meta_save(&store, &g, VC_META_TABLE, 0, block);
}

int main(int argc, char **argv)
{
	static u8 block[VC_BLOCK_SIZE];
	const u8 uuid[16] = { 1, 2, 3 };
	struct vcache_super sb = { .uuid = { 1, 2, 3 }, .next_seq = 1000 };
	bool clean, vssd;
	FILE *f;

	if (argc != 3)
		return 2;
	vssd = !strncmp(argv[2], "vssd", 4);
	clean = vssd || !strcmp(argv[2], "clean");
	sb.flags = clean ? VC_SUPER_CLEAN : VC_SUPER_NEEDS_CHECK;
	sb.flags |= vssd ? VC_SUPER_VSSD : 0;
	if (vcache_geometry_set(&g, KEY, 16, BLOCKS) ||
	    vcache_pool_format(&store, &g, uuid, block) ||
	    vcache_super_save(&store, &g, &sb, block))
		return 1;
	volumes(vssd ? 3 : 2);
	chunk(10, 1, 1, 10, true);
	chunk(11, 1, 2, 20, true);
	chunk(12, 2, 1, 30, clean);
	chunk(13, 1, 1, 5, true);
	reads(14, 1, 2, 40);
	table(vssd, !strcmp(argv[2], "vssd-bad"));
	f = fopen(argv[1], "w");
	if (!f || fwrite(image, VC_BLOCK_SIZE, BLOCKS, f) != BLOCKS ||
	    fclose(f))
		return 1;
	return 0;
}
