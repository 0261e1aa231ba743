// SPDX-License-Identifier: Apache-2.0
/* Flexible Data Placement: commands, features and events. */
#include "fdp.h"

#include <string.h>

#include "command.h"
#include "conn.h"
#include "limits.h"

#define DTYPE_PLACEMENT 2u
/* CDW10 of I/O Management commands */
#define MO_NOTHING 0u
#define MO_UNITS 1u
/* Feature 1Dh, dword 0 */
#define FDP_ENABLED 1u
/* Feature 1Eh, CDW12 */
#define EVENTS_ENABLE 1u

struct unit_status {
	uint8_t reserved[14];
	struct le16 count;
};

struct unit_descriptor {
	struct le16 pid;
	struct le16 ruhid;
	struct le32 earutr;
	struct le64 ruamw;
	uint8_t reserved[16];
};

struct event_descriptor {
	uint8_t type;
	uint8_t attributes;
};

_Static_assert(sizeof(struct unit_status) == 16, "RUH status");
_Static_assert(sizeof(struct unit_descriptor) == 32, "RUH status descriptor");

static const uint8_t event_types[] = {
	FDP_UNIT_NOT_FULL, FDP_INVALID_IDENTIFIER,
};

#define EVENT_TYPES (sizeof(event_types) / sizeof(event_types[0]))

static uint32_t handles(const struct request *r)
{
	return r->conn->subsys->config.device.handles;
}

bool fdp_supported(const struct subsys *s)
{
	return s->config.device.handles > 1;
}

static void record(struct request *r, enum fdp_event_type type, uint32_t pid,
		   uint32_t handle, uint8_t flags)
{
	struct subsys *s = r->conn->subsys;

	if (!(s->fdp.enabled[handle] & 1u << type))
		return;
	s->fdp.event[s->fdp.events++ % FDP_EVENTS] = (struct fdp_event){
		.type = (uint8_t)type,
		.flags = flags,
		.pid = cpu_to_le16((uint16_t)pid),
		/* Timestamp is in ms; its origin is the start (0). */
		.timestamp = cpu_to_le64((s->now - s->health.start) / 1000000),
		.nsid = r->sqe.nsid,
		.ruhid = (uint8_t)handle,
	};
}

/**
 * fdp_handle - the reclaim unit handle of a write
 * @r: the command
 * @handle: its handle; the first one without a directive
 *
 * An identifier that does not exist is no error of the write: it uses the
 * first handle, and there is an event.
 *
 * Return: the status.
 */
uint16_t fdp_handle(struct request *r, uint32_t *handle)
{
	uint32_t dtype = le32_to_cpu(r->sqe.cdw12) >> CDW12_DTYPE_SHIFT &
			 CDW12_DTYPE;
	uint32_t pid = le32_to_cpu(r->sqe.cdw13) >> CDW13_DSPEC_SHIFT;

	*handle = 0;
	if (!dtype)
		return SC_SUCCESS;
	if (dtype != DTYPE_PLACEMENT || !fdp_supported(r->conn->subsys))
		return request_invalid(r, cdw12);
	if (pid < handles(r))
		*handle = pid;
	else
		record(r, FDP_INVALID_IDENTIFIER, pid, 0,
		       FDP_EVENT_PIV | FDP_EVENT_NSIDV);
	return SC_SUCCESS;
}

static uint16_t check_namespace(struct request *r)
{
	if (!subsys_has_namespace(r->conn->subsys, request_nsid(r)))
		return request_refuse(r, SC_INVALID_NAMESPACE,
				      offsetof(struct sqe, nsid));
	return SC_SUCCESS;
}

static uint8_t operation(const struct request *r)
{
	return r->sqe.cdw10.b[0];
}

uint16_t fdp_receive_prepare(struct request *r)
{
	/* NUMD is 0's based. */
	uint64_t length = ((uint64_t)le32_to_cpu(r->sqe.cdw11) + 1) * 4;

	if (operation(r) == MO_NOTHING)
		return SC_SUCCESS;
	if (operation(r) != MO_UNITS)
		return request_invalid(r, cdw10);
	if (length > MDTS_BYTES)
		return request_invalid(r, cdw11);
	r->length = (uint32_t)length;
	return check_namespace(r);
}

