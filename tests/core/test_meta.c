// SPDX-License-Identifier: GPL-2.0
/* Metadata with two copies, with torn writes and corrupted blocks. */
#include <sys/mman.h>

#include "disk.h"
#include "../../native/core/crc32c.h"

#define KEY 0x1122334455667788ULL
#define SMALL 400	/* blocks of a small device */

static u8 block[VC_BLOCK_SIZE], spare[VC_BLOCK_SIZE];
static const u8 uuid[16] = "0123456789abcde";

static void test_geometry(void)
{
	struct vcache_geometry g;
	u64 blocks;
	u32 n;

	for (n = 0; n < 10000; n++) {
		bool allowed = n >= 16 && n <= 4096 && !(n & (n - 1));

		CHECK(vcache_geometry_set(&g, KEY, n, 1 << 20) ==
		      (allowed ? 0 : -EINVAL));
	}
	/* 66 blocks of metadata, twice, are 10 chunks; two are for data. */
	CHECK(vcache_geometry_set(&g, KEY, 16, 12 * 16 - 1) == -ENOSPC);
	CHECK(!vcache_geometry_set(&g, KEY, 16, 12 * 16));
	CHECK(g.key == KEY && g.chunks == 12 && g.first_chunk == 10);
	CHECK(g.slot_blocks == VC_SLOT_BLOCKS && g.table_blocks == 1);
	CHECK(g.copy_blocks == 80 && g.seal_blocks == 1);
	CHECK(vcache_geometry_set(&g, KEY, 16, 0) == -ENOSPC);
	CHECK(vcache_geometry_set(&g, KEY, 16, 1ULL << 32) == -EFBIG);
	CHECK(vcache_geometry_set(&g, KEY, 16, ~0ULL) == -EFBIG);
	for (n = 16; n <= 4096; n *= 2) {
		blocks = (1ULL << 32) - 1;
		CHECK(!vcache_geometry_set(&g, KEY, n, blocks));
		CHECK((u64)g.chunks * n <= blocks);
		CHECK((u64)g.table_blocks * VC_CHUNKS_PER_BLOCK >= g.chunks);
		CHECK((u64)g.seal_blocks * 336 >= n);
		CHECK(g.copy_blocks >= 1 + g.slot_blocks + g.table_blocks);
		CHECK(g.first_chunk * n == 2 * g.copy_blocks);
	}
}

/* The sizes to which a pool can grow and shrink without moving metadata. */
static void test_resize(void)
{
	struct vcache_geometry g, was;
	u32 n;

	CHECK(!vcache_geometry_set(&g, KEY, 16, 1000 * 16));
	CHECK(g.chunks == 1000 && g.max_chunks == 4000 && g.table_blocks == 4);
	was = g;
	for (n = 0; n < 5000; n++) {
		int r = vcache_geometry_resize(&g, n);

		CHECK(r == (n < 250 ? -ENOSPC : n > 4000 ? -EFBIG : 0));
		if (r) {
			CHECK(!memcmp(&g, &was, sizeof(g)));
			continue;
		}
		CHECK(g.chunks == n && g.table_blocks == (n + 253) / 254);
		CHECK(g.max_chunks == 4000 && g.copy_blocks == was.copy_blocks &&
		      g.first_chunk == was.first_chunk);
		g = was;
	}
	CHECK(vcache_geometry_least(&g) == 250);
	/* There are always two chunks for data. */
	CHECK(!vcache_geometry_set(&g, KEY, 16, 12 * 16));
	CHECK(vcache_geometry_least(&g) == 12);
	/* Not more space than chunk numbers. */
	CHECK(!vcache_geometry_set(&g, KEY, 4096, 1ULL << 31));
	CHECK(g.chunks == 1 << 19 && g.max_chunks == (1 << 20) - 1);
}

/* No two metadata blocks are in the same place, none is with the data. */
static void test_places(void)
{
	static bool used[SMALL];
	const u32 counts[] = { 1, VC_SLOT_BLOCKS, 1 };
	struct vcache_geometry g;
	u32 copy, type, i;

	CHECK(!vcache_geometry_set(&g, KEY, 16, SMALL));
	for (copy = 0; copy < VC_COPIES; copy++) {
		for (type = VC_META_SUPER; type <= VC_META_TABLE; type++) {
			for (i = 0; i < counts[type - 1]; i++) {
				u64 at = vcache_meta_place(&g, type, i, copy);

				CHECK(at < g.first_chunk * 16);
				CHECK(!used[at]);
				used[at] = true;
			}
		}
	}
}

