// SPDX-License-Identifier: Apache-2.0
/*
 * Workers on files that are created, grow, have holes punched and are deleted, so that
 * blocks are reused by other files. Their events:
 *
 *   pc N <op> <file>   a file is created      pc U <op> <file>   is deleted
 *
 * File number 17 of a directory is called 17.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "load.h"

/* Files of a worker that exist at a time. */
#define FILES 3

/* Sectors of a file system block. */
#define BLOCK 8u

struct file {
	uint32_t number;
	int fd;
	uint64_t end;		/* sectors written so far, and holes between */
};

static void file_name(const struct worker *w, uint32_t number, char *name, size_t size)
{
	snprintf(name, size, "%s/%u", w->path, number);
}

static void file_begin(struct worker *w, struct file *f, uint32_t number)
{
	uint64_t op = op_next(w);
	char name[300];

	file_name(w, number, name, sizeof(name));
	journal("pc N %" PRIu64 " %u", op, number);
	f->number = number;
	f->end = 0;
	f->fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_DIRECT | O_CLOEXEC, 0600);
	if (f->fd < 0)
		die("cannot create %s", name);
	journal("pc C %" PRIu64 " 0", op);
}

static void file_end(struct worker *w, struct file *f)
{
	uint64_t op = op_next(w);
	char name[300];

	file_name(w, f->number, name, sizeof(name));
	close(f->fd);
	journal("pc U %" PRIu64 " %u", op, f->number);
	if (unlink(name))
		die("cannot delete %s", name);
	journal("pc C %" PRIu64 " 0", op);
}

/* Sometimes a part of a block, which the file system fills with zeroes. */
static uint32_t length(struct worker *w)
{
	uint32_t blocks = 1 + rnd(w, rnd(w, 6) ? 8 : w->largest / BLOCK);

	return rnd(w, 6) ? blocks * BLOCK : blocks * BLOCK - 1 - rnd(w, BLOCK - 1);
}

/* A range to be written or punched, inside the file. */
static struct span inside(struct worker *w, const struct file *f)
{
	uint64_t blocks = f->end / BLOCK;
	struct span at = { 0, BLOCK };

	if (blocks) {
		uint64_t n = 1 + rnd(w, blocks < 16 ? blocks : 16);

		at.sector = rnd(w, blocks - n + 1) * BLOCK;
		at.count = n * BLOCK;
	}
	return at;
}

/* A range behind the end: directly, or with a hole between. */
static struct span behind(struct worker *w, const struct file *f, bool hole)
{
	struct span at = { (f->end + BLOCK - 1) / BLOCK * BLOCK, length(w) };

	if (hole)
		at.sector += (1 + rnd(w, 16)) * BLOCK;
	if (at.sector + at.count > w->count)
		return inside(w, f);
	return at;
}

static void extend(struct file *f, struct span at)
{
	if (at.sector + at.count > f->end)
		f->end = at.sector + at.count;
}

static void preallocate(struct worker *w, struct file *f)
{
	struct span at = behind(w, f, false);

	/* Sparse in memory only: no content changes, so no event. */
	if (fallocate(f->fd, 0, at.sector * SECTOR, (off_t)at.count * SECTOR)) {
		if (errno != ENOSPC)
			die("fallocate");
		return;
	}
	extend(f, at);
}

static void step(struct worker *w, struct file *f, uint32_t *number)
{
	enum action a = act_next(w);
	struct span at = inside(w, f);

	switch (a) {
	case ACT_WRITE:
	case ACT_DSYNC:
		break;
	case ACT_APPEND:
	case ACT_HOLE:
		at = behind(w, f, a == ACT_HOLE);
		break;
	case ACT_PREALLOC:
		preallocate(w, f);
		return;
	case ACT_FDATASYNC:
	case ACT_AIOSYNC:
		io_flush(w, f->fd, f->number, a);
		return;
	case ACT_DISCARD:
		io_discard(w, f->fd, f->number, at);
		return;
	case ACT_REPLACE:
		file_end(w, f);
		file_begin(w, f, (*number)++);
		return;
	default:
		usleep(1000);
		return;
	}
	io_write(w, f->fd, f->number, at, a == ACT_DSYNC);
	extend(f, at);
}

void work_files(struct worker *w)
{
	uint64_t end = now_ms() + w->ms;
	uint32_t number = w->file;
	struct file f[FILES];

	for (unsigned int i = 0; i < FILES; i++)
		file_begin(w, &f[i], number++);
	for (uint64_t n = 0; n < w->ops && now_ms() < end; n++)
		step(w, &f[rnd(w, FILES)], &number);
	for (unsigned int i = 0; i < FILES; i++)
		close(f[i].fd);
}
