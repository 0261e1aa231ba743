// SPDX-License-Identifier: GPL-2.0
/*
 * Single cases of seals and replay that random histories reach too rarely, or never,
 * since no writer produces them.
 */
#include "disk.h"
#include "../../native/core/crc32c.h"
#include "../../native/core/recover.h"

#define KEY 0x6b65796b65796b65ULL
#define SLOT 2
#define VOLUME 4
#define LIMIT 10000

struct pool {
	struct disk d;
	struct vcache_store st;
	struct vcache_geometry g;
	struct vcache_index ix;
	struct vcache_found *found;
	struct vcache_replay rp;
	u8 *work;
	u32 c;	/* the first chunk for data */
};

static void pool_init(struct pool *p, u32 chunk_blocks, u64 blocks,
		      uint64_t seed)
{
	memset(p, 0, sizeof(*p));
	disk_init(&p->d, blocks, seed);
	p->st = disk_store(&p->d);
	CHECK(!vcache_geometry_set(&p->g, KEY, chunk_blocks, blocks));
	p->c = p->g.first_chunk;
	p->ix.cells = blocks;
	p->ix.buckets = vcache_index_buckets(blocks);
	p->ix.where = calloc(blocks, sizeof(u64));
	p->ix.next = calloc(blocks, sizeof(u16));
	p->ix.slot = calloc(p->g.chunks, sizeof(u16));
	p->ix.chunk_cells = chunk_blocks;
	p->ix.head = calloc(p->ix.buckets, sizeof(u32));
	p->found = calloc(p->g.chunks, sizeof(*p->found));
	p->work = malloc(vcache_replay_work_size(&p->g));
	p->d.bad = calloc(blocks, sizeof(bool));
}

static void pool_free(struct pool *p)
{
	free(p->d.data);
	free(p->d.bad);
	free(p->ix.where);
	free(p->ix.next);
	free(p->ix.head);
	free(p->ix.slot);
	free(p->found);
	free(p->work);
}

static u8 *at(struct pool *p, u32 chunk, u32 place)
{
	return disk_at(&p->d, (u64)chunk * p->g.chunk_blocks + place);
}

/* A record of one entry; of a discard the mask is 0. */
static void put(struct pool *p, u32 chunk, u32 place, u64 gen, u64 seq,
		u16 tag, u64 block, u8 mask)
{
	struct vcache_log_info info = {
		.gen = gen, .seq = seq, .volume = VOLUME, .chunk = chunk,
		.tag = tag, .type = VC_LOG_RECORD, .at = place, .nr = 1,
		.data = !!mask };
	struct vcache_entry e = { .block = block, .mask = mask, .arg = 1,
			      .place = place + !!mask };

	memset(at(p, chunk, place), 0, VC_BLOCK_SIZE);
	if (mask) {
		memset(at(p, chunk, place + 1), seq, VC_BLOCK_SIZE);
		e.arg = vcache_crc32c(at(p, chunk, place + 1), VC_BLOCK_SIZE);
	}
	vcache_log_put_entry(at(p, chunk, place), 0, &e);
	vcache_log_finish(at(p, chunk, place), KEY, &info);
}

/* Scan, sort, replay. Return: result of the last failed vcache_replay_chunk(). */
static int replay(struct pool *p, bool readonly)
{
	u8 block[VC_BLOCK_SIZE];
	u32 list[64], n = 0, c;
	int r, failed = 0;

	vcache_index_init(&p->ix);
	p->rp = (struct vcache_replay){
		.st = &p->st, .g = &p->g, .ix = &p->ix, .chunk = p->found,
		.slot = SLOT, .work = p->work, .readonly = readonly,
		.limit = LIMIT };
	for (c = p->c; c < p->g.chunks; c++) {
		r = vcache_chunk_scan(&p->st, &p->g, c, 0, block, &p->found[c]);
		failed = r ? r : failed;
		if (p->found[c].gen)
			list[n++] = c;
	}
	vcache_chunks_sort(list, n, p->found);
	for (c = 0; c < n; c++) {
		r = vcache_replay_chunk(&p->rp, list[c]);
		failed = r ? r : failed;
	}
	vcache_replay_finish(&p->rp, list, n);
	return failed;
}

static bool has(struct pool *p, u64 block, u32 chunk, u32 place)
{
	return vcache_index_find(&p->ix, SLOT, block, 1) ==
	       chunk * p->g.chunk_blocks + place;
}

static bool has_none(struct pool *p, u64 block)
{
	return vcache_index_find(&p->ix, SLOT, block, VC_MASK_ALL) ==
	       VC_CELL_NONE;
}