static void fill(u8 version)
{
	memset(block + sizeof(struct vcache_meta_head), version,
	       VC_BLOCK_SIZE - sizeof(struct vcache_meta_head));
}

/* Return the loaded version, which must be whole. */
static u8 version_of(const u8 *b)
{
	size_t i;

	for (i = sizeof(struct vcache_meta_head); i < VC_BLOCK_SIZE; i++)
		CHECK(b[i] == b[VC_BLOCK_SIZE - 1]);
	return b[VC_BLOCK_SIZE - 1];
}

static int load(struct disk *d, const struct vcache_geometry *g)
{
	struct vcache_store st = disk_store(d);

	return vcache_meta_load(&st, g, VC_META_TABLE, 0, block, spare);
}

static int save(struct disk *d, const struct vcache_geometry *g)
{
	struct vcache_store st = disk_store(d);

	return vcache_meta_save(&st, g, VC_META_TABLE, 0, block);
}

static void repair(struct disk *d, const struct vcache_geometry *g, int bad)
{
	struct vcache_store st = disk_store(d);

	CHECK(bad >= 0);
	CHECK(!vcache_meta_repair(&st, g, VC_META_TABLE, 0, block, bad));
	CHECK(!load(d, g));
}

static u8 *copy_at(struct disk *d, const struct vcache_geometry *g, int copy)
{
	return disk_at(d, vcache_meta_place(g, VC_META_TABLE, 0, copy));
}

static void mix(u8 *to, const u8 *from, unsigned int sectors)
{
	unsigned int i;

	for (i = 0; i < VC_BLOCK_SECTORS; i++) {
		if (sectors >> i & 1)
			memcpy(to + i * SECTOR, from + i * SECTOR, SECTOR);
	}
}

/* Each subset of the sectors of each copy arrives. */
static void test_torn(void)
{
	static u8 images[2][VC_BLOCK_SIZE];
	unsigned int torn, sectors;
	struct vcache_geometry g;
	struct disk d;
	int bad;

	disk_init(&d, SMALL, 1);
	CHECK(!vcache_geometry_set(&g, KEY, 16, SMALL));
	memset(block, 0, VC_BLOCK_SIZE);
	for (torn = 0; torn < 2; torn++) {
		fill(torn + 1);
		CHECK(!save(&d, &g));
		memcpy(images[torn], block, VC_BLOCK_SIZE);
	}
	for (torn = 0; torn < 2; torn++) {
		for (sectors = 0; sectors < 256; sectors++) {
			u8 *at[2], version;
			int i;

			for (i = 0; i < 2; i++) {
				at[i] = copy_at(&d, &g, i);
				memcpy(at[i], images[i < (int)torn],
				       VC_BLOCK_SIZE);
			}
			mix(at[torn], images[1], sectors);
			bad = load(&d, &g);
			version = version_of(block);
			if (torn || sectors == 255)
				CHECK(version == 2);
			else
				CHECK(version == 1);
			if (torn)
				CHECK(bad == (sectors == 255 ? 0 : 2));
			else
				CHECK(bad == (sectors == 0 ? 0 :
					      sectors == 255 ? 2 : 1));
			repair(&d, &g, bad);
			CHECK(version_of(block) == version);
		}
	}
	free(d.data);
}

/* A failed write did not reach copy 0; copy 1 is newer. */
static void test_newer(void)
{
	struct vcache_geometry g;
	struct disk d;
	u8 old[VC_BLOCK_SIZE];

	disk_init(&d, SMALL, 1);
	CHECK(!vcache_geometry_set(&g, KEY, 16, SMALL));
	memset(block, 0, VC_BLOCK_SIZE);
	fill(1);
	CHECK(!save(&d, &g));
	memcpy(old, block, VC_BLOCK_SIZE);
	fill(2);
	CHECK(!save(&d, &g));
	memcpy(copy_at(&d, &g, 0), old, VC_BLOCK_SIZE);
	CHECK(load(&d, &g) == 1);
	CHECK(version_of(block) == 2);
	repair(&d, &g, 1);
	CHECK(version_of(block) == 2);
	free(d.data);
}

