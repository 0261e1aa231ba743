// SPDX-License-Identifier: Apache-2.0
#include "subsys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "conn.h"
#include "ctrl.h"
#include "identity.h"
#include "limits.h"

/**
 * subsys_namespace_id - get the UUID and NGUID of a namespace
 * @s: the subsystem
 * @nsid: the namespace
 * @id: the identifier
 *
 * Linux ignores a namespace whose identifier it has seen in another subsystem.
 * So the identifier is derived from the name of the subsystem.
 */
void subsys_namespace_id(const struct subsys *s, uint32_t nsid,
			 uint8_t id[16])
{
	identity_uuid(s->nqn, nsid, id);
}

/* Random, because a counter would have to be stored durably. */
static bool make_instance(uint32_t *instance)
{
	do {
		if (getrandom(instance, sizeof(*instance), 0) !=
		    sizeof(*instance))
			return false;
	} while (!*instance);
	return true;
}

/**
 * subsys_init - create a subsystem
 * @s: the subsystem
 * @config: its configuration, which is copied
 * @now: the current time
 *
 * Return: false if memory is exhausted or there are no random numbers.
 */
bool subsys_init(struct subsys *s, const struct subsys_config *config,
		 vs_time now)
{
	uint64_t blocks = vs_blocks(config->device.ssd);

	*s = (struct subsys){
		.config = *config,
		.namespace_blocks = blocks / config->namespaces,
		.now = now,
		.write_cache = true,
		.health.start = now,
	};
	snprintf(s->nqn, sizeof(s->nqn), "%s", config->nqn);
	s->config.nqn = s->nqn;
	snprintf(s->serial, sizeof(s->serial), "VC%016llX",
		 (unsigned long long)identity_hash(s->nqn, 0));
	LIST_INIT(&s->ctrls);
	LIST_INIT(&s->conns);
	STAILQ_INIT(&s->ready);
	if (!make_instance(&s->instance))
		return false;
	s->bounce = malloc(MDTS_BYTES + 2 * VS_BLOCK);
	s->zeroes = calloc(1, MDTS_BYTES);
	return s->bounce && s->zeroes &&
	       tags_init(&s->tags, config->device.max_tag) &&
	       heap_init(&s->pending, CONNECTIONS * CONN_SLOTS);
}

/**
 * subsys_destroy - free a subsystem and all of its connections
 * @s: the subsystem
 */
void subsys_destroy(struct subsys *s)
{
	struct conn *c;

	while ((c = LIST_FIRST(&s->conns))) {
		conn_close(c);
		conn_free(c);
	}
	heap_destroy(&s->pending);
	tags_destroy(&s->tags);
	free(s->bounce);
	free(s->zeroes);
}

/**
 * subsys_tick - check all deadlines
 * @s: the subsystem
 */
void subsys_tick(struct subsys *s)
{
	struct ctrl *k, *next;
	struct conn *c;

	for (k = LIST_FIRST(&s->ctrls); k; k = next) {
		next = LIST_NEXT(k, link);
		ctrl_tick(k);
	}
	LIST_FOREACH(c, &s->conns, link)
		conn_tick(c);
}

/**
 * subsys_complete_due - complete the commands whose time has come
 * @s: the subsystem
 */
void subsys_complete_due(struct subsys *s)
{
	struct request *r;

	while ((r = heap_first(&s->pending)) && r->done <= s->now) {
		heap_remove(&s->pending, r);
		request_due(r);
	}
}

/**
 * subsys_clock - get the time for the next command to the device
 * @s: the subsystem
 *
 * All commands to the device must use this time, because the device's time must
 * not decrease.
 *
 * Return: the time.
 */
vs_time subsys_clock(const struct subsys *s)
{
	return s->held_until > s->now ? s->held_until : s->now;
}

/**
 * subsys_hold - delay later commands until a flush completes
 * @s: the subsystem
 * @until: time at which the flush completes
 *
 * This does nothing unless flushes are exclusive.
 */
void subsys_hold(struct subsys *s, vs_time until)
{
	/* Without timing, the flush is already complete. */
	if (s->config.exclusive_flush && s->config.timing &&
	    until > s->held_until)
		s->held_until = until;
}

static void note_read_only(struct subsys *s)
{
	if (s->read_only)
		return;
	s->read_only = true;
	aer_raise_all(s, EVENT_SMART_READ_ONLY);
	/* NSATTR of each namespace changes as well. */
	aer_raise_all(s, EVENT_NAMESPACE_ATTRIBUTE);
}

static void note_failed(struct subsys *s)
{
	if (s->failed)
		return;
	s->failed = true;
	aer_raise_all(s, EVENT_PERSISTENT_INTERNAL_ERROR);
}

/**
 * subsys_status - convert a status of the device
 * @s: the subsystem
 * @status: status of the device
 *
 * Return: the NVMe status.
 */
uint16_t subsys_status(struct subsys *s, enum vs_status status)
{
	switch (status) {
	case VS_OK:
		return SC_SUCCESS;
	case VS_EMEDIA:
		return SC_UNRECOVERED_READ_ERROR | SC_DNR;
	case VS_EREADONLY:
		note_read_only(s);
		return SC_NAMESPACE_WRITE_PROTECTED | SC_DNR;
	case VS_EPOWER:
		note_failed(s);
		return SC_INTERNAL_ERROR | SC_DNR;
	default:
		/* Other errors cannot occur, because ranges are checked before. */
		return SC_INTERNAL_ERROR | SC_DNR;
	}
}

/**
 * subsys_flush_all - make all data of all namespaces durable
 * @s: the subsystem
 * @done: raised to the time of completion
 *
 * Return: the status.
 */
uint16_t subsys_flush_all(struct subsys *s, vs_time *done)
{
	struct vs_ssd *ssd = s->config.device.ssd;
	struct vs_result result = vs_flush(ssd, subsys_clock(s), 0,
					    vs_blocks(ssd));

	if (result.done > *done)
		*done = result.done;
	return subsys_status(s, result.status);
}
