// SPDX-License-Identifier: GPL-2.0-only
/*
 * The simulation: the oracle, written from doc/source/durability.rst and nothing else.
 *
 * DOC: What is checked
 *
 * Each write has a number, which all its sectors show. The oracle keeps the writes that a
 * sector may show. Write a is *before* write b if a was complete when b was sent. Two writes
 * that were under way at the same time are in no order.
 *
 * - "visible at once": a read shows no write that is before another one that was complete when
 *   the read was sent.
 * - "durable when a flush that covers it, or its own FUA, completes" (rule 1) and "after a
 *   crash each sector holds its last durable content or a later completed write" (rule 4):
 *   after a power cut no sector shows a write that is before a durable one. It may show any
 *   other one, also a write that was still under way. After a flush that has failed nothing
 *   new is known to be durable.
 * - "a flush by tag A covers every completed write of A and every untagged write" (rule 2):
 *   those that were complete when it was sent. "A flush that cannot be attributed covers
 *   everything" (rule 3).
 * - "every flush covers a tag that has been removed": writes of a tag that was removed before
 *   the flush was sent.
 * - "overwritten under another tag": the block is shared, and every flush covers it until it is
 *   durable. So a write of one tag is covered by every flush that is sent after another tag's
 *   later write to the same block has completed. Whether the second write is covered as well
 *   depends on whether the first one was durable by then, which the oracle cannot know.
 * - "never torn, never another sector's": stamps of sectors say so, see sim_stamp_of(). "Never
 *   another tag's": a write that has not covered the sector is not among the possible ones.
 * - "discarded": until a later write is durable, any earlier content of the sector may return,
 *   or zeroes. But a write that completes after the discard is visible at once.
 * - "The cache device returns wrong data": a sector of a block that is *lost* may show any of its
 *   earlier contents after a power cut, like a discarded one. If the block is *garbled*, reads of
 *   it show anything; after a power cut only if its chunk was sealed. Once a later write is durable
 *   the sector is as all others. What the fault does not concern has to keep all of the rules
 *   above: see faults.c for which blocks it concerns.
 * - A write that has failed may be seen or not.
 * - What has been read after a power cut was durable: the next history begins with it.
 */
#include "oracle.h"

#define BLOCK 8U	/* sectors */

enum kind { WRITE, DISCARD };

struct entry {
	enum kind kind;
	u32 tag;		/* and which life of it */
	u32 life;
	u32 sector, n;
	u64 sent, done;		/* done 0: under way */
	bool fua, failed, durable;
	u64 gone;		/* when its tag was removed */
	u64 foreign;		/* when a later write of another tag to its blocks was done */
};

struct sector {
	u32 alive[ORACLE_ALIVE];
	u32 n;
	u32 wild;		/* the discard whose effect is not known */
	u32 garbled;		/* since this entry; 0: it is not */
	u64 mended;		/* when it was not any more: a read may have begun before */
	bool sealed;		/* also after a power cut */
	bool forever;		/* wild until the next power cut */
	bool spoilt;		/* it was sealed once: a discard may uncover that */
	u32 base;
};

static struct entry all[ORACLE_WRITES];
static u32 nr;			/* the next number; 0 and 1 are the content of a new disk */
static u32 first;		/* numbers below are from before the last power cut */
static struct sector sectors[ORACLE_SECTORS];
static u32 nsectors;
static u64 now;
static u32 life[ORACLE_TAGS];
static u64 hash;

static void event(u64 what)
{
	hash = (hash ^ what) * 0x9e3779b97f4a7c15ULL;
	hash ^= hash >> 29;
}

/* How many words of a view are about a sector? See oracle_view(). */
#define WILD 255U
#define GARBLED 254U

static u32 words(u32 count)
{
	return count >= GARBLED ? 1 : 1 + count;
}

static struct entry *entry(u32 id)
{
	return &all[id % ORACLE_WRITES];
}

