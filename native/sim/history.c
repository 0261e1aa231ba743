// SPDX-License-Identifier: GPL-2.0-only
/*
 * The simulation: a world with a pool and a volume, its histories, and power cuts.
 *
 * DOC: A case
 *
 * A world is restored from a copy that was made when it was set up. The requests of the history
 * run in it. After each step that changes what the devices could hold after a power cut, or what
 * the oracle asks for, the devices are cut: with nothing, everything, and some of what is not
 * durable. When the history has ended, each different image is attached to a new instance of
 * the module, all of the volume is read, and the oracle judges it. What was read is remembered
 * for the image, since many histories leave the same one.
 */
#include "history.h"

#include "vcache_uapi.h"

#define CUTS 4096
#define KNOWN (1U << 15)

#define A_END 12U
#define B_END 32U
#define HOST_FROM 32U

const struct sim_config sim_configs[] = {
	{ "writeback", "writeback", false, SIM_FUA, SIM_FUA, 32, 22, 28 },
	{ "degraded", "writeback", false, SIM_DEGRADED, SIM_DEGRADED, 32, 22, 28 },
	{ "plp", "writeback", false, SIM_WRITE_THROUGH, SIM_WRITE_THROUGH, 32, 22, 28 },
	{ "flush-only", "flush-only", false, SIM_FUA, SIM_FUA, 32, 0, 0 },
	{ "flush-only-degraded", "flush-only", false, SIM_DEGRADED, SIM_FUA, 32, 0, 0 },
	{ "writethrough", "writethrough", false, SIM_FUA, SIM_FUA, 32, 22, 28 },
	{ "volume", "writeback", true, SIM_FUA, SIM_FUA, 32, 22, 28 },
	{ "small", "writeback", false, SIM_FUA, SIM_FUA, 64, 16, 20 },
	{ "small-degraded", "writeback", false, SIM_DEGRADED, SIM_FUA, 64, 16, 20 },
};
const u32 sim_nconfigs = ARRAY_SIZE(sim_configs);

const char * const op_names[OP_KINDS] = {
	"write A", "write B", "untagged write", "FUA write", "flush A", "flush all",
	"discard", "mode change", "recreate tag", "resize", "promote",
	"read", "flush B", "drain", "drop cache", "suspend", "suspend --noflush", "time",
	"fail origin", "fail cache", "lose cache", "hang", "heal", "FUA write B", "fail chunk",
};

struct counts counts;

static struct sim_case *cur;
static u32 next_op;
static u32 under_way;
static bool content_bad;
static bool cache_failed;
static char content_text[256];

/* ---- the world ---- */

static struct sim_saved *blank;
static struct sim_saved *worlds[16];
static struct sim_image base_origin[16], base_cache[16];

SIM_WORLD static int setup_result;
SIM_WORLD static bool setup_done;
SIM_WORLD static struct cgroup roots, cg_a, cg_b;
SIM_WORLD static u32 read_content[ORACLE_SECTORS];
SIM_WORLD static int read_error;
/* What user space has saved of tag 1, and the session that it belongs to. */
#define SAVED_BLOCKS 4
SIM_WORLD static u8 saved_data[SAVED_BLOCKS][PAGE_SIZE];
SIM_WORLD static u64 saved_token;
SIM_WORLD static u64 damaged;

u32 sectors_of(const struct sim_config *c)
{
	return c->blocks * 8;
}

static const char *table_line(const struct sim_config *c)
{
	static char line[160];
	char pool[40] = "";

	if (c->chunks)
		snprintf(pool, sizeof(pool), " pool pool 1");
	snprintf(line, sizeof(line), "vcache %s origin %s %d age_ms 1000%s", c->mode,
		 c->volume ? "volume 1" : "filesystem", c->chunks ? 5 : 2, pool);
	return line;
}

static int tag_set(u32 id, int mode)
{
	dev_t d = sim_md_number(sim_md_find("vol"));
	u32 major = MAJOR(d), minor = MINOR(d), m = mode;
	u64 cgroup = id == 1 ? cg_a.id : cg_b.id;
	u64 ext_a[] = { 0, A_END, 64, 64 }, ext_b[] = { A_END, B_END - A_END, 128, 64 };
	struct sim_attr set[] = {
		{ VCACHE_A_TAG_MAJOR, &major, 4 }, { VCACHE_A_TAG_MINOR, &minor, 4 },
		{ VCACHE_A_TAG_ID, &id, 4 }, { VCACHE_A_TAG_CGROUP, &cgroup, 8 },
		{ VCACHE_A_TAG_MODE, &m, 4 },
	};
	struct sim_attr ext[] = {
		{ VCACHE_A_TAG_MAJOR, &major, 4 }, { VCACHE_A_TAG_MINOR, &minor, 4 },
		{ VCACHE_A_TAG_ID, &id, 4 },
		{ VCACHE_A_TAG_EXTENTS, id == 1 ? ext_a : ext_b, 32 },
		{ VCACHE_A_TAG_EXTENTS_BEGIN, NULL, 0 },
		{ VCACHE_A_TAG_EXTENTS_COMMIT, NULL, 0 },
	};
	int r;

	r = sim_genl(VCACHE_CMD_TAG_SET, set, mode < 0 ? 4 : 5);
	return r ?: sim_genl(VCACHE_CMD_TAG_EXTENTS, ext, 6);
}

