// SPDX-License-Identifier: Apache-2.0
#include "ctrl.h"

#include <stdlib.h>

#include "conn.h"
#include "request.h"

#define NS_PER_MS 1000000ull
/* CAP.TO, in units of 500 ms: becoming ready takes no time here. */
#define CAP_TO 1ull
/* The CNTLIDs above are reserved (Fabrics 1.1 §3.3). */
#define CNTLID_MAX 0xffefu

static uint16_t free_cntlid(struct subsys *s)
{
	do {
		s->next_cntlid = s->next_cntlid % CNTLID_MAX + 1;
	} while (ctrl_find(s, s->next_cntlid));
	return s->next_cntlid;
}

/**
 * ctrl_new - create a controller
 * @s: the subsystem
 * @admin: its admin queue
 * @discovery: it is a discovery controller
 *
 * Return: the controller; NULL if there are too many or memory is exhausted.
 */
struct ctrl *ctrl_new(struct subsys *s, struct conn *admin, bool discovery)
{
	struct ctrl *k;

	if (s->ctrl_count >= CONTROLLERS)
		return NULL;
	k = calloc(1, sizeof(*k));
	if (!k)
		return NULL;
	k->subsys = s;
	k->discovery = discovery;
	k->cntlid = free_cntlid(s);
	k->io_queues = IO_QUEUES;
	k->queues[0] = admin;
	/* All events are enabled by default. */
	k->event_config = AEC_SMART | AEC_NAMESPACE_ATTRIBUTE;
	settings_reset(&k->settings);
	LIST_INSERT_HEAD(&s->ctrls, k, link);
	s->ctrl_count++;
	return k;
}

struct ctrl *ctrl_find(struct subsys *s, uint16_t cntlid)
{
	struct ctrl *k;

	LIST_FOREACH(k, &s->ctrls, link) {
		if (k->cntlid == cntlid)
			return k;
	}
	return NULL;
}

static void close_io_queues(struct ctrl *k)
{
	unsigned int i;

	for (i = 1; i <= IO_QUEUES; i++) {
		if (k->queues[i])
			conn_close(k->queues[i]);
	}
}

/**
 * ctrl_detach - remove a connection from its controller
 * @c: the connection
 *
 * If it is the admin queue, the controller is freed.
 */
void ctrl_detach(struct conn *c)
{
	struct ctrl *k = c->ctrl;

	if (!k)
		return;
	c->ctrl = NULL;
	k->queues[c->qid] = NULL;
	if (c->qid)
		return;
	close_io_queues(k);
	LIST_REMOVE(k, link);
	k->subsys->ctrl_count--;
	free(k);
}

/**
 * ctrl_keep_alive - restart the Keep Alive Timeout
 * @k: the controller
 */
void ctrl_keep_alive(struct ctrl *k)
{
	k->keep_alive = k->subsys->now + k->kato * NS_PER_MS;
}

/**
 * ctrl_set_kato - set the Keep Alive Timeout
 * @k: the controller
 * @kato: timeout in ms, which is rounded up to the granularity (KAS)
 */
void ctrl_set_kato(struct ctrl *k, uint32_t kato)
{
	k->kato = kato % KAS_MS && kato <= UINT32_MAX - KAS_MS ?
		  kato + KAS_MS - kato % KAS_MS : kato;
	ctrl_keep_alive(k);
}

/**
 * ctrl_tick - check the Keep Alive Timeout
 * @k: the controller; it may be freed
 *
 * After the timeout all connections of the controller are closed (Base 1.4
 * §7.11).
 */
void ctrl_tick(struct ctrl *k)
{
	if (k->kato && k->subsys->now >= k->keep_alive)
		conn_close(k->queues[0]);
}

uint64_t ctrl_cap(void)
{
	return (QUEUE_ENTRIES - 1) | CAP_CQR | CAP_TO << CAP_TO_SHIFT | CAP_CSS_NVM;
}

uint32_t ctrl_csts(const struct ctrl *k)
{
	uint32_t csts = 0;

	if (k->ready)
		csts |= CSTS_RDY;
	if (k->failed || k->subsys->failed)
		csts |= CSTS_CFS;
	if (k->shutdown)
		csts |= k->subsys->now >= k->shutdown_done ?
			CSTS_SHST_COMPLETE : CSTS_SHST_OCCURRING;
	return csts;
}

/* CC.SHN: make all data durable before the power goes off. */
static void shut_down(struct ctrl *k)
{
	vs_time done = 0;

	k->shutdown = true;
	if (!k->discovery && subsys_flush_all(k->subsys, &done))
		k->failed = true;
	k->shutdown_done = k->subsys->config.timing ? done : 0;
}

static void enable(struct ctrl *k, uint32_t cc)
{
	uint32_t sizes = cc & (CC_IOSQES | CC_IOCQES);

	/* A discovery controller has no I/O queues, so the sizes may be 0. */
	if (cc & (CC_CSS | CC_MPS | CC_AMS) ||
	    (sizes != CC_ENTRY_SIZES && !(k->discovery && !sizes))) {
		k->failed = true;
		return;
	}
	k->ready = true;
	k->shutdown = false;
	ctrl_keep_alive(k);
}

/* A controller reset: close the I/O queues and restore the defaults. */
static void disable(struct ctrl *k)
{
	k->ready = false;
	k->failed = false;
	k->shutdown = false;
	k->io_queues = IO_QUEUES;
	k->event_config = AEC_SMART | AEC_NAMESPACE_ATTRIBUTE;
	settings_reset(&k->settings);
	k->events = 0;
	while (k->aers)
		aer_abort(k, request_cid(k->aer[0]));
	close_io_queues(k);
}

/**
 * ctrl_write_cc - set Controller Configuration (Base 1.4 §3.1.5)
 * @k: the controller
 * @cc: the new value
 */
void ctrl_write_cc(struct ctrl *k, uint32_t cc)
{
	uint32_t old = k->cc;

	k->cc = cc;
	if (cc & CC_SHN && !(old & CC_SHN))
		shut_down(k);
	if (cc & CC_EN && !(old & CC_EN))
		enable(k, cc);
	if (!(cc & CC_EN) && old & CC_EN)
		disable(k);
}
