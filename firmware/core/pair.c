// SPDX-License-Identifier: Apache-2.0
/*
 * The program of an MSB page fails, and takes the LSB page of its word line
 * along, which has been there for a while and of which the buffer has nothing
 * any more. So a frontier keeps copies of the LSB pages whose MSB page is still
 * to come: two at most (pairing.h). What is lost is programmed again, at once.
 *
 * Nothing durable can be concerned: of a committed page the MSB page is never
 * programmed (rule 2). So all that has to be changed is in memory.
 */
#include "internal.h"

#include "pairing.h"

/* LSB pages in turn: 0 1 3 5 7 ... */
static uint32_t place_of(uint32_t lsb)
{
	return (lsb + 1) / 2 % 2;
}

/**
 * vs_pair_keep - keep an LSB page until its word line is complete
 * @s: the device, which has pairs
 * @f: where it has been programmed
 * @page: its number; an MSB page is not kept
 * @data: its content
 * @oob: its spare bytes
 */
void vs_pair_keep(const struct vs_ssd *s, struct vs_frontier *f, uint32_t page,
		  const void *data, const struct vs_oob *oob)
{
	uint32_t size = s->c.geometry.page_size, i = place_of(page);

	if (vs_pair_of_msb(s->c.geometry.pages, page) != VS_NO_PAIR)
		return;
	__builtin_memcpy(f->kept[i], data, size);
	__builtin_memcpy(f->kept[i] + size, oob, VS_OOB_SIZE(size));
	f->kept_page[i] = page;
}

/**
 * vs_pair_lost - a program has failed: note the page that it took along
 * @s: the device
 * @f: where it failed; its block is still open
 * @page: whose program failed
 *
 * Return: VS_EMEDIA; VS_EREADONLY when there are too many.
 */
enum vs_status vs_pair_lost(struct vs_ssd *s, const struct vs_frontier *f,
			    uint32_t page)
{
	uint32_t lsb = VS_NO_PAIR, size = s->c.geometry.page_size;
	const uint8_t *kept;
	struct vs_rescue *to;

	if (s->c.geometry.paired)
		lsb = vs_pair_of_msb(s->c.geometry.pages, page);
	if (lsb == VS_NO_PAIR || f->kept_page[place_of(lsb)] != lsb)
		return VS_EMEDIA;
	if (s->rescues == VS_RESCUES)
		return VS_EREADONLY;
	kept = f->kept[place_of(lsb)];
	to = &s->rescue[s->rescues++];
	to->from = vs_page_address(s, f->block, lsb);
	__builtin_memcpy(to->page, kept, size);
	__builtin_memcpy(to->oob, kept + size, VS_OOB_SIZE(size));
	return VS_EMEDIA;
}

/**
 * vs_pair_rescue - program lost pages of data again
 * @s: the device
 * @bank: where the program failed
 * @now: time
 *
 * What fails meanwhile is done first. Return: VS_OK, VS_EREADONLY, VS_EPOWER.
 */
enum vs_status vs_pair_rescue(struct vs_ssd *s, uint32_t bank, vs_time now)
{
	enum vs_status status = VS_OK;

	if (s->rescuing)
		return VS_OK;
	s->rescuing = true;
	while (s->rescues && status == VS_OK) {
		status = s->placement->again(s, bank, now,
					     &s->rescue[s->rescues - 1]);
		if (status == VS_OK) {
			s->rescues--;
			s->stats.rescued++;
		} else if (status == VS_EMEDIA) {
			status = VS_OK;
		}
	}
	s->rescuing = false;
	return status;
}

static void move_count(struct vs_ssd *s, uint32_t from, uint32_t to)
{
	uint32_t old = vs_block_of(s, from), block = vs_block_of(s, to);

	s->block[old].valid--;
	s->live[from / s->slots]--;
	s->lane[vs_lane_of(s, old)].valid--;
	s->block[block].valid++;
	s->live[to / s->slots]++;
	s->lane[vs_lane_of(s, block)].valid++;
}

/* Changes of the map that are not durable yet: from a lost place, or to it. */
static void move_entries(struct vs_ssd *s, struct vs_log *l, uint32_t from,
			 uint32_t to, vs_time done)
{
	uint32_t k;

	for (k = l->durable; k < l->count; k++) {
		if (l->entry[k].slot == from) {
			l->entry[k].slot = to;
			l->data_done = vs_later(l->data_done, done);
			l->lanes |= 1u << vs_lane_of(s, vs_block_of(s, to));
		}
		if (l->old[k] == from) {
			l->old[k] = to;
			s->block[vs_block_of(s, from)].unsafe--;
			s->block[vs_block_of(s, to)].unsafe++;
		}
	}
}

/* A TRIM that is not durable may have taken a block from the lost place. */
static void hold(struct vs_ssd *s, uint32_t from, uint32_t to)
{
	struct vs_block *b = &s->block[vs_block_of(s, to)];
	uint32_t trim = s->block[vs_block_of(s, from)].trim;

	if (b->trim < trim)
		b->trim = trim;
}

/**
 * vs_pair_moved - a lost page of data has another place
 * @s: the device
 * @lost: the page
 * @address: its place, a page address
 * @done: when it is programmed there
 */
void vs_pair_moved(struct vs_ssd *s, const struct vs_rescue *lost,
		   uint32_t address, vs_time done)
{
	uint32_t i, k;

	for (i = 0; i < s->slots; i++) {
		uint32_t from = lost->from * s->slots + i;
		uint32_t to = address * s->slots + i;
		uint32_t lpn = lost->oob->slot[i].lpn;

		if (lpn == VS_NONE)
			continue;
		hold(s, from, to);
		if (s->map[lpn] == from) {
			s->map[lpn] = to;
			move_count(s, from, to);
		}
		for (k = 0; k < s->logs; k++)
			move_entries(s, &s->log[k], from, to, done);
	}
	vs_block_pending(s, lost->from / s->c.geometry.pages);
	vs_release(s, lost->from / s->c.geometry.pages);
}