/* Another mode of tag 1; its extents stay. */
static int tag_mode(int mode)
{
	dev_t d = sim_md_number(sim_md_find("vol"));
	u32 major = MAJOR(d), minor = MINOR(d), m = mode, id = 1;
	struct sim_attr set[] = {
		{ VCACHE_A_TAG_MAJOR, &major, 4 }, { VCACHE_A_TAG_MINOR, &minor, 4 },
		{ VCACHE_A_TAG_ID, &id, 4 }, { VCACHE_A_TAG_MODE, &m, 4 },
	};

	return sim_genl(VCACHE_CMD_TAG_SET, set, 4);
}

static int tag_simple(u8 cmd, u32 id, const void *runs, u16 len)
{
	dev_t d = sim_md_number(sim_md_find("vol"));
	u32 major = MAJOR(d), minor = MINOR(d);
	struct sim_attr a[] = {
		{ VCACHE_A_TAG_MAJOR, &major, 4 }, { VCACHE_A_TAG_MINOR, &minor, 4 },
		{ VCACHE_A_TAG_ID, &id, 4 }, { VCACHE_A_CACHED_RUNS, runs, len },
	};

	return sim_genl(cmd, a, runs ? 4 : 3);
}

static void read_end(struct bio *bio)
{
	complete(bio->bi_private);
}

/* Read the first blocks of the volume, as user space does to save them. Return: read? */
static bool read_saved(void)
{
	DECLARE_COMPLETION_ONSTACK(done);
	struct bio *bio = bio_alloc_bioset(NULL, SAVED_BLOCKS, REQ_OP_READ, GFP_NOIO, NULL);
	bool good;
	u32 i;

	for (i = 0; i < SAVED_BLOCKS; i++)
		__bio_add_page(bio, alloc_page(GFP_KERNEL), PAGE_SIZE, 0);
	bio->bi_private = &done;
	bio->bi_end_io = read_end;
	sim_md_submit(sim_md_find("vol"), bio);
	wait_for_completion(&done);
	good = !bio->bi_status;
	for (i = 0; i < SAVED_BLOCKS; i++) {
		memcpy(saved_data[i], page_address(bio->bi_io_vec[i].bv_page), PAGE_SIZE);
		__free_page(bio->bi_io_vec[i].bv_page);
	}
	bio_put(bio);
	return good;
}

/* Read all of the volume, as the oracle sees it. */
static void read_all(const struct sim_config *c)
{
	DECLARE_COMPLETION_ONSTACK(done);
	struct bio *bio = bio_alloc_bioset(NULL, c->blocks, REQ_OP_READ, GFP_NOIO, NULL);
	u32 i, s;

	for (i = 0; i < c->blocks; i++)
		__bio_add_page(bio, alloc_page(GFP_KERNEL), PAGE_SIZE, 0);
	bio->bi_private = &done;
	bio->bi_end_io = read_end;
	sim_md_submit(sim_md_find("vol"), bio);
	wait_for_completion(&done);
	read_error = blk_status_to_errno(bio->bi_status);
	for (i = 0; i < c->blocks; i++) {
		u8 *p = page_address(bio->bi_io_vec[i].bv_page);

		for (s = 0; s < 8; s++)
			read_content[i * 8 + s] = sim_stamp_of(p + s * SECTOR_SIZE,
							       i * 8 + s);
		__free_page(bio->bi_io_vec[i].bv_page);
	}
	bio_put(bio);
}

static int attach(const struct sim_config *c)
{
	struct mapped_device *pool, *vol;
	int r;

	r = sim_module_init();
	pool = sim_md_make("pool", 0);
	vol = sim_md_make("vol", 1);
	if (!r && c->chunks)
		r = sim_md_load(pool, c->more * 128, "vcache-pool cache 2 chunk_kib 64") ?:
		    sim_md_resume(pool);
	r = r ?: sim_md_load(vol, sectors_of(c), table_line(c));
	return r ?: sim_md_resume(vol);
}

static int attach_tags(const struct sim_config *c)
{
	if (c->volume)
		return 0;
	return tag_set(1, -1) ?: tag_set(2, -1);
}

static void setup_task(void *arg)
{
	const struct sim_config *c = arg;

	setup_result = attach(c) ?: attach_tags(c);
	setup_done = true;
}

/* Damaged chunks of the volume, which the status tells behind "cache VOLUME STATE". */
static u64 damaged_chunks(void)
{
	const char *at = strstr(sim_md_status(sim_md_find("vol")), " cache ");
	char state[24];
	u32 volume;
	u64 n[4];

	return at && sscanf(at, " cache %u %23s %llu %llu %llu %llu", &volume, state, &n[0], &n[1],
			    &n[2], &n[3]) == 6 ? n[3] : 0;
}

static void recover_task(void *arg)
{
	const struct sim_config *c = arg;

	setup_result = attach(c);
	if (!setup_result) {
		damaged = damaged_chunks();
		read_all(c);
	}
	setup_done = true;
}

static bool is_set_up(void)
{
	return setup_done;
}

static bool never(void)
{
	return false;
}

static void disks(const struct sim_config *c, const struct sim_image *origin,
		  const struct sim_image *cache, u32 cache_blocks)
{
	sim_disk_init(SIM_ORIGIN, "origin", MKDEV(8, 0), c->blocks, c->origin, origin);
	if (c->chunks)
		sim_disk_init(SIM_CACHE, "cache", MKDEV(8, 16), cache_blocks, c->cache,
			      cache);
}

static void new_world(enum sim_order order, u64 seed)
{
	sim_mem_reset();
	sim_restore(blank);
	if (cur)
		*sim_param_large_write_kib = cur->large;
	sim_sched_init(order, seed);
	roots.id = 1;
	cg_a.id = 101;
	cg_a.parent = &roots;
	cg_b.id = 102;
	cg_b.parent = &roots;
	sim_next_ready = NULL;
	sim_after_step = NULL;
}

