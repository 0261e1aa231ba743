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
	REQUEST_RECEIVING,	/* in-capsule data is being received */
	REQUEST_WAITING,	/* waits for memory, in conn->waiting */
	REQUEST_TRANSFER,	/* its R2T is sent */
	REQUEST_PENDING,	/* waits for its time, in subsys->pending */
	REQUEST_PARKED,		/* in ctrl->aer */
	REQUEST_ANSWERED,	/* the response is in conn->tx */
};

/**
 * struct request - a command slot of a connection
 * @conn: the connection
 * @state: state of the request
 * @sqe: the submission queue entry
 * @command: entry in the command set
 * @status: status of the completion
 * @error_offset: first byte of the invalid field in @sqe, for the error log
 * @dw0: dword 0 of the completion
 * @dw1: dword 1 of the completion
 * @data: buffer of @size bytes, or NULL
 * @size: size of the buffer
 * @length: bytes that the command transfers
 * @received: bytes that have been received
 * @data_bad: a data digest was wrong
 * @parked: it is an Asynchronous Event Request, which has left the queue
 * @done: time at which the device completes it
 * @heap_at: index in subsys->pending
 * @offset: first byte on the device
 * @r2t: R2T PDU; it is separate from @c2hdata and @response, because a host
 *	may send data before the R2T has been sent
 * @c2hdata: C2HData PDU
 * @response: response PDU
 * @link: entry in conn->free or conn->waiting
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

/* Result of execute() if the command completes later. */
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

/* Reject a field of the command with Invalid Field and its offset. */
#define request_invalid(r, field) \
	request_refuse(r, SC_INVALID_FIELD, offsetof(struct sqe, field))

#endif /* VCACHE_NVMETCP_REQUEST_H */
