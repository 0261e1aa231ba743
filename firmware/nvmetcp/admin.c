// SPDX-License-Identifier: Apache-2.0
/* The table of admin commands (NVMe Base 1.4 §5), and the short commands. */
#include "command.h"
#include "conn.h"
#include "ctrl.h"

/* Bit 0 of an Abort's dword 0: the command was not aborted. */
#define ABORT_NOT_DONE 1u

static uint16_t keep_alive(struct request *r)
{
	ctrl_keep_alive(r->conn->ctrl);
	return SC_SUCCESS;
}

static uint16_t async_event_request(struct request *r)
{
	struct ctrl *k = r->conn->ctrl;

	if (k->aers == AER_LIMIT)
		return SC_ASYNC_EVENT_LIMIT_EXCEEDED | SC_DNR;
	aer_park(k, r);
	return STATUS_PARKED;
}

/*
 * Abort a command that waits for memory, or whose completion is pending. A
 * command with an outstanding R2T is not aborted, because its data will arrive
 * and needs the buffer.
 */
static bool abort_command(struct conn *c, uint16_t cid)
{
	unsigned int i;

	for (i = 0; i < CONN_SLOTS; i++) {
		struct request *r = &c->slots[i];

		if (request_cid(r) != cid)
			continue;
		if (r->state == REQUEST_WAITING)
			STAILQ_REMOVE(&c->waiting, r, request, link);
		else if (r->state == REQUEST_PENDING)
			heap_remove(&c->subsys->pending, r);
		else
			continue;
		r->done = 0;
		request_finish(r, SC_COMMAND_ABORT_REQUESTED);
		return true;
	}
	return false;
}

static uint16_t abort_execute(struct request *r)
{
	struct ctrl *k = r->conn->ctrl;
	uint32_t cdw10 = le32_to_cpu(r->sqe.cdw10);
	uint16_t sqid = (uint16_t)cdw10;
	uint16_t cid = (uint16_t)(cdw10 >> 16);

	if (sqid > IO_QUEUES || !k->queues[sqid])
		return request_invalid(r, cdw10);
	if (!abort_command(k->queues[sqid], cid) &&
	    (sqid || !aer_abort(k, cid)))
		r->dw0 = ABORT_NOT_DONE;
	return SC_SUCCESS;
}

static const struct command commands[] = {
	{ ADMIN_GET_LOG_PAGE, EFFECT_CSUPP, log_prepare, log_execute },
	{ ADMIN_IDENTIFY, EFFECT_CSUPP, identify_prepare, identify_execute },
	{ ADMIN_ABORT, EFFECT_CSUPP, NULL, abort_execute },
	{ ADMIN_SET_FEATURES, EFFECT_CSUPP, features_set_prepare,
	  features_set },
	{ ADMIN_GET_FEATURES, EFFECT_CSUPP, features_get_prepare,
	  features_get },
	{ ADMIN_ASYNC_EVENT_REQUEST, EFFECT_CSUPP, NULL, async_event_request },
	{ ADMIN_KEEP_ALIVE, EFFECT_CSUPP, NULL, keep_alive },
};

const struct command_set admin_commands = {
	commands, sizeof(commands) / sizeof(commands[0]),
};

/* The commands of a discovery controller (Fabrics 1.1 §5.1). */
static const struct command of_discovery[] = {
	{ ADMIN_GET_LOG_PAGE, EFFECT_CSUPP, log_prepare, log_execute },
	{ ADMIN_IDENTIFY, EFFECT_CSUPP, discovery_identify_prepare,
	  identify_execute },
	{ ADMIN_SET_FEATURES, EFFECT_CSUPP, features_set_prepare,
	  features_set },
	{ ADMIN_GET_FEATURES, EFFECT_CSUPP, features_get_prepare,
	  features_get },
	{ ADMIN_ASYNC_EVENT_REQUEST, EFFECT_CSUPP, NULL, async_event_request },
	{ ADMIN_KEEP_ALIVE, EFFECT_CSUPP, NULL, keep_alive },
};

const struct command_set discovery_commands = {
	of_discovery, sizeof(of_discovery) / sizeof(of_discovery[0]),
};
