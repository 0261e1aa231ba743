// SPDX-License-Identifier: GPL-2.0-only
/*
 * The simulation: bios, and devices with a model of what survives a power cut.
 *
 * DOC: Devices
 *
 * A request under way has one of two states: it waits, or the device has done it (reads and
 * FLUSH: at completion). Requests are done and completed in any order that the scheduler
 * chooses. A write that is done is in the volatile cache of the device, or durable: if it has
 * FUA, or if the device has no volatile cache. FLUSH makes durable what had been completed
 * when it was sent. At a power cut each sector of a write that is in the volatile cache, or
 * under way, survives or does not, by a seeded choice. A sector never tears.
 *
 * A device holds an array of blocks that never change, so an image of it is a copy of the
 * array. The hash of an image is the sum of those of its blocks.
 */
#include <sys/mman.h>

#include "sim.h"

#define PIECE 256U	/* most sectors of a write in the volatile cache */
#define POOL (2048UL << 20)

/* So many writes fit in the volatile cache of a device; then the oldest is written back. */
#define CACHED 40

/* A write in the volatile cache of a device, or under way. */
struct piece {
	struct list_head node;
	sector_t at;
	u32 n;
	u64 seq;
	u64 live[PIECE / 64];	/* sectors that no later durable write has replaced */
	u8 data[];
};

struct request_ {
	struct list_head node;
	struct bio *bio;
	u64 seq;
	u64 at;
	bool done;
	bool fails;
	bool preflush;		/* a FLUSH that has not been done */
	u32 n;
	sector_t sector;
	u8 *data;
};

SIM_WORLD struct sim_disk sim_disks[SIM_DISKS];
SIM_WORLD u64 sim_disk_version;
SIM_WORLD u64 sim_disk_seq;

/* ---- blocks and images ---- */

static u8 *pool;
static size_t pool_top;
static struct sim_blk zero_blk;

