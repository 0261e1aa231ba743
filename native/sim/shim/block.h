/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The simulation: bios, block devices and device mapper. See ../disk.c and ../dm.c.
 */
#ifndef SIM_BLOCK_H
#define SIM_BLOCK_H

#include "sched.h"

/* ---- bios ---- */

enum req_op {
	REQ_OP_READ = 0,
	REQ_OP_WRITE = 1,
	REQ_OP_FLUSH = 2,
	REQ_OP_DISCARD = 3,
	REQ_OP_WRITE_ZEROES = 9,
	REQ_OP_DRV_IN = 34,
	REQ_OP_DRV_OUT = 35,
};
#define REQ_OP_MASK 0xffU
#define REQ_FAILFAST_DRIVER (1U << 10)
#define REQ_SYNC (1U << 11)
#define REQ_META (1U << 12)
#define REQ_PRIO (1U << 13)
#define REQ_IDLE (1U << 15)
#define REQ_FUA (1U << 17)
#define REQ_PREFLUSH (1U << 18)
#define REQ_RAHEAD (1U << 19)
#define REQ_BACKGROUND (1U << 20)
#define REQ_NOWAIT (1U << 21)
#define REQ_POLLED (1U << 22)
#define REQ_SWAP (1U << 23)

#define BLK_STS_OK 0
#define BLK_STS_NOTSUPP 1
#define BLK_STS_RESOURCE 9
#define BLK_STS_IOERR 10
#define BLK_STS_DM_REQUEUE 11
#define BLK_STS_AGAIN 12
#define BLK_STS_MEDIUM 7
#define BLK_STS_NOSPC 3
#define BLK_STS_TIMEOUT 2
static inline int blk_status_to_errno(blk_status_t s)
{
	return !s ? 0 : s == BLK_STS_NOTSUPP ? -EOPNOTSUPP :
	       s == BLK_STS_AGAIN ? -EAGAIN : s == BLK_STS_NOSPC ? -ENOSPC : -EIO;
}
static inline blk_status_t errno_to_blk_status(int e)
{
	return !e ? BLK_STS_OK : e == -EOPNOTSUPP ? BLK_STS_NOTSUPP :
	       e == -EAGAIN ? BLK_STS_AGAIN : e == -ENOSPC ? BLK_STS_NOSPC :
	       BLK_STS_IOERR;
}

struct bio_vec {
	struct page *bv_page;
	unsigned int bv_len;
	unsigned int bv_offset;
};
struct bvec_iter {
	sector_t bi_sector;
	unsigned int bi_size;
	unsigned int bi_idx;
	unsigned int bi_bvec_done;
};
struct bvec_iter_all { int idx; };
struct sim_disk;
struct gendisk { dev_t devt; struct block_device *part0; };
struct block_device {
	dev_t bd_dev;
	struct gendisk *bd_disk;
	struct sim_disk *disk;
	const char *name;
};
struct bio;
typedef void (bio_end_io_t)(struct bio *bio);
struct bio_set { unsigned int front; };
struct cgroup_subsys_state { struct cgroup_subsys_state *parent; };
#define bio_associate_blkg_from_css(b, c) ((void)(b), (void)(c))
#define css_tryget(c) ((void)(c), true)
#define css_put(c) ((void)(c))

