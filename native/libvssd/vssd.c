// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "message.h"
#include "set.h"

/* A call of vssd_dispatch() returns after so many messages, so others get a turn. */
#define DISPATCH_MAX 64

/**
 * struct vssd - a connection
 * @fd: the socket
 * @ops: the callbacks
 * @context: their first argument
 * @ended: it has failed
 * @most: size of the disk in blocks; 0: not known yet
 * @request: number of the newest request for blocks
 * @held: blocks of the application
 * @revoked: blocks that were taken, but that the application may still use
 * @message: the message that is handled
 * @error: the reason for the last error
 */
struct vssd {
	int fd;
	struct vssd_ops ops;
	void *context;
	bool ended;
	uint32_t most;
	uint32_t request;
	struct vssd_set held;
	struct vssd_set revoked;
	struct vssd_message message;
	char error[VSSD_TEXT_MAX + 1];
};

static int fail(struct vssd *v, int error, const char *text)
{
	snprintf(v->error, sizeof(v->error), "%s", text);
	return error;
}

/* Tell the application about lost blocks. Return whether it may still use them. */
static bool used(struct vssd *v, const struct vssd_set *lost)
{
	return lost->n && v->ops.forced &&
	       v->ops.forced(v->context, lost->range, lost->n);
}

/* The connection has ended: tell the application that it has no block any more. */
static int end(struct vssd *v, int error, const char *text)
{
	struct vssd_set lost = v->held;

	memset(&v->held, 0, sizeof(v->held));
	v->ended = true;
	/*
	 * vcache-guest gives the blocks to others when it sees the end. So it must not
	 * see that while the application may use some: vssd_close() is the end then.
	 */
	if (!used(v, &lost) && !v->revoked.n)
		shutdown(v->fd, SHUT_RDWR);
	vssd_set_clear(&lost);
	return fail(v, error, text);
}

static int send_all(struct vssd *v, const uint8_t *data, size_t len)
{
	ssize_t sent;

	do {
		sent = send(v->fd, data, len, MSG_NOSIGNAL);
	} while (sent < 0 && errno == EINTR);
	/* vssd_dispatch() notices the end, and tells the application. */
	return sent == (ssize_t)len ? 0 :
	       fail(v, -ENOTCONN, "the connection has ended");
}

static int send_ranges(struct vssd *v, const struct vssd_range *ranges, size_t n,
		       uint32_t request)
{
	uint8_t data[VSSD_MESSAGE_MAX];
	int error = 0;

	while (n && !error) {
		size_t part = n < VSSD_RANGES_MAX ? n : VSSD_RANGES_MAX;

		error = send_all(v, data,
				 vssd_make_give(data, request, ranges, part));
		ranges += part;
		n -= part;
	}
	return error;
}

struct vssd *vssd_connect(const char *path, const struct vssd_ops *ops,
			  void *context)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct vssd *v;
	int error;

	if (!path)
		path = VSSD_SOCKET;
	if (strlen(path) >= sizeof(address.sun_path)) {
		errno = ENAMETOOLONG;
		return NULL;
	}
	memcpy(address.sun_path, path, strlen(path));
	v = calloc(1, sizeof(*v));
	if (!v)
		return NULL;
	v->ops = *ops;
	v->context = context;
	v->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (v->fd >= 0 &&
	    !connect(v->fd, (struct sockaddr *)&address, sizeof(address)))
		return v;
	error = errno;
	if (v->fd >= 0)
		close(v->fd);
	free(v);
	errno = error;
	return NULL;
}

int vssd_register(struct vssd *v, const char *name, unsigned int weight,
		  uint32_t least)
{
	uint8_t data[VSSD_MESSAGE_MAX];
	size_t len = vssd_make_register(data, name, weight, least);

	if (!len)
		return fail(v, -EINVAL, "name or weight is not allowed, see vssd.h");
	if (v->ended)
		return -ENOTCONN;
	return send_all(v, data, len);
}

int vssd_fd(const struct vssd *v)
{
	return v->fd;
}

static int welcomed(struct vssd *v, const struct vssd_info *info)
{
	if (v->most)
		return end(v, -EPROTO, "the disk was announced twice");
	if (!info->most)
		return end(v, -EPROTO, "the disk has no block");
	v->most = info->most;
	if (v->ops.ready)
		v->ops.ready(v->context, info);
	return 0;
}

static int granted(struct vssd *v, const struct vssd_message *m)
{
	struct vssd_set new = { 0 }, all = { 0 };
	int error = vssd_set_copy(&v->held, &all);
	size_t i;

	for (i = 0; i < m->n && !error; i++) {
		struct vssd_range r = m->ranges[i];

		if (r.first + r.blocks > v->most || vssd_set_meets(&all, r) ||
		    vssd_set_meets(&v->revoked, r))
			error = -EPROTO;
		if (!error)
			error = vssd_set_add(&all, r);
		if (!error)
			error = vssd_set_add(&new, r);
	}
	if (error) {
		vssd_set_clear(&all);
		vssd_set_clear(&new);
		return end(v, error, error == -ENOMEM ? "no memory" :
			   "a block is not on the disk, or is held already");
	}
	vssd_set_clear(&v->held);
	v->held = all;
	if (new.n && v->ops.grant)
		v->ops.grant(v->context, new.range, new.n);
	vssd_set_clear(&new);
	return 0;
}