void history_init(void)
{
	blank = sim_save(NULL);
}

static void must(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "sim: cannot set up: %s: %s\n", what, sim_bug_text);
	exit(4);
}

/* Make a pool on a smaller device first, so that it can grow. */
static struct sim_image formatted(const struct sim_config *c)
{
	struct sim_config first = *c;
	struct sim_image zero = sim_image_zero(c->more * 16), img;
	struct sim_rng rng = { 1 };
	u32 b;

	first.more = c->chunks;
	new_world(SIM_FIFO, 1);
	disks(&first, &zero, &zero, first.more * 16);
	sim_task_start(setup_task, &first, "setup");
	must(!sim_run(is_set_up, U64_MAX) && !setup_result, "the first attachment");
	sim_run(never, sim_jiffies + 2 * HZ);
	img = sim_disk_cut(&sim_disks[SIM_CACHE], SIM_EVERYTHING, &rng);
	zero.hash = 0;
	/* The same content on a larger device. */
	for (b = 0; b < img.blocks; b++)
		zero.blk[b] = img.blk[b];
	return zero;
}

static struct sim_image rehash(struct sim_image img)
{
	struct sim_disk *d = &sim_disks[SIM_CACHE];
	struct sim_image zero = sim_image_zero(img.blocks);
	struct sim_rng rng = { 1 };
	u32 b;

	/* Writing it says what its hash is. */
	new_world(SIM_FIFO, 1);
	sim_disk_init(SIM_CACHE, "cache", MKDEV(8, 16), img.blocks, SIM_WRITE_THROUGH, &zero);
	for (b = 0; b < img.blocks; b++) {
		struct bio *bio = bio_alloc_bioset(&d->bdev, 1, REQ_OP_WRITE, 0, NULL);
		struct page *p = alloc_page(GFP_KERNEL);

		memcpy(page_address(p), img.blk[b]->data, SIM_BLOCK);
		__bio_add_page(bio, p, SIM_BLOCK, 0);
		bio->bi_iter.bi_sector = b * 8;
		submit_bio_noacct(bio);
		sim_disk_run(0);
	}
	return sim_disk_cut(d, SIM_EVERYTHING, &rng);
}

static void make_world(const struct sim_config *c)
{
	u32 k = c - sim_configs;
	struct sim_image origin = sim_image_zero(c->blocks), cache = { 0 };
	struct sim_rng rng = { 1 };

	if (c->chunks)
		cache = rehash(formatted(c));
	new_world(SIM_FIFO, 1);
	disks(c, &origin, &cache, c->more * 16);
	sim_task_start(setup_task, (void *)c, "setup");
	must(!sim_run(is_set_up, U64_MAX) && !setup_result, "the second attachment");
	must(sim_run(never, sim_jiffies + 4 * HZ) == 1, "no rest");
	base_origin[k] = sim_image_zero(c->blocks);
	base_origin[k] = sim_image_keep(&base_origin[k]);
	if (c->chunks) {
		cache = sim_disk_cut(&sim_disks[SIM_CACHE], SIM_EVERYTHING, &rng);
		base_cache[k] = sim_image_keep(&cache);
	}
	disks(c, &base_origin[k], &base_cache[k], c->more * 16);
	setup_done = false;
	worlds[k] = sim_save(NULL);
	sim_images_reset();
}

/* ---- requests ---- */

void violation(const char *what)
{
	counts.violations++;
	printf("{\"violation\": \"");
	for (; *what; what++)
		putchar(*what == '"' || *what == '\\' || *what < ' ' ? '\'' : *what);
	printf("\", \"case\": \"%s\", \"config\": \"%s\", \"faults\": %s, "
	       "\"history\": [", cur->text, cur->config->name,
	       cur->faults ? "true" : "false");
	for (u32 i = 0; i < cur->nops; i++)
		printf("%s\"%s\"", i ? ", " : "", op_names[cur->op[i].kind]);
	printf("]}\n");
	fflush(stdout);
}

static void wrong(const char *what)
{
	if (!content_bad)
		snprintf(content_text, sizeof(content_text), "%s", what);
	content_bad = true;
}

static void say(const struct op *o, const char *what)
{
	if (sim_verbose)
		fprintf(stderr, "[%lu.%llu] %s %u..%u id %u: %s %d\n", sim_jiffies,
			sim_steps, op_names[o->kind], o->sector, o->sector + o->n, o->id, what,
			o->error);
}

static bool faulty(void)
{
	return cur->faults;
}

static void op_complete(struct op *o, int error)
{
	o->state = 2;
	o->error = error;
	under_way--;
	sim_progress();
	say(o, "complete");
	if (error && o->must)
		wrong("a request fails that no failed device concerns");
	if (error && !faulty() && o->kind <= OP_FLUSH_B && o->kind != OP_MODE &&
	    o->kind != OP_RECREATE && o->kind != OP_RESIZE && o->kind != OP_PROMOTE)
		wrong("a request fails, although no device does");
}

static void bio_finish(struct bio *bio)
{
	u32 i;

	for (i = 0; i < bio->bi_vcnt; i++)
		__free_page(bio->bi_io_vec[i].bv_page);
	bio_put(bio);
}

static void write_end(struct bio *bio)
{
	struct op *o = bio->bi_private;

	oracle_write_done(o->id, bio->bi_status);
	op_complete(o, blk_status_to_errno(bio->bi_status));
	bio_finish(bio);
}

