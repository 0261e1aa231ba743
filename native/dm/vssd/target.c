// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: the device-mapper target "vcache-vssd".
 *
 * A table line reads
 *
 *   0 <len> vcache-vssd <pool device> <volume> <quota> [1 persist]
 *
 * The volume is a number that no other volume of the pool has, 1 to 4294967295. The quota is how
 * many blocks of the pool's chunk size the device may own, at most its length. With persist its
 * content outlives the device, and what was flushed is there after a power cut.
 */
#include <linux/blkdev.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "internal.h"

#define VC_VSSD_MESSAGES \
	"messages are: quota <blocks> [keep], release <first block> <blocks>, force, list mapped|taken"

static int vc_vssd_parse_pool(struct vc_vssd_target *vt, struct dm_target *ti, const char *path)
{
	u32 sectors;
	int r = dm_get_device(ti, path, dm_table_get_mode(ti->table), &vt->pool_dev);
	struct vcache_pool *p;

	if (r) {
		ti->error = "cannot open the device of the pool";
		return r;
	}
	p = vcache_pool_find(vt->pool_dev->bdev);
	if (!p) {
		ti->error = "the pool device is not an active vcache-pool";
		return -EINVAL;
	}
	sectors = p->g.chunk_blocks * VC_BLOCK_SECTORS;
	if (ti->begin || ti->len % sectors || ti->len / sectors >= VC_VSSD_TAKEN) {
		ti->error = "the size must be a multiple of the pool's chunk size";
		return -EINVAL;
	}
	if (vt->quota > ti->len / sectors) {
		ti->error = "the quota must not exceed the size";
		return -EINVAL;
	}
	return dm_set_target_max_io_len(ti, sectors);
}

static int vc_vssd_parse(struct vc_vssd_target *vt, struct dm_target *ti, unsigned int argc,
			 char **argv)
{
	static const struct dm_arg volume_arg = {
		1, UINT_MAX, "the volume must be 1..4294967295"
	};
	static const struct dm_arg quota_arg = {
		0, UINT_MAX, "the quota must be 0..4294967295 blocks"
	};
	struct dm_arg_set as = { argc, argv };
	const char *path = dm_shift_arg(&as);
	int r;

	if (!path) {
		ti->error = "no pool device given";
		return -EINVAL;
	}
	r = dm_read_arg(&volume_arg, &as, &vt->volume, &ti->error) ?:
	    dm_read_arg(&quota_arg, &as, &vt->quota, &ti->error);
	if (r)
		return r;
	if (as.argc == 2 && !strcmp(as.argv[0], "1") && !strcasecmp(as.argv[1], "persist")) {
		vt->persist = true;
	} else if (as.argc) {
		ti->error = "the only optional argument is: 1 persist";
		return -EINVAL;
	}
	return vc_vssd_parse_pool(vt, ti, path);
}

static int vc_vssd_ctr(struct dm_target *ti, unsigned int argc, char **argv)
{
	struct vc_vssd_target *vt = kzalloc(sizeof(*vt), GFP_KERNEL);
	int r;

	if (!vt) {
		ti->error = "out of memory";
		return -ENOMEM;
	}
	r = vc_vssd_parse(vt, ti, argc, argv);
	if (r)
		goto bad;
	vt->vssd = vc_vssd_get(dm_table_get_md(ti->table));
	if (!vt->vssd) {
		ti->error = "out of memory";
		r = -ENOMEM;
		goto bad;
	}
	ti->private = vt;
	ti->per_io_data_size = sizeof(struct vc_vssd_io);
	ti->num_discard_bios = 1;
	ti->discards_supported = true;
	/* Without persist nothing has to be durable. */
	ti->num_flush_bios = vt->persist;
	ti->flush_supported = vt->persist;
	return 0;
bad:
	if (vt->pool_dev)
		dm_put_device(ti, vt->pool_dev);
	kfree(vt);
	return r;
}

static void vc_vssd_dtr(struct dm_target *ti)
{
	struct vc_vssd_target *vt = ti->private;

	vc_vssd_put(vt->vssd);
	dm_put_device(ti, vt->pool_dev);
	kfree(vt);
}

static int vc_vssd_map_bio(struct dm_target *ti, struct bio *bio)
{
	struct vc_vssd_target *vt = ti->private;

	return vc_vssd_request(vt->vssd, bio);
}

static int vc_vssd_end_io(struct dm_target *ti, struct bio *bio, blk_status_t *error)
{
	struct vc_vssd_target *vt = ti->private;

	vc_vssd_request_done(vt->vssd, bio, *error);
	return DM_ENDIO_DONE;
}

static int vc_vssd_preresume(struct dm_target *ti)
{
	struct vc_vssd_target *vt = ti->private;

	return vc_vssd_activate(vt->vssd, vt, ti->len);
}

static void vc_vssd_resume_target(struct dm_target *ti)
{
	struct vc_vssd_target *vt = ti->private;

	vc_vssd_resume(vt->vssd);
}

static void vc_vssd_postsuspend(struct dm_target *ti)
{
	struct vc_vssd_target *vt = ti->private;

	vc_vssd_suspend(vt->vssd);
}

static void vc_vssd_info(struct vcache_vssd *s, char *result, unsigned int maxlen)
{
	unsigned int sz = 0;

	spin_lock_irq(&s->lock);
	DMEMIT("%u %u %u %u %u %u %u %llu %llu", s->pool ? 1U << s->shift : 0, s->blocks,
	       s->quota, vc_vssd_owned(s), s->mapped, s->ready.nr, s->taken,
	       (u64)atomic64_read(&s->errors), (u64)atomic64_read(&s->refused));
	spin_unlock_irq(&s->lock);
}

