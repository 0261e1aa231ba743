// SPDX-License-Identifier: GPL-2.0-only
/*
 * The simulation: a cache device that does not keep what was written to it.
 *
 * DOC: What happens
 *
 * One write of a history is misdirected: it lands elsewhere on the device, its place keeps its old
 * content, and it completes without an error. Or bits of one of its sectors change.
 *
 * DOC: What this may do
 *
 * From durability.rst, "The cache device returns wrong data", and format.rst:
 *
 * - Metadata and seals exist twice, and records, seals and metadata count only with their
 *   checksum and at their place. So nothing is lost with one copy of a seal or of metadata.
 * - With a record, its blocks are *lost*: after a power cut an earlier version may be valid.
 * - With the record of a discard, later writes may be lost until the next recovery: what bypasses
 *   the log, since the cache has nothing of the range, is older than what was discarded then.
 * - A data block is *garbled*: reads are not verified, so until the power cut they may show
 *   anything, and so may the origin, if destage has copied it. Recovery verifies the data of open
 *   chunks, so there it is lost, and not more. The data of sealed chunks is not verified.
 * - If the first block of a chunk has lost the head of the record that was there, and the chunk has
 *   no seal, nothing names the log of the chunk: all of its blocks are lost, also later ones.
 * - Without both copies of its seal, the records of a chunk count, also those of blocks that had
 *   been removed from the seal. So all blocks of the chunk's records are lost.
 *
 * If a later record of a chunk without a seal says that the damaged one was durable, recovery has
 * to report damage. Without a fault it must not.
 *
 * The simulation knows the sectors of a data block by their stamps, and those of a record by its
 * entries. It knows nothing else of the cache.
 */
#include "oracle.h"

#include "../core/crc32c.h"
#include "../core/format.h"

#define CHUNK 16U	/* blocks: 64 KiB, as in table lines of history.c */
#define SEALS 2U	/* blocks, at the end of the chunk */
#define GARBLED_MAX 64U
#define CHUNKS (SIM_DISK_BLOCKS / CHUNK)

SIM_WORLD static struct sim_damage plan;
SIM_WORLD static struct sim_rng rng;
SIM_WORLD static u32 writes;
/* Garbled blocks in chunks without a seal. */
SIM_WORLD static struct open_block { u32 chunk, sector; } open_[GARBLED_MAX];
SIM_WORLD static u32 nopen;
SIM_WORLD static bool nameless[CHUNKS];
SIM_WORLD static bool any_nameless;
/* The damaged record. Not of the world: recoveries run in other ones. */
static struct vcache_log_head damaged;

void sim_damage_plan(const struct sim_damage *p, u64 seed)
{
	plan = *p;
	rng = sim_seeded(seed * 31 + 7);
	writes = 0;
	nopen = 0;
	any_nameless = false;
	memset(&damaged, 0, sizeof(damaged));
	memset(nameless, 0, sizeof(nameless));
}

static const struct vcache_log_head *head(const u8 *block, u16 type)
{
	const struct vcache_log_head *h = (const void *)block;

	return le32_to_cpu(h->magic) == VC_LOG_MAGIC && le16_to_cpu(h->type) == type ? h : NULL;
}

static void lost_entries(const struct vcache_log_head *h)
{
	const struct vcache_entry_disk *e = (const void *)(h + 1);
	u32 i;

	for (i = 0; i < le16_to_cpu(h->nr); i++, e++) {
		u64 where = le32_to_cpu(e->where_lo) | (u64)le32_to_cpu(e->where_hi) << 32;
		u64 block = where & VC_WHERE_BLOCK_MAX;
		bool discard = !(where >> VC_WHERE_MASK_SHIFT & VC_MASK_ALL);

		if (block < ORACLE_SECTORS / 8)
			oracle_lost(block * 8, discard ? min(le32_to_cpu(e->arg) * 8,
							     ORACLE_SECTORS) : 8, discard);
	}
}

static u32 sealing;
static bool is_sealing;

static void look_for_seal(sector_t at, u32 n, const u8 *data)
{
	u32 block = at / 8;

	is_sealing |= block / CHUNK == sealing && block % CHUNK >= CHUNK - SEALS;
}

/* Does the chunk have a seal, or is one being written? Older generations count as well. */
static bool has_seal(const struct sim_disk *d, u32 chunk)
{
	u32 at = chunk * CHUNK + CHUNK - SEALS;
	const struct vcache_log_head *first = head(d->vis[chunk * CHUNK]->data, VC_LOG_RECORD);
	const struct vcache_log_head *a = head(d->vis[at]->data, VC_LOG_SEAL);
	const struct vcache_log_head *b = head(d->vis[at + 1]->data, VC_LOG_SEAL);

	sealing = chunk;
	is_sealing = false;
	sim_disk_writes(d, look_for_seal);
	return is_sealing || (a && (!first || a->gen == first->gen)) ||
	       (b && (!first || b->gen == first->gen));
}