static void discard_end(struct bio *bio)
{
	struct op *o = bio->bi_private;

	oracle_discard_done(o->id);
	op_complete(o, blk_status_to_errno(bio->bi_status));
	bio_finish(bio);
}

static void flush_end(struct bio *bio)
{
	struct op *o = bio->bi_private;

	oracle_flush_done(o->when, o->tag, bio->bi_status);
	op_complete(o, blk_status_to_errno(bio->bi_status));
	bio_finish(bio);
}

static void op_read_end(struct bio *bio)
{
	struct op *o = bio->bi_private;
	u32 s;

	for (s = 0; !bio->bi_status && s < o->n; s++) {
		u32 at = o->sector + s;
		u8 *p = page_address(bio->bi_io_vec[at / 8 - o->sector / 8].bv_page);
		const char *bad = oracle_read_done(o->when, at,
						   sim_stamp_of(p + at % 8 * SECTOR_SIZE, at));

		if (bad) {
			char text[160];

			snprintf(text, sizeof(text), "%s: sector %u shows %d", bad, at,
				 (int)sim_stamp_of(p + at % 8 * SECTOR_SIZE, at));
			wrong(text);
		}
	}
	op_complete(o, blk_status_to_errno(bio->bi_status));
	bio_finish(bio);
}

static struct bio *op_bio(struct op *o, blk_opf_t opf, bio_end_io_t *end)
{
	u32 from = o->sector / 8, to = o->n ? (o->sector + o->n - 1) / 8 : from, b;
	bool data = o->n && (opf & REQ_OP_MASK) <= REQ_OP_WRITE;
	struct bio *bio = bio_alloc_bioset(NULL, data ? to - from + 1 : 0, opf, 0, NULL);

	bio->bi_private = o;
	bio->bi_end_io = end;
	bio->bi_iter.bi_sector = o->sector;
	if (!data) {
		bio->bi_iter.bi_size = o->n * SECTOR_SIZE;
		return bio;
	}
	for (b = from; b <= to; b++) {
		struct page *p = alloc_page(GFP_KERNEL);
		u32 s0 = max(o->sector, b * 8), s1 = min(o->sector + o->n, b * 8 + 8), s;

		for (s = s0; s < s1; s++)
			sim_stamp((u8 *)page_address(p) + s % 8 * SECTOR_SIZE, o->id, s);
		__bio_add_page(bio, p, (s1 - s0) * SECTOR_SIZE, s0 % 8 * SECTOR_SIZE);
	}
	return bio;
}

/* Does a range belong to a tag? */
static bool owns(u32 tag, u32 sector, u32 n)
{
	u32 end = sector + n;

	if (tag == 1)
		return end <= A_END || (sector >= 64 && end <= 128);
	return (sector >= A_END && end <= B_END) || (sector >= 128 && end <= 192);
}

/*
 * May the target split a write, so that the parts have different tags? Then nothing else is promised
 * for the whole than that a flush of the writer covers it.
 */
static bool may_split(u32 tag, const struct op *o)
{
	u32 i, owned = 0;

	for (i = 0; i < o->n; i++)
		owned += owns(tag, o->sector + i, 1);
	return cur->large && owned;
}

static void op_write(struct op *o, u32 tag, bool fua)
{
	struct bio *bio;
	u32 as = tag && (cur->config->volume || owns(tag, o->sector, o->n) ||
			 may_split(tag, o)) ? tag : 0;

	/* In volume scope each flush covers everything. */
	if (cur->config->volume)
		as = 0;
	o->id = oracle_write(as, o->sector, o->n, fua);
	say(o, "sent");
	bio = op_bio(o, REQ_OP_WRITE | REQ_SYNC | (fua ? REQ_FUA : 0) |
		     (fua && o->arg & 1 ? REQ_PREFLUSH : 0), write_end);
	sim_md_submit(sim_md_find("vol"), bio);
}

static void op_flush(struct op *o, u32 who)
{
	o->n = 0;
	o->tag = who;
	o->when = oracle_flush(who);
	say(o, "sent");
	sim_md_submit(sim_md_find("vol"), op_bio(o, REQ_OP_WRITE | REQ_PREFLUSH | REQ_SYNC,
						 flush_end));
}

static void op_read(struct op *o)
{
	o->when = oracle_read();
	sim_md_submit(sim_md_find("vol"), op_bio(o, REQ_OP_READ | REQ_SYNC, op_read_end));
}

static void op_recreate(struct op *o)
{
	u64 began;
	int r;

	if (cur->config->volume) {
		op_complete(o, 0);
		return;
	}
	began = oracle_read();
	r = tag_simple(VCACHE_CMD_TAG_DEL, 1, NULL, 0);
	if (!r)
		oracle_tag_removed(1, began);
	if (!(o->arg & 1))
		r = r ?: tag_set(1, -1);
	else if (!tag_set(1, -1))
		r = 0;
	op_complete(o, r);
}

static void op_mode(struct op *o)
{
	static const int modes[] = {
		VCACHE_MODE_WRITETHROUGH, VCACHE_MODE_FLUSH_ONLY, VCACHE_MODE_WRITEBACK,
	};
	struct mapped_device *vol = sim_md_find("vol");
	int r;

	if (cur->config->chunks && !strcmp(cur->config->mode, "writeback")) {
		op_complete(o, tag_mode(modes[o->arg % 3]));
		return;
	}
	r = sim_md_load(vol, sectors_of(cur->config), table_line(cur->config)) ?:
	    sim_md_resume(vol);
	op_complete(o, r);
}

