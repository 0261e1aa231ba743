// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: the device-mapper target "vcache-pool".
 *
 * A table line reads
 *
 *   <start> <len> vcache-pool <cache device>
 *	[<#args> [chunk_kib <n>] [reads_percent <n>] [hot_percent <n>]
 *	 [lane <sectors> ...]]
 *
 * chunk_kib is the chunk size of a new pool: a power of two from 64 to 16384 (default
 * 1024). A new pool is made on a device that begins with 4 KiB of zeroes. A pool that
 * exists keeps its chunk size.
 *
 * Above reads_percent of what a tag has, its read chunks are reclaimed first (default 75).
 * Above hot_percent of what a tag with dedicated lanes has in shared lanes, hot blocks
 * migrate (default 20). Messages of these names change both.
 *
 * Each "lane" adds a lane of so many sectors, in order from the start of the device, see
 * lane.c. The rest of the device is one more lane.
 *
 * The device itself takes no I/O: tables of "vcache" refer to it.
 */
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "../../core/place.h"
#include "../../core/replace.h"
#include "internal.h"

#define VC_CHUNK_KIB_DEFAULT	1024U

/* Reserved records, for when memory is short. */
#define VC_RECORDS_MIN		64

static DEFINE_MUTEX(vc_pools_lock);
static LIST_HEAD(vc_pools);
static struct kmem_cache *vc_record_cache;

/**
 * struct vc_pool_target - what a table line of a pool says
 * @pool: the pool
 * @cache: the cache device
 * @chunk_kib: as given, or 0
 * @reads_percent: as given here or by a message, or VC_READS_PERCENT
 * @hot_percent: the same, or VC_HOT_PERCENT
 * @lane: sizes of lanes in sectors, as given
 * @nlanes: how many
 */
struct vc_pool_target {
	struct vcache_pool *pool;
	struct dm_dev *cache;
	unsigned int chunk_kib;
	unsigned int reads_percent;
	unsigned int hot_percent;
	u64 lane[VC_LANES_MAX - 1];
	unsigned int nlanes;
};

/* The options, for error messages. */
#define VC_POOL_OPTIONS \
	"chunk_kib <n>, reads_percent <n>, hot_percent <n>, lane <sectors>"
#define VC_POOL_MESSAGES \
	"drop <volume> [tag <tag>] [force], reads_percent <n>, hot_percent <n>, " \
	"resize <sectors>, label <volume> <text>, labels"

/* Ranges of reads_percent and of hot_percent. */
static const struct dm_arg vc_reads_arg = {
	0, 100, "reads_percent must be in 0..100"
};

static const struct dm_arg vc_hot_arg = {
	0, 100, "hot_percent must be in 0..100"
};

static void vc_pool_free(struct vcache_pool *p)
{
	if (p->wq) {
		cancel_delayed_work_sync(&p->space_work);
		destroy_workqueue(p->wq);
	}
	vcache_pool_unload(p);
	mempool_exit(&p->pages);
	mempool_exit(&p->records);
	bioset_exit(&p->bs);
	kvfree(p->lane_counts);
	mutex_destroy(&p->table_lock);
	mutex_destroy(&p->lock);
	kfree(p);
}

static struct vcache_pool *vc_pool_make(struct mapped_device *md)
{
	struct vcache_pool *p = kzalloc(sizeof(*p), GFP_KERNEL);

	if (!p)
		return NULL;
	p->md = md;
	mutex_init(&p->lock);
	mutex_init(&p->table_lock);
	vcache_readers_init(p);
	vcache_throttle_init(p);
	INIT_LIST_HEAD(&p->volumes);
	spin_lock_init(&p->free_lock);
	spin_lock_init(&p->error_lock);
	vcache_lanes_init(p);
	p->migrate_at = jiffies;
	p->turn = U64_MAX;
	INIT_DELAYED_WORK(&p->space_work, vcache_space_work);
	INIT_WORK(&p->fail_work, vcache_fail_work);
	vcache_store_init(p);
	p->wq = alloc_workqueue("vcache-pool/%s", WQ_MEM_RECLAIM | WQ_UNBOUND,
				0, dm_device_name(md));
	p->lane_counts = vcache_lane_counts_make();
	if (!p->wq || !p->lane_counts ||
	    bioset_init(&p->bs, VC_RECORDS_MIN, 0, BIOSET_NEED_BVECS) ||
	    mempool_init_slab_pool(&p->records, VC_RECORDS_MIN, vc_record_cache) ||
	    mempool_init_page_pool(&p->pages, VC_RECORDS_MIN, 0)) {
		vc_pool_free(p);
		return NULL;
	}
	return p;
}

