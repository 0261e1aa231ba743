// SPDX-License-Identifier: Apache-2.0
/*
 * The loads of the VMs. Writes go through the guest's page cache, so up to WINDOW of
 * them are in flight. An fsync waits for its own writes before the journal.
 */
#include <stdlib.h>

#include "sim.h"

#define WINDOW 32u
#define CPU_NS 100000u

/* filebench's varmail.f: 16 threads, appends of up to 16 KiB, each fsynced. */
#define VARMAIL_THREADS 16u
#define VARMAIL_APPEND 4u
#define VARMAIL_METADATA 2u
/* fileserver.f: files of 128 KiB, appends of up to 16 KiB, never an fsync. */
#define FILE_BLOCKS 32u
#define FILE_APPEND 4u
#define FILE_THREADS 16u
#define FILE_METADATA 8u
/*
 * TPC-C on InnoDB: 92 % of the transactions write a redo record and fsync it. Pages
 * of 16 KiB are written through the doublewrite buffer, 32 at a time.
 */
#define TPCC_CONNECTIONS 10u
#define TPCC_CPU_NS 1000000u
#define TPCC_READ_ONLY 8u
#define TPCC_REDO 2u
#define TPCC_DIRTIED 4u
#define TPCC_BATCH 32u
#define TPCC_LOG_BLOCKS 4096u
#define PAGE 4u

struct vm {
	uint32_t owner;
	enum load_kind load;
	uint32_t every;
	struct journal *journal, *host;
	uint32_t left;		/* writes that a round waits for */
	uint64_t log_head;
	uint32_t dirtied;
	bool cleaning;
};

/* One thread of a load, or one write of it. */
struct thread {
	struct vm *vm;
	unsigned int step;
	uint32_t left;
};

uint64_t vm_base(uint32_t owner)
{
	return (uint64_t)owner * (sim.hw.journal_blocks + sim.hw.file_blocks);
}

static uint64_t place(const struct vm *vm, uint32_t count)
{
	uint64_t n = sim.hw.file_blocks / count;

	return vm_base(vm->owner) + sim.hw.journal_blocks +
	       random_below(n) * count;
}

static void count_write(const struct request *q)
{
	if (sim.measuring)
		sim.fig.written[q->owner] += q->count;
}

static void operation(const struct vm *vm)
{
	if (sim.measuring)
		sim.fig.operations[vm->owner]++;
}

/* The host's file system updates the timestamp of the image. */
static void touch(struct vm *vm, uint32_t metadata)
{
	journal_dirty(vm->journal, metadata);
	journal_dirty(vm->host, 1);
}

/* ---- 4 KiB random writes ---- */

static void random_write(struct vm *vm);

static void random_round(void *who)
{
	struct vm *vm = who;
	uint32_t i, n = vm->every == NEVER ? WINDOW : vm->every;

	vm->left = n;
	for (i = 0; i < n; i++)
		random_write(vm);
}

static void random_done(struct request *q)
{
	struct vm *vm = q->who;

	count_write(q);
	operation(vm);
	touch(vm, 1);
	if (vm->every == NEVER)
		random_write(vm);
	else if (!--vm->left)
		journal_sync(vm->journal, 1, random_round, vm);
}

static void random_write(struct vm *vm)
{
	send(REQ_WRITE, vm->owner, place(vm, 1), 1, random_done, vm);
}

/* ---- varmail ---- */

static void varmail_step(void *who);

static void varmail_written(struct request *q)
{
	struct thread *t = q->who;

	count_write(q);
	touch(t->vm, VARMAIL_METADATA);
	journal_sync(t->vm->journal, VARMAIL_METADATA, varmail_step, t);
}

static void varmail_append(void *who)
{
	struct thread *t = who;
	uint32_t count = 1 + (uint32_t)random_below(VARMAIL_APPEND);

	send(REQ_WRITE, t->vm->owner, place(t->vm, count), count,
	     varmail_written, t);
}

static void varmail_step(void *who)
{
	struct thread *t = who;

	if (t->step++ % 2)
		operation(t->vm);
	at(sim.now + CPU_NS, varmail_append, t);
}

/* ---- fileserver ---- */

static void file_begin(void *who);

static void file_done(struct request *q)
{
	struct thread *t = q->who;

	count_write(q);
	touch(t->vm, FILE_METADATA);
	if (--t->left)
		return;
	operation(t->vm);
	at(sim.now + CPU_NS, file_begin, t);
}

