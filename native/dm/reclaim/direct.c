// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: chunks of elastic SSDs (../vssd): how they leave the shared lanes, how they return,
 * and what the chunk table says of them.
 *
 * These chunks have no log. They are not in the shares of logs, and nothing here or in space.c
 * reclaims them: an elastic SSD keeps what it was given until the host asks for it. What it waits
 * for is added to the reserve (vcache_pool_reserve()), so logs above their shares give up as many
 * chunks. A tenth of the pool stays for logs.
 */
#include "../../core/direct.h"
#include "internal.h"

/**
 * vcache_direct_space - count the chunks that all elastic SSDs of a pool may have together
 * @p: the pool
 */
u32 vcache_direct_space(const struct vcache_pool *p)
{
	u32 size = vcache_pool_size(p);

	return size - max(size / VC_COMMON_OF, min(size, 2 * VC_CHUNKS_MIN));
}

/**
 * vcache_direct_left - count how many more they may have now, with those that are not in use
 * @p: the pool
 */
u32 vcache_direct_left(const struct vcache_pool *p)
{
	u32 i, has = 0, space = vcache_direct_space(p);

	for (i = 0; i < p->nlanes; i++)
		has += READ_ONCE(p->lane[i].direct);
	return space - min(space, has);
}

/**
 * vcache_direct_take - take a free chunk of the shared lanes for an elastic SSD
 * @p: the pool, locked
 * @chunk: gets its number. Its content is undefined, and may belong to anybody
 *
 * Return: false if none is free now.
 */
bool vcache_direct_take(struct vcache_pool *p, u32 *chunk)
{
	struct vcache_chunk *c = NULL;

	lockdep_assert_held(&p->lock);
	spin_lock_irq(&p->free_lock);
	/* The last ones are for relocation, and for one writer. */
	if (p->nfree > vcache_pool_relocate_reserve(p) + 1)
		c = vcache_lane_get(p, NULL);
	if (c) {
		c->state = VC_CHUNK_DIRECT;
		c->lost = 0;
		p->lane[c->lane].direct++;
	}
	spin_unlock_irq(&p->free_lock);
	if (!c)
		return false;
	vcache_lanes_count(p);
	*chunk = vcache_chunk_nr(p, c);
	return true;
}

/**
 * vcache_direct_return - trim a chunk of an elastic SSD, and give it back to the pool
 * @p: the pool, locked
 * @chunk: its number; nothing reads or writes it, and the chunk table does not name it
 */
void vcache_direct_return(struct vcache_pool *p, u32 chunk)
{
	struct vcache_chunk *c = &p->chunk[chunk];

	lockdep_assert_held(&p->lock);
	VCACHE_CHECK(c->state == VC_CHUNK_DIRECT);
	VCACHE_CHECK(!(le64_to_cpu(vcache_table_entry(p, chunk)->clean) & VC_DIRECT_BIT));
	spin_lock_irq(&p->free_lock);
	p->lane[c->lane].direct--;
	spin_unlock_irq(&p->free_lock);
	vcache_chunk_release(p, c);
	vcache_lanes_count(p);
	vcache_space_kick(p);
}

/* Change the entry of a chunk in the chunk table. Return: 0 or a negative errno. */
static int vc_direct_save(struct vcache_pool *p, u32 chunk, u64 value)
{
	struct vcache_chunk_disk *t;
	int r;

	mutex_lock(&p->table_lock);
	t = vcache_table_entry(p, chunk);
	t->clean = cpu_to_le64(value);
	r = vcache_table_save(p, chunk);
	mutex_unlock(&p->table_lock);
	return r;
}

/**
 * vcache_direct_note - write to the chunk table which block of an elastic SSD a chunk has
 * @v: its volume, which has a slot on the device
 * @chunk: the chunk, with durable content
 * @block: the block; no other chunk is noted for it
 *
 * Return: 0 or a negative errno. Then the pool is read-only.
 */
int vcache_direct_note(struct vcache_volume *v, u32 chunk, u32 block)
{
	return vc_direct_save(v->pool, chunk, vcache_direct_pack(v->slot, block));
}

/**
 * vcache_direct_unnote - remove a chunk of an elastic SSD from the chunk table
 * @v: its volume
 * @chunk: the chunk
 *
 * Return: 0 or a negative errno. Then the pool is read-only, and the chunk must not be used for
 * anything else.
 */
int vcache_direct_unnote(struct vcache_volume *v, u32 chunk)
{
	return vc_direct_save(v->pool, chunk, 0);
}

/**
 * vcache_direct_next - find the next chunk that the chunk table names for an elastic SSD
 * @v: its volume; the pool is locked
 * @chunk: the chunk to begin with; gets the number of the chunk found
 * @block: gets its block
 *
 * Return: false if there is none.
 */
bool vcache_direct_next(struct vcache_volume *v, u32 *chunk, u32 *block)
{
	struct vcache_pool *p = v->pool;
	u32 i;

	lockdep_assert_held(&p->lock);
	for (i = max(*chunk, p->g.first_chunk); i < p->g.chunks; i++) {
		u64 value = le64_to_cpu(vcache_table_entry(p, i)->clean);
		u16 slot;

		if (p->chunk[i].state == VC_CHUNK_DIRECT &&
		    vcache_direct_unpack(value, &slot, block) && slot == v->slot) {
			*chunk = i;
			return true;
		}
	}
	return false;
}

/**
 * vcache_direct_forget - give back all chunks that the chunk table names for an elastic SSD
 * @v: its volume, which nothing uses, and which has no slot on the device any more; the pool is
 *	locked
 *
 * Return: 0 or a negative errno; then some chunks are not used any more before the next load.
 */
int vcache_direct_forget(struct vcache_volume *v)
{
	struct vcache_pool *p = v->pool;
	u32 chunk, block;
	int r;

	lockdep_assert_held(&p->lock);
	for (chunk = 0; vcache_direct_next(v, &chunk, &block); chunk++) {
		r = vcache_direct_unnote(v, chunk);
		if (r)
			return r;
		vcache_direct_return(p, chunk);
		cond_resched();
	}
	return 0;
}

/**
 * vcache_direct_want - note how many chunks an elastic SSD waits for
 * @p: the pool, locked
 * @before: what was noted for it
 * @now: what it waits for
 */
void vcache_direct_want(struct vcache_pool *p, u32 before, u32 now)
{
	lockdep_assert_held(&p->lock);
	WRITE_ONCE(p->direct_wanted, p->direct_wanted - before + now);
	if (now)
		vcache_space_kick(p);
}
