// SPDX-License-Identifier: Apache-2.0
/*
 * vload - load generator of the small guest.
 *
 * Reads one command a line on its console, answers each with one line
 * "@vload <JSON>", so that one boot of the guest serves any number of runs:
 *
 *   run dev=/dev/vda size=67108864 bs=4096 fsync=8 think_us=0 ramp_ms=500 time_ms=5000 tail_ms=500 seed=1
 *   fill dev=/dev/vda size=67108864
 *   mix dev=/dev/vda size=67108864 bs=32768 reads=75 think_us=0 time_ms=60000 seed=1
 *   verify dev=/dev/vda size=67108864 bs=32768
 *   ping
 *   poweroff
 *
 * "run" does what fio calls --rw=randwrite --bs=N --ioengine=psync --direct=1
 * --fdatasync=K: one writer, one write at a time, an fdatasync after every K
 * writes (0: never), and --thinktime=T us of sleep after each. It writes for ramp + time + tail; only what begins in the
 * time between ramp and tail is counted, so that two guests started a little
 * apart are measured while both are busy. Latencies are CLOCK_MONOTONIC
 * around the system call, percentiles are exact (all samples are kept).
 * The report names its fields as fio's JSON does, times in ns.
 *
 * "mix" reads and writes, and checks what it reads, until its time is over or the
 * next command is there; "verify" reads everything and checks it. See mix.c.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/reboot.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "vload.h"

#define BLOCK 4096u		/* bs, if it is not said */
#define FILL_BYTES (1u << 20)

/* Latency samples in ns. */
struct samples {
	uint64_t *ns;
	size_t count, room;
};

static FILE *console;	/* replies */

void reply(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fputs("@vload ", console);
	vfprintf(console, format, args);
	fputc('\n', console);
	fflush(console);
	va_end(args);
}

void reply_errno(const char *what)
{
	reply("{\"error\": \"%s: %s\"}", what, strerror(errno));
}

uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* xorshift64*: quick, seeded, long period (Vigna 2016). */
uint64_t next_random(uint64_t *state)
{
	uint64_t x = *state;

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	*state = x;
	return x * 0x2545F4914F6CDD1Du;
}

