// SPDX-License-Identifier: Apache-2.0
/* Workers on a range of existing sectors, of a device or of an image file. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <unistd.h>

#include "load.h"

/* Mostly small writes, like those of databases, and sometimes a large one. */
static struct span pick(struct worker *w)
{
	uint64_t slots = w->count / w->grain;
	uint64_t longest = w->largest / w->grain;
	struct span at;
	uint64_t n;

	n = 1 + rnd(w, rnd(w, 8) ? (longest < 8 ? longest : 8) : longest);
	if (rnd(w, 2))		/* hot blocks: overwrites, also under write-out */
		slots = slots > 64 ? slots / 16 : slots;
	if (n > slots)
		n = slots;
	at.sector = w->first + rnd(w, slots - n + 1) * w->grain;
	at.count = n * w->grain;
	return at;
}

static void write_many(struct worker *w, int fd)
{
	struct span at[AIO_DEPTH];
	unsigned int n = 0;

	for (unsigned int try = 0; try < AIO_DEPTH; try++) {
		struct span new = pick(w);
		unsigned int i;

		for (i = 0; i < n; i++) {
			if (new.sector < at[i].sector + at[i].count &&
			    at[i].sector < new.sector + new.count)
				break;
		}
		if (i == n)
			at[n++] = new;
	}
	io_write_many(w, fd, w->file, at, n);
}

static void step(struct worker *w, int fd)
{
	enum action a = act_next(w);

	switch (a) {
	case ACT_WRITE:
	case ACT_DSYNC:
		io_write(w, fd, w->file, pick(w), a == ACT_DSYNC);
		break;
	case ACT_AIO:
		write_many(w, fd);
		break;
	case ACT_FDATASYNC:
	case ACT_AIOSYNC:
	case ACT_SYNC:
		io_flush(w, fd, w->file, a);
		break;
	case ACT_DISCARD:
		io_discard(w, fd, w->file, pick(w));
		break;
	case ACT_ZERO:
		io_zero(w, fd, w->file, pick(w));
		break;
	case ACT_READ:
	case ACT_LOOK:
		io_read(w, fd, w->file, pick(w), a == ACT_READ);
		break;
	default:
		usleep(1000);
	}
}

static int open_direct(const struct worker *w)
{
	int fd = open(w->path, O_RDWR | O_DIRECT | O_CLOEXEC);

	if (fd < 0)
		die("cannot open %s", w->path);
	return fd;
}

void work_range(struct worker *w)
{
	uint64_t end = now_ms() + w->ms;
	int fd = open_direct(w);

	for (uint64_t n = 0; n < w->ops && now_ms() < end; n++)
		step(w, fd);
	close(fd);
}

/* Write every sector once and flush, to create an image. */
void work_fill(struct worker *w)
{
	uint64_t end = w->first + w->count;
	struct span at = { w->first, 0 };
	int fd = open(w->path, O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600);

	if (fd < 0)
		die("cannot create %s", w->path);
	for (; at.sector < end; at.sector += at.count) {
		at.count = end - at.sector < WRITE_MAX / SECTOR ? end - at.sector
								: WRITE_MAX / SECTOR;
		io_write(w, fd, w->file, at, 0);
	}
	io_flush(w, fd, w->file, ACT_FDATASYNC);
	close(fd);
}