static void file_begin(void *who)
{
	struct thread *t = who;
	uint32_t append = 1 + (uint32_t)random_below(FILE_APPEND);

	t->left = 2;
	send(REQ_WRITE, t->vm->owner, place(t->vm, FILE_BLOCKS), FILE_BLOCKS,
	     file_done, t);
	send(REQ_WRITE, t->vm->owner, place(t->vm, append), append, file_done,
	     t);
}

/* ---- TPC-C ---- */

static void tpcc_begin(void *who);

static void clean_end(void *who)
{
	struct vm *vm = who;

	vm->cleaning = false;
}

static void clean_page(struct request *q)
{
	struct vm *vm = q->who;

	count_write(q);
	if (!--vm->left)
		journal_sync(vm->journal, 1, clean_end, vm);
}

static void clean_pages(void *who)
{
	struct vm *vm = who;

	vm->left = TPCC_BATCH;
	for (uint32_t i = 0; i < TPCC_BATCH; i++)
		send(REQ_WRITE, vm->owner, place(vm, PAGE), PAGE, clean_page,
		     vm);
}

static void clean_twice(struct request *q)
{
	struct vm *vm = q->who;

	count_write(q);
	if (!--vm->left)
		journal_sync(vm->journal, 1, clean_pages, vm);
}

/* Write pages to the doublewrite buffer, then to their places. */
static void clean(struct vm *vm)
{
	uint64_t block = vm_base(vm->owner) + sim.hw.journal_blocks +
			 TPCC_LOG_BLOCKS;

	vm->cleaning = true;
	vm->dirtied -= TPCC_BATCH;
	vm->left = 2;
	for (uint32_t i = 0; i < 2; i++)
		send(REQ_WRITE, vm->owner, block + i * TPCC_BATCH * PAGE / 2,
		     TPCC_BATCH * PAGE / 2, clean_twice, vm);
}

static void tpcc_end(void *who)
{
	struct thread *t = who;
	struct vm *vm = t->vm;

	operation(vm);
	if (vm->dirtied >= TPCC_BATCH && !vm->cleaning)
		clean(vm);
	at(sim.now + TPCC_CPU_NS, tpcc_begin, t);
}

static void tpcc_logged(struct request *q)
{
	struct thread *t = q->who;

	count_write(q);
	touch(t->vm, 1);
	journal_sync(t->vm->journal, 1, tpcc_end, t);
}

static void tpcc_read(struct request *q)
{
	struct thread *t = q->who;
	struct vm *vm = t->vm;

	if (random_below(100) < TPCC_READ_ONLY) {
		tpcc_end(t);
		return;
	}
	vm->dirtied += TPCC_DIRTIED;
	if (vm->log_head + TPCC_REDO > TPCC_LOG_BLOCKS)
		vm->log_head = 0;
	send(REQ_WRITE, vm->owner, vm_base(vm->owner) + sim.hw.journal_blocks +
	     vm->log_head, TPCC_REDO, tpcc_logged, t);
	vm->log_head += TPCC_REDO;
}

static void tpcc_begin(void *who)
{
	struct thread *t = who;

	send(REQ_READ, t->vm->owner, place(t->vm, PAGE), PAGE, tpcc_read, t);
}

static void start_threads(struct vm *vm, uint32_t n, void (*run)(void *who))
{
	for (uint32_t i = 0; i < n; i++) {
		struct thread *t = must(calloc(1, sizeof(*t)));

		t->vm = vm;
		at(sim.now + i * CPU_NS / n, run, t);
	}
}

void load_start(uint32_t i, struct journal *journal, struct journal *host)
{
	struct vm *vm = must(calloc(1, sizeof(*vm)));

	vm->owner = i + 1;
	vm->load = sim.sc.load[i];
	vm->every = sim.sc.every[i];
	vm->journal = journal;
	vm->host = host;
	switch (vm->load) {
	case LOAD_RANDOM:
		random_round(vm);
		break;
	case LOAD_VARMAIL:
		start_threads(vm, VARMAIL_THREADS, varmail_append);
		break;
	case LOAD_FILESERVER:
		start_threads(vm, FILE_THREADS, file_begin);
		break;
	case LOAD_TPCC:
		start_threads(vm, TPCC_CONNECTIONS, tpcc_begin);
		break;
	case LOAD_NONE:
		break;
	}
}
