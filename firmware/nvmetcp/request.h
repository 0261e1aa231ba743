/* SPDX-License-Identifier: Apache-2.0 */
/* One command of a host, from its capsule to its response. */
#ifndef VCACHE_NVMETCP_REQUEST_H
#define VCACHE_NVMETCP_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "../core/ssd.h"
#include "nvme.h"
#include "tx.h"

struct conn;
struct command;

enum request_state {
	REQUEST_FREE,
	REQUEST_RECEIVING,	/* in-capsule data is coming */
	REQUEST_WAITING,	/* for memory, on conn->waiting */
	REQUEST_TRANSFER,	/* its R2T is out */
	REQUEST_PENDING,	/* done by the device, on subsys->pending */
	REQUEST_PARKED,		/* on ctrl->aer */
	REQUEST_ANSWERED,	/* the response is on conn->tx */
};

/**
 * struct request - a command slot of a connection
 * @conn: the connection
 * @state: where it is
 * @sqe: the command
 * @command: what it is
 * @status: what it completes with
 * @error_offset: byte of @sqe that is to blame, for the error log
 * @dw0: of the completion
 * @dw1: of the completion
 * @data: buffer of @size bytes, or NULL
 * @size: what it costs of the connection's memory
 * @length: bytes that the command moves
 * @received: bytes of them that have come, with an R2T
 * @data_bad: a data digest was wrong
 * @parked: it is an Asynchronous Event Request that left the queue long ago
 * @done: when the device has done it
 * @heap_at: place in subsys->pending
 * @offset: first byte on the device
 * @r2t: PDU, as are @c2hdata and @response; each has its own, because a host
 *	that guesses may answer an R2T that is still to be sent
 * @link: in conn->free or conn->waiting
 */
struct request {
	struct conn *conn;
	enum request_state state;
	struct sqe sqe;
	const struct command *command;
	uint16_t status;
	uint16_t error_offset;
	uint32_t dw0;
	uint32_t dw1;
	uint8_t *data;
	uint32_t size;
	uint32_t length;
	uint32_t received;
	bool data_bad;
	bool parked;
	vs_time done;
	size_t heap_at;
	uint64_t offset;
	struct tx r2t;
	struct tx c2hdata;
	struct tx response;
	STAILQ_ENTRY(request) link;
};

/* What a command's execute() returns when it completes some other time. */
#define STATUS_PARKED 0xffffu

static inline uint32_t request_nsid(const struct request *r)
{
	return le32_to_cpu(r->sqe.nsid);
}

static inline uint16_t request_cid(const struct request *r)
{
	return le16_to_cpu(r->sqe.cid);
}

uint16_t request_refuse(struct request *r, uint16_t status, size_t offset);
void request_received(struct request *r);
void request_transferred(struct request *r);
void request_admitted(struct request *r);
void request_due(struct request *r);
void request_finish(struct request *r, uint16_t status);

/* Refuse a field of the command: Invalid Field, and where it is. */
#define request_invalid(r, field) \
	request_refuse(r, SC_INVALID_FIELD, offsetof(struct sqe, field))

#endif /* VCACHE_NVMETCP_REQUEST_H */
