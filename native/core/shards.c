// SPDX-License-Identifier: GPL-2.0
#include "shards.h"

/* Blocks of a group, less one: 16 MiB. */
#define VC_GROUP 0xfffULL
/* 2^64 divided by the golden ratio, then a one that keeps the hash one-to-one. */
#define VC_STEP (0x9e3779b97f4a7000ULL | 1)
#define VC_LINE 8U
#define VC_WORD 64U
#define VC_NODE 16U
#ifdef __KERNEL__
/* Requests are small, and what is on the stack is cleared for each. */
#define VC_BATCH 8U
#else
#define VC_BATCH 64U
#endif
#define VC_SHARDS_FRACTION ((1U << VC_SHARDS_ONE_SHIFT) - 1)
/* R of 2^-35: what is smaller is taken for it. */
#define VC_SHARDS_LIMIT_MIN ((1ULL << 29) - 1)

/*
 * Where a group begins. One-to-one in its upper 52 bits, and the lower ones
 * are 0: with steps that end in 1 the hash of a block is its own alone.
 * Multipliers and shifts: MurmurHash3's fmix64 (A. Appleby, public domain).
 */
static inline u64 vc_group_hash(u64 salt, u64 block)
{
	u64 x = (block ^ salt) & ~VC_GROUP;

	x ^= (x >> 33) & ~VC_GROUP;
	x *= 0xff51afd7ed558ccdULL;
	x ^= (x >> 33) & ~VC_GROUP;
	x *= 0xc4ceb9fe1a85ec53ULL;
	return x ^ ((x >> 33) & ~VC_GROUP);
}

static inline u64 vc_block_hash(u64 salt, u64 block)
{
	return vc_group_hash(salt, block) + (block & VC_GROUP) * VC_STEP;
}

static inline u32 vc_bits(u64 x)
{
#if defined(__KERNEL__)
	return hweight64(x);
#elif defined(__POPCNT__)
	return __builtin_popcountll(x);
#else
	x -= x >> 1 & 0x5555555555555555ULL;
	x = (x & 0x3333333333333333ULL) + (x >> 2 & 0x3333333333333333ULL);
	x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
	return x * 0x0101010101010101ULL >> 56;
#endif
}

/* Nodes of the tree, all levels. */
static u32 vc_tree_nodes(u32 places)
{
	u32 n = places / VC_WORD, nodes = 0;

	do {
		n = (n + VC_NODE - 1) / VC_NODE;
		nodes += n;
	} while (n > 1);
	return nodes;
}

/* 2^(64 + 16) / (@limit + 1), exact for 1, else to about 2^-16. */
static u64 vc_weight_of(u64 limit)
{
	u32 zeroes;
	u64 w;

	if (limit >= VC_SHARDS_ALL - (1ULL << 32))
		return 1ULL << VC_SHARDS_ONE_SHIFT;
	if (limit < VC_SHARDS_LIMIT_MIN)
		limit = VC_SHARDS_LIMIT_MIN;
	limit++;
	zeroes = __builtin_clzll(limit);
	w = div_u64(1ULL << 63, limit << zeroes >> 32);
	if (zeroes >= 15)
		return w << (zeroes - 15);
	return ((w >> (14 - zeroes)) + 1) >> 1;
}

/*
 * The slot where the search for a hash begins. Eight blocks in a row share a
 * line of the processor's cache.
 */
static inline u32 vc_home(const struct vc_shards *s, u64 hash)
{
	u64 low = hash & VC_GROUP;
	u64 line = hash - low * VC_STEP + (low / VC_LINE) * 0xd1b54a32d192ed03ULL;

	line = (line ^ line >> 32) * 0xaef17502108ef2d9ULL >> s->slot_shift;
	return line * VC_LINE + low % VC_LINE;
}

static inline u32 vc_slots(const struct vc_shards *s)
{
	return VC_LINE << (64 - s->slot_shift);
}

