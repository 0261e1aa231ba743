// SPDX-License-Identifier: Apache-2.0
/*
 * Asynchronous events (NVMe Base 1.4 §5.2). The specification forbids to report
 * an event again before the host has read its log page. That needs no code here,
 * because each event happens only once.
 */
#include <string.h>

#include "conn.h"
#include "ctrl.h"
#include "log.h"

/* The completion's dword 0 for an event. */
struct event_kind {
	uint8_t type;
	uint8_t information;
	uint8_t lid;
	uint32_t config;	/* any of these bits enables it; 0: always */
};

static const struct event_kind kinds[EVENTS] = {
	[EVENT_PERSISTENT_INTERNAL_ERROR] = {
		.type = 0, .information = 3, .lid = LOG_ERROR,
	},
	/* "NVM subsystem reliability"; bit 3 of the log page enables it. */
	[EVENT_SMART_READ_ONLY] = {
		.type = 1, .information = 0, .lid = LOG_SMART,
		.config = SMART_WARNING_READ_ONLY,
	},
	[EVENT_NAMESPACE_ATTRIBUTE] = {
		.type = 2, .information = 0, .lid = LOG_CHANGED_NAMESPACES,
		.config = AEC_NAMESPACE_ATTRIBUTE,
	},
};

static bool enabled(const struct ctrl *k, enum event event)
{
	uint32_t config = kinds[event].config;

	return !config || k->event_config & config;
}

/* Report pending events, as far as there are parked commands. */
static void tell(struct ctrl *k)
{
	unsigned int event;

	for (event = 0; event < EVENTS && k->aers; event++) {
		const struct event_kind *kind = &kinds[event];
		struct request *r;

		if (!(k->events & 1u << event))
			continue;
		k->events &= ~(1u << event);
		r = k->aer[0];
		k->aers--;
		memmove(k->aer, k->aer + 1, k->aers * sizeof(k->aer[0]));
		r->dw0 = kind->type | kind->information << 8 |
			 (uint32_t)kind->lid << 16;
		request_finish(r, SC_SUCCESS);
	}
}

/**
 * aer_park - park an Asynchronous Event Request until an event occurs
 * @k: the controller, which has less than AER_LIMIT parked commands
 * @r: the command
 */
void aer_park(struct ctrl *k, struct request *r)
{
	struct conn *c = r->conn;

	/* The command has left the queue, although it may never complete. */
	c->sqhd = (uint16_t)((c->sqhd + 1) % c->entries);
	r->state = REQUEST_PARKED;
	r->parked = true;
	k->aer[k->aers++] = r;
	tell(k);
}

/**
 * aer_abort - abort an Asynchronous Event Request
 * @k: the controller
 * @cid: the command
 *
 * Return: true if the command was found.
 */
bool aer_abort(struct ctrl *k, uint16_t cid)
{
	struct request *r;
	unsigned int i;

	for (i = 0; i < k->aers; i++) {
		r = k->aer[i];
		if (request_cid(r) != cid)
			continue;
		k->aers--;
		memmove(&k->aer[i], &k->aer[i + 1],
			(k->aers - i) * sizeof(k->aer[0]));
		request_finish(r, SC_COMMAND_ABORT_REQUESTED);
		return true;
	}
	return false;
}

/**
 * aer_raise_all - report an event to all controllers
 * @s: the subsystem
 * @event: the event
 */
void aer_raise_all(struct subsys *s, enum event event)
{
	struct ctrl *k;

	LIST_FOREACH(k, &s->ctrls, link) {
		if (k->discovery)
			continue;
		if (event == EVENT_NAMESPACE_ATTRIBUTE)
			k->changed = true;
		if (!enabled(k, event))
			continue;
		k->events |= 1u << event;
		tell(k);
	}
}