static int write_fails(void *ctx, u64 at, u32 n, const void *buf)
{
	struct disk *d = ctx;

	(void)buf;
	d->writes++;
	memset(disk_at(d, at), 0x55, (size_t)n * VC_BLOCK_SIZE);
	return -EIO;
}

/* While one copy cannot be written, the other does not change. */
static void test_write_error(void)
{
	struct vcache_geometry g;
	struct disk d;
	struct vcache_store st;

	disk_init(&d, SMALL, 1);
	st = disk_store(&d);
	CHECK(!vcache_geometry_set(&g, KEY, 16, SMALL));
	memset(block, 0, VC_BLOCK_SIZE);
	fill(1);
	CHECK(!save(&d, &g));
	st.write = write_fails;
	fill(2);
	CHECK(vcache_meta_save(&st, &g, VC_META_TABLE, 0, block) == -EIO);
	CHECK(d.writes == 3);
	CHECK(load(&d, &g) == 1 && version_of(block) == 1);
	CHECK(vcache_meta_repair(&st, &g, VC_META_TABLE, 0, block, 1) == -EIO);
	CHECK(load(&d, &g) == 1 && version_of(block) == 1);
	free(d.data);
}

/* Repeated power failures: the loaded version never gets older. */
static void test_crashes(uint64_t seed)
{
	struct vcache_geometry g;
	u8 version = 1;
	struct disk d;
	int i, bad;

	disk_init(&d, SMALL, seed);
	CHECK(!vcache_geometry_set(&g, KEY, 16, SMALL));
	memset(block, 0, VC_BLOCK_SIZE);
	fill(version);
	CHECK(!save(&d, &g));
	for (i = 0; i < 40; i++) {
		u8 now;

		bad = load(&d, &g);
		CHECK(bad >= 0);
		now = version_of(block);
		CHECK(now == version || now == version - 1);
		version = now;
		d.dead = false;
		d.crash_at = d.writes + 1 + check_below(&d.rng, 4);
		if (vcache_meta_repair(&(struct vcache_store){ &d, disk_read,
				   disk_write }, &g, VC_META_TABLE, 0, block,
				       bad)) {
			/* Nothing was changed yet. */
			CHECK(load(&d, &g) >= 0);
			CHECK(version_of(block) == version);
			continue;
		}
		do {
			fill(++version);
		} while (!save(&d, &g));
	}
	free(d.data);
}

static void test_rot(uint64_t seed)
{
	struct vcache_geometry g;
	bool bad[SMALL] = { 0 };
	struct disk d;
	u64 at;
	u32 copy, bit;

	disk_init(&d, SMALL, seed);
	CHECK(!vcache_geometry_set(&g, KEY, 16, SMALL));
	memset(block, 0, VC_BLOCK_SIZE);
	fill(7);
	CHECK(!save(&d, &g));
	copy = check_below(&d.rng, 2);
	bit = check_below(&d.rng, VC_BLOCK_SIZE * 8);
	at = vcache_meta_place(&g, VC_META_TABLE, 0, copy);
	disk_at(&d, at)[bit / 8] ^= 1 << bit % 8;
	memset(block, 0, VC_BLOCK_SIZE);
	CHECK(load(&d, &g) == 1 << copy);
	CHECK(version_of(block) == 7);
	repair(&d, &g, 1 << copy);
	bad[at] = true;
	d.bad = bad;
	CHECK(load(&d, &g) == 1 << copy);
	CHECK(version_of(block) == 7);
	d.bad = NULL;
	for (copy = 0; copy < 2; copy++)
		copy_at(&d, &g, copy)[99]++;
	CHECK(load(&d, &g) == -EBADMSG);
	free(d.data);
}

/* Blocks of another pool, type or index are not accepted as copies. */
static void test_strangers(void)
{
	struct vcache_geometry g;
	struct disk d;

	disk_init(&d, SMALL, 1);
	CHECK(!vcache_geometry_set(&g, KEY, 16, SMALL));
	memset(block, 0, VC_BLOCK_SIZE);
	CHECK(!save(&d, &g));
	CHECK(vcache_meta_valid(block, KEY, VC_META_TABLE, 0));
	CHECK(!vcache_meta_valid(block, KEY + 1, VC_META_TABLE, 0));
	CHECK(!vcache_meta_valid(block, KEY, VC_META_SLOTS, 0));
	CHECK(!vcache_meta_valid(block, KEY, VC_META_TABLE, 1));
	free(d.data);
}