/* The slot of a hash, or the free one where it would be; @slot is its home. */
static inline u32 vc_find(const struct vc_shards *s, u64 hash, u32 slot)
{
	u32 mask = vc_slots(s) - 1;

	while (s->place[slot] && s->key[slot] != hash)
		slot = (slot + 1) & mask;
	return slot;
}

/* Free a slot; those that were put behind it move up. */
static void vc_free_slot(struct vc_shards *s, u32 slot)
{
	u32 mask = vc_slots(s) - 1, i = slot;

	for (;;) {
		i = (i + 1) & mask;
		if (!s->place[i])
			break;
		if (((i - vc_home(s, s->key[i])) & mask) < ((i - slot) & mask))
			continue;
		s->key[slot] = s->key[i];
		s->place[slot] = s->place[i];
		slot = i;
	}
	s->place[slot] = 0;
}

/* How many places up to @place, itself included, are live? */
static inline u32 vc_rank(const struct vc_shards *s, u32 place)
{
	u32 word = place / VC_WORD, n, level;

	n = vc_bits(s->live[word] << (VC_WORD - 1 - place % VC_WORD));
	for (level = 0; level < s->levels; level++, word /= VC_NODE)
		n += s->tree[level][word];
	return n;
}

/* There are @n more in a word: what is behind it has as many more before it. */
static inline void vc_add(struct vc_shards *s, u32 word, u32 n)
{
	u32 level, i;

	for (level = 0; level < s->levels; level++, word /= VC_NODE) {
		u32 *node = s->tree[level] + word / VC_NODE * VC_NODE;
		u32 child = word % VC_NODE;

#ifdef __KERNEL__
		for (i = child + 1; i < VC_NODE; i++)
			node[i] += n;
#else
		/* All of them, as vectors, take less time than half of them. */
		for (i = 0; i < VC_NODE; i++)
			node[i] += i > child ? n : 0;
#endif
	}
}

static inline void vc_clear(struct vc_shards *s, u32 place)
{
	u32 word = place / VC_WORD;

	s->live[word] &= ~(1ULL << place % VC_WORD);
	if (word != s->next / VC_WORD)
		vc_add(s, word, -1);
}

/* Mark the next place. The tree knows of a word when it is full. */
static inline void vc_mark(struct vc_shards *s)
{
	u32 word = s->next / VC_WORD;

	s->live[word] |= 1ULL << s->next % VC_WORD;
	if (!(++s->next % VC_WORD))
		vc_add(s, word, vc_bits(s->live[word]));
}

/* Live places 0 ... @n - 1, and no other. */
static void vc_fill(struct vc_shards *s, u32 n)
{
	memset(s->live, 0, s->places / 8);
	memset(s->tree[0], 0, vc_tree_nodes(s->places) * VC_NODE * sizeof(u32));
	s->next = 0;
	while (s->next + VC_WORD <= n) {
		s->live[s->next / VC_WORD] = ~0ULL;
		vc_add(s, s->next / VC_WORD, VC_WORD);
		s->next += VC_WORD;
	}
	while (s->next < n)
		vc_mark(s);
}

/* Number the places anew, without those that are not live. */
static void vc_renumber(struct vc_shards *s)
{
	u32 slot, word, n, before = 0, slots = vc_slots(s);

	/* The tree's memory: how many are live before each word. */
	for (word = 0; word < s->places / VC_WORD; word++) {
		n = vc_bits(s->live[word]);
		s->tree[0][word] = before;
		before += n;
	}
	for (slot = 0; slot < slots; slot++) {
		u32 place = s->place[slot] - 1;

		if (!s->place[slot])
			continue;
		word = place / VC_WORD;
		s->place[slot] = s->tree[0][word] +
			vc_bits(s->live[word] << (VC_WORD - 1 - place % VC_WORD));
	}
	vc_fill(s, s->used);
}