static void vc_vssd_status(struct dm_target *ti, status_type_t type, unsigned int status_flags,
			   char *result, unsigned int maxlen)
{
	struct vc_vssd_target *vt = ti->private;
	unsigned int sz = 0;

	switch (type) {
	case STATUSTYPE_INFO:
		vc_vssd_info(vt->vssd, result, maxlen);
		break;
	case STATUSTYPE_TABLE:
		DMEMIT("%s %u %u%s", vt->pool_dev->name, vt->volume, READ_ONCE(vt->quota),
		       vt->persist ? " 1 persist" : "");
		break;
	case STATUSTYPE_IMA:
		*result = '\0';
		break;
	}
}

/* A message changes what the table shows, so the quota lasts over a suspend. */
static int vc_vssd_quota(struct vc_vssd_target *vt, u32 quota, bool keep, const char **error)
{
	struct vcache_vssd *s = vt->vssd;
	int r;

	*error = "the quota must not exceed the size";
	if (quota > s->blocks)
		return -EINVAL;
	*error = "the elastic SSDs of the pool cannot have so many blocks";
	r = vc_vssd_set_quota(s, quota, keep);
	if (r)
		return r;
	WRITE_ONCE(vt->quota, quota);
	vc_vssd_fill_soon(s);
	return 0;
}

static int vc_vssd_release_blocks(struct vcache_vssd *s, u32 first, u32 nr, const char **error)
{
	*error = "the blocks must be inside the device";
	if (first >= s->blocks || nr > s->blocks - first)
		return -EINVAL;
	*error = "cannot write the metadata of the pool";
	return vc_vssd_free_range(s, first, nr);
}

/* Is a block in the list that is asked for? */
static bool vc_vssd_listed(const struct vcache_vssd *s, u32 block, bool taken)
{
	u32 chunk = READ_ONCE(s->map[block].chunk);

	return taken ? chunk == VC_VSSD_TAKEN : vc_vssd_is_chunk(chunk);
}

/* List blocks as ranges: "<first> <blocks>", one a line. */
static void vc_vssd_list(struct vcache_vssd *s, bool taken, char *result, unsigned int maxlen)
{
	unsigned int sz = 0;
	u32 i, first;

	*result = '\0';
	mutex_lock(&s->mutex);
	for (i = 0; i < s->blocks; i++) {
		if (!vc_vssd_listed(s, i, taken))
			continue;
		for (first = i; i < s->blocks && vc_vssd_listed(s, i, taken); i++)
			;
		DMEMIT("%u %u\n", first, i - first);
		cond_resched();
	}
	mutex_unlock(&s->mutex);
}

static int vc_vssd_message(struct dm_target *ti, unsigned int argc, char **argv, char *result,
			   unsigned int maxlen)
{
	struct vc_vssd_target *vt = ti->private;
	const char *error = VC_VSSD_MESSAGES;
	struct vcache_vssd *s = vt->vssd;
	u32 first, nr;
	int r = -EINVAL;

	if (!s->pool) {
		error = "the device was never resumed";
	} else if ((argc == 2 || (argc == 3 && !strcasecmp(argv[2], "keep"))) &&
		   !strcasecmp(argv[0], "quota") && !kstrtou32(argv[1], 10, &nr)) {
		r = vc_vssd_quota(vt, nr, argc == 3, &error);
	} else if (argc == 3 && !strcasecmp(argv[0], "release") &&
		   !kstrtou32(argv[1], 10, &first) && !kstrtou32(argv[2], 10, &nr)) {
		r = vc_vssd_release_blocks(s, first, nr, &error);
	} else if (argc == 1 && !strcasecmp(argv[0], "force")) {
		error = "cannot write the metadata of the pool";
		r = vc_vssd_force(s);
	} else if (argc == 2 && !strcasecmp(argv[0], "list") &&
		   (!strcasecmp(argv[1], "taken") || !strcasecmp(argv[1], "mapped"))) {
		vc_vssd_list(s, !strcasecmp(argv[1], "taken"), result, maxlen);
		return 1;
	}
	if (r)
		DMERR("%s: %s", dm_device_name(s->md), error);
	return r;
}

static int vc_vssd_iterate_devices(struct dm_target *ti, iterate_devices_callout_fn fn, void *data)
{
	struct vc_vssd_target *vt = ti->private;

	return fn(ti, vt->pool_dev, 0, bdev_nr_sectors(vt->pool_dev->bdev), data);
}

/* Only whole blocks can be discarded. */
static void vc_vssd_io_hints(struct dm_target *ti, struct queue_limits *limits)
{
	limits->discard_granularity = ti->max_io_len << SECTOR_SHIFT;
	limits->max_hw_discard_sectors = UINT_MAX >> SECTOR_SHIFT;
	limits->max_discard_sectors = UINT_MAX >> SECTOR_SHIFT;
}

static struct target_type vcache_vssd_target = {
	.name = "vcache-vssd",
	.version = {1, 1, 0},
	.features = DM_TARGET_SINGLETON | DM_TARGET_NOWAIT,
	.module = THIS_MODULE,
	.ctr = vc_vssd_ctr,
	.dtr = vc_vssd_dtr,
	.map = vc_vssd_map_bio,
	.end_io = vc_vssd_end_io,
	.preresume = vc_vssd_preresume,
	.resume = vc_vssd_resume_target,
	.postsuspend = vc_vssd_postsuspend,
	.status = vc_vssd_status,
	.message = vc_vssd_message,
	.iterate_devices = vc_vssd_iterate_devices,
	.io_hints = vc_vssd_io_hints,
};

int __init vcache_vssd_init(void)
{
	return dm_register_target(&vcache_vssd_target);
}

void vcache_vssd_exit(void)
{
	dm_unregister_target(&vcache_vssd_target);
}
