// SPDX-License-Identifier: Apache-2.0
/*
 * The link to the SSD, and the SSD.
 *
 * The link transfers requests in the order of submission, each with its data, before
 * the firmware gets them. Several can be in flight. On a drive that delays commands
 * after a FLUSH (the paper's HIL), no command starts until the FLUSH has completed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../firmware/host/drive.h"
#include "sim.h"

#define LARGEST 64u

static uint8_t payload[LARGEST * VS_BLOCK];

static void check(struct vs_result r)
{
	if (r.status == VS_OK)
		return;
	fprintf(stderr, "vflush: the SSD failed with status %d\n", r.status);
	exit(1);
}

static uint64_t buffered(uint32_t owner)
{
	struct vs_tag_stats t;

	return vs_get_tag_stats(sim.ssd, owner, &t) ? t.buffered : 0;
}

/* A FLUSH covers its tag, its namespace, or everything. */
static struct vs_result flush_ssd(uint32_t owner)
{
	uint64_t each = sim.hw.journal_blocks + sim.hw.file_blocks;

	if (sim.sc.tags)
		return vs_flush_tag(sim.ssd, sim.now, owner);
	if (sim.sc.namespaces)
		return vs_flush(sim.ssd, sim.now, vm_base(owner), each);
	return vs_flush(sim.ssd, sim.now, 0, vs_blocks(sim.ssd));
}

static vs_time flush(uint32_t owner)
{
	struct flush_sum *sum = &sim.fig.flush[owner];
	uint32_t slots = sim.page_blocks, i;
	uint64_t had[OWNERS];
	struct vs_stats a, b;
	struct vs_result r;

	for (i = 0; i < OWNERS; i++)
		had[i] = buffered(i);
	vs_get_stats(sim.ssd, &a);
	r = flush_ssd(owner);
	check(r);
	vs_get_stats(sim.ssd, &b);
	if (!sim.measuring)
		return r.done;
	for (i = 0; i < OWNERS; i++)
		sum->entries[i] += had[i] - buffered(i);
	sum->map_pages += (b.programmed[VS_CAUSE_MAP] -
			   a.programmed[VS_CAUSE_MAP]) / slots;
	sum->log_pages += (b.programmed[VS_CAUSE_LOG] -
			   a.programmed[VS_CAUSE_LOG]) / slots;
	return r.done;
}

static vs_time carry_out(const struct request *q)
{
	struct vs_result r;

	if (q->kind == REQ_FLUSH)
		return flush(q->owner);
	if (q->kind == REQ_READ)
		r = vs_read(sim.ssd, sim.now, q->block, q->count, payload);
	else
		r = vs_write(sim.ssd, sim.now, q->owner, q->block, q->count,
			     payload, sim.sc.write_through);
	check(r);
	return r.done;
}

static void pump(void);

static void answer(void *who)
{
	struct request *q = who;

	if (q->kind == REQ_FLUSH && sim.measuring) {
		struct flush_sum *sum = &sim.fig.flush[q->owner];
		uint64_t ns = sim.now - q->sent;

		sum->count++;
		sum->ns += ns;
		if (ns > sum->max_ns)
			sum->max_ns = ns;
	}
	q->done(q);
	free(q);
}

static void completed(void *who)
{
	struct request *q = who;

	sim.in_flight--;
	if (q->kind == REQ_FLUSH)
		sim.held = false;
	at(sim.now + sim.hw.software_us * 500, answer, q);
	pump();
}

static void arrived(void *who)
{
	struct request *q = who;

	sim.link_busy = false;
	if (q->kind == REQ_FLUSH)
		sim.held = sim.sc.hold;
	at(carry_out(q), completed, q);
	pump();
}

/* Start the transfer of the next request. */
static void pump(void)
{
	struct request *q = sim.first;
	uint64_t ns;

	if (!q || sim.link_busy || sim.held ||
	    sim.in_flight == sim.hw.queue_depth)
		return;
	sim.first = q->next;
	sim.in_flight++;
	sim.link_busy = true;
	ns = (uint64_t)q->count * VS_BLOCK * 1000 / sim.hw.link_mb_s +
	     sim.hw.command_us * 1000;
	at(sim.now + ns, arrived, q);
}

static void queued(void *who)
{
	struct request *q = who;

	if (sim.first)
		sim.last->next = q;
	else
		sim.first = q;
	sim.last = q;
	pump();
}

void send(enum request_kind kind, uint32_t owner, uint64_t block,
	  uint32_t count, void (*done)(struct request *request), void *who)
{
	struct request *q = must(calloc(1, sizeof(*q)));

	if (count > LARGEST || block + count > vs_blocks(sim.ssd)) {
		fprintf(stderr, "vflush: a request beyond the SSD\n");
		exit(1);
	}
	*q = (struct request){ kind, owner, block, count, done, who, sim.now,
			       NULL };
	at(sim.now + sim.hw.software_us * 500, queued, q);
}

void put_now(uint32_t owner, uint64_t block, uint32_t count)
{
	struct vs_result r = vs_write(sim.ssd, sim.now, owner, block, count,
				      payload, false);

	check(r);
	sim.now = r.done;
}

void power_up(void)
{
	struct vs_config c = drive_jasmine.config;
	struct nand_config n = {
		.timing = *drive_jasmine.timing, .seed = 1, .no_data = true,
	};
	struct vs_result r;

	c.geometry.blocks = sim.hw.blocks;
	c.buffer_blocks = sim.hw.buffer_blocks;
	c.personality = sim.hw.personality;
	n.geometry = c.geometry;
	sim.page_blocks = c.geometry.page_size / VS_BLOCK;
	sim.nand = must(nand_open(&n));
	if (!vs_size_needed(&c)) {
		fprintf(stderr, "vflush: no such SSD can be made\n");
		exit(1);
	}
	sim.memory = must(malloc(vs_size_needed(&c)));
	r = vs_format(&sim.ssd, sim.memory, &c, &nand_ops, sim.nand, 0);
	check(r);
	sim.now = r.done;
}
