// SPDX-License-Identifier: GPL-2.0
#include "shards.h"

/* Blocks of a group, less one: 16 MiB. */
#define VC_GROUP 0xfffULL
/* 2^64 divided by the golden ratio; the last bit is 1, so that the hash is a bijection. */
#define VC_STEP (0x9e3779b97f4a7000ULL | 1)
#define VC_LINE 8U
#define VC_WORD 64U
#define VC_NODE 16U
#ifdef __KERNEL__
/* In the kernel requests are small, and the stack is cleared for each of them. */
#define VC_BATCH 8U
#else
#define VC_BATCH 64U
#endif
#define VC_SHARDS_FRACTION ((1U << VC_SHARDS_ONE_SHIFT) - 1)
/* R of 2^-35: a smaller R is replaced by it. */
#define VC_SHARDS_LIMIT_MIN ((1ULL << 29) - 1)

/*
 * Find where a group begins. The upper 52 bits are a bijection, and the lower ones are 0:
 * with steps that end in 1, no two blocks have the same hash. Multipliers and shifts:
 * MurmurHash3's fmix64 (A. Appleby, public domain).
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

/* Number of nodes of the tree, in all levels. */
static u32 vc_tree_nodes(u32 places)
{
	u32 n = places / VC_WORD, nodes = 0;

	do {
		n = (n + VC_NODE - 1) / VC_NODE;
		nodes += n;
	} while (n > 1);
	return nodes;
}

/* 2^(64 + 16) / (@limit + 1); exact for 1, else to about 2^-16. */
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
 * Find the slot where the search for a hash begins. Eight consecutive blocks share a cache
 * line of the processor.
 */
static inline u32 vc_home(const struct vcache_shards *s, u64 hash)
{
	u64 low = hash & VC_GROUP;
	u64 line = hash - low * VC_STEP + (low / VC_LINE) * 0xd1b54a32d192ed03ULL;

	line = (line ^ line >> 32) * 0xaef17502108ef2d9ULL >> s->slot_shift;
	return line * VC_LINE + low % VC_LINE;
}

static inline u32 vc_slots(const struct vcache_shards *s)
{
	return VC_LINE << (64 - s->slot_shift);
}

/* Find the slot of a hash, or the free one for it; @slot is where the search begins. */
static inline u32 vc_find(const struct vcache_shards *s, u64 hash, u32 slot)
{
	u32 mask = vc_slots(s) - 1;

	while (s->place[slot] && s->key[slot] != hash)
		slot = (slot + 1) & mask;
	return slot;
}

/* Free a slot, and move up those that were put behind it. */
static void vc_free_slot(struct vcache_shards *s, u32 slot)
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

/* Count the live places up to @place, including that. */
static inline u32 vc_rank(const struct vcache_shards *s, u32 place)
{
	u32 word = place / VC_WORD, n, level;

	n = vc_bits(s->live[word] << (VC_WORD - 1 - place % VC_WORD));
	for (level = 0; level < s->levels; level++, word /= VC_NODE)
		n += s->tree[level][word];
	return n;
}

/* Add @n to a word: all words behind it have @n more before them. */
static inline void vc_add(struct vcache_shards *s, u32 word, u32 n)
{
	u32 level, i;

	for (level = 0; level < s->levels; level++, word /= VC_NODE) {
		u32 *node = s->tree[level] + word / VC_NODE * VC_NODE;
		u32 child = word % VC_NODE;

#ifdef __KERNEL__
		for (i = child + 1; i < VC_NODE; i++)
			node[i] += n;
#else
		/* As vectors, all of them take less time than half of them. */
		for (i = 0; i < VC_NODE; i++)
			node[i] += i > child ? n : 0;
#endif
	}
}

static inline void vc_clear(struct vcache_shards *s, u32 place)
{
	u32 word = place / VC_WORD;

	s->live[word] &= ~(1ULL << place % VC_WORD);
	if (word != s->next / VC_WORD)
		vc_add(s, word, -1);
}

/* Mark the next place. A word is added to the tree when it is full. */
static inline void vc_mark(struct vcache_shards *s)
{
	u32 word = s->next / VC_WORD;

	s->live[word] |= 1ULL << s->next % VC_WORD;
	if (!(++s->next % VC_WORD))
		vc_add(s, word, vc_bits(s->live[word]));
}

/* Make places 0 to @n - 1 live, and no other. */
static void vc_fill(struct vcache_shards *s, u32 n)
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

