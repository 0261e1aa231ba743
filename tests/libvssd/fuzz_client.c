// SPDX-License-Identifier: Apache-2.0
/*
 * Arbitrary messages of a daemon: the library must stay within its memory, and the
 * callbacks must never name a block twice or one that is not on the disk. An input is
 * messages, each with its length in front; a message with the length 0 lets the application
 * give up a block. The application may still use taken blocks if the first one has an odd number.
 */
#include <assert.h>
#include <unistd.h>

/* Its functions are called without a socket in between. */
#include "../../native/libvssd/vssd.c"

#define MOST 64

static unsigned char mine[MOST];
static uint32_t most;

static void ready(void *context, const struct vssd_info *info)
{
	(void)context;
	assert(info->block_bytes && strlen(info->path) < sizeof(info->path));
	most = info->most;
}

static void change(const struct vssd_range *r, size_t n, int to)
{
	uint32_t b;
	size_t i;

	for (i = 0; i < n; i++) {
		assert(r[i].blocks && r[i].first + r[i].blocks <= most);
		assert(!i || r[i].first > r[i - 1].first + r[i - 1].blocks);
		for (b = r[i].first; b < r[i].first + r[i].blocks && b < MOST; b++) {
			/* 0: free, 1: held, 2: taken, but still in use */
			assert(mine[b] == (to != 1));
			mine[b] = to;
		}
	}
}

static void grant(void *context, const struct vssd_range *r, size_t n)
{
	(void)context;
	change(r, n, 1);
}

static void reclaim(void *context, uint32_t blocks, int64_t deadline_ms)
{
	struct vssd *v = *(struct vssd **)context;

	assert(blocks <= v->held.blocks && deadline_ms >= -1);
}

static int taken(void *context, const struct vssd_range *r, size_t n)
{
	(void)context;
	/* They are not its own any more, and must not be granted. */
	change(r, n, r[0].first & 1 ? 2 : 0);
	return r[0].first & 1;
}

static void give(struct vssd *v)
{
	struct vssd_range r;

	if (v->ended)
		return;
	if (v->revoked.n) {
		r = v->revoked.range[0];
		r.blocks = 1;
		vssd_give(v, &r, 1);
		assert(r.first >= MOST || mine[r.first] == 2);
		if (r.first < MOST)
			mine[r.first] = 0;
	} else if (vssd_held(v, &r, 1)) {
		r.blocks = 1;
		vssd_give(v, &r, 1);
		change(&r, 1, 0);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static uint8_t copy[256];
	struct vssd *v = calloc(1, sizeof(*v));
	int fd[2];

	assert(v && !socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fd));
	v->fd = fd[0];
	v->ops = (struct vssd_ops){ ready, grant, reclaim, taken };
	v->context = &v;
	memset(mine, 0, sizeof(mine));
	while (len && !v->ended) {
		size_t part = *data++;

		if (!part)
			give(v);
		len--;
		if (part > len)
			part = len;
		/* Exactly as much as a message has, so that more is noticed. */
		memcpy(copy + sizeof(copy) - part, data, part);
		if (part)
			handle(v, copy + sizeof(copy) - part, part);
		data += part;
		len -= part;
		while (recv(fd[1], copy, sizeof(copy), MSG_DONTWAIT) > 0)
			;
	}
	vssd_close(v);
	close(fd[1]);
	return 0;
}
