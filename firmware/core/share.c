// SPDX-License-Identifier: Apache-2.0
/*
 * The write buffer and the time of the banks, shared among tags by weight.
 *
 * Only tags that are active have a share: those that have written or flushed within
 * VS_LENT_AFTER. What an idle tag does not use is lent to the others. So the first request
 * after a pause can wait for work of others, once in VS_LENT_AFTER.
 *
 * Buffer: a tag may exceed its share while enough room is left for the others: for each
 * active tag, up to its share, one page for each bank. Beyond that, it evicts its own
 * blocks and waits for them. Room on its way to the NAND belongs to the tag that waits for
 * it, nobody else takes it. A tag without a weight counts with the default.
 *
 * Banks: an operation under way is never interrupted, so their time is shared by how many
 * of them are kept busy at a time. This costs those who flush much at once, so only a tag
 * with a weight has a share; those without have the rest in common. Who is at the limit
 * queues behind its own work.
 */
#include "internal.h"

bool vs_active(const struct vs_ssd *s, uint32_t log, vs_time now)
{
	return s->log[log].active_until > now;
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static uint32_t used(const struct vs_log *l)
{
	return (uint32_t)l->stats.buffered + l->leaving;
}

/**
 * vs_share_over - does a tag use more of the buffer than its share?
 * @s: the device
 * @log: index of the tag
 */
bool vs_share_over(const struct vs_ssd *s, uint32_t log)
{
	return used(&s->log[log]) >= s->log[log].stats.share;
}

/**
 * vs_share_ahead - entries that are kept free, or on their way to the NAND
 * @s: the device
 *
 * So a write finds a place while all banks are busy with what came before.
 */
uint32_t vs_share_ahead(const struct vs_ssd *s)
{
	uint32_t n = s->banks * s->slots, half = s->c.buffer_blocks / 2;

	return smaller(n, half);
}

/* Room that others leave to an active tag, whatever they buffer. */
static uint32_t guaranteed(const struct vs_ssd *s, const struct vs_log *l)
{
	uint32_t left = used(l) < l->stats.share ?
			(uint32_t)l->stats.share - used(l) : 0;

	return smaller(left, vs_share_ahead(s));
}

/* Give each tag what is free of its guaranteed room; the others cannot take it. */
static void set_aside(struct vs_ssd *s, uint32_t log)
{
	uint32_t free = s->free_count, i;

	for (i = 0; i < s->gc_log; i++) {
		struct vs_log *l = &s->log[i];

		l->reserved = smaller(l->reserved, smaller(guaranteed(s, l), free));
		free -= l->reserved;
	}
	for (i = 0; i < s->gc_log; i++) {
		struct vs_log *l = &s->log[i];
		uint32_t more = smaller(guaranteed(s, l) - l->reserved, free);

		l->reserved += more;
		free -= more;
		if (i != log)
			s->set_aside += l->reserved;
	}
}

static uint32_t weight_of(const struct vs_log *l)
{
	return l->weight ? l->weight : VS_WEIGHT_DEFAULT;
}

static uint64_t weights(const struct vs_ssd *s, vs_time now)
{
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i < s->gc_log; i++)
		sum += vs_active(s, i, now) ? weight_of(&s->log[i]) : 0;
	return sum;
}

/**
 * vs_share_begin - a command that takes of what is shared
 * @s: the device
 * @log: index of its tag
 * @now: time
 */
void vs_share_begin(struct vs_ssd *s, uint32_t log, vs_time now)
{
	uint64_t sum;
	uint32_t i;

	s->payer = log;
	s->taker = log;
	s->guaranteed = 0;
	s->set_aside = 0;
	/*
	 * A flush of Baseline covers all tags, so they have all in common. FAST, which has to
	 * fill pages and log blocks, evicts in the order of age.
	 */
	if (s->c.personality == VS_TAGGED && s->c.mapping == VS_MAP_PAGE)
		s->log[log].active_until = now + VS_LENT_AFTER;
	sum = weights(s, now);
	s->alone = sum <= weight_of(&s->log[log]);
	for (i = 0; i < s->gc_log; i++) {
		struct vs_log *l = &s->log[i];

		vs_buffer_reap(s, i, now);
		l->stats.share = vs_active(s, i, now) ?
				 s->c.buffer_blocks * weight_of(l) / sum : 0;
		if (i != log)
			s->guaranteed += guaranteed(s, l);
	}
	vs_buffer_reap(s, s->gc_log, now);
	set_aside(s, log);
	if (s->alone)
		s->log[log].stats.share = s->c.buffer_blocks;
}