static int super_load(struct disk *d, struct vcache_geometry *g)
{
	struct vcache_store st = disk_store(d);
	struct vcache_super sb;
	int r = vcache_super_load(&st, d->blocks, g, &sb, block, spare);

	if (r >= 0)
		CHECK(!memcmp(sb.uuid, uuid, sizeof(uuid)));
	return r;
}

static int format(struct disk *d, u64 key, u32 chunk_blocks)
{
	struct vcache_store st = disk_store(d);
	struct vcache_geometry g;

	CHECK(!vcache_geometry_set(&g, key, chunk_blocks, d->blocks));
	return vcache_pool_format(&st, &g, uuid, block);
}

/* The first superblock is gone: for all chunk sizes, on a large device. */
static void test_search(u64 blocks)
{
	struct vcache_geometry g, found;
	struct vcache_super sb = { .next_seq = 77, .flags = 1 };
	struct disk d = { .blocks = blocks };
	struct vcache_store st = disk_store(&d);
	u32 n;

	for (n = 16; n <= 4096; n *= 2) {
		d.blocks = blocks;
		d.data = mmap(NULL, blocks * VC_BLOCK_SIZE,
			      PROT_READ | PROT_WRITE, MAP_PRIVATE |
			      MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		CHECK(d.data != MAP_FAILED);
		if (vcache_geometry_set(&g, KEY, n, blocks))
			goto next;
		memset(block, 0, VC_BLOCK_SIZE);
		memcpy(sb.uuid, uuid, sizeof(uuid));
		CHECK(!vcache_super_save(&st, &g, &sb, block));
		CHECK(super_load(&d, &found) == 0);
		memset(d.data, 0x55, VC_BLOCK_SIZE);
		CHECK(super_load(&d, &found) == 1);
		CHECK(!memcmp(&g, &found, sizeof(g)));
		memset(d.data, 0, VC_BLOCK_SIZE);
		CHECK(super_load(&d, &found) == -ENODATA);
		CHECK(vcache_super_find(&st, blocks, &found, &sb, block, spare) ==
		      1);
		CHECK(sb.next_seq == 77 && sb.flags == 1);
		/* The same when the pool has shrunk, and its device with it. */
		if (vcache_geometry_resize(&g, vcache_geometry_least(&g)))
			goto next;
		d.blocks = (u64)g.chunks * n;
		CHECK(!vcache_super_save(&st, &g, &sb, block));
		memset(d.data, 0x55, VC_BLOCK_SIZE);
		CHECK(super_load(&d, &found) == 1);
		CHECK(!memcmp(&g, &found, sizeof(g)));
next:
		munmap(d.data, blocks * VC_BLOCK_SIZE);
	}
}

/* Change the superblocks, and correct their checksums. */
static void edit(struct disk *d, size_t offset, u8 value)
{
	const u64 at[] = { 0, 80 };
	int i;

	for (i = 0; i < 2; i++) {
		struct vcache_meta_head *h = (void *)disk_at(d, at[i]);

		((u8 *)h)[offset] = value;
		h->crc = 0;
		h->crc = cpu_to_le32(vcache_crc32c(h, VC_BLOCK_SIZE));
	}
}

/* Pools created before the table had space to grow. */
static void test_without_room(void)
{
	struct vcache_geometry g;
	struct disk d;

	disk_init(&d, SMALL, 1);
	CHECK(!format(&d, KEY, 16));
	edit(&d, offsetof(struct vcache_super_disk, incompat), 0);
	edit(&d, offsetof(struct vcache_super_disk, max_chunks), 9);
	CHECK(!super_load(&d, &g));
	CHECK(g.chunks == SMALL / 16 && g.max_chunks == g.chunks);
	CHECK(vcache_geometry_resize(&g, g.chunks + 1) == -EFBIG);
	free(d.data);
}

static void test_refused(void)
{
	static const struct {
		size_t offset;
		u8 value;
		int result;
	} cases[] = {
		{ offsetof(struct vcache_super_disk, compat), 1, 0 },
		{ offsetof(struct vcache_super_disk, ro_compat), 1, -EOPNOTSUPP },
		{ offsetof(struct vcache_super_disk, incompat), 7, 0 },
		{ offsetof(struct vcache_super_disk, incompat), 15, -EOPNOTSUPP },
		{ offsetof(struct vcache_super_disk, max_chunks), 24, -EBADMSG },
		{ offsetof(struct vcache_super_disk, max_chunks) + 3, 255, -EBADMSG },
		{ offsetof(struct vcache_super_disk, incompat) + 7, 1,
		  -EOPNOTSUPP },
		{ offsetof(struct vcache_meta_head, version), 2, -EOPNOTSUPP },
		{ offsetof(struct vcache_super_disk, chunks), 99, -ENXIO },
		{ offsetof(struct vcache_super_disk, chunks), 3, -EBADMSG },
		{ offsetof(struct vcache_super_disk, chunk_blocks), 8, -EBADMSG },
		{ offsetof(struct vcache_super_disk, slot_blocks), 1, -EBADMSG },
		{ offsetof(struct vcache_meta_head, type), 2, -EBADMSG },
		{ offsetof(struct vcache_meta_head, magic), 2, -EBADMSG },
	};
	struct vcache_geometry g;
	struct disk d;
	unsigned int i;

	disk_init(&d, SMALL, 1);
	CHECK(super_load(&d, &g) == -ENODATA);
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		CHECK(!format(&d, KEY, 16));
		CHECK(!super_load(&d, &g));
		edit(&d, cases[i].offset, cases[i].value);
		CHECK(super_load(&d, &g) == cases[i].result);
		/* The same when only the second one is left. */
		memset(d.data, 0x55, VC_BLOCK_SIZE);
		CHECK(super_load(&d, &g) == (cases[i].result ?: 1));
	}
	CHECK(!format(&d, KEY, 16));
	d.blocks = SMALL - 16;
	CHECK(super_load(&d, &g) == -ENXIO);
	d.blocks = SMALL;
	free(d.data);
}