/* Renumber the places, without those that are not live. */
static void vc_renumber(struct vcache_shards *s)
{
	u32 slot, word, n, before = 0, slots = vc_slots(s);

	/* Use the memory of the tree to count the live places before each word. */
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

static void vc_sift_down(struct vcache_shards *s, u32 i)
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

/* Put the whole sample on the heap; it was not full before. */
static void vc_make_heap(struct vcache_shards *s)
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
 * Make space for @hash in the full sample: drop the largest hash, which becomes T. Return:
 * false if that is @hash itself.
 */
static bool vc_replace(struct vcache_shards *s, u64 hash)
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

/* Merge pairs of buckets. */
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

/* Double the distances of a bucket until @distance is in the last one. */
static void vc_coarsen(struct vcache_shards *s, u64 distance)
{
	u32 i;

	while (distance >> s->setup.grain_shift >= s->setup.buckets) {
		for (i = 0; i < s->setup.kinds; i++)
			vc_halve(s->kind[i].hist, s->setup.buckets);
		s->setup.grain_shift++;
	}
}

static inline void vc_count(struct vcache_shards *s, u64 *hist, u32 distance)
{
	/* No overflow: below 2^28 by 2^35, and for the fraction 2^28 by 2^16. */
	u64 scaled = distance * (s->weight >> VC_SHARDS_ONE_SHIFT) +
		(distance * (s->weight & VC_SHARDS_FRACTION) >>
		 VC_SHARDS_ONE_SHIFT);

	if (scaled >> s->setup.grain_shift >= s->setup.buckets)
		vc_coarsen(s, scaled);
	hist[scaled >> s->setup.grain_shift] += s->weight;
}

/* Count an access to a block whose hash is under T. Return: false without space. */
static inline bool vc_sampled(struct vcache_shards *s, struct vcache_shards_kind *kind,
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

/* Hash @n blocks. Return: how many hashes are under T; @which says of which blocks. */
static inline u32 vc_sample(const struct vcache_shards *s, const u64 *blocks,
			    u32 n, u64 *hash, u8 *which)
{
	u64 salt = s->salt, limit = s->setup.limit;
	u32 i, taken = 0;

	/* The processor cannot predict which, so no branch depends on it. */
	for (i = 0; i < n; i++) {
		hash[taken] = vc_block_hash(salt, blocks[i]);
		which[taken] = i;
		taken += hash[taken] <= limit;
	}
	return taken;
}

/**
 * vcache_shards_touch - count accesses to blocks
 * @s: the estimate
 * @kind: kind of the accesses, less than @s->setup.kinds
 * @blocks: block numbers, in units of the cache, in the order of the accesses
 * @n: how many
 *
 * Return: how many were counted. Less than @n only at a fixed rate; the caller can continue
 * with the others after vcache_shards_move().
 */
size_t vcache_shards_touch(struct vcache_shards *s, u32 kind, const u64 *blocks,
			   size_t n)
{
	struct vcache_shards_kind *counted = &s->kind[kind];
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
			/* T may have become smaller in this loop. */
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
 * vcache_shards_size - compute the memory that an estimate needs
 * @setup: what is wanted
 *
 * Return: bytes; 0 if @setup is not allowed. 8,192 samples need 262 KiB, and 8 bytes for
 * each bucket of each kind.
 */
size_t vcache_shards_size(const struct vcache_shards_setup *setup)
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
 * vcache_shards_init - initialise an estimate with an empty sample
 * @s: the estimate
 * @setup: what is wanted; copied
 * @memory: vcache_shards_size() bytes, aligned as a u64
 *
 * Return: 0, or -EINVAL if @setup is not allowed.
 */
int vcache_shards_init(struct vcache_shards *s, const struct vcache_shards_setup *setup,
		       void *memory)
{
	size_t size = vcache_shards_size(setup);
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
 * vcache_shards_move - continue with a larger estimate
 * @to: just initialised by vcache_shards_init(), with at least as many @samples and @buckets as
 *	@from; the rest of its setup as that of @from was
 * @from: not used any more; its memory can be freed
 *
 * Takes time in proportion to the size of both.
 */
void vcache_shards_move(struct vcache_shards *to, const struct vcache_shards *from)
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
 * vcache_shards_footprint - estimate how many different blocks were accessed
 * @s: the estimate
 *
 * Return: the number; exact while all of them are in the sample.
 */
u64 vcache_shards_footprint(const struct vcache_shards *s)
{
	return s->used * (s->weight >> VC_SHARDS_ONE_SHIFT) +
		(s->used * (s->weight & VC_SHARDS_FRACTION) >>
		 VC_SHARDS_ONE_SHIFT);
}

/**
 * vcache_shards_curve - compute how many accesses would have missed
 * @s: the estimate
 * @kind: kind of the accesses
 * @sizes: cache sizes in blocks, in ascending order
 * @n: how many
 * @misses: the misses for each of them; they fall with the size, evenly inside a bucket
 */
void vcache_shards_curve(const struct vcache_shards *s, u32 kind, const u64 *sizes,
			 size_t n, u64 *misses)
{
	const struct vcache_shards_kind *k = &s->kind[kind];
	u32 shift = s->setup.grain_shift, bucket = 0;
	u64 rest = (1ULL << shift) - 1;
	/* SHARDS_adj; below 0 it wraps, and so does the sum. */
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
