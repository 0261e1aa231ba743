// SPDX-License-Identifier: GPL-2.0
#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <linux/fs.h>

#include "../core/crc32c.h"
#include "../core/direct.h"
#include "pool.h"

static int pool_read(void *ctx, u64 block, u32 n, void *buf)
{
	struct pool *p = ctx;
	size_t left = (size_t)n * VC_BLOCK_SIZE;
	off_t at = block * VC_BLOCK_SIZE;
	u8 *to = buf;

	while (left) {
		ssize_t r = pread(p->fd, to, left, at);

		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			return -EIO;
		left -= r;
		at += r;
		to += r;
	}
	return 0;
}

static int pool_write(void *ctx, u64 block, u32 n, const void *buf)
{
	struct pool *p = ctx;
	size_t left = (size_t)n * VC_BLOCK_SIZE;
	off_t at = block * VC_BLOCK_SIZE;
	const u8 *from = buf;

	while (left) {
		ssize_t r = pwrite(p->fd, from, left, at);

		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			return -EIO;
		left -= r;
		at += r;
		from += r;
	}
	return fdatasync(p->fd) ? -errno : 0;
}

/**
 * pool_open - open a device or an image
 * @p: filled in
 * @path: its name
 * @write: open it for writing; fails if a block device is open elsewhere
 *
 * Return: 0 or a negative errno.
 */
int pool_open(struct pool *p, const char *path, bool write)
{
	int flags = (write ? O_RDWR : O_RDONLY) | O_CLOEXEC;
	struct stat st;
	u64 bytes;

	memset(p, 0, sizeof(*p));
	p->path = path;
	p->fd = -1;
	if (stat(path, &st))
		return -errno;
	if (S_ISBLK(st.st_mode) && write)
		flags |= O_EXCL;
	else if (!S_ISBLK(st.st_mode) && !S_ISREG(st.st_mode))
		return -ENOTBLK;
	p->fd = open(path, flags);
	if (p->fd < 0)
		return -errno;
	bytes = st.st_size;
	if (S_ISBLK(st.st_mode) && ioctl(p->fd, BLKGETSIZE64, &bytes))
		return -errno;
	p->blocks = bytes / VC_BLOCK_SIZE;
	p->st = (struct vcache_store){ .ctx = p, .read = pool_read,
				   .write = pool_write };
	return 0;
}

/* Load all metadata blocks of a type. A block without a valid copy is zeroed. */
static int pool_load_kind(struct pool *p, enum vcache_meta_type type, u32 n,
			  u8 **blocks, int **bad)
{
	u8 spare[VC_BLOCK_SIZE];
	u32 i;

	*blocks = calloc(n, VC_BLOCK_SIZE);
	*bad = calloc(n, sizeof(**bad));
	if (!*blocks || !*bad)
		return -ENOMEM;
	for (i = 0; i < n; i++)
		(*bad)[i] = vcache_meta_load(&p->st, &p->g, type, i,
					     *blocks + (size_t)i * VC_BLOCK_SIZE,
					     spare);
	return 0;
}

/**
 * pool_load - read the metadata
 * @p: the device, open
 *
 * Return: 0, even if a part of it is damaged; without a superblock, the error of
 * vcache_super_find().
 */
int pool_load(struct pool *p)
{
	u8 spare[VC_BLOCK_SIZE];
	int r;

	if (!p->blocks)
		return -EBADMSG;
	p->super_bad = vcache_super_find(&p->st, p->blocks, &p->g, &p->sb,
					 p->super, spare);
	if (p->super_bad < 0)
		return p->super_bad;
	p->work = malloc((size_t)p->g.chunk_blocks * VC_BLOCK_SIZE);
	if (!p->work)
		return -ENOMEM;
	r = pool_load_kind(p, VC_META_SLOTS, p->g.slot_blocks, &p->slots,
			   &p->slots_bad);
	if (r)
		return r;
	return pool_load_kind(p, VC_META_TABLE, p->g.table_blocks, &p->table,
			      &p->table_bad);
}

/**
 * pool_close - close a device
 * @p: the device
 */
void pool_close(struct pool *p)
{
	free(p->slots);
	free(p->slots_bad);
	free(p->table);
	free(p->table_bad);
	free(p->work);
	if (p->fd >= 0)
		close(p->fd);
}

/** pool_slots - count the volume slots */
u32 pool_slots(const struct pool *p)
{
	return p->g.slot_blocks * VC_SLOTS_PER_BLOCK;
}

/** pool_slot - get a volume slot */
const struct vcache_slot_disk *pool_slot(const struct pool *p, u32 i)
{
	const u8 *block = p->slots +
			  i / VC_SLOTS_PER_BLOCK * (size_t)VC_BLOCK_SIZE;

	return (const void *)(block + sizeof(struct vcache_meta_head) +
			      i % VC_SLOTS_PER_BLOCK *
			      sizeof(struct vcache_slot_disk));
}

