// SPDX-License-Identifier: Apache-2.0
/*
 * The journal of events is written to the kernel's trace_marker, so that it has one order
 * with the requests that the block layer traces.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "load.h"

static int marker = -1;

void die(const char *format, ...)
{
	va_list args;
	int error = errno;

	va_start(args, format);
	fputs("load: ", stderr);
	vfprintf(stderr, format, args);
	fprintf(stderr, ": %s\n", strerror(error));
	va_end(args);
	exit(1);
}

void journal_open(const char *path)
{
	marker = open(path, O_WRONLY | O_CLOEXEC);
	if (marker < 0)
		die("cannot open %s", path);
}

void journal(const char *format, ...)
{
	char line[256];
	va_list args;
	int length;

	va_start(args, format);
	length = vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	if (length >= (int)sizeof(line) || write(marker, line, length) != length)
		die("cannot write an event");
}