static void op_resize(struct op *o)
{
	char line[40];
	int r = 0;

	if (cur->config->chunks) {
		u32 chunks = o->arg % 2 ? cur->config->chunks - 2 : cur->config->more;

		snprintf(line, sizeof(line), "resize %u", chunks * 128);
		r = sim_md_message(sim_md_find("pool"), line);
	}
	op_complete(o, r);
}

/* Begin a session of saved blocks, and read them. */
static void op_save(void)
{
	struct vcache_cached_run run = { .start = 0, .len = SAVED_BLOCKS * 8 };
	dev_t d = sim_md_number(sim_md_find("vol"));
	u32 major = MAJOR(d), minor = MINOR(d), id = 1;
	struct sim_attr a[] = {
		{ VCACHE_A_CACHED_MAJOR, &major, 4 }, { VCACHE_A_CACHED_MINOR, &minor, 4 },
		{ VCACHE_A_CACHED_ID, &id, 4 }, { VCACHE_A_CACHED_RUNS, &run, sizeof(run) },
		{ VCACHE_A_CACHED_SAVED_BEGIN, NULL, 0 },
	};
	u64 token;

	saved_token = 0;
	if (sim_genl(VCACHE_CMD_CACHE_SAVED, a, 5))
		return;
	token = sim_genl_reply;
	if (read_saved())
		saved_token = token;
}

/* Put what was saved into the cache, perhaps long after. */
static void op_fill(void)
{
	dev_t d = sim_md_number(sim_md_find("vol"));
	u32 major = MAJOR(d), minor = MINOR(d), id = 1, i;
	u64 start, token = saved_token;
	u8 data[PAGE_SIZE];
	struct sim_attr a[] = {
		{ VCACHE_A_CACHED_MAJOR, &major, 4 }, { VCACHE_A_CACHED_MINOR, &minor, 4 },
		{ VCACHE_A_CACHED_ID, &id, 4 }, { VCACHE_A_CACHED_TOKEN, &token, 8 },
		{ VCACHE_A_CACHED_START, &start, 8 },
		{ VCACHE_A_CACHED_DATA, data, sizeof(data) },
	};

	for (i = 0; i < SAVED_BLOCKS; i++) {
		start = i * 8;
		memcpy(data, saved_data[i], sizeof(data));
		if (sim_genl(VCACHE_CMD_CACHE_FILL, a, 6))
			break;
	}
}

static void op_promote(struct op *o)
{
	struct vcache_cached_run run = { .start = 0, .len = 32, .heat = 8 };

	if (cur->config->chunks && o->arg % 3 == 1)
		op_save();
	else if (cur->config->chunks && o->arg % 3 == 2)
		op_fill();
	else if (cur->config->chunks)
		tag_simple(VCACHE_CMD_CACHE_PREFETCH, 1, &run, sizeof(run));
	op_read(o);
}

static void op_suspend(struct op *o, bool noflush)
{
	struct mapped_device *vol = sim_md_find("vol");
	int r;

	if (o->arg & 1)
		sim_md_load(vol, sectors_of(cur->config), table_line(cur->config));
	sim_md_suspend(vol, noflush);
	r = sim_md_resume(vol);
	op_complete(o, r);
}

static void fault(struct sim_disk *d, const struct op *o, bool reads, bool writes, bool hang)
{
	d->fault.from = o->sector;
	d->fault.to = o->sector + o->n;
	d->fault.reads = reads;
	d->fault.writes = writes;
	d->fault.hang = hang;
	d->fault.heads = false;
}

/* The records and seals of one more chunk, and of those between, cannot be read. */
static void fail_heads(struct sim_disk *d, const struct op *o)
{
	struct sim_fault old = d->fault;

	fault(d, o, true, false, false);
	d->fault.heads = true;
	if (old.heads) {
		d->fault.from = min(old.from, d->fault.from);
		d->fault.to = max(old.to, d->fault.to);
	}
}

static void heal(void)
{
	int i;

	for (i = 0; i < SIM_DISKS; i++)
		memset(&sim_disks[i].fault, 0, sizeof(sim_disks[i].fault));
}

/* Some changes of a pool hold its lock while they write metadata, and the status takes it. */
static void end_hangs(void)
{
	int i;

	for (i = 0; i < SIM_DISKS; i++)
		sim_disks[i].fault.hang = false;
}

