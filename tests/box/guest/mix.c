// SPDX-License-Identifier: Apache-2.0
/*
 * vload: reads and writes at random, and whether what is read is what was written.
 *
 * The first 16 bytes of each sector that is written say which sector it is and
 * with which write it came; what a block was written with last is kept in memory
 * from one command to the next. So a read finds out what is torn, old, or
 * somebody else's, and so does a look at everything at the end.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "vload.h"

#define SECTOR 512u
#define VERIFY_BYTES (1u << 20)

/* What each block was written with last; 0: nothing, it is all zeroes. */
static struct {
	uint64_t *value;
	uint64_t blocks, bs;
} ledger;

/* Have a ledger for the job. False: an error has been replied. */
static bool open_ledger(const struct job *job)
{
	uint64_t blocks = job->bs ? job->size / job->bs : 0;
	uint64_t *grown;

	if (!blocks || job->bs % SECTOR || job->bs > VERIFY_BYTES || VERIFY_BYTES % job->bs ||
	    (ledger.bs && ledger.bs != job->bs)) {
		reply("{\"error\": \"bs must be 512 to 1 MiB, a power of two, and stay the same\"}");
		return false;
	}
	if (blocks > ledger.blocks) {
		grown = realloc(ledger.value, blocks * sizeof(*grown));
		if (!grown) {
			reply_errno("ledger");
			return false;
		}
		memset(grown + ledger.blocks, 0, (blocks - ledger.blocks) * sizeof(*grown));
		ledger.value = grown;
		ledger.blocks = blocks;
	}
	ledger.bs = job->bs;
	return true;
}

static void stamp(unsigned char *buffer, uint64_t block, uint64_t value)
{
	for (uint64_t at = 0; at < ledger.bs; at += SECTOR) {
		uint64_t words[2] = { (block * ledger.bs + at) / SECTOR, value };

		memcpy(buffer + at, words, sizeof(words));
	}
}

/* Is a block that was read as the ledger says? False: an error has been replied. */
static bool check(const unsigned char *buffer, uint64_t block)
{
	for (uint64_t at = 0; at < ledger.bs; at += SECTOR) {
		uint64_t sector = (block * ledger.bs + at) / SECTOR, value = ledger.value[block];
		uint64_t words[2] = { value ? sector : 0, value }, found[2];

		memcpy(found, buffer + at, sizeof(found));
		if (memcmp(found, words, sizeof(words))) {
			reply("{\"error\": \"sector %" PRIu64 " is not what was written: it says "
			      "sector %" PRIu64 ", write %" PRIx64 ", not write %" PRIx64 "\"}",
			      sector, found[0], found[1], value);
			return false;
		}
	}
	return true;
}

static bool has_command(int commands)
{
	struct pollfd fd = { .fd = commands, .events = POLLIN };

	return poll(&fd, 1, 0) > 0;
}

/* One request. False: an error has been replied. */
static bool step(int fd, unsigned char *buffer, bool reads, uint64_t block, uint64_t value)
{
	off_t at = (off_t)(block * ledger.bs);

	if (reads) {
		if (pread(fd, buffer, ledger.bs, at) != (ssize_t)ledger.bs) {
			reply_errno("pread");
			return false;
		}
		return check(buffer, block);
	}
	stamp(buffer, block, value);
	if (pwrite(fd, buffer, ledger.bs, at) != (ssize_t)ledger.bs) {
		reply_errno("pwrite");
		return false;
	}
	ledger.value[block] = value;
	return true;
}

/* Read and write until the time is over, or a command is there. False: replied. */
static bool drive(int fd, unsigned char *buffer, const struct job *job, int commands,
		  uint64_t done[2])
{
	uint64_t random = job->seed * 2 + 1, blocks = job->size / job->bs;
	uint64_t end = now_ns() + job->time_ms * 1000000u;

	while (now_ns() < end && !has_command(commands)) {
		uint64_t block = next_random(&random) % blocks;
		bool reads = next_random(&random) % 100 < job->reads;

		if (!step(fd, buffer, reads, block, next_random(&random)))
			return false;
		done[reads]++;
		if (!reads && job->fsync && done[0] % job->fsync == 0 && fdatasync(fd)) {
			reply_errno("fdatasync");
			return false;
		}
		if (job->think_us)
			think(job->think_us);
	}
	return true;
}

/* The device, and a buffer for it. False: an error has been replied. */
static bool prepare(const struct job *job, int *fd, unsigned char **buffer)
{
	off_t end;

	*buffer = MAP_FAILED;
	*fd = open(job->dev, O_RDWR | O_DIRECT | O_CLOEXEC);
	if (*fd < 0) {
		reply_errno(job->dev);
		return false;
	}
	end = lseek(*fd, 0, SEEK_END);
	if (end < 0 || job->size > (uint64_t)end) {
		reply("{\"error\": \"size must be at most %jd\"}", (intmax_t)end);
		return false;
	}
	if (!open_ledger(job))
		return false;
	*buffer = mmap(NULL, VERIFY_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		       -1, 0);
	if (*buffer == MAP_FAILED)
		reply_errno("mmap");
	return *buffer != MAP_FAILED;
}

static void finish(int fd, unsigned char *buffer)
{
	if (buffer != MAP_FAILED)
		munmap(buffer, VERIFY_BYTES);
	if (fd >= 0)
		close(fd);
}

/* Read and write at random, check what is read; the next command ends it. */
void mix(const struct job *job, int commands)
{
	uint64_t done[2] = { 0 };
	unsigned char *buffer;
	int fd;

	if (prepare(job, &fd, &buffer) && drive(fd, buffer, job, commands, done))
		reply("{\"reads\": %" PRIu64 ", \"writes\": %" PRIu64 "}", done[1], done[0]);
	finish(fd, buffer);
}

/* Read all of it, and check it. False: an error has been replied. */
static bool read_all(int fd, unsigned char *buffer, const struct job *job, uint64_t *written)
{
	uint64_t blocks = job->size / job->bs, each = VERIFY_BYTES / job->bs;

	for (uint64_t first = 0; first < blocks; first += each) {
		uint64_t n = blocks - first < each ? blocks - first : each;

		if (pread(fd, buffer, n * job->bs, (off_t)(first * job->bs)) !=
		    (ssize_t)(n * job->bs)) {
			reply_errno("pread");
			return false;
		}
		for (uint64_t i = 0; i < n; i++) {
			if (!check(buffer + i * job->bs, first + i))
				return false;
			*written += !!ledger.value[first + i];
		}
	}
	return true;
}

/* Make what was written durable, and look whether all of it is there. */
void verify(const struct job *job)
{
	unsigned char *buffer;
	uint64_t written = 0;
	int fd;

	if (prepare(job, &fd, &buffer)) {
		if (fdatasync(fd))
			reply_errno("fdatasync");
		else if (read_all(fd, buffer, job, &written))
			reply("{\"blocks\": %" PRIu64 ", \"written\": %" PRIu64 "}",
			      job->size / job->bs, written);
	}
	finish(fd, buffer);
}