struct bio {
	struct bio *bi_next;
	struct block_device *bi_bdev;
	blk_opf_t bi_opf;
	unsigned short bi_flags;
	unsigned short bi_ioprio;
	blk_status_t bi_status;
	struct bvec_iter bi_iter;
	bio_end_io_t *bi_end_io;
	void *bi_private;
	atomic_t __bi_remaining;
	unsigned short bi_vcnt;
	unsigned short bi_max_vecs;
	int refs;
	struct bio_vec *bi_io_vec;
	void *memory;
	struct bio_vec bi_inline_vecs[];
};
enum { BIO_CHAIN = 1, BIO_QOS_THROTTLED, BIO_QOS_MERGED, BIO_REFFED };
#define BIO_MAX_VECS 256U
#define BIOSET_NEED_BVECS 1
#define bio_set_flag(b, f) ((b)->bi_flags |= 1U << (f))
#define bio_clear_flag(b, f) ((b)->bi_flags &= ~(1U << (f)))
#define bio_flagged(b, f) (!!((b)->bi_flags & (1U << (f))))
#define bio_op(b) ((enum req_op)((b)->bi_opf & REQ_OP_MASK))
#define op_is_write(op) ((op) & 1)
#define op_is_flush(o) ((o) & (REQ_FUA | REQ_PREFLUSH))
#define bio_data_dir(b) op_is_write(bio_op(b))
#define bio_sectors(b) ((b)->bi_iter.bi_size >> SECTOR_SHIFT)
#define bio_end_sector(b) ((b)->bi_iter.bi_sector + bio_sectors(b))
#define bio_has_data(b) ((b)->bi_iter.bi_size && bio_op(b) <= REQ_OP_WRITE)
int bioset_init(struct bio_set *bs, unsigned int n, unsigned int front, int flags);
#define bioset_exit(bs) ((void)(bs))
struct bio *bio_alloc_bioset(struct block_device *bdev, unsigned short vecs,
			     blk_opf_t opf, gfp_t gfp, struct bio_set *bs);
struct bio *bio_alloc_clone(struct block_device *bdev, struct bio *src, gfp_t gfp,
			    struct bio_set *bs);
void bio_reset(struct bio *bio, struct block_device *bdev, blk_opf_t opf);
void bio_put(struct bio *bio);
void bio_endio(struct bio *bio);
#define bio_io_error(b) do { struct bio *_b = (b); _b->bi_status = BLK_STS_IOERR; \
			     bio_endio(_b); } while (0)
static inline void bio_inc_remaining(struct bio *b)
{
	bio_set_flag(b, BIO_CHAIN);
	b->__bi_remaining.counter++;
}
void __bio_add_page(struct bio *bio, struct page *page, unsigned int len,
		    unsigned int off);
int bio_add_page(struct bio *bio, struct page *page, unsigned int len,
		 unsigned int off);
#define bio_set_dev(b, d) ((b)->bi_bdev = (d))
#define bio_clone_blkg_association(a, b) ((void)(a), (void)(b))
#define bio_first_bvec_all(b) (&(b)->bi_io_vec[0])
struct bio_vec bio_iter_iovec(struct bio *bio, struct bvec_iter iter);
void bio_advance_iter(const struct bio *bio, struct bvec_iter *iter,
		      unsigned int bytes);
#define bio_advance_iter_single bio_advance_iter
#define bio_advance(b, n) bio_advance_iter(b, &(b)->bi_iter, n)
#define bio_for_each_segment_all(bv, b, all)					\
	for ((all).idx = 0, (bv) = (b)->bi_io_vec; (all).idx < (b)->bi_vcnt;	\
	     (all).idx++, (bv)++)
#define __bio_for_each_segment(bv, b, it, start)				\
	for ((it) = (start); (it).bi_size &&					\
	     ((bv) = bio_iter_iovec(b, it), true);				\
	     bio_advance_iter(b, &(it), (bv).bv_len))
#define bio_for_each_segment(bv, b, it) \
	__bio_for_each_segment(bv, b, it, (b)->bi_iter)
#define memcpy_from_bvec(to, bv) \
	memcpy(to, (char *)page_address((bv)->bv_page) + (bv)->bv_offset, (bv)->bv_len)
#define memcpy_to_bvec(bv, from) \
	memcpy((char *)page_address((bv)->bv_page) + (bv)->bv_offset, from, (bv)->bv_len)
#define memzero_bvec(bv) \
	memset((char *)page_address((bv)->bv_page) + (bv)->bv_offset, 0, (bv)->bv_len)
#define bvec_kmap_local(bv) \
	((char *)page_address((bv)->bv_page) + (bv)->bv_offset)
#define kmap_local_page(p) page_address(p)
#define kunmap_local(p) ((void)(p))
void submit_bio_noacct(struct bio *bio);
#define submit_bio submit_bio_noacct
int submit_bio_wait(struct bio *bio);

