// SPDX-License-Identifier: Apache-2.0
/* A device in the caller's memory, and an empty one on the NAND. */
#include "internal.h"

static size_t align(const void *mem)
{
	return (16 - (uintptr_t)mem % 16) % 16;
}

static size_t head_size(void)
{
	return (sizeof(struct vs_ssd) + 15) / 16 * 16;
}

size_t vs_size_needed(const struct vs_config *c)
{
	struct vs_ssd s = { 0 };
	size_t size;

	if (!vs_lay_out(&s, c, NULL, &size))
		return 0;
	return 15 + head_size() + size;
}

uint64_t vs_capacity(const struct vs_config *c)
{
	struct vs_ssd s = { 0 };
	size_t size;

	return vs_lay_out(&s, c, NULL, &size) ? s.blocks : 0;
}

static void clear(uint8_t *mem, size_t size)
{
	while (size--)
		*mem++ = 0;
}

/**
 * vs_prepare - a device without a single block in use, from whatever was in @mem
 * @mem: its memory
 * @c: the configuration
 * @ops: the NAND
 * @ctx: of @ops
 *
 * Return: NULL when no device can be made of @c.
 */
struct vs_ssd *vs_prepare(void *mem, const struct vs_config *c,
			  const struct vs_nand_ops *ops, void *ctx)
{
	size_t size = vs_size_needed(c);
	uint8_t *at = mem;
	struct vs_ssd *s;
	uint32_t i;

	if (!size)
		return NULL;
	clear(mem, size);
	at += align(mem);
	s = (struct vs_ssd *)at;
	vs_lay_out(s, c, at + head_size(), &size);
	s->ops = ops;
	s->ctx = ctx;
	for (i = 0; i < s->hosts; i++)
		s->host[i].block = VS_NONE;
	for (i = 0; i < c->lanes * s->stripe; i++)
		s->meta[i].block = VS_NONE;
	for (i = 0; i < s->banks; i++) {
		s->bank[i].to.block = VS_NONE;
		s->bank[i].victim = VS_NONE;
	}
	for (i = 0; i < s->blocks; i++)
		s->map[i] = VS_NONE;
	for (i = 0; i < s->map_pages; i++)
		s->map_at[i] = VS_NONE;
	s->log[VS_HTAG_LOG].used = true;
	s->log[s->gc_log].used = true;
	s->avoid = VS_NONE;
	s->payer = s->gc_log;
	s->alone = true;
	vs_buffer_init(s);
	for (i = 0; i < s->blocks_all; i++) {
		if (ops->is_bad(ctx, vs_place(s, vs_page_address(s, i, 0)))) {
			s->block[i].state = VS_BLOCK_BAD;
			s->stats.bad_blocks++;
		}
	}
	return s;
}

/**
 * vs_count_free - count how many blocks of each lane are what
 * @s: the device, of which all blocks have a state
 */
void vs_count_free(struct vs_ssd *s)
{
	uint32_t i;

	for (i = 0; i < s->blocks_all; i++) {
		struct vs_lane *l = &s->lane[vs_lane_of(s, i)];

		l->free += s->block[i].state == VS_BLOCK_FREE;
		s->bank[i / s->c.geometry.blocks].free +=
			s->block[i].state == VS_BLOCK_FREE;
		l->failed += s->block[i].state == VS_BLOCK_BAD ||
			     s->block[i].state == VS_BLOCK_RETIRED;
		l->meta += s->block[i].state == VS_BLOCK_META;
	}
}

/**
 * vs_begin - write the first checkpoint
 * @s: the device
 * @now: time
 */
struct vs_result vs_begin(struct vs_ssd *s, vs_time now)
{
	struct vs_result r = { VS_OK, now };

	r.status = vs_checkpoint(s, now, &r.done);
	s->status = r.status;
	return r;
}

struct vs_result vs_format(struct vs_ssd **out, void *mem,
			   const struct vs_config *c,
			   const struct vs_nand_ops *ops, void *ctx,
			   vs_time now)
{
	struct vs_ssd *s = vs_prepare(mem, c, ops, ctx);
	vs_time erased = now;
	uint32_t i;

	*out = s;
	if (!s)
		return (struct vs_result){ VS_EINVAL, now };
	for (i = 0; i < s->blocks_all; i++) {
		struct vs_page at = vs_place(s, vs_page_address(s, i, 0));
		enum vs_status status;
		vs_time done = now;

		if (s->block[i].state == VS_BLOCK_BAD)
			continue;
		status = ops->read(ctx, now, at, NULL, s->read_oob, &done);
		if (status == VS_OK && s->read_oob->magic == VS_MAGIC &&
		    s->read_oob->crc == vs_oob_crc(s, s->read_oob))
			s->block[i].erases = s->read_oob->erases;
		if (status != VS_EPOWER)
			status = ops->erase(ctx, now, at, &done);
		if (status == VS_EPOWER)
			return (struct vs_result){ status, now };
		s->block[i].erases++;
		s->stats.erases++;
		if (status == VS_EMEDIA) {
			s->block[i].state = VS_BLOCK_RETIRED;
			s->retired++;
		}
		erased = vs_later(erased, done);
	}
	vs_count_free(s);
	return vs_begin(s, erased);
}
