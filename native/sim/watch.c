// SPDX-License-Identifier: GPL-2.0-only
/*
 * The simulation: work that keeps a processor busy and achieves nothing.
 *
 * DOC: Progress
 *
 * There is progress when a device has completed a request without an error, and when a request
 * of the history begins or ends. A work item that runs in jiffy after jiffy without any polls:
 * what it waits for has to wake it instead, or it has to wait longer before it tries again.
 */
#include "sim.h"

#define WATCHED 32U

/* In so many jiffies in a row. Some work polls for some jiffies before it gives up. */
#define POLLS_MAX 60U

/* A work item that runs this much later runs "in the next jiffy". */
#define NEXT 2U

SIM_WORLD static struct watched {
	const void *work;
	u64 progress;
	unsigned long at;
	u32 polls;
} watched[WATCHED];
SIM_WORLD static u64 progress;
SIM_WORLD static u32 oldest;

void sim_progress(void)
{
	progress++;
}

static struct watched *find(const void *work)
{
	struct watched *w;
	u32 i;

	for (i = 0; i < WATCHED; i++) {
		if (watched[i].work == work)
			return &watched[i];
	}
	w = &watched[oldest++ % WATCHED];
	memset(w, 0, sizeof(*w));
	w->work = work;
	return w;
}

void sim_watch(const void *work)
{
	struct watched *w = find(work);

	if (w->progress != progress || sim_jiffies - w->at > NEXT)
		w->polls = 0;
	else if (sim_jiffies != w->at)
		w->polls++;
	w->progress = progress;
	w->at = sim_jiffies;
	if (w->polls > POLLS_MAX)
		SIM_BUG("work runs in each jiffy, without progress");
}