static int reclaimed(struct vssd *v, const struct vssd_message *m)
{
	uint32_t blocks = v->held.blocks > m->keep ? v->held.blocks - m->keep : 0;

	v->request = m->request;
	if (v->ops.reclaim)
		v->ops.reclaim(v->context, blocks,
			       m->deadline_ms == VSSD_NEVER_MS ? -1 :
			       (int64_t)m->deadline_ms);
	return 0;
}

/*
 * Note blocks that the application may still use. Without memory for that, it cannot
 * give them up later; they then belong to nobody until the end of the connection.
 */
static void keep_revoked(struct vssd *v, const struct vssd_set *lost)
{
	size_t i;

	for (i = 0; i < lost->n; i++)
		if (vssd_set_add(&v->revoked, lost->range[i]))
			fail(v, -ENOMEM, "no memory");
}

static int forced(struct vssd *v, const struct vssd_message *m)
{
	struct vssd_set lost = { 0 }, left = { 0 };
	int error = vssd_set_copy(&v->held, &left);
	size_t i;

	/* Blocks that were given up meanwhile are not lost. */
	for (i = 0; i < m->n && !error; i++) {
		error = vssd_set_common(&v->held, m->ranges[i], &lost);
		if (!error)
			error = vssd_set_remove(&left, m->ranges[i]);
	}
	if (error) {
		vssd_set_clear(&left);
		vssd_set_clear(&lost);
		return end(v, error, "no memory");
	}
	vssd_set_clear(&v->held);
	v->held = left;
	if (used(v, &lost))
		keep_revoked(v, &lost);
	else
		send_ranges(v, m->ranges, m->n, 0);
	vssd_set_clear(&lost);
	return 0;
}

static int handle(struct vssd *v, const uint8_t *data, size_t len)
{
	/* A callback may not change it: vssd_dispatch() must not be called there. */
	struct vssd_message *m = &v->message;
	const char *error = vssd_parse(m, data, len);

	if (error)
		return end(v, -EPROTO, error);
	switch (m->type) {
	case VSSD_WELCOME:
		return welcomed(v, &m->info);
	case VSSD_GRANT:
		return granted(v, m);
	case VSSD_RECLAIM:
		return reclaimed(v, m);
	case VSSD_FORCED:
		return forced(v, m);
	default:
		return end(v, -ECONNREFUSED, m->text);
	}
}

int vssd_dispatch(struct vssd *v)
{
	uint8_t data[VSSD_MESSAGE_MAX + 1];
	int done, error = 0;

	if (v->ended)
		return -ENOTCONN;
	for (done = 0; done < DISPATCH_MAX && !error; done++) {
		ssize_t len = recv(v->fd, data, sizeof(data), MSG_DONTWAIT);

		if (len < 0 && (errno == EAGAIN || errno == EINTR))
			return done;
		if (len <= 0)
			return end(v, -ENOTCONN, "the connection has ended");
		error = handle(v, data, len);
	}
	return error ? error : done;
}

/* Remove ranges from the blocks of an application, and from those revoked while it used them. */
static int remove_ranges(struct vssd_set *held, struct vssd_set *revoked,
			 const struct vssd_range *ranges, size_t n)
{
	int error = 0;
	size_t i;

	for (i = 0; i < n && !error; i++) {
		struct vssd_range r = ranges[i];

		if (!r.blocks || r.blocks > UINT32_MAX - r.first)
			return -EINVAL;
		if (vssd_set_has(held, r))
			error = vssd_set_remove(held, r);
		else if (vssd_set_has(revoked, r))
			error = vssd_set_remove(revoked, r);
		else
			error = -EINVAL;
	}
	return error;
}

int vssd_give(struct vssd *v, const struct vssd_range *ranges, size_t n)
{
	struct vssd_set held = { 0 }, revoked = { 0 };
	int error;

	if (v->ended)
		return -ENOTCONN;
	error = vssd_set_copy(&v->held, &held);
	if (!error)
		error = vssd_set_copy(&v->revoked, &revoked);
	if (!error)
		error = remove_ranges(&held, &revoked, ranges, n);
	if (error) {
		vssd_set_clear(&held);
		vssd_set_clear(&revoked);
		return fail(v, error, error == -ENOMEM ? "no memory" :
			    "a block is not held, or was named twice");
	}
	vssd_set_clear(&v->held);
	vssd_set_clear(&v->revoked);
	v->held = held;
	v->revoked = revoked;
	return send_ranges(v, ranges, n, v->request);
}

size_t vssd_held(const struct vssd *v, struct vssd_range *ranges, size_t n)
{
	size_t part = n < v->held.n ? n : v->held.n;

	if (part)
		memcpy(ranges, v->held.range, part * sizeof(*ranges));
	return v->held.n;
}

const char *vssd_error(const struct vssd *v)
{
	return v->error;
}

void vssd_close(struct vssd *v)
{
	if (!v)
		return;
	close(v->fd);
	vssd_set_clear(&v->held);
	vssd_set_clear(&v->revoked);
	free(v);
}