/** pool_volume - find the slot of a volume, or NULL */
const struct vcache_slot_disk *pool_volume(const struct pool *p, u32 volume)
{
	u32 i;

	for (i = 0; i < pool_slots(p); i++) {
		if (le32_to_cpu(pool_slot(p, i)->volume) == volume)
			return pool_slot(p, i);
	}
	return NULL;
}

/** pool_table - get the entry of a chunk in the chunk table */
const struct vcache_chunk_disk *pool_table(const struct pool *p, u32 chunk)
{
	const u8 *block = p->table +
			  chunk / VC_CHUNKS_PER_BLOCK * (size_t)VC_BLOCK_SIZE;

	return (const void *)(block + sizeof(struct vcache_meta_head) +
			      chunk % VC_CHUNKS_PER_BLOCK *
			      sizeof(struct vcache_chunk_disk));
}

/** pool_data_good - has the data of an entry the right checksum? */
bool pool_data_good(struct pool *p, u32 chunk, const struct vcache_entry *e)
{
	u8 block[VC_BLOCK_SIZE];

	return !pool_read(p, (u64)chunk * p->g.chunk_blocks + e->place, 1,
			  block) &&
	       vcache_crc32c(block, VC_BLOCK_SIZE) == e->arg;
}

static void view_seal(struct pool *p, struct view *v)
{
	u32 i, k;

	for (i = 0; i < p->g.seal_blocks; i++) {
		const u8 *block = v->seal.block + (size_t)i * VC_BLOCK_SIZE;
		const struct vcache_log_head *h = (const void *)block;

		for (k = 0; k < le16_to_cpu(h->nr); k++)
			vcache_log_get_entry(block, k, &v->e[v->nr++]);
	}
}

/* Read the records of an open chunk, as vcache_replay_chunk() does. */
static void view_records(struct pool *p, struct view *v)
{
	u64 start = (u64)v->chunk * p->g.chunk_blocks;
	struct vcache_log_info info;
	u8 block[VC_BLOCK_SIZE];
	u32 at, k;

	for (at = 0; at < vcache_chunk_capacity(&p->g); at++) {
		if (pool_read(p, start + at, 1, block) ||
		    !vcache_log_parse(block, &p->g, v->chunk, at, &info) ||
		    info.type != VC_LOG_RECORD || info.gen != v->found.gen ||
		    info.volume != v->found.volume ||
		    info.tag != v->found.tag)
			continue;
		v->found.last = info.seq;
		for (k = 0; k < info.nr; k++) {
			struct vcache_entry *e = &v->e[v->nr];

			/* No writer adds more entries than a seal can have. */
			if (v->nr == vcache_seal_capacity(&p->g)) {
				v->unreadable = true;
				return;
			}
			vcache_log_get_entry(block, k, e);
			if (!e->mask || info.flags & VC_RECORD_UNCHECKED ||
			    pool_data_good(p, v->chunk, e))
				v->nr++;
			else
				v->bad_data++;
		}
		at += info.data;
	}
}

/**
 * pool_direct - find the volume of a chunk of an elastic SSD
 * @p: the device
 * @chunk: the chunk
 * @block: gets its block
 *
 * Return: the slot of the volume, or NULL if it is another chunk.
 */
const struct vcache_slot_disk *pool_direct(const struct pool *p, u32 chunk, u32 *block)
{
	const struct vcache_slot_disk *s;
	u16 slot;

	if (!vcache_direct_unpack(le64_to_cpu(pool_table(p, chunk)->clean), &slot, block) ||
	    slot >= pool_slots(p))
		return NULL;
	s = pool_slot(p, slot);
	return s->volume && le32_to_cpu(s->mode) == VC_VOLUME_VSSD ? s : NULL;
}

/**
 * pool_view - read a chunk
 * @p: the device
 * @chunk: its number
 * @v: filled in; the caller frees v->e. The seal is in p->work.
 */
void pool_view(struct pool *p, u32 chunk, struct view *v)
{
	u8 block[VC_BLOCK_SIZE];

	memset(v, 0, sizeof(*v));
	v->chunk = chunk;
	v->direct = pool_direct(p, chunk, &v->block);
	if (v->direct)
		return;
	if (vcache_chunk_scan(&p->st, &p->g, chunk,
			      le64_to_cpu(pool_table(p, chunk)->dead), block,
			      &v->found))
		v->unreadable = true;
	if (!v->found.gen)
		return;
	v->e = calloc(vcache_seal_capacity(&p->g), sizeof(*v->e));
	if (!v->e) {
		v->unreadable = true;
		return;
	}
	v->sealed = vcache_seal_load(&p->st, &p->g, chunk, v->found.gen, p->work,
				     &v->seal);
	if (v->sealed) {
		v->found.last = v->seal.info.seq;
		view_seal(p, v);
	} else {
		view_records(p, v);
	}
}
