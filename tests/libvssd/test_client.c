// SPDX-License-Identifier: Apache-2.0
/* The library against a daemon that this program plays, also a wrong one. */
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "../../native/libvssd/message.h"
#include "../core/check.h"

static char path[64];
static int listener, daemon_fd;
static struct vssd *v;

/* What the callbacks were called with. */
static char heard[512];
/* What the callback for a request gives up at once. */
static struct vssd_range gives;

static void note(const char *what, const struct vssd_range *r, size_t n)
{
	size_t len = strlen(heard), i;

	len += snprintf(heard + len, sizeof(heard) - len, "%s", what);
	for (i = 0; i < n; i++)
		len += snprintf(heard + len, sizeof(heard) - len, " %u+%u",
				r[i].first, r[i].blocks);
	snprintf(heard + len, sizeof(heard) - len, ";");
}

static void ready(void *context, const struct vssd_info *info)
{
	CHECK(context == &gives && info->block_bytes == 1 << 20);
	CHECK(!strcmp(info->path, "/dev/vdb") && info->most == 100);
	note("ready", NULL, 0);
}

static void grant(void *context, const struct vssd_range *r, size_t n)
{
	CHECK(context == &gives);
	note("grant", r, n);
}

static void reclaim(void *context, uint32_t blocks, int64_t deadline_ms)
{
	struct vssd_range r = { blocks, (uint32_t)deadline_ms };

	CHECK(context == &gives);
	note("reclaim", &r, 1);
	if (gives.blocks)
		CHECK(!vssd_give(v, &gives, 1));
}

/* What the callback returns. */
static int busy;

static int forced(void *context, const struct vssd_range *r, size_t n)
{
	CHECK(context == &gives);
	note("forced", r, n);
	return busy;
}

static const struct vssd_ops ops = { ready, grant, reclaim, forced };

static void says(const void *data, size_t len)
{
	CHECK(send(daemon_fd, data, len, 0) == (ssize_t)len);
}

/* Compare what the library has sent. */
static void expect(const void *data, size_t len)
{
	uint8_t got[VSSD_MESSAGE_MAX + 1];

	CHECK(recv(daemon_fd, got, sizeof(got), MSG_DONTWAIT) == (ssize_t)len);
	CHECK(!memcmp(got, data, len));
}

static void begin(void)
{
	v = vssd_connect(path, &ops, &gives);
	CHECK(v);
	daemon_fd = accept(listener, NULL, NULL);
	CHECK(daemon_fd >= 0);
	heard[0] = 0;
	memset(&gives, 0, sizeof(gives));
}

static void finish(void)
{
	vssd_close(v);
	close(daemon_fd);
}

#define SAYS(text) says(text, sizeof(text) - 1)
#define EXPECT(text) expect(text, sizeof(text) - 1)
#define HEARD(text)							\
	do {								\
		CHECK(!strcmp(heard, text));				\
		heard[0] = 0;						\
	} while (0)

static void welcome(void)
{
	uint8_t data[80] = "\1\2\0\0\0\0\0\0\0\x10\0\0\0\0\0\x64/dev/vdb";

	says(data, sizeof(data));
	SAYS("\1\3\0\2\0\0\0\0\0\0\0\x0a\0\0\0\x05\0\0\0\x5a\0\0\0\x0a");
	CHECK(vssd_dispatch(v) == 2);
	HEARD("ready;grant 10+5 90+10;");
}

static void registration(void)
{
	uint8_t data[46] = "\1\1\0\0\0\0\0\0\0\x64\0\0\1\2\x61pp-1";

	begin();
	CHECK(!vssd_register(v, "app-1", 100, 258));
	expect(data, sizeof(data));
	CHECK(vssd_register(v, "", 100, 0) == -EINVAL);
	CHECK(vssd_register(v, "a/b", 100, 0) == -EINVAL);
	CHECK(vssd_register(v, "0123456789012345678901234567890", 1000, 0) == 0);
	CHECK(vssd_register(v, "01234567890123456789012345678901", 1, 0) == -EINVAL);
	CHECK(vssd_register(v, "a", 0, 0) == -EINVAL);
	CHECK(vssd_register(v, "a", 1001, 0) == -EINVAL && *vssd_error(v));
	finish();
}