static struct vcache_pool *vc_pool_get(struct mapped_device *md)
{
	struct vcache_pool *p;

	mutex_lock(&vc_pools_lock);
	list_for_each_entry(p, &vc_pools, registry) {
		if (p->md == md)
			goto found;
	}
	p = vc_pool_make(md);
	if (!p)
		goto out;
	list_add_tail(&p->registry, &vc_pools);
found:
	p->tables++;
out:
	mutex_unlock(&vc_pools_lock);
	return p;
}

static void vc_pool_put(struct vcache_pool *p)
{
	bool last;

	mutex_lock(&vc_pools_lock);
	last = !--p->tables;
	if (last)
		list_del(&p->registry);
	mutex_unlock(&vc_pools_lock);
	if (last)
		vc_pool_free(p);
}

/**
 * vcache_pool_find - find the pool of a block device
 * @bdev: the device, held by the caller's table
 *
 * Return: the pool; NULL if the device is not a pool, or was never resumed.
 */
struct vcache_pool *vcache_pool_find(struct block_device *bdev)
{
	struct mapped_device *md = dm_get_md(bdev->bd_dev);
	struct vcache_pool *p, *found = NULL;

	if (!md)
		return NULL;
	mutex_lock(&vc_pools_lock);
	list_for_each_entry(p, &vc_pools, registry) {
		if (p->md == md && READ_ONCE(p->loaded))
			found = p;
	}
	mutex_unlock(&vc_pools_lock);
	dm_put(md);
	return found;
}

/**
 * vcache_pools_walk - call a function for each pool that is loaded
 * @fn: the function; not called any more when it has not returned 0; does no I/O
 * @context: for it
 *
 * Return: what @fn has returned last, or 0.
 */
int vcache_pools_walk(int (*fn)(struct vcache_pool *p, void *context), void *context)
{
	struct vcache_pool *p;
	int r = 0;

	mutex_lock(&vc_pools_lock);
	list_for_each_entry(p, &vc_pools, registry) {
		if (!r && READ_ONCE(p->loaded))
			r = fn(p, context);
	}
	mutex_unlock(&vc_pools_lock);
	return r;
}

static int vc_pool_lane(struct dm_target *ti, struct vc_pool_target *pt, struct dm_arg_set *as)
{
	u64 sectors;

	if (pt->nlanes == ARRAY_SIZE(pt->lane)) {
		ti->error = "there can be at most 64 lanes, including the rest of the device";
		return -EINVAL;
	}
	if (kstrtou64(dm_shift_arg(as), 10, &sectors) || !sectors) {
		ti->error = "the size of a lane must be a number of sectors";
		return -EINVAL;
	}
	pt->lane[pt->nlanes++] = sectors;
	return 0;
}

static int vc_pool_option(struct dm_target *ti, struct vc_pool_target *pt, struct dm_arg_set *as)
{
	static const struct dm_arg chunk_arg = {
		64, 16384, "chunk_kib must be a power of two in 64..16384"
	};
	const char *name = dm_shift_arg(as);
	int r = -EINVAL;

	if (!strcasecmp(name, "reads_percent"))
		return dm_read_arg(&vc_reads_arg, as, &pt->reads_percent,
				   &ti->error);
	if (!strcasecmp(name, "hot_percent"))
		return dm_read_arg(&vc_hot_arg, as, &pt->hot_percent,
				   &ti->error);
	if (!strcasecmp(name, "lane"))
		return vc_pool_lane(ti, pt, as);
	if (strcasecmp(name, "chunk_kib")) {
		ti->error =
			"optional arguments are: " VC_POOL_OPTIONS;
		return r;
	}
	r = dm_read_arg(&chunk_arg, as, &pt->chunk_kib, &ti->error);
	if (!r && !is_power_of_2(pt->chunk_kib)) {
		ti->error = chunk_arg.error;
		r = -EINVAL;
	}
	return r;
}

