/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libvssd: a part of the elastic SSD of this instance, for an application.
 *
 * vcache-guest divides the elastic SSD among its dm-cache and applications by
 * weight. An application registers, is granted blocks of the disk, and gives
 * some up when it is asked to. It opens the disk itself and keeps to its blocks.
 * doc/source/reference/vssd-sharing.rst describes the protocol.
 *
 * Units: blocks of the elastic SSD, from 0 on; struct vssd_info has their size
 * in bytes. Block n is the bytes n * block_bytes to (n + 1) * block_bytes - 1.
 *
 * Errors: functions return a negative errno value. vssd_error() has a text.
 *
 * Threads: one thread at a time may use a struct vssd. Different ones are
 * independent. Callbacks run inside vssd_dispatch(), in its thread; they may
 * call all functions but vssd_dispatch() and vssd_close().
 *
 * Signals: no function raises SIGPIPE. A process that was forked must not use
 * the connection of its parent.
 */
#ifndef LIBVSSD_VSSD_H
#define LIBVSSD_VSSD_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define VSSD_SOCKET "/run/vcache-guest/socket"

/* Longest name of an application in bytes, and weights. */
#define VSSD_NAME_MAX 31
#define VSSD_WEIGHT_MIN 1
#define VSSD_WEIGHT_MAX 1000
#define VSSD_WEIGHT_DEFAULT 100

struct vssd;

/**
 * struct vssd_range - consecutive blocks
 * @first: the first one
 * @blocks: how many, at least one
 */
struct vssd_range {
	uint32_t first;
	uint32_t blocks;
};

/**
 * struct vssd_info - the disk
 * @block_bytes: size of a block in bytes, a multiple of 4096
 * @most: size of the disk in blocks; all ranges end at it or before
 * @path: path of the disk
 */
struct vssd_info {
	uint32_t block_bytes;
	uint32_t most;
	char path[64];
};

/**
 * struct vssd_ops - what an application does; NULL: nothing
 * @ready: The disk is known. Once for each connection, before the first grant.
 *	Until then, the host has not answered vcache-guest.
 * @grant: These blocks belong to the application now, and read as zeroes. They
 *	are disjoint from those that it has.
 * @reclaim: Give up so many blocks, of any choice, by vssd_give(): in the
 *	callback or later. The blocks are taken by force after the deadline, in
 *	milliseconds from now; -1: they are not. A newer call replaces an older
 *	one, also its number of blocks; 0 blocks: nothing is asked for any more.
 * @forced: These blocks were taken, and their content is lost. Return 0 if the
 *	application does not use them any more and no request for them is under way;
 *	the library then confirms that. Otherwise return another value: nobody gets the
 *	blocks until the application gives them up by vssd_give(). At the end of the
 *	connection it is called for all blocks. If it then returns another value,
 *	nobody gets them until vssd_close() or the end of the process.
 *
 * Ranges are ascending. They are valid only during the call.
 */
struct vssd_ops {
	void (*ready)(void *context, const struct vssd_info *info);
	void (*grant)(void *context, const struct vssd_range *ranges, size_t n);
	void (*reclaim)(void *context, uint32_t blocks, int64_t deadline_ms);
	int (*forced)(void *context, const struct vssd_range *ranges, size_t n);
};

/**
 * vssd_connect - connect to vcache-guest
 * @path: path of the socket; NULL: VSSD_SOCKET
 * @ops: the callbacks; copied
 * @context: first argument of the callbacks
 *
 * Return: a connection, to be ended by vssd_close(), or NULL with errno set:
 * ENOENT or ECONNREFUSED if vcache-guest does not run, EACCES, ENAMETOOLONG, ENOMEM.
 */
struct vssd *vssd_connect(const char *path, const struct vssd_ops *ops,
			  void *context);

/**
 * vssd_register - take part in the division, or change weight and minimum
 * @v: a connection
 * @name: 1 to VSSD_NAME_MAX letters, digits, or "._-"; the same in each call
 * @weight: VSSD_WEIGHT_MIN to VSSD_WEIGHT_MAX
 * @least: minimum in blocks
 *
 * vcache-guest answers later, by the callback @ready or by a refusal in vssd_dispatch().
 *
 * Return: 0; -EINVAL if a value is out of range; -ENOTCONN.
 */
int vssd_register(struct vssd *v, const char *name, unsigned int weight,
		  uint32_t least);

/**
 * vssd_fd - a file descriptor for poll()
 * @v: a connection
 *
 * When it can be read, vssd_dispatch() has something to do. It must not be used
 * for anything else.
 */
int vssd_fd(const struct vssd *v);

/**
 * vssd_dispatch - handle what vcache-guest has sent, without waiting
 * @v: a connection
 *
 * Return: how many messages were handled; -ENOTCONN if the connection has ended,
 * -ECONNREFUSED if vcache-guest has refused the application, -EPROTO if a message is
 * not allowed, -ENOMEM. After an error the application has no block any more (see
 * @forced) and can only call vssd_error() and vssd_close(). It may connect again.
 */
int vssd_dispatch(struct vssd *v);

/**
 * vssd_give - give up blocks
 * @v: a connection
 * @ranges: blocks that the application has, or that were taken while it used them
 *	(see @forced), in any order, each once; not both kinds in one range
 * @n: number of ranges
 *
 * The application must not use the blocks any more, and no request for them may be
 * under way. Their content is lost. It may wait for vcache-guest.
 *
 * Return: 0; -EINVAL if the application does not have a block, and then nothing
 * was given up; -ENOTCONN, -ENOMEM.
 */
int vssd_give(struct vssd *v, const struct vssd_range *ranges, size_t n);

/**
 * vssd_held - the blocks that the application has
 * @v: a connection
 * @ranges: for up to @n ranges, ascending; may be NULL if @n is 0
 * @n: room in @ranges
 *
 * Return: how many ranges there are, which may be more than @n.
 */
size_t vssd_held(const struct vssd *v, struct vssd_range *ranges, size_t n);

/**
 * vssd_error - the reason for the last error
 * @v: a connection
 *
 * Return: a text, valid until the next call; "" if there was no error.
 */
const char *vssd_error(const struct vssd *v);

/**
 * vssd_close - end a connection
 * @v: a connection, or NULL
 *
 * The application must not use any of its blocks any more. Their content is lost.
 */
void vssd_close(struct vssd *v);

#ifdef __cplusplus
}
#endif

#endif /* LIBVSSD_VSSD_H */