void oracle_reset(u32 n, const u32 *content, const struct oracle_view *left)
{
	u32 s, at = 0;

	if (!content)
		nr = 1;
	/* A number that is no write, for discards of which the last power cut left something. */
	nr++;
	memset(entry(nr - 1), 0, sizeof(struct entry));
	first = nr;
	nsectors = n;
	now = 1;
	hash = 1;
	memset(life, 0, sizeof(life));
	for (s = 0; s < n; s++) {
		sectors[s].base = content ? content[s] : 0;
		sectors[s].alive[0] = sectors[s].base;
		sectors[s].n = 1;
		sectors[s].wild = 0;
		sectors[s].garbled = 0;
		sectors[s].mended = 0;
		sectors[s].sealed = false;
		sectors[s].forever = false;
		sectors[s].spoilt &= !!left;
		if (left && at < left->n && left->word[at] >> 8 == s) {
			u32 count = left->word[at] & 255;

			at += words(count);
			if (count >= GARBLED)
				sectors[s].wild = first - 1;
			if (count == GARBLED) {
				sectors[s].garbled = first - 1;
				sectors[s].sealed = true;
				sectors[s].spoilt = true;
			}
		}
	}
}

bool oracle_view_is_wild(const struct oracle_view *v, u32 s)
{
	u32 at = 0, count;

	for (; at < v->n && v->word[at] >> 8 <= s; at += words(count)) {
		count = v->word[at] & 255;
		if (v->word[at] >> 8 == s)
			return count >= GARBLED;
	}
	return false;
}

/* The base was complete and durable before everything else. */
static bool before(u32 a, u32 b)
{
	if (b < first)
		return false;
	if (a < first)
		return true;
	return entry(a)->done && entry(a)->done < entry(b)->sent;
}

static u32 make(enum kind kind, u32 tag, u32 sector, u32 n, bool fua)
{
	struct entry *e = entry(nr);

	BUG_ON(nr - first >= ORACLE_WRITES - 1);
	memset(e, 0, sizeof(*e));
	e->kind = kind;
	e->tag = tag;
	e->life = life[tag];
	e->sector = sector;
	e->n = n;
	e->fua = fua;
	e->sent = ++now;
	event((u64)nr << 8 | kind);
	return nr++;
}

u32 oracle_write(u32 tag, u32 sector, u32 n, bool fua)
{
	u32 id = make(WRITE, tag, sector, n, fua), s;

	for (s = sector; s < sector + n; s++) {
		BUG_ON(sectors[s].n == ORACLE_ALIVE);
		sectors[s].alive[sectors[s].n++] = id;
	}
	return id;
}

u32 oracle_discard(u32 sector, u32 n)
{
	u32 id = make(DISCARD, 0, sector, n, false), s;

	for (s = sector; s < sector + n; s++)
		sectors[s].wild = id;
	return id;
}

void oracle_discard_done(u32 id)
{
	entry(id)->done = ++now;
	event(id << 8 | 0xd0);
}

void oracle_lost(u32 sector, u32 n, bool forever)
{
	u32 s;

	n = min(n, nsectors - min(sector, nsectors));
	if (!n)
		return;
	oracle_discard_done(oracle_discard(sector, n));
	for (s = sector; s < sector + n; s++)
		sectors[s].forever |= forever;
}

void oracle_garbled(u32 sector, u32 n, bool sealed)
{
	u32 s;

	oracle_lost(sector, n, false);
	for (s = sector; s < sector + n && s < nsectors; s++) {
		sectors[s].garbled = nr - 1;
		sectors[s].sealed = sealed;
		sectors[s].spoilt |= sealed;
	}
}

void oracle_sealed(u32 sector, u32 n)
{
	u32 s;

	for (s = sector; s < sector + n && s < nsectors; s++) {
		if (sectors[s].garbled)
			sectors[s].sealed = sectors[s].spoilt = true;
	}
	event(0xbb00 | sector << 16);
}

