// SPDX-License-Identifier: GPL-2.0-only
/*
 * The simulation: sleepable RCU. Readers that begin count in one of two counters. A writer
 * makes them use the other one, and waits until the first is zero.
 */
#include "sim.h"

int init_srcu_struct(struct srcu_struct *s)
{
	mutex_init(&s->lock);
	init_waitqueue_head(&s->wait);
	s->now = 0;
	s->readers[0] = 0;
	s->readers[1] = 0;
	return 0;
}

void cleanup_srcu_struct(struct srcu_struct *s)
{
	if (s->readers[0] || s->readers[1])
		SIM_BUG("an srcu_struct with readers is freed");
}

int srcu_read_lock(struct srcu_struct *s)
{
	int section = s->now;

	s->readers[section]++;
	sim_point();
	return section;
}

void srcu_read_unlock(struct srcu_struct *s, int section)
{
	sim_point();
	if (!s->readers[section])
		SIM_BUG("a section of SRCU ends twice");
	if (!--s->readers[section])
		wake_up_all(&s->wait);
}

void synchronize_srcu(struct srcu_struct *s)
{
	int was;

	sim_may_sleep("synchronize_srcu");
	mutex_lock(&s->lock);
	was = s->now;
	s->now = !was;
	wait_event(s->wait, !s->readers[was]);
	mutex_unlock(&s->lock);
}