/**
 * vs_share_victim - whose oldest block is evicted to make room
 * @s: the device
 * @now: time
 *
 * The oldest of all, unless an active tag has it that keeps to its share.
 *
 * Return: index of its tag, or VS_NONE if nothing is buffered.
 */
uint32_t vs_share_victim(const struct vs_ssd *s, vs_time now)
{
	uint32_t oldest, most = VS_NONE, i;
	int64_t over = 0;

	if (s->oldest == VS_NONE)
		return VS_NONE;
	oldest = s->entry[s->oldest].log;
	if (s->alone || !vs_active(s, oldest, now) || oldest == s->taker)
		return oldest;
	if (vs_share_over(s, s->taker) && s->log[s->taker].head != VS_NONE)
		return s->taker;
	for (i = 0; i < s->gc_log; i++) {
		int64_t more = (int64_t)used(&s->log[i]) -
			       (int64_t)s->log[i].stats.share;

		if (s->log[i].head != VS_NONE && (most == VS_NONE || more > over)) {
			most = i;
			over = more;
		}
	}
	return most;
}

/**
 * vs_bank_free - when the next page of a bank can be programmed
 * @s: the device
 * @bank: index
 */
vs_time vs_bank_free(const struct vs_ssd *s, uint32_t bank)
{
	return vs_later(s->bank[bank].done, s->bank[bank].copied_at);
}

/* Do two tags have their share of the banks in common? */
static bool together(const struct vs_ssd *s, uint32_t a, uint32_t b)
{
	return a == b || (!s->log[a].weight && !s->log[b].weight);
}

static bool holds(const struct vs_ssd *s, uint32_t bank, uint32_t log, vs_time now)
{
	return vs_bank_free(s, bank) > now && together(s, s->bank[bank].holder, log);
}

static uint32_t held(const struct vs_ssd *s, const struct vs_lane *l,
		     uint32_t log, vs_time now)
{
	uint32_t i, n = 0;

	for (i = l->first_bank; i < l->first_bank + l->banks; i++)
		n += holds(s, i, log, now);
	return n;
}

static bool competes(const struct vs_ssd *s, uint32_t log, uint32_t lane,
		     vs_time now)
{
	return vs_active(s, log, now) &&
	       (s->log[log].lane == lane ||
		(s->log[log].lane == VS_LANE_ANY && !s->lane[lane].dedicated));
}

/* Idle banks that are left to other tags with a weight, which have less than their share. */
static uint32_t left_to_others(const struct vs_ssd *s, uint32_t lane,
			       uint32_t log, uint64_t sum, vs_time now)
{
	const struct vs_lane *l = &s->lane[lane];
	uint64_t keep = 0;
	uint32_t i;

	for (i = 0; i < s->gc_log; i++) {
		uint64_t share = l->banks * (uint64_t)s->log[i].weight;
		uint64_t has = held(s, l, i, now) * sum;

		if (i != log && share > has && competes(s, i, lane, now))
			keep += share - has;
	}
	keep = (keep + sum - 1) / sum;
	return smaller((uint32_t)keep, l->banks / 2);
}

/* Transfers to another bank of the channel are in the way of this one's. */
static int channel_cost(const struct vs_ssd *s, uint32_t bank, uint32_t log,
			vs_time now)
{
	uint32_t ways = s->c.geometry.ways, first = bank / ways * ways, i;
	int cost = 0;

	for (i = first; i < first + ways; i++) {
		if (vs_bank_free(s, i) <= now)
			continue;
		if (!holds(s, i, log, now))
			return 1;
		cost = -1;
	}
	return cost;
}

static uint32_t best_idle(const struct vs_ssd *s, const struct vs_lane *l,
			  uint32_t log, vs_time now)
{
	uint32_t best = VS_NONE, i;
	int least = 0;

	for (i = 0; i < l->banks; i++) {
		uint32_t bank = l->first_bank + (l->bank_cursor + i) % l->banks;
		int cost = channel_cost(s, bank, log, now);

		if (vs_bank_free(s, bank) > now || bank == s->avoid ||
		    (best != VS_NONE && cost >= least))
			continue;
		best = bank;
		least = cost;
	}
	return best;
}