/* A write is durable: nothing before it may be seen after a power cut any more. */
static void durable(u32 id)
{
	struct entry *e = entry(id);
	u32 s, i, n;

	e->durable = true;
	for (s = e->sector; s < e->sector + e->n; s++) {
		struct sector *x = &sectors[s];

		for (i = n = 0; i < x->n; i++) {
			if (!before(x->alive[i], id))
				x->alive[n++] = x->alive[i];
		}
		x->n = n;
		if (x->wild && !x->forever && before(x->wild, id))
			x->wild = 0;
		if (x->garbled && before(x->garbled, id)) {
			x->garbled = 0;
			x->mended = now;
		}
	}
	event((u64)id << 8 | 0xdd);
}

/* Another tag has written to blocks of earlier writes. */
static void share(const struct entry *by)
{
	u32 from = by->sector / BLOCK, to = (by->sector + by->n - 1) / BLOCK, i;

	for (i = first; i < nr; i++) {
		struct entry *e = entry(i);

		if (e->kind != WRITE || e->foreign || !e->done || e->done > by->sent ||
		    (e->tag == by->tag && e->life == by->life) ||
		    e->sector / BLOCK > to || (e->sector + e->n - 1) / BLOCK < from)
			continue;
		/* All of its blocks, or the write is only covered in part. */
		if (e->sector / BLOCK >= from && (e->sector + e->n - 1) / BLOCK <= to)
			e->foreign = by->done;
	}
}

void oracle_write_done(u32 id, bool failed)
{
	struct entry *e = entry(id);

	e->done = ++now;
	e->failed = failed;
	event((u64)id << 8 | 0xe0 | failed);
	if (failed)
		return;
	share(e);
	if (e->fua)
		durable(id);
}

u64 oracle_flush(u32 who)
{
	event(0xf0 | who);
	return ++now;
}

static bool covers(u64 flush, u32 who, const struct entry *e)
{
	if (e->kind != WRITE || e->failed || e->durable || !e->done || e->done > flush)
		return false;
	if (who == ORACLE_ALL || e->tag == 0 || e->tag == who)
		return true;
	return (e->gone && e->gone < flush) || (e->foreign && e->foreign < flush);
}

void oracle_flush_done(u64 flush, u32 who, bool failed)
{
	u32 i;

	now++;
	event(0xf8 | failed);
	if (failed)
		return;
	for (i = first; i < nr; i++) {
		if (covers(flush, who, entry(i)))
			durable(i);
	}
}

/*
 * The tag is gone; its removal began at @began. A new one with its number is another tag. It may
 * have been made, and written, before the caller of the removal has returned.
 */
void oracle_tag_removed(u32 tag, u64 began)
{
	u32 i;

	for (i = first; i < nr; i++) {
		struct entry *e = entry(i);

		/* Writes under way at that time may belong to either. */
		if (e->tag == tag && e->life == life[tag] && e->done && e->done <= began && !e->gone)
			e->gone = now + 1;
	}
	life[tag]++;
	now++;
	event(0xaa00 | tag);
}

u64 oracle_read(void)
{
	return ++now;
}

/* May a sector show what was never written to it, after a power cut? */
static bool is_garbled(const struct sector *x)
{
	return (x->garbled && x->sealed) || (x->wild && x->spoilt);
}

static bool wrote(u32 id, u32 s)
{
	const struct entry *e = entry(id);

	return id < nr && nr - id < ORACLE_WRITES && e->kind == WRITE && s >= e->sector &&
	       s < e->sector + e->n;
}

static bool known(u32 id, u32 s)
{
	return id <= 1 || id == sectors[s].base || wrote(id, s);
}

/* Was there a write to the sector, complete when the read was sent, that is after @id? */
static bool outdated(u64 read, u32 s, u32 id)
{
	u32 i;

	for (i = 0; i < sectors[s].n; i++) {
		u32 b = sectors[s].alive[i];
		const struct entry *e = entry(b);

		if (b >= first && e->done && !e->failed && e->done < read &&
		    before(id, b))
			return true;
	}
	return false;
}

