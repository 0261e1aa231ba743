/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A host with VMs on one SSD, in virtual time: a closed loop of discrete
 * events. Everything follows from the settings and the seed.
 */
#ifndef VCACHE_BENCH_SIM_H
#define VCACHE_BENCH_SIM_H

#include "../../firmware/core/ssd.h"
#include "../../firmware/nand/nand.h"

#define MAX_VMS 3
#define OWNERS (MAX_VMS + 1)	/* 0: the host */
#define NEVER 0

/* The SSD and its link; the same for all runs of a process. */
struct hardware {
	uint32_t blocks;	/* per bank */
	uint32_t buffer_blocks;
	uint32_t file_blocks;	/* of a VM, written by its load */
	uint32_t journal_blocks;
	uint32_t link_mb_s;
	uint32_t command_us;	/* of the link, per command */
	uint32_t software_us;	/* guest, virtio and host, per request */
	uint32_t queue_depth;	/* of the link */
	uint32_t vms;
	enum vs_personality personality;
};

enum load_kind {
	LOAD_RANDOM,		/* 4 KiB random writes, fsync every k */
	LOAD_VARMAIL,
	LOAD_FILESERVER,
	LOAD_TPCC,
	LOAD_NONE,
};

/* One run. */
struct scenario {
	enum load_kind load[MAX_VMS];
	uint32_t every[MAX_VMS];	/* writes between fsyncs, or NEVER */
	bool hold;	/* a FLUSH delays all later commands */
	bool tags;	/* flushes carry their tag */
	bool namespaces;	/* each VM and the host have one, and flush it */
	bool write_through;	/* the write buffer is disabled */
	uint32_t warm_ms, run_ms, sample_ms;
	uint64_t seed;
};

enum request_kind { REQ_WRITE, REQ_READ, REQ_FLUSH };

struct request {
	enum request_kind kind;
	uint32_t owner;
	uint64_t block;
	uint32_t count;
	void (*done)(struct request *request);
	void *who;
	vs_time sent;
	struct request *next;
};

/* Counters of flushes in the measured time. */
struct flush_sum {
	uint64_t count, ns, max_ns;
	uint64_t entries[OWNERS];	/* by owner of the data */
	uint64_t map_pages, log_pages;
};

struct figures {
	uint64_t written[OWNERS];	/* blocks of the load, not journals */
	uint64_t operations[OWNERS];
	uint64_t fsyncs[OWNERS], fsync_ns[OWNERS];
	struct flush_sum flush[OWNERS];	/* by who requested it */
	struct vs_stats before, after;
	vs_time from, to;
};

struct sample {
	uint32_t buffered[OWNERS];
};

struct event {
	vs_time at;
	uint64_t order;
	void (*run)(void *who);
	void *who;
};

struct sim {
	struct hardware hw;
	struct scenario sc;
	struct vs_ssd *ssd;
	struct nand *nand;
	void *memory;
	vs_time now;
	uint64_t random;
	struct figures fig;
	bool measuring;
	struct sample *sample;
	size_t samples;

	struct event *event;
	size_t events, event_room;
	uint64_t order;

	struct request *first, *last;	/* waiting for the link */
	uint32_t in_flight;
	bool link_busy, held;
	uint32_t page_blocks;
};

extern struct sim sim;

/* events.c */
void at(vs_time when, void (*run)(void *who), void *who);
void run_until(vs_time when);
uint64_t random_below(uint64_t n);
void *must(void *memory);

/* link.c */
void send(enum request_kind kind, uint32_t owner, uint64_t block,
	  uint32_t count, void (*done)(struct request *request), void *who);
/* Write all blocks of an owner, to fill the SSD, without the link. */
void put_now(uint32_t owner, uint64_t block, uint32_t count);
void power_up(void);

/* journal.c */
struct journal;
struct journal *journal_new(uint32_t owner);
/* Fsync; call @done when it is durable. */
void journal_sync(struct journal *journal, uint32_t metadata,
		  void (*done)(void *who), void *who);
/* Record a change for the next periodic commit. */
void journal_dirty(struct journal *journal, uint32_t metadata);
void journal_start(struct journal *journal);

/* load.c */
void load_start(uint32_t vm, struct journal *journal, struct journal *host);

uint64_t vm_base(uint32_t owner);

/* crc32c.c, in place of the firmware's */
uint32_t __real_vs_crc32c(uint32_t crc, const void *data, size_t len);
uint32_t __wrap_vs_crc32c(uint32_t crc, const void *data, size_t len);

#endif /* VCACHE_BENCH_SIM_H */