/* Bytes behind the last descriptor are zeroes. */
uint16_t fdp_receive_execute(struct request *r)
{
	const struct subsys *s = r->conn->subsys;
	uint32_t shift = 12u - s->config.lba_shift, i;
	struct {
		struct unit_status head;
		struct unit_descriptor unit[VS_HANDLES];
	} status = { .head.count = cpu_to_le16((uint16_t)handles(r)) };
	size_t size = sizeof(status.head) + handles(r) * sizeof(*status.unit);

	if (operation(r) == MO_NOTHING)
		return SC_SUCCESS;
	for (i = 0; i < handles(r); i++) {
		uint64_t left = vs_unit_left(s->config.device.ssd, i);

		status.unit[i].pid = cpu_to_le16((uint16_t)i);
		status.unit[i].ruhid = cpu_to_le16((uint16_t)i);
		status.unit[i].ruamw = cpu_to_le64(left << shift);
	}
	memset(r->data, 0, r->length);
	memcpy(r->data, &status, size < r->length ? size : r->length);
	return SC_SUCCESS;
}

/* Number of placement identifiers; MOS is 0's based. */
static uint32_t identifiers(const struct request *r)
{
	return (le32_to_cpu(r->sqe.cdw10) >> 16) + 1;
}

uint16_t fdp_send_prepare(struct request *r)
{
	if (operation(r) == MO_NOTHING)
		return SC_SUCCESS;
	if (operation(r) != MO_UNITS || identifiers(r) > handles(r))
		return request_invalid(r, cdw10);
	r->length = identifiers(r) * (uint32_t)sizeof(struct le16);
	return check_namespace(r);
}

/* Reclaim Unit Handle Update: all or none. */
uint16_t fdp_send_execute(struct request *r)
{
	struct vs_ssd *ssd = r->conn->subsys->config.device.ssd;
	const struct le16 *pid = (const void *)r->data;
	uint32_t i, n = identifiers(r);

	if (operation(r) == MO_NOTHING)
		return SC_SUCCESS;
	for (i = 0; i < n; i++) {
		if (le16_to_cpu(pid[i]) >= handles(r))
			return SC_INVALID_FIELD | SC_DNR;
	}
	for (i = 0; i < n; i++) {
		uint32_t handle = le16_to_cpu(pid[i]);

		if (vs_unit_left(ssd, handle) < vs_unit_blocks(ssd))
			record(r, FDP_UNIT_NOT_FULL, handle, handle,
			       FDP_EVENT_PIV | FDP_EVENT_NSIDV |
			       FDP_EVENT_LV);
		vs_unit_next(ssd, handle);
	}
	return SC_SUCCESS;
}

/* Feature 1Dh is of an endurance group, and fixed as long as there are namespaces. */
uint16_t fdp_mode_get(struct request *r)
{
	if ((le32_to_cpu(r->sqe.cdw11) & 0xffff) != FDP_ENDURANCE_GROUP)
		return request_invalid(r, cdw11);
	r->dw0 = FDP_ENABLED;
	return SC_SUCCESS;
}

static uint32_t event_handle(const struct request *r)
{
	return le32_to_cpu(r->sqe.cdw11) & 0xffff;
}

static uint32_t event_count(const struct request *r)
{
	return r->sqe.cdw11.b[2];
}

/* Feature 1Eh: a list of types, or of types with their attributes. */
uint16_t fdp_events_prepare(struct request *r, bool set)
{
	uint16_t status = check_namespace(r);

	if (status)
		return status;
	if (event_handle(r) >= handles(r) || !event_count(r))
		return request_invalid(r, cdw11);
	r->length = event_count(r) *
		    (set ? 1 : (uint32_t)sizeof(struct event_descriptor));
	return SC_SUCCESS;
}

uint16_t fdp_events_get(struct request *r)
{
	uint32_t enabled = r->conn->subsys->fdp.enabled[event_handle(r)], i;
	struct event_descriptor *d = (void *)r->data;

	memset(r->data, 0, r->length);
	for (i = 0; i < EVENT_TYPES && i < event_count(r); i++)
		d[i] = (struct event_descriptor){
			event_types[i], enabled >> event_types[i] & 1,
		};
	r->dw0 = EVENT_TYPES;
	return SC_SUCCESS;
}

uint16_t fdp_events_set(struct request *r)
{
	uint32_t *enabled = &r->conn->subsys->fdp.enabled[event_handle(r)];
	uint32_t chosen = 0, i, k;

	for (i = 0; i < event_count(r); i++) {
		for (k = 0; k < EVENT_TYPES && event_types[k] != r->data[i];
		     k++)
			;
		if (k == EVENT_TYPES)
			return SC_INVALID_FIELD | SC_DNR;
		chosen |= 1u << event_types[k];
	}
	if (le32_to_cpu(r->sqe.cdw12) & EVENTS_ENABLE)
		*enabled |= chosen;
	else
		*enabled &= ~chosen;
	return SC_SUCCESS;
}