const char *oracle_read_done(u64 read, u32 s, u32 content)
{
	u32 i;

	if (sectors[s].garbled || sectors[s].mended >= read || is_garbled(&sectors[s]))
		return NULL;
	if (content == SIM_FOREIGN)
		return "a read shows a torn sector, or another one";
	if (!known(content, s))
		return "a read shows a write that was never sent to the sector";
	if (sectors[s].wild) {
		/* A write after the discard is visible; else anything may be. */
		u32 w = sectors[s].wild;

		for (i = 0; i < sectors[s].n; i++) {
			u32 b = sectors[s].alive[i];

			if (b >= first && before(w, b) && entry(b)->done &&
			    !entry(b)->failed && entry(b)->done < read &&
			    (content < first || before(content, b)))
				return "a read does not show a write after a discard";
		}
		return NULL;
	}
	if (outdated(read, s, content))
		return "a read shows an outdated write";
	for (i = 0; i < sectors[s].n; i++) {
		if (sectors[s].alive[i] == content)
			return NULL;
	}
	/* It was pruned: so a later one is durable. It may have been so after the read. */
	return NULL;
}

/*
 * Words: for each sector that may show something else than its base: its number and a count,
 * and then so many numbers of writes. WILD stands for all that it ever had, and GARBLED for any
 * content.
 */
struct oracle_view oracle_view(void *(*alloc)(size_t))
{
	struct oracle_view v = { 0, NULL };
	u32 s, i, n = 0;

	for (s = 0; s < nsectors; s++) {
		if (sectors[s].wild || sectors[s].garbled || sectors[s].n != 1 ||
		    sectors[s].alive[0] != sectors[s].base)
			n += 1 + sectors[s].n;
	}
	v.word = alloc(n * sizeof(u32) + 4);
	for (s = 0; s < nsectors; s++) {
		struct sector *x = &sectors[s];
		bool garbled = is_garbled(x);

		if (!x->wild && !garbled && x->n == 1 && x->alive[0] == x->base)
			continue;
		v.word[v.n++] = s << 8 | (garbled ? GARBLED : x->wild ? WILD : x->n);
		if (x->wild || garbled)
			continue;
		for (i = 0; i < x->n; i++)
			v.word[v.n++] = x->alive[i];
	}
	return v;
}

static const char *check_sector(u32 s, u32 content, const u32 *word, u32 count)
{
	u32 i;

	if (count == GARBLED)
		return NULL;
	if (content == SIM_FOREIGN)
		return "a sector is torn, or is another one";
	if (count == WILD)
		return known(content, s) ? NULL :
		       "a discarded sector shows a write that it never had";
	for (i = 0; i < count; i++) {
		if (word[i] == content)
			return NULL;
	}
	if (!known(content, s))
		return "a sector shows a write of another sector or tag";
	return "a sector shows older data than what was durable";
}

const char *oracle_check(const struct oracle_view *v, const u32 *content)
{
	static char text[200];
	const char *wrong = NULL;
	u32 s, at = 0;

	for (s = 0; s < nsectors && !wrong; s++) {
		u32 one = sectors[s].base, count = 1;
		const u32 *word = &one;

		if (at < v->n && v->word[at] >> 8 == s) {
			count = v->word[at] & 255;
			word = &v->word[at + 1];
			at += words(count);
		}
		wrong = check_sector(s, content[s], word, count);
		if (wrong) {
			int k = snprintf(text, sizeof(text),
					 "%s: sector %u shows write %d, possible are", wrong,
					 s, (int)content[s]);
			u32 i;

			for (i = 0; count < GARBLED && i < count && k < 180; i++)
				k += snprintf(text + k, sizeof(text) - k, " %u", word[i]);
			wrong = text;
		}
	}
	return wrong;
}

u64 oracle_hash(void)
{
	return hash;
}
