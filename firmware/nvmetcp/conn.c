// SPDX-License-Identifier: Apache-2.0
#include "conn.h"

#include <stdlib.h>

#include "ctrl.h"

/**
 * conn_new - create a connection
 * @s: the subsystem
 *
 * Return: the connection, or NULL if memory is exhausted.
 */
struct conn *conn_new(struct subsys *s)
{
	struct conn *c = calloc(1, sizeof(*c));
	unsigned int i;

	if (!c)
		return NULL;
	c->slots = calloc(CONN_SLOTS, sizeof(*c->slots));
	if (!c->slots) {
		free(c);
		return NULL;
	}
	c->subsys = s;
	/* One command at a time, until Connect sets the size of the queue. */
	c->entries = 1;
	c->sq_flow = true;
	c->state_deadline = s->now + s->config.peer_timeout;
	STAILQ_INIT(&c->free);
	STAILQ_INIT(&c->waiting);
	STAILQ_INIT(&c->tx);
	for (i = 0; i < CONN_SLOTS; i++) {
		c->slots[i].conn = c;
		STAILQ_INSERT_TAIL(&c->free, &c->slots[i], link);
	}
	LIST_INSERT_HEAD(&s->conns, c, link);
	return c;
}

/**
 * conn_close - close a connection
 * @c: the connection; its memory stays until conn_free()
 *
 * Closing an admin queue also removes its controller and closes all of the
 * controller's I/O queues.
 */
void conn_close(struct conn *c)
{
	unsigned int i;

	if (c->state == CONN_CLOSED)
		return;
	c->state = CONN_CLOSED;
	c->subsys->closed++;
	for (i = 0; i < CONN_SLOTS; i++) {
		if (c->slots[i].state == REQUEST_PENDING) {
			heap_remove(&c->subsys->pending, &c->slots[i]);
			c->slots[i].state = REQUEST_ANSWERED;
		}
	}
	ctrl_detach(c);
}

/**
 * conn_free - free a closed connection
 * @c: the connection
 */
void conn_free(struct conn *c)
{
	unsigned int i;

	if (c->ready)
		STAILQ_REMOVE(&c->subsys->ready, c, conn, ready_link);
	LIST_REMOVE(c, link);
	c->subsys->closed--;
	for (i = 0; i < CONN_SLOTS; i++)
		free(c->slots[i].data);
	free(c->slots);
	free(c);
}

/**
 * conn_fatal - terminate a connection after a fatal transport error
 * @c: the connection
 * @error: the error
 * @header: header of the PDU with the error
 * @length: bytes of @header
 *
 * The host should then close the connection. It gets some time, to read the
 * reason first (TCP Transport §3.5).
 */
void conn_fatal(struct conn *c, const struct pdu_error *error,
		const void *header, uint32_t length)
{
	tx_termreq(c, error, header, length);
	c->state = CONN_TERMINATING;
	c->pdu_deadline = 0;
	c->state_deadline = c->subsys->now + c->subsys->config.peer_timeout;
}

/**
 * conn_input - process received bytes
 * @c: the connection
 * @bytes: the bytes
 * @n: number of bytes
 */
void conn_input(struct conn *c, const uint8_t *bytes, size_t n)
{
	while (n && c->state == CONN_OPEN) {
		size_t taken = rx_bytes(c, bytes, n);

		bytes += taken;
		n -= taken;
	}
}

/* Add the rest of a piece of which @skip bytes have been sent. */
static int add_piece(struct iovec *iov, int n, int room, const void *base,
		     size_t length, size_t *skip)
{
	if (*skip >= length) {
		*skip -= length;
		return n;
	}
	if (n == room)
		return n;
	iov[n].iov_base = (uint8_t *)base + *skip;
	iov[n].iov_len = length - *skip;
	*skip = 0;
	return n + 1;
}

/**
 * conn_output - get the bytes to send
 * @c: the connection
 * @iov: the pieces
 * @room: size of @iov
 *
 * Call conn_sent() with the number of bytes that were sent.
 *
 * Return: number of pieces.
 */
int conn_output(const struct conn *c, struct iovec *iov, int room)
{
	size_t skip = c->tx_sent;
	const struct tx *tx;
	int n = 0;

	STAILQ_FOREACH(tx, &c->tx, link) {
		n = add_piece(iov, n, room, tx->header, tx->header_length,
			      &skip);
		n = add_piece(iov, n, room, tx->data, tx->data_length, &skip);
		n = add_piece(iov, n, room, tx->ddgst, tx->ddgst_length,
			      &skip);
		if (n == room)
			break;
	}
	return n;
}

