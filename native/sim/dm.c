// SPDX-License-Identifier: GPL-2.0-only
/*
 * The simulation: as much of the core of device mapper as the targets notice: tables, splitting
 * of requests, data for each of them, suspend with and without a flush, and internal suspend.
 */
#include "sim.h"

#define DEVICES 4
#define ARGS 32

struct dm_table {
	struct mapped_device *md;
	struct dm_target ti;
	char line[256];
};

struct mapped_device {
	bool used;
	char name[16];
	struct gendisk gd;
	struct block_device bdev;
	struct dm_table *live;
	struct dm_table *inactive;
	bool suspended;
	bool noflush;
	int internal;
	int holders;
	int messages;
	int pending;
	struct bio_list deferred;
	struct mutex lock;
	wait_queue_head_t wait;
	char status[1024];
	const char *error;
};

struct dm_io {
	struct mapped_device *md;
	struct bio *orig;
	int pending;
	blk_status_t status;
	bool flushed;
};

struct tio {
	struct dm_io *io;
	struct dm_target *ti;
	u32 *accepted;
	void *memory;
	struct bio clone;
};

SIM_WORLD static struct mapped_device mds[DEVICES];
SIM_WORLD static struct target_type *types[4];

int dm_register_target(struct target_type *t)
{
	int i;

	for (i = 0; types[i]; i++)
		;
	types[i] = t;
	return 0;
}

void dm_unregister_target(struct target_type *t)
{
	int i;

	for (i = 0; i < 4; i++) {
		if (types[i] == t)
			types[i] = NULL;
	}
}

/* ---- arguments and devices of targets ---- */

const char *dm_shift_arg(struct dm_arg_set *as)
{
	if (!as->argc)
		return NULL;
	as->argc--;
	return *as->argv++;
}

int dm_read_arg(const struct dm_arg *arg, struct dm_arg_set *as,
		unsigned int *value, char **error)
{
	const char *s = dm_shift_arg(as);

	if (!s || kstrtou32(s, 10, value) || *value < arg->min || *value > arg->max) {
		*error = arg->error;
		return -EINVAL;
	}
	return 0;
}

int dm_read_arg_group(const struct dm_arg *arg, struct dm_arg_set *as,
		      unsigned int *n, char **error)
{
	int r = dm_read_arg(arg, as, n, error);

	if (!r && *n > as->argc) {
		*error = arg->error;
		r = -EINVAL;
	}
	return r;
}

int dm_get_device(struct dm_target *ti, const char *path, blk_mode_t mode,
		  struct dm_dev **out)
{
	struct mapped_device *md = sim_md_find(path);
	struct dm_dev *d = sim_zalloc(sizeof(*d), GFP_KERNEL);

	d->bdev = md ? &md->bdev : sim_disk_find(path);
	if (!d->bdev) {
		sim_free(d);
		return -ENODEV;
	}
	snprintf(d->name, sizeof(d->name), "%s", path);
	*out = d;
	return 0;
}

void dm_put_device(struct dm_target *ti, struct dm_dev *d)
{
	sim_free(d);
}

blk_mode_t dm_table_get_mode(struct dm_table *t)
{
	return BLK_OPEN_READ | BLK_OPEN_WRITE;
}

struct mapped_device *dm_table_get_md(struct dm_table *t)
{
	return t->md;
}

const char *dm_device_name(struct mapped_device *md)
{
	return md->name;
}

int dm_copy_name_and_uuid(struct mapped_device *md, char *name, char *uuid)
{
	strcpy(name, md->name);
	return 0;
}

struct gendisk *dm_disk(struct mapped_device *md)
{
	return &md->gd;
}

int dm_noflush_suspending(struct dm_target *ti)
{
	return ti->table->md->noflush;
}

int dm_suspended(struct dm_target *ti)
{
	return ti->table->md->suspended;
}

struct mapped_device *dm_get_md(dev_t dev)
{
	int i;

