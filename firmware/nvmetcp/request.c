// SPDX-License-Identifier: Apache-2.0
/* The steps of a command: check, get the data, execute, complete in time. */
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

/* The command set of this queue; NULL: no command is allowed now. */
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
		/* FCTYPE is at the place of NSID. */
		opcode = r->sqe.nsid.b[0];
	}
	if (!set)
		return SC_COMMAND_SEQUENCE_ERROR | SC_DNR;
	r->command = find(set, opcode);
	if (!r->command)
		return request_refuse(r, SC_INVALID_OPCODE, 0);
	return SC_SUCCESS;
}

/* Check the single SGL descriptor of the command (Fabrics 1.1 §2.3). */
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

/* Aborts and compare failures get no entry in the error log. */
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
	/* More: the error log has additional information. */
	r->status |= SC_MORE;
}

/**
 * request_finish - complete a command, now or at its time
 * @r: the command
 * @status: its status
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
 * request_due - complete a command whose time has come
 * @r: the command, which was removed from the heap
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

	/* A wrong data digest only fails the command (TCP §3.3.1.2). */
	if (!r->data_bad)
		status = r->command->execute(r);
	if (status != STATUS_PARKED)
		request_finish(r, status);
}

/**
 * request_refuse - reject a field of a command
 * @r: the command
 * @status: the reason
 * @offset: first byte of the field
 *
 * Return: the status, with DNR.
 */
uint16_t request_refuse(struct request *r, uint16_t status, size_t offset)
{
	r->error_offset = (uint16_t)offset;
	return status | SC_DNR;
}

/**
 * request_received - process a complete capsule
 * @r: its command; @received bytes of data were in the capsule
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
 * request_admitted - continue a command that has got its data buffer
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
 * request_transferred - continue a command whose R2T data is complete
 * @r: the command
 */
void request_transferred(struct request *r)
{
	execute(r);
}
