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
 * subsys_namespace_id - the UUID and NGUID of a namespace
 * @s: the subsystem
 * @nsid: the namespace
 * @id: the identifier
 *
 * Linux ignores a namespace whose identifier it has seen in another subsystem,
 * so it is made of the subsystem's name.
 */
void subsys_namespace_id(const struct subsys *s, uint32_t nsid,
			 uint8_t id[16])
{
	identity_uuid(s->nqn, nsid, id);
}

/* Random, as a counter would have to be durable. */
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
 * subsys_init - make a subsystem
 * @s: it
 * @config: how it is to be; copied, with the name
 * @now: the time
 *
 * Return: were there memory and randomness?
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
 * subsys_destroy - free a subsystem and all that is connected to it
 * @s: it
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
 * subsys_tick - look at all time limits
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
 * subsys_complete_due - answer the commands whose time has come
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
 * subsys_clock - the time at which the device begins what it is given now
 * @s: the subsystem
 *
 * Whatever asks the device for something has to use it: the device's time must
 * not go back.
 *
 * Return: the time.
 */
vs_time subsys_clock(const struct subsys *s)
{
	return s->held_until > s->now ? s->held_until : s->now;
}

/**
 * subsys_hold - a flush was begun; hold back what comes, if flushes do that
 * @s: the subsystem
 * @until: when it is done
 */
void subsys_hold(struct subsys *s, vs_time until)
{
	/* Without timing it is done already. */
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
	/* NSATTR of each namespace says so as well. */
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
 * subsys_status - what the device says, as a status of the NVM command set
 * @s: the subsystem
 * @status: what the device said
 *
 * Return: the status.
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
		/* Ranges are checked before the device is asked. */
		return SC_INTERNAL_ERROR | SC_DNR;
	}
}

/**
 * subsys_flush_all - make all data of all namespaces durable
 * @s: the subsystem
 * @done: raised to when that is so
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