static int vc_pool_parse(struct dm_target *ti, struct vc_pool_target *pt, struct dm_arg_set *as)
{
	static const struct dm_arg count_arg = {
		0, 6 + 2 * (VC_LANES_MAX - 1),
		"number of optional arguments must be even, 0..132"
	};
	unsigned int n;
	int r;

	pt->reads_percent = VC_READS_PERCENT;
	pt->hot_percent = VC_HOT_PERCENT;
	if (!as->argc)
		return 0;
	r = dm_read_arg_group(&count_arg, as, &n, &ti->error);
	if (r)
		return r;
	if (n % 2) {
		ti->error = count_arg.error;
		return -EINVAL;
	}
	for (; n; n -= 2) {
		r = vc_pool_option(ti, pt, as);
		if (r)
			return r;
	}
	if (as->argc) {
		ti->error = "too many arguments";
		return -EINVAL;
	}
	return 0;
}

static int vc_pool_ctr(struct dm_target *ti, unsigned int argc, char **argv)
{
	struct dm_arg_set as = { argc, argv };
	struct vc_pool_target *pt;
	const char *cache;
	int r = -EINVAL;

	pt = kzalloc(sizeof(*pt), GFP_KERNEL);
	if (!pt) {
		ti->error = "out of memory";
		return -ENOMEM;
	}
	cache = dm_shift_arg(&as);
	if (!cache)
		ti->error = "no cache device given";
	else if (PAGE_SIZE != VC_BLOCK_SIZE)
		ti->error = "a pool needs a kernel with pages of 4 KiB";
	else
		r = vc_pool_parse(ti, pt, &as);
	if (r)
		goto bad;
	r = dm_get_device(ti, cache, dm_table_get_mode(ti->table), &pt->cache);
	if (r) {
		ti->error = "cannot open the cache device";
		goto bad;
	}
	r = -EINVAL;
	ti->error = "the cache device is zoned, which is not supported";
	if (bdev_is_zoned(pt->cache->bdev))
		goto bad_device;
	r = -ENOMEM;
	ti->error = "out of memory";
	pt->pool = vc_pool_get(dm_table_get_md(ti->table));
	if (!pt->pool)
		goto bad_device;
	ti->error = NULL;
	ti->private = pt;
	return 0;
bad_device:
	dm_put_device(ti, pt->cache);
bad:
	kfree(pt);
	return r;
}

static void vc_pool_dtr(struct dm_target *ti)
{
	struct vc_pool_target *pt = ti->private;

	vc_pool_put(pt->pool);
	dm_put_device(ti, pt->cache);
	kfree(pt);
}

static int vc_pool_map(struct dm_target *ti, struct bio *bio)
{
	if (bio->bi_opf & REQ_PREFLUSH) {
		bio_endio(bio);
		return DM_MAPIO_SUBMITTED;
	}
	return DM_MAPIO_KILL;
}

static int vc_pool_first(struct vcache_pool *p, struct vc_pool_target *pt)
{
	const char *error = NULL;
	int r;

	p->bdev = pt->cache->bdev;
	r = vcache_pool_load(p, (pt->chunk_kib ?: VC_CHUNK_KIB_DEFAULT) /
			     (VC_BLOCK_SIZE / 1024), &error) ?:
	    vcache_lanes_set(p, pt->lane, pt->nlanes, &error);
	if (r) {
		DMERR("%s: %s", dm_device_name(p->md), error);
		vcache_pool_unload(p);
	}
	return r;
}

static int vc_pool_preresume(struct dm_target *ti)
{
	struct vc_pool_target *pt = ti->private;
	struct vcache_pool *p = pt->pool;
	const char *error = NULL;
	int r = 0;

	mutex_lock(&p->lock);
	if (!p->loaded) {
		r = vc_pool_first(p, pt);
	} else if (p->bdev->bd_dev != pt->cache->bdev->bd_dev) {
		DMERR("%s: the cache device of a pool cannot be replaced",
		      dm_device_name(p->md));
		r = -EINVAL;
	} else {
		p->bdev = pt->cache->bdev;
		r = vcache_lanes_set(p, pt->lane, pt->nlanes, &error);
		if (r)
			DMERR("%s: %s", dm_device_name(p->md), error);
		r = r ?: vcache_pool_set_flags(p, p->sb.flags & ~VC_SUPER_CLEAN);
	}
	if (!r) {
		WRITE_ONCE(p->reads_percent, pt->reads_percent);
		WRITE_ONCE(p->hot_percent, pt->hot_percent);
	}
	mutex_unlock(&p->lock);
	return r;
}

