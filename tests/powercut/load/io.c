// SPDX-License-Identifier: Apache-2.0
/*
 * The operations of the load, each between the event of its submission and
 * that of its completion:
 *
 *   pc W <op> <file> <sector> <count> <kind>   a write begins (D: durable by itself)
 *   pc Z|D <op> <file> <sector> <count>        zeroes are written, a range is discarded
 *   pc F <op> <file> <kind>                    a flush begins
 *   pc C <op> <0 or errno>                     it has completed
 *   pc X <op> <file> <sector> <found> <wanted> a read found other content
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/aio_abi.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "load.h"

/* splitmix64: repeatable, and sufficient. */
uint64_t rnd(struct worker *w, uint64_t n)
{
	uint64_t z = w->seed += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return (z ^ (z >> 31)) % n;
}

uint64_t op_next(struct worker *w)
{
	return (uint64_t)w->id << 32 | ++w->seq;
}

uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000ull + t.tv_nsec / 1000000;
}

enum action act_next(struct worker *w)
{
	uint64_t pick = rnd(w, w->total);
	enum action a = 0;

	while (pick >= w->weight[a])
		pick -= w->weight[a++];
	return a;
}

void io_init(struct worker *w)
{
	for (unsigned int a = 0; a < ACT_NR; a++)
		w->total += w->weight[a];
	if (posix_memalign((void **)&w->buffer, 4096, AIO_DEPTH * WRITE_MAX))
		die("no memory");
	if (syscall(SYS_io_setup, AIO_DEPTH, &w->aio))
		die("io_setup");
	if (w->weight[ACT_READ]) {
		w->last = calloc(w->count, sizeof(*w->last));
		if (!w->last)
			die("no memory");
		/* A device begins with zeroes; the contents of an image are unknown. */
		if (w->file)
			memset(w->last, 0xff, w->count * sizeof(*w->last));
	}
}

/* Remember who wrote last, for io_read(). */
static void note(struct worker *w, struct span at, uint64_t op)
{
	for (uint32_t i = 0; w->last && i < at.count; i++)
		w->last[at.sector - w->first + i] = op;
}

static void fill(uint8_t *buffer, uint64_t op, uint32_t file, struct span at)
{
	struct stamp *s = (struct stamp *)buffer;

	for (uint32_t i = 0; i < at.count; i++)
		stamp_fill(&s[i], op, file, at.sector + i);
}

static void completed(uint64_t op, ssize_t result, size_t wanted)
{
	int error = result < 0 ? errno : (size_t)result == wanted ? 0 : EIO;

	journal("pc C %" PRIu64 " %d", op, error);
}

void io_write(struct worker *w, int fd, uint32_t file, struct span at, int dsync)
{
	struct iovec iov = { w->buffer, (size_t)at.count * SECTOR };
	uint64_t op = op_next(w);
	ssize_t n;

	fill(w->buffer, op, file, at);
	journal("pc W %" PRIu64 " %u %" PRIu64 " %u %s", op, file, at.sector, at.count,
		dsync ? "D" : "-");
	n = pwritev2(fd, &iov, 1, at.sector * SECTOR, dsync ? RWF_DSYNC : 0);
	completed(op, n, iov.iov_len);
	note(w, at, op);
}

/* Wait for all submitted requests; their data is the op. */
static void reap(struct worker *w, unsigned int n, const size_t *wanted, const uint64_t *ops)
{
	struct io_event done[AIO_DEPTH];

	while (n) {
		long got = syscall(SYS_io_getevents, w->aio, 1, n, done, NULL);

		if (got <= 0)
			die("io_getevents");
		for (long i = 0; i < got; i++) {
			int64_t res = done[i].res;

			errno = res < 0 ? -res : 0;
			completed(ops[done[i].data], res < 0 ? -1 : res, wanted[done[i].data]);
		}
		n -= got;
	}
}

static void submit(struct worker *w, struct iocb *cb)
{
	if (syscall(SYS_io_submit, w->aio, 1, &cb) != 1)
		die("io_submit");
}