static void op_task(void *arg)
{
	struct op *o = arg;
	struct sim_disk *cache = &sim_disks[SIM_CACHE];

	sim_current->flags = 0;
	sim_current->cgroup = &roots;
	switch (o->kind) {
	case OP_WRITE_A:
	case OP_FUA:
		sim_current->cgroup = &cg_a;
		op_write(o, 1, o->kind == OP_FUA);
		break;
	case OP_WRITE_B:
	case OP_FUA_B:
		sim_current->cgroup = &cg_b;
		op_write(o, 2, o->kind == OP_FUA_B);
		break;
	case OP_WRITE_HOST:
		op_write(o, 0, false);
		break;
	case OP_FLUSH_A:
		sim_current->cgroup = &cg_a;
		op_flush(o, cur->config->volume ? ORACLE_ALL : 1);
		break;
	case OP_FLUSH_B:
		sim_current->cgroup = &cg_b;
		op_flush(o, cur->config->volume ? ORACLE_ALL : 2);
		break;
	case OP_FLUSH_ALL:
		sim_current->flags = PF_KTHREAD;
		op_flush(o, ORACLE_ALL);
		break;
	case OP_DISCARD:
		o->id = oracle_discard(o->sector, o->n);
		sim_md_submit(sim_md_find("vol"), op_bio(o, REQ_OP_DISCARD, discard_end));
		break;
	case OP_MODE:
		op_mode(o);
		break;
	case OP_RECREATE:
		op_recreate(o);
		break;
	case OP_RESIZE:
		op_resize(o);
		break;
	case OP_PROMOTE:
		op_promote(o);
		break;
	case OP_READ:
		op_read(o);
		break;
	case OP_DRAIN:
		if (cur->config->chunks)
			sim_md_message(sim_md_find("vol"), "drain");
		op_complete(o, 0);
		break;
	case OP_DROP:
		if (cur->config->chunks)
			tag_simple(VCACHE_CMD_CACHE_DROP, o->arg % 3, NULL, 0);
		op_complete(o, 0);
		break;
	case OP_SUSPEND:
	case OP_NOFLUSH:
		op_suspend(o, o->kind == OP_NOFLUSH);
		break;
	case OP_TIME:
		schedule_timeout_uninterruptible(1 + o->arg);
		op_complete(o, 0);
		break;
	case OP_FAIL_ORIGIN:
		fault(&sim_disks[SIM_ORIGIN], o, o->arg & 1, true, false);
		op_complete(o, 0);
		break;
	case OP_FAIL_CACHE:
		if (cur->config->chunks)
			fault(cache, o, o->arg & 1, true, false);
		op_complete(o, 0);
		break;
	case OP_FAIL_LAST:
		o->sector = cache->last / 128 * 128;
		o->n = o->arg == 2 ? 112 : 128;
		if (o->arg == 3)
			fail_heads(cache, o);
		else
			fault(cache, o, o->arg, !o->arg, false);
		op_complete(o, 0);
		break;
	case OP_LOSE_CACHE:
		if (cur->config->chunks) {
			o->sector = 0;
			o->n = cache->blocks * 8;
			fault(cache, o, true, true, false);
		}
		op_complete(o, 0);
		break;
	case OP_HANG:
		fault(&sim_disks[cur->config->chunks && o->arg & 1 ? SIM_CACHE : SIM_ORIGIN],
		      o, true, true, true);
		op_complete(o, 0);
		break;
	case OP_HEAL:
		heal();
		op_complete(o, 0);
		break;
	default:
		SIM_BUG("no such request");
	}
}

static bool op_ready(void)
{
	return next_op < cur->nops && under_way < (cur->overlap ? 4U : 1U);
}

static void op_start(void)
{
	struct op *o = &cur->op[next_op++];

	o->state = 1;
	under_way++;
	sim_progress();
	sim_task_start(op_task, o, op_names[o->kind]);
}

static bool ops_done(void)
{
	return (next_op == cur->nops && !under_way) || content_bad;
}

/* ---- power cuts ---- */

struct cut {
	struct sim_image origin, cache;
	struct oracle_view view;
	u32 step;
	enum sim_survival how;
};
static struct cut cuts[CUTS];
static u32 ncuts;
static u64 seen_version, seen_oracle;
static struct sim_rng cut_rng;
static u64 cut_seen[CUTS * 2];

struct known {
	u64 key[2];
	bool wrong;
	u32 content[ORACLE_SECTORS];
};
static struct known *memory;

static void *cut_alloc(size_t n)
{
	return malloc(n);
}

/* Is this pair of images and demands new in this run? */
static bool is_new(u64 key)
{
	u32 i = key % ARRAY_SIZE(cut_seen);

	while (cut_seen[i]) {
		if (cut_seen[i] == key)
			return false;
		i = (i + 1) % ARRAY_SIZE(cut_seen);
	}
	cut_seen[i] = key;
	return true;
}

static void cut_now(void)
{
	const struct sim_config *c = cur->config;
	enum sim_survival how;

	for (how = SIM_NOTHING; how <= SIM_SOME && ncuts < CUTS; how++) {
		struct cut *k = &cuts[ncuts];

		memset(k, 0, sizeof(*k));
		k->origin = sim_disk_cut(&sim_disks[SIM_ORIGIN], how, &cut_rng);
		if (c->chunks)
			k->cache = sim_disk_cut(&sim_disks[SIM_CACHE], how, &cut_rng);
		k->step = sim_steps;
		k->how = how;
		if (!is_new(k->origin.hash * 31 + k->cache.hash * 17 + oracle_hash()))
			continue;
		k->view = oracle_view(cut_alloc);
		ncuts++;
	}
}

static void after_step(void)
{
	if (sim_disk_version == seen_version && oracle_hash() == seen_oracle)
		return;
	seen_version = sim_disk_version;
	seen_oracle = oracle_hash();
	if (cur->cut_every > 1 && !sim_chance(&cut_rng, cur->cut_every))
		return;
	cut_now();
}

static void empty_task(void *arg);

static void reread_task(void *arg)
{
	read_all(arg);
	setup_done = true;
}

/*
 * Attach an image to a new instance of the module, and read the volume. Return: NULL, or what
 * is wrong. With @again, the view of the power cut, it is read once more after some
 * time: nothing may change but what an incomplete discard has left.
 */