static void vc_pool_postsuspend(struct dm_target *ti)
{
	struct vc_pool_target *pt = ti->private;
	struct vcache_pool *p = pt->pool;

	flush_delayed_work(&p->space_work);
	mutex_lock(&p->lock);
	if (p->loaded && !p->attached && p->state == VC_POOL_OK) {
		if (vcache_pool_keep_reads(p))
			DMWARN("%s: some read chunks are not kept over the restart",
			       dm_device_name(p->md));
		if (vcache_pool_close(p))
			DMERR("%s: the pool could not be shut down cleanly",
			      dm_device_name(p->md));
	}
	mutex_unlock(&p->lock);
}

/* Memory of the map for each block of the cache, in hundredths of a byte. */
static u64 vc_pool_cost(const struct vcache_pool *p)
{
	u64 bytes = (u64)p->ix.cells * (sizeof(u64) + sizeof(u16) + 1) +
		    (u64)p->ghosts.entries * sizeof(u16) +
		    (u64)p->ix.buckets * sizeof(u32) + p->ix.cells / 8 * 3 +
		    (u64)vcache_map_chunks(p) * (sizeof(u16) +
					sizeof(struct vcache_chunk) +
					sizeof(struct vcache_found) +
					sizeof(struct vcache_chunk_disk));

	return div_u64(bytes * 100, p->ix.cells);
}

static void vc_pool_info(struct vcache_pool *p, char *result, unsigned int maxlen)
{
	static const char * const state[] = { "ok", "read-only", "failed" };
	u32 volumes = 0, dirty = 0, used = 0, reads = 0;
	struct vcache_volume *v;
	struct vcache_log *log;
	unsigned int sz = 0;
	u64 cost;

	mutex_lock(&p->lock);
	if (!p->loaded) {
		mutex_unlock(&p->lock);
		DMEMIT("not-loaded");
		return;
	}
	list_for_each_entry(v, &p->volumes, node) {
		volumes++;
		list_for_each_entry(log, &v->logs, node) {
			used += vcache_log_chunks(log);
			reads += vcache_log_reads(log);
			dirty += vcache_log_dirty_chunks(log);
		}
	}
	cost = vc_pool_cost(p);
	DMEMIT("%s %u %u %u %u %u %u %u %u %u.%02u %llu %u %llu %u %u %u %u %u",
	       state[p->state],
	       p->g.chunk_blocks * VC_BLOCK_SECTORS,
	       vcache_pool_size(p), vcache_pool_free_chunks(p), used, dirty, volumes,
	       p->attached, !!(p->sb.flags & VC_SUPER_NEEDS_CHECK),
	       (u32)cost / 100, (u32)cost % 100,
	       (u64)atomic64_read(&p->relocated), reads,
	       (u64)atomic64_read(&p->kept), p->reads_percent,
	       p->leaving, p->nlanes, p->foreign, p->hot_percent);
	mutex_unlock(&p->lock);
}

/* The table that sets up the pool as it is now. */
static void vc_pool_table(struct vc_pool_target *pt, char *result,
			  unsigned int maxlen)
{
	unsigned int reads = READ_ONCE(pt->reads_percent);
	unsigned int hot = READ_ONCE(pt->hot_percent);
	unsigned int nr = 2 * (!!pt->chunk_kib + (reads != VC_READS_PERCENT) +
			       (hot != VC_HOT_PERCENT) + pt->nlanes);
	unsigned int sz = 0, i;

	DMEMIT("%s", pt->cache->name);
	if (nr)
		DMEMIT(" %u", nr);
	if (pt->chunk_kib)
		DMEMIT(" chunk_kib %u", pt->chunk_kib);
	if (reads != VC_READS_PERCENT)
		DMEMIT(" reads_percent %u", reads);
	if (hot != VC_HOT_PERCENT)
		DMEMIT(" hot_percent %u", hot);
	for (i = 0; i < pt->nlanes; i++)
		DMEMIT(" lane %llu", pt->lane[i]);
}

static void vc_pool_status(struct dm_target *ti, status_type_t type,
			   unsigned int status_flags, char *result,
			   unsigned int maxlen)
{
	struct vc_pool_target *pt = ti->private;

	switch (type) {
	case STATUSTYPE_INFO:
		vc_pool_info(pt->pool, result, maxlen);
		break;
	case STATUSTYPE_TABLE:
		vc_pool_table(pt, result, maxlen);
		break;
	case STATUSTYPE_IMA:
		*result = '\0';
		break;
	}
}

