// SPDX-License-Identifier: GPL-2.0
/*
 * The epochs count blocks; the model keeps sets of them. For each flush, it stores
 * the blocks that existed when the flush started. For each group of flushes that wait
 * together, it stores the blocks that they wait for.
 *
 * A block that could not be made durable leaves with an error. Its data remains in a
 * block that entered again before it left, or in a newer version that had entered
 * before. The target guarantees this to the core.
 *
 * After each step, the test checks that the core completes the same flushes as the
 * model, with the same result. Independent of the model, a flush that completes
 * without an error completes only when all data that entered before it is durable.
 */
#include <string.h>

#include "check.h"
#include "../../native/core/epoch.h"

#define BLOCKS 64
#define FLUSHES 64

/* Flushes that wait together. */
struct group {
	bool exists;
	bool failed;
	bool waits_for[BLOCKS];
	bool flush[FLUSHES];
};

struct world {
	struct vcache_epoch epoch;
	struct group core[VC_EPOCH_SLOTS];	/* according to the core */
	/* the model: */
	struct group drain;
	struct group wanted;
	bool live[BLOCKS];
	unsigned int slot[BLOCKS];
	bool waiting[FLUSHES];
	unsigned int age[BLOCKS];		/* when it entered */
	unsigned int clock;
	bool must_leave[FLUSHES][BLOCKS];	/* data from before the flush */
};

static bool any(const bool *set, unsigned int n)
{
	while (n--) {
		if (set[n])
			return true;
	}
	return false;
}

static int unused(const bool *set, int n)
{
	int i;

	for (i = 0; i < n; i++) {
		if (!set[i])
			return i;
	}
	return -1;
}

/* The model: all blocks the draining group waits for are gone. */
static void model_advance(struct world *w, struct group *ended, unsigned int *n)
{
	while (w->drain.exists && !any(w->drain.waits_for, BLOCKS)) {
		ended[(*n)++] = w->drain;
		w->drain = w->wanted;
		memset(&w->wanted, 0, sizeof(w->wanted));
		memcpy(w->drain.waits_for, w->live, sizeof(w->live));
		if (!w->drain.exists)
			memset(&w->drain, 0, sizeof(w->drain));
	}
}

/* @heir: the block with the data of a failed one; otherwise -1. */
static void model_leave(struct world *w, int b, int heir)
{
	bool failed = heir >= 0;
	int f;

	w->live[b] = false;
	for (f = 0; f < FLUSHES; f++) {
		if (failed && w->must_leave[f][b])
			w->must_leave[f][heir] = true;
		w->must_leave[f][b] = false;
	}
	if (w->drain.waits_for[b]) {
		w->drain.waits_for[b] = false;
		w->drain.failed |= failed;
	} else if (w->wanted.exists) {
		w->wanted.failed |= failed;
	}
}

static void flush_ends(struct world *w, int f, bool failed)
{
	CHECK(w->waiting[f]);
	CHECK(failed || !any(w->must_leave[f], BLOCKS));
	memset(w->must_leave[f], 0, sizeof(w->must_leave[f]));
	w->waiting[f] = false;
}

static void compare_ended(struct world *w, struct vcache_epoch_done d,
			  struct group *ended, unsigned int n)
{
	bool core[FLUSHES] = { false }, core_failed[FLUSHES] = { false };
	unsigned int s, i, f;

	CHECK(!(d.failed & ~d.done));
	for (s = 0; s < VC_EPOCH_SLOTS; s++) {
		if (!(d.done & (1U << s)))
			continue;
		for (f = 0; f < FLUSHES; f++) {
			core[f] |= w->core[s].flush[f];
			core_failed[f] |= w->core[s].flush[f] &&
					  (d.failed & (1U << s));
		}
		memset(&w->core[s], 0, sizeof(w->core[s]));
	}
	for (i = 0; i < n; i++) {
		for (f = 0; f < FLUSHES; f++) {
			if (!ended[i].flush[f])
				continue;
			CHECK(core[f]);
			CHECK(core_failed[f] == ended[i].failed);
			core[f] = false;
			flush_ends(w, f, core_failed[f]);
		}
	}
	CHECK(!any(core, FLUSHES));
}

static int do_enter(struct world *w)
{
	int b = unused(w->live, BLOCKS);

	if (b < 0)
		return -1;
	w->live[b] = true;
	w->age[b] = ++w->clock;
	w->slot[b] = vcache_epoch_enter(&w->epoch);
	CHECK(w->slot[b] < VC_EPOCH_SLOTS);
	return b;
}

/* The live block that entered first, or last. */
static int pick(const struct world *w, bool last)
{
	int b, found = -1;

	for (b = 0; b < BLOCKS; b++) {
		if (w->live[b] &&
		    (found < 0 || (w->age[b] > w->age[found]) == last))
			found = b;
	}
	return found;
}

