// SPDX-License-Identifier: Apache-2.0
/*
 * The journal of a file system, like that of ext4 (ordered mode) with barriers: a
 * commit writes the descriptor and the metadata, FLUSH, the commit block, FLUSH. The
 * next commit that starts serves all waiting fsyncs. A commit also starts every 5 s
 * if there are changes.
 */
#include <stdlib.h>

#include "sim.h"

#define PERIOD_NS 5000000000ULL
#define LARGEST_COMMIT 48u

struct waiter {
	void (*done)(void *who);
	void *who;
	vs_time since;
	struct waiter *next;
};

struct journal {
	uint32_t owner;
	uint64_t base, head;
	uint32_t metadata;	/* blocks of the next commit */
	bool running;
	unsigned int step;
	struct waiter *waiting, *served;
};

static void commit_step(struct request *request);

static void journal_write(struct journal *j, uint32_t count)
{
	if (j->head + count > sim.hw.journal_blocks)
		j->head = 0;
	send(REQ_WRITE, j->owner, j->base + j->head, count, commit_step, j);
	j->head += count;
}

static void commit_begin(struct journal *j)
{
	uint32_t metadata = j->metadata;

	if (metadata > LARGEST_COMMIT)
		metadata = LARGEST_COMMIT;
	j->running = true;
	j->step = 0;
	j->metadata = 0;
	j->served = j->waiting;
	j->waiting = NULL;
	journal_write(j, 1 + metadata);
}

static void commit_end(struct journal *j)
{
	struct waiter *w, *next;

	j->running = false;
	for (w = j->served; w; w = next) {
		next = w->next;
		if (sim.measuring) {
			sim.fig.fsyncs[j->owner]++;
			sim.fig.fsync_ns[j->owner] += sim.now - w->since;
		}
		w->done(w->who);
		free(w);
	}
	j->served = NULL;
	if (j->waiting && !j->running)
		commit_begin(j);
}

static void commit_step(struct request *request)
{
	struct journal *j = request->who;

	switch (j->step++) {
	case 0:
	case 2:
		send(REQ_FLUSH, j->owner, 0, 0, commit_step, j);
		break;
	case 1:
		journal_write(j, 1);
		break;
	default:
		commit_end(j);
	}
}

void journal_sync(struct journal *j, uint32_t metadata, void (*done)(void *who),
		  void *who)
{
	struct waiter *w = must(calloc(1, sizeof(*w)));

	*w = (struct waiter){ done, who, sim.now, j->waiting };
	j->waiting = w;
	j->metadata += metadata;
	if (!j->running)
		commit_begin(j);
}

void journal_dirty(struct journal *j, uint32_t metadata)
{
	if (j->metadata < metadata)
		j->metadata = metadata;
}

static void periodic(void *who)
{
	struct journal *j = who;

	if (!j->running && j->metadata)
		commit_begin(j);
	at(sim.now + PERIOD_NS, periodic, j);
}

struct journal *journal_new(uint32_t owner)
{
	struct journal *j = must(calloc(1, sizeof(*j)));

	j->owner = owner;
	j->base = vm_base(owner);
	return j;
}

/* The timers of the owners start at different times. */
void journal_start(struct journal *j)
{
	at(sim.now + PERIOD_NS / (OWNERS + 1) * (j->owner + 1), periodic, j);
}
