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
 * @fd: it
 * @epoll: where it is waited for
 * @conn: the connection
 * @blocked: the socket takes no more for now
 * @ended: all has been sent that ever will be
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
