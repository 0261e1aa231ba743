// SPDX-License-Identifier: Apache-2.0
/* The commands of NVMe over Fabrics 1.1: Connect, Property Get and Set. */
#include "fabrics.h"

#include <string.h>

#include "command.h"
#include "conn.h"
#include "ctrl.h"

/* Bit 16 of dword 0 of a failed Connect: the offset refers to the data. */
#define IATTR_DATA (1u << 16)

#define REFUSE_SQE(r, field) \
	refuse_connect(r, offsetof(struct connect_sqe, field), 0)
#define REFUSE_DATA(r, field) \
	refuse_connect(r, offsetof(struct connect_data, field), IATTR_DATA)

/* Connect Invalid Parameters, with the offset of the parameter (§3.3.1). */
static uint16_t refuse_connect(struct request *r, size_t ipo, uint32_t iattr)
{
	r->dw0 = (uint32_t)ipo | iattr;
	return SC_CONNECT_INVALID_PARAMETERS | SC_DNR;
}

static uint16_t connect_prepare(struct request *r)
{
	const struct connect_sqe *sqe = (const void *)&r->sqe;
	uint16_t sqsize = le16_to_cpu(sqe->sqsize);

	r->length = sizeof(struct connect_data);
	if (le16_to_cpu(sqe->recfmt))
		return SC_CONNECT_INCOMPATIBLE_FORMAT | SC_DNR;
	if (r->conn->ctrl)
		return SC_COMMAND_SEQUENCE_ERROR | SC_DNR;
	if (le16_to_cpu(sqe->qid) > IO_QUEUES)
		return REFUSE_SQE(r, qid);
	/* The value is 0's based; a queue needs at least two entries. */
	if (!sqsize || sqsize >= QUEUE_ENTRIES)
		return REFUSE_SQE(r, sqsize);
	return SC_SUCCESS;
}

static bool is_nqn(const char nqn[256])
{
	size_t length = strnlen(nqn, 256);

	return length && length < NQN_SIZE;
}

static uint16_t connect_admin(struct request *r, struct connect_data *data)
{
	const struct connect_sqe *sqe = (const void *)&r->sqe;
	struct subsys *s = r->conn->subsys;
	bool discovery = !strcmp(data->subnqn, DISCOVERY_NQN);
	struct ctrl *k;

	if (!discovery && strcmp(data->subnqn, s->nqn))
		return REFUSE_DATA(r, subnqn);
	if (le16_to_cpu(data->cntlid) != CNTLID_DYNAMIC)
		return REFUSE_DATA(r, cntlid);
	k = ctrl_new(s, r->conn, discovery);
	if (!k)
		return SC_CONNECT_CONTROLLER_BUSY;
	memcpy(k->hostid, data->hostid, sizeof(k->hostid));
	memcpy(k->hostnqn, data->hostnqn, sizeof(k->hostnqn));
	r->conn->ctrl = k;
	ctrl_set_kato(k, le32_to_cpu(sqe->kato));
	return SC_SUCCESS;
}

static uint16_t connect_io(struct request *r, struct connect_data *data,
			   uint16_t qid)
{
	struct subsys *s = r->conn->subsys;
	struct ctrl *k = ctrl_find(s, le16_to_cpu(data->cntlid));

	if (!k || k->discovery)
		return REFUSE_DATA(r, cntlid);
	if (strcmp(data->subnqn, s->nqn))
		return REFUSE_DATA(r, subnqn);
	/* A host must not connect to a controller of another host. */
	if (memcmp(data->hostid, k->hostid, sizeof(k->hostid)) ||
	    strcmp(data->hostnqn, k->hostnqn))
		return SC_CONNECT_INVALID_HOST | SC_DNR;
	if (!k->ready || k->queues[qid])
		return SC_COMMAND_SEQUENCE_ERROR | SC_DNR;
	if (qid > k->io_queues)
		return REFUSE_SQE(r, qid);
	k->queues[qid] = r->conn;
	r->conn->ctrl = k;
	return SC_SUCCESS;
}

static uint16_t connect_execute(struct request *r)
{
	const struct connect_sqe *sqe = (const void *)&r->sqe;
	struct connect_data *data = (void *)r->data;
	uint16_t qid = le16_to_cpu(sqe->qid);
	struct conn *c = r->conn;
	uint16_t status;

	/* Check again: another Connect may have completed before the data came. */
	if (c->ctrl)
		return SC_COMMAND_SEQUENCE_ERROR | SC_DNR;
	if (!is_nqn(data->subnqn))
		return REFUSE_DATA(r, subnqn);
	if (!is_nqn(data->hostnqn))
		return REFUSE_DATA(r, hostnqn);
	status = qid ? connect_io(r, data, qid) : connect_admin(r, data);
	if (status)
		return status;
	c->qid = qid;
	c->entries = (uint16_t)(le16_to_cpu(sqe->sqsize) + 1);
	c->sq_flow = !(sqe->cattr & CATTR_NO_SQ_FLOW);
	c->state_deadline = 0;
	r->dw0 = c->ctrl->cntlid;
	return SC_SUCCESS;
}

/* Properties belong to a controller, so they need its admin queue. */
static uint16_t property_prepare(struct request *r)
{
	if (!r->conn->ctrl || r->conn->qid)
		return SC_COMMAND_SEQUENCE_ERROR | SC_DNR;
	return SC_SUCCESS;
}

#define REFUSE_PROPERTY(r, field)				\
	request_refuse(r, SC_INVALID_FIELD,			\
		       offsetof(struct property_sqe, field))

static uint16_t property_get_execute(struct request *r)
{
	const struct property_sqe *sqe = (const void *)&r->sqe;
	const struct ctrl *k = r->conn->ctrl;
	uint8_t size = ATTRIB_4_BYTES;
	uint64_t value;

	switch (le32_to_cpu(sqe->ofst)) {
	case PROPERTY_CAP:
		value = ctrl_cap();
		size = ATTRIB_8_BYTES;
		break;
	case PROPERTY_VS:
		value = NVME_VS;
		break;
	case PROPERTY_CC:
		value = k->cc;
		break;
	case PROPERTY_CSTS:
		value = ctrl_csts(k);
		break;
	default:
		return REFUSE_PROPERTY(r, ofst);
	}
	if ((sqe->attrib & ATTRIB_SIZE) != size)
		return REFUSE_PROPERTY(r, attrib);
	r->dw0 = (uint32_t)value;
	r->dw1 = (uint32_t)(value >> 32);
	return SC_SUCCESS;
}

static uint16_t property_set_execute(struct request *r)
{
	const struct property_sqe *sqe = (const void *)&r->sqe;

	if (le32_to_cpu(sqe->ofst) != PROPERTY_CC)
		return REFUSE_PROPERTY(r, ofst);
	if ((sqe->attrib & ATTRIB_SIZE) != ATTRIB_4_BYTES)
		return REFUSE_PROPERTY(r, attrib);
	ctrl_write_cc(r->conn->ctrl, (uint32_t)le64_to_cpu(sqe->value));
	return SC_SUCCESS;
}

static const struct command commands[] = {
	{ FCTYPE_PROPERTY_SET, 0, property_prepare, property_set_execute },
	{ FCTYPE_CONNECT, 0, connect_prepare, connect_execute },
	{ FCTYPE_PROPERTY_GET, 0, property_prepare, property_get_execute },
};

const struct command_set fabrics_commands = {
	commands, sizeof(commands) / sizeof(commands[0]),
};
