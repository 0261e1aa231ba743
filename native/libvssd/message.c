// SPDX-License-Identifier: Apache-2.0
#include <stdbool.h>
#include <string.h>

#include "message.h"

#define NAME_BYTES (VSSD_NAME_MAX + 1)

static uint32_t get_u32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 |
	       p[3];
}

static void put_u32(uint8_t *p, uint32_t value)
{
	p[0] = value >> 24;
	p[1] = value >> 16;
	p[2] = value >> 8;
	p[3] = value;
}

static void put_head(uint8_t *p, enum vssd_type type, size_t n, uint32_t request)
{
	p[0] = VSSD_VERSION;
	p[1] = type;
	p[2] = n >> 8;
	p[3] = n;
	put_u32(p + 4, request);
}

/* Copy a text that is printable and padded with zeroes, at least with one. */
static bool get_text(char *to, const uint8_t *p, size_t size)
{
	size_t len = strnlen((const char *)p, size), i;

	if (!len || len == size)
		return false;
	for (i = 0; i < size; i++) {
		if (i < len ? p[i] < ' ' || p[i] > '~' : p[i])
			return false;
	}
	memcpy(to, p, size);
	return true;
}

/* Return: the size of the fields of a type that vcache-guest sends, or -1. */
static int fields_size(unsigned int type)
{
	switch (type) {
	case VSSD_WELCOME:
		return 8 + sizeof(((struct vssd_info *)NULL)->path);
	case VSSD_RECLAIM:
		return 8;
	case VSSD_REFUSED:
		return VSSD_TEXT_MAX + 1;
	case VSSD_GRANT:
	case VSSD_FORCED:
		return 0;
	default:
		return -1;
	}
}

static const char *get_fields(struct vssd_message *m, const uint8_t *p)
{
	switch (m->type) {
	case VSSD_WELCOME:
		m->info.block_bytes = get_u32(p);
		m->info.most = get_u32(p + 4);
		if (!m->info.block_bytes || m->info.block_bytes % 4096)
			return "the size of a block is no multiple of 4096";
		if (!get_text(m->info.path, p + 8, sizeof(m->info.path)))
			return "the path of the disk is no text";
		return NULL;
	case VSSD_RECLAIM:
		m->keep = get_u32(p);
		m->deadline_ms = get_u32(p + 4);
		return NULL;
	case VSSD_REFUSED:
		if (!get_text(m->text, p, sizeof(m->text)))
			return "the reason of a refusal is no text";
		return NULL;
	default:
		return NULL;
	}
}

static const char *get_ranges(struct vssd_message *m, const uint8_t *p, size_t n)
{
	for (m->n = 0; m->n < n; m->n++, p += 8) {
		struct vssd_range r = { get_u32(p), get_u32(p + 4) };

		if (!r.blocks || r.blocks > UINT32_MAX - r.first)
			return "a range is empty, or ends behind the last block";
		m->ranges[m->n] = r;
	}
	return NULL;
}

/**
 * vssd_parse - parse a message of vcache-guest
 * @m: for the message
 * @data: its bytes
 * @len: number of bytes
 *
 * Return: NULL, or why it is not allowed.
 */
const char *vssd_parse(struct vssd_message *m, const uint8_t *data, size_t len)
{
	const char *error;
	size_t n;
	int size;

	if (len < VSSD_HEAD_BYTES)
		return "a message is too short";
	if (data[0] != VSSD_VERSION)
		return "vcache-guest speaks another version of the protocol";
	size = fields_size(data[1]);
	if (size < 0)
		return "a message has an unknown type";
	n = (size_t)data[2] << 8 | data[3];
	if (n > (size ? 0 : VSSD_RANGES_MAX))
		return "a message has too many ranges";
	if (len != VSSD_HEAD_BYTES + (size_t)size + 8 * n)
		return "a message has a wrong length";
	m->type = data[1];
	m->request = get_u32(data + 4);
	error = get_fields(m, data + VSSD_HEAD_BYTES);
	if (error)
		return error;
	return get_ranges(m, data + VSSD_HEAD_BYTES + size, n);
}

static bool name_valid(const char *name)
{
	static const char allowed[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
	size_t len = strnlen(name, NAME_BYTES);

	return len && len < NAME_BYTES && strspn(name, allowed) == len;
}

/**
 * vssd_make_register - make a registration
 * @data: for VSSD_MESSAGE_MAX bytes
 *
 * Return: its size, or 0 if a value is not allowed.
 */
size_t vssd_make_register(uint8_t *data, const char *name, unsigned int weight,
			  uint32_t least)
{
	if (!name_valid(name) || weight < VSSD_WEIGHT_MIN ||
	    weight > VSSD_WEIGHT_MAX)
		return 0;
	put_head(data, VSSD_REGISTER, 0, 0);
	data += VSSD_HEAD_BYTES;
	data[0] = weight >> 8;
	data[1] = weight;
	put_u32(data + 2, least);
	memset(data + 6, 0, NAME_BYTES);
	memcpy(data + 6, name, strlen(name));
	return VSSD_HEAD_BYTES + 6 + NAME_BYTES;
}

/**
 * vssd_make_give - make a list of blocks that are given up
 * @data: for VSSD_MESSAGE_MAX bytes
 * @request: number of the request that it answers, or 0
 * @ranges: valid ranges
 * @n: up to VSSD_RANGES_MAX
 *
 * Return: its size.
 */
size_t vssd_make_give(uint8_t *data, uint32_t request,
		      const struct vssd_range *ranges, size_t n)
{
	size_t i;

	put_head(data, VSSD_GIVE, n, request);
	for (i = 0; i < n; i++) {
		put_u32(data + VSSD_HEAD_BYTES + 8 * i, ranges[i].first);
		put_u32(data + VSSD_HEAD_BYTES + 8 * i + 4, ranges[i].blocks);
	}
	return VSSD_HEAD_BYTES + 8 * n;
}
