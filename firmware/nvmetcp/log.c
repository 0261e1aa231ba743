// SPDX-License-Identifier: Apache-2.0
/* Get Log Page: the pages, and the requested part of one. */
#include "log.h"

#include <string.h>

#include "command.h"
#include "conn.h"
#include "ctrl.h"
#include "identity.h"

#define CDW10_RAE (1u << 15)
/* Log Specific Parameter of page 23h: events for the host */
#define CDW10_HOST_EVENTS (1u << 8)

/**
 * log_put - copy the part of a piece that is inside of the window
 * @w: the window
 * @at: offset of the piece in the page
 * @data: the piece
 * @n: length of the piece
 */
void log_put(struct log_window *w, uint64_t at, const void *data, size_t n)
{
	uint64_t end = w->from + w->length;
	uint64_t first = at > w->from ? at : w->from;
	uint64_t last = at + n < end ? at + n : end;

	if (first < last)
		memcpy(w->out + (first - w->from),
		       (const uint8_t *)data + (first - at), last - first);
}

static void firmware_slot(struct log_window *w)
{
	struct log_firmware_slot page = { .active = 1 };

	memcpy(page.revision[0], FIRMWARE_REVISION, sizeof(page.revision[0]));
	log_put(w, 0, &page, sizeof(page));
}

static void changed_namespaces(struct ctrl *k, struct log_window *w)
{
	struct log_changed_namespaces page = { 0 };
	uint32_t nsid;

	for (nsid = 1; k->changed && nsid <= k->subsys->config.namespaces;
	     nsid++)
		page.nsid[nsid - 1] = cpu_to_le32(nsid);
	log_put(w, 0, &page, sizeof(page));
}

static void effects_of(const struct command_set *set, struct le32 *effects)
{
	size_t i;

	for (i = 0; i < set->count; i++)
		effects[set->commands[i].opcode] =
			cpu_to_le32(set->commands[i].effects);
}

static void effects(const struct subsys *s, struct log_window *w)
{
	struct log_effects page = { 0 };

	effects_of(&admin_commands, page.admin);
	effects_of(io_commands(s), page.io);
	log_put(w, 0, &page, sizeof(page));
}

static uint64_t offset_of(const struct request *r)
{
	return (uint64_t)le32_to_cpu(r->sqe.cdw13) << 32 |
	       le32_to_cpu(r->sqe.cdw12);
}

static bool host_events(const struct request *r)
{
	return le32_to_cpu(r->sqe.cdw10) & CDW10_HOST_EVENTS;
}

/* Size of a page in bytes; 0: this controller does not have the page. */
static uint64_t page_size(const struct request *r, uint8_t lid)
{
	const struct ctrl *k = r->conn->ctrl;

	if (k->discovery)
		return lid == LOG_DISCOVERY ? LOG_DISCOVERY_BYTES : 0;
	switch (lid) {
	case LOG_ERROR:
		return ERROR_LOG_ENTRIES * sizeof(struct log_error_entry);
	case LOG_SMART:
		return sizeof(struct log_smart);
	case LOG_FIRMWARE_SLOT:
		return sizeof(struct log_firmware_slot);
	case LOG_CHANGED_NAMESPACES:
		return sizeof(struct log_changed_namespaces);
	case LOG_EFFECTS:
		return sizeof(struct log_effects);
	case LOG_VCACHE:
		/* Hosts detect tag support by this page. */
		return k->subsys->config.device.tagged ?
		       sizeof(struct log_vcache) : 0;
	case LOG_VCACHE_TAGS:
		return log_vcache_tags_size(k->subsys);
	case LOG_VCACHE_WRITES:
		return sizeof(struct log_writes);
	case LOG_VCACHE_ERASES:
		return sizeof(struct log_erases);
	default:
		return fdp_log_size(k->subsys, lid, host_events(r));
	}
}

/* Log pages of an endurance group, whose number is in CDW11. */
static bool is_of_group(uint8_t lid)
{
	return lid == LOG_ENDURANCE_GROUP || (lid >= LOG_FDP_CONFIGURATIONS &&
					      lid <= LOG_FDP_EVENTS);
}

uint16_t log_prepare(struct request *r)
{
	uint32_t cdw10 = le32_to_cpu(r->sqe.cdw10);
	/* NUMD is 0's based; its upper half is in CDW11. */
	uint64_t numd = ((uint64_t)le16_to_cpu((struct le16){{
				r->sqe.cdw11.b[0], r->sqe.cdw11.b[1] }}) << 16 |
			 cdw10 >> 16) + 1;
	uint64_t size = page_size(r, (uint8_t)cdw10);

	if (!size)
		return request_refuse(r, SC_INVALID_LOG_PAGE,
				      offsetof(struct sqe, cdw10));
	if (is_of_group((uint8_t)cdw10) &&
	    le32_to_cpu(r->sqe.cdw11) >> 16 != FDP_ENDURANCE_GROUP)
		return request_invalid(r, cdw11);
	if (numd * 4 > MDTS_BYTES)
		return request_invalid(r, cdw10);
	/* LPO must be a multiple of 4, and not behind the end. */
	if (offset_of(r) % 4 || offset_of(r) > size)
		return request_invalid(r, cdw12);
	r->length = (uint32_t)numd * 4;
	return SC_SUCCESS;
}

uint16_t log_execute(struct request *r)
{
	struct ctrl *k = r->conn->ctrl;
	uint32_t cdw10 = le32_to_cpu(r->sqe.cdw10);
	uint8_t lid = (uint8_t)cdw10;
	struct log_window w = { r->data, offset_of(r), r->length };

	memset(r->data, 0, r->length);
	switch (lid) {
	case LOG_ERROR:
		log_errors(k, &w);
		break;
	case LOG_SMART:
		log_smart(k->subsys, &w);
		break;
	case LOG_FIRMWARE_SLOT:
		firmware_slot(&w);
		break;
	case LOG_CHANGED_NAMESPACES:
		changed_namespaces(k, &w);
		break;
	case LOG_EFFECTS:
		effects(k->subsys, &w);
		break;
	case LOG_DISCOVERY:
		log_discovery(r->conn, &w);
		break;
	case LOG_VCACHE:
		log_vcache(k->subsys, &w);
		break;
	case LOG_VCACHE_TAGS:
		log_vcache_tags(k->subsys, &w);
		break;
	case LOG_VCACHE_WRITES:
		log_vcache_writes(k->subsys, &w);
		break;
	case LOG_VCACHE_ERASES:
		log_vcache_erases(k->subsys, &w);
		break;
	default:
		fdp_log(k->subsys, lid, host_events(r), &w);
	}
	/* Reading the list clears it, unless Retain Asynchronous Event is set. */
	if (lid == LOG_CHANGED_NAMESPACES && !(cdw10 & CDW10_RAE))
		k->changed = false;
	return SC_SUCCESS;
}