static void life(void)
{
	struct vssd_range held[3], wrong[] = { { 90, 1 }, { 90, 1 } };
	struct pollfd p;

	begin();
	p = (struct pollfd){ .fd = vssd_fd(v), .events = POLLIN };
	CHECK(!poll(&p, 1, 0) && !vssd_dispatch(v));
	welcome();
	CHECK(vssd_held(v, NULL, 0) == 2 && vssd_held(v, held, 3) == 2);
	CHECK(held[1].first == 90 && held[1].blocks == 10);
	/* It may keep 9 of 15 blocks, and gives up six at once. */
	gives = (struct vssd_range){ 92, 6 };
	SAYS("\1\4\0\0\0\0\0\7\0\0\0\x09\0\0\3\xe8");
	CHECK(poll(&p, 1, 0) == 1 && vssd_dispatch(v) == 1);
	HEARD("reclaim 6+1000;");
	EXPECT("\1\5\0\1\0\0\0\7\0\0\0\x5c\0\0\0\6");
	gives.blocks = 0;
	SAYS("\1\4\0\0\0\0\0\x08\0\0\0\x40\xff\xff\xff\xff");
	CHECK(vssd_dispatch(v) == 1);
	HEARD("reclaim 0+4294967295;");
	/* Nothing is given up by a call that names a wrong block. */
	CHECK(vssd_give(v, wrong, 2) == -EINVAL && *vssd_error(v));
	wrong[1].blocks = 0;
	CHECK(vssd_give(v, wrong, 2) == -EINVAL);
	wrong[1] = (struct vssd_range){ 5, UINT32_MAX };
	CHECK(vssd_give(v, wrong, 2) == -EINVAL);
	CHECK(vssd_held(v, held, 3) == 3 && held[1].first == 90);
	/* What was given up meanwhile is not lost, but confirmed like the rest. */
	SAYS("\1\6\0\1\0\0\0\0\0\0\0\x5b\0\0\0\x08");
	CHECK(vssd_dispatch(v) == 1);
	HEARD("forced 91+1 98+1;");
	EXPECT("\1\5\0\1\0\0\0\0\0\0\0\x5b\0\0\0\x08");
	CHECK(vssd_held(v, NULL, 0) == 3);
	/* The daemon ends. */
	close(daemon_fd);
	CHECK(vssd_give(v, wrong, 1) == -ENOTCONN);
	CHECK(vssd_dispatch(v) == -ENOTCONN && vssd_dispatch(v) == -ENOTCONN);
	HEARD("forced 10+5 99+1;");
	CHECK(!vssd_held(v, NULL, 0) && vssd_register(v, "a", 1, 0) == -ENOTCONN);
	vssd_close(v);
}

