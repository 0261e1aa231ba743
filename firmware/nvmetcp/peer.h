/* SPDX-License-Identifier: Apache-2.0 */
/* The socket of a connection. */
#ifndef VCACHE_NVMETCP_PEER_H
#define VCACHE_NVMETCP_PEER_H

#include <stdbool.h>
#include <stdint.h>

struct conn;
struct subsys;

/**
 * struct peer - a socket
 * @fd: file descriptor
 * @epoll: epoll instance
 * @conn: the connection
 * @blocked: the socket accepts no more bytes now
 * @ended: all output has been sent, and the socket is shut down for writing
 */
struct peer {
	int fd;
	int epoll;
	struct conn *conn;
	bool blocked;
	bool ended;
};

bool peer_new(struct subsys *s, int epoll, int fd);
void peer_free(struct peer *p);
void peer_event(struct peer *p, uint32_t events);
void peer_send(struct peer *p);

#endif /* VCACHE_NVMETCP_PEER_H */
