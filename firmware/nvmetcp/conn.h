/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection. A Connect command makes it one queue of a controller. The server
 * owns the socket: it passes received bytes and requests the bytes to send.
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

/* The entries of a full queue, and the parked commands. */
#define CONN_SLOTS (QUEUE_ENTRIES + AER_LIMIT)

struct ctrl;

enum conn_state {
	CONN_OPEN,
	CONN_TERMINATING,	/* C2HTermReq is sent, input is ignored */
	CONN_CLOSED,		/* the server has to free it */
};

/**
 * struct conn - a connection
 * @subsys: the subsystem
 * @state: state of the connection
 * @session: digests
 * @data_alignment: alignment of the PDO of C2HData in bytes (HPDA)
 * @local: local address to which the host connected, for the discovery log
 * @local_port: local port
 * @local_ipv6: @local is an IPv6 address
 * @ctrl: the controller; NULL before Connect
 * @qid: the queue; 0 is the admin queue
 * @entries: entries of the queue
 * @sq_flow: the host uses SQHD
 * @sqhd: completed and parked commands, modulo @entries
 * @slots: the requests
 * @free: free requests
 * @used: number of used requests
 * @waiting: requests that wait for memory, in order
 * @bytes: size of all data buffers
 * @rx: the PDU that is being received
 * @tx: PDUs to send
 * @tx_sent: bytes of the first PDU in @tx that have been sent
 * @icresp: the ICResp PDU
 * @termreq: the C2HTermReq PDU
 * @state_deadline: time for the Connect command, or for the host to close the
 *	connection after a C2HTermReq; 0: none
 * @pdu_deadline: time for the rest of a PDU that has begun; 0: none
 * @tx_deadline: time to send the next PDU; 0: none
 * @server: private data of the server
 * @link: entry in subsys->conns
 * @ready: it is in subsys->ready
 * @ready_link: entry in subsys->ready
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
