// SPDX-License-Identifier: Apache-2.0
/* The vendor feature C0h: CDW11 is a tag, CDW12 its weight. */
#include "weight.h"

#include "command.h"
#include "conn.h"
#include "ctrl.h"

/**
 * weight_get - Get Features of a tag's weight
 * @r: the command
 *
 * Return: the status; Invalid Field for a tag above the maximum.
 */
uint16_t weight_get(struct request *r)
{
	struct subsys *s = r->conn->subsys;
	uint32_t tag = le32_to_cpu(r->sqe.cdw11);

	if (tag > s->tags.max)
		return request_invalid(r, cdw11);
	r->dw0 = vs_get_weight(s->config.device.ssd, tag);
	return SC_SUCCESS;
}

/**
 * weight_set - Set Features of a tag's weight
 * @r: the command
 *
 * Return: the status; Invalid Field for a tag or a weight above the maximum, Feature Not
 * Changeable when the SSD has state for as many tags as it can.
 */
uint16_t weight_set(struct request *r)
{
	struct subsys *s = r->conn->subsys;
	uint32_t tag = le32_to_cpu(r->sqe.cdw11);
	uint32_t weight = le32_to_cpu(r->sqe.cdw12);

	if (tag > s->tags.max)
		return request_invalid(r, cdw11);
	if (weight > VS_WEIGHT_MAX)
		return request_invalid(r, cdw12);
	if (vs_set_weight(s->config.device.ssd, tag, weight) != VS_OK)
		return SC_FEATURE_NOT_CHANGEABLE | SC_DNR;
	/* Hosts find in log page C1h which tags have a weight, used or not. */
	if (weight)
		tags_get(&s->tags, tag);
	return SC_SUCCESS;
}
