/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The simulation: what its own files share. README.md says how they fit together.
 */
#ifndef SIM_H
#define SIM_H

#include "block.h"

/* Variables that belong to the simulated world: they are saved and restored with it. */
#define SIM_WORLD __attribute__((section("simworld")))

/* ---- mem.c ---- */

struct sim_saved;
void sim_mem_init(void);
void sim_mem_reset(void);
struct sim_saved *sim_save(struct sim_saved *old);
void sim_restore(const struct sim_saved *s);
void sim_world_blank(void);
extern bool sim_no_memory;	/* allocations that may fail do so at times */

/* ---- sched.c ---- */

/* How the next thing to run is chosen. */
enum sim_order { SIM_FIFO, SIM_LIFO, SIM_RANDOM };

struct sim_rng { u64 s; };
static inline u64 sim_rand(struct sim_rng *r)
{
	u64 x = r->s += 0x9e3779b97f4a7c15ULL;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
	return x ^ x >> 31;
}
/* A sequence that has nothing in common with that of the next seed. */
static inline struct sim_rng sim_seeded(u64 seed)
{
	struct sim_rng r = { seed ^ 0x5851f42d4c957f2dULL };

	r.s = sim_rand(&r) ^ sim_rand(&r) << 7;
	return r;
}
static inline u32 sim_below(struct sim_rng *r, u32 n)
{
	return n ? (u32)(sim_rand(r) >> 32) % n : 0;
}
static inline bool sim_chance(struct sim_rng *r, u32 of)
{
	return !sim_below(r, of);
}

extern struct sim_rng sim_rng;
extern enum sim_order sim_order;
extern u64 sim_steps;
extern char sim_bug_text[256];
extern bool sim_bugged;

void sim_sched_init(enum sim_order order, u64 seed);
/* Offers one more thing to run, the next request of the history: see history.c. */
extern bool (*sim_next_ready)(void);
extern void (*sim_next_run)(void);
/* Called after each step: see cut.c. */
extern void (*sim_after_step)(void);
/*
 * Run until @done says so. Time does not go beyond @until. Return: 0 when done; 1 if nothing
 * can run before @until; -1 after a violation.
 */
int sim_run(bool (*done)(void), u64 until);
bool sim_on_main(void);
void sim_dump(FILE *f);

/* ---- watch.c ---- */

void sim_progress(void);
void sim_watch(const void *work);	/* it is about to run */

/* ---- disk.c ---- */

#define SIM_BLOCK 4096U
#define SIM_DISKS 3
#define SIM_DISK_BLOCKS 2048

/* A block of a device: never changed once it is made. */
struct sim_blk {
	u64 hash;
	u8 data[SIM_BLOCK];
};

/* What a device holds. */
struct sim_image {
	u32 blocks;
	u64 hash;
	const struct sim_blk **blk;
};

enum sim_isolation { SIM_WRITE_THROUGH, SIM_FUA, SIM_DEGRADED };

enum { SIM_ORIGIN, SIM_CACHE, SIM_ORIGIN2 };

struct sim_fault {
	sector_t from, to;	/* sectors */
	bool reads, writes, hang;
	bool heads;		/* of reads, only those of records and seals */
};

struct sim_disk {
	struct block_device bdev;
	struct gendisk gd;
	u32 blocks;
	enum sim_isolation isolation;
	bool discards;
	const struct sim_blk *vis[SIM_DISK_BLOCKS];
	const struct sim_blk *dur[SIM_DISK_BLOCKS];
	u64 dur_hash;
	struct list_head cached;	/* completed writes in the volatile cache */
	struct list_head queue;		/* requests under way */
	struct sim_fault fault;
	u32 latency;			/* jiffies, at most */
	sector_t last;			/* first sector of the last write */
};
extern struct sim_disk sim_disks[SIM_DISKS];
extern u64 sim_disk_version;		/* counts changes of what a power cut could leave */
extern u64 sim_disk_seq;

void sim_disk_init(int nr, const char *name, dev_t dev, u32 blocks,
		   enum sim_isolation isolation, const struct sim_image *image);
void sim_disk_fill(struct sim_disk *d, u32 id);
struct block_device *sim_disk_find(const char *name);
/* For the scheduler. */
unsigned int sim_disk_ready(u64 *next);
void sim_disk_run(unsigned int nr);
bool sim_disk_hangs(void);
/* All writes that are under way. */
void sim_disk_writes(const struct sim_disk *d, void (*each)(sector_t at, u32 n, const u8 *data));
/* Images live until sim_images_reset(), unless they are kept. */
void sim_images_reset(void);
size_t sim_images_mark(void);
void sim_images_release(size_t mark);
struct sim_image sim_image_keep(const struct sim_image *i);
struct sim_image sim_image_zero(u32 blocks);
enum sim_survival { SIM_NOTHING, SIM_EVERYTHING, SIM_SOME };
struct sim_image sim_disk_cut(struct sim_disk *d, enum sim_survival how,
			      struct sim_rng *rng);
/* The content of a sector that a write with this number has written. */
void sim_stamp(void *to, u32 id, sector_t sector);
/* Return: the number, or SIM_FOREIGN if it is not whole, or of another sector. */
#define SIM_FOREIGN 0xffffffffU
u32 sim_stamp_of(const void *from, sector_t sector);

/* ---- faults.c ---- */

enum sim_damage_kind { SIM_NO_DAMAGE, SIM_MISDIRECT, SIM_ROT };
/* What happens to the @nth write to the cache device. */
struct sim_damage { enum sim_damage_kind kind; u32 nth; };
void sim_damage_plan(const struct sim_damage *p, u64 seed);
/* Can a recovery from this image know that something durable is damaged? */
bool sim_damage_is_known(const struct sim_image *cache);
/* For disk.c: a write is done. May change its place. Return: what is written. */
const u8 *sim_damage(struct sim_disk *d, sector_t *sector, u32 n, const u8 *data);
void sim_damage_sent(const struct sim_disk *d, sector_t sector, u32 n, const u8 *data);

/* ---- dm.c ---- */

struct mapped_device *sim_md_make(const char *name, int minor);
struct mapped_device *sim_md_find(const char *name);
/* These sleep. */
int sim_md_load(struct mapped_device *md, sector_t len, const char *line);
int sim_md_resume(struct mapped_device *md);
int sim_md_suspend(struct mapped_device *md, bool noflush);
int sim_md_message(struct mapped_device *md, const char *line);
const char *sim_md_status(struct mapped_device *md);
int sim_md_remove(struct mapped_device *md);
void sim_md_submit(struct mapped_device *md, struct bio *bio);
dev_t sim_md_number(struct mapped_device *md);
const char *sim_md_error(struct mapped_device *md);

/* ---- netlink.c ---- */

/* Attributes: pairs of type and length in bytes and data; ends with type -1. */
struct sim_attr { int type; const void *data; u16 len; };
int sim_genl(u8 cmd, const struct sim_attr *attrs, unsigned int n);
extern u64 sim_genl_reply; /* the last number in the last reply */

/* ---- probes ---- */

#define SIM_PROBES 64
extern struct sim_probe_count { const char *name; u64 hits; } sim_probes[SIM_PROBES];

/* ---- main.c ---- */

extern bool sim_verbose;
int sim_module_init(void);
void sim_module_exit(void);

#endif
