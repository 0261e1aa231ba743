/* SPDX-License-Identifier: Apache-2.0 */
/* The event loop: sockets, timers and signals, in one thread. */
#ifndef VCACHE_NVMETCP_SERVER_H
#define VCACHE_NVMETCP_SERVER_H

#include <stdbool.h>
#include <sys/socket.h>

#include "subsys.h"

/**
 * struct server - the state of the event loop
 * @subsys: the subsystem
 * @epoll: epoll instance for the following descriptors
 * @listener: listening socket
 * @timer: timer for the next completion
 * @signals: signalfd for SIGTERM and SIGINT
 * @armed: time to which @timer is set; 0: not set
 * @next_tick: time of the next check of the deadlines
 * @peers: number of connections
 * @stop: a signal was received
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