	for (i = 0; i < DEVICES; i++) {
		if (mds[i].used && mds[i].gd.devt == dev) {
			mds[i].holders++;
			return &mds[i];
		}
	}
	return NULL;
}

int dm_hold(struct mapped_device *md)
{
	if (!md->used)
		return -EBUSY;
	md->holders++;
	return 0;
}

void dm_put(struct mapped_device *md)
{
	if (!--md->holders)
		wake_up(&md->wait);
}

/* ---- requests ---- */

void *dm_per_bio_data(struct bio *bio, size_t size)
{
	struct tio *t = container_of(bio, struct tio, clone);

	return (u8 *)t - ((size + 15) & ~15UL);
}

struct bio *dm_bio_from_per_bio_data(void *data, size_t size)
{
	struct tio *t = (struct tio *)((u8 *)data + ((size + 15) & ~15UL));

	return &t->clone;
}

void dm_accept_partial_bio(struct bio *bio, unsigned int sectors)
{
	struct tio *t = container_of(bio, struct tio, clone);

	BUG_ON(!t->accepted || sectors > *t->accepted || !sectors);
	*t->accepted = sectors;
	bio->bi_iter.bi_size = sectors << SECTOR_SHIFT;
}

static void process(struct mapped_device *md, struct dm_io *io);

static void io_put(struct dm_io *io)
{
	struct mapped_device *md = io->md;
	struct bio *orig = io->orig;

	if (--io->pending)
		return;
	if (io->status == BLK_STS_DM_REQUEUE && !md->noflush)
		io->status = BLK_STS_IOERR;
	if (!io->status && io->flushed && orig->bi_iter.bi_size) {
		/* The data comes after the flush. */
		io->flushed = false;
		orig->bi_opf &= ~REQ_PREFLUSH;
		process(md, io);
		return;
	}
	if (io->status == BLK_STS_DM_REQUEUE) {
		bio_list_add(&md->deferred, orig);
	} else {
		orig->bi_status = io->status;
		bio_endio(orig);
	}
	sim_free(io);
	if (!--md->pending)
		wake_up(&md->wait);
}

static void tio_free(struct tio *t)
{
	struct dm_io *io = t->io;

	sim_free(t->memory);
	io_put(io);
}

static void clone_end(struct bio *clone)
{
	struct tio *t = container_of(clone, struct tio, clone);
	blk_status_t error = clone->bi_status;
	int r = t->ti->type->end_io ?
		t->ti->type->end_io(t->ti, clone, &error) : DM_ENDIO_DONE;

	if (r == DM_ENDIO_INCOMPLETE)
		return;
	if (r == DM_ENDIO_REQUEUE)
		error = BLK_STS_DM_REQUEUE;
	if (error)
		t->io->status = error;
	tio_free(t);
}

/* Map one clone. Return: how many sectors the target has taken. */
static u32 map_one(struct dm_io *io, sector_t at, u32 sectors, bool flush)
{
	struct dm_target *ti = &io->md->live->ti;
	size_t front = (ti->per_io_data_size + 15) & ~15UL;
	u8 *m = sim_zalloc(front + sizeof(struct tio), GFP_NOIO);
	struct tio *t = (struct tio *)(m + front);
	struct bio *c = &t->clone, *orig = io->orig;
	u32 skip = (at - orig->bi_iter.bi_sector) << SECTOR_SHIFT;
	u32 accepted = sectors;
	int r;

	t->memory = m;
	t->io = io;
	t->ti = ti;
	t->accepted = &accepted;
	c->bi_bdev = &io->md->bdev;
	c->bi_opf = orig->bi_opf;
	c->bi_io_vec = orig->bi_io_vec;
	c->bi_vcnt = orig->bi_vcnt;
	c->__bi_remaining.counter = 1;
	c->refs = 1;
	c->bi_end_io = clone_end;
	c->bi_iter = orig->bi_iter;
	if (flush) {
		c->bi_iter.bi_size = 0;
	} else {
		bio_advance_iter(c, &c->bi_iter, skip);
		c->bi_iter.bi_size = sectors << SECTOR_SHIFT;
	}
	io->pending++;
	r = ti->type->map(ti, c);
	if (r == DM_MAPIO_SUBMITTED)
		return accepted;	/* The clone may be gone. */
	t->accepted = NULL;
	if (r == DM_MAPIO_REMAPPED) {
		submit_bio_noacct(c);
	} else {
		io->status = r == DM_MAPIO_REQUEUE ? BLK_STS_DM_REQUEUE : BLK_STS_IOERR;
		tio_free(t);
	}
	return accepted;
}