struct bio_list { struct bio *head, *tail; };
static inline void bio_list_init(struct bio_list *l) { l->head = l->tail = NULL; }
static inline bool bio_list_empty(const struct bio_list *l)
{
	return !READ_ONCE(l->head);
}
static inline void bio_list_add(struct bio_list *l, struct bio *b)
{
	b->bi_next = NULL;
	if (l->tail)
		l->tail->bi_next = b;
	else
		l->head = b;
	l->tail = b;
}
static inline void bio_list_add_head(struct bio_list *l, struct bio *b)
{
	b->bi_next = l->head;
	l->head = b;
	if (!l->tail)
		l->tail = b;
}
static inline void bio_list_merge(struct bio_list *l, struct bio_list *o)
{
	if (!o->head)
		return;
	if (l->tail)
		l->tail->bi_next = o->head;
	else
		l->head = o->head;
	l->tail = o->tail;
}
static inline struct bio *bio_list_peek(struct bio_list *l) { return l->head; }
static inline struct bio *bio_list_pop(struct bio_list *l)
{
	struct bio *b = l->head;

	if (!b)
		return NULL;
	l->head = b->bi_next;
	if (!l->head)
		l->tail = NULL;
	b->bi_next = NULL;
	return b;
}
static inline unsigned int bio_list_size(const struct bio_list *l)
{
	unsigned int n = 0;
	struct bio *b;

	for (b = l->head; b; b = b->bi_next)
		n++;
	return n;
}
#define bio_list_for_each(b, l) for ((b) = (l)->head; (b); (b) = (b)->bi_next)

struct blk_plug { int unused; };
#define blk_start_plug(p) ((void)(p))
#define blk_finish_plug(p) ((void)(p))

/* ---- block devices ---- */

#define MINORBITS 20
#define MKDEV(ma, mi) (((dev_t)(ma) << MINORBITS) | (mi))
#define MAJOR(d) ((unsigned int)((d) >> MINORBITS))
#define MINOR(d) ((unsigned int)((d) & ((1U << MINORBITS) - 1)))
struct file { struct block_device *bdev; };
#define BLK_OPEN_READ 1
#define BLK_OPEN_WRITE 2
#define FMODE_READ 1
bool bdev_write_cache(struct block_device *bdev);
bool bdev_fua(struct block_device *bdev);
sector_t bdev_nr_sectors(struct block_device *bdev);
unsigned int bdev_max_discard_sectors(struct block_device *bdev);
#define bdev_is_zoned(b) false
#define bdev_logical_block_size(b) 512U
#define bdev_nonrot(b) true
#define bdev_discard_granularity(b) 4096U
int blkdev_issue_flush(struct block_device *bdev);
int blkdev_issue_discard(struct block_device *bdev, sector_t at, sector_t n, gfp_t gfp);
struct file *bdev_file_open_by_dev(dev_t dev, blk_mode_t mode, void *holder,
				   const void *ops);
void fput(struct file *file);
#define file_bdev(f) ((f)->bdev)

/* ---- NVMe passthrough: no device of the simulation has it ---- */

struct device_class { const char *name; };
struct device { struct device *parent; struct device_class *class; };
struct request_queue { int unused; };
struct request;
enum rq_end_io_ret { RQ_END_IO_NONE, RQ_END_IO_FREE };
typedef enum rq_end_io_ret (rq_end_io_fn)(struct request *, blk_status_t);
struct request {
	blk_opf_t cmd_flags;
	rq_end_io_fn *end_io;
	void *end_io_data;
};
struct nvme_command {
	struct {
		u8 opcode;
		__le64 slba;
		__le16 length;
	} rw;
	struct {
		u8 opcode;
		__le32 nsid;
		__le32 cdw2[2];
		__le32 cdw10;
	} common;
};
#define bdev_get_queue(b) ((struct request_queue *)(b))
#define queue_max_sectors(q) 32U
#define bdev_nowait(b) ((void)(b), true)
#define queue_max_hw_sectors(q) 256U
#define queue_max_segments(q) 128U
#define queue_is_mq(q) false
#define disk_to_dev(d) (&sim_no_device)
extern struct device sim_no_device;
#define get_start_sect(b) 0ULL
#define blk_mq_alloc_request(q, o, f) ((struct request *)ERR_PTR(-EIO))
#define blk_mq_free_request(r) ((void)(r))
#define blk_rq_append_bio(r, b) (-EIO)
#define blk_execute_rq_nowait(r, h) ((void)(r))
#define blk_execute_rq(r, h) BLK_STS_IOERR
#define symbol_get(s) NULL
#define symbol_put(s) do { } while (0)

