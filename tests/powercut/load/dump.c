// SPDX-License-Identifier: Apache-2.0
/*
 * Print the contents of the files under a directory, for files.py: for each file a header
 *
 *   u32 file number   u32 sectors   u64 bytes
 *
 * and for each sector a u64: 0 when it is all zeroes, DUMP_TORN when it is a
 * stamp with a wrong checksum, DUMP_FOREIGN when it is anything else or the
 * stamp of another place, else the op of the write.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "load.h"

#define DUMP_TORN UINT64_MAX
#define DUMP_FOREIGN (UINT64_MAX - 1)

static uint64_t judge(const struct stamp *s, uint32_t file, uint64_t sector)
{
	static const struct stamp zero;

	if (!memcmp(s, &zero, sizeof(zero)))
		return 0;
	if (s->magic == STAMP_MAGIC && !stamp_valid(s))
		return DUMP_TORN;
	if (s->magic != STAMP_MAGIC || s->file != file || s->sector != sector)
		return DUMP_FOREIGN;
	return s->op;
}

static void dump_file(int directory, const char *name, FILE *out)
{
	static uint8_t buffer[1 << 18];
	uint32_t header[2] = { strtoul(name, NULL, 10), 0 };
	int fd = openat(directory, name, O_RDONLY | O_CLOEXEC);
	uint64_t bytes, sector = 0;
	struct stat st;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st))
		die("cannot open %s", name);
	bytes = st.st_size;
	header[1] = (bytes + SECTOR - 1) / SECTOR;
	fwrite(header, sizeof(header), 1, out);
	fwrite(&bytes, sizeof(bytes), 1, out);
	memset(buffer, 0, sizeof(buffer));
	while (sector < header[1] && (n = read(fd, buffer, sizeof(buffer))) > 0) {
		size_t sectors = (n + SECTOR - 1) / SECTOR;

		for (size_t i = 0; i < sectors; i++, sector++) {
			const struct stamp *s = (const struct stamp *)buffer + i;
			uint64_t found = judge(s, header[0], sector);

			fwrite(&found, sizeof(found), 1, out);
		}
		memset(buffer, 0, sizeof(buffer));
	}
	if (sector != header[1])
		die("cannot read all of %s", name);
	close(fd);
}

int dump(const char *directory, const char *output)
{
	FILE *out = fopen(output, "wb");
	DIR *dir = opendir(directory);
	struct dirent *entry;

	if (!out || !dir)
		die("cannot open %s or %s", directory, output);
	while ((entry = readdir(dir))) {
		if (entry->d_name[0] >= '0' && entry->d_name[0] <= '9')
			dump_file(dirfd(dir), entry->d_name, out);
	}
	closedir(dir);
	if (ferror(out) || fclose(out))
		die("cannot write %s", output);
	return 0;
}