/* Any of the three places that name the owner of a chunk is sufficient. */
static void test_scan(void)
{
	u8 block[VC_BLOCK_SIZE];
	struct vcache_found found;
	struct pool p;
	u32 places[3], keep, i;

	pool_init(&p, 16, 400, 1);
	places[0] = 0;
	places[1] = vcache_seal_place(&p.g, 0);
	places[2] = vcache_seal_place(&p.g, 1);
	for (keep = 0; keep < 3; keep++) {
		memset(at(&p, p.c, 0), 0, 16 * VC_BLOCK_SIZE);
		put(&p, p.c, 0, 10, 10, 1, 5, 0xff);
		CHECK(!replay(&p, false));
		for (i = 0; i < 3; i++) {
			if (i != keep)
				memset(at(&p, p.c, places[i]), 0x55,
				       VC_BLOCK_SIZE);
		}
		CHECK(!replay(&p, true));
		CHECK(has(&p, 5, p.c, 1));
		CHECK(p.found[p.c].damaged == (keep > 0));
		CHECK(p.found[p.c].stale == (keep > 0));
		CHECK(p.found[p.c].volume == VOLUME && p.found[p.c].tag == 1);
		for (i = 0; i < 3; i++)
			p.d.bad[p.c * 16 + places[i]] = i != keep;
		CHECK(!vcache_chunk_scan(&p.st, &p.g, p.c, 9, block, &found));
		CHECK(found.gen == 10);
		CHECK(vcache_chunk_scan(&p.st, &p.g, p.c, 10, block, &found) ==
		      -EIO);
		CHECK(!found.gen);
		memset(p.d.bad, 0, 400);
	}
	pool_free(&p);
}

/* Behind a damaged record, and block that cannot be read, others count. */
static void test_damaged(void)
{
	struct pool p;

	pool_init(&p, 16, 400, 1);
	put(&p, p.c, 0, 10, 10, 1, 5, 0xff);
	put(&p, p.c, 2, 10, 11, 1, 6, 0xff);
	put(&p, p.c, 4, 10, 12, 1, 7, 0xff);
	put(&p, p.c, 6, 10, 13, 1, 8, 0xff);
	at(&p, p.c, 2)[100]++;
	p.d.bad[p.c * 16 + 4] = true;
	CHECK(replay(&p, false) == -EIO);
	CHECK(p.rp.errors == 1);
	CHECK(has(&p, 5, p.c, 1) && has(&p, 8, p.c, 7));
	CHECK(has_none(&p, 6) && has_none(&p, 7));
	/* It was not sealed without that. */
	p.d.bad[p.c * 16 + 4] = false;
	CHECK(!replay(&p, false));
	CHECK(has(&p, 5, p.c, 1) && has(&p, 7, p.c, 5) && has(&p, 8, p.c, 7));
	CHECK(has_none(&p, 6));
	pool_free(&p);
}

/* Data that looks like a record is not accepted. */
static void test_lookalike(void)
{
	struct vcache_log_info info = {
		.gen = 10, .seq = 10, .volume = VOLUME, .tag = 1,
		.type = VC_LOG_RECORD, .nr = 1, .data = 1 };
	struct vcache_entry e = { .block = 5, .mask = 0xff, .place = 1 };
	struct pool p;

	pool_init(&p, 16, 400, 1);
	put(&p, p.c, 1, 10, 11, 1, 6, 0xff);
	info.chunk = p.c;
	e.arg = vcache_crc32c(at(&p, p.c, 1), VC_BLOCK_SIZE);
	vcache_log_put_entry(at(&p, p.c, 0), 0, &e);
	vcache_log_finish(at(&p, p.c, 0), KEY, &info);
	CHECK(!replay(&p, false));
	CHECK(has(&p, 5, p.c, 1) && has_none(&p, 6));
	pool_free(&p);
}