/* All blocks of the pool are there, with this key. */
static void check_whole(struct disk *d, const struct vcache_geometry *g)
{
	struct vcache_store st = disk_store(d);
	u32 i;

	for (i = 0; i < g->slot_blocks; i++)
		CHECK(vcache_meta_load(&st, g, VC_META_SLOTS, i, block, spare) >=
		      0);
	for (i = 0; i < g->table_blocks; i++)
		CHECK(vcache_meta_load(&st, g, VC_META_TABLE, i, block, spare) >=
		      0);
}

/* Power fails at each write of a format, over garbage and an older pool. */
static void test_format(u32 older)
{
	struct vcache_geometry g;
	struct vcache_super sb;
	struct disk d;
	unsigned long n;
	bool done;

	for (n = 1, done = false; !done; n++) {
		struct vcache_store st;
		int r;

		disk_init(&d, SMALL, n);
		st = disk_store(&d);
		memset(d.data, 0x55, SMALL * VC_BLOCK_SIZE);
		if (older)
			CHECK(!format(&d, KEY + 1, older));
		d.crash_at = d.writes + n;
		done = !format(&d, KEY, 32);
		r = super_load(&d, &g);
		if (r < 0)
			r = vcache_super_find(&st, d.blocks, &g, &sb, block,
					      spare);
		CHECK(!done || (!r && g.key == KEY));
		if (r >= 0)
			check_whole(&d, &g);
		/* The older pool is not found. */
		if (done) {
			memset(d.data, 0x55, VC_BLOCK_SIZE);
			CHECK(super_load(&d, &g) == 1 && g.key == KEY);
		}
		free(d.data);
	}
	CHECK(n > 2 * 66);
}

int main(int argc, char **argv)
{
	test_geometry();
	test_resize();
	test_places();
	test_strangers();
	test_torn();
	test_newer();
	test_write_error();
	check_seeds(argc, argv, 100, test_crashes);
	check_seeds(argc, argv, 100, test_rot);
	test_search(1 << 15);
	test_search(20ULL << 20);
	test_without_room();
	test_refused();
	test_format(0);
	test_format(16);
	test_format(32);
	return 0;
}
