// SPDX-License-Identifier: Apache-2.0
/*
 * age - create the image of a long-used SSD, without waiting for the NAND.
 *
 *   age SSD BYTES page|fast CONTENT WRITES SEED <BLOCKS
 *
 * Writes CONTENT, which is as large as the SSD, sequentially. Then writes WRITES
 * blocks of it again, with the same data, chosen at random from the block numbers on
 * standard input. SSD is the image, in the format of vcache-ssd --nand svd.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../firmware/nvmetcp/backend.h"

#define AT_A_TIME 16u

struct ssd {
	struct backend_device device;
	const uint8_t *content;
	vs_time now;
};

static void fail(const char *what)
{
	fprintf(stderr, "age: %s\n", what);
	exit(1);
}

/* xorshift64*, Vigna 2016. */
static uint64_t next_random(uint64_t *x)
{
	*x ^= *x >> 12;
	*x ^= *x << 25;
	*x ^= *x >> 27;
	return *x * 0x2545f4914f6cdd1dULL;
}

static void done(struct ssd *s, struct vs_result r)
{
	if (r.status != VS_OK)
		fail("the SSD has failed");
	if (r.done > s->now)
		s->now = r.done;
}

static void put(struct ssd *s, uint64_t block, uint32_t count)
{
	done(s, vs_write(s->device.ssd, s->now, 0, block, count,
			 s->content + block * VS_BLOCK, false));
}

static uint64_t *read_numbers(size_t *count, uint64_t end)
{
	uint64_t *number = NULL, value;
	size_t room = 0, n = 0;

	while (scanf("%" SCNu64, &value) == 1) {
		if (value >= end)
			fail("a block is beyond the end");
		if (n == room) {
			room = room ? 2 * room : 1024;
			number = realloc(number, room * sizeof(*number));
			if (!number)
				fail("no memory");
		}
		number[n++] = value;
	}
	if (!n)
		fail("no blocks on standard input");
	*count = n;
	return number;
}

int main(int argc, char **argv)
{
	char error[BACKEND_ERROR_SIZE];
	struct backend_options o = { .nand = BACKEND_SVD, .slowdown = 1 };
	uint64_t blocks, writes, seed, *number;
	struct ssd s = { 0 };
	size_t count;
	int fd;

	if (argc != 7) {
		fprintf(stderr, "usage: age SSD BYTES page|fast CONTENT WRITES SEED <BLOCKS\n");
		return 2;
	}
	o.image = argv[1];
	o.size = strtoull(argv[2], NULL, 10);
	o.mapping = strcmp(argv[3], "fast") ? BACKEND_PAGE : BACKEND_FAST;
	writes = strtoull(argv[5], NULL, 10);
	seed = strtoull(argv[6], NULL, 10) * 0x9e3779b97f4a7c15ULL + 1;
	if (!access(o.image, F_OK))
		fail("the SSD exists already");
	blocks = o.size / VS_BLOCK;
	fd = open(argv[4], O_RDONLY | O_CLOEXEC);
	if (fd < 0 || lseek(fd, 0, SEEK_END) != (off_t)o.size)
		fail("the content is not as large as the SSD");
	s.content = mmap(NULL, o.size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (s.content == MAP_FAILED)
		fail("no memory");
	number = read_numbers(&count, blocks);
	if (backend_open(&s.device, &o, error))
		fail(error);
	for (uint64_t at = 0; at < blocks; at += AT_A_TIME) {
		uint64_t n = blocks - at;

		put(&s, at, n < AT_A_TIME ? (uint32_t)n : AT_A_TIME);
	}
	for (uint64_t i = 0; i < writes; i++)
		put(&s, number[next_random(&seed) % count], 1);
	done(&s, vs_flush(s.device.ssd, s.now, 0, vs_blocks(s.device.ssd)));
	backend_close(&s.device);
	free(number);
	return 0;
}
