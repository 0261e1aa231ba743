// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: the device-mapper target "vcache".
 *
 * A table line reads
 *
 *   <start> <len> vcache flush-only <origin> volume <tag> [<#args> <args>]
 *   <start> <len> vcache flush-only <origin> filesystem   [<#args> <args>]
 *
 * with the optional argument "age_ms <n>": the longest time that data which
 * nobody flushes stays in memory, 1 ... 600000 (5000).
 *
 * Write-zeroes are offered only on an origin without a volatile cache: there
 * is no FUA for them, and a flush of one tag must not flush the device. The
 * block layer writes zeroes as data instead, and they get their tag.
 */
#include <linux/module.h>

#include "vcache.h"

static int vc_map(struct dm_target *ti, struct bio *bio)
{
	struct vc_target *vt = ti->private;
	struct vc_io *io = vc_io(bio);
	struct vc_tag *tag;
	int r;

	io->dev = vt->dev;
	io->kind = VC_IO_PLAIN;
	bio_set_dev(bio, vt->origin->bdev);
	if (bio->bi_opf & REQ_PREFLUSH)
		return vc_flush_bio(vt, bio, io);

	switch (bio_op(bio)) {
	case REQ_OP_READ:
		rcu_read_lock();
		tag = vc_tag_of_range(vt, bio) ?: vt->dev->host;
		atomic64_inc(&tag->stats.reads);
		atomic64_add(bio_sectors(bio), &tag->stats.read_sectors);
		r = vc_read_bio(tag, bio, io);
		rcu_read_unlock();
		return r;
	case REQ_OP_WRITE:
		return vc_write_bio(vt, bio, io);
	case REQ_OP_DISCARD:
		rcu_read_lock();
		tag = vc_tag_of_range(vt, bio) ?: vt->dev->host;
		atomic64_inc(&tag->stats.discards);
		rcu_read_unlock();
		return vc_park(vt->dev, bio, io);
	case REQ_OP_WRITE_ZEROES:
		return vc_park(vt->dev, bio, io);
	default:
		return DM_MAPIO_KILL;
	}
}

static int vc_end_io(struct dm_target *ti, struct bio *bio,
		     blk_status_t *error)
{
	struct vc_io *io = vc_io(bio);

	switch (io->kind) {
	case VC_IO_READ:
		vc_read_done(bio, io, *error);
		break;
	case VC_IO_FLUSH:
		vc_flush_done(bio, io);
		break;
	case VC_IO_PARKED:
		vc_parked_done(io->dev, io);
		break;
	case VC_IO_PLAIN:
		break;
	}
	return DM_ENDIO_DONE;
}

static int vc_parse_scope(struct vc_target *vt, struct dm_arg_set *as)
{
	static const struct dm_arg tag_arg = {
		1, VCACHE_TAG_MAX, "tag must be 1..65535"
	};
	const char *scope = dm_shift_arg(as);

	if (scope && !strcasecmp(scope, "filesystem")) {
		vt->scope = VCACHE_SCOPE_FILESYSTEM;
		return 0;
	}
	if (scope && !strcasecmp(scope, "volume")) {
		vt->scope = VCACHE_SCOPE_VOLUME;
		return dm_read_arg(&tag_arg, as, &vt->tag_id, &vt->ti->error);
	}
	vt->ti->error = "scope must be 'volume <tag>' or 'filesystem'";
	return -EINVAL;
}

static int vc_parse_options(struct vc_target *vt, struct dm_arg_set *as)
{
	static const struct dm_arg count_arg = {
		0, 2, "number of optional arguments must be 0 or 2"
	};
	static const struct dm_arg age_arg = {
		1, VC_AGE_MS_MAX, "age_ms must be 1..600000"
	};
	unsigned int n;
	int r;

	vt->age_ms = VC_AGE_MS_DEFAULT;
	if (!as->argc)
		return 0;
	r = dm_read_arg_group(&count_arg, as, &n, &vt->ti->error);
	if (r)
		return r;
	vt->nr_args = n;
	for (; n; n -= 2) {
		const char *name = dm_shift_arg(as);

		if (n < 2 || strcasecmp(name, "age_ms")) {
			vt->ti->error = "the only optional argument is 'age_ms <n>'";
			return -EINVAL;
		}
		r = dm_read_arg(&age_arg, as, &vt->age_ms, &vt->ti->error);
		if (r)
			return r;
	}
	if (as->argc) {
		vt->ti->error = "too many arguments";
		return -EINVAL;
	}
	return 0;
}

static int vc_parse(struct vc_target *vt, unsigned int argc, char **argv)
{
	struct dm_arg_set as = { argc, argv };
	struct dm_target *ti = vt->ti;
	const char *mode = dm_shift_arg(&as);
	const char *origin;
	int r;

	if (!mode || strcasecmp(mode, "flush-only")) {
		ti->error = "mode must be 'flush-only'";
		return -EINVAL;
	}
	origin = dm_shift_arg(&as);
	if (!origin) {
		ti->error = "no origin device given";
		return -EINVAL;
	}
	r = vc_parse_scope(vt, &as) ?: vc_parse_options(vt, &as);
	if (r)
		return r;
	r = dm_get_device(ti, origin, dm_table_get_mode(ti->table),
			  &vt->origin);
	if (r) {
		ti->error = "cannot open the origin device";
		return r;
	}
	if (bdev_is_zoned(vt->origin->bdev)) {
		dm_put_device(ti, vt->origin);
		ti->error = "the origin is a zoned device, that is not supported";
		return -EINVAL;
	}
	return 0;
}

static int vc_ctr(struct dm_target *ti, unsigned int argc, char **argv)
{
	struct vc_target *vt = kzalloc(sizeof(*vt), GFP_KERNEL);
	int r;

	if (!vt) {
		ti->error = "out of memory";
		return -ENOMEM;
	}
	vt->ti = ti;
	r = vc_parse(vt, argc, argv);
	if (r)
		goto bad;
	vt->dev = vc_dev_get(dm_table_get_md(ti->table));
	if (!vt->dev) {
		ti->error = "out of memory";
		dm_put_device(ti, vt->origin);
		r = -ENOMEM;
		goto bad;
	}
	ti->private = vt;
	ti->per_io_data_size = sizeof(struct vc_io);
	ti->flush_supported = true;
	ti->num_flush_bios = 1;
	ti->num_discard_bios = 1;
	if (vc_isolation(vt->origin->bdev) == VCACHE_ISOLATION_WRITE_THROUGH)
		ti->num_write_zeroes_bios = 1;
	return 0;
bad:
	kfree(vt);
	return r;
}

static void vc_dtr(struct dm_target *ti)
{
	struct vc_target *vt = ti->private;

	vc_dev_put(vt->dev, vt);
	dm_put_device(ti, vt->origin);
	kfree(vt);
}

static void vc_presuspend(struct dm_target *ti)
{
	struct vc_target *vt = ti->private;

	vc_dev_presuspend(vt->dev, dm_noflush_suspending(ti));
}

static void vc_presuspend_undo(struct dm_target *ti)
{
	struct vc_target *vt = ti->private;

	vc_dev_resume(vt->dev);
}

static void vc_postsuspend(struct dm_target *ti)
{
	struct vc_target *vt = ti->private;

	vc_dev_postsuspend(vt->dev);
}

static int vc_preresume(struct dm_target *ti)
{
	struct vc_target *vt = ti->private;

	return vc_dev_activate(vt->dev, vt);
}

static void vc_resume(struct dm_target *ti)
{
	struct vc_target *vt = ti->private;

	vc_dev_resume(vt->dev);
}

static u64 vc_mean_us(u64 ns, u64 n)
{
	return n ? div64_u64(ns, n * NSEC_PER_USEC) : 0;
}

static void vc_status_info(struct vc_target *vt, char *result,
			   unsigned int maxlen)
{
	static const char * const isolation[] = {
		[VCACHE_ISOLATION_WRITE_THROUGH] = "write-through",
		[VCACHE_ISOLATION_FUA] = "fua",
		[VCACHE_ISOLATION_DEGRADED] = "degraded",
		[VCACHE_ISOLATION_TAGGED] = "tagged",
	};
	unsigned int sz = 0, tags = 0;
	struct vc_tag *tag;
	u64 dirty = 0;

	rcu_read_lock();
	list_for_each_entry_rcu(tag, &vt->dev->tags, node) {
		dirty += atomic64_read(&tag->dirty_sectors);
		tags++;
	}
	DMEMIT("flush-only %s %s %llu %u",
	       vt->scope == VCACHE_SCOPE_VOLUME ? "volume" : "filesystem",
	       isolation[vc_target_isolation(vt)], dirty, tags);
	list_for_each_entry_rcu(tag, &vt->dev->tags, node) {
		u64 flushes = atomic64_read(&tag->stats.flushes);

		if (!tags--)
			break;
		DMEMIT(" %u %u %llu %llu %llu %llu", tag->id, tag->weight,
		       (u64)atomic64_read(&tag->dirty_sectors),
		       (u64)READ_ONCE(tag->limit) << VC_PAGE_SECTORS_SHIFT,
		       flushes,
		       vc_mean_us(atomic64_read(&tag->stats.flush_ns),
				  flushes));
	}
	rcu_read_unlock();
}

static void vc_status(struct dm_target *ti, status_type_t type,
		      unsigned int status_flags, char *result,
		      unsigned int maxlen)
{
	struct vc_target *vt = ti->private;
	unsigned int sz = 0;

	switch (type) {
	case STATUSTYPE_INFO:
		vc_status_info(vt, result, maxlen);
		break;
	case STATUSTYPE_TABLE:
		DMEMIT("flush-only %s ", vt->origin->name);
		if (vt->scope == VCACHE_SCOPE_VOLUME)
			DMEMIT("volume %u", vt->tag_id);
		else
			DMEMIT("filesystem");
		if (vt->nr_args)
			DMEMIT(" %u age_ms %u", vt->nr_args, vt->age_ms);
		break;
	case STATUSTYPE_IMA:
		*result = '\0';
		break;
	}
}

static int vc_iterate_devices(struct dm_target *ti,
			      iterate_devices_callout_fn fn, void *data)
{
	struct vc_target *vt = ti->private;

	return fn(ti, vt->origin, 0, ti->len, data);
}

static struct target_type vcache_target = {
	.name = "vcache",
	.version = {1, 0, 0},
	.features = DM_TARGET_SINGLETON,
	.module = THIS_MODULE,
	.ctr = vc_ctr,
	.dtr = vc_dtr,
	.map = vc_map,
	.end_io = vc_end_io,
	.presuspend = vc_presuspend,
	.presuspend_undo = vc_presuspend_undo,
	.postsuspend = vc_postsuspend,
	.preresume = vc_preresume,
	.resume = vc_resume,
	.status = vc_status,
	.iterate_devices = vc_iterate_devices,
};

static int __init vc_init(void)
{
	int r;

	r = vc_buffer_init();
	if (r)
		return r;
	r = vc_shrinker_init();
	if (r)
		goto bad_shrinker;
	r = vc_netlink_init();
	if (r)
		goto bad_netlink;
	r = dm_register_target(&vcache_target);
	if (r)
		goto bad_target;
	return 0;
bad_target:
	vc_netlink_exit();
bad_netlink:
	vc_shrinker_exit();
bad_shrinker:
	vc_buffer_exit();
	return r;
}

static void __exit vc_exit(void)
{
	dm_unregister_target(&vcache_target);
	vc_netlink_exit();
	vc_shrinker_exit();
	vc_buffer_exit();
}

module_init(vc_init);
module_exit(vc_exit);

MODULE_DESCRIPTION(DM_NAME " flushes and cache shares by virtual disk");
MODULE_AUTHOR("The nova-vcache authors");
MODULE_LICENSE("GPL");
