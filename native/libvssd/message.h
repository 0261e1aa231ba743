/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages of vcache-guest and applications as bytes: version 1 of the protocol.
 * agent/vcache_guest/app_protocol.py is the other side.
 */
#ifndef LIBVSSD_MESSAGE_H
#define LIBVSSD_MESSAGE_H

#include "vssd.h"

#define VSSD_VERSION 1
#define VSSD_RANGES_MAX 256
#define VSSD_TEXT_MAX 119
#define VSSD_NEVER_MS UINT32_MAX
#define VSSD_HEAD_BYTES 8
#define VSSD_MESSAGE_MAX (VSSD_HEAD_BYTES + 120 + VSSD_RANGES_MAX * 8)

enum vssd_type {
	VSSD_REGISTER = 1,
	VSSD_WELCOME,
	VSSD_GRANT,
	VSSD_RECLAIM,
	VSSD_GIVE,
	VSSD_FORCED,
	VSSD_REFUSED,
};

/**
 * struct vssd_message - a message of vcache-guest
 * @type: of enum vssd_type, but neither VSSD_REGISTER nor VSSD_GIVE
 * @request: number of a request, or 0
 * @info: of VSSD_WELCOME
 * @keep: of VSSD_RECLAIM, in blocks
 * @deadline_ms: of VSSD_RECLAIM
 * @text: of VSSD_REFUSED
 * @ranges: of VSSD_GRANT and VSSD_FORCED
 * @n: number of @ranges
 */
struct vssd_message {
	enum vssd_type type;
	uint32_t request;
	struct vssd_info info;
	uint32_t keep;
	uint32_t deadline_ms;
	char text[VSSD_TEXT_MAX + 1];
	struct vssd_range ranges[VSSD_RANGES_MAX];
	size_t n;
};

const char *vssd_parse(struct vssd_message *m, const uint8_t *data, size_t len);
size_t vssd_make_register(uint8_t *data, const char *name, unsigned int weight,
			  uint32_t least);
size_t vssd_make_give(uint8_t *data, uint32_t request,
		      const struct vssd_range *ranges, size_t n);

#endif /* LIBVSSD_MESSAGE_H */
