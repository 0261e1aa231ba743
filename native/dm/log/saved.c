// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: saved blocks: those whose content user space has saved, and that nobody has
 * written since.
 *
 * The blocks of a stopped instance leave the cache for others, and come back from a file when
 * the instance starts, without a read of the origin (../cache/fill.c). A file must never
 * replace newer data. Only the kernel sees every write, so it notes which blocks a file still
 * describes: user space names the blocks before it reads them, and each write of a block
 * removes it, whoever writes it, while the instance is stopped or runs again.
 *
 * A session is the blocks of one log, with a random token. The token is in the file. Nothing
 * of a session is on the device: a volume that is detached, or that gets another origin, loses
 * all its sessions, because from then on others may write to the origin.
 *
 * The map has a word for some consecutive blocks: the tag of their log, and a bit for each. A
 * word has one owner: the session that has named a block of it last.
 */
#include "internal.h"

/* Blocks of a word: as many as fit with the tag into the value of an xarray. */
#define VC_SAVED_SHIFT	(BITS_PER_LONG == 64 ? 5 : 3)
#define VC_SAVED_BLOCKS	((u32)BIT(VC_SAVED_SHIFT))

static void *vc_saved_word(u32 tag, u32 bits)
{
	unsigned long tags = tag;

	return bits ? xa_mk_value(tags << VC_SAVED_BLOCKS | bits) : NULL;
}

/* Bits of a word that belong to a tag. */
static u32 vc_saved_bits(const void *word, u32 tag)
{
	unsigned long value = word ? xa_to_value(word) : 0;

	return value >> VC_SAVED_BLOCKS == tag ? (u32)(value & GENMASK(VC_SAVED_BLOCKS - 1, 0)) : 0;
}

/* Bits of the blocks from @first to @last in a word. */
static u32 vc_saved_mask(unsigned long index, u64 first, u64 last)
{
	u64 start = (u64)index << VC_SAVED_SHIFT;
	u32 low = first > start ? first - start : 0;
	u32 high = min_t(u64, last - start, VC_SAVED_BLOCKS - 1);

	return GENMASK(high, low);
}

/**
 * vcache_saved_init - begin without saved blocks
 * @v: a new volume
 */
void vcache_saved_init(struct vcache_volume *v)
{
	xa_init_flags(&v->saved, XA_FLAGS_LOCK_IRQ);
}

/**
 * vcache_saved_free - end all sessions of a volume
 * @v: the volume; others may write to its origin from now on
 */
void vcache_saved_free(struct vcache_volume *v)
{
	struct vcache_log *log;

	list_for_each_entry(log, &v->logs, node)
		WRITE_ONCE(log->saved, 0);
	xa_destroy(&v->saved);
}

/**
 * vcache_saved_begin - begin a session of a log; its previous one ends
 * @log: the log; its pool is locked
 * @token: of the session; 0: only end the previous one
 */
void vcache_saved_begin(struct vcache_log *log, u64 token)
{
	struct xarray *saved = &log->vol->saved;
	unsigned long index = 0;
	void *word;

	lockdep_assert_held(&log->vol->pool->lock);
	WRITE_ONCE(log->saved, 0);
	while ((word = xa_find(saved, &index, ULONG_MAX, XA_PRESENT))) {
		if (vc_saved_bits(word, log->tag)) {
			xa_lock_irq(saved);
			/* Writes may take bits of it away meanwhile. */
			word = xa_load(saved, index);
			if (vc_saved_bits(word, log->tag))
				__xa_cmpxchg(saved, index, word, NULL, 0);
			xa_unlock_irq(saved);
		}
		if (!++index)
			break;
		cond_resched();
	}
	WRITE_ONCE(log->saved, token);
}

/**
 * vcache_saved_forget - blocks are written: what was saved of them is outdated
 * @v: the volume
 * @block: the first block
 * @n: how many, at least 1
 */
void vcache_saved_forget(struct vcache_volume *v, u64 block, u64 n)
{
	unsigned long index = block >> VC_SAVED_SHIFT;
	u64 last = block + n - 1;
	unsigned long flags;
	void *word;

	if (xa_empty(&v->saved))
		return;
	while ((word = xa_find(&v->saved, &index, last >> VC_SAVED_SHIFT, XA_PRESENT))) {
		xa_lock_irqsave(&v->saved, flags);
		word = xa_load(&v->saved, index);
		if (word) {
			u32 tag = xa_to_value(word) >> VC_SAVED_BLOCKS;
			u32 bits = vc_saved_bits(word, tag) &
				   ~vc_saved_mask(index, block, last);

			__xa_cmpxchg(&v->saved, index, word, vc_saved_word(tag, bits), 0);
		}
		xa_unlock_irqrestore(&v->saved, flags);
		if (++index > last >> VC_SAVED_SHIFT)
			break;
	}
}

/*
 * What is in the buffer may be overwritten there, and only the first write of a block is told
 * to vcache_saved_forget(). So such blocks are left out.
 */
static void vc_saved_check(struct vcache_volume *v, u64 block, u64 n)
{
	u64 at;

	if (!vcache_buffer_covers(v->dev, block, block + n - 1))
		return;
	for (at = block; at < block + n; at++) {
		if (vcache_buffer_covers(v->dev, at, at))
			vcache_saved_forget(v, at, 1);
		cond_resched();
	}
}

/**
 * vcache_saved_add - add blocks to the session of a log
 * @log: the log; its pool is locked
 * @block: the first block
 * @n: how many, at least 1
 *
 * Blocks that are in the buffer are left out.
 *
 * Return: 0 or -ENOMEM.
 */
int vcache_saved_add(struct vcache_log *log, u64 block, u64 n)
{
	unsigned long index = block >> VC_SAVED_SHIFT;
	struct xarray *saved = &log->vol->saved;
	u64 last = block + n - 1;
	void *was, *word;
	int r = 0;

	lockdep_assert_held(&log->vol->pool->lock);
	for (; index <= last >> VC_SAVED_SHIFT && !r; index++) {
		u32 mask = vc_saved_mask(index, block, last);

		xa_lock_irq(saved);
		/* Without memory at once, the lock is dropped, and a write may come. */
		do {
			was = xa_load(saved, index);
			word = vc_saved_word(log->tag,
					     vc_saved_bits(was, log->tag) | mask);
			word = __xa_cmpxchg(saved, index, was, word, GFP_KERNEL);
		} while (!xa_is_err(word) && word != was);
		xa_unlock_irq(saved);
		r = xa_err(word);
		cond_resched();
	}
	smp_mb(); /* pairs with vcache_lookup_change() */
	vc_saved_check(log->vol, block, n);
	return r;
}

/**
 * vcache_saved_has - are blocks unchanged since their session began?
 * @log: the log
 * @block: the first block
 * @n: how many, at least 1
 */
bool vcache_saved_has(struct vcache_log *log, u64 block, u32 n)
{
	unsigned long index = block >> VC_SAVED_SHIFT;
	u64 last = block + n - 1;

	for (; index <= last >> VC_SAVED_SHIFT; index++) {
		u32 mask = vc_saved_mask(index, block, last);
		void *word = xa_load(&log->vol->saved, index);

		if (mask & ~vc_saved_bits(word, log->tag))
			return false;
	}
	return true;
}
