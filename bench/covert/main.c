// SPDX-License-Identifier: Apache-2.0
/*
 * Two VMs on one SSD, in virtual time, which may not communicate:
 * covert SYSTEM SYMBOL_US BLOCKS SYNC SYMBOLS SEED.
 *
 * In each symbol of SYMBOL_US microseconds the sender transmits a random bit. For a 1 it
 * writes BLOCKS blocks, again and again, with an fsync after each if SYNC is 1; for
 * a 0 it does nothing. The receiver writes one block with an fsync, again and again, and
 * measures how long that takes. Prints for each symbol the bit, and the mean and the
 * longest time in ns of the receiver's requests that began in it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../firmware/host/drive.h"
#include "../../firmware/nand/nand.h"

#define SENDER 1u
#define RECEIVER 2u
#define VMS 3u
#define BLOCKS_OF_A_BANK 192u
#define MOST_BLOCKS 256u
/* Time between two requests of a VM, ns. */
#define THINK 20000u

enum system { BARE, FUA, PLP, TAGGED, WEIGHTED, LANES, SYSTEMS };

static const char *const names[SYSTEMS] = {
	"bare", "fua", "plp", "tagged", "weighted", "lanes",
};

struct vm {
	uint64_t first, blocks, next;
	vs_time at;
};

struct run {
	struct vs_ssd *ssd;
	enum system system;
	uint64_t seed, symbol;
	uint32_t burst;
	bool sync;
	struct vm vm[VMS];
};

static void fail(const char *what)
{
	fprintf(stderr, "covert: %s\n", what);
	exit(1);
}

/* xorshift64* */
static uint64_t next_random(struct run *r)
{
	r->seed ^= r->seed >> 12;
	r->seed ^= r->seed << 25;
	r->seed ^= r->seed >> 27;
	return r->seed * 0x2545f4914f6cdd1dull >> 33;
}

static vs_time check(struct vs_result r)
{
	if (r.status != VS_OK)
		fail("a command failed");
	return r.done;
}

/* Data that its VM does not sync stays with the host if the system writes with FUA. */
static vs_time write_blocks(struct run *r, uint32_t tag, uint32_t count,
			    bool sync, vs_time now)
{
	static const uint8_t data[MOST_BLOCKS * VS_BLOCK];
	struct vm *vm = &r->vm[tag];
	bool fua = r->system == FUA && sync;
	uint32_t host = r->system >= TAGGED ? tag : VS_TAG_HOST;

	if (vm->next + count > vm->blocks)
		vm->next = 0;
	now = check(vs_write(r->ssd, now, host, vm->first + vm->next, count,
			     data, fua));
	vm->next += count;
	return now;
}

static vs_time sync_blocks(struct run *r, uint32_t tag, vs_time now)
{
	switch (r->system) {
	case BARE:
		return check(vs_flush(r->ssd, now, 0, vs_blocks(r->ssd)));
	case TAGGED:
	case WEIGHTED:
	case LANES:
		return check(vs_flush_tag(r->ssd, now, tag));
	default:
		return now;
	}
}

/* Write and fsync; return when that is complete. */
static vs_time request(struct run *r, uint32_t tag, uint32_t count, bool sync)
{
	vs_time now = r->vm[tag].at;
	vs_time done = write_blocks(r, tag, count, sync, now);
	vs_time synced = sync ? sync_blocks(r, tag, now) : done;

	/* The fsync is issued at once: commands come in the order of time. */
	return synced > done ? synced : done;
}

static void isolate(struct run *r, uint32_t tag)
{
	if (r->system == LANES &&
	    vs_set_lane(r->ssd, tag, tag - SENDER, true) != VS_OK)
		fail("a lane cannot be set");
	if (r->system == WEIGHTED &&
	    vs_set_weight(r->ssd, tag, VS_WEIGHT_DEFAULT) != VS_OK)
		fail("a weight cannot be set");
}

/* Return: when the drive is idle. */
static vs_time open_ssd(struct run *r)
{
	struct vs_config c = drive_tlc.config;
	struct nand_config n = { .timing = *drive_tlc.timing, .no_data = true };
	struct vs_result formatted;
	struct nand *nand;
	vs_time idle;
	uint32_t tag;

	c.geometry.blocks = BLOCKS_OF_A_BANK;
	if (r->system == LANES)
		c.lanes = 2;
	n.geometry = c.geometry;
	nand = nand_open(&n);
	if (!nand)
		fail("no memory");
	formatted = vs_format(&r->ssd, malloc(vs_size_needed(&c)), &c,
			      &nand_ops, nand, 0);
	if (formatted.status != VS_OK)
		fail("the drive cannot be formatted");
	idle = formatted.done + 1000000000;
	for (tag = SENDER; tag < VMS; tag++) {
		r->vm[tag] = (struct vm){
			.blocks = vs_blocks(r->ssd) / 4,
			.first = vs_blocks(r->ssd) / 4 * tag,
			.at = idle,
		};
		isolate(r, tag);
	}
	return idle;
}

/**
 * struct symbol - what the receiver saw
 * @n: requests that began in it
 * @sum: of their times, ns
 * @longest: of them
 */
struct symbol {
	uint64_t n, sum, longest;
};

static void print_symbol(int bit, const struct symbol *s)
{
	printf("%d %" PRIu64 " %" PRIu64 "\n", bit,
	       s->n ? s->sum / s->n : 0, s->longest);
}

static void receive(struct run *r, struct symbol *s)
{
	struct vm *vm = &r->vm[RECEIVER];
	vs_time done = request(r, RECEIVER, 1, true);
	uint64_t took = done - vm->at;

	s->n++;
	s->sum += took;
	if (took > s->longest)
		s->longest = took;
	vm->at = done + THINK;
}

static void transmit(struct run *r, int bit, vs_time end)
{
	struct vm *sender = &r->vm[SENDER], *receiver = &r->vm[RECEIVER];
	vs_time start = end - r->symbol;
	struct symbol s = { 0 };

	if (sender->at < start)
		sender->at = start;
	for (;;) {
		bool sends = bit && sender->at < end &&
			     (sender->at <= receiver->at || receiver->at >= end);

		if (sends)
			sender->at = request(r, SENDER, r->burst, r->sync) + THINK;
		else if (receiver->at < end)
			receive(r, &s);
		else
			break;
	}
	print_symbol(bit, &s);
}

static enum system find_system(const char *name)
{
	unsigned int i;

	for (i = 0; i < SYSTEMS; i++) {
		if (!strcmp(name, names[i]))
			return (enum system)i;
	}
	fail("SYSTEM must be bare, fua, plp, tagged, weighted or lanes");
	return BARE;
}

int main(int argc, char **argv)
{
	struct run r = { 0 };
	uint64_t symbols, i;
	vs_time start;

	if (argc != 7)
		fail("usage: covert SYSTEM SYMBOL_US BLOCKS SYNC SYMBOLS SEED");
	r.system = find_system(argv[1]);
	r.symbol = strtoull(argv[2], NULL, 0) * 1000;
	r.burst = (uint32_t)atoi(argv[3]);
	r.sync = atoi(argv[4]);
	symbols = strtoull(argv[5], NULL, 0);
	r.seed = strtoull(argv[6], NULL, 0) * 2 + 1;
	if (!r.symbol || !r.burst || r.burst > MOST_BLOCKS)
		fail("SYMBOL_US and BLOCKS must be positive, BLOCKS at most 256");
	start = open_ssd(&r);
	for (i = 1; i <= symbols; i++)
		transmit(&r, next_random(&r) & 1, start + i * r.symbol);
	return 0;
}
