// SPDX-License-Identifier: Apache-2.0
/*
 * The load of the power-cut harness.
 *
 *   load run TRACE_MARKER WORKER...   run the workers in parallel
 *   load dump DIRECTORY OUTPUT        print the contents of the files in DIRECTORY
 *
 * A WORKER is one argument with words: its kind (range, fill, files) and settings
 * "name=number" or "name=text" with the names of struct worker. The weights of its
 * actions have the names of the actions.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "load.h"

static const char * const action_names[ACT_NR] = {
	"write", "aio", "dsync", "fdatasync", "aiosync", "sync", "discard", "zero", "read", "look",
	"append", "hole", "prealloc", "replace",
};

static int set_number(struct worker *w, const char *name, const char *value)
{
	char *end;
	uint64_t n = strtoull(value, &end, 10);

	if (*end || !*value)
		return -1;
	for (unsigned int a = 0; a < ACT_NR; a++) {
		if (!strcmp(name, action_names[a])) {
			w->weight[a] = n;
			return 0;
		}
	}
	if (!strcmp(name, "id"))
		w->id = n;
	else if (!strcmp(name, "seed"))
		w->seed = n;
	else if (!strcmp(name, "ops"))
		w->ops = n;
	else if (!strcmp(name, "ms"))
		w->ms = n;
	else if (!strcmp(name, "file"))
		w->file = n;
	else if (!strcmp(name, "first"))
		w->first = n;
	else if (!strcmp(name, "count"))
		w->count = n;
	else if (!strcmp(name, "largest"))
		w->largest = n;
	else if (!strcmp(name, "grain"))
		w->grain = n;
	else
		return -1;
	return 0;
}

static int set(struct worker *w, char *word)
{
	char *value = strchr(word, '=');

	if (!value)
		return -1;
	*value++ = 0;
	if (!strcmp(word, "cgroup"))
		return snprintf(w->cgroup, sizeof(w->cgroup), "%s", value) < 0;
	if (!strcmp(word, "path"))
		return snprintf(w->path, sizeof(w->path), "%s", value) < 0;
	return set_number(w, word, value);
}

static void check(const struct worker *w)
{
	if (!w->grain || w->count < w->grain || w->largest < w->grain ||
	    w->largest > WRITE_MAX / SECTOR) {
		fputs("load: needs grain <= largest <= 2048 and grain <= count\n", stderr);
		exit(2);
	}
}

static void join(const char *cgroup)
{
	char name[300];
	int fd;

	if (!strcmp(cgroup, "-"))
		return;
	snprintf(name, sizeof(name), "%s/cgroup.procs", cgroup);
	fd = open(name, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, "0", 1) != 1)
		die("cannot join %s", cgroup);
	close(fd);
}

static void work(char *words)
{
	struct worker w = { .ops = UINT64_MAX, .ms = 1000, .largest = 64, .grain = 1,
			    .cgroup = "-" };
	char *kind = strtok(words, " "), *word;

	while ((word = strtok(NULL, " "))) {
		if (set(&w, word)) {
			fprintf(stderr, "load: do not know the setting %s\n", word);
			exit(2);
		}
	}
	check(&w);
	join(w.cgroup);
	io_init(&w);
	if (kind && !strcmp(kind, "range"))
		work_range(&w);
	else if (kind && !strcmp(kind, "fill"))
		work_fill(&w);
	else if (kind && !strcmp(kind, "files"))
		work_files(&w);
	else
		exit(2);
	exit(0);
}

static int run(char **worker, int n)
{
	int failed = 0;

	for (int i = 0; i < n; i++) {
		pid_t pid = fork();

		if (pid < 0)
			die("fork");
		if (!pid)
			work(worker[i]);
	}
	for (int i = 0; i < n; i++) {
		int status;

		if (wait(&status) < 0)
			die("wait");
		if (!WIFEXITED(status) || WEXITSTATUS(status))
			failed++;
	}
	if (failed)
		fprintf(stderr, "load: %d workers failed\n", failed);
	return failed ? 1 : 0;
}

int main(int argc, char **argv)
{
	stamp_init();
	if (argc > 3 && !strcmp(argv[1], "run")) {
		journal_open(argv[2]);
		return run(argv + 3, argc - 3);
	}
	if (argc == 4 && !strcmp(argv[1], "dump"))
		return dump(argv[2], argv[3]);
	fputs("usage: load run TRACE_MARKER WORKER... | load dump DIRECTORY OUTPUT\n", stderr);
	return 2;
}
