// SPDX-License-Identifier: Apache-2.0
#include "server.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "conn.h"
#include "limits.h"
#include "peer.h"

#define NS_PER_S 1000000000ull
/* Interval between checks of the deadlines: the granularity of Keep Alive. */
#define TICK_MS KAS_MS
#define EVENTS_AT_ONCE 64
#define BACKLOG 64

/* The monotonic clock of the server and the device, in ns. */
vs_time server_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static bool fail(const char *what)
{
	fprintf(stderr, "vcache-ssd: %s: ", what);
	perror(NULL);
	return false;
}

static bool watch(struct server *sv, int fd, void *what)
{
	struct epoll_event event = { .events = EPOLLIN, .data.ptr = what };

	if (fd < 0 || epoll_ctl(sv->epoll, EPOLL_CTL_ADD, fd, &event))
		return fail("epoll");
	return true;
}

static bool open_listener(struct server *sv, const struct sockaddr *address,
			  socklen_t length)
{
	static const int on = 1;

	sv->listener = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK |
			      SOCK_CLOEXEC, 0);
	if (sv->listener < 0)
		return fail("socket");
	if (setsockopt(sv->listener, SOL_SOCKET, SO_REUSEADDR, &on,
		       sizeof(on)))
		return fail("SO_REUSEADDR");
	/* IPv6 only, because ::ffff:1.2.3.4 is not a valid TRADDR. */
	if (address->sa_family == AF_INET6 &&
	    setsockopt(sv->listener, IPPROTO_IPV6, IPV6_V6ONLY, &on,
		       sizeof(on)))
		return fail("IPV6_V6ONLY");
	if (bind(sv->listener, address, length) ||
	    listen(sv->listener, BACKLOG))
		return fail("--listen");
	return watch(sv, sv->listener, &sv->listener);
}

static bool open_signals(struct server *sv)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	if (sigprocmask(SIG_BLOCK, &set, NULL))
		return fail("sigprocmask");
	sv->signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	return watch(sv, sv->signals, &sv->signals);
}

/**
 * server_open - open the listening socket
 * @sv: the server
 * @s: the subsystem
 * @address: address to listen on
 * @length: length of @address
 *
 * Return: false on failure; the error has been printed.
 */
bool server_open(struct server *sv, struct subsys *s,
		 const struct sockaddr *address, socklen_t length)
{
	*sv = (struct server){
		.subsys = s, .epoll = epoll_create1(EPOLL_CLOEXEC),
		.listener = -1, .timer = -1, .signals = -1,
	};
	if (sv->epoll < 0)
		return fail("epoll");
	sv->timer = timerfd_create(CLOCK_MONOTONIC,
				   TFD_NONBLOCK | TFD_CLOEXEC);
	return watch(sv, sv->timer, &sv->timer) && open_signals(sv) &&
	       open_listener(sv, address, length);
}

/* Set the timer for the next completion. */
static void arm(struct server *sv)
{
	const struct request *r = heap_first(&sv->subsys->pending);
	vs_time when = r ? r->done : 0;
	struct itimerspec t = {
		.it_value.tv_sec = (time_t)(when / NS_PER_S),
		.it_value.tv_nsec = (long)(when % NS_PER_S),
	};

	if (when == sv->armed)
		return;
	if (timerfd_settime(sv->timer, TFD_TIMER_ABSTIME, &t, NULL))
		fail("timer");
	sv->armed = when;
}

static void accept_all(struct server *sv)
{
	int fd;

	while ((fd = accept4(sv->listener, NULL, NULL,
			     SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
		if (sv->peers < CONNECTIONS &&
		    peer_new(sv->subsys, sv->epoll, fd))
			sv->peers++;
		else
			close(fd);
	}
}

static void handle(struct server *sv, const struct epoll_event *event)
{
	struct signalfd_siginfo info;
	uint64_t expirations;

	if (event->data.ptr == &sv->listener) {
		accept_all(sv);
	} else if (event->data.ptr == &sv->timer) {
		if (read(sv->timer, &expirations, sizeof(expirations)) > 0)
			sv->armed = 0;
	} else if (event->data.ptr == &sv->signals) {
		if (read(sv->signals, &info, sizeof(info)) > 0)
			sv->stop = true;
	} else {
		/* Each event gets the current time. */
		sv->subsys->now = server_now();
		peer_event(event->data.ptr, event->events);
	}
}

static void send_all(struct subsys *s)
{
	struct conn *c;

	while ((c = STAILQ_FIRST(&s->ready))) {
		STAILQ_REMOVE_HEAD(&s->ready, ready_link);
		c->ready = false;
		peer_send(c->server);
	}
}

static void reap(struct server *sv)
{
	struct conn *c, *next;

	for (c = LIST_FIRST(&sv->subsys->conns); c && sv->subsys->closed;
	     c = next) {
		next = LIST_NEXT(c, link);
		if (c->state != CONN_CLOSED)
			continue;
		peer_free(c->server);
		sv->peers--;
	}
}

/**
 * server_run - serve until SIGTERM or SIGINT
 * @sv: the server
 */
void server_run(struct server *sv)
{
	struct epoll_event events[EVENTS_AT_ONCE];
	struct subsys *s = sv->subsys;
	int i, n;

	while (!sv->stop) {
		arm(sv);
		n = epoll_wait(sv->epoll, events, EVENTS_AT_ONCE,
			       sv->peers ? (int)TICK_MS : -1);
		for (i = 0; i < n; i++)
			handle(sv, &events[i]);
		s->now = server_now();
		subsys_complete_due(s);
		if (s->now >= sv->next_tick) {
			subsys_tick(s);
			sv->next_tick = s->now + TICK_MS * 1000000ull;
		}
		send_all(s);
		reap(sv);
	}
}

/**
 * server_close - stop to listen, and close all connections
 * @sv: the server
 */
void server_close(struct server *sv)
{
	struct conn *c;

	LIST_FOREACH(c, &sv->subsys->conns, link)
		conn_close(c);
	reap(sv);
	if (sv->listener >= 0)
		close(sv->listener);
	if (sv->signals >= 0)
		close(sv->signals);
	if (sv->timer >= 0)
		close(sv->timer);
	if (sv->epoll >= 0)
		close(sv->epoll);
}