static void vc_sift_down(struct vc_shards *s, u32 i)
{
	u64 hash = s->heap[i];
	u32 child;

	for (; (child = 2 * i + 1) < s->used; i = child) {
		if (child + 1 < s->used)
			child += s->heap[child] < s->heap[child + 1];
		if (s->heap[child] <= hash)
			break;
		s->heap[i] = s->heap[child];
	}
	s->heap[i] = hash;
}

/* All in the sample; it was never full before. */
static void vc_make_heap(struct vc_shards *s)
{
	u32 slot, i = 0, slots = vc_slots(s);

	for (slot = 0; slot < slots; slot++) {
		if (s->place[slot])
			s->heap[i++] = s->key[slot];
	}
	while (i--)
		vc_sift_down(s, i);
	s->heaped = true;
}

/*
 * Make room in the full sample for @hash: the largest goes, and is the new T.
 * When that is @hash itself, false.
 */
static bool vc_replace(struct vc_shards *s, u64 hash)
{
	u64 largest;
	u32 slot;

	if (!s->heaped)
		vc_make_heap(s);
	largest = s->heap[0];
	if (hash > largest) {
		s->setup.limit = hash - 1;
	} else {
		slot = vc_find(s, largest, vc_home(s, largest));
		vc_clear(s, s->place[slot] - 1);
		vc_free_slot(s, slot);
		s->heap[0] = hash;
		vc_sift_down(s, 0);
		s->setup.limit = largest - 1;
	}
	s->weight = vc_weight_of(s->setup.limit);
	return hash < largest;
}

/* Pairs of buckets become one. */
static void vc_halve(u64 *hist, u32 n)
{
	u32 i;

	for (i = 0; i < n; i++) {
		u64 sum = 2 * i < n ? hist[2 * i] : 0;

		if (2 * i + 1 < n)
			sum += hist[2 * i + 1];
		hist[i] = sum;
	}
}

/* Twice as many distances to a bucket, until @distance is in the last. */
static void vc_coarsen(struct vc_shards *s, u64 distance)
{
	u32 i;

	while (distance >> s->setup.grain_shift >= s->setup.buckets) {
		for (i = 0; i < s->setup.kinds; i++)
			vc_halve(s->kind[i].hist, s->setup.buckets);
		s->setup.grain_shift++;
	}
}

static inline void vc_count(struct vc_shards *s, u64 *hist, u32 distance)
{
	/* Less than 2^28 by 2^35, and of the fraction 2^28 by 2^16. */
	u64 scaled = distance * (s->weight >> VC_SHARDS_ONE_SHIFT) +
		(distance * (s->weight & VC_SHARDS_FRACTION) >>
		 VC_SHARDS_ONE_SHIFT);

	if (scaled >> s->setup.grain_shift >= s->setup.buckets)
		vc_coarsen(s, scaled);
	hist[scaled >> s->setup.grain_shift] += s->weight;
}

/* An access to a block whose hash is under T; false: there is no room. */
static inline bool vc_sampled(struct vc_shards *s, struct vc_shards_kind *kind,
			      u64 hash, u32 home)
{
	u32 slot = vc_find(s, hash, home), place = s->place[slot];

	if (place) {
		vc_count(s, kind->hist, s->used - vc_rank(s, place - 1));
		vc_clear(s, place - 1);
	} else if (s->used < s->setup.samples) {
		s->key[slot] = hash;
		s->used++;
	} else {
		if (s->setup.fixed_rate)
			return false;
		if (!vc_replace(s, hash))
			return true;
		slot = vc_find(s, hash, home);
		s->key[slot] = hash;
	}
	s->place[slot] = s->next + 1;
	vc_mark(s);
	kind->weighed += s->weight;
	if (s->next == s->places)
		vc_renumber(s);
	return true;
}

/* Hash @n blocks; those under T, and which they are. Return how many. */
static inline u32 vc_sample(const struct vc_shards *s, const u64 *blocks,
			    u32 n, u64 *hash, u8 *which)
{
	u64 salt = s->salt, limit = s->setup.limit;
	u32 i, taken = 0;

	/* Nobody can foretell which: no branch depends on it. */
	for (i = 0; i < n; i++) {
		hash[taken] = vc_block_hash(salt, blocks[i]);
		which[taken] = i;
		taken += hash[taken] <= limit;
	}
	return taken;
}

