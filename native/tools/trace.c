// SPDX-License-Identifier: GPL-2.0
#include "trace.h"

/* Enough for a timestamp, two numbers of 20 digits, a letter, and further fields. */
#define LINE_MAX_BYTES 1024
/* No disk takes more in one request; and no line may take days to process. */
#define REQUEST_MAX_BYTES (1ULL << 32)

static void wrong(struct trace *t, const char *field, const char *allowed)
{
	snprintf(t->error, sizeof(t->error), "line %llu: %s: must be %s",
		 (unsigned long long)t->line, field, allowed);
}

/* Parse an integer at *@at, and move *@at behind it. */
static bool integer(const char **at, u64 *value)
{
	const char *p = *at;
	u64 v = 0;

	while (*p >= '0' && *p <= '9') {
		if (v > (~0ULL - (*p - '0')) / 10)
			return false;
		v = v * 10 + (*p++ - '0');
	}
	if (p == *at)
		return false;
	*at = p;
	*value = v;
	return true;
}

/* Parse a time: an integer, perhaps with a fraction. */
static bool timestamp(const char **at)
{
	const char *p = *at;
	bool digits = false, point = false;

	for (; (*p >= '0' && *p <= '9') || (*p == '.' && !point); p++) {
		digits |= *p != '.';
		point |= *p == '.';
	}
	*at = p;
	return digits;
}

/* Parse a line into the blocks of its request; a discard has none. */
static bool request(struct trace *t, const char *p)
{
	u64 offset, size;
	char op;

	if (!timestamp(&p) || *p++ != ',') {
		wrong(t, "field 1, the time", "a number and a comma");
		return false;
	}
	if (!integer(&p, &offset) || *p++ != ',') {
		wrong(t, "field 2, the offset",
		      "bytes, an integer from 0 to 2^64 - 1, and a comma");
		return false;
	}
	if (!integer(&p, &size) || *p++ != ',' ||
	    (size && size - 1 > ~0ULL - offset)) {
		wrong(t, "field 3, the size",
		      "bytes, an integer from 0 to 2^64 - offset, and a comma");
		return false;
	}
	op = *p;
	if ((op != 'R' && op != 'W' && op != 'D') ||
	    (p[1] && p[1] != ',' && p[1] != '\n' && p[1] != '\r')) {
		wrong(t, "field 4, the operation", "R, W or D");
		return false;
	}
	if (op != 'D' && size > REQUEST_MAX_BYTES) {
		wrong(t, "field 3, the size", "up to 2^32 bytes in a read or a write");
		return false;
	}
	if (op != 'D' && size) {
		t->next = offset >> TRACE_BLOCK_SHIFT;
		t->end = ((offset + (size - 1)) >> TRACE_BLOCK_SHIFT) + 1;
	}
	return true;
}

/* Read the next line, but not the heading. Return: false at the end or on an error. */
static bool next_line(struct trace *t, FILE *from)
{
	char text[LINE_MAX_BYTES];

	do {
		if (!fgets(text, sizeof(text), from)) {
			if (ferror(from))
				snprintf(t->error, sizeof(t->error),
					 "line %llu: cannot be read: %s",
					 (unsigned long long)t->line + 1,
					 strerror(errno));
			return false;
		}
		t->line++;
		if (!strchr(text, '\n') && !feof(from)) {
			wrong(t, "the line", "shorter than 1023 characters, of text");
			return false;
		}
	} while (t->line == 1 && !strncmp(text, "ts", 2));
	return request(t, text);
}

/**
 * trace_blocks - read the next blocks that were accessed
 * @t: the trace
 * @from: the file
 * @blocks: gets their numbers, up to TRACE_BATCH
 *
 * Return: how many; 0 at the end, and on an error: see @t->error.
 */
size_t trace_blocks(struct trace *t, FILE *from, u64 *blocks)
{
	size_t n = 0;

	while (n < TRACE_BATCH && !*t->error) {
		if (t->next < t->end)
			blocks[n++] = t->next++;
		else if (!next_line(t, from))
			break;
	}
	return *t->error ? 0 : n;
}
