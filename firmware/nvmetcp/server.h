/* SPDX-License-Identifier: Apache-2.0 */
/* The event loop: sockets, timers and signals, in one thread. */
#ifndef VCACHE_NVMETCP_SERVER_H
#define VCACHE_NVMETCP_SERVER_H

#include <stdbool.h>
#include <sys/socket.h>

#include "subsys.h"

/**
 * struct server - what the event loop waits for
 * @subsys: the subsystem
 * @epoll: all of the following
 * @listener: new connections
 * @timer: the next completion
 * @signals: SIGTERM and SIGINT
 * @armed: what @timer is set to; 0: nothing
 * @next_tick: when time limits are looked at
 * @peers: connections
 * @stop: a signal has come
 */
struct server {
	struct subsys *subsys;
	int epoll;
	int listener;
	int timer;
	int signals;
	vs_time armed;
	vs_time next_tick;
	unsigned int peers;
	bool stop;
};

vs_time server_now(void);
bool server_open(struct server *sv, struct subsys *s,
		 const struct sockaddr *address, socklen_t length);
void server_run(struct server *sv);
void server_close(struct server *sv);

#endif /* VCACHE_NVMETCP_SERVER_H */
