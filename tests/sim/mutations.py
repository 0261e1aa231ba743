# SPDX-License-Identifier: Apache-2.0
"""Defects that the module had, or could have: each is put back, and has to be found.

The numbers are those of a review of the data plane, see doc/source/contributor/other-suites.rst.
"""

import dataclasses

from tests.sim.build import Edit


@dataclasses.dataclass(frozen=True)
class Mutation:
    """A defect.

    :param name: name in reports
    :param edits: what brings it back
    :param cases: arguments of the program that find it, without the time limit
    :param narrow: whether it takes several windows in flight, see NARROW
    """

    name: str
    edits: tuple[Edit, ...]
    cases: tuple[str, ...]
    narrow: bool = False


#: Narrow windows of destage, and several of them in flight from the start. Otherwise, one window
#: takes all blocks of a history.
NARROW = (
    Edit("flow.c", "	vcache_depth_init(&f->depth, 1,", "	vcache_depth_init(&f->depth, 4,"),
    Edit("flow.c", "	vcache_depth_settle(&f->depth, 1);",
         "	vcache_depth_settle(&f->depth, 4);"),
    Edit("queue.h", "#define VC_QUEUE_FIRST		16U", "#define VC_QUEUE_FIRST		1U"),
    Edit("flight.c", "	v->width = VC_WINDOW;", "	v->width = 2;"),
    Edit("flight.c", "#define VC_WINDOW_MIN		32U", "#define VC_WINDOW_MIN		2U"),
    Edit("flight.c", "min(v->width * 2, VC_WINDOW)", "2"),
    Edit("window.c", "#define VC_REQUEST_MOST	64U", "#define VC_REQUEST_MOST	2U"),
)