/* ---- device mapper ---- */

struct dm_target;
struct dm_table;
struct mapped_device;
struct dm_dev {
	struct block_device *bdev;
	fmode_t mode;
	char name[16];
};
typedef int (*iterate_devices_callout_fn)(struct dm_target *ti, struct dm_dev *dev,
					  sector_t start, sector_t len, void *data);
typedef enum { STATUSTYPE_INFO, STATUSTYPE_TABLE, STATUSTYPE_IMA } status_type_t;
struct queue_limits {
	unsigned int discard_granularity;
	unsigned int max_discard_sectors;
	unsigned int max_hw_discard_sectors;
};
struct target_type {
	u64 features;
	const char *name;
	void *module;
	unsigned int version[3];
	int (*ctr)(struct dm_target *ti, unsigned int argc, char **argv);
	void (*dtr)(struct dm_target *ti);
	int (*map)(struct dm_target *ti, struct bio *bio);
	int (*end_io)(struct dm_target *ti, struct bio *bio, blk_status_t *error);
	void (*presuspend)(struct dm_target *ti);
	void (*presuspend_undo)(struct dm_target *ti);
	void (*postsuspend)(struct dm_target *ti);
	int (*preresume)(struct dm_target *ti);
	void (*resume)(struct dm_target *ti);
	void (*status)(struct dm_target *ti, status_type_t type, unsigned int flags,
		       char *result, unsigned int maxlen);
	int (*message)(struct dm_target *ti, unsigned int argc, char **argv,
		       char *result, unsigned int maxlen);
	int (*iterate_devices)(struct dm_target *ti, iterate_devices_callout_fn fn,
			       void *data);
	void (*io_hints)(struct dm_target *ti, struct queue_limits *limits);
};
struct dm_target {
	struct dm_table *table;
	struct target_type *type;
	sector_t begin;
	sector_t len;
	u32 max_io_len;
	unsigned int num_flush_bios;
	unsigned int num_discard_bios;
	unsigned int num_secure_erase_bios;
	unsigned int num_write_zeroes_bios;
	unsigned int per_io_data_size;
	void *private;
	char *error;
	bool flush_supported;
	bool discards_supported;
	bool limit_swap_bios;
	bool emulate_zone_append;
	bool accounts_remapped_io;
	bool max_discard_granularity;
};
struct dm_arg_set { unsigned int argc; char **argv; };
struct dm_arg { unsigned int min, max; char *error; };
#define DM_TARGET_SINGLETON 1
#define DM_TARGET_ALWAYS_WRITEABLE 2
#define DM_TARGET_IMMUTABLE 4
#define DM_TARGET_NOWAIT 128
#define DM_ENDIO_DONE 0
#define DM_ENDIO_INCOMPLETE 1
#define DM_ENDIO_REQUEUE 2
#define DM_MAPIO_SUBMITTED 0
#define DM_MAPIO_REMAPPED 1
#define DM_MAPIO_REQUEUE DM_ENDIO_REQUEUE
#define DM_MAPIO_KILL 4
#define DM_NAME "device-mapper"
#define DM_NAME_LEN 128
#define DM_UUID_LEN 129
int dm_copy_name_and_uuid(struct mapped_device *md, char *name, char *uuid);
#define DMERR(...) sim_log("error", __VA_ARGS__)
#define DMWARN(...) sim_log("warning", __VA_ARGS__)
#define DMINFO(...) sim_log("info", __VA_ARGS__)
#define DMERR_LIMIT DMERR
#define DMWARN_LIMIT DMWARN
#define DMCRIT DMERR
#define DMEMIT(...) \
	((sz >= maxlen) ? 0 : (sz += scnprintf(result + sz, maxlen - sz, __VA_ARGS__)))