static bool has_channel(const struct vs_ssd *s, uint32_t bank, uint32_t log,
			vs_time now)
{
	uint32_t ways = s->c.geometry.ways, first = bank / ways * ways, i, n = 0;

	for (i = first; i < first + ways; i++)
		n += holds(s, i, log, now);
	return n == ways;
}

static void consider(const struct vs_ssd *s, uint32_t bank, uint32_t *best)
{
	if (*best == VS_NONE || vs_bank_free(s, bank) < vs_bank_free(s, *best))
		*best = bank;
}

/*
 * The bank that is done first, of @most that a tag keeps busy: those of whole channels
 * first. Others that it has kept busy become idle.
 */
static uint32_t first_own(const struct vs_ssd *s, const struct vs_lane *l,
			  uint32_t log, uint32_t most, vs_time now)
{
	uint32_t best = VS_NONE, whole, i;

	for (whole = 2; whole--;) {
		for (i = l->first_bank; most && i < l->first_bank + l->banks; i++) {
			if (!holds(s, i, log, now) ||
			    has_channel(s, i, log, now) != whole)
				continue;
			most--;
			if (i != s->avoid)
				consider(s, i, &best);
		}
	}
	return best;
}

static uint32_t first_of_all(const struct vs_ssd *s, const struct vs_lane *l)
{
	uint32_t best = VS_NONE, i;

	for (i = l->first_bank; i < l->first_bank + l->banks; i++) {
		if (i != s->avoid)
			consider(s, i, &best);
	}
	return best;
}

/**
 * vs_share_bank - the bank for the next page of a tag
 * @s: the device
 * @lane: where
 * @log: index of the tag
 * @now: time
 *
 * Banks of channels that others use come last.
 *
 * Return: VS_NONE if no active tag with a weight has to do with it, so that any will do.
 */
uint32_t vs_share_bank(const struct vs_ssd *s, uint32_t lane, uint32_t log,
		       vs_time now)
{
	const struct vs_lane *l = &s->lane[lane];
	uint64_t sum = weight_of(&s->log[log]), share = sum;
	uint32_t idle = 0, least = s->avoid == VS_NONE ? 1 : 2;
	uint32_t mine, own, keep, bank, i;

	for (i = 0; i < s->gc_log; i++) {
		if (i == log || !competes(s, i, lane, now))
			continue;
		sum += weight_of(&s->log[i]);
		if (together(s, i, log))
			share += weight_of(&s->log[i]);
	}
	if (sum == share)
		return VS_NONE;
	for (i = l->first_bank; i < l->first_bank + l->banks; i++)
		idle += vs_bank_free(s, i) <= now && i != s->avoid;
	mine = held(s, l, log, now);
	own = (uint32_t)(l->banks * share / sum);
	/* The second copy of a page is programmed along with the first. */
	if (own < least)
		own = least;
	keep = left_to_others(s, lane, log, sum, now);
	if (idle && (mine < own || idle > keep))
		bank = best_idle(s, l, log, now);
	else
		bank = first_own(s, l, log, idle < keep ? own : mine, now);
	return bank == VS_NONE ? first_of_all(s, l) : bank;
}

/**
 * vs_share_charge - an operation of a bank has been queued
 * @s: the device; s->payer is whose it is
 * @bank: index
 * @now: when it could begin
 * @done: when it is complete
 */
void vs_share_charge(struct vs_ssd *s, uint32_t bank, vs_time now, vs_time done)
{
	struct vs_tag_stats *stats = &s->log[s->payer].stats;
	struct vs_bank *b = &s->bank[bank];
	vs_time start = vs_later(now, b->done);

	if (b->holder != s->payer)
		stats->bank_wait_ns += start - now;
	stats->bank_ns += vs_later(done, start) - start;
	b->done = vs_later(b->done, done);
	b->holder = s->payer;
}

enum vs_status vs_set_weight(struct vs_ssd *s, uint32_t tag, uint32_t weight)
{
	uint32_t log;

	if (weight > VS_WEIGHT_MAX)
		return VS_EINVAL;
	log = vs_tag_get(s, tag);
	if (log == VS_HTAG_LOG && tag != VS_TAG_HOST)
		return VS_EINVAL;
	s->log[log].weight = weight;
	return VS_OK;
}

uint32_t vs_get_weight(const struct vs_ssd *s, uint32_t tag)
{
	uint32_t log = vs_tag_find(s, tag);

	return log == VS_HTAG_LOG && tag != VS_TAG_HOST ? 0 : s->log[log].weight;
}