/* Entries that no writer makes. */
static void test_impossible(void)
{
	struct vcache_log_info info = { .gen = 10, .seq = 10, .volume = VOLUME,
				    .tag = 1, .revision = 1 };
	const struct vcache_entry e[] = {
		{ .block = 5, .mask = 0xff, .place = 1 },
		{ .block = 6, .mask = 0xff, .place = 1 },
		{ .block = 5, .mask = 0x01, .place = 1 },
		{ .block = LIMIT, .mask = 0xff, .place = 2 },
		{ .block = LIMIT - 1, .mask = 0xff, .place = 3 },
	};
	struct pool p;
	u32 i;

	pool_init(&p, 16, 400, 1);
	info.chunk = p.c;
	for (i = 0; i < 5; i++)
		vcache_seal_put(at(&p, p.c, vcache_chunk_capacity(&p.g)), i, &e[i]);
	vcache_seal_copies(&p.g, at(&p, p.c, vcache_chunk_capacity(&p.g)), 5, &info);
	CHECK(!replay(&p, true));
	CHECK(p.rp.errors == 3);
	CHECK(has(&p, 5, p.c, 1) && has_none(&p, 6));
	CHECK(has_none(&p, LIMIT) && has(&p, LIMIT - 1, p.c, 3));
	pool_free(&p);
}

/* Another log discards what a later chunk has older entries of. */
static void test_discard_meets(void)
{
	struct pool p;
	int i;

	pool_init(&p, 16, 400, 1);
	/* Tag 2 from 20 to 61, tag 1 from 31 to 70. */
	put(&p, p.c, 0, 20, 20, 2, 1, 0xff);
	put(&p, p.c + 1, 0, 31, 31, 1, 5, 0xff);
	put(&p, p.c + 1, 2, 31, 40, 1, 6, 0xff);
	put(&p, p.c, 2, 20, 60, 2, 6, 0);
	put(&p, p.c, 3, 20, 61, 2, 5, 0xff);
	put(&p, p.c, 5, 20, 62, 2, 5, 0);
	put(&p, p.c + 1, 4, 31, 70, 1, 7, 0xff);
	put(&p, p.c + 1, 6, 31, 71, 1, 7, 0);
	put(&p, p.c + 1, 7, 31, 72, 1, 7, 0xff);
	for (i = 0; i < 4; i++) {
		CHECK(!replay(&p, i % 2));
		CHECK(has(&p, 1, p.c, 1) && has_none(&p, 5));
		CHECK(has_none(&p, 6) && has(&p, 7, p.c + 1, 8));
		CHECK(p.found[p.c + 1].stale && p.found[p.c + 1].lost);
	}
	pool_free(&p);
}

/* Rule 2: the older chunks of a stale one's log, if they lost entries. */
static void test_stale(void)
{
	struct pool p;

	pool_init(&p, 16, 400, 1);
	put(&p, p.c, 0, 10, 10, 1, 5, 0xff);
	put(&p, p.c + 1, 0, 20, 20, 1, 6, 0xff);
	put(&p, p.c + 2, 0, 30, 30, 1, 5, 0xff);
	put(&p, p.c + 3, 0, 40, 40, 2, 7, 0xff);
	put(&p, p.c + 4, 0, 50, 50, 1, 8, 0xff);
	put(&p, p.c + 5, 0, 60, 60, 1, 8, 0xff);
	CHECK(!replay(&p, false));
	CHECK(p.found[p.c].lost && !p.found[p.c].stale);
	put(&p, p.c + 3, 2, 40, 41, 2, 5, 0x01);
	memset(at(&p, p.c + 3, vcache_chunk_capacity(&p.g)), 0, 2 * VC_BLOCK_SIZE);
	CHECK(!replay(&p, false));
	CHECK(p.found[p.c].stale && !p.found[p.c + 1].stale);
	CHECK(p.found[p.c + 2].stale && !p.found[p.c + 3].stale);
	/* It lost an entry, but is newer. */
	CHECK(p.found[p.c + 4].lost && !p.found[p.c + 4].stale);
	CHECK(!p.found[p.c + 5].stale);
	pool_free(&p);
}

/* ---- seals of two blocks that are rewritten repeatedly ---- */

#define N 500	/* entries */

static void seal_first(struct pool *p)
{
	struct vcache_log_info info = { .gen = 10, .seq = 15, .volume = VOLUME,
				    .chunk = p->c, .tag = 1, .revision = 1 };
	u8 *seal = calloc(VC_SEAL_COPIES, vcache_seal_bytes(&p->g));
	struct vcache_entry e = { .mask = 0xff };
	u32 i;

	for (i = 0; i < N; i++) {
		e.block = i;
		e.place = 1 + i;
		vcache_seal_put(seal, i, &e);
		vcache_index_put(&p->ix, p->c * p->g.chunk_blocks + e.place, SLOT,
				 i, 0xff);
	}
	vcache_seal_copies(&p->g, seal, N, &info);
	CHECK(!p->st.write(&p->d, (u64)p->c * p->g.chunk_blocks +
			   vcache_chunk_capacity(&p->g), 2 * p->g.seal_blocks, seal));
	free(seal);
}