static void *pool_alloc(size_t n)
{
	void *p;

	if (!pool) {
		pool = mmap(NULL, POOL, PROT_READ | PROT_WRITE, MAP_PRIVATE |
			    MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (pool == MAP_FAILED)
			abort();
	}
	n = (n + 15) & ~15UL;
	if (pool_top + n > POOL)
		SIM_BUG("no memory for images");
	p = pool + pool_top;
	pool_top += n;
	return p;
}

void sim_images_reset(void)
{
	/* What a rare long run has used is given back. */
	if (pool_top > 64UL << 20)
		madvise(pool, pool_top, MADV_DONTNEED);
	pool_top = 0;
}

size_t sim_images_mark(void)
{
	return pool_top;
}

void sim_images_release(size_t mark)
{
	pool_top = mark;
}

static u64 mix(u64 x)
{
	x = (x ^ x >> 32) * 0xd6e8feb86659fd93ULL;
	x = (x ^ x >> 32) * 0xd6e8feb86659fd93ULL;
	return x ^ x >> 32;
}

static u64 blk_hash(const u8 *data)
{
	const u64 *w = (const u64 *)data;
	u64 a = 1, b = 2, c = 3, d = 4;
	int i;

	for (i = 0; i < 512; i += 4) {
		a = (a ^ w[i]) * 0x9e3779b97f4a7c15ULL;
		b = (b ^ w[i + 1]) * 0xbf58476d1ce4e5b9ULL;
		c = (c ^ w[i + 2]) * 0x94d049bb133111ebULL;
		d = (d ^ w[i + 3]) * 0xd6e8feb86659fd93ULL;
		a ^= a >> 29;
		b ^= b >> 31;
		c ^= c >> 30;
		d ^= d >> 32;
	}
	return mix(a + mix(b + mix(c + mix(d))));
}

static u64 place_hash(u32 block, const struct sim_blk *b)
{
	return mix(b->hash + block * 0x9e3779b97f4a7c15ULL);
}

static const struct sim_blk *zero(void)
{
	if (!zero_blk.hash)
		zero_blk.hash = blk_hash(zero_blk.data);
	return &zero_blk;
}

struct sim_image sim_image_zero(u32 blocks)
{
	struct sim_image i = { .blocks = blocks };
	u32 b;

	i.blk = pool_alloc(blocks * sizeof(*i.blk));
	for (b = 0; b < blocks; b++) {
		i.blk[b] = zero();
		i.hash += place_hash(b, zero());
	}
	return i;
}

/* Keep an image over sim_images_reset(). Called when there are only images that are kept. */
struct sim_image sim_image_keep(const struct sim_image *i)
{
	struct sim_image k = *i;
	u32 b;

	k.blk = malloc(k.blocks * sizeof(*k.blk));
	for (b = 0; b < k.blocks; b++) {
		struct sim_blk *n;

		k.blk[b] = zero();
		if (i->blk[b]->hash == zero()->hash)
			continue;
		n = malloc(sizeof(*n));
		memcpy(n, i->blk[b], sizeof(*n));
		k.blk[b] = n;
	}
	return k;
}

/* Replace a part of a block. */
static const struct sim_blk *blk_write(const struct sim_blk *old, u32 off,
				       const u8 *data, u32 n)
{
	struct sim_blk *b;

	if (!memcmp(old->data + off, data, n))
		return old;
	b = pool_alloc(sizeof(*b));
	memcpy(b->data, old->data, SIM_BLOCK);
	memcpy(b->data + off, data, n);
	b->hash = blk_hash(b->data);
	return b;
}

void sim_stamp(void *to, u32 id, sector_t sector)
{
	u64 *w = to, v = (u64)id << 32 | (u32)(sector + 1);
	int i;

	if (!id)
		v = 0;
	for (i = 0; i < 64; i++)
		w[i] = v;
}

u32 sim_stamp_of(const void *from, sector_t sector)
{
	const u64 *w = from;
	u64 v = w[0];
	int i;

	for (i = 1; i < 64; i++) {
		if (w[i] != v)
			return SIM_FOREIGN;
	}
	if (!v)
		return 0;
	return (u32)v == (u32)(sector + 1) ? v >> 32 : SIM_FOREIGN;
}

/* ---- what is durable ---- */

/* Write pieces of blocks at once: much faster than by sectors. */
static void set_many(struct sim_disk *d, const struct sim_blk **to, sector_t at,
		     u32 n, const u8 *data)
{
	while (n) {
		u32 off = at % 8, len = min(n, 8 - off), b = at / 8;
		const struct sim_blk *blk = blk_write(to[b], off * SECTOR_SIZE, data,
						      len * SECTOR_SIZE);

		if (to == d->dur && blk != to[b])
			d->dur_hash += place_hash(b, blk) - place_hash(b, to[b]);
		to[b] = blk;
		at += len;
		n -= len;
		data += len * SECTOR_SIZE;
	}
}

/* A durable write replaces what older writes in the volatile cache have of its sectors. */
static void supersede(struct sim_disk *d, sector_t at, u32 n)
{
	struct piece *p, *next;

	list_for_each_entry_safe(p, next, &d->cached, node) {
		u64 any = 0;
		u32 i;

		if (p->at >= at + n || at >= p->at + p->n)
			continue;
		for (i = 0; i < p->n; i++) {
			if (p->at + i >= at && p->at + i < at + n)
				p->live[i / 64] &= ~(1ULL << i % 64);
			any |= p->live[i / 64];
		}
		if (any)
			continue;
		list_del(&p->node);
		sim_free(p);
	}
}

static void write_back(struct sim_disk *d, struct piece *p)
{
	u32 i, from = 0;

	for (i = 0; i <= p->n; i++) {
		if (i < p->n && p->live[i / 64] >> i % 64 & 1)
			continue;
		set_many(d, d->dur, p->at + from, i - from, p->data + from * SECTOR_SIZE);
		from = i + 1;
	}
	list_del(&p->node);
	sim_free(p);
}

static void do_write(struct sim_disk *d, sector_t at, u32 n, const u8 *data, bool fua)
{
	set_many(d, d->vis, at, n, data);
	if (fua || d->isolation == SIM_WRITE_THROUGH) {
		supersede(d, at, n);
		set_many(d, d->dur, at, n, data);
		return;
	}
	while (n) {
		u32 len = min(n, PIECE);
		struct piece *p = sim_zalloc(sizeof(*p) + len * SECTOR_SIZE, 0);

		p->at = at;
		p->n = len;
		p->seq = ++sim_disk_seq;
		memset(p->live, 0xff, sizeof(p->live));
		memcpy(p->data, data, len * SECTOR_SIZE);
		list_add_tail(&p->node, &d->cached);
		at += len;
		n -= len;
		data += len * SECTOR_SIZE;
	}
	while (list_count_nodes(&d->cached) > CACHED)
		write_back(d, list_first_entry(&d->cached, struct piece, node));
}

static void do_flush(struct sim_disk *d, u64 before)
{
	struct piece *p, *next;

	list_for_each_entry_safe(p, next, &d->cached, node) {
		if (p->seq <= before)
			write_back(d, p);
	}
}

/* ---- power cuts ---- */

static void survive(struct sim_image *img, sector_t at, u32 n, const u8 *data)
{
	while (n) {
		u32 off = at % 8, len = min(n, 8 - off), b = at / 8;
		const struct sim_blk *blk = blk_write(img->blk[b], off * SECTOR_SIZE, data,
						      len * SECTOR_SIZE);

		img->hash += place_hash(b, blk) - place_hash(b, img->blk[b]);
		img->blk[b] = blk;
		at += len;
		n -= len;
		data += len * SECTOR_SIZE;
	}
}

/* A write survives in whole, not at all, from or up to some sector, or in any sectors. */
static void survive_some(struct sim_image *img, enum sim_survival how,
			 struct sim_rng *rng, const struct piece *p, sector_t at,
			 u32 n, const u8 *data)
{
	u32 kind = how == SIM_EVERYTHING ? 0 : sim_below(rng, 5);
	u32 cut = kind == 2 || kind == 3 ? sim_below(rng, n + 1) : 0;
	u32 i, from = 0;

	for (i = 0; i < n; i++) {
		bool lost = (p && !(p->live[i / 64] >> i % 64 & 1)) || kind == 1 ||
			    (kind == 2 && i >= cut) || (kind == 3 && i < cut) ||
			    (kind == 4 && sim_chance(rng, 2));

		if (!lost)
			continue;
		survive(img, at + from, i - from, data + from * SECTOR_SIZE);
		from = i + 1;
	}
	survive(img, at + from, n - from, data + from * SECTOR_SIZE);
}

struct sim_image sim_disk_cut(struct sim_disk *d, enum sim_survival how,
			      struct sim_rng *rng)
{
	struct sim_image img = { .blocks = d->blocks, .hash = d->dur_hash };
	struct request_ *r;
	struct piece *p;

	img.blk = pool_alloc(d->blocks * sizeof(*img.blk));
	memcpy(img.blk, d->dur, d->blocks * sizeof(*img.blk));
	if (how == SIM_NOTHING)
		return img;
	list_for_each_entry(p, &d->cached, node)
		survive_some(&img, how, rng, p, p->at, p->n, p->data);
	list_for_each_entry(r, &d->queue, node) {
		if (r->data && !r->done && !r->preflush)
			survive_some(&img, how, rng, NULL, r->sector, r->n, r->data);
	}
	return img;
}

/* ---- devices ---- */

void sim_disk_init(int nr, const char *name, dev_t dev, u32 blocks,
		   enum sim_isolation isolation, const struct sim_image *image)
{
	struct sim_disk *d = &sim_disks[nr];

	BUG_ON(blocks > SIM_DISK_BLOCKS || blocks > image->blocks);
	d->bdev.bd_dev = dev;
	d->bdev.bd_disk = &d->gd;
	d->bdev.disk = d;
	d->bdev.name = name;
	d->gd.devt = dev;
	d->gd.part0 = &d->bdev;
	d->blocks = blocks;
	d->isolation = isolation;
	d->discards = nr != SIM_CACHE;
	memcpy(d->dur, image->blk, blocks * sizeof(*d->dur));
	memcpy(d->vis, image->blk, blocks * sizeof(*d->vis));
	d->dur_hash = image->hash;
	memset(&d->fault, 0, sizeof(d->fault));
	d->latency = 0;
	INIT_LIST_HEAD(&d->cached);
	INIT_LIST_HEAD(&d->queue);
}

/* All of the device has been written, as write @id. */
void sim_disk_fill(struct sim_disk *d, u32 id)
{
	u8 data[SIM_BLOCK];
	u32 b, s;

	for (b = 0; b < d->blocks; b++) {
		for (s = 0; s < 8; s++)
			sim_stamp(data + s * SECTOR_SIZE, id, b * 8 + s);
		set_many(d, d->vis, b * 8, 8, data);
		set_many(d, d->dur, b * 8, 8, data);
	}
}

struct block_device *sim_disk_find(const char *name)
{
	int i;

	for (i = 0; i < SIM_DISKS; i++) {
		if (sim_disks[i].blocks && !strcmp(sim_disks[i].bdev.name, name))
			return &sim_disks[i].bdev;
	}
	return NULL;
}

bool bdev_write_cache(struct block_device *bdev)
{
	return bdev->disk->isolation != SIM_WRITE_THROUGH;
}

bool bdev_fua(struct block_device *bdev)
{
	return bdev->disk->isolation == SIM_FUA;
}

sector_t bdev_nr_sectors(struct block_device *bdev)
{
	return bdev->disk ? bdev->disk->blocks * 8 : 0;
}

unsigned int bdev_max_discard_sectors(struct block_device *bdev)
{
	return bdev->disk->discards ? 1U << 16 : 0;
}

struct file *bdev_file_open_by_dev(dev_t dev, blk_mode_t mode, void *holder,
				   const void *ops)
{
	struct file *f = sim_zalloc(sizeof(*f), GFP_KERNEL);

	return f;
}

void fput(struct file *file)
{
	sim_free(file);
}

static void gather(struct bio *bio, u8 *to)
{
	struct bvec_iter it = bio->bi_iter;

	while (it.bi_size) {
		struct bio_vec bv = bio_iter_iovec(bio, it);

		memcpy_from_bvec(to, &bv);
		to += bv.bv_len;
		bio_advance_iter(bio, &it, bv.bv_len);
	}
}

static bool differs(struct bio *bio, const u8 *data)
{
	struct bvec_iter it = bio->bi_iter;

	while (it.bi_size) {
		struct bio_vec bv = bio_iter_iovec(bio, it);

		if (memcmp(data, bvec_kmap_local(&bv), bv.bv_len))
			return true;
		data += bv.bv_len;
		bio_advance_iter(bio, &it, bv.bv_len);
	}
	return false;
}

static void trace(const struct sim_disk *d, const struct request_ *r, const char *what)
{
	blk_opf_t o = r->bio->bi_opf;
	u32 i;

	if (!sim_verbose)
		return;
	fprintf(stderr, "[%lu.%llu]     %s %s%s%s %llu+%u %s%s", sim_jiffies, sim_steps,
		d->bdev.name,
		bio_op(r->bio) == REQ_OP_READ ? "read" : bio_op(r->bio) == REQ_OP_WRITE ?
		r->n ? "write" : "flush" : "discard", o & REQ_FUA ? " fua" : "",
		o & REQ_PREFLUSH ? " preflush" : "", r->sector, r->n, what,
		r->fails ? " (fails)" : "");
	for (i = 0; r->data && d == &sim_disks[SIM_ORIGIN] && i < r->n && i < 16; i++)
		fprintf(stderr, " %d", (int)sim_stamp_of(r->data + i * SECTOR_SIZE,
							r->sector + i));
	fputc('\n', stderr);
}

/* Does a request have the head of a record or seal? */
static bool has_head(const struct sim_disk *d, const struct request_ *r)
{
	static const u8 magic[] = { 'C', 'V', 'C', 'L' };
	u32 i;

	for (i = 0; i < r->n / 8; i++) {
		if (!memcmp(d->vis[r->sector / 8 + i]->data, magic, sizeof(magic)))
			return true;
	}
	return false;
}

/* Does a request meet the fault of its device? */
static bool meets(const struct sim_disk *d, const struct request_ *r)
{
	bool write = op_is_write(bio_op(r->bio));
	const struct sim_fault *f = &d->fault;

	if (f->to <= f->from || !(write ? f->writes : f->reads))
		return false;
	if (!r->n)
		return f->to - f->from >= (sector_t)d->blocks * 8;
	return r->sector < f->to && f->from < r->sector + r->n &&
	       (write || !f->heads || has_head(d, r));
}

void submit_bio_noacct(struct bio *bio)
{
	struct sim_disk *d = bio->bi_bdev->disk;
	struct request_ *r;

	sim_point();
	if (!d)
		SIM_BUG("a request without a device");
	r = sim_zalloc(sizeof(*r), GFP_KERNEL);
	r->bio = bio;
	r->seq = ++sim_disk_seq;
	r->at = sim_jiffies + (d->latency ? 1 + sim_below(&sim_rng, d->latency) : 0);
	r->sector = bio->bi_iter.bi_sector;
	r->n = bio_sectors(bio);
	if (r->sector + r->n > (sector_t)d->blocks * 8)
		SIM_BUG("a request beyond the end of its device");
	r->fails = meets(d, r);
	r->preflush = bio->bi_opf & REQ_PREFLUSH;
	if (bio_op(bio) == REQ_OP_DISCARD || bio_op(bio) == REQ_OP_WRITE_ZEROES) {
		r->data = sim_zalloc(r->n * SECTOR_SIZE, GFP_KERNEL);
	} else if (bio_op(bio) == REQ_OP_WRITE && r->n) {
		r->data = sim_alloc(r->n * SECTOR_SIZE, GFP_KERNEL);
		gather(bio, r->data);
		d->last = r->sector;
		sim_damage_sent(d, r->sector, r->n, r->data);
	}
	list_add_tail(&r->node, &d->queue);
	sim_disk_version++;
	trace(d, r, "sent");
}

static void scatter(struct sim_disk *d, struct request_ *r)
{
	struct bvec_iter it = r->bio->bi_iter;

	while (it.bi_size) {
		struct bio_vec bv = bio_iter_iovec(r->bio, it);
		u32 off = it.bi_sector % 8 * SECTOR_SIZE;
		u32 len = min(bv.bv_len, SIM_BLOCK - off);

		memcpy(bvec_kmap_local(&bv), d->vis[it.bi_sector / 8]->data + off, len);
		bio_advance_iter(r->bio, &it, len);
	}
}

/* The device does a write. If it fails, a part of it may have been done. */
static void perform(struct sim_disk *d, struct request_ *r)
{
	u32 n = r->n;

	r->done = true;
	trace(d, r, "done");
	if (!r->data)
		return;
	if (bio_op(r->bio) == REQ_OP_WRITE && differs(r->bio, r->data))
		SIM_BUG("the data of a write has changed while it was under way");
	if (r->fails)
		n = sim_order == SIM_RANDOM ? sim_below(&sim_rng, n + 1) : 0;
	if (n) {
		sector_t at = r->sector;
		const u8 *data = r->fails ? r->data : sim_damage(d, &at, n, r->data);

		do_write(d, at, n, data, r->bio->bi_opf & REQ_FUA && d->isolation == SIM_FUA);
		if (data != r->data)
			sim_free((void *)data);
	}
}

void sim_disk_writes(const struct sim_disk *d, void (*each)(sector_t at, u32 n, const u8 *data))
{
	struct request_ *r;

	list_for_each_entry(r, &d->queue, node) {
		if (r->data)
			each(r->sector, r->n, r->data);
	}
}

static void finish(struct sim_disk *d, struct request_ *r)
{
	struct bio *bio = r->bio;

	if (!r->done)
		perform(d, r);
	if (r->data && !r->fails && bio_op(bio) == REQ_OP_WRITE && differs(bio, r->data))
		SIM_BUG("the data of a write has changed while it was under way");
	if (!r->fails && r->preflush)
		do_flush(d, r->seq);
	/* FUA on a device without it: the block layer sends a FLUSH afterwards. */
	if (!r->fails && bio->bi_opf & REQ_FUA && d->isolation == SIM_DEGRADED)
		do_flush(d, sim_disk_seq);
	if (!r->fails && bio_op(bio) == REQ_OP_READ)
		scatter(d, r);
	if (!r->fails)
		sim_progress();
	list_del(&r->node);
	trace(d, r, "complete");
	bio->bi_status = r->fails ? BLK_STS_IOERR : BLK_STS_OK;
	/* As the block layer does. */
	bio->bi_iter.bi_sector += r->n;
	if (bio_op(bio) <= REQ_OP_WRITE)
		bio_advance_iter(bio, &bio->bi_iter, bio->bi_iter.bi_size),
		bio->bi_iter.bi_sector = r->sector + r->n;
	else
		bio->bi_iter.bi_size = 0;
	sim_free(r->data);
	sim_free(r);
	bio_endio(bio);
}

static bool may_run(const struct sim_disk *d, const struct request_ *r)
{
	return r->at <= sim_jiffies && !(d->fault.hang && meets(d, r));
}

unsigned int sim_disk_ready(u64 *next)
{
	unsigned int n = 0;
	struct request_ *r;
	int i;

	for (i = 0; i < SIM_DISKS; i++) {
		struct sim_disk *d = &sim_disks[i];

		if (!d->blocks)
			continue;
		list_for_each_entry(r, &d->queue, node) {
			if (may_run(d, r))
				n++;
			else if (r->at > sim_jiffies)
				*next = min(*next, r->at);
		}
	}
	return n;
}

/* Requests in the order in which they were sent, over all devices. */
static struct request_ *nth(unsigned int nr, struct sim_disk **of)
{
	struct request_ *r, *best;
	u64 after = 0;
	int i;

	do {
		best = NULL;
		for (i = 0; i < SIM_DISKS; i++) {
			struct sim_disk *d = &sim_disks[i];

			if (!d->blocks)
				continue;
			list_for_each_entry(r, &d->queue, node) {
				if (r->seq <= after || !may_run(d, r) ||
				    (best && best->seq < r->seq))
					continue;
				best = r;
				*of = d;
			}
		}
		BUG_ON(!best);
		after = best->seq;
	} while (nr--);
	return best;
}

void sim_disk_run(unsigned int nr)
{
	struct sim_disk *d = NULL;
	struct request_ *r = nth(nr, &d);

	sim_disk_version++;
	/* The block layer sends the FLUSH before the data, as a request of its own. */
	if (r->preflush && r->data) {
		do_flush(d, r->seq);
		r->preflush = false;
		return;
	}
	/* What a device does first need not be what it completes first. */
	if (sim_order == SIM_RANDOM && r->data && !r->done && sim_chance(&sim_rng, 4))
		perform(d, r);
	else
		finish(d, r);
}

bool sim_disk_hangs(void)
{
	int i;

	for (i = 0; i < SIM_DISKS; i++) {
		if (sim_disks[i].fault.hang)
			return true;
	}
	return false;
}

/* ---- bios ---- */

int bioset_init(struct bio_set *bs, unsigned int n, unsigned int front, int flags)
{
	bs->front = front;
	return 0;
}

struct bio *bio_alloc_bioset(struct block_device *bdev, unsigned short vecs,
			     blk_opf_t opf, gfp_t gfp, struct bio_set *bs)
{
	unsigned int front = bs ? bs->front : 0;
	u8 *m = sim_zalloc(front + sizeof(struct bio) + vecs * sizeof(struct bio_vec),
			   GFP_KERNEL);
	struct bio *bio = (struct bio *)(m + front);

	bio->memory = m;
	bio->bi_bdev = bdev;
	bio->bi_opf = opf;
	bio->bi_io_vec = bio->bi_inline_vecs;
	bio->bi_max_vecs = vecs;
	bio->__bi_remaining.counter = 1;
	bio->refs = 1;
	return bio;
}

struct bio *bio_alloc_clone(struct block_device *bdev, struct bio *src, gfp_t gfp,
			    struct bio_set *bs)
{
	struct bio *bio = bio_alloc_bioset(bdev, 0, src->bi_opf, gfp, bs);

	bio->bi_io_vec = src->bi_io_vec;
	bio->bi_iter = src->bi_iter;
	return bio;
}

void bio_reset(struct bio *bio, struct block_device *bdev, blk_opf_t opf)
{
	bio->bi_next = NULL;
	bio->bi_bdev = bdev;
	bio->bi_opf = opf;
	bio->bi_flags = 0;
	bio->bi_status = 0;
	memset(&bio->bi_iter, 0, sizeof(bio->bi_iter));
	bio->bi_end_io = NULL;
	bio->bi_private = NULL;
	bio->bi_vcnt = 0;
	bio->__bi_remaining.counter = 1;
}

void bio_put(struct bio *bio)
{
	if (--bio->refs)
		return;
	sim_free(bio->memory);
}

void bio_endio(struct bio *bio)
{
	if (bio_flagged(bio, BIO_CHAIN)) {
		if (--bio->__bi_remaining.counter > 0)
			return;
		bio_clear_flag(bio, BIO_CHAIN);
	}
	if (bio->bi_end_io)
		bio->bi_end_io(bio);
}

void __bio_add_page(struct bio *bio, struct page *page, unsigned int len,
		    unsigned int off)
{
	struct bio_vec *bv;

	if (bio->bi_vcnt >= bio->bi_max_vecs)
		SIM_BUG("a bio has no space for one more page");
	bv = &bio->bi_io_vec[bio->bi_vcnt++];
	bv->bv_page = page;
	bv->bv_len = len;
	bv->bv_offset = off;
	bio->bi_iter.bi_size += len;
}

int bio_add_page(struct bio *bio, struct page *page, unsigned int len,
		 unsigned int off)
{
	if (bio->bi_vcnt >= bio->bi_max_vecs)
		return 0;
	__bio_add_page(bio, page, len, off);
	return len;
}

struct bio_vec bio_iter_iovec(struct bio *bio, struct bvec_iter iter)
{
	struct bio_vec bv = bio->bi_io_vec[iter.bi_idx];

	bv.bv_offset += iter.bi_bvec_done;
	bv.bv_len = min(bv.bv_len - iter.bi_bvec_done, iter.bi_size);
	/* As with pages of their own: never beyond one page. */
	bv.bv_len = min(bv.bv_len, (unsigned int)PAGE_SIZE -
			bv.bv_offset % (unsigned int)PAGE_SIZE);
	return bv;
}

void bio_advance_iter(const struct bio *bio, struct bvec_iter *iter,
		      unsigned int bytes)
{
	iter->bi_sector += bytes >> SECTOR_SHIFT;
	if (bio_op(bio) > REQ_OP_WRITE) {
		iter->bi_size -= bytes;
		return;
	}
	while (bytes) {
		const struct bio_vec *bv = &bio->bi_io_vec[iter->bi_idx];
		unsigned int n = min(bytes, bv->bv_len - iter->bi_bvec_done);

		BUG_ON(n > iter->bi_size || !n);
		iter->bi_size -= n;
		iter->bi_bvec_done += n;
		bytes -= n;
		if (iter->bi_bvec_done == bv->bv_len) {
			iter->bi_bvec_done = 0;
			iter->bi_idx++;
		}
	}
}

static void wait_end(struct bio *bio)
{
	complete(bio->bi_private);
}

int submit_bio_wait(struct bio *bio)
{
	DECLARE_COMPLETION_ONSTACK(done);

	sim_may_sleep("submit_bio_wait");
	bio->bi_private = &done;
	bio->bi_end_io = wait_end;
	submit_bio_noacct(bio);
	wait_for_completion(&done);
	return blk_status_to_errno(bio->bi_status);
}

static int issue(struct block_device *bdev, blk_opf_t opf, sector_t at, sector_t n)
{
	struct bio *bio = bio_alloc_bioset(bdev, 0, opf, GFP_NOIO, NULL);
	int r;

	bio->bi_iter.bi_sector = at;
	bio->bi_iter.bi_size = n << SECTOR_SHIFT;
	r = submit_bio_wait(bio);
	bio_put(bio);
	return r;
}

int blkdev_issue_flush(struct block_device *bdev)
{
	return issue(bdev, REQ_OP_WRITE | REQ_PREFLUSH, 0, 0);
}

int blkdev_issue_discard(struct block_device *bdev, sector_t at, sector_t n, gfp_t gfp)
{
	if (!bdev->disk->discards)
		return -EOPNOTSUPP;
	return issue(bdev, REQ_OP_DISCARD, at, n);
}
