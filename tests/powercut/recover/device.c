// SPDX-License-Identifier: Apache-2.0
/* The cache device: sectors of the log, and the writes of the recovery. */
#include "recover.h"

static const u8 zeroes[SECTOR];

static const u8 *sector_at(const struct device *d, u64 sector)
{
	u64 at = d->image[sector];

	if (!at)
		return zeroes;
	if (at < d->logged)
		return d->log + at * SECTOR;
	return d->extra + (at - d->logged) * SECTOR;
}

static int device_read(void *ctx, u64 block, u32 n, void *buf)
{
	struct device *d = ctx;
	u64 first = block * VC_BLOCK_SECTORS, i;

	if (first + (u64)n * VC_BLOCK_SECTORS > d->sectors)
		return -EIO;
	for (i = 0; i < (u64)n * VC_BLOCK_SECTORS; i++)
		memcpy((u8 *)buf + i * SECTOR, sector_at(d, first + i), SECTOR);
	return 0;
}

static int device_write(void *ctx, u64 block, u32 n, const void *buf)
{
	struct device *d = ctx;
	u64 first = block * VC_BLOCK_SECTORS, i;
	u64 count = (u64)n * VC_BLOCK_SECTORS;

	if (first + count > d->sectors || d->used + count > d->room ||
	    d->writes == sizeof(d->write) / sizeof(d->write[0]))
		return -EIO;
	d->write[d->writes].sector = first;
	d->write[d->writes++].count = count;
	memcpy(d->extra + d->used * SECTOR, buf, count * SECTOR);
	for (i = 0; i < count; i++)
		d->image[first + i] = d->logged + d->used++;
	return 0;
}

void device_store(struct device *d, struct vcache_store *st)
{
	st->ctx = d;
	st->read = device_read;
	st->write = device_write;
}