/**
 * vc_shards_touch - blocks were accessed
 * @s: the estimate
 * @kind: of the accesses, less than @s->setup.kinds
 * @blocks: their numbers, in units of the cache, in the order of the accesses
 * @n: how many
 *
 * Return: for how many of them there was room. Less than @n only at a fixed
 * rate; the caller can go on with the others after vc_shards_move().
 */
size_t vc_shards_touch(struct vc_shards *s, u32 kind, const u64 *blocks,
		       size_t n)
{
	struct vc_shards_kind *counted = &s->kind[kind];
	u64 hash[VC_BATCH];
	u32 home[VC_BATCH];
	u8 which[VC_BATCH];
	size_t done, batch;
	u32 i, taken;

	for (done = 0; done < n; done += batch) {
		batch = n - done < VC_BATCH ? n - done : VC_BATCH;
		taken = vc_sample(s, blocks + done, batch, hash, which);
		for (i = 0; i < taken; i++) {
			home[i] = vc_home(s, hash[i]);
			__builtin_prefetch(&s->place[home[i]]);
			__builtin_prefetch(&s->key[home[i]]);
		}
		for (i = 0; i < taken; i++) {
			/* T may have become less on the way. */
			if (hash[i] <= s->setup.limit &&
			    !vc_sampled(s, counted, hash[i], home[i])) {
				done += which[i];
				counted->accesses += done;
				return done;
			}
		}
	}
	counted->accesses += n;
	return n;
}

static u32 vc_slot_shift(u32 samples)
{
	u32 shift = 64;

	while ((VC_LINE << (64 - shift)) / 2 < samples)
		shift--;
	return shift;
}

static u32 vc_places(u32 samples)
{
	return (samples + VC_WORD / 4 - 1) / (VC_WORD / 4) * VC_WORD;
}

/**
 * vc_shards_size - the memory that an estimate needs
 * @setup: what is wanted
 *
 * Return: bytes, 0 when @setup is not allowed. For 8,192 samples 262 KiB, and
 * 8 bytes for a bucket of each kind.
 */
size_t vc_shards_size(const struct vc_shards_setup *setup)
{
	u64 slots, places, size;

	if (setup->samples < VC_SHARDS_MIN || setup->samples > VC_SHARDS_MAX ||
	    !setup->kinds || setup->kinds > VC_SHARDS_KINDS ||
	    setup->buckets < 2 || setup->buckets > 1U << 30 ||
	    setup->grain_shift > 32 || setup->limit < VC_SHARDS_LIMIT_MIN)
		return 0;
	slots = VC_LINE << (64 - vc_slot_shift(setup->samples));
	places = vc_places(setup->samples);
	size = slots * (sizeof(u64) + sizeof(u32)) + places / 8 +
		vc_tree_nodes(places) * VC_NODE * sizeof(u32) +
		(setup->fixed_rate ? 0 : setup->samples * sizeof(u64)) +
		(u64)setup->kinds * setup->buckets * sizeof(u64);
	return size == (size_t)size ? size : 0;
}

/**
 * vc_shards_init - begin with an empty sample
 * @s: the estimate
 * @setup: what is wanted; copied
 * @memory: vc_shards_size() bytes, aligned as a u64
 *
 * Return: 0, or -EINVAL when @setup is not allowed.
 */