/* @kept belongs to the table, so the value lasts over a suspend. */
static int vc_pool_tune(struct vcache_pool *p, const struct dm_arg *arg,
			const char *value, unsigned int *kept, u32 *used,
			const char **error)
{
	unsigned int n;

	if (kstrtouint(value, 10, &n) || n > arg->max) {
		*error = arg->error;
		return -EINVAL;
	}
	mutex_lock(&p->lock);
	WRITE_ONCE(*kept, n);
	WRITE_ONCE(*used, n);
	/* The new value may make chunks reclaimable. */
	if (p->attached)
		vcache_space_kick(p);
	mutex_unlock(&p->lock);
	return 0;
}

static int vc_pool_message(struct dm_target *ti, unsigned int argc,
			   char **argv, char *result, unsigned int maxlen)
{
	struct vc_pool_target *pt = ti->private;
	const char *error =
		"messages are: " VC_POOL_MESSAGES;
	bool force = argc >= 3 && !strcasecmp(argv[argc - 1], "force");
	struct vcache_pool *p = pt->pool;
	int r = -EINVAL;
	u64 sectors;
	u32 id, tag;

	if (argc == 2 + force && !strcasecmp(argv[0], "drop") &&
	    !kstrtou32(argv[1], 10, &id))
		r = vcache_volume_drop(p, id, force, &error);
	else if (argc == 4 + force && !strcasecmp(argv[0], "drop") &&
		 !strcasecmp(argv[2], "tag") &&
		 !kstrtou32(argv[1], 10, &id) && !kstrtou32(argv[3], 10, &tag))
		r = vcache_volume_drop_tag(p, id, tag, force, &error);
	else if (argc == 2 && !strcasecmp(argv[0], "reads_percent"))
		r = vc_pool_tune(p, &vc_reads_arg, argv[1], &pt->reads_percent,
				 &p->reads_percent, &error);
	else if (argc == 2 && !strcasecmp(argv[0], "hot_percent"))
		r = vc_pool_tune(p, &vc_hot_arg, argv[1], &pt->hot_percent,
				 &p->hot_percent, &error);
	else if (argc == 2 && !strcasecmp(argv[0], "resize") &&
		 !kstrtou64(argv[1], 10, &sectors))
		r = vcache_pool_resize(p, sectors, &error);
	else if (argc == 3 && !strcasecmp(argv[0], "label") &&
		 !kstrtou32(argv[1], 10, &id))
		r = vcache_volume_label(p, id, argv[2], &error);
	if (argc == 1 && !strcasecmp(argv[0], "labels")) {
		vcache_pool_labels(p, result, maxlen);
		return 1;
	}
	if (r)
		DMERR("%s: %s", dm_device_name(p->md), error);
	return r;
}

static int vc_pool_iterate_devices(struct dm_target *ti,
				   iterate_devices_callout_fn fn, void *data)
{
	struct vc_pool_target *pt = ti->private;

	return fn(ti, pt->cache, 0, ti->len, data);
}

static struct target_type vcache_pool_target = {
	.name = "vcache-pool",
	.version = {1, 0, 0},
	.features = DM_TARGET_SINGLETON | DM_TARGET_NOWAIT | DM_TARGET_ALWAYS_WRITEABLE |
		    DM_TARGET_IMMUTABLE,
	.module = THIS_MODULE,
	.ctr = vc_pool_ctr,
	.dtr = vc_pool_dtr,
	.map = vc_pool_map,
	.preresume = vc_pool_preresume,
	.postsuspend = vc_pool_postsuspend,
	.status = vc_pool_status,
	.message = vc_pool_message,
	.iterate_devices = vc_pool_iterate_devices,
};

int __init vcache_pool_init(void)
{
	int r;

	vc_record_cache = KMEM_CACHE(vcache_record, 0);
	if (!vc_record_cache)
		return -ENOMEM;
	r = vcache_resize_init();
	if (r)
		goto bad_resize;
	r = dm_register_target(&vcache_pool_target);
	if (r)
		goto bad_target;
	return 0;
bad_target:
	vcache_resize_exit();
bad_resize:
	kmem_cache_destroy(vc_record_cache);
	return r;
}

void vcache_pool_exit(void)
{
	dm_unregister_target(&vcache_pool_target);
	vcache_resize_exit();
	kmem_cache_destroy(vc_record_cache);
}