/* The writes must not overlap, since their order would be undefined. */
void io_write_many(struct worker *w, int fd, uint32_t file, const struct span *at, unsigned int n)
{
	struct iocb cb[AIO_DEPTH];
	size_t wanted[AIO_DEPTH] = { 0 };
	uint64_t ops[AIO_DEPTH] = { 0 };

	for (unsigned int i = 0; i < n; i++) {
		uint8_t *buffer = w->buffer + (size_t)i * WRITE_MAX;

		ops[i] = op_next(w);
		wanted[i] = (size_t)at[i].count * SECTOR;
		fill(buffer, ops[i], file, at[i]);
		memset(&cb[i], 0, sizeof(cb[i]));
		cb[i].aio_data = i;
		cb[i].aio_lio_opcode = IOCB_CMD_PWRITE;
		cb[i].aio_fildes = fd;
		cb[i].aio_buf = (uintptr_t)buffer;
		cb[i].aio_nbytes = wanted[i];
		cb[i].aio_offset = at[i].sector * SECTOR;
	}
	for (unsigned int i = 0; i < n; i++) {
		journal("pc W %" PRIu64 " %u %" PRIu64 " %u -", ops[i], file, at[i].sector,
			at[i].count);
		submit(w, &cb[i]);
	}
	reap(w, n, wanted, ops);
	for (unsigned int i = 0; i < n; i++)
		note(w, at[i], ops[i]);
}

void io_flush(struct worker *w, int fd, uint32_t file, enum action how)
{
	static const char * const kinds[ACT_NR] = {
		[ACT_FDATASYNC] = "fdatasync", [ACT_AIOSYNC] = "aio", [ACT_SYNC] = "sync",
	};
	struct iocb cb = { .aio_lio_opcode = IOCB_CMD_FDSYNC, .aio_fildes = fd };
	uint64_t op = op_next(w);
	size_t none = 0;

	journal("pc F %" PRIu64 " %u %s", op, file, kinds[how]);
	switch (how) {
	case ACT_AIOSYNC:
		submit(w, &cb);
		reap(w, 1, &none, &op);
		break;
	case ACT_SYNC:
		sync();
		completed(op, 0, 0);
		break;
	default:
		completed(op, fdatasync(fd), 0);
	}
}

void io_discard(struct worker *w, int fd, uint32_t file, struct span at)
{
	uint64_t range[2] = { at.sector * SECTOR, (uint64_t)at.count * SECTOR };
	uint64_t op = op_next(w);
	struct stat st;
	int r;

	if (fstat(fd, &st))
		die("fstat");
	/* A hole is zeroes once the file system says so; a discarded sector
	 * of a device may keep what it had.
	 */
	journal("pc %c %" PRIu64 " %u %" PRIu64 " %u", S_ISBLK(st.st_mode) ? 'D' : 'Z', op, file,
		at.sector, at.count);
	if (S_ISBLK(st.st_mode))
		r = ioctl(fd, BLKDISCARD, range);
	else
		r = fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, range[0], range[1]);
	completed(op, r, 0);
	note(w, at, UINT64_MAX);
}

void io_zero(struct worker *w, int fd, uint32_t file, struct span at)
{
	uint64_t range[2] = { at.sector * SECTOR, (uint64_t)at.count * SECTOR };
	uint64_t op = op_next(w);

	journal("pc Z %" PRIu64 " %u %" PRIu64 " %u", op, file, at.sector, at.count);
	completed(op, ioctl(fd, BLKZEROOUT, range), 0);
	note(w, at, 0);
}

/*
 * The last write must be visible at once, durable or not. If others write here too,
 * the last write is unknown, but it must have been for this place.
 */
void io_read(struct worker *w, int fd, uint32_t file, struct span at, bool alone)
{
	const struct stamp *s = (const struct stamp *)w->buffer;
	uint64_t op = op_next(w);
	ssize_t n = pread(fd, w->buffer, (size_t)at.count * SECTOR, at.sector * SECTOR);

	if (n != (ssize_t)at.count * SECTOR)
		die("read of %u sectors at %" PRIu64 " gave %zd", at.count, at.sector, n);
	for (uint32_t i = 0; i < at.count; i++, s++) {
		uint64_t wanted = alone ? w->last[at.sector - w->first + i] : 0;
		bool here = stamp_valid(s) && s->file == file && s->sector == at.sector + i;
		bool right;

		if (alone && wanted == UINT64_MAX)	/* not known */
			continue;
		if (alone)
			right = wanted ? here && s->op == wanted : s->magic == 0;
		else
			right = here;
		if (!right)
			journal("pc X %" PRIu64 " %u %" PRIu64 " %" PRIu64 " %" PRIu64, op, file,
				at.sector + i, s->op, wanted);
	}
}