static const char *recover(const struct sim_config *c, const struct sim_image *origin,
			   const struct sim_image *cache, enum sim_order order, u64 seed,
			   const struct oracle_view *again)
{
	static char text[200];
	u32 before[ORACLE_SECTORS], s;
	int r;

	counts.recoveries++;
	new_world(order, seed);
	disks(c, origin, cache, c->more * 16);
	sim_task_start(recover_task, (void *)c, "recovery");
	r = sim_run(is_set_up, sim_jiffies + 60 * HZ);
	if (r < 0)
		return sim_bug_text;
	if (r) {
		if (sim_verbose)
			sim_dump(stderr);
		return "the recovery does not end";
	}
	if (setup_result) {
		snprintf(text, sizeof(text), "the recovery fails with %d", setup_result);
		return text;
	}
	if (read_error)
		return "a read fails after the recovery";
	if (!again)
		return NULL;
	memcpy(before, read_content, sizeof(before));
	r = sim_run(never, sim_jiffies + 8 * HZ);
	if (r >= 0 && c->chunks) {
		setup_done = false;
		sim_task_start(empty_task, NULL, "empty the cache");
		r = sim_run(is_set_up, sim_jiffies + 120 * HZ);
		if (r == 1)
			return "the cache cannot be emptied after the recovery";
	}
	if (r < 0)
		return sim_bug_text;
	setup_done = false;
	sim_task_start(reread_task, (void *)c, "read");
	r = sim_run(is_set_up, sim_jiffies + 60 * HZ);
	if (r < 0)
		return sim_bug_text;
	if (r || read_error)
		return "a read fails some time after the recovery";
	for (s = 0; s < sectors_of(c); s++) {
		if (read_content[s] != before[s] && !oracle_view_is_wild(again, s)) {
			snprintf(text, sizeof(text),
				 "sector %u changes from write %d to %d after the recovery",
				 s, (int)before[s], (int)read_content[s]);
			return text;
		}
	}
	return NULL;
}

static struct known *known_image(const struct cut *k, u32 config)
{
	u64 a = k->origin.hash * 3 + config + 1, b = k->cache.hash * 5 + k->origin.hash;

	if (!memory)
		memory = calloc(KNOWN, sizeof(*memory));
	return &memory[(a * 0x9e3779b97f4a7c15ULL ^ b) >> 40 & (KNOWN - 1)];
}

static const char *judge(const struct cut *k)
{
	const struct sim_config *c = cur->config;
	u32 config = c - sim_configs;
	struct known *m = known_image(k, config);
	u64 a = k->origin.hash * 3 + config + 1, b = k->cache.hash * 5 + k->origin.hash;
	const char *bad;
	bool known;

	counts.cuts++;
	if (m->key[0] == a && m->key[1] == b && !cur->reread) {
		counts.remembered++;
		return oracle_check(&k->view, m->content);
	}
	known = !strcmp(c->mode, "writeback") && c->chunks && sim_damage_is_known(&k->cache);
	bad = recover(c, &k->origin, &k->cache,
		      cur->order == SIM_RANDOM && (a & 3) == 0 ? SIM_RANDOM : SIM_FIFO, a,
		      (a & 15) == 0 || cur->reread ? &k->view : NULL);
	if (bad)
		return bad;
	if (known && !damaged)
		return "durable data is damaged, and the recovery does not report it";
	if (damaged && !cur->damage.kind && !cur->faults)
		return "the recovery reports damage, although there is none";
	m->key[0] = a;
	m->key[1] = b;
	memcpy(m->content, read_content, sizeof(m->content));
	return oracle_check(&k->view, m->content);
}

static void judge_all(void)
{
	u32 i;

	for (i = 0; i < ncuts; i++) {
		size_t mark = sim_images_mark();
		bool say_it = sim_verbose;
		const char *bad;

		sim_verbose = false;
		bad = content_bad ? NULL : judge(&cuts[i]);
		sim_verbose = say_it;
		if (bad && say_it) {
			fprintf(stderr, "==== the recovery from step %u ====\n", cuts[i].step);
			memset(known_image(&cuts[i], cur->config - sim_configs), 0,
			       sizeof(struct known));
			judge(&cuts[i]);
		}
		sim_images_release(mark);

		if (bad) {
			char text[400];

			snprintf(text, sizeof(text), "power cut at step %u (%s): %s",
				 cuts[i].step, cuts[i].how == SIM_NOTHING ? "nothing" :
				 cuts[i].how == SIM_EVERYTHING ? "everything" : "some", bad);
			wrong(text);
		}
	}
}

static void drop_cuts(void)
{
	u32 i;

	for (i = 0; i < ncuts; i++)
		free(cuts[i].view.word);
	ncuts = 0;
	memset(cut_seen, 0, sizeof(cut_seen));
}

/* ---- running ---- */

static void begin(u32 round)
{
	u32 i;

	next_op = 0;
	under_way = 0;
	content_bad = false;
	cache_failed = false;
	seen_version = 0;
	seen_oracle = 0;
	cut_rng = sim_seeded(cur->seed * 77 + 5);
	for (i = 0; i < cur->nops; i++) {
		cur->op[i].state = 0;
		cur->op[i].error = 0;
	}
	for (i = 0; i < SIM_DISKS; i++)
		sim_disks[i].latency = cur->latency;
	sim_no_memory = cur->no_memory;
	if (!round)
		sim_damage_plan(&cur->damage, cur->seed);
	sim_next_ready = op_ready;
	sim_next_run = op_start;
	sim_after_step = after_step;
}

SIM_WORLD static char pool_status[512], volume_status[512];

static void status_task(void *arg)
{
	if (cur->config->chunks)
		snprintf(pool_status, sizeof(pool_status), "%s",
			 sim_md_status(sim_md_find("pool")));
	snprintf(volume_status, sizeof(volume_status), "%s",
		 sim_md_status(sim_md_find("vol")));
	setup_done = true;
}

static void get_status(void)
{
	setup_done = false;
	sim_task_start(status_task, NULL, "status");
	if (sim_run(is_set_up, sim_jiffies + 60 * HZ) && !content_bad)
		wrong(sim_bugged ? sim_bug_text : "the status does not come");
	setup_done = false;
}