static void garbled(const struct sim_disk *d, u32 at, const u8 *block)
{
	u32 i;

	for (i = 0; i < 8; i++) {
		const u32 *w = (const void *)(block + i * SECTOR_SIZE);
		u32 s = w[0] - 1;

		if (!w[0] || s >= ORACLE_SECTORS || sim_stamp_of(w, s) == SIM_FOREIGN)
			continue;
		s = s / 8 * 8;
		oracle_garbled(s, 8, has_seal(d, at / CHUNK));
		if (nopen < GARBLED_MAX)
			open_[nopen++] = (struct open_block){ at / CHUNK, s };
		return;
	}
}

/* A block of the device is not what it should be. */
static void bad_block(const struct sim_disk *d, u32 at, const u8 *should)
{
	const struct vcache_log_head *h = head(should, VC_LOG_RECORD);

	if (h)
		lost_entries(h);
	else if (!head(should, VC_LOG_SEAL) &&
		 le32_to_cpu(*(const __le32 *)should) != VC_META_MAGIC)
		garbled(d, at, should);
}

static void lost_chunk(const struct sim_disk *d, u32 chunk)
{
	u32 i;

	for (i = 0; i < CHUNK; i++) {
		const u8 *block = d->vis[chunk * CHUNK + i]->data;
		const struct vcache_log_head *h = head(block, VC_LOG_RECORD) ?:
						  head(block, VC_LOG_SEAL);

		if (h)
			lost_entries(h);
	}
}

/* Does the first block of a chunk still name the generation that it should? */
static bool names(const u8 *block, const u8 *should)
{
	const struct vcache_log_head *a = (const void *)block, *b = (const void *)should;

	return a->magic == b->magic && a->key == b->key && a->gen == b->gen;
}

/* Later records of a chunk that nothing names. */
static void lost_records(sector_t sector, u32 n, const u8 *data)
{
	u32 i;

	for (i = 0; any_nameless && nameless[sector / 8 / CHUNK] && i < n / 8; i++) {
		const struct vcache_log_head *h = head(data + i * SIM_BLOCK, VC_LOG_RECORD);

		if (h)
			lost_entries(h);
	}
}

static void name_lost(const struct sim_disk *d, u32 chunk)
{
	nameless[chunk] = true;
	any_nameless = true;
	lost_chunk(d, chunk);
	sim_disk_writes(d, lost_records);
}

/* The write lands at another block, often one where it might be taken for something else. */
static u32 elsewhere(const struct sim_disk *d, u32 at, u32 n)
{
	u32 blocks = d->blocks - n + 1, chunks = d->blocks / CHUNK;

	switch (sim_below(&rng, 5)) {
	case 0:		/* the same place in another chunk */
		return min(sim_below(&rng, chunks) * CHUNK + at % CHUNK, blocks - 1);
	case 1:		/* another place in the same chunk */
		return min(at / CHUNK * CHUNK + sim_below(&rng, CHUNK), blocks - 1);
	case 2:		/* a neighbour */
		return min(at + 1 - 2 * (at && sim_chance(&rng, 2)), blocks - 1);
	case 3:		/* metadata */
		return sim_below(&rng, min(10 * CHUNK, blocks));
	default:
		return sim_below(&rng, blocks);
	}
}

/* What is damaged is a part of the record that a write begins with. */
static void note_record(const u8 *data)
{
	const struct vcache_log_head *h = head(data, VC_LOG_RECORD);

	if (h && !nameless[le32_to_cpu(h->chunk)])
		damaged = *h;
}

static bool intact(const u8 *block)
{
	u8 copy[SIM_BLOCK];
	struct vcache_log_head *h = (void *)copy;

	memcpy(copy, block, SIM_BLOCK);
	h->crc = 0;
	return le32_to_cpu(((const struct vcache_log_head *)block)->crc) ==
	       vcache_crc32c(copy, SIM_BLOCK);
}

bool sim_damage_is_known(const struct sim_image *cache)
{
	u32 from = le32_to_cpu(damaged.chunk) * CHUNK, i;
	bool known = false;

	if (!damaged.gen)
		return false;
	for (i = 0; i < CHUNK; i++) {
		const u8 *block = cache->blk[from + i]->data;
		const struct vcache_log_head *h = head(block, VC_LOG_RECORD);
		const struct vcache_log_head *seal = head(block, VC_LOG_SEAL);

		/* It is sealed, or another generation. */
		if ((seal && le64_to_cpu(seal->gen) >= le64_to_cpu(damaged.gen)) ||
		    (h && le64_to_cpu(h->gen) > le64_to_cpu(damaged.gen)))
			return false;
		if (h && h->gen == damaged.gen && le16_to_cpu(h->at) == i && intact(block) &&
		    le64_to_cpu(h->durable) >= le64_to_cpu(damaged.seq))
			known = true;
	}
	return known;
}

