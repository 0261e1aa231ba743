// SPDX-License-Identifier: Apache-2.0
/* Get Features and Set Features (NVMe Base 1.4 §5.13, §5.21). */
#include <string.h>

#include "command.h"
#include "conn.h"
#include "ctrl.h"
#include "weight.h"

#define CDW10_SEL (7u << 8)
#define CDW10_SV (1u << 31)
#define CDW11_WCE (1u << 0)
/* Extended Host Identifier: 16 bytes, the only size in fabrics. */
#define CDW11_EXHID (1u << 0)

static uint8_t feature(const struct request *r)
{
	return r->sqe.cdw10.b[0];
}

static uint16_t check_feature(struct request *r)
{
	bool discovery = r->conn->ctrl->discovery;

	if (!discovery && settings_has(feature(r)))
		return SC_SUCCESS;
	switch (feature(r)) {
	case FEATURE_KEEP_ALIVE_TIMER:
		return SC_SUCCESS;
	case FEATURE_VOLATILE_WRITE_CACHE:
	case FEATURE_NUMBER_OF_QUEUES:
	case FEATURE_ASYNC_EVENT_CONFIG:
	case FEATURE_HOST_IDENTIFIER:
		if (!discovery)
			return SC_SUCCESS;
		break;
	case FEATURE_FDP_MODE:
	case FEATURE_FDP_EVENTS:
		if (!discovery && fdp_supported(r->conn->subsys))
			return SC_SUCCESS;
		break;
	case FEATURE_TAG_WEIGHT:
		if (!discovery && r->conn->subsys->config.device.tagged)
			return SC_SUCCESS;
	}
	return request_invalid(r, cdw10);
}

uint16_t features_get_prepare(struct request *r)
{
	uint16_t status = check_feature(r);

	if (status)
		return status;
	/* Only current values are supported (ONCS bit 4). */
	if (le32_to_cpu(r->sqe.cdw10) & CDW10_SEL)
		return request_invalid(r, cdw10);
	if (feature(r) == FEATURE_HOST_IDENTIFIER) {
		if (!(le32_to_cpu(r->sqe.cdw11) & CDW11_EXHID))
			return request_invalid(r, cdw11);
		r->length = sizeof(r->conn->ctrl->hostid);
	}
	if (feature(r) == FEATURE_FDP_EVENTS)
		return fdp_events_prepare(r, false);
	return SC_SUCCESS;
}

/* Number of Queues: 0's based, submission queues in the lower half. */
static uint32_t queues_dword(const struct ctrl *k)
{
	return (k->io_queues - 1u) * 0x10001u;
}

uint16_t features_get(struct request *r)
{
	const struct ctrl *k = r->conn->ctrl;

	switch (feature(r)) {
	case FEATURE_VOLATILE_WRITE_CACHE:
		r->dw0 = k->subsys->write_cache ? CDW11_WCE : 0;
		break;
	case FEATURE_NUMBER_OF_QUEUES:
		r->dw0 = queues_dword(k);
		break;
	case FEATURE_ASYNC_EVENT_CONFIG:
		r->dw0 = k->event_config;
		break;
	case FEATURE_KEEP_ALIVE_TIMER:
		r->dw0 = k->kato;
		break;
	case FEATURE_HOST_IDENTIFIER:
		memcpy(r->data, k->hostid, sizeof(k->hostid));
		break;
	case FEATURE_FDP_MODE:
		return fdp_mode_get(r);
	case FEATURE_FDP_EVENTS:
		return fdp_events_get(r);
	case FEATURE_TAG_WEIGHT:
		return weight_get(r);
	default:
		return settings_get(r);
	}
	return SC_SUCCESS;
}

uint16_t features_set_prepare(struct request *r)
{
	uint16_t status = check_feature(r);

	if (status)
		return status;
	if (le32_to_cpu(r->sqe.cdw10) & CDW10_SV)
		return request_refuse(r, SC_FEATURE_NOT_SAVEABLE,
				      offsetof(struct sqe, cdw10));
	/* Connect has set it, and it cannot change later. */
	if (feature(r) == FEATURE_HOST_IDENTIFIER) {
		r->length = sizeof(r->conn->ctrl->hostid);
		return SC_COMMAND_SEQUENCE_ERROR | SC_DNR;
	}
	/* The endurance group has namespaces. */
	if (feature(r) == FEATURE_FDP_MODE)
		return SC_COMMAND_SEQUENCE_ERROR | SC_DNR;
	if (feature(r) == FEATURE_FDP_EVENTS)
		return fdp_events_prepare(r, true);
	return SC_SUCCESS;
}

/* Without a cache, completed writes are durable, including earlier ones. */
static uint16_t set_write_cache(struct request *r, bool on)
{
	struct subsys *s = r->conn->subsys;
	uint16_t status = SC_SUCCESS;

	if (s->write_cache && !on)
		status = subsys_flush_all(s, &r->done);
	if (!status)
		s->write_cache = on;
	return status;
}

static uint16_t set_queues(struct request *r, uint32_t wanted)
{
	struct ctrl *k = r->conn->ctrl;
	uint32_t nsqr = wanted & 0xffff;
	uint32_t ncqr = wanted >> 16;
	uint32_t least = nsqr < ncqr ? nsqr : ncqr;
	unsigned int i;

	if (nsqr == 0xffff || ncqr == 0xffff)
		return request_invalid(r, cdw11);
	for (i = 1; i <= IO_QUEUES; i++) {
		if (k->queues[i])
			return SC_COMMAND_SEQUENCE_ERROR | SC_DNR;
	}
	/* Queues are pairs, so the smaller number counts. */
	k->io_queues = (uint16_t)(least < IO_QUEUES ? least + 1 : IO_QUEUES);
	r->dw0 = queues_dword(k);
	return SC_SUCCESS;
}

uint16_t features_set(struct request *r)
{
	struct ctrl *k = r->conn->ctrl;
	uint32_t value = le32_to_cpu(r->sqe.cdw11);

	switch (feature(r)) {
	case FEATURE_VOLATILE_WRITE_CACHE:
		return set_write_cache(r, value & CDW11_WCE);
	case FEATURE_NUMBER_OF_QUEUES:
		return set_queues(r, value);
	case FEATURE_ASYNC_EVENT_CONFIG:
		if (value & ~(AEC_SMART | AEC_NAMESPACE_ATTRIBUTE))
			return request_invalid(r, cdw11);
		k->event_config = value;
		return SC_SUCCESS;
	case FEATURE_FDP_EVENTS:
		return fdp_events_set(r);
	case FEATURE_TAG_WEIGHT:
		return weight_set(r);
	case FEATURE_KEEP_ALIVE_TIMER:
		ctrl_set_kato(k, value);
		return SC_SUCCESS;
	default:
		return settings_set(r);
	}
}