/* Is the seal that of the index when @cut entries had been taken from it? */
static bool seal_is(struct pool *p, u32 cut, u32 *bad)
{
	struct vcache_seal s;
	struct vcache_entry e;
	u32 i, k, n = 0;

	CHECK(vcache_seal_load(&p->st, &p->g, p->c, 10, p->work, &s));
	CHECK(s.info.seq == 15 && s.info.tag == 1);
	*bad = s.bad;
	for (i = 0; i < p->g.seal_blocks; i++) {
		u8 *block = s.block + i * VC_BLOCK_SIZE;
		const struct vcache_log_head *h = (void *)block;

		for (k = 0; k < le16_to_cpu(h->nr); k++, n++) {
			vcache_log_get_entry(block, k, &e);
			if (e.block != cut + n || e.place != 1 + cut + n ||
			    e.mask != 0xff)
				return false;
		}
	}
	return n == N - cut;
}

/* The power fails in half of the rewrites; removed entries stay removed. */
static void test_seal_crashes(uint64_t seed)
{
	u32 touched[VC_CELLS_PER_BLOCK], cut = 0, known = 0, bad, i, more;
	struct pool p;

	pool_init(&p, 1024, 5000, seed);
	CHECK(p.g.seal_blocks == 4);
	vcache_index_init(&p.ix);
	seal_first(&p);
	while (cut < N) {
		more = 1 + check_below(&p.d.rng, 60);
		for (i = 0; i < more && cut < N; i++, cut++)
			vcache_index_cut(&p.ix, SLOT, cut, 0xff, touched);
		p.d.crash_at = p.d.writes + 1 + check_below(&p.d.rng, 4);
		if (!vcache_chunk_reseal(&p.st, &p.g, &p.ix, p.c, 10, p.work)) {
			CHECK(seal_is(&p, cut, &bad) && !bad);
			known = cut;
		} else {
			p.d.dead = false;
			CHECK(seal_is(&p, cut, &bad) ||
			      seal_is(&p, known, &bad));
			if (seal_is(&p, cut, &bad))
				known = cut;
		}
		p.d.crash_at = 0;
	}
	/* Each copy alone is sufficient. */
	CHECK(!vcache_chunk_reseal(&p.st, &p.g, &p.ix, p.c, 10, p.work));
	i = check_below(&p.d.rng, 2);
	at(&p, p.c, vcache_seal_place(&p.g, i) + 3)[7]++;
	CHECK(seal_is(&p, N, &bad) && bad == 1U << i);
	at(&p, p.c, vcache_seal_place(&p.g, !i))[7]++;
	CHECK(vcache_chunk_reseal(&p.st, &p.g, &p.ix, p.c, 10, p.work) ==
	      -EBADMSG); /* there are no records */
	pool_free(&p);
}

/* Part of a block stays, discards stay. */
static void test_reseal(void)
{
	u32 touched[VC_CELLS_PER_BLOCK];
	struct vcache_entry e;
	struct vcache_seal s;
	struct pool p;

	pool_init(&p, 16, 400, 1);
	put(&p, p.c, 0, 10, 10, 1, 5, 0x0f);
	put(&p, p.c, 2, 10, 11, 1, 6, 0xff);
	put(&p, p.c, 4, 10, 12, 1, 9, 0);
	CHECK(!replay(&p, false));
	vcache_index_cut(&p.ix, SLOT, 5, 0x03, touched);
	vcache_index_cut(&p.ix, SLOT, 6, 0xff, touched);
	CHECK(!vcache_chunk_reseal(&p.st, &p.g, &p.ix, p.c, 10, p.work));
	CHECK(vcache_seal_load(&p.st, &p.g, p.c, 10, p.work, &s));
	CHECK(s.info.nr == 2 && s.info.revision == 2 && s.info.seq == 12);
	vcache_log_get_entry(s.block, 0, &e);
	CHECK(e.block == 5 && e.mask == 0x0c && e.place == 1);
	vcache_log_get_entry(s.block, 1, &e);
	CHECK(e.block == 9 && !e.mask && e.arg == 1 && e.place == 4);
	CHECK(vcache_chunk_reseal(&p.st, &p.g, &p.ix, p.c, 11, p.work) ==
	      -EBADMSG);
	pool_free(&p);
}

/*
 * The seal could not be written, or a record had failed. The new seal has what the index
 * has, and the discards.
 */
