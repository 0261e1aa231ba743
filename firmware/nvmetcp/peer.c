// SPDX-License-Identifier: Apache-2.0
#include "peer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "conn.h"

#define RECEIVE_BYTES (256u << 10)
/* Pieces of output per system call. */
#define SEND_PIECES 64
/* Idle seconds before the first probe, seconds between probes, their number. */
#define PROBE_AFTER 30
#define PROBE_EVERY 10
#define PROBES 3

static void set_options(int fd)
{
	static const struct {
		int level, name, value;
	} options[] = {
		/* Responses are small, and the host waits for each of them. */
		{ IPPROTO_TCP, TCP_NODELAY, 1 },
		/* Detect a host that disappeared and has no KATO. */
		{ SOL_SOCKET, SO_KEEPALIVE, 1 },
		{ IPPROTO_TCP, TCP_KEEPIDLE, PROBE_AFTER },
		{ IPPROTO_TCP, TCP_KEEPINTVL, PROBE_EVERY },
		{ IPPROTO_TCP, TCP_KEEPCNT, PROBES },
	};
	size_t i;

	/* A failure costs time, but not correctness. */
	for (i = 0; i < sizeof(options) / sizeof(options[0]); i++)
		(void)setsockopt(fd, options[i].level, options[i].name,
				 &options[i].value, sizeof(int));
}

static void note_address(struct conn *c, int fd)
{
	struct sockaddr_storage a = { 0 };
	struct sockaddr_in6 *in6 = (void *)&a;
	struct sockaddr_in *in = (void *)&a;
	socklen_t length = sizeof(a);

	if (getsockname(fd, (struct sockaddr *)&a, &length))
		return;
	c->local_ipv6 = a.ss_family == AF_INET6;
	if (c->local_ipv6) {
		inet_ntop(AF_INET6, &in6->sin6_addr, c->local,
			  sizeof(c->local));
		c->local_port = ntohs(in6->sin6_port);
	} else {
		inet_ntop(AF_INET, &in->sin_addr, c->local, sizeof(c->local));
		c->local_port = ntohs(in->sin_port);
	}
}

/**
 * peer_new - create a connection for an accepted socket
 * @s: the subsystem
 * @epoll: epoll instance for the socket
 * @fd: the non-blocking socket
 *
 * Return: false on failure; the caller then keeps the socket.
 */
bool peer_new(struct subsys *s, int epoll, int fd)
{
	struct peer *p = calloc(1, sizeof(*p));
	struct epoll_event event = { .events = EPOLLIN, .data.ptr = p };

	if (!p)
		return false;
	p->fd = fd;
	p->epoll = epoll;
	p->conn = conn_new(s);
	if (!p->conn || epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event)) {
		if (p->conn) {
			conn_close(p->conn);
			conn_free(p->conn);
		}
		free(p);
		return false;
	}
	p->conn->server = p;
	set_options(fd);
	note_address(p->conn, fd);
	return true;
}

/**
 * peer_free - free a socket and its closed connection
 * @p: the socket
 */
void peer_free(struct peer *p)
{
	close(p->fd);
	conn_free(p->conn);
	free(p);
}

static bool try_again(void)
{
	return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

static void peer_receive(struct peer *p)
{
	static uint8_t buffer[RECEIVE_BYTES];
	ssize_t n = recv(p->fd, buffer, sizeof(buffer), 0);

	if (n > 0)
		conn_input(p->conn, buffer, (size_t)n);
	else if (n == 0 || !try_again())
		conn_close(p->conn);
}

static void wait_for(struct peer *p, bool blocked)
{
	struct epoll_event event = {
		.events = EPOLLIN | (blocked ? EPOLLOUT : 0u),
		.data.ptr = p,
	};

	if (p->blocked == blocked)
		return;
	p->blocked = blocked;
	if (epoll_ctl(p->epoll, EPOLL_CTL_MOD, p->fd, &event))
		conn_close(p->conn);
}

/**
 * peer_send - send the output, as far as the socket accepts it
 * @p: the socket
 */
void peer_send(struct peer *p)
{
	struct iovec iov[SEND_PIECES];
	struct msghdr message = { .msg_iov = iov };
	ssize_t n;

	if (p->conn->state == CONN_CLOSED)
		return;
	for (;;) {
		message.msg_iovlen = (size_t)conn_output(p->conn, iov,
							 SEND_PIECES);
		if (!message.msg_iovlen)
			break;
		n = sendmsg(p->fd, &message, MSG_NOSIGNAL);
		if (n < 0 && try_again()) {
			wait_for(p, true);
			return;
		}
		if (n < 0) {
			conn_close(p->conn);
			return;
		}
		conn_sent(p->conn, (size_t)n);
	}
	wait_for(p, false);
	/* The host reads the C2HTermReq and the end of file, and then closes. */
	if (p->conn->state == CONN_TERMINATING && !p->ended) {
		p->ended = true;
		(void)shutdown(p->fd, SHUT_WR);
	}
}

/**
 * peer_event - handle an event of a socket
 * @p: the socket
 * @events: event mask of epoll
 */
void peer_event(struct peer *p, uint32_t events)
{
	if (p->conn->state == CONN_CLOSED)
		return;
	if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
		peer_receive(p);
	if (events & EPOLLOUT)
		peer_send(p);
}