MUTATIONS: tuple[Mutation, ...] = (
    # 1: destage does not exclude write-outs of the same blocks.
    Mutation("1-stale-destage", (
        Edit("window.c",
             "	if (!vcache_range_try(&v->ranges, &w->range[w->ranges],\n"
             "			      w->cell[from].block, w->cell[to - 1].block))\n"
             "		return false;\n"
             "	w->ranges++;\n", ""),
    ), ("directed", "stale-destage")),
    # 3: all tags of a volume fail when its cache is lost with dirty data of one.
    Mutation("3-volume-fails", (
        Edit("fail.c", "		if (dirty)\n			vc_log_lost(",
             "		if (dirty || v)\n			vc_log_lost("),
    ), ("directed", "cache-lost")),
    # 4: a chunk that cannot be sealed again blocks the reclaim of all other logs.
    Mutation("4-reclaim-jams", (
        Edit("reseal.c", "		if (r)\n			vc_log_give_up(log, c, r);\n", ""),
    ), ("directed", "seal-fails")),
    # 5: destage ends at the first error, and begins with the same chunks again.
    Mutation("5-bad-block-stops-destage", (
        Edit("window.c", "u32 i, n = w->nr, good = 0;", "u32 i, n = 0, good = 0;"),
        Edit("flight.c", "	r->from += min(r->skip, r->nr - r->from);",
             "	r->from = error ? r->nr : r->from;"),
        Edit("flight.c", "	return r->copied || !r->refused ? 0 : r->error;",
             "	return r->error;"),
        Edit("destage.c",
             "	if (error) {\n		log->passed = r->gen[r->chunks - 1];\n"
             "		return false;\n	}\n",
             "	if (error)\n		return false;\n"),
    ), ("directed", "bad-block")),
    # 7: a flush reads the counters of two epochs, between which a block moves.
    Mutation("7-flush-over-failure", (
        Edit("epoch.c", "	return !READ_ONCE(e->total);",
             "	return !READ_ONCE(e->pending[0]) && !READ_ONCE(e->pending[1]);"),
    ), ("directed", "failed-flush")),
    Mutation("write-outs-without-fua", (
        Edit("isolation.c",
             "	return vcache_isolation_of(bdev) == VCACHE_ISOLATION_FUA ? REQ_FUA : 0;",
             "	return 0;"),
    ), ("exhaustive", "writeback", "2")),
    Mutation("flush-without-host", (
        Edit("flush.c", "	return f->all || tag == tag->dev->host || READ_ONCE(tag->orphan) ||",
             "	return f->all || READ_ONCE(tag->orphan) ||"),
    ), ("exhaustive", "flush-only", "2")),
    Mutation("second-tag-does-not-share", (
        Edit("buffer.c",
             "		if (b->tag != p->tag && b->tag != host && !b->shared)\n"
             "			vc_block_share(b);\n", ""),
    ), ("exhaustive", "writeback", "3")),
    # The bugs that the simulation has found.
    Mutation("parked-writes-park-again", (
        Edit("write.c", "	if (!io->unparked && atomic_read(", "	if (atomic_read("),
    ), ("directed", "behind-discard")),
    Mutation("write-through-before-its-record", (
        Edit("writeout.c", "	atomic_set(&w->waits, 1 + w->ordered);",
             "	w->ordered = false;\n	atomic_set(&w->waits, 1);"),
    ), ("directed", "through-crash")),
    Mutation("flush-forgets-writes-to-the-origin", (
        Edit("isolation.c", "	if (bio->bi_opf & REQ_FUA)\n", "	if (bio)\n"),
    ), ("random",)),
    Mutation("flush-of-the-origin-covers-later-writes", (
        Edit("isolation.c",
             "		atomic64_set(&dev->origin_durable, covered);",
             "		atomic64_set(&dev->origin_durable, atomic64_read(&dev->origin_writes));"),
    ), ("random",)),
    Mutation("failed-chunk-is-noted-clean", (
        Edit("destage.c", "	if (clean && !c->failed) {", "	if (clean) {"),
    ), ("directed", "failed-record")),
    Mutation("endless-passes", (
        Edit("destage.c", "		if (v->failing)\n			log->passed = 0;\n",
             "		log->passed = 0;\n"),
    ), ("directed", "two-bad-blocks")),
    Mutation("chunks-of-bad-blocks-are-relocated-for-ever", (
        Edit("destage.c", "			vc_log_close_clean(log);",
             "			vcache_log_close_idle(log);"),
    ), ("directed", "unreadable-and-bad")),
    Mutation("chunk-leaves-what-it-supersedes-in-one-that-cannot-be-read", (
        Edit("reseal.c", "	if (vcache_chunk_is_empty(c))\n		return 0;",
             "	if (r == 0)\n		return 0;"),
    ), ("directed", "unreadable-data")),
    Mutation("logs-that-give-up-chunks-wait-for-each-other", (
        Edit("reseal.c", "	return n > 1 ? gen : 0;", "	return 0;"),
    ), ("directed", "unsealable-chunks")),
    Mutation("newer-chunk-keeps-what-a-given-up-one-supersedes", (
        Edit("reseal.c", "		r = r ?: vc_log_refresh(v->pool, log, gen);", "		;"),
    ), ("directed", "unsealable-chunks")),
    Mutation("chunks-are-given-up-before-they-are-clean", (
        Edit("reseal.c", "		ready &= c->state == VC_CHUNK_SEALED && "
             "!atomic_read(&c->dirty);", ""),
    ), ("directed", "unsealable-chunks")),
    # Large writes.
    Mutation("large-write-is-older-than-a-relocated-copy", (
        Edit("relocate.c", "	return busy || vcache_range_held(&v->large, block, block);",
             "	return busy;"),
    ), ("directed", "large-writes")),
    Mutation("buffered-write-overtakes-a-large-one", (
        Edit("large.c", "	VCACHE_PROBE(\"block waits for a large write\");\n	return true;",
             "	return false;"),
    ), ("directed", "large-writes")),
    Mutation("large-write-leaves-older-data-in-the-buffer", (
        Edit("large.c", "	if (!vcache_buffer_covers(dev, first, last))", "	if (true)"),
    ), ("directed", "large-writes")),
    Mutation("record-of-a-large-write-before-its-data", (
        Edit("large.c", "	data->bi_opf = vcache_append_flags(p);",
             "	data->bi_opf = REQ_OP_WRITE;"),
    ), ("directed", "large-writes")),
    Mutation("tag-is-freed-under-its-write", (
        Edit("tag.c", "		 !work_busy(&tag->work);", "		 true;"),
    ), ("directed", "removed-tag")),
    Mutation("reclaim-and-destage-of-a-failed-pool-wake-each-other", (
        Edit("space.c", "!READ_ONCE(v->failing) &&\n\t\t    READ_ONCE(p->state) == VC_POOL_OK)",
             "!READ_ONCE(v->failing))"),
        Edit("reseal.c", "	if (!v->stopped && v->pool->state == VC_POOL_OK)",
             "	if (!v->stopped)"),
        Edit("destage.c", "	if (n)\n		vcache_log_wake(log);", "	vcache_log_wake(log);"),
    ), ("directed", "full-of-bad-blocks")),
    Mutation("open-read-chunks-starve-a-writer", (
        Edit("space.c", "vcache_pool_look_further(p) || vc_pool_close_reads(p);",
             "vcache_pool_look_further(p);"),
    ), ("random",)),
    Mutation("bad-blocks-keep-destage-and-reclaim-awake", (
        Edit("destage.c", "	if (cleaned || r->copied)\n		vcache_space_kick(",
             "	if (!error)\n		vcache_space_kick("),
    ), ("directed", "full-of-bad-blocks")),
    Mutation("admitted-write-does-not-see-a-discard", (
        Edit("write.c",
             "	if (atomic_read(&dev->nparked) && vcache_parked_overlap(dev, bio) &&\n"
             "	    (READ_ONCE", "	if (false &&\n	    (READ_ONCE"),
    ), ("directed", "late-for-discard")),
    Mutation("part-of-a-parked-write-is-not-flushed", (
        Edit("flush.c", "	f->all = io->partial && io->unparked;\n", ""),
    ), ("directed", "late-for-discard")),
    Mutation("discard-does-not-wait-for-writers", (
        Edit("park.c", "	if (p->seen)\n		return true;\n", "	if (!p->seen)\n"
             "		return true;\n"),
    ), ("directed", "late-for-discard")),
    Mutation("read-only-pool-leaves-its-writers-waiting", (
        Edit("space.c", "			if (p->state != VC_POOL_OK)\n"
             "				vcache_log_wake(log);\n", ""),
    ), ("directed", "read-only-pool")),
    Mutation("destage-wakes-a-writer-for-nothing", (
        Edit("destage.c", "	if (n)\n		vcache_log_wake(log);", "	vcache_log_wake(log);"),
    ), ("directed", "full-of-bad-blocks")),
    Mutation("block-of-a-failed-record-goes-past-the-log", (
        Edit("doubt.c", "	if (likely(!atomic_read(&v->failed_chunks)))\n		return false;\n",
             "	if (1)\n		return false;\n"),
    ), ("directed", "failed-record-past-log")),
    Mutation("failed-chunk-is-not-sealed-again", (
        Edit("doubt.c", "	WRITE_ONCE(c->stale, true);\n", ""),
    ), ("directed", "failed-record-of-two")),
    Mutation("admitted-write-with-fua-reads-tags-without-rcu", (
        Edit("write.c", "	rcu_read_lock();\n	if (atomic_read(&dev->nparked) && vcache_parked_",
             "	if (atomic_read(&dev->nparked) && vcache_parked_"),
        Edit("write.c", "	rcu_read_unlock();\n	srcu_read_unlock(&dev->writers, section);\n"
             "	return taken;", "	srcu_read_unlock(&dev->writers, section);\n	return taken;"),
    ), ("directed", "removed-tag")),
    Mutation("spare-chunks-are-taken-from-a-writer", (
        Edit("space.c", "	if (vcache_pool_give_spares(p, false) && vc_pool_short(p))\n"
             "		mod_delayed_work(p->wq, &p->space_work, 0);\n",
             "	vcache_pool_give_spares(p, false);\n"),
    ), ("directed", "drain-and-write")),
    Mutation("writer-waits-for-a-drain-that-is-over", (
        Edit("reclaim.c", "	if (!clean)\n		vcache_log_wake(log);\n", ""),
    ), ("directed", "drain-superseded")),
    Mutation("read-skips-a-block-that-is-replaced", (
        Edit("read.c", "		at = b->index;\n		if (!ref",
             "		at = b->index + 1;\n		if (!ref"),
        Edit("read.c", "		at++;\n", ""),
    ), ("directed", "read-while-replaced")),
    # Several windows in flight.
    Mutation("window-is-clean-before-it-is-written", (
        Edit("window.c", "	int error = vcache_window_wait(w);\n\n	if (!--v->writing)",
             "	int error = 0;\n\n	if (!--v->writing)"),
    ), ("directed", "drain-and-write"), narrow=True),
    Mutation("failed-window-is-clean", (
        Edit("window.c", "	if (!error)\n		vc_window_clean(r, w, v);",
             "	vc_window_clean(r, w, v);"),
    ), ("directed", "bad-block"), narrow=True),
    Mutation("ranges-are-released-before-the-window-is-written", (
        Edit("window.c", "	vc_window_send_write(w, v, log);\n	return 0;",
             "	vc_window_send_write(w, v, log);\n	vc_window_release(w, v);\n	return 0;"),
    ), ("directed", "stale-destage"), narrow=True),
    # A chunk is reclaimed before older ones.
    Mutation("chunk-does-not-pass-on-that-it-is-stale", (
        Edit("reclaim.c", "	WRITE_ONCE(list_prev_entry(c, node)->stale, true);\n", ""),
    ), ("directed", "reclaimed-early")),
    Mutation("discards-go-with-their-chunk", (
        Edit("victim.c", "!atomic_read(&c->live) && !c->discards &&",
             "!atomic_read(&c->live) &&"),
        Edit("relocate.c", "	       !c->discards && live &&", "	       live &&"),
    ), ("directed", "discarded-early")),
    Mutation("relocation-gains-nothing", (
        Edit("relocate.c", "vc_relocate_cost(dirty) + 2 * log->nr <= (log->nr - 1) * capacity;",
             "true;"),
    ), ("directed", "few-chunks")),
    # What a cache device that misdirects or damages a write must not get through.
    Mutation("record-at-another-place-is-valid", (
        Edit("log.c", "	return info->chunk == chunk && info->at == at && info->gen &&",
             "	return info->gen &&"),
    ), ("directed", "damaged-log")),
    Mutation("checksum-of-a-record-is-not-verified", (
        Edit("log.c", "	    le64_to_cpu(h->key) != g->key ||\n"
             "	    le32_to_cpu(h->crc) != vc_log_crc(block))",
             "	    le64_to_cpu(h->key) != g->key)"),
    ), ("directed", "damaged-log")),
    Mutation("a-write-leaves-what-was-saved-valid", (
        Edit("update.c", "	vcache_saved_forget(v, block, blocks);\n", ""),
    ), ("random",)),
    Mutation("what-is-in-the-buffer-counts-as-saved", (
        Edit("saved.c", "	vc_saved_check(log->vol, block, n);\n", ""),
        Edit("saved.c", "static void vc_saved_check", "static void __maybe_unused vc_saved_check"),
    ), ("random",)),
    Mutation("a-fill-ignores-what-was-written-since", (
        Edit("cache/fill.c", "	return vcache_saved_has(log, block, 1) &&\n	       !",
             "	return !"),
        Edit("cache/fill.c", " && vcache_saved_has(log, block, n))", ")"),
    ), ("random",)),
    Mutation("nobody-wakes-a-paced-writer", (
        Edit("log/pace.c", "	hrtimer_start(&log->pace_timer, ns_to_ktime(wait), "
             "HRTIMER_MODE_REL_SOFT);\n", ""),
    ), ("random",)),
    Mutation("checksum-of-data-is-not-verified", (
        Edit("recover.c", "	rp->bad_blocks++;\n	return false;", "	return true;"),
    ), ("directed", "damaged-log")),
    Mutation("record-of-an-older-generation-is-valid", (
        Edit("recover.c", "	       info->gen == f->gen && info->volume == f->volume &&",
             "	       info->volume == f->volume &&"),
    ), ("directed", "damaged-metadata")),
    Mutation("seal-of-an-older-generation-is-valid", (
        Edit("seal.c", "&info) ||\n		    info.gen != gen) {\n			good = false;",
             "&info)) {\n			good = false;"),
    ), ("directed", "damaged-metadata")),
    Mutation("older-copy-of-metadata-counts", (
        Edit("meta.c", "		if (good && le64_to_cpu(h->seq) > seq) {\n			bad |= good;\n"
             "			good = 0;\n		}\n", "		if (good)\n			continue;\n"),
    ), ("directed", "damaged-metadata")),
    Mutation("checksum-of-metadata-is-not-verified", (
        Edit("meta.c", "	return le32_to_cpu(h->magic) == VC_META_MAGIC &&\n"
             "	       le32_to_cpu(h->crc) == vc_meta_crc(block);",
             "	return le32_to_cpu(h->magic) == VC_META_MAGIC;"),
    ), ("directed", "damaged-metadata")),
    Mutation("damaged-record-takes-its-chunk-with-it", (
        Edit("recover.c", "	if (gen > dead && vc_chunk_search(", "	if (0 && vc_chunk_search("),
    ), ("directed", "damaged-log")),
    Mutation("damage-is-not-reported", (
        Edit("replay.c", "	v->damaged = rp.errors + lost;", "	v->damaged = rp.errors;"),
    ), ("directed", "damaged-log")),
)