int dm_register_target(struct target_type *t);
void dm_unregister_target(struct target_type *t);
const char *dm_shift_arg(struct dm_arg_set *as);
int dm_read_arg(const struct dm_arg *arg, struct dm_arg_set *as,
		unsigned int *value, char **error);
int dm_read_arg_group(const struct dm_arg *arg, struct dm_arg_set *as,
		      unsigned int *n, char **error);
int dm_get_device(struct dm_target *ti, const char *path, blk_mode_t mode,
		  struct dm_dev **out);
void dm_put_device(struct dm_target *ti, struct dm_dev *d);
blk_mode_t dm_table_get_mode(struct dm_table *t);
struct mapped_device *dm_table_get_md(struct dm_table *t);
const char *dm_device_name(struct mapped_device *md);
struct gendisk *dm_disk(struct mapped_device *md);
#define disk_devt(d) ((d)->devt)
int dm_noflush_suspending(struct dm_target *ti);
struct mapped_device *dm_get_md(dev_t dev);
int dm_hold(struct mapped_device *md);
void dm_put(struct mapped_device *md);
int dm_suspended(struct dm_target *ti);
void *dm_per_bio_data(struct bio *bio, size_t size);
struct bio *dm_bio_from_per_bio_data(void *data, size_t size);
void dm_accept_partial_bio(struct bio *bio, unsigned int sectors);

/* Elastic SSDs are compiled, but no history has one. */
#define dm_set_target_max_io_len(ti, sectors) ((ti)->max_io_len = (sectors), 0)
#define zero_fill_bio(bio) sim_check(false, "zero_fill_bio")
#define blkdev_issue_zeroout(bdev, at, n, gfp, flags) ((void)(bdev), (void)(at), -EOPNOTSUPP)
#define ZERO_PAGE(at) NULL

/* ---- generic netlink: requests come from the history ---- */

struct nlattr { u16 nla_len; u16 nla_type; };
struct nlmsghdr { u32 nlmsg_len; u32 nlmsg_seq; };
struct genlmsghdr { u8 cmd; u8 version; u16 reserved; };
struct netlink_ext_ack { const char *_msg; const struct nlattr *bad_attr; };
struct sk_buff { unsigned int len; u32 portid; u64 sim_last; };
struct genl_info {
	struct genlmsghdr *genlhdr;
	struct nlmsghdr *nlhdr;
	struct nlattr **attrs;
	struct netlink_ext_ack *extack;
	u64 sim_reply;
};
struct netlink_callback {
	unsigned int min_dump_alloc;
	struct sk_buff *skb;
	struct nlmsghdr *nlh;
	struct netlink_ext_ack *extack;
	long args[6];
	unsigned int seq, prev_seq;
};
struct netlink_range_validation { u64 min, max; };
struct nla_policy { u8 type; u16 len; const void *range; s64 min, max; };
enum { NLA_REJECT, NLA_U8, NLA_U16, NLA_U32, NLA_U64, NLA_FLAG, NLA_BINARY,
       NLA_NUL_STRING, NLA_STRING, NLA_NESTED };