/* Dirty sectors in the cache, which the status tells behind "cache VOLUME STATE". */
static u64 cache_dirty(void)
{
	const char *at = strstr(volume_status, " cache ");
	char state[24];
	u32 volume;
	u64 dirty;

	return at && sscanf(at, " cache %u %23s %llu", &volume, state, &dirty) == 3 ? dirty : 0;
}

/*
 * Everything goes to the origin, and the cache drops what it has: then a read shows whether
 * what the cache took for clean is on the origin.
 */
static void empty_task(void *arg)
{
	int i;

	sim_md_message(sim_md_find("vol"), "drain");
	schedule_timeout_uninterruptible(4 * HZ);
	for (i = 0; i < 4; i++) {
		tag_simple(VCACHE_CMD_CACHE_DROP, 0, NULL, 0);
		tag_simple(VCACHE_CMD_CACHE_DROP, 1, NULL, 0);
		tag_simple(VCACHE_CMD_CACHE_DROP, 2, NULL, 0);
		schedule_timeout_uninterruptible(HZ / 2);
	}
	setup_done = true;
}

static void empty_cache(void)
{
	if (!cur->config->chunks)
		return;
	setup_done = false;
	sim_task_start(empty_task, NULL, "empty the cache");
	if (sim_run(is_set_up, sim_jiffies + 120 * HZ) && !content_bad)
		wrong(sim_bugged ? sim_bug_text : "the cache cannot be emptied");
	setup_done = false;
}

/* All of the volume is read once more, as a request of the history. */
static void final_read(void)
{
	struct op *o = &cur->op[cur->nops];
	int r;

	memset(o, 0, sizeof(*o));
	o->kind = OP_READ;
	o->n = sectors_of(cur->config);
	under_way++;
	sim_task_start(op_task, o, "final read");
	r = sim_run(ops_done, sim_jiffies + 120 * HZ);
	if (r < 0)
		wrong(sim_bug_text);
	else if (r && !content_bad)
		wrong("the last read does not end");
}

static void run_history(u32 round)
{
	int r, i;

	begin(round);
	after_step();
	r = sim_run(ops_done, sim_jiffies + 300 * HZ);
	/* A later request of the history may break a device again. */
	for (i = 0; r == 1 && cur->faults && !cur->no_heal && i < 16; i++) {
		heal();
		r = sim_run(ops_done, sim_jiffies + 300 * HZ);
	}
	if (r < 0)
		wrong(sim_bug_text);
	else if (r && !content_bad) {
		if (sim_verbose)
			sim_dump(stderr);
		wrong("a request does not end");
	}
	if (content_bad)
		return;
	if (sim_run(never, sim_jiffies + cur->settle * HZ) < 0) {
		wrong(sim_bug_text);
		return;
	}
	end_hangs();
	get_status();
	if (cur->bad_blocks && cache_dirty() > cur->bad_blocks * 8)
		wrong("blocks of the cache stay dirty although the origin takes them");
	/* What is on a cache device that has failed may be outdated. */
	cache_failed = strstr(pool_status, "failed");
	heal();
	sim_after_step = NULL;
	if (!content_bad)
		final_read();
	if (!content_bad && !cur->faults && !cur->no_empty) {
		empty_cache();
		if (!content_bad)
			final_read();
	}
	counts.steps += sim_steps;
}

/* Go on with the image of some cut, as a host does after the power has returned. */
static bool next_round(u32 round)
{
	const struct sim_config *c = cur->config;
	struct cut *k;
	const char *bad;
	u32 content[ORACLE_SECTORS];

	if (!ncuts)
		return false;
	k = &cuts[sim_below(&cut_rng, ncuts)];
	bad = recover(c, &k->origin, &k->cache, SIM_RANDOM, cur->seed + round, NULL);
	if (bad) {
		wrong(bad);
		return false;
	}
	memcpy(content, read_content, sizeof(content));
	bad = oracle_check(&k->view, content);
	if (bad) {
		wrong(bad);
		return false;
	}
	oracle_reset(sectors_of(c), content, &k->view);
	setup_done = false;
	return true;
}

static void tags_task(void *arg)
{
	setup_result = attach_tags(arg);
	setup_done = true;
}

/* So that what the cache has of a block that nobody has written can be told from others. */
static void fill_origin(const struct sim_case *c)
{
	u32 content[ORACLE_SECTORS], s;

	for (s = 0; s < sectors_of(c->config); s++)
		content[s] = 1;
	sim_disk_fill(&sim_disks[SIM_ORIGIN], 1);
	oracle_reset(sectors_of(c->config), content, NULL);
}

void run_case(struct sim_case *c)
{
	u32 k = c->config - sim_configs, round;

	cur = c;
	if (!worlds[k])
		make_world(c->config);
	sim_images_reset();
	sim_restore(worlds[k]);
	*sim_param_large_write_kib = c->large;
	sim_sched_init(c->order, c->seed);
	oracle_reset(sectors_of(c->config), NULL, NULL);
	if (c->damage.kind)
		fill_origin(c);
	for (round = 0; round < max(c->rounds, 1U); round++) {
		if (round) {
			if (!next_round(round))
				break;
			drop_cuts();
			sim_task_start(tags_task, (void *)c->config, "tags");
			if (sim_run(is_set_up, sim_jiffies + 60 * HZ) || setup_result) {
				wrong(sim_bugged ? sim_bug_text :
				      "the tags cannot be made again");
				break;
			}
		}
		run_history(round);
		if (content_bad)
			break;
		if (cache_failed)
			break;
		judge_all();
		if (content_bad)
			break;
	}
	counts.histories++;
	if (content_bad)
		violation(content_text);
	drop_cuts();
}
