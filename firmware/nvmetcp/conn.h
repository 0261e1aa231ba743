/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection: one queue, once a Connect command has said which. It is given
 * the bytes that come and asked for those to be sent; the socket is another's.
 */
#ifndef VCACHE_NVMETCP_CONN_H
#define VCACHE_NVMETCP_CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/uio.h>

#include "limits.h"
#include "pdu.h"
#include "request.h"
#include "rx.h"
#include "subsys.h"

/* A full queue, and what was taken off it until an event comes. */
#define CONN_SLOTS (QUEUE_ENTRIES + AER_LIMIT)

struct ctrl;

enum conn_state {
	CONN_OPEN,
	CONN_TERMINATING,	/* C2HTermReq is out: nothing is listened to */
	CONN_CLOSED,		/* to be freed by the server */
};

/**
 * struct conn - a connection
 * @subsys: the subsystem
 * @state: whether it is alive
 * @session: digests
 * @data_alignment: of C2HData's PDO, bytes (HPDA)
 * @local: our address as the host sees it, for the discovery log
 * @local_port: likewise
 * @local_ipv6: of which family they are
 * @ctrl: the controller; NULL before Connect
 * @qid: the queue; 0 is the admin queue
 * @entries: of the queue
 * @sq_flow: the host wants SQHD
 * @sqhd: commands answered or parked, modulo @entries
 * @slots: the requests
 * @free: those not in use
 * @used: how many are
 * @waiting: requests that wait for memory, in their order
 * @bytes: memory of their data
 * @rx: what is being received
 * @tx: what is to be sent
 * @tx_sent: bytes of the first of them that have been
 * @icresp: PDU
 * @termreq: PDU
 * @state_deadline: Connect has to have come, or after a C2HTermReq the host
 *	to have closed; 0: nothing is due
 * @pdu_deadline: the PDU that has begun has to have come; 0: none has
 * @tx_deadline: something has to have been sent; 0: nothing is to be
 * @server: what the server makes of it
 * @link: in subsys->conns
 * @ready: on subsys->ready
 * @ready_link: in it
 */
struct conn {
	struct subsys *subsys;
	enum conn_state state;
	struct pdu_session session;
	uint32_t data_alignment;
	char local[64];
	uint16_t local_port;
	bool local_ipv6;
	struct ctrl *ctrl;
	uint16_t qid;
	uint16_t entries;
	bool sq_flow;
	uint16_t sqhd;
	struct request *slots;
	STAILQ_HEAD(, request) free;
	unsigned int used;
	STAILQ_HEAD(, request) waiting;
	size_t bytes;
	struct rx rx;
	STAILQ_HEAD(, tx) tx;
	size_t tx_sent;
	struct tx icresp;
	struct tx termreq;
	vs_time state_deadline;
	vs_time pdu_deadline;
	vs_time tx_deadline;
	void *server;
	LIST_ENTRY(conn) link;
	bool ready;
	STAILQ_ENTRY(conn) ready_link;
};

struct conn *conn_new(struct subsys *s);
void conn_free(struct conn *c);
void conn_close(struct conn *c);
void conn_fatal(struct conn *c, const struct pdu_error *error,
		const void *header, uint32_t length);
void conn_input(struct conn *c, const uint8_t *bytes, size_t n);
int conn_output(const struct conn *c, struct iovec *iov, int room);
void conn_sent(struct conn *c, size_t n);
void conn_tick(struct conn *c);

struct request *conn_take_slot(struct conn *c);
void conn_release_slot(struct request *r);
bool conn_hold_data(struct request *r, uint32_t size);
void conn_admit(struct request *r);
void conn_send(struct conn *c, struct tx *tx);

#endif /* VCACHE_NVMETCP_CONN_H */