/* The socket of the daemon has neither a message nor an end. */
static bool silent(void)
{
	char byte;

	return recv(daemon_fd, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

/* Blocks that the application may still use are not confirmed before it gives them up. */
static void forced_in_use(void)
{
	static const struct vssd_range taken[] = { { 10, 2 } }, both[] = { { 10, 5 } };

	begin();
	welcome();
	busy = 1;
	SAYS("\1\6\0\1\0\0\0\0\0\0\0\x0a\0\0\0\x02");
	CHECK(vssd_dispatch(v) == 1);
	HEARD("forced 10+2;");
	CHECK(silent());
	CHECK(vssd_held(v, NULL, 0) == 2);
	CHECK(vssd_give(v, both, 1) == -EINVAL);
	busy = 0;
	CHECK(!vssd_give(v, taken, 1));
	EXPECT("\1\5\0\1\0\0\0\0\0\0\0\x0a\0\0\0\x02");
	CHECK(vssd_give(v, taken, 1) == -EINVAL);
	/* What was given up can be granted again, what is in use cannot. */
	SAYS("\1\3\0\1\0\0\0\0\0\0\0\x0a\0\0\0\x02");
	CHECK(vssd_dispatch(v) == 1);
	HEARD("grant 10+2;");
	busy = 1;
	SAYS("\1\6\0\1\0\0\0\0\0\0\0\x0a\0\0\0\x01");
	CHECK(vssd_dispatch(v) == 1);
	HEARD("forced 10+1;");
	busy = 0;
	SAYS("\1\3\0\1\0\0\0\0\0\0\0\x0a\0\0\0\x01");
	CHECK(vssd_dispatch(v) == -EPROTO);
	HEARD("forced 11+4 90+10;");
	/* The daemon must not see an end, since the application may use block 10. */
	CHECK(silent());
	finish();
}

/* The daemon sees no end of the connection before the application has stopped using its blocks. */
static void end_in_use(void)
{
	begin();
	welcome();
	busy = 1;
	SAYS("\1\0\0\0\0\0\0\0");
	CHECK(vssd_dispatch(v) == -EPROTO);
	HEARD("forced 10+5 90+10;");
	CHECK(silent());
	busy = 0;
	finish();
}

static void long_list(void)
{
	uint8_t data[VSSD_MESSAGE_MAX];
	struct vssd_range odd[300];
	int i;

	begin();
	welcome();
	data[0] = 1;
	for (i = 0; i < 300; i++)
		odd[i] = (struct vssd_range){ 10 + i, 1 };
	CHECK(vssd_give(v, odd, 300) == -EINVAL);
	CHECK(!vssd_give(v, odd, 5));
	CHECK(recv(daemon_fd, data, sizeof(data), MSG_DONTWAIT) == 48);
	finish();
}

/* What a wrong daemon says ends the connection. */
static void wrong(const void *data, size_t len, int error)
{
	begin();
	welcome();
	says(data, len);
	CHECK(vssd_dispatch(v) == error && *vssd_error(v));
	HEARD("forced 10+5 90+10;");
	CHECK(vssd_dispatch(v) == -ENOTCONN);
	finish();
}

#define WRONG(text) wrong(text, sizeof(text) - 1, -EPROTO)

static void refusals(void)
{
	uint8_t data[128] = "\1\7\0\0\0\0\0\0the name is in use";
	uint8_t large[VSSD_MESSAGE_MAX + 100] = { 1, 3, 1, 1 };
	int i;

	/* 257 ranges, and as many bytes as they need. */
	for (i = 15; i < 8 + 257 * 8; i += 8)
		large[i] = 1;
	wrong(large, 8 + 257 * 8, -EPROTO);
	wrong(data, sizeof(data), -ECONNREFUSED);
	data[127] = 'x';
	wrong(data, sizeof(data), -EPROTO);
	wrong(large, sizeof(large), -EPROTO);
	WRONG("\1\3\0\0\0\0\0");
	WRONG("\2\3\0\0\0\0\0\0");
	WRONG("\1\0\0\0\0\0\0\0");
	WRONG("\1\1\0\0\0\0\0\0");
	WRONG("\1\5\0\0\0\0\0\0");
	WRONG("\1\x08\0\0\0\0\0\0");
	WRONG("\1\3\0\1\0\0\0\0\0\0\0\x20\0\0\0\0");
	WRONG("\1\3\0\1\0\0\0\0\0\0\0\x20\0\0\0");
	WRONG("\1\3\0\1\0\0\0\0\xff\xff\xff\xff\0\0\0\1");
	WRONG("\1\3\0\1\0\0\0\0\0\0\0\x63\0\0\0\2");
	WRONG("\1\3\0\1\0\0\0\0\0\0\0\x0e\0\0\0\2");
	WRONG("\1\4\0\0\0\0\0\0\0\0\0\0\0\0\0");
}

/* A disk that is announced twice, or none; a grant before that. */
static void order(void)
{
	uint8_t data[80] = "\1\2\0\0\0\0\0\0\0\x10\0\0\0\0\0\x64/dev/vdb";

	wrong(data, sizeof(data), -EPROTO);
	begin();
	SAYS("\1\3\0\1\0\0\0\0\0\0\0\0\0\0\0\1");
	CHECK(vssd_dispatch(v) == -EPROTO);
	HEARD("");
	finish();
	begin();
	data[15] = 0;
	says(data, sizeof(data));
	CHECK(vssd_dispatch(v) == -EPROTO);
	finish();
	begin();
	data[10] = 1;
	says(data, sizeof(data));
	CHECK(vssd_dispatch(v) == -EPROTO);
	HEARD("");
	finish();
}

static void no_daemon(void)
{
	char name[200];

	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = 0;
	CHECK(!vssd_connect(name, &ops, NULL) && errno == ENAMETOOLONG);
	CHECK(!vssd_connect("/nowhere/socket", &ops, NULL) && errno == ENOENT);
	vssd_close(NULL);
}

/* Without callbacks: all messages are still answered. */
static void no_callbacks(void)
{
	static const struct vssd_ops none;
	uint8_t data[80] = "\1\2\0\0\0\0\0\0\0\x10\0\0\0\0\0\x64/dev/vdb";

	v = vssd_connect(path, &none, NULL);
	daemon_fd = accept(listener, NULL, NULL);
	says(data, sizeof(data));
	SAYS("\1\3\0\1\0\0\0\0\0\0\0\x0a\0\0\0\x05");
	SAYS("\1\4\0\0\0\0\0\7\0\0\0\0\0\0\0\0");
	SAYS("\1\6\0\1\0\0\0\0\0\0\0\x0a\0\0\0\x05");
	CHECK(vssd_dispatch(v) == 4);
	EXPECT("\1\5\0\1\0\0\0\0\0\0\0\x0a\0\0\0\x05");
	finish();
}

int main(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	snprintf(path, sizeof(path), "/tmp/libvssd-test-%d", getpid());
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	listener = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	CHECK(!bind(listener, (struct sockaddr *)&address, sizeof(address)));
	CHECK(!listen(listener, 4));
	registration();
	life();
	forced_in_use();
	end_in_use();
	long_list();
	refusals();
	order();
	no_daemon();
	no_callbacks();
	close(listener);
	unlink(path);
	return 0;
}