static bool add_sample(struct samples *s, uint64_t ns)
{
	if (s->count == s->room) {
		size_t room = s->room ? s->room * 2 : 4096;
		uint64_t *grown = realloc(s->ns, room * sizeof(*grown));

		if (!grown)
			return false;
		s->ns = grown;
		s->room = room;
	}
	s->ns[s->count++] = ns;
	return true;
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* Nearest-rank percentile of sorted samples; p in per mille. */
static uint64_t percentile(const struct samples *s, unsigned int p)
{
	size_t rank = (s->count * p + 999) / 1000;

	return s->ns[rank ? rank - 1 : 0];
}

static void print_latency(FILE *f, const char *name, struct samples *s)
{
	uint64_t sum = 0;

	fprintf(f, "\"%s\": {\"N\": %zu", name, s->count);
	if (s->count) {
		qsort(s->ns, s->count, sizeof(*s->ns), by_value);
		for (size_t i = 0; i < s->count; i++)
			sum += s->ns[i];
		fprintf(f, ", \"min\": %" PRIu64 ", \"max\": %" PRIu64
			", \"mean\": %" PRIu64 ", \"percentile\": {\"50.000000\": %" PRIu64
			", \"99.000000\": %" PRIu64 "}",
			s->ns[0], s->ns[s->count - 1], sum / s->count,
			percentile(s, 500), percentile(s, 990));
	}
	fputc('}', f);
}

static void report(const struct job *job, uint64_t window_ns,
		   struct samples *writes, struct samples *syncs)
{
	double seconds = (double)window_ns / 1e9;
	char *text = NULL;
	size_t length;
	FILE *f = open_memstream(&text, &length);

	if (!f) {
		reply_errno("open_memstream");
		return;
	}
	fprintf(f, "{\"job options\": {\"filename\": \"%s\", \"rw\": \"randwrite\", "
		"\"bs\": %" PRIu64 ", \"size\": %" PRIu64 ", \"fdatasync\": %" PRIu64
		", \"thinktime\": %" PRIu64 ", \"randseed\": %" PRIu64 "}, ",
		job->dev, job->bs, job->size, job->fsync, job->think_us, job->seed);
	fprintf(f, "\"write\": {\"total_ios\": %zu, \"io_bytes\": %" PRIu64
		", \"runtime_ns\": %" PRIu64 ", \"iops\": %.3f, \"bw_bytes\": %.0f, ",
		writes->count, writes->count * job->bs, window_ns,
		(double)writes->count / seconds,
		(double)writes->count * (double)job->bs / seconds);
	print_latency(f, "clat_ns", writes);
	fputs("}, \"sync\": {", f);
	print_latency(f, "lat_ns", syncs);
	fputs("}}", f);
	fclose(f);
	reply("%s", text);
	free(text);
}

void think(uint64_t us)
{
	struct timespec t = {
		.tv_sec = (time_t)(us / 1000000u),
		.tv_nsec = (long)(us % 1000000u) * 1000,
	};

	nanosleep(&t, NULL);
}

/* Write and sync until the time is over. False: an error has been replied. */
static bool drive(int fd, char *buffer, const struct job *job,
		  struct samples *writes, struct samples *syncs, uint64_t *window_ns)
{
	uint64_t random = job->seed * 2 + 1, since_sync = 0;
	uint64_t start = now_ns();
	uint64_t from = start + job->ramp_ms * 1000000u;
	uint64_t to = from + job->time_ms * 1000000u;
	uint64_t end = to + job->tail_ms * 1000000u;
	uint64_t blocks = job->size / job->bs;

	*window_ns = to - from;
	for (uint64_t before = start; before < end; before = now_ns()) {
		uint64_t block = next_random(&random) % blocks, after;

		/* Each block carries its number and a fresh value. */
		memcpy(buffer, &block, sizeof(block));
		memcpy(buffer + sizeof(block), &random, sizeof(random));
		if (pwrite(fd, buffer, job->bs, (off_t)(block * job->bs)) != (ssize_t)job->bs) {
			reply_errno("pwrite");
			return false;
		}
		after = now_ns();
		if (before >= from && before < to && !add_sample(writes, after - before))
			goto no_memory;
		if (job->fsync && ++since_sync == job->fsync) {
			since_sync = 0;
			before = after;
			if (fdatasync(fd)) {
				reply_errno("fdatasync");
				return false;
			}
			after = now_ns();
			if (before >= from && before < to && !add_sample(syncs, after - before))
				goto no_memory;
		}
		if (job->think_us)
			think(job->think_us);
	}
	return true;
no_memory:
	reply("{\"error\": \"no memory for samples\"}");
	return false;
}

static void run(const struct job *job)
{
	struct samples writes = {0}, syncs = {0};
	uint64_t size = 0, window_ns = 0;
	char *buffer = MAP_FAILED;
	int fd = open(job->dev, O_RDWR | O_DIRECT | O_CLOEXEC);

	if (fd < 0) {
		reply_errno(job->dev);
		return;
	}
	if (ioctl(fd, BLKGETSIZE64, &size) || !job->bs || job->size < job->bs || job->size > size ||
	    !job->time_ms) {
		reply("{\"error\": \"size must be bs to %" PRIu64
		      ", bs and time_ms at least 1\"}", size);
		goto out;
	}
	buffer = mmap(NULL, job->bs, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (buffer == MAP_FAILED) {
		reply_errno("mmap");
		goto out;
	}
	if (drive(fd, buffer, job, &writes, &syncs, &window_ns))
		report(job, window_ns, &writes, &syncs);
out:
	if (buffer != MAP_FAILED)
		munmap(buffer, job->bs);
	free(writes.ns);
	free(syncs.ns);
	close(fd);
}

/* Overwrite the area with zeroes, in order, and make it durable: what mix begins with. */
static void fill(const struct job *job)
{
	uint64_t done = 0, start = now_ns();
	int fd = open(job->dev, O_RDWR | O_DIRECT | O_CLOEXEC);
	char *buffer = mmap(NULL, FILL_BYTES, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (fd < 0 || buffer == MAP_FAILED) {
		reply_errno(job->dev);
		goto out;
	}
	while (done < job->size) {
		uint64_t left = job->size - done;
		ssize_t n = pwrite(fd, buffer, left < FILL_BYTES ? left : FILL_BYTES,
				   (off_t)done);

		if (n <= 0) {
			reply_errno("pwrite");
			goto out;
		}
		done += (uint64_t)n;
	}
	if (fdatasync(fd)) {
		reply_errno("fdatasync");
		goto out;
	}
	reply("{\"filled\": %" PRIu64 ", \"ns\": %" PRIu64 "}", done, now_ns() - start);
out:
	if (buffer != MAP_FAILED)
		munmap(buffer, FILL_BYTES);
	if (fd >= 0)
		close(fd);
}

static bool parse_number(const char *text, uint64_t *value)
{
	char *end;

	errno = 0;
	*value = strtoull(text, &end, 10);
	return !errno && end != text && !*end;
}

/* Fill in a job from "name=value" words. False: an error has been replied. */
static bool parse_job(char *words, struct job *job)
{
	static const struct {
		const char *name;
		size_t offset;
	} numbers[] = {
		{ "size", offsetof(struct job, size) },
		{ "bs", offsetof(struct job, bs) },
		{ "fsync", offsetof(struct job, fsync) },
		{ "reads", offsetof(struct job, reads) },
		{ "think_us", offsetof(struct job, think_us) },
		{ "ramp_ms", offsetof(struct job, ramp_ms) },
		{ "time_ms", offsetof(struct job, time_ms) },
		{ "tail_ms", offsetof(struct job, tail_ms) },
		{ "seed", offsetof(struct job, seed) },
	};
	char *save, *word;

	*job = (struct job){ .bs = BLOCK };
	for (word = strtok_r(words, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
		char *value = strchr(word, '=');
		bool known = false;

		if (value) {
			*value++ = '\0';
			if (!strcmp(word, "dev")) {
				known = strlen(value) < sizeof(job->dev);
				snprintf(job->dev, sizeof(job->dev), "%s", value);
			}
			for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
				if (!strcmp(word, numbers[i].name))
					known = parse_number(value, (uint64_t *)
						((char *)job + numbers[i].offset));
		}
		if (!known) {
			reply("{\"error\": \"%s: not an option, or not its value\"}", word);
			return false;
		}
	}
	return true;
}

/* Do what a line says; a mix ends when there is another one in @commands. */
static void obey(char *line, int commands)
{
	char *words = strchr(line, ' ');
	struct job job;

	if (words)
		*words++ = '\0';
	if (!strcmp(line, "ping")) {
		reply("{\"pong\": 1}");
	} else if (!strcmp(line, "poweroff")) {
		sync();
		reply("{\"poweroff\": 1}");
		reboot(RB_POWER_OFF);
	} else if (!strcmp(line, "run") || !strcmp(line, "fill") || !strcmp(line, "mix") ||
		   !strcmp(line, "verify")) {
		if (!parse_job(words ? words : (char[]){ "" }, &job))
			return;
		if (!strcmp(line, "run"))
			run(&job);
		else if (!strcmp(line, "fill"))
			fill(&job);
		else if (!strcmp(line, "mix"))
			mix(&job, commands);
		else
			verify(&job);
	} else if (*line) {
		reply("{\"error\": \"unknown command, use run, fill, mix, verify, ping or poweroff\"}");
	}
}

int main(int argc, char **argv)
{
	struct termios raw;
	FILE *commands;
	char line[512];
	int fd;

	if (argc != 2) {
		fprintf(stderr, "usage: %s CONSOLE\n", argv[0]);
		return 2;
	}
	fd = open(argv[1], O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (fd < 0 || !(commands = fdopen(fd, "r")) || !(console = fdopen(dup(fd), "w"))) {
		perror(argv[1]);
		return 1;
	}
	/* No echo: what the host sends must not come back to it. */
	if (!tcgetattr(fd, &raw)) {
		raw.c_iflag = ICRNL;
		raw.c_oflag = 0;
		raw.c_lflag = ICANON;
		tcsetattr(fd, TCSANOW, &raw);
	}
	mlockall(MCL_CURRENT | MCL_FUTURE);
	reply("{\"ready\": 1}");
	while (fgets(line, sizeof(line), commands)) {
		line[strcspn(line, "\r\n")] = '\0';
		obey(line, fd);
	}
	return 0;
}
