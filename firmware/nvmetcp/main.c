// SPDX-License-Identifier: Apache-2.0
/* vcache-ssd: an emulated SSD to which a host connects over NVMe/TCP. */
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "backend.h"
#include "options.h"
#include "server.h"
#include "subsys.h"

#define NS_PER_S 1000000000ull

enum exit_status {
	STATUS_OK = 0,
	STATUS_FAILED = 1,
	STATUS_USAGE = 2,
};

/* The caller can wait for this line, which has the actual port. */
static void announce(const struct server *sv)
{
	struct sockaddr_storage a = { 0 };
	socklen_t length = sizeof(a);
	char host[64] = "", port[8] = "";
	bool ipv6;

	(void)getsockname(sv->listener, (struct sockaddr *)&a, &length);
	(void)getnameinfo((struct sockaddr *)&a, length, host, sizeof(host),
			  port, sizeof(port),
			  NI_NUMERICHOST | NI_NUMERICSERV);
	ipv6 = a.ss_family == AF_INET6;
	printf("vcache-ssd: %s at %s%s%s:%s\n", sv->subsys->nqn,
	       ipv6 ? "[" : "", host, ipv6 ? "]" : "", port);
	fflush(stdout);
}

static enum exit_status serve(struct subsys *s, const struct options *o)
{
	enum exit_status status = STATUS_FAILED;
	struct server sv;
	vs_time done = 0;

	if (server_open(&sv, s, (const struct sockaddr *)&o->address,
			o->address_length)) {
		announce(&sv);
		server_run(&sv);
		status = STATUS_OK;
	}
	server_close(&sv);
	s->now = server_now();
	if (subsys_flush_all(s, &done)) {
		fputs("vcache-ssd: the final flush failed\n", stderr);
		status = STATUS_FAILED;
	}
	return status;
}

static enum exit_status run(const struct options *o,
			    struct backend_device device)
{
	struct subsys_config config = {
		.device = device,
		.nqn = o->nqn,
		.namespaces = o->namespaces,
		.lba_shift = o->lba_shift,
		.multipath = o->multipath,
		.timing = o->timing,
		.exclusive_flush = o->exclusive_flush,
		.peer_timeout = o->peer_timeout * NS_PER_S,
	};
	enum exit_status status = STATUS_FAILED;
	struct subsys s;

	if (vs_blocks(device.ssd) < o->namespaces) {
		fprintf(stderr,
			"vcache-ssd: --namespaces %u: must be at most %llu, the blocks of the SSD\n",
			o->namespaces,
			(unsigned long long)vs_blocks(device.ssd));
		return STATUS_USAGE;
	}
	if (subsys_init(&s, &config, server_now()))
		status = serve(&s, o);
	else
		fputs("vcache-ssd: out of memory\n", stderr);
	subsys_destroy(&s);
	return status;
}

int main(int argc, char **argv)
{
	char error[BACKEND_ERROR_SIZE];
	struct backend_device device;
	enum exit_status status;
	struct options o;

	switch (options_parse(&o, argc, argv)) {
	case OPTIONS_HELP:
		return STATUS_OK;
	case OPTIONS_BAD:
		return STATUS_USAGE;
	default:
		break;
	}
	if (backend_open(&device, &o.device, error)) {
		fprintf(stderr, "vcache-ssd: %s\n", error);
		return STATUS_FAILED;
	}
	status = run(&o, device);
	backend_close(&device);
	return status;
}