static void process(struct mapped_device *md, struct dm_io *io)
{
	struct bio *orig = io->orig;
	u32 left = bio_sectors(orig);
	sector_t at = orig->bi_iter.bi_sector;

	io->pending++;
	if (orig->bi_opf & REQ_PREFLUSH) {
		io->flushed = true;
		map_one(io, at, 0, true);
	} else {
		while (left && !io->status) {
			u32 n = map_one(io, at, left, false);

			at += n;
			left -= n;
		}
	}
	io_put(io);
}

void sim_md_submit(struct mapped_device *md, struct bio *bio)
{
	struct dm_io *io;

	if (md->suspended || !md->live) {
		bio_list_add(&md->deferred, bio);
		return;
	}
	io = sim_zalloc(sizeof(*io), GFP_NOIO);
	io->md = md;
	io->orig = bio;
	md->pending++;
	process(md, io);
}

/* ---- tables ---- */

struct mapped_device *sim_md_make(const char *name, int minor)
{
	struct mapped_device *md = &mds[minor];

	memset(md, 0, sizeof(*md));
	md->used = true;
	snprintf(md->name, sizeof(md->name), "%s", name);
	md->gd.devt = MKDEV(253, minor);
	md->gd.part0 = &md->bdev;
	md->bdev.bd_dev = md->gd.devt;
	md->bdev.bd_disk = &md->gd;
	md->bdev.name = md->name;
	md->suspended = true;
	mutex_init(&md->lock);
	init_waitqueue_head(&md->wait);
	bio_list_init(&md->deferred);
	return md;
}

struct mapped_device *sim_md_find(const char *name)
{
	int i;

	for (i = 0; i < DEVICES; i++) {
		if (mds[i].used && !strcmp(mds[i].name, name))
			return &mds[i];
	}
	return NULL;
}

dev_t sim_md_number(struct mapped_device *md)
{
	return md->gd.devt;
}

const char *sim_md_error(struct mapped_device *md)
{
	return md->error;
}

static unsigned int split(char *line, char **argv)
{
	unsigned int n = 0;
	char *at, *save = NULL;

	for (at = strtok_r(line, " ", &save); at && n < ARGS;
	     at = strtok_r(NULL, " ", &save))
		argv[n++] = at;
	return n;
}

static void table_free(struct dm_table *t)
{
	if (!t)
		return;
	if (t->ti.type->dtr)
		t->ti.type->dtr(&t->ti);
	sim_free(t);
}

int sim_md_load(struct mapped_device *md, sector_t len, const char *line)
{
	struct dm_table *t = sim_zalloc(sizeof(*t), GFP_KERNEL);
	char *argv[ARGS];
	unsigned int argc;
	int i, r = -EINVAL;

	snprintf(t->line, sizeof(t->line), "%s", line);
	argc = split(t->line, argv);
	t->md = md;
	t->ti.table = t;
	t->ti.len = len;
	for (i = 0; i < 4; i++) {
		if (types[i] && !strcmp(types[i]->name, argv[0]))
			t->ti.type = types[i];
	}
	if (t->ti.type)
		r = t->ti.type->ctr(&t->ti, argc - 1, argv + 1);
	md->error = t->ti.error;
	if (r) {
		sim_log("error", "table: %s: %s", line, t->ti.error);
		sim_free(t);
		return r;
	}
	mutex_lock(&md->lock);
	table_free(md->inactive);
	md->inactive = t;
	mutex_unlock(&md->lock);
	return 0;
}