#define NLA_POLICY_FULL_RANGE(t, r) { .type = t, .range = r }
#define NLA_POLICY_RANGE(t, lo, hi) { .type = t, .min = lo, .max = hi }
#define NLA_POLICY_MAX(t, hi) { .type = t, .max = hi }
struct genl_split_ops { u8 cmd; };
struct genl_ops {
	int (*doit)(struct sk_buff *skb, struct genl_info *info);
	int (*start)(struct netlink_callback *cb);
	int (*dumpit)(struct sk_buff *skb, struct netlink_callback *cb);
	int (*done)(struct netlink_callback *cb);
	const struct nla_policy *policy;
	unsigned int maxattr;
	u8 cmd;
	u8 flags;
};
struct genl_multicast_group { char name[16]; u8 flags; };
struct genl_family {
	char name[16];
	unsigned int version;
	unsigned int maxattr;
	void *module;
	const struct genl_ops *ops;
	u8 n_ops;
	const struct genl_multicast_group *mcgrps;
	u8 n_mcgrps;
	u8 resv_start_op;
	bool parallel_ops;
	int (*pre_doit)(const struct genl_split_ops *ops, struct sk_buff *skb,
			struct genl_info *info);
};
struct sim_genl_dump { struct nlattr **attrs; };
#define genl_info_dump(cb) ((struct sim_genl_dump *)(cb)->args)
#define GENL_HDRLEN 4
#define GENL_ADMIN_PERM 1
#define GENL_UNS_ADMIN_PERM 2
#define GENL_MCAST_CAP_SYS_ADMIN 4
#define NLM_F_MULTI 2
#define NLMSG_GOODSIZE 4096
#define NLMSG_DEFAULT_SIZE 4096
#define GENLMSG_DEFAULT_SIZE 4096
#define CAP_SYS_ADMIN 21
#define netlink_capable(skb, cap) true
#define NETLINK_CB(skb) (*(skb))
#define NL_SET_ERR_MSG(e, m) do { if (e) (e)->_msg = (m); } while (0)
#define NL_SET_ERR_MSG_ATTR(e, a, m) NL_SET_ERR_MSG(e, m)
#define NL_SET_BAD_ATTR(e, a) do { } while (0)
int genl_register_family(struct genl_family *f);
#define genl_unregister_family(f) ((void)(f))
#define nla_type(a) ((a)->nla_type)
#define nla_len(a) ((int)(a)->nla_len - 4)
#define nla_data(a) ((void *)((char *)(a) + 4))
static inline u32 nla_get_u32(const struct nlattr *a)
{
	u32 v;

	memcpy(&v, (const char *)a + 4, sizeof(v));
	return v;
}
static inline u64 nla_get_u64(const struct nlattr *a)
{
	u64 v;

	memcpy(&v, (const char *)a + 4, sizeof(v));
	return v;
}
static inline ssize_t nla_strscpy(char *to, const struct nlattr *a, size_t n)
{
	return sim_strscpy(to, (const char *)a + 4, n);
}
#define nlmsg_for_each_attr(a, nlh, hdr, rem)					\
	for ((a) = (struct nlattr *)((char *)(nlh) + sizeof(struct nlmsghdr) + (hdr)), \
	     (rem) = (int)((nlh)->nlmsg_len - sizeof(struct nlmsghdr) - (hdr)); \
	     (rem) >= 4;							\
	     (rem) -= ((a)->nla_len + 3) & ~3,					\
	     (a) = (struct nlattr *)((char *)(a) + (((a)->nla_len + 3) & ~3)))
#define nlmsg_new(s, g) ((struct sk_buff *)sim_zalloc(sizeof(struct sk_buff), g))
#define genlmsg_new nlmsg_new
#define nlmsg_free(s) sim_free(s)
#define genlmsg_put(s, p, q, f, fl, c) ((void *)(s))
#define genlmsg_put_reply(s, i, f, fl, c) ((void *)(s))
#define genlmsg_end(s, m) ((void)(m))
#define genlmsg_cancel(s, m) ((void)(m))
#define genlmsg_reply(s, i) ((i)->sim_reply = (s)->sim_last, sim_free(s), 0)
#define genlmsg_multicast(f, s, p, g, gfp) (sim_free(s))
#define skb_tail_pointer(s) ((unsigned char *)(s))
#define skb_tailroom(s) 4096
#define sim_put(...) ((void)(0, ##__VA_ARGS__), 0)
#define nla_put(s, t, l, d) sim_put(t, l)
#define nla_append(s, l, d) sim_put(l)
#define nla_reserve(s, t, l) ((struct nlattr *)NULL)
#define nla_put_flag(s, t) sim_put(t)
#define nla_put_string(s, t, v) sim_put(t, v)
#define nla_put_u8(s, t, v) sim_put(t, v)
#define nla_put_u16(s, t, v) sim_put(t, v)
#define nla_put_u32(s, t, v) sim_put(t, v)
#define nla_put_u64_64bit(s, t, v, p) ((s)->sim_last = (v), 0)
#define nla_nest_start(s, t) ((struct nlattr *)(s))
#define nla_nest_end(s, n) ((void)(n))
#define nla_nest_cancel(s, n) ((void)(n))
#define nl_dump_check_consistent(cb, h) ((void)(cb))

#endif