int vc_shards_init(struct vc_shards *s, const struct vc_shards_setup *setup,
		   void *memory)
{
	size_t size = vc_shards_size(setup);
	u32 slots, n, i;

	if (!size)
		return -EINVAL;
	memset(s, 0, sizeof(*s));
	memset(memory, 0, size);
	s->setup = *setup;
	s->slot_shift = vc_slot_shift(setup->samples);
	s->places = vc_places(setup->samples);
	s->weight = vc_weight_of(setup->limit);
	s->salt = vc_group_hash(0, setup->salt * (VC_GROUP + 1));
	slots = vc_slots(s);
	s->key = memory;
	s->live = s->key + slots;
	s->heap = s->live + s->places / VC_WORD;
	for (i = 0; i < setup->kinds; i++) {
		s->kind[i].hist = s->heap;
		s->heap += setup->buckets;
	}
	s->place = (u32 *)(s->heap + (setup->fixed_rate ? 0 : setup->samples));
	s->tree[0] = s->place + slots;
	n = s->places / VC_WORD;
	do {
		n = (n + VC_NODE - 1) / VC_NODE;
		s->tree[s->levels + 1] = s->tree[s->levels] + n * VC_NODE;
		s->levels++;
	} while (n > 1);
	return 0;
}

/**
 * vc_shards_move - go on with more room
 * @to: as vc_shards_init() left it, with as many @samples and @buckets as
 *	@from or more, all else in its setup as it was in that of @from
 * @from: not used any more but for its memory
 *
 * Takes time in proportion to the room in both.
 */
void vc_shards_move(struct vc_shards *to, const struct vc_shards *from)
{
	u32 i, slots = vc_slots(from);

	to->setup.limit = from->setup.limit;
	to->setup.grain_shift = from->setup.grain_shift;
	to->weight = from->weight;
	to->used = from->used;
	for (i = 0; i < from->setup.kinds; i++) {
		to->kind[i].accesses = from->kind[i].accesses;
		to->kind[i].weighed = from->kind[i].weighed;
		memcpy(to->kind[i].hist, from->kind[i].hist,
		       from->setup.buckets * sizeof(u64));
	}
	for (i = 0; i < slots; i++) {
		u32 slot;

		if (!from->place[i])
			continue;
		slot = vc_find(to, from->key[i], vc_home(to, from->key[i]));
		to->key[slot] = from->key[i];
		to->place[slot] = vc_rank(from, from->place[i] - 1);
	}
	vc_fill(to, to->used);
}

/**
 * vc_shards_footprint - how many different blocks were accessed?
 * @s: the estimate
 *
 * Return: about so many; exact while all of them are in the sample.
 */
u64 vc_shards_footprint(const struct vc_shards *s)
{
	return s->used * (s->weight >> VC_SHARDS_ONE_SHIFT) +
		(s->used * (s->weight & VC_SHARDS_FRACTION) >>
		 VC_SHARDS_ONE_SHIFT);
}

/**
 * vc_shards_curve - how many of the accesses would have missed?
 * @s: the estimate
 * @kind: of the accesses
 * @sizes: of the cache in blocks, in ascending order
 * @n: how many
 * @misses: of each of them. It falls with the size; in a bucket it falls
 *	evenly.
 */
void vc_shards_curve(const struct vc_shards *s, u32 kind, const u64 *sizes,
		     size_t n, u64 *misses)
{
	const struct vc_shards_kind *k = &s->kind[kind];
	u32 shift = s->setup.grain_shift, bucket = 0;
	u64 rest = (1ULL << shift) - 1;
	/* SHARDS_adj; it wraps when it is less than 0, as does the sum. */
	u64 hits = (k->accesses << VC_SHARDS_ONE_SHIFT) - k->weighed;
	size_t i;

	for (i = 0; i < n; i++) {
		u64 part = 0, whole, size = sizes[i];

		for (; bucket < size >> shift && bucket < s->setup.buckets; bucket++)
			hits += k->hist[bucket];
		if (bucket < s->setup.buckets)
			part = (k->hist[bucket] >> shift) * (size & rest) +
				((k->hist[bucket] & rest) * (size & rest) >>
				 shift);
		part += hits;
		if (!size || part >> 63)
			part = 0;
		whole = (part + VC_SHARDS_FRACTION / 2 + 1) >>
			VC_SHARDS_ONE_SHIFT;
		misses[i] = whole < k->accesses ? k->accesses - whole : 0;
	}
}