static size_t tx_length(const struct tx *tx)
{
	return (size_t)tx->header_length + tx->data_length + tx->ddgst_length;
}

/**
 * conn_sent - remove sent bytes from the output
 * @c: the connection
 * @n: number of bytes
 */
void conn_sent(struct conn *c, size_t n)
{
	struct tx *tx;

	c->tx_sent += n;
	while ((tx = STAILQ_FIRST(&c->tx)) && c->tx_sent >= tx_length(tx)) {
		c->tx_sent -= tx_length(tx);
		STAILQ_REMOVE_HEAD(&c->tx, link);
		c->tx_deadline = c->subsys->now +
				 c->subsys->config.peer_timeout;
		if (tx->ends)
			conn_release_slot(tx->ends);
	}
	if (!tx)
		c->tx_deadline = 0;
}

/**
 * conn_send - queue a PDU
 * @c: the connection
 * @tx: the PDU
 */
void conn_send(struct conn *c, struct tx *tx)
{
	/* Nothing follows a C2HTermReq. */
	if (c->state != CONN_OPEN)
		return;
	if (STAILQ_EMPTY(&c->tx))
		c->tx_deadline = c->subsys->now +
				 c->subsys->config.peer_timeout;
	STAILQ_INSERT_TAIL(&c->tx, tx, link);
	if (!c->ready) {
		c->ready = true;
		STAILQ_INSERT_TAIL(&c->subsys->ready, c, ready_link);
	}
}

static bool passed(vs_time deadline, vs_time now)
{
	return deadline && now >= deadline;
}

/**
 * conn_tick - close a connection after a deadline
 * @c: the connection
 */
void conn_tick(struct conn *c)
{
	vs_time now = c->subsys->now;

	if (passed(c->state_deadline, now) || passed(c->pdu_deadline, now) ||
	    passed(c->tx_deadline, now))
		conn_close(c);
}

/**
 * conn_take_slot - allocate a slot for a command
 * @c: the connection
 *
 * Return: the slot; NULL if the host has sent more commands than the queue has
 * entries.
 */
struct request *conn_take_slot(struct conn *c)
{
	unsigned int parked = c->ctrl && !c->qid ? c->ctrl->aers : 0;
	struct request *r = STAILQ_FIRST(&c->free);

	if (c->used - parked >= c->entries)
		return NULL;
	STAILQ_REMOVE_HEAD(&c->free, link);
	c->used++;
	*r = (struct request){
		.conn = c,
		.state = REQUEST_RECEIVING,
	};
	return r;
}

/**
 * conn_hold_data - allocate the data buffer of a command
 * @r: the command, which has none
 * @size: size in bytes
 *
 * Return: false if memory is exhausted.
 */
bool conn_hold_data(struct request *r, uint32_t size)
{
	r->data = malloc(size);
	if (!r->data)
		return false;
	r->size = size;
	r->conn->bytes += size;
	return true;
}

static bool fits(const struct conn *c, const struct request *r)
{
	return c->bytes + r->length <= CONNECTION_BYTES;
}

static void admit(struct request *r)
{
	if (conn_hold_data(r, r->length))
		request_admitted(r);
	else
		request_finish(r, SC_INTERNAL_ERROR);
}

/**
 * conn_admit - allocate the data buffer of a command, now or later
 * @r: the command
 */
void conn_admit(struct request *r)
{
	struct conn *c = r->conn;

	if (STAILQ_EMPTY(&c->waiting) && fits(c, r)) {
		admit(r);
		return;
	}
	r->state = REQUEST_WAITING;
	STAILQ_INSERT_TAIL(&c->waiting, r, link);
}

/**
 * conn_release_slot - free the slot of a completed command
 * @r: the command
 */
void conn_release_slot(struct request *r)
{
	struct conn *c = r->conn;

	c->bytes -= r->size;
	free(r->data);
	r->data = NULL;
	r->size = 0;
	r->state = REQUEST_FREE;
	c->used--;
	STAILQ_INSERT_TAIL(&c->free, r, link);
	while ((r = STAILQ_FIRST(&c->waiting)) && c->state == CONN_OPEN &&
	       fits(c, r)) {
		STAILQ_REMOVE_HEAD(&c->waiting, link);
		admit(r);
	}
}