static void unblock(struct mapped_device *md)
{
	struct bio_list list = md->deferred;
	struct bio *bio;

	md->suspended = false;
	bio_list_init(&md->deferred);
	while ((bio = bio_list_pop(&list)))
		sim_md_submit(md, bio);
}

static void do_suspend(struct mapped_device *md, bool noflush)
{
	struct dm_target *ti = &md->live->ti;

	md->noflush = noflush;
	if (ti->type->presuspend)
		ti->type->presuspend(ti);
	md->suspended = true;
	wait_event(md->wait, !md->pending);
	md->noflush = false;
	if (ti->type->postsuspend)
		ti->type->postsuspend(ti);
}

static int do_resume(struct mapped_device *md)
{
	struct dm_target *ti = &md->live->ti;
	int r = ti->type->preresume ? ti->type->preresume(ti) : 0;

	if (r)
		return r;
	if (ti->type->resume)
		ti->type->resume(ti);
	unblock(md);
	return 0;
}

int sim_md_suspend(struct mapped_device *md, bool noflush)
{
	mutex_lock(&md->lock);
	if (!md->suspended && md->live)
		do_suspend(md, noflush);
	mutex_unlock(&md->lock);
	return 0;
}

int sim_md_resume(struct mapped_device *md)
{
	struct dm_table *old = NULL;
	int r = 0;

	for (;;) {
		mutex_lock(&md->lock);
		if (!md->internal)
			break;
		mutex_unlock(&md->lock);
		wait_event(md->wait, !md->internal);
	}
	if (md->inactive) {
		if (md->live && !md->suspended)
			do_suspend(md, false);
		old = md->live;
		md->live = md->inactive;
		md->inactive = NULL;
	}
	if (md->live && md->suspended)
		r = do_resume(md);
	mutex_unlock(&md->lock);
	/* A message uses the table. */
	wait_event(md->wait, !md->messages);
	table_free(old);
	return r;
}

void dm_internal_suspend_noflush(struct mapped_device *md)
{
	mutex_lock(&md->lock);
	if (!md->internal++ && !md->suspended && md->live) {
		do_suspend(md, true);
		md->internal += 1000;
	}
	mutex_unlock(&md->lock);
}

void dm_internal_resume(struct mapped_device *md)
{
	mutex_lock(&md->lock);
	if (md->internal % 1000 == 1) {
		bool resume = md->internal > 1000;

		md->internal = 0;
		if (resume) {
			struct dm_target *ti = &md->live->ti;

			/* As dm does: without preresume. */
			if (ti->type->preresume)
				ti->type->preresume(ti);
			if (ti->type->resume)
				ti->type->resume(ti);
			unblock(md);
		}
	} else {
		md->internal--;
	}
	mutex_unlock(&md->lock);
	wake_up(&md->wait);
}

int sim_md_message(struct mapped_device *md, const char *line)
{
	char copy[256], *argv[ARGS];
	unsigned int argc;
	int r;

	snprintf(copy, sizeof(copy), "%s", line);
	argc = split(copy, argv);
	if (!md->live || !md->live->ti.type->message)
		return -EINVAL;
	md->messages++;
	r = md->live->ti.type->message(&md->live->ti, argc, argv, md->status,
				       sizeof(md->status));
	if (!--md->messages)
		wake_up(&md->wait);
	return r;
}

const char *sim_md_status(struct mapped_device *md)
{
	md->status[0] = 0;
	if (md->live && md->live->ti.type->status)
		md->live->ti.type->status(&md->live->ti, STATUSTYPE_INFO, 0,
					  md->status, sizeof(md->status));
	return md->status;
}

int sim_md_remove(struct mapped_device *md)
{
	mutex_lock(&md->lock);
	if (!md->suspended && md->live)
		do_suspend(md, false);
	mutex_unlock(&md->lock);
	md->used = false;
	wait_event(md->wait, !md->holders && !md->messages);
	table_free(md->inactive);
	table_free(md->live);
	md->live = md->inactive = NULL;
	return 0;
}
