// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: the device-mapper target "vcache".
 *
 * A table line reads
 *
 *   <start> <len> vcache <mode> <origin> volume <tag> [<#args> <args>]
 *   <start> <len> vcache <mode> <origin> filesystem   [<#args> <args>]
 *
 * The mode is flush-only, writeback, writethrough or none. The optional arguments are
 *
 *   age_ms <n>			longest time that dirty data stays in memory without a
 *				flush, 1 to 600000 (default 5000)
 *   pool <device> <volume>	a vcache-pool, and the number of the origin in it, 1 to
 *				4294967295; required for writeback and writethrough, and
 *				not allowed for other modes
 *   destage_mib <n>		most MiB per second that destage writes to the origin, 0 to
 *				1048576 (default 0: no limit)
 *   destage_low <percent>	part of its share that a tag may have dirty before destage begins,
 *				0 to 80 (default 25), at most destage_high
 *   destage_high <percent>	the same, before destage runs at full speed, 1 to 80 (default 75)
 *
 * Write-zeroes are supported only on an origin without a volatile cache: they cannot have
 * FUA, and a flush of one tag must not flush the device. Otherwise the block layer writes
 * zeroes as data, and these are attributed to a tag.
 */
#include <linux/module.h>

#include "internal.h"

static const char * const vc_mode_names[] = {
	[VCACHE_MODE_FLUSH_ONLY] = "flush-only",
	[VCACHE_MODE_WRITEBACK] = "writeback",
	[VCACHE_MODE_WRITETHROUGH] = "writethrough",
	[VCACHE_MODE_NONE] = "none",
};

/*
 * Nothing here waits, so REQ_NOWAIT is for the device that a read is sent to. What becomes
 * part of the work of others may wait there.
 */
static int vc_map(struct dm_target *ti, struct bio *bio)
{
	struct vcache_target *vt = ti->private;
	struct vcache_io *io = vcache_io(bio);
	struct bio *send = NULL;
	struct vcache_tag *tag;
	int r;

	io->dev = vt->dev;
	io->kind = VC_IO_PLAIN;
	io->taken = false;
	io->unparked = false;
	io->partial = false;
	io->copied = false;
	io->writer = NULL;
	io->cell = VC_IO_NO_CELL;
	if (vt->mode == VCACHE_MODE_NONE) {
		vcache_bind(vt->dev, bio);
		return DM_MAPIO_REMAPPED;
	}
	io->nowait = bio->bi_opf & REQ_NOWAIT;
	if (bio_op(bio) != REQ_OP_READ)
		bio->bi_opf &= ~REQ_NOWAIT;
	if (bio->bi_opf & REQ_PREFLUSH) {
		vcache_bind(vt->dev, bio);
		return vcache_flush_bio(vt, bio, io);
	}

	switch (bio_op(bio)) {
	case REQ_OP_READ:
		rcu_read_lock();
		tag = vcache_tag_of_range(vt, bio) ?: vt->dev->host;
		r = vcache_read_bio(tag, bio, io, &send);
		rcu_read_unlock();
		if (send)
			submit_bio_noacct(send);
		return r;
	case REQ_OP_WRITE:
		return vcache_write_bio(vt, bio, io);
	case REQ_OP_DISCARD:
		rcu_read_lock();
		tag = vcache_tag_of_range(vt, bio) ?: vt->dev->host;
		atomic64_inc(&vcache_stats(tag)->discards);
		rcu_read_unlock();
		fallthrough;
	case REQ_OP_WRITE_ZEROES:
		vcache_bind(vt->dev, bio);
		return vcache_park(vt->dev, bio, io);
	default:
		return DM_MAPIO_KILL;
	}
}

static int vc_end_io(struct dm_target *ti, struct bio *bio,
		     blk_status_t *error)
{
	struct vcache_io *io = vcache_io(bio);

	if (io->cell != VC_IO_NO_CELL) {
		if (vcache_fallback(bio, io, *error))
			return DM_ENDIO_INCOMPLETE;
		vcache_lookup_done(io->dev->vol->pool, io->cell);
	}
	if (io->writer)
		vcache_write_done(io, *error);
	switch (io->kind) {
	case VC_IO_READ:
		vcache_read_done(bio, io, *error);
		break;
	case VC_IO_FLUSH:
		vcache_flush_done(bio, io);
		break;
	case VC_IO_PARKED:
		vcache_parked_done(io->dev, io, bio_op(bio));
		break;
	case VC_IO_DIRECT:
		vcache_past_done(io->dev, io, bio_op(bio));
		break;
	case VC_IO_PLAIN:
		break;
	}
	return DM_ENDIO_DONE;
}

static int vc_parse_scope(struct vcache_target *vt, struct dm_arg_set *as)
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

/* Check that the parts of the table line fit together. */
static int vc_parse_check(struct vcache_target *vt)
{
	bool cached = vt->mode == VCACHE_MODE_WRITEBACK ||
		      vt->mode == VCACHE_MODE_WRITETHROUGH;
	struct vcache_pool *p;

	if (cached != !!vt->pool_dev) {
		vt->ti->error = cached ?
			"writeback and writethrough need 'pool <device> <volume>'" :
			"only writeback and writethrough can have a pool";
		return -EINVAL;
	}
	if (!cached)
		return 0;
	p = vcache_pool_find(vt->pool_dev->bdev);
	if (bdev_logical_block_size(p->bdev) >
	    bdev_logical_block_size(vt->origin->bdev)) {
		vt->ti->error = "the cache device has larger sectors than the origin";
		return -EINVAL;
	}
	/* Fail here: a failing resume would leave the device suspended. */
	if (vcache_volume_sectors(p, vt->volume) > vt->ti->len) {
		vt->ti->error = "the volume is larger, and volumes cannot shrink; drop it first";
		return -EFBIG;
	}
	return 0;
}

static void vc_put_devices(struct vcache_target *vt)
{
	if (vt->pool_dev)
		dm_put_device(vt->ti, vt->pool_dev);
	if (vt->origin)
		dm_put_device(vt->ti, vt->origin);
}

static int vc_parse_mode(struct vcache_target *vt, const char *name)
{
	unsigned int i;

	for (i = 0; name && i < ARRAY_SIZE(vc_mode_names); i++) {
		if (!strcasecmp(name, vc_mode_names[i])) {
			vt->mode = i;
			return 0;
		}
	}
	vt->ti->error = "mode must be flush-only, writeback, writethrough or none";
	return -EINVAL;
}

static int vc_parse(struct vcache_target *vt, unsigned int argc, char **argv)
{
	struct dm_arg_set as = { argc, argv };
	struct dm_target *ti = vt->ti;
	const char *origin;
	int r;

	r = vc_parse_mode(vt, dm_shift_arg(&as));
	if (r)
		return r;
	origin = dm_shift_arg(&as);
	if (!origin) {
		ti->error = "no origin device given";
		return -EINVAL;
	}
	r = vc_parse_scope(vt, &as) ?: vcache_options_parse(vt, &as);
	if (r)
		return r;
	r = dm_get_device(ti, origin, dm_table_get_mode(ti->table),
			  &vt->origin);
	if (r) {
		ti->error = "cannot open the origin device";
		return r;
	}
	if (bdev_is_zoned(vt->origin->bdev)) {
		ti->error = "the origin is zoned, which is not supported";
		return -EINVAL;
	}
	return vc_parse_check(vt);
}

static int vc_ctr(struct dm_target *ti, unsigned int argc, char **argv)
{
	struct vcache_target *vt = kzalloc(sizeof(*vt), GFP_KERNEL);
	int r;

	if (!vt) {
		ti->error = "out of memory";
		return -ENOMEM;
	}
	vt->ti = ti;
	r = vc_parse(vt, argc, argv);
	if (r)
		goto bad;
	vt->dev = vcache_dev_get(dm_table_get_md(ti->table), vcache_dev_make);
	if (!vt->dev) {
		ti->error = "out of memory";
		r = -ENOMEM;
		goto bad;
	}
	if (vcache_dev_keeps_volume(vt->dev, vt)) {
		ti->error = "the cache has dirty data: send the message 'drain' first";
		vcache_dev_put(vt->dev, vt);
		r = -EBUSY;
		goto bad;
	}
	ti->private = vt;
	ti->per_io_data_size = sizeof(struct vcache_io);
	ti->flush_supported = true;
	ti->num_flush_bios = 1;
	ti->num_discard_bios = 1;
	/* Each write needs memory, so limit how many writes of swap are under way. */
	ti->limit_swap_bios = true;
	/* The device of the pool supports none, but ours go to the origin. */
	if (vt->pool_dev)
		ti->discards_supported =
			bdev_max_discard_sectors(vt->origin->bdev) > 0;
	/* With a log zeroes are written as data, because it has no record for them. */
	if (!vt->pool_dev &&
	    vcache_isolation_of(vt->origin->bdev) == VCACHE_ISOLATION_WRITE_THROUGH)
		ti->num_write_zeroes_bios = 1;
	return 0;
bad:
	vc_put_devices(vt);
	kfree(vt);
	return r;
}

static void vc_dtr(struct dm_target *ti)
{
	struct vcache_target *vt = ti->private;

	vcache_dev_put(vt->dev, vt);
	vc_put_devices(vt);
	kfree(vt);
}

static void vc_presuspend(struct dm_target *ti)
{
	struct vcache_target *vt = ti->private;

	vcache_dev_presuspend(vt->dev, dm_noflush_suspending(ti));
}

static void vc_presuspend_undo(struct dm_target *ti)
{
	struct vcache_target *vt = ti->private;

	vcache_dev_resume(vt->dev);
}

static void vc_postsuspend(struct dm_target *ti)
{
	struct vcache_target *vt = ti->private;

	vcache_dev_postsuspend(vt->dev);
}

static int vc_preresume(struct dm_target *ti)
{
	struct vcache_target *vt = ti->private;

	return vcache_dev_activate(vt->dev, vt);
}

static void vc_resume(struct dm_target *ti)
{
	struct vcache_target *vt = ti->private;

	vcache_dev_resume(vt->dev);
}

static u64 vc_mean_us(u64 ns, u64 n)
{
	return n ? div64_u64(ns, n * NSEC_PER_USEC) : 0;
}

static const char *vc_cache_state(struct vcache_volume *v, u64 dirty)
{
	if (READ_ONCE(v->bypass))
		return "bypassed";
	if (READ_ONCE(v->pool->state) == VC_POOL_FAILED)
		return READ_ONCE(v->bypass_in_part) ? "partly-lost" : "lost";
	if (READ_ONCE(v->failing) || READ_ONCE(v->nbad))
		return "failing";
	if (!dirty)
		return "clean";
	return READ_ONCE(v->drain) ? "draining" : "dirty";
}

/* Put what the volume has in the cache, behind the tags. */
static unsigned int vc_status_cache(struct vcache_volume *v, char *result,
				    unsigned int maxlen, unsigned int sz)
{
	u64 dirty = vcache_volume_dirty(v);

	DMEMIT(" cache %u %s %llu %llu %d %llu %llu %u", v->id,
	       vc_cache_state(v, dirty), dirty,
	       (u64)atomic64_read(&v->destaged),
	       atomic_read(&v->cache_errors), v->damaged,
	       (u64)atomic64_read(&v->promoted), vcache_destage_paused(v));
	return sz;
}

static void vc_status_info(struct vcache_target *vt, char *result,
			   unsigned int maxlen)
{
	static const char * const isolation[] = {
		[VCACHE_ISOLATION_WRITE_THROUGH] = "write-through",
		[VCACHE_ISOLATION_FUA] = "fua",
		[VCACHE_ISOLATION_DEGRADED] = "degraded",
		[VCACHE_ISOLATION_TAGGED] = "tagged",
	};
	unsigned int sz = 0, tags = 0;
	struct vcache_volume *v;
	struct vcache_tag *tag;
	u64 dirty = 0;

	rcu_read_lock();
	list_for_each_entry_rcu(tag, &vt->dev->tags, node) {
		dirty += atomic64_read(&tag->dirty_sectors);
		tags++;
	}
	DMEMIT("%s %s %s %llu %u", vc_mode_names[vt->mode],
	       vt->scope == VCACHE_SCOPE_VOLUME ? "volume" : "filesystem",
	       isolation[vcache_target_isolation(vt)], dirty, tags);
	list_for_each_entry_rcu(tag, &vt->dev->tags, node) {
		u64 flushes = vcache_stats_get(tag, flushes);

		if (!tags--)
			break;
		DMEMIT(" %u %u %llu %llu %llu %llu", tag->id, tag->weight,
		       (u64)atomic64_read(&tag->dirty_sectors),
		       (u64)READ_ONCE(tag->limit) << VC_PAGE_SECTORS_SHIFT,
		       flushes,
		       vc_mean_us(vcache_stats_get(tag, flush_ns), flushes));
	}
	rcu_read_unlock();
	v = vt->dev->target == vt ? READ_ONCE(vt->dev->vol) : NULL;
	if (v)
		vc_status_cache(v, result, maxlen, sz);
}

static void vc_status(struct dm_target *ti, status_type_t type,
		      unsigned int status_flags, char *result,
		      unsigned int maxlen)
{
	struct vcache_target *vt = ti->private;
	unsigned int sz = 0;

	switch (type) {
	case STATUSTYPE_INFO:
		vc_status_info(vt, result, maxlen);
		break;
	case STATUSTYPE_TABLE:
		DMEMIT("%s %s ", vc_mode_names[vt->mode], vt->origin->name);
		if (vt->scope == VCACHE_SCOPE_VOLUME)
			DMEMIT("volume %u", vt->tag_id);
		else
			DMEMIT("filesystem");
		sz = vcache_options_show(vt, result, maxlen, sz);
		break;
	case STATUSTYPE_IMA:
		*result = '\0';
		break;
	}
}

static int vc_iterate_devices(struct dm_target *ti,
			      iterate_devices_callout_fn fn, void *data)
{
	struct vcache_target *vt = ti->private;
	int r;

	r = fn(ti, vt->origin, 0, ti->len, data);
	/* Reads go to the cache device as well, so its limits apply. */
	if (!r && vt->pool_dev)
		r = fn(ti, vt->pool_dev, 0,
		       bdev_nr_sectors(vt->pool_dev->bdev), data);
	return r;
}

static struct target_type vcache_target_type = {
	.name = "vcache",
	.version = {1, 0, 0},
	.features = DM_TARGET_SINGLETON | DM_TARGET_NOWAIT,
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
	.message = vcache_target_message,
	.iterate_devices = vc_iterate_devices,
};

int __init vcache_target_init(void)
{
	return dm_register_target(&vcache_target_type);
}

void vcache_target_exit(void)
{
	dm_unregister_target(&vcache_target_type);
}
