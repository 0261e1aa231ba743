// SPDX-License-Identifier: Apache-2.0
/* The way of a command: checked, given its data, executed, answered in time. */
#include "request.h"

#include "command.h"
#include "conn.h"
#include "ctrl.h"

static const struct command *find(const struct command_set *set,
				  uint8_t opcode)
{
	size_t i;

	for (i = 0; i < set->count; i++) {
		if (set->commands[i].opcode == opcode)
			return &set->commands[i];
	}
	return NULL;
}

/* The set that a command of this queue is of; NULL: none may come now. */
static const struct command_set *command_set(const struct conn *c)
{
	if (!c->ctrl || !c->ctrl->ready)
		return NULL;
	if (c->qid)
		return io_commands(c->subsys);
	return c->ctrl->discovery ? &discovery_commands : &admin_commands;
}

static uint16_t identify_command(struct request *r)
{
	const struct command_set *set = command_set(r->conn);
	uint8_t opcode = r->sqe.opcode;

	if (opcode == OPCODE_FABRICS) {
		set = &fabrics_commands;
		/* FCTYPE is where other commands have NSID. */
		opcode = r->sqe.nsid.b[0];
	}
	if (!set)
		return SC_COMMAND_SEQUENCE_ERROR | SC_DNR;
	r->command = find(set, opcode);
	if (!r->command)
		return request_refuse(r, SC_INVALID_OPCODE, 0);
	return SC_SUCCESS;
}

/* Fabrics 1.1 §2.3: the one descriptor of the command, and its length. */
static uint16_t check_sgl(struct request *r)
{
	const struct sgl *sgl = &r->sqe.sgl;
	uint32_t length = le32_to_cpu(sgl->length);
	size_t offset = offsetof(struct sqe, sgl.length);

	if (length != r->length || (r->received && r->received != length))
		return request_refuse(r, SC_DATA_SGL_LENGTH_INVALID, offset);
	if (!length)
		return SC_SUCCESS;
	offset = offsetof(struct sqe, sgl.identifier);
	switch (sgl->identifier) {
	case SGL_DATA_BLOCK_OFFSET:
		if (!r->received)
			break;
		if (le64_to_cpu(sgl->address))
			return request_refuse(r, SC_SGL_OFFSET_INVALID,
					      offsetof(struct sqe, sgl));
		return SC_SUCCESS;
	case SGL_TRANSPORT:
		if (r->received)
			break;
		return SC_SUCCESS;
	}
	return request_refuse(r, SC_SGL_DESCRIPTOR_TYPE_INVALID, offset);
}

static uint16_t prepare(struct request *r)
{
	uint16_t status;

	if ((r->sqe.flags & SQE_FLAGS_CHECKED) != SQE_FLAGS_SGL)
		return request_invalid(r, flags);
	status = identify_command(r);
	if (status)
		return status;
	if (r->command->prepare)
		status = r->command->prepare(r);
	if (status)
		return status;
	if (r->received && command_transfer(r->command) !=
	    TRANSFER_TO_CONTROLLER)
		return request_refuse(r, SC_SGL_DESCRIPTOR_TYPE_INVALID,
				      offsetof(struct sqe, sgl.identifier));
	return check_sgl(r);
}

static void answer(struct request *r)
{
	r->state = REQUEST_ANSWERED;
	tx_answer(r);
}

/* Not worth an entry: what the host itself asked for. */
static bool is_error(uint16_t status)
{
	return status && status != SC_COMMAND_ABORT_REQUESTED &&
	       (status & 0x7ff) != SC_COMPARE_FAILURE;
}

static void log_error(struct request *r)
{
	struct ctrl *k = r->conn->ctrl;
	struct error_entry *entry;

	if (!k || !is_error(r->status))
		return;
	r->conn->subsys->health.errors++;
	entry = &k->error_log[k->errors++ % ERROR_LOG_ENTRIES];
	*entry = (struct error_entry){
		.count = k->errors,
		.sqid = r->conn->qid,
		.cid = request_cid(r),
		.status = r->status,
		.location = r->error_offset,
	};
	if (r->sqe.opcode != OPCODE_FABRICS)
		entry->nsid = request_nsid(r);
	if (r->conn->qid)
		entry->lba = (uint64_t)le32_to_cpu(r->sqe.cdw11) << 32 |
			     le32_to_cpu(r->sqe.cdw10);
	/* "More": the error log has more about it. */
	r->status |= SC_MORE;
}

/**
 * request_finish - a command has its status; answer it when its time comes
 * @r: the command
 * @status: what it completes with
 */
void request_finish(struct request *r, uint16_t status)
{
	struct subsys *s = r->conn->subsys;

	r->status = status;
	log_error(r);
	if (s->config.timing && r->done > s->now) {
		r->state = REQUEST_PENDING;
		heap_add(&s->pending, r);
		return;
	}
	answer(r);
}

/**
 * request_due - the time of a command that is off the heap has come
 * @r: the command
 */
void request_due(struct request *r)
{
	struct subsys *s = r->conn->subsys;
	uint64_t late = s->now > r->done ? s->now - r->done : 0;

	if (late > LATE_NS)
		s->health.late++;
	if (late > s->health.latest)
		s->health.latest = late;
	answer(r);
}

static void execute(struct request *r)
{
	uint16_t status = SC_TRANSIENT_TRANSPORT_ERROR;

	/* A wrong data digest is the command's error (TCP §3.3.1.2). */
	if (!r->data_bad)
		status = r->command->execute(r);
	if (status != STATUS_PARKED)
		request_finish(r, status);
}

/**
 * request_refuse - refuse a field of a command, for good
 * @r: the command
 * @status: why
 * @offset: the field's first byte
 *
 * Return: the status, with DNR.
 */
uint16_t request_refuse(struct request *r, uint16_t status, size_t offset)
{
	r->error_offset = (uint16_t)offset;
	return status | SC_DNR;
}

/**
 * request_received - a capsule has come
 * @r: its command; @received bytes of data were in it
 */
void request_received(struct request *r)
{
	uint16_t status = prepare(r);

	if (status)
		request_finish(r, status);
	else if (r->length > r->received)
		conn_admit(r);
	else
		execute(r);
}

/**
 * request_admitted - a command has been given memory for its data
 * @r: the command
 */
void request_admitted(struct request *r)
{
	if (command_transfer(r->command) != TRANSFER_TO_CONTROLLER) {
		execute(r);
		return;
	}
	r->state = REQUEST_TRANSFER;
	tx_r2t(r);
}

/**
 * request_transferred - the data that an R2T asked for has come
 * @r: its command
 */
void request_transferred(struct request *r)
{
	execute(r);
}