static void test_seal_from_records(void)
{
	u32 touched[VC_CELLS_PER_BLOCK];
	struct vcache_entry e;
	struct vcache_seal s;
	struct pool p;

	pool_init(&p, 16, 400, 1);
	/* What the chunk had in its former life is behind its records. */
	put(&p, p.c, 8, 9, 9, 1, 6, 0xff);
	put(&p, p.c, 0, 10, 10, 1, 5, 0x0f);
	put(&p, p.c, 2, 10, 11, 1, 6, 0xff);
	put(&p, p.c, 4, 10, 12, 1, 9, 0);
	put(&p, p.c, 6, 10, 13, 1, 7, 0xff);
	CHECK(!replay(&p, true));
	/* The last record had failed, and was not acknowledged. */
	vcache_index_cut(&p.ix, SLOT, 7, 0xff, touched);
	vcache_index_cut(&p.ix, SLOT, 5, 0x03, touched);
	CHECK(!vcache_chunk_reseal(&p.st, &p.g, &p.ix, p.c, 10, p.work));
	CHECK(vcache_seal_load(&p.st, &p.g, p.c, 10, p.work, &s));
	CHECK(s.info.nr == 3 && s.info.revision == 1 && s.info.seq == 13);
	CHECK(s.info.tag == 1 && s.info.volume == VOLUME && !s.bad);
	vcache_log_get_entry(s.block, 0, &e);
	CHECK(e.block == 5 && e.mask == 0x0c && e.place == 1);
	vcache_log_get_entry(s.block, 1, &e);
	CHECK(e.block == 6 && e.mask == 0xff && e.place == 3);
	vcache_log_get_entry(s.block, 2, &e);
	CHECK(e.block == 9 && !e.mask && e.arg == 1 && e.place == 4);
	CHECK(!replay(&p, true));
	CHECK(has(&p, 6, p.c, 3) && has_none(&p, 7));

	/* A block that may be a record cannot be read. */
	memset(at(&p, p.c, vcache_seal_place(&p.g, 0)), 0, VC_BLOCK_SIZE);
	memset(at(&p, p.c, vcache_seal_place(&p.g, 1)), 0, VC_BLOCK_SIZE);
	p.d.bad[p.c * p.g.chunk_blocks + 2] = true;
	CHECK(vcache_chunk_reseal(&p.st, &p.g, &p.ix, p.c, 10, p.work) == -EIO);
	CHECK(!vcache_seal_load(&p.st, &p.g, p.c, 10, p.work, &s));
	pool_free(&p);
}

/* Give the record of put() other flags, and another checksum of its data. */
static void change(struct pool *p, u32 chunk, u32 place, u16 flags, u32 sum)
{
	struct vcache_log_info info;
	struct vcache_entry e;

	CHECK(vcache_log_parse(at(p, chunk, place), &p->g, chunk, place, &info));
	vcache_log_get_entry(at(p, chunk, place), 0, &e);
	e.arg = sum;
	info.flags = flags;
	vcache_log_put_entry(at(p, chunk, place), 0, &e);
	vcache_log_finish(at(p, chunk, place), KEY, &info);
}

/* Data without checksums is valid with its record, also in a seal that is made from records. */
static void test_unchecked(void)
{
	struct vcache_seal s;
	struct pool p;

	pool_init(&p, 16, 400, 1);
	put(&p, p.c, 0, 10, 10, 1, 5, 0xff);
	put(&p, p.c, 2, 10, 11, 1, 6, 0xff);
	put(&p, p.c, 4, 10, 12, 1, 7, 0xff);
	change(&p, p.c, 2, 0, 0);
	change(&p, p.c, 4, VC_RECORD_UNCHECKED, 0);
	CHECK(!replay(&p, true));
	CHECK(has(&p, 5, p.c, 1) && has_none(&p, 6) && has(&p, 7, p.c, 5));
	CHECK(p.rp.bad_blocks == 1);
	CHECK(!vcache_chunk_reseal(&p.st, &p.g, &p.ix, p.c, 10, p.work));
	CHECK(vcache_seal_load(&p.st, &p.g, p.c, 10, p.work, &s));
	CHECK(s.info.nr == 2 && !s.bad && !s.info.flags);
	CHECK(!replay(&p, true));
	CHECK(has(&p, 5, p.c, 1) && has_none(&p, 6) && has(&p, 7, p.c, 5));
	pool_free(&p);
}

int main(int argc, char **argv)
{
	test_scan();
	test_damaged();
	test_lookalike();
	test_impossible();
	test_discard_meets();
	test_stale();
	test_reseal();
	test_seal_from_records();
	test_unchecked();
	check_seeds(argc, argv, 60, test_seal_crashes);
	return 0;
}