static void misdirect(struct sim_disk *d, sector_t *sector, u32 n, const u8 *data)
{
	u32 from = *sector / 8, blocks = n / 8, to = elsewhere(d, from, blocks), i, seals = 0;

	if (to == from)
		return;
	/* What is written to its own place all the same, by chance, does no harm. */
	for (i = 0; i < blocks; i++)
		bad_block(d, from + i, data + i * SIM_BLOCK);
	for (i = 0; i < blocks; i++) {
		bad_block(d, to + i, d->vis[to + i]->data);
		seals += (to + i) % CHUNK >= CHUNK - SEALS;
		if (seals == SEALS)
			lost_chunk(d, (to + i) / CHUNK);
		if ((to + i) % CHUNK == CHUNK - 1)
			seals = 0;
	}
	/* One copy of a seal has overwritten the other one: an older one counts. */
	if (head(data, VC_LOG_SEAL) && to / CHUNK == from / CHUNK)
		lost_chunk(d, to / CHUNK);
	for (i = 0; i < blocks; i++) {
		/* What was there has been overwritten, or has never arrived. */
		if ((from + i) % CHUNK == 0)
			name_lost(d, (from + i) / CHUNK);
		if ((to + i) % CHUNK == 0 &&
		    !names(data + i * SIM_BLOCK, d->vis[to + i]->data))
			name_lost(d, (to + i) / CHUNK);
	}
	note_record(data);
	if (sim_verbose)
		fprintf(stderr, "[%lu.%llu]     MISDIRECTED %u+%u to %u\n", sim_jiffies, sim_steps,
			from, blocks, to);
	*sector = to * 8;
}

static const u8 *rot(struct sim_disk *d, sector_t sector, u32 n, const u8 *data)
{
	u8 *copy = sim_alloc(n * SECTOR_SIZE, GFP_KERNEL);
	u32 s = sim_below(&rng, n), bits = 1 + sim_below(&rng, 8);

	/* Half of the time in the record. */
	if (sim_chance(&rng, 2))
		s %= 8;
	memcpy(copy, data, n * SECTOR_SIZE);
	while (bits--)
		copy[s * SECTOR_SIZE + sim_below(&rng, SECTOR_SIZE)] ^= 1 << sim_below(&rng, 8);
	if (!memcmp(copy, data, n * SECTOR_SIZE))
		return copy;
	bad_block(d, (sector + s) / 8, data + s / 8 * SIM_BLOCK);
	if ((sector + s) / 8 % CHUNK == 0 && !names(copy + s / 8 * SIM_BLOCK, data + s / 8 * SIM_BLOCK))
		name_lost(d, (sector + s) / 8 / CHUNK);
	note_record(data);
	if (sim_verbose)
		fprintf(stderr, "[%lu.%llu]     ROT in sector %llu, write %llu+%u\n", sim_jiffies,
			sim_steps, sector + s, sector, n);
	return copy;
}

const u8 *sim_damage(struct sim_disk *d, sector_t *sector, u32 n, const u8 *data)
{
	if (!plan.kind || d != &sim_disks[SIM_CACHE] || *sector % 8 || n % 8 || ++writes != plan.nth)
		return data;
	if (plan.kind == SIM_ROT)
		return rot(d, *sector, n, data);
	misdirect(d, sector, n, data);
	return data;
}

/* Garbage on its way to the origin is there also after a power cut. */
static void sent_to_origin(sector_t sector, u32 n, const u8 *data)
{
	u32 i, k;

	for (k = 0; k < n; k++) {
		if (sim_stamp_of(data + k * SECTOR_SIZE, sector + k) != SIM_FOREIGN)
			continue;
		for (i = 0; i < nopen; i++) {
			if (open_[i].sector == (sector + k) / 8 * 8)
				oracle_sealed(open_[i].sector, 8);
		}
	}
}

static void sent_to_cache(sector_t sector, u32 n, const u8 *data)
{
	u32 chunk = sector / 8 / CHUNK, i;

	lost_records(sector, n, data);
	for (i = 0; sector / 8 % CHUNK >= CHUNK - SEALS && i < nopen; i++) {
		if (open_[i].chunk == chunk)
			oracle_sealed(open_[i].sector, 8);
	}
}

void sim_damage_sent(const struct sim_disk *d, sector_t sector, u32 n, const u8 *data)
{
	if (!nopen && !any_nameless)
		return;
	if (d == &sim_disks[SIM_ORIGIN])
		sent_to_origin(sector, n, data);
	else
		sent_to_cache(sector, n, data);
}
