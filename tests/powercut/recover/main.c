// SPDX-License-Identifier: Apache-2.0
/*
 * recover LOG LOGGED SHARED SECTORS ORIGIN ROOM VOLUME
 *
 * Recovers images of a cache device, one after another. LOG is the log of a recording,
 * with LOGGED valid sectors. SHARED is a file that the caller has also mapped. It
 * contains SECTORS numbers of sectors in the log, which are the image of the cache
 * device; ORIGIN numbers for the resulting map; and ROOM sectors for the writes of the
 * recovery, which have the numbers from LOGGED on.
 *
 * Each line "USED" on standard input means that the first USED of these sectors are in
 * use. The program answers with one line: STATUS ERRORS BAD-BLOCKS CHUNKS, and the
 * sector and size of each write of the recovery.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "recover.h"

static void *map_file(const char *path, int flags, int protection, size_t size)
{
	int fd = open(path, flags | O_CLOEXEC);
	void *p;

	if (fd < 0) {
		perror(path);
		exit(2);
	}
	p = mmap(NULL, size, protection, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED) {
		perror(path);
		exit(2);
	}
	close(fd);
	return p;
}

int main(int argc, char **argv)
{
	static struct device d;
	struct outcome out;
	u64 origin, used;
	int64_t *map;
	u32 i;

	if (argc != 8) {
		fprintf(stderr, "usage: recover LOG LOGGED SHARED SECTORS ORIGIN ROOM VOLUME\n");
		return 2;
	}
	d.logged = strtoull(argv[2], NULL, 10);
	d.sectors = strtoull(argv[4], NULL, 10);
	origin = strtoull(argv[5], NULL, 10);
	d.room = strtoull(argv[6], NULL, 10);
	d.log = map_file(argv[1], O_RDONLY, PROT_READ, d.logged * SECTOR);
	d.image = map_file(argv[3], O_RDWR, PROT_READ | PROT_WRITE,
			   (d.sectors + origin) * sizeof(int64_t) +
			   d.room * SECTOR);
	map = d.image + d.sectors;
	d.extra = (u8 *)(map + origin);
	while (scanf("%" SCNu64, &used) == 1) {
		int r;

		d.used = used;
		d.writes = 0;
		r = recover(&d, strtoul(argv[7], NULL, 10), map, origin, &out);
		printf("%d %" PRIu64 " %" PRIu64 " %u", r, out.errors,
		       out.bad_blocks, out.chunks);
		for (i = 0; i < d.writes; i++)
			printf(" %" PRIu64 " %u", d.write[i].sector,
			       d.write[i].count);
		puts("");
		fflush(stdout);
	}
	return 0;
}