static void leave(struct world *w, int b, int heir)
{
	struct group ended[2];
	unsigned int n = 0;

	model_leave(w, b, heir);
	model_advance(w, ended, &n);
	compare_ended(w, vcache_epoch_leave(&w->epoch, w->slot[b], heir >= 0),
		      ended, n);
}

static bool do_leave(struct world *w, int b)
{
	if (b < 0 || !w->live[b])
		return false;
	leave(w, b, -1);
	return true;
}

/* It could not be written, and is retried. */
static bool do_retry(struct world *w, int b)
{
	int again = b < 0 ? -1 : do_enter(w);

	if (again < 0)
		return false;
	leave(w, b, again);
	return true;
}

/* It could not be written, but there is a newer version with its data. */
static bool do_supersede(struct world *w, int b)
{
	int newer = pick(w, true);

	if (b < 0 || b == newer)
		return false;
	leave(w, b, newer);
	return true;
}

static bool do_flush(struct world *w)
{
	int f = unused(w->waiting, FLUSHES), slot;
	struct group *group = NULL;
	bool rest[BLOCKS];
	unsigned int b;

	if (f < 0)
		return false;
	for (b = 0; b < BLOCKS; b++)
		rest[b] = w->live[b] && !w->drain.waits_for[b];
	if (any(rest, BLOCKS))
		group = w->drain.exists ? &w->wanted : &w->drain;
	else if (w->drain.exists)
		group = &w->drain;

	slot = vcache_epoch_flush(&w->epoch);
	CHECK((slot == VC_EPOCH_IDLE) == !group);
	if (!group) {
		CHECK(!any(w->live, BLOCKS));
		CHECK(vcache_epoch_idle(&w->epoch));
		return true;
	}
	CHECK(slot >= 0 && slot < VC_EPOCH_SLOTS);
	if (!group->exists && group == &w->drain)
		memcpy(group->waits_for, w->live, sizeof(w->live));
	group->exists = true;
	group->flush[f] = true;
	w->core[slot].flush[f] = true;
	w->waiting[f] = true;
	memcpy(w->must_leave[f], w->live, sizeof(w->live));
	return true;
}

enum {
	ENTER,
	FLUSH,
	LEAVE_FIRST,
	LEAVE_LAST,
	SUPERSEDE_FIRST,
	RETRY_FIRST,
	RETRY_LAST,
	STEPS
};

static bool step(struct world *w, unsigned int what)
{
	switch (what) {
	case ENTER:
		return do_enter(w) >= 0;
	case FLUSH:
		return do_flush(w);
	case LEAVE_FIRST:
		return do_leave(w, pick(w, false));
	case LEAVE_LAST:
		return do_leave(w, pick(w, true));
	case SUPERSEDE_FIRST:
		return do_supersede(w, pick(w, false));
	case RETRY_FIRST:
		return do_retry(w, pick(w, false));
	default:
		return do_retry(w, pick(w, true));
	}
}

/* When everything has left, every flush has ended. */
static void drain(struct world *w)
{
	int b;

	while ((b = pick(w, false)) >= 0)
		CHECK(do_leave(w, b));
	CHECK(vcache_epoch_idle(&w->epoch));
	CHECK(!any(w->waiting, FLUSHES));
	CHECK(vcache_epoch_flush(&w->epoch) == VC_EPOCH_IDLE);
}

/* All histories of @left more steps. */
static void every_history(const struct world *w, unsigned int left)
{
	unsigned int what;

	for (what = 0; what < STEPS; what++) {
		struct world next = *w;

		if (!step(&next, what))
			continue;
		if (left > 1)
			every_history(&next, left - 1);
		else
			drain(&next);
	}
}

static void a_random_history(uint64_t seed)
{
	static const unsigned char weight[][STEPS] = {
		{ 30, 10, 20, 20, 3, 3, 3 },	/* mixed */
		{ 40, 30, 15, 10, 1, 1, 1 },	/* flush storm */
		{ 20, 5, 10, 10, 10, 20, 10 },	/* a failing origin */
	};
	const unsigned char *mix = weight[seed % 3];
	uint64_t state = seed * 0x9e3779b97f4a7c15ULL;
	struct world w = { .epoch = { .draining = false } };
	unsigned int i, what, total = 0;

	for (i = 0; i < STEPS; i++)
		total += mix[i];
	for (i = 0; i < 2000; i++) {
		unsigned int r = check_below(&state, total);

		for (what = 0; r >= mix[what]; what++)
			r -= mix[what];
		if (what == LEAVE_LAST) {
			do_leave(&w, check_below(&state, BLOCKS));
		} else {
			step(&w, what);
		}
		CHECK(vcache_epoch_idle(&w.epoch) == !any(w.live, BLOCKS));
	}
	drain(&w);
}

int main(int argc, char **argv)
{
	struct world start = { .epoch = { .draining = false } };

	if (argc == 1)
		every_history(&start, 7);
	check_seeds(argc, argv, 300, a_random_history);
	return 0;
}
