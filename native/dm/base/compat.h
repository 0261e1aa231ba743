/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dm-vcache: the differences between the kernels that we build for, and nothing else.
 */
#ifndef DM_VCACHE_COMPAT_H
#define DM_VCACHE_COMPAT_H

#include <linux/blkdev.h>
#include <linux/device-mapper.h>
#include <linux/file.h>
#include <linux/hrtimer.h>
#include <linux/shrinker.h>
#include <linux/slab.h>
#include <linux/version.h>
#include <net/genetlink.h>

/* From drivers/md/dm.h, which out-of-tree modules do not get; dm-mod exports them. */
void dm_internal_suspend_noflush(struct mapped_device *md);
void dm_internal_resume(struct mapped_device *md);

typedef unsigned long (*vc_shrink_fn)(struct shrinker *shrinker,
				      struct shrink_control *sc);

/* The parameters of a function that ends a request. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 0, 0)
#define VC_RQ_END_IO_ARGS \
	struct request *rq, blk_status_t status, const struct io_comp_batch *iob
#else
#define VC_RQ_END_IO_ARGS struct request *rq, blk_status_t status
#endif

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 2, 0)
#define vc_genl_op genl_split_ops
#else
#define vc_genl_op genl_ops
#endif

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 13, 0)
static inline void hrtimer_setup(struct hrtimer *timer,
				 enum hrtimer_restart (*function)(struct hrtimer *),
				 clockid_t clock, enum hrtimer_mode mode)
{
	hrtimer_init(timer, clock, mode);
	timer->function = function;
}
#endif

/* Kernels that lack it let every process join every group. */
#ifndef GENL_MCAST_CAP_SYS_ADMIN
#define GENL_MCAST_CAP_SYS_ADMIN 0
#endif

/*
 * An error text with numbers. Older kernels need a text that stays: these are used in turn, so
 * that the text of a request is still there when it is answered, at once.
 */
#ifndef NL_SET_ERR_MSG_FMT
#define NL_SET_ERR_MSG_FMT(extack, fmt, ...) do {				\
	static char vc_texts[64][80];						\
	static atomic_t vc_next;						\
	struct netlink_ext_ack *vc_ack = (extack);				\
	char *vc_text = vc_texts[(u32)atomic_inc_return(&vc_next) % 64];	\
										\
	snprintf(vc_text, sizeof(vc_texts[0]), fmt, ##__VA_ARGS__);		\
	if (vc_ack)								\
		vc_ack->_msg = vc_text;						\
} while (0)
#endif

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 7, 0)

static inline struct nlattr **vcache_dump_attrs(struct netlink_callback *cb)
{
	return genl_info_dump(cb)->attrs;
}

static inline struct shrinker *vcache_shrinker_make(vc_shrink_fn count,
						    vc_shrink_fn scan)
{
	struct shrinker *s = shrinker_alloc(0, "dm-vcache");

	if (!s)
		return NULL;
	s->count_objects = count;
	s->scan_objects = scan;
	shrinker_register(s);
	return s;
}

static inline void vcache_shrinker_drop(struct shrinker *s)
{
	shrinker_free(s);
}

#else

static inline struct nlattr **vcache_dump_attrs(struct netlink_callback *cb)
{
	return (struct nlattr **)genl_dumpit_info(cb)->attrs;
}

static inline struct shrinker *vcache_shrinker_make(vc_shrink_fn count,
						    vc_shrink_fn scan)
{
	struct shrinker *s = kzalloc(sizeof(*s), GFP_KERNEL);

	if (!s)
		return NULL;
	s->count_objects = count;
	s->scan_objects = scan;
	s->seeks = DEFAULT_SEEKS;
	if (register_shrinker(s, "dm-vcache")) {
		kfree(s);
		return NULL;
	}
	return s;
}

static inline void vcache_shrinker_drop(struct shrinker *s)
{
	unregister_shrinker(s);
	kfree(s);
}

#endif

/* Open a block device once more, so that it stays. Return: a handle, or an ERR_PTR(). */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 9, 0)

static inline void *vcache_bdev_hold(struct block_device *bdev)
{
	return bdev_file_open_by_dev(bdev->bd_dev, BLK_OPEN_READ, NULL, NULL);
}

static inline void vcache_bdev_release(void *handle)
{
	fput(handle);
}

#elif LINUX_VERSION_CODE >= KERNEL_VERSION(6, 7, 0)

static inline void *vcache_bdev_hold(struct block_device *bdev)
{
	return bdev_open_by_dev(bdev->bd_dev, BLK_OPEN_READ, NULL, NULL);
}

static inline void vcache_bdev_release(void *handle)
{
	bdev_release(handle);
}

#elif LINUX_VERSION_CODE >= KERNEL_VERSION(6, 5, 0)

static inline void *vcache_bdev_hold(struct block_device *bdev)
{
	return blkdev_get_by_dev(bdev->bd_dev, BLK_OPEN_READ, NULL, NULL);
}

static inline void vcache_bdev_release(void *handle)
{
	blkdev_put(handle, NULL);
}

#else

static inline void *vcache_bdev_hold(struct block_device *bdev)
{
	return blkdev_get_by_dev(bdev->bd_dev, FMODE_READ, NULL);
}

static inline void vcache_bdev_release(void *handle)
{
	blkdev_put(handle, FMODE_READ);
}

#endif

#endif /* DM_VCACHE_COMPAT_H */
