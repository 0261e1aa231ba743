# SPDX-License-Identifier: Apache-2.0
"""Check that the tests detect deliberate faults in the target.

``python -m tests.kernel.mutations [--uml | --kernel 6.12] [WORD ...]`` selects mutations by
words in their names, and builds the module once for each. It boots once, and runs the test
that must fail with each module. It is not part of make test, since a mutation takes a
minute in the box. In User Mode Linux it takes seconds, but tests that need two processors
do not run there.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from tests.box import Box, BoxError, Uml, ssd, uml
from tests.box.kernels import default, select
from tests.box.machine import Machine
from tests.box.steps import explained

REPO = Path(__file__).resolve().parents[2]
BUILD = REPO / "build" / "kernel-mutations"


class Mutation(NamedTuple):
    """One line of the target, its replacement, and the test that must detect it."""

    name: str
    file: str
    old: str
    new: str
    test: str


MUTATIONS = [
    Mutation("elastic SSD: chunks are not zeroed", "vssd/fill.c",
             "r = vc_fill_zero(s, chunk);", "r = 0;",
             "test_vssd.py::test_no_byte_of_others_is_read[True]"),
    Mutation("elastic SSD: zeroes are not durable", "vssd/fill.c",
             "REQ_OP_WRITE | REQ_SYNC | REQ_FUA", "REQ_OP_WRITE | REQ_SYNC",
             "test_vssd.py::test_flushed_data_is_there_after_a_power_cut"),
    Mutation("elastic SSD: writes are not durable", "vssd/io.c",
             "bio->bi_opf |= vcache_durable_flags(s->pool->bdev);", ";",
             "test_vssd.py::test_flushed_data_is_there_after_a_power_cut"),
    Mutation("elastic SSD: a new block is not in the chunk table", "vssd/blocks.c",
             "r = vcache_direct_note(s->vol, chunk, block);", "r = 0;",
             "test_vssd.py::test_persist_keeps_the_content_over_everything"),
    Mutation("elastic SSD: a freed block stays in the chunk table", "vssd/blocks.c",
             "r = vcache_direct_unnote(s->vol, chunk);", "r = 0;",
             "test_vssd.py::test_persist_keeps_the_content_over_everything"),
    Mutation("elastic SSD: it is not noted that blocks were taken", "vssd/blocks.c",
             "r = vc_vssd_note_taken(s, true) ?:\n\t\t    vc_vssd_remove(s, block, VC_VSSD_TAKEN);",
             "r = vc_vssd_remove(s, block, VC_VSSD_TAKEN);",
             "test_vssd.py::test_what_was_taken_is_an_error_also_after_a_restart"),
    Mutation("elastic SSD: a block that was taken reads as zeroes", "vssd/blocks.c",
             "vc_vssd_remove(s, block, VC_VSSD_TAKEN);", "vc_vssd_remove(s, block, VC_VSSD_NONE);",
             "test_vssd.py::test_a_smaller_quota_is_kept_by_discards_and_then_by_force"),
    Mutation("elastic SSD: logs do not make space for it", "reclaim/direct.c",
             "WRITE_ONCE(p->direct_wanted, p->direct_wanted - before + now);", ";",
             "test_vssd.py::test_a_full_cache_gives_what_is_asked_for"),
    Mutation("dirty data waits for half of the buffer", "io/write.c",
             "if (rate < VC_BEHIND_RATE)", "if (rate || !rate)",
             "test_pressure.py::test_what_a_flush_would_wait_for_is_written_before"),
    Mutation("a slow device is written early", "io/write.c",
             "if (rate < VC_BEHIND_RATE)", "if (!rate)",
             "test_pressure.py::test_a_slow_origin_is_not_written_before_a_flush"),
    Mutation("a write above a share that has shrunk fails", "io/write.c",
             "atomic_read(&tag->bad) + min(pages, limit) > limit",
             "atomic_read(&tag->bad) + pages > limit",
             "test_pressure.py::test_a_write_larger_than_a_share_has_become_waits"),
    Mutation("a slow device may have much unwritten", "io/write.c",
             "if (rate && vc_tag_is_fast(tag))", "if (false && vc_tag_is_fast(tag))",
             "test_pressure.py::test_a_slow_cache_gets_no_more_than_a_flush_can_wait_for"),
    Mutation("a slow origin may not have much unwritten", "io/write.c",
             "if (rate && vc_tag_is_fast(tag))", "if (rate)",
             "test_pressure.py::test_a_slow_origin_is_not_written_before_a_flush"),
    Mutation("a fill that is written hides a write past the log", "log/update.c",
             "vcache_lookup_changes(v, block) == changes &&", "",
             "test_fill_race.py::test_a_fill_does_not_hide_a_later_write[flush_only]"),
    Mutation("nobody pays for destage", "destage/window.c",
             "\tif (tag)\n\t\tvcache_payer_charge", "\tif (0)\n\t\tvcache_payer_charge",
             "test_payer.py::test_destage"),
    Mutation("a cgroup pays for a drain", "destage/window.c",
             "if (READ_ONCE(log->vol->drain))", "if (0)",
             "test_payer.py::test_a_drain_is_that_of_the_host"),
    Mutation("nobody pays for what has no cache", "io/writeout.c",
             "\tvcache_payer_charge(tag, bio);\n", "",
             "test_payer.py::test_without_a_cache"),
    Mutation("the first one who writes pays for ever", "tag/payer.c",
             "css == READ_ONCE(tag->payer) ||",
             "READ_ONCE(tag->payer) ||", "test_payer.py::test_destage"),
    Mutation("a cgroup pays for data of others", "io/write.c",
             "if (vt->scope == VCACHE_SCOPE_VOLUME)\n\t\tvcache_payer_note",
             "if (1)\n\t\tvcache_payer_note",
             "test_payer.py::test_nobody_pays_if_several_tags_share_a_device"),
    Mutation("the oldest chunk is relocated, whatever it has", "reclaim/relocate.c",
             "vcache_chunk_domain(c) != domain || !vc_chunk_gains(c, live))", "1)",
             "test_relocate.py::test_full_chunks_stay_where_they_are"),
    Mutation("a write-through is sent before its record is durable", "io/writeout.c",
             "atomic_set(&w->waits, 1 + w->ordered);", "w->ordered = false;\n"
             "\tatomic_set(&w->waits, 1);",
             "test_ranges.py::test_a_write_through_reaches_the_origin_after_its_record"),
    Mutation("a write-through is sent though its record has failed", "io/writeout.c",
             "if (bio->bi_status) {", "if (0) {",
             "test_ranges.py::"
             "test_a_write_through_whose_record_fails_does_not_reach_the_origin"),
    Mutation("a write that was parked parks behind later ones", "io/write.c",
             "if (!io->unparked && ", "if (",
             "test_ranges.py::test_overlapping_writes_behind_a_discard_end"),
    Mutation("a chunk that cannot be sealed again stays", "reclaim/reseal.c",
             "\t\t\tvc_log_give_up(log, c, r);\n\t\tif (r || c == last)",
             "\t\t\t;\n\t\tif (r || c == last)",
             "test_reseal.py::test_a_failed_write_of_one_log_does_not_stop_the_others"),
    Mutation("a log gives up one chunk too few", "reclaim/reseal.c",
             "c->gen > log->unsealed)", "c->gen >= log->unsealed)",
             "test_reseal.py::test_a_failed_write_of_one_log_does_not_stop_the_others"),
    Mutation("a log waits for a chunk that cannot be read", "reclaim/victim.c",
             "if (!vcache_chunk_is_unread(c))", "if (1)",
             "test_bad_blocks.py::test_a_bad_block_of_the_cache_does_not_stop_its_log"),
    Mutation("data that the origin has refused counts as clean", "log/record.c",
             "\tif (w->failed)\n", "\tif (0)\n",
             "test_ranges.py::test_data_that_the_origin_refuses_is_dirty"),
    Mutation("a chunk with refused data counts as clean", "log/update.c",
             "\t\tc->clean = false;\n\t\tvcache_log_gets_dirty(log, c);\n", "",
             "test_ranges.py::test_data_that_the_origin_refuses_is_dirty"),
    Mutation("discards wait for one another", "target/device.c",
             "WQ_MEM_RECLAIM | WQ_UNBOUND, 0,", "WQ_MEM_RECLAIM | WQ_UNBOUND, 1,",
             "test_ranges.py::test_a_discard_does_not_wait_for_another_one"),
    Mutation("a tag that has lost data takes others with it", "pool/fail.c",
             "\t\tif (dirty)\n\t\t\tvc_log_lost(log, dirty);",
             "\t\tif (1)\n\t\t\tvc_log_lost(log, dirty);",
             "test_tag_failure.py::test_tags_without_dirty_data_continue"),
    Mutation("a tag overwrites what another one has lost", "io/writeout.c",
             "return !vcache_lookup_is_lost(tag->dev->vol, b->index);", "return true;",
             "test_tag_failure.py::test_a_cache_that_comes_back_has_the_data_that_was_lost"),
    Mutation("a flush does not try shared blocks again that have failed", "io/flush.c",
             "\tif (atomic_read(&tag->bad))\n\t\tvcache_tag_write_out(tag->dev->host, UINT_MAX);\n",
             "",
             "test_tag_failure.py::test_tags_without_dirty_data_continue"),
    Mutation("a flush misses what a newer block has", "io/flush.c",
             "next == VC_FLUSH_GO_ON && !f->failed && vc_flush_missed(f, dev)", "0",
             "test_scope.py::test_a_flush_covers_what_a_newer_block_of_the_host_has"),
    Mutation("a tag that goes on leaves its old data in the cache", "pool/fail.c",
             "metadata_writable && !vcache_logs_forget(v))", "metadata_writable)",
             "test_tag_failure.py::test_a_cache_that_comes_back_has_the_data_that_was_lost"),
    Mutation("a refused request makes a tag", "control/netlink.c",
             "\tif (!vc_nl_cache_fits(dev, info, &cache) || !vcache_nl_lanes_fit(dev, info))\n"
             "\t\treturn -EINVAL;\n\ttag = vc_nl_make_tag(dev, info);\n",
             "\ttag = vc_nl_make_tag(dev, info);\n"
             "\tif (!vc_nl_cache_fits(dev, info, &cache) || !vcache_nl_lanes_fit(dev, info))\n"
             "\t\treturn -EINVAL;\n",
             "test_netlink_fuzz.py"),
    Mutation("a device has no reserve of blocks", "buffer/blocks.c",
             "mempool_alloc(&tag->dev->reserve, VC_BLOCK_GFP)",
             "vc_reserve_alloc(VC_BLOCK_GFP, NULL)",
             "test_faults.py::test_writes_go_on_without_any_memory_for_blocks"),
    Mutation("the index needs memory", "buffer/blocks.c",
             "r = vc_spilled_add(dev, new);", "r = -ENOMEM;",
             "test_faults.py::test_writes_go_on_without_any_memory_for_blocks"),
    Mutation("a write without memory begins again", "buffer/buffer.c",
             "\t\t\t\tbio->bi_iter = iter;\n", "\t\t\t\t;\n",
             "test_faults.py::test_writes_go_on_without_any_memory_for_blocks"),
    Mutation("spilled blocks are not found", "buffer/blocks.c",
             "if (unlikely(!b && READ_ONCE(dev->nspilled)))", "if (0)",
             "test_faults.py::test_writes_go_on_without_any_memory_for_blocks"),
    Mutation("blocks of a failed window are not tried alone", "destage/window.c",
             "u32 i, n = w->nr, good = 0;", "u32 i, n = 0, good = 0;",
             "test_bad_blocks.py::test_a_bad_block_of_the_origin_affects_only_itself"),
    Mutation("bad blocks are never tried again", "destage/bad.c",
             "\tv->bad_turn ^= 1;\n", "",
             "test_bad_blocks.py::test_a_bad_block_of_the_origin_affects_only_itself"),
    Mutation("destage does not go on behind chunks of bad blocks", "destage/destage.c",
             "\t\tlog->passed = r->gen[r->chunks - 1];\n\t\treturn true;\n",
             "\t\treturn false;\n",
             "test_bad_blocks.py::test_chunks_of_bad_blocks_do_not_stop_their_log"),
    Mutation("destage does not hold its blocks", "destage/window.c",
             "\tif (!vcache_range_try(&v->ranges, &w->range[w->ranges],\n"
             "\t\t\t      w->cell[from].block, w->cell[to - 1].block))\n"
             "\t\treturn false;\n"
             "\tw->ranges++;\n", "",
             "test_ranges.py::test_destage_does_not_overwrite_newer_data"),
    Mutation("a write-through holds its blocks only while it is at the origin", "log/record.c",
             "\tatomic_inc(&w->users);\n", "\tatomic_set(&w->users, 1);\n\treturn;\n",
             "test_ranges.py::test_destage_does_not_overwrite_newer_data"),
    Mutation("another origin does not wait for one that hangs", "target/device.c",
             "\tif (!dev->hung || vc_dev_goes_on(dev, vt))\n", "\tif (dev)\n",
             "test_suspend.py::test_another_origin_waits_for_one_that_hangs"),
    Mutation("an origin that hangs is not kept open", "target/device.c",
             "\tdev->held = vcache_bdev_hold(dev->origin);\n", "",
             "test_suspend.py::test_another_origin_waits_for_one_that_hangs"),
    Mutation("write-out without FUA", "tag/isolation.c",
             "vcache_isolation_of(bdev) == VCACHE_ISOLATION_FUA ? REQ_FUA : 0", "0",
             "test_flush.py::test_flushes_send_fua_and_no_flush"),
    Mutation("flush without the untagged data", "io/flush.c",
             "f->all || tag == tag->dev->host ||", "f->all ||",
             "test_scope.py::test_flush_covers_its_tag_and_the_host_only"),
    Mutation("flush of nobody covers nothing", "tag/attribute.c",
             "f->all = true;\n\tf->owner = vt->dev->host;",
             "f->all = false;\n\tf->cgroup = 0;\n\tf->owner = vt->dev->host;",
             "test_scope.py::test_flush_of_nobody_covers_everything"),
    Mutation("flush covers everything", "io/flush.c",
             "return f->all ||", "return true || f->all ||",
             "test_scope.py::test_flush_covers_its_tag_and_the_host_only"),
    Mutation("tag by extents alone", "tag/attribute.c",
             "tag && vc_tag_has_submitter(tag) ? tag : vt->dev->host", "tag ?: vt->dev->host",
             "test_scope.py::test_write_needs_cgroup_and_extents"),
    Mutation("what has waited is charged to the worker", "io/park.c",
             "\t\tsubmit_bio_noacct(bio);",
             "\t\tbio_uninit(bio);\n\t\tbio_set_dev(bio, bio->bi_bdev);\n"
             "\t\tsubmit_bio_noacct(bio);",
             "test_scope.py::test_what_reaches_the_origin_is_charged_to_who_asked"),
    Mutation("block of two tags is one's", "buffer/buffer.c",
             "b->tag != p->tag && b->tag != host && !b->shared", "0",
             "test_scope.py::test_block_of_two_tags_is_covered_by_both"),
    Mutation("partly buffered reads are the origin's", "io/read.c",
             "vc_read_overlay(bio, rd->iter, rd);", ";",
             "test_data.py::test_read_that_is_partly_buffered"),
    Mutation("reads are not timed", "io/read.c",
             "atomic64_inc(&st->read_hist[vcache_hist_bucket(ns)]);", "",
             "test_reads.py::test_reads_are_counted_with_their_latency"),
    Mutation("writes are not timed", "io/write.c",
             "atomic64_inc(&st->write_hist[vcache_hist_bucket(ns)]);", "",
             "test_stats.py::test_writes_are_counted_with_their_latency"),
    Mutation("large writes are timed from their record on", "io/write.c",
             "\tvc_write_time(tag, io);\n\tif (vc_write_large",
             "\tif (vc_write_large",
             "test_stats.py::test_a_large_write_is_counted_with_its_latency"),
    Mutation("a write is timed when it has space", "io/write.c",
             "\tu64 ns = ktime_get_ns() - io->began;",
             "\tu64 ns = io->start ? 0 : ktime_get_ns() - io->began;",
             "test_stats.py::test_a_write_that_waits_for_space_is_counted_with_its_wait"),
    Mutation("reads of the cache count as those of the origin", "io/read.c",
             "rd->origin = io->cell == VC_IO_NO_CELL;\n\tif (rd->origin)",
             "rd->origin = true;\n\tif (io->cell == VC_IO_NO_CELL)",
             "test_stats.py::test_reads_of_the_origin_are_counted_apart"),
    Mutation("a flush always waits for the cache", "io/flush.c",
             "f->cause = VC_FLUSH_ORIGIN;", "f->cause = VC_FLUSH_CACHE;",
             "test_stats.py::test_a_flush_waits_for_its_device[origin]"),
    Mutation("a flush always waits for the origin", "io/flush.c",
             "f->cause = VC_FLUSH_CACHE;\n\telse", "f->cause = VC_FLUSH_ORIGIN;\n\telse",
             "test_stats.py::test_a_flush_waits_for_its_device[cache]"),
    Mutation("the host tag's data is its own", "io/flush.c",
             "if (tag != f->owner)\n\t\tf->cause", "if (false)\n\t\tf->cause",
             "test_stats.py::test_a_flush_waits_for_the_host"),
    Mutation("a wait for space is one for the device", "io/append.c",
             "\tWRITE_ONCE(tag->blocked_since, space ? 0 : ktime_get_ns());", "",
             "test_stats.py::test_a_flush_waits_for_space"),
    Mutation("a FLUSH takes no time", "io/flush.c",
             "if (f->cause == VC_FLUSH_DEVICE)", "if (false)",
             "test_stats.py::test_a_flush_waits_for_a_flush_of_the_device"),
    Mutation("heads of records are not written", "log/record.c",
             "\tatomic64_inc(&log->counts.record);\n", "",
             "test_stats.py::test_bytes_written_to_the_ssd_by_cause"),
    Mutation("relocated blocks are data", "log/record.c",
             "rec->relocate ? &log->counts.relocated : &log->counts.data", "&log->counts.data",
             "test_stats.py::test_relocated_bytes_are_those_of_the_pool"),
    Mutation("who takes a chunk is not who gains", "reclaim/take.c",
             "same ? &log->counts.evicted_own : &log->counts.gained",
             "&log->counts.evicted_own",
             "test_stats.py::test_evictions_name_victim_and_beneficiary"),
    Mutation("who takes its own chunk has gained", "reclaim/take.c",
             "same ? &log->counts.evicted_own : &log->counts.gained", "&log->counts.gained",
             "test_stats.py::test_a_tag_that_evicts_its_own_data"),
    Mutation("a maximum evicts nothing", "reclaim/reclaim.c",
             "\tif (limit)\n\t\tatomic64_add(lost, &log->counts.evicted_limit);\n", "",
             "test_stats.py::test_data_lost_to_a_smaller_maximum"),
    Mutation("streams are refused for another reason", "cache/promote.c",
             "return vc_promote_refuse(log, VC_REFUSED_STREAM, end - block);",
             "return vc_promote_refuse(log, VC_REFUSED_LEVEL, end - block);",
             "test_stats.py::test_what_is_not_cached_is_counted_with_its_reason"),
    Mutation("a lane is busy in the jiffies of its ends only", "log/counts.c",
             "ends ? now - was : 1", "1",
             "test_stats.py::test_a_lane_counts_its_requests_and_its_time"),
    Mutation("records are requests to no lane", "log/record.c",
             "\tvcache_lane_end(log->vol->pool, rec->chunk->lane, true, "
             "ktime_get_ns() - rec->sent);",
             "",
             "test_stats.py::test_a_lane_counts_its_requests_and_its_time"),
    Mutation("a lane belongs to nobody", "control/netlink_fill.c",
             "if (!owner)\n\t\treturn 0;\n\treturn nla_put_u32(skb, VCACHE_A_LANE_VOLUME",
             "if (!owner || owner)\n\t\treturn 0;\n\treturn nla_put_u32(skb, VCACHE_A_LANE_VOLUME",
             "test_stats.py::test_a_dedicated_lane_names_its_tag"),
    Mutation("what is dirty stays old", "log/chunk.c",
             "if (!log->dirty || time_before(c->since, log->dirty_since))\n\t\t"
             "WRITE_ONCE(log->dirty_since, c->since);", "WRITE_ONCE(log->dirty_since, jiffies);",
             "test_stats.py::test_the_oldest_chunk_gives_the_age"),
    Mutation("an open chunk without dirty data has an age", "control/netlink_fill.c",
             "dirty = log->dirty && atomic_read(&log->dirty_cells);", "dirty = log->dirty;",
             "test_stats.py::test_the_age_of_the_oldest_dirty_data"),
    Mutation("a dump of curves ends after the first device", "control/netlink_dump.c",
             "r = vc_dump_some(skb, cb, vc_dump_curves);",
             "r = cb->args[0] ? 0 : vc_dump_some(skb, cb, vc_dump_curves);",
             "test_stats.py::test_all_curves_in_one_dump"),
    Mutation("a message is too short for a tag", "control/netlink.c",
             "#define VC_NL_TAG_BYTES\t\t(6 * SZ_1K)", "#define VC_NL_TAG_BYTES\t\t(3 * SZ_1K)",
             "test_stats.py::test_a_dump_of_many_full_tags"),
    Mutation("failed write-out is not told", "io/flush.c",
             "f->failed |= failed;", "",
             "test_failure.py::test_write_out_fails"),
    Mutation("large writes are copied", "io/large.c",
             "if (!least ||", "if (least || !least ||",
             "test_large.py::test_a_large_write_is_durable_when_it_completes"),
    Mutation("a device without FUA gets large writes", "io/large.c",
             "vcache_isolation_of(p->bdev) != VCACHE_ISOLATION_DEGRADED;", "true;",
             "test_large.py::test_a_device_that_needs_flushes_gets_copies"),
    Mutation("a large write that fails is lost", "io/large.c",
             "\tif (status)\n\t\tvcache_write_copied(tag, bio, io);\n\telse\n\t\tbio_endio(bio);",
             "\tbio_endio(bio);",
             "test_large.py::test_a_bad_block_of_the_cache_under_a_large_write"),
    Mutation("a large write and a buffered one of the same blocks", "io/large.c",
             "if (!vcache_buffer_covers(dev, first, last))", "if (1)",
             "test_large.py::test_the_last_write_wins"),
    Mutation("a part of a block is written without a copy", "io/large.c",
             "((bio->bi_iter.bi_sector | bio_sectors(bio)) % VC_BLOCK_SECTORS)", "0",
             "test_large.py::test_other_writes_are_copied[128-4-512]"),
    Mutation("direct write overtakes the buffer", "io/park.c",
             "range = VC_PARK_BUSY;", "range = VC_PARK_FREE;",
             "test_flush.py::test_fua_write_over_buffered_data_wins"),
    Mutation("a change leaves what it removes", "tag/extents.c",
             ".removes = remove->nr,", ".removes = 0,",
             "test_extents.py::test_extents_are_changed"),
    Mutation("a list of extents has no limit", "control/netlink_extents.c",
             "if (to->nr + nr > vcache_extents_max()) {", "if (0) {",
             "test_extents.py::test_the_number_of_extents_is_limited"),
    Mutation("discards exceed the limit of extents", "tag/extents.c",
             "c->most = vcache_extents_max();", "c->most = U32_MAX;",
             "test_extents.py::test_discards_do_not_exceed_the_limit"),
    Mutation("two commands make one list of extents", "control/netlink_extents.c",
             "if (tag->staged_by != info->genlhdr->cmd) {", "if (0) {",
             "test_extents.py::test_commands_are_not_mixed"),
    Mutation("a list goes on where one that was refused has ended", "control/netlink_extents.c",
             "if (info->attrs[VCACHE_A_TAG_EXTENTS_BEGIN])", "if (0)",
             "test_extents.py::test_commands_are_not_mixed"),
    Mutation("each message is compared with itself only", "control/netlink_extents.c",
             "if (to->nr)\n\t\tfrom = ", "if (0)\n\t\tfrom = ",
             "test_netlink.py::test_long_extent_lists_take_several_messages"),
    Mutation("a new directory is not used", "tag/extents.c",
             "\t\trcu_assign_pointer(dev->map, c->to);\n", "\t\tif (!c->map || !c->to)\n"
             "\t\t\trcu_assign_pointer(dev->map, c->to);\n\t\telse\n\t\t\treturn 0;\n",
             "test_extents.py::test_a_change_that_fails_changes_nothing"),
    Mutation("a removed tag keeps its sectors", "tag/tag.c",
             "if (vcache_tag_set_extents(tag, &none, &why))", "if (0 && why.runs + none.nr)",
             "test_extents.py::test_a_removed_tag_leaves_its_sectors"),
    Mutation("extents that were dropped are counted", "tag/extents.c",
             "\t\ttag->extents.runs = 0;\n", "",
             "test_faults.py::test_discard_without_memory_removes_all_extents"),
    Mutation("discard leaves the extents", "io/park.c",
             "if (bio_op(bio) == REQ_OP_DISCARD)", "if (0)",
             "test_discard.py::test_discard_punches_extents"),
    Mutation("buffer without a bound", "io/write.c",
             "atomic_add_return(pages, &tag->used) <= vc_tag_limit(tag)",
             "atomic_add_return(pages, &tag->used)",
             "test_pressure.py::test_a_full_buffer_makes_only_its_owner_wait"),
    Mutation("origin is not flushed when taken over", "target/device.c",
             "dev->flushed_origin != bdev->bd_dev", "0",
             "test_flush.py::test_origin_is_flushed_once_when_taken_over"),
    Mutation("tagged write counts as durable", "ssd/tagged.c",
             "bio_list_add(&tag->sent, bio);\n\t\ttag->nsent++;",
             "vcache_writeout_arrived(tag);\n\t\tspin_unlock_irqrestore(&tag->lock, flags);\n"
             "\t\tvcache_nvme_leave(tag->dev);\n\t\tvcache_writeout_done(bio);\n"
             "\t\trcu_read_unlock();\n\t\treturn;",
             "test_tagged.py::test_flush_is_a_tagged_flush"),
    Mutation("refused tagged flush counts as done", "ssd/tagged.c",
             "bio_list_merge(status ? &tag->refused : &durable, &tag->committing);",
             "bio_list_merge(&durable, &tag->committing);",
             "test_tagged.py::test_drive_that_lost_its_power_between_write_and_flush"),
    Mutation("power-on is not checked", "ssd/nvme.c",
             ".common.cdw10 = cpu_to_le32(tag->dev->nvme.instance),", "",
             "test_tagged.py::test_drive_that_lost_its_power_between_write_and_flush"),
    Mutation("refused tagged write is lost", "ssd/tagged.c",
             "while ((bio = bio_list_pop(&refused)))\n\t\tvc_tagged_redo(tag, bio);",
             "while ((bio = bio_list_pop(&refused))) {\n\t\tvcache_nvme_leave(tag->dev);\n"
             "\t\tatomic_inc(&tag->sending);\n\t\tbio->bi_status = 0;\n"
             "\t\tvcache_writeout_end(bio);\n\t}",
             "test_tagged.py::test_drive_that_forgets_its_tags"),
    Mutation("redone write at the wrong place", "ssd/tagged.c",
             "(first->bv_offset >> SECTOR_SHIFT);", "8;",
             "test_tagged.py::test_drive_that_forgets_its_tags"),
    Mutation("partition is taken for the drive", "ssd/nvme.c",
             "get_start_sect(bio->bi_bdev)", "0", "test_tagged.py::test_partition"),
    Mutation("tagged write of any size", "io/writeout.c",
             "bio->bi_iter.bi_size + len > vcache_nvme_max_bytes(bio->bi_bdev)", "false",
             "test_tagged.py::test_large_write_outs"),
    Mutation("controller that resets fails requests", "ssd/nvme.c",
             "rq->cmd_flags &= ~REQ_FAILFAST_DRIVER;", "",
             "test_tagged.py::test_power_cuts_under_load"),
    Mutation("new origin is sent tags", "target/device.c",
             "if (moved)\n\t\tvcache_nvme_drop(dev);", "",
             "test_tagged.py::test_another_origin_is_not_sent_tags"),
    Mutation("clean in another life", "log/update.c",
             "READ_ONCE(vcache_cell_chunk(p, cell)->reuse) == reuse", "true",
             "test_pool_failure.py::test_a_write_that_hangs_at_the_origin_holds_nobody_up"),
    Mutation("what is overwritten soon is urgent", "destage/flight.c",
             "max(took, 1UL) * VC_REST_EASY", "0",
             "test_pool.py::test_what_is_overwritten_soon_is_not_destaged_at_once"),
    Mutation("failed cache is not told", "pool/fail.c",
             "\t\t  !vcache_volume_forget(v);", "\t\t  true;",
             "test_pool_failure.py::test_cache_that_comes_back_has_nothing_old"),
    Mutation("failed reads are not counted", "io/fallback.c",
             "vcache_pool_read_failed(v->pool, cell);", "",
             "test_fallback.py::test_a_cache_device_that_reads_nothing_is_bypassed"),
    Mutation("a bad block counts again and again", "log/errors.c",
             "if (i == n && n < VC_ERRORS_MAX)", "if (n < VC_ERRORS_MAX)",
             "test_fallback.py::test_a_bad_block_can_be_read_again_and_again"),
    Mutation("what the log knows is dropped", "log/update.c",
             "if (c->reads) {", "if (true) {",
             "test_fallback.py::test_what_could_not_be_read_does_not_come_back_after_a_crash"),
    Mutation("read again at the start of the disk", "io/fallback.c",
             "bio_set_dev(bio, bdev);", "", "test_fallback.py::test_a_cache_on_a_partition"),
    Mutation("failed reads are not counted", "io/fallback.c",
             "vcache_pool_read_failed(v->pool, cell);", "",
             "test_fallback.py::test_a_cache_device_that_reads_nothing_is_bypassed"),
    Mutation("a bad block counts again and again", "log/errors.c",
             "if (i == n && n < VC_ERRORS_MAX)", "if (n < VC_ERRORS_MAX)",
             "test_fallback.py::test_a_bad_block_can_be_read_again_and_again"),
    Mutation("cells of records are dropped", "log/update.c",
             "if (c->reads) {", "if (true) {",
             "test_fallback.py::test_what_could_not_be_read_does_not_come_back_after_a_crash"),
    Mutation("read again at the start of the disk", "io/fallback.c",
             "bio_set_dev(bio, bdev);", "", "test_fallback.py::test_a_cache_on_a_partition"),
    Mutation("promotion misses a write", "log/update.c",
             "vcache_lookup_changes(v, block) == changes &&", "",
             "test_reads.py::test_a_write_that_has_come_and_gone_ends_a_promotion"),
    Mutation("promoted twice", "log/update.c",
             "!vcache_index_held(&p->ix, v->slot, block);", "true;",
             "test_reads.py::test_two_readers_promote_once"),
    Mutation("promoted behind a write past the buffer", "io/park.c",
             "if (op != REQ_OP_WRITE || READ_ONCE(dev->writeback))", "if (1)",
             "test_reads.py::test_a_write_past_the_buffer_ends_a_promotion"),
    Mutation("once is always enough", "cache/promote.c",
             "READ_ONCE(log->level.once) ? VC_READS_SMALL : VC_READS_KINDS", "VC_READS_SMALL",
             "test_reads.py::test_what_is_read_once_is_not_promoted_without_room"),
    Mutation("once is never enough", "cache/promote.c",
             "READ_ONCE(log->level.once) ? VC_READS_SMALL : VC_READS_KINDS", "VC_READS_KINDS",
             "test_reads.py::test_once_is_enough_where_blocks_come_back_and_not_in_a_scan"),
    Mutation("what reads get is fixed", "reclaim/victim.c",
             "READ_ONCE(p->reads_percent)", "VC_READS_PERCENT",
             "test_pool_table.py::test_reads_percent_is_what_reads_get"),
    Mutation("what was missed once has all the room", "reclaim/victim.c",
             "if (vc_log_exceeds(log, domain, log->reads[VC_READS_SMALL].nr[domain],\n"
             "\t\t\t   VC_SMALL_PERCENT))", "if (false)",
             "test_reads.py::test_what_was_missed_once_leaves_the_rest_alone"),
    Mutation("nothing is hot", "cache/reads.c",
             "vcache_keep_most(capacity, vc_reads_over(c)),", "0,",
             "test_reads.py::test_what_is_hot_is_kept_when_more_is_read_than_fits"),
    Mutation("who has more than a smaller maximum keeps as much as ever", "cache/reads.c",
             "vc_reads_over(c)),", "!c),",
             "test_shares.py::"
             "test_who_gets_a_smaller_maximum_does_not_copy_what_is_as_hot_as_the_rest"),
    Mutation("what is hot is not decided again", "cache/reads.c",
             "	if (how == VC_RECLAIM_KEEP)\n		vc_reads_level(c);\n", "",
             "test_shares.py::"
             "test_who_gets_a_smaller_maximum_does_not_copy_what_is_as_hot_as_the_rest"),
    Mutation("what fits is not kept", "cache/reads.c",
             "return vcache_keep_any(", "return false && vcache_keep_any(",
             "test_reads.py::test_data_that_fits_stays_though_the_log_goes_round"),
    Mutation("what fits goes for want of credit", "reclaim/victim.c",
             "relocates = !fits && vc_log_can_relocate", "relocates = false && vc_log_can_relocate",
             "test_reads.py::test_what_fits_stays_though_there_is_no_credit_to_copy_it"),
    Mutation("what holds nothing stays with who has his share", "reclaim/space.c",
             "c = vc_pool_empty_chunk(p);", "c = NULL;",
             "test_shares.py::test_what_holds_nothing_any_more_goes_first"),
    Mutation("room is not used", "cache/promote.c",
             "seen * 2 >= n || vc_promote_fits(log)", "seen * 2 >= n",
             "test_reads.py::test_what_is_missed_gets_a_place_until_there_is_no_room"),
    Mutation("room has no end", "cache/promote.c",
             "seen * 2 >= n || vc_promote_fits(log)", "true",
             "test_reads.py::test_what_is_missed_gets_a_place_until_there_is_no_room"),
    Mutation("reads have what every log can have", "reclaim/take.c",
             "case VC_TAKE_KEEP_OWN:\n\t\treturn vcache_log_may_grow(p, log);",
             "case VC_TAKE_KEEP_OWN:\n\t\treturn true;",
             "test_shares.py::test_reads_make_nobody_pass_the_maximum"),
    Mutation("maximum does not hold", "reclaim/take.c",
             "if (has >= READ_ONCE(log->most))", "if (false)",
             "test_shares.py::test_reads_make_nobody_pass_the_maximum"),
    Mutation("what is added again is not dead", "log/store.c",
             "vcache_table_entry(p, i)->dead = cpu_to_le64(seq);", "",
             "test_resize.py::test_nothing_comes_back_where_a_pool_was_as_large_before"),
    Mutation("what is behind the new end is given out", "log/lane.c",
             "if (vcache_chunk_nr(p, c) < p->limit)\n\t\tvcache_lane_add",
             "if (true)\n\t\tvcache_lane_add",
             "test_resize.py::test_what_is_only_in_the_cache_stays_until_it_is_on_the_origin"),
    Mutation("a shrink that was taken back stays urgent", "pool/resize.c",
             "vcache_pool_count_leaving(p);\n\treturn 0;", "return 0;",
             "test_resize.py::test_a_shrink_is_taken_back"),
    Mutation("parts of blocks are discarded on the origin", "io/discard.c",
             "if (r->first >= end) {\n\t\tbio_endio(bio);",
             "if (r->first >= end) {\n\t\tsubmit_bio_noacct(bio);",
             "test_pool.py::test_a_discard_leaves_parts_of_blocks_alone"),
    Mutation("what is kept of a chunk that goes is above the maximum", "reclaim/share.c",
             "return most > VC_CHUNKS_MIN ? most - 1 : most;", "return most;",
             "test_shares.py::test_reads_make_nobody_pass_the_maximum"),
    Mutation("who is furthest over goes on though nobody can give", "reclaim/space.c",
             "WRITE_ONCE(furthest->reclaim_pending, true);",
             "WRITE_ONCE(furthest->reclaim_pending, false);",
             "test_shares.py::test_nobody_loses_of_its_share_to_one_that_has_more"),
    Mutation("nothing is lent", "reclaim/take.c",
             "READ_ONCE(p->nfree) + (has <= share) > vcache_pool_reserve(p) ||", "false ||",
             "test_shares.py::test_reads_are_lent_what_others_do_not_use"),
    Mutation("the curve takes a write for a read", "io/write.c",
             "VC_CURVE_WRITE", "VC_CURVE_READ", "test_curve.py"),
    Mutation("the curve looks where the cache has it", "io/read.c",
             "vc_read_count(tag, &rd->iter, vcache_read_hits", "vc_read_count(tag, &bio->bi_iter, "
             "vcache_read_hits", "test_curve.py"),
    Mutation("minimum is not heard", "reclaim/share.c",
             "log->claim.least = vc_pool_chunks(p, READ_ONCE(tag->least));", "",
             "test_shares.py::test_minima_come_first_then_weights_up_to_the_maxima"),
    Mutation("who has its share lets go for who has more", "reclaim/space.c",
             "bool all = vc_pool_asks_all(p);", "bool all = true;",
             "test_shares.py::test_nobody_loses_of_its_share_to_one_that_has_more"),
    Mutation("a log with a reclaim pending gets more", "reclaim/take.c",
             "if (READ_ONCE(log->reclaim_pending) && has > share)", "if (false && has > share)",
             "test_shares.py::test_who_is_furthest_over_its_share_waits_until_it_can_give"),
    Mutation("no reclaim is pending in a log that gives nothing", "reclaim/space.c",
             "WRITE_ONCE(log->reclaim_pending, true);", ";",
             "test_shares.py::test_who_is_furthest_over_its_share_waits_until_it_can_give"),
    Mutation("a pending reclaim ends when others have given", "reclaim/space.c",
             "READ_ONCE(p->nfree) > vc_pool_low(p) ||", "READ_ONCE(p->nfree) >= vc_pool_low(p) ||",
             "test_shares.py::test_who_is_furthest_over_its_share_waits_until_it_can_give"),
    Mutation("others give before who is over its share relocates", "reclaim/space.c",
             "relocate = vc_pool_first(p, vcache_relocate_candidate, *c ? (*c)->log : NULL);",
             "relocate = *c ? NULL : vc_pool_first(p, vcache_relocate_candidate, NULL);",
             "test_shares.py::"
             "test_who_is_furthest_over_its_share_relocates_before_others_give"),
    Mutation("a reclaim stays pending though the log can give", "reclaim/space.c",
             "READ_ONCE(p->nfree) > vc_pool_low(p) ||\n"
             "\t\t\t     vcache_log_victim(log, VC_SHARED) ||",
             "READ_ONCE(p->nfree) > vc_pool_low(p) ||",
             "test_shares.py::test_who_is_furthest_over_its_share_waits_until_it_can_give"),
    Mutation("what little was written stays in the cache", "log/update.c",
             "if (atomic_inc_return(&c->dirty) == 1)\n"
             "\t\tvcache_log_upper->dirty(v);",
             "atomic_inc(&c->dirty);",
             "test_pool.py::test_little_now_and_then_reaches_the_origin_from_one_chunk"),
    Mutation("an idle log's chunk is closed", "destage/destage.c",
             "if (vc_log_lacks_clean(log))\n\t\t\tvc_log_close_clean(log);",
             "vcache_log_close_idle(log);",
             "test_pool.py::test_little_now_and_then_reaches_the_origin_from_one_chunk"),
    Mutation("idle logs keep their chunks where all others are taken", "destage/destage.c",
             "if (vc_log_lacks_clean(log))\n\t\t\tvc_log_close_clean(log);", ";",
             "test_pool.py::test_many_that_write_little_leave_room"),
    Mutation("what was read is gone after a restart", "pool/pool.c",
             "if (vcache_pool_keep_reads(p))", "if (0)",
             "test_reads.py::test_what_was_promoted_is_there_after_a_clean_restart"),
    Mutation("a sealed chunk of reads is one of reads still", "cache/warm.c",
             "if (!r)\n\t\tvc_warm_hand_over(log, c, info.gen);", "",
             "test_reads.py::test_a_pool_goes_on_with_what_was_promoted_when_it_is_resumed"),
    Mutation("who has just its share waits for others", "reclaim/take.c",
             "READ_ONCE(p->nfree) + (has <= share) > vcache_pool_reserve(p)",
             "READ_ONCE(p->nfree) > vcache_pool_reserve(p)",
             "test_shares.py::test_who_has_its_share_goes_on_when_its_origin_does"),
    Mutation("what was read waits for what was written before", "reclaim/victim.c",
             "vc_log_warm(log, domain) ?:\n", "\n",
             "test_reads.py::test_what_was_read_before_a_restart_makes_room_for_others"),
    Mutation("all lanes are shared", "log/lane.c",
             "l->owner == log && l->nfree", "l->nfree",
             "test_lanes.py::test_nobody_disturbs_a_tag_in_its_lanes"),
    Mutation("its own lanes are no part of its maximum", "reclaim/share.c",
             "if (most)\n\t\t\tlog->claim.most -= min(log->claim.most, own);", "",
             "test_lanes.py::test_a_maximum_that_its_lanes_hold_keeps_a_tag_in_them"),
    Mutation("what others have in a lane stays", "reclaim/own.c",
             "vcache_pool_clear(p, first, end, l->owner, by);", "",
             "test_lanes.py::test_lanes_change_hands_under_io"),
    Mutation("hot and cold stay where they are", "reclaim/migrate.c",
             "vcache_hot_passes(atomic_read(&log->hot), cells,\n"
             "\t\t\t\t READ_ONCE(log->vol->pool->hot_percent));", "false;",
             "test_lanes.py::test_what_becomes_hot_in_shared_lanes_changes_places"),
    Mutation("what is as hot changes places", "reclaim/migrate.c",
             "if (!vcache_swap_pays(vc_chunk_total_heat(p, c), heat, cells)) {", "if (false) {",
             "test_lanes.py::test_what_is_as_hot_everywhere_stays_where_it_is"),
    Mutation("nothing makes room for what is read", "reclaim/own.c",
             "nfree + !vc_own_may_do_without(log) >", "nfree >",
             "test_lanes.py::test_what_is_read_gets_room_where_a_tag_may_have_no_more"),
    Mutation("what is being filled is in the way", "reclaim/victim.c",
             "if (c->state != VC_CHUNK_OPEN)\n\t\t\treturn", "return",
             "test_lanes.py::test_what_was_hot_once_gives_way_to_what_is"),
    Mutation("nothing cools down", "reclaim/migrate.c",
             "vc_log_cool(p, log);\n\tvcache_reads_leave", "vcache_reads_leave",
             "test_lanes.py::test_what_was_hot_once_gives_way_to_what_is"),
    Mutation("nothing gives way in the own lanes", "reclaim/migrate.c",
             "return !vcache_chunk_reclaim(p, c, VC_RECLAIM_SWAP);", "return false;",
             "test_lanes.py::test_what_becomes_hot_in_shared_lanes_changes_places"),
    Mutation("what is cold is copied to where it was", "reclaim/migrate.c",
             "if (!vcache_log_may_grow(p, log))\n\t\treturn vc_log_reclaim_shared(p, log);", "",
             "test_lanes.py::test_they_change_places_where_a_tag_may_have_no_more"),
    Mutation("what is hot goes to shared lanes", "cache/reads.c",
             "return of == &log->reads[VC_READS_MAIN] ? VC_OWN : VC_SHARED;", "return VC_SHARED;",
             "test_lanes.py::test_what_is_written_and_what_is_hot_goes_to_the_own_lanes"),
    Mutation("what leaves shared lanes is copied there", "reclaim/take.c",
             "return READ_ONCE(log->most);\n\t}", "return true;\n\t}",
             "test_lanes.py::test_a_tag_without_shared_lanes_keeps_nothing_in_them"),
    Mutation("the watermark is fixed", "reclaim/migrate.c",
             "vcache_hot_passes(atomic_read(&log->hot), cells,\n"
             "\t\t\t\t READ_ONCE(log->vol->pool->hot_percent));",
             "vcache_hot_passes(atomic_read(&log->hot), cells, VC_HOT_PERCENT);",
             "test_lanes.py::test_the_watermark_can_be_changed"),
    Mutation("prefetch knows no own lanes", "reclaim/own.c",
             "return vcache_log_has(log, VC_OWN) + 1 < READ_ONCE(log->own_most) &&\n"
             "\t\t       nfree > vc_own_reserve(log);", "return false;",
             "test_lanes.py::test_what_is_prefetched_goes_to_the_own_lanes"),
    Mutation("prefetch takes what is for writers in own lanes", "reclaim/own.c",
             "return vcache_log_has(log, VC_OWN) + 1 < READ_ONCE(log->own_most) &&\n"
             "\t\t       nfree > vc_own_reserve(log);", "return true;",
             "test_lanes.py::test_what_is_prefetched_goes_to_the_own_lanes"),
    Mutation("empty chunks in own lanes stay", "reclaim/own.c",
             "more |= vc_own_sweep(p, log);", ";",
             "test_lanes.py::test_what_holds_nothing_in_own_lanes_makes_room_for_what_is_hot"),
    Mutation("an empty chunk in another lane stays", "reclaim/victim.c",
             "c = vcache_log_written_in(log, domain) ? vcache_log_oldest(log) : NULL;",
             "c = vc_log_oldest_in(log, domain);",
             "test_lanes.py::test_what_holds_nothing_makes_way_in_another_lane"),
    Mutation("what was written goes, however much it was read", "reclaim/victim.c",
             "return vcache_written_goes(vcache_chunk_heat(p, written, 1),\n"
             "\t\t\t\t   vcache_chunk_heat(p, read, 1)) ? written : read;", "return written;",
             "test_shares.py::"
             "test_of_a_written_and_a_read_chunk_that_goes_of_which_less_was_read"),
    Mutation("what was read goes, however much it was read again", "reclaim/victim.c",
             "return vcache_written_goes(vcache_chunk_heat(p, written, 1),\n"
             "\t\t\t\t   vcache_chunk_heat(p, read, 1)) ? written : read;", "return read;",
             "test_shares.py::"
             "test_of_a_written_and_a_read_chunk_that_goes_of_which_less_was_read"),
    Mutation("a tag that goes keeps its lanes", "pool/attach.c",
             "vcache_log_set_lanes(log, 0);", "", "test_lanes.py::test_a_new_tag_can_have_lanes"),
    Mutation("only the newest tag of a log is woken", "log/chunk.c",
             "if (READ_ONCE(tag->log) == log)", "if (tag == user)",
             "test_pool.py::test_what_a_removed_tag_has_is_written_"
             "whatever_its_successor_does[False]"),
    Mutation("a log is nobody's when its newest tag goes", "pool/attach.c",
             "other = vc_log_other(log, tag);", "other = NULL;",
             "test_pool.py::test_what_a_removed_tag_has_is_written_"
             "whatever_its_successor_does[True]"),
    Mutation("all give, though some are over their shares", "reclaim/space.c",
             "return vc_pool_is_used_up(p) ||\n\t       "
             "(READ_ONCE(p->nfree) < vcache_pool_reserve(p) &&\n\t\t!vc_pool_has_over(p));",
             "return READ_ONCE(p->nfree) < vcache_pool_reserve(p);",
             "test_shares.py::test_nobody_loses_of_its_share_to_one_that_has_the_core_of_its_own"),
    Mutation("who lacks a chunk does not give its own", "reclaim/space.c",
             "!READ_ONCE(log->lanes) &&\n\t       !vcache_log_may_grow(p, log);", "false;",
             "test_shares.py::test_nobody_loses_of_its_share_to_one_that_has_the_core_of_its_own"),
    Mutation("nothing of a share is guaranteed", "reclaim/take.c",
             "if (has < READ_ONCE(log->guaranteed))", "if (false)",
             "test_shares.py::test_a_minimum_is_there_whoever_has_to_give_for_it"),
    Mutation("with own lanes nothing of a share is guaranteed", "reclaim/take.c",
             "if (has < READ_ONCE(log->guaranteed))",
             "if (!READ_ONCE(log->lanes) && has < READ_ONCE(log->guaranteed))",
             "test_shares.py::test_a_minimum_is_there_for_one_whose_own_lanes_do_not_hold_it"),
    Mutation("the guaranteed share is less than the minimum", "reclaim/share.c",
             "max_t(u64, log->claim.least,\n\t\t\t\t\t\t\t  log->claim.share / 2)",
             "log->claim.share / 2",
             "test_shares.py::test_a_minimum_is_there_whoever_has_to_give_for_it"),
    Mutation("logs that are not in use have chunks kept free", "reclaim/share.c",
             "users += !!log->claim.weight;", "users++;",
             "test_shares.py::test_who_is_not_in_use_has_no_chunk_kept_free"),
    Mutation("who has its maximum does not relocate", "reclaim/space.c",
             "return c && vc_pool_relocate(p, c, left);", "return false;",
             "test_shares.py::test_who_has_its_maximum_relocates_what_fits_into_it[0]"),
    Mutation("who has its maximum in own lanes does not relocate", "reclaim/own.c",
             "return c && vcache_relocate_chunk(log, c);", "return false;",
             "test_shares.py::test_who_has_its_maximum_relocates_what_fits_into_it[2]"),
    Mutation("what is kept of a chunk that goes is above the maximum of own lanes",
             "reclaim/share.c",
             "vc_chunks_limit(log->claim.own_most)", "log->claim.own_most",
             "test_shares.py::test_who_has_its_maximum_relocates_what_fits_into_it[2]"),
    Mutation("what is refused is tried again and again", "buffer/block.c",
             "after->again |= d.failed && tag->epoch.draining;",
             "after->again |= tag->epoch.draining;",
             "test_failure.py::test_what_is_refused_is_tried_at_most_twice_a_flush"),
    Mutation("who waited behind a failure gets no try", "buffer/block.c",
             "after->again |= d.failed && tag->epoch.draining;", "",
             "test_failure.py::test_what_is_refused_is_tried_at_most_twice_a_flush"),
    Mutation("prefetch misses a write", "log/update.c",
             "vcache_lookup_changes(v, block) == changes &&", "",
             "test_prefetch.py::test_a_write_that_has_come_and_gone_ends_it"),
    Mutation("prefetch stops at what is there", "cache/prefetch.c",
             "n = vc_prefetch_alike(log->vol, block, n, &there);", "there = false;",
             "test_prefetch.py::test_what_others_have_is_left_out"),
    Mutation("prefetch takes of the reserve", "reclaim/take.c",
             "has + 1 < READ_ONCE(log->most) && p->nfree > keep",
             "has + 1 < READ_ONCE(log->most)",
             "test_prefetch.py::test_nobody_loses_his_share_to_it"),
    Mutation("prefetch pushes out what it has brought", "reclaim/take.c",
             "has + 1 < READ_ONCE(log->most) && p->nfree > keep",
             "has < READ_ONCE(log->most) && p->nfree > keep",
             "test_prefetch.py::test_it_gives_up_where_chunks_stay_short"),
    Mutation("prefetch ends at a suspend", "pool/quiesce.c",
             "vcache_prefetch_resume(log);", ";",
             "test_prefetch.py::test_it_goes_on_behind_a_suspend"),
    Mutation("prefetched lists in no order", "cache/prefetch.c",
             "list_add_tail(&list->node", "list_add(&list->node",
             "test_prefetch.py::test_what_comes_first_is_there_first"),
    Mutation("dirty chunk is given up", "reclaim/reclaim.c",
             "c->state != VC_CHUNK_SEALED || atomic_read(&c->dirty)",
             "c->state != VC_CHUNK_SEALED",
             "test_prefetch.py::test_what_is_dirty_is_never_given_up"),
    Mutation("part of a block is in the map", "log/lookup.c",
             "whole = vcache_cell_mask(&p->ix, cell) == VC_MASK_ALL &&",
             "whole = vcache_cell_mask(&p->ix, cell) &&",
             "test_prefetch.py::test_the_map_says_what_is_cached_and_how_hot"),
    Mutation("writers fill what relocation takes above a maximum", "reclaim/own.c",
             "vc_log_is_within(log, VC_SHARED) &&", "true &&",
             "test_shares.py::test_a_maximum_holds_while_chunks_are_relocated[0]"),
    Mutation("the first volumes get chunks first", "reclaim/take.c",
             "served <= after || served >= first)", "served <= after || next)",
             "test_shares.py::test_writers_that_wait_get_chunks_in_turn"),
    Mutation("a log fills up with dirty data", "log/pace.c",
             "limit = vcache_log_upper->dirty_limit(log);", "limit = U32_MAX;",
             "test_shares.py::test_a_log_does_not_fill_up_with_dirty_data"),
    Mutation("a record has what was in its pages before", "io/append.c",
             "\t\tvc_block_pad(b);\n", "",
             "test_pool.py::test_a_record_has_no_data_of_others"),
    Mutation("who is slowed down is not served", "reclaim/take.c",
             "READ_ONCE(log->starved) || (READ_ONCE(log->pace.delay) && !READ_ONCE(log->spare))",
             "READ_ONCE(log->starved)",
             "test_shares.py::test_writers_that_wait_get_chunks_in_turn"),
    Mutation("writers fill what relocation takes above a maximum in lanes", "reclaim/own.c",
             "vc_log_is_within(log, VC_OWN))", "true)",
             "test_shares.py::test_a_maximum_holds_while_chunks_are_relocated[2]"),
    Mutation("destage does not look before a block", "destage/window.c",
             "while (room-- && from > first &&", "while (false && room-- && from > first &&",
             "test_pool.py::test_what_precedes_a_block_on_the_origin_goes_with_it"),
    Mutation("a throttled window is no longer request", "destage/window.c",
             "u32 extended = max(most, vc_request_blocks(v));", "u32 extended = most;",
             "test_throttle.py::test_a_throttled_window_may_be_one_long_request"),
    Mutation("the readers of others do not count", "destage/throttle.c",
             "return vcache_readers_elsewhere(v) ||",
             "return (false && vcache_readers_elsewhere(v)) ||",
             "test_throttle.py::test_a_reader_does_not_wait_for_the_destage_of_others"),
    Mutation("destage has no rate", "destage/flight.c",
             "if (vcache_rate_left(log)) {", "if (false) {",
             "test_limits.py::test_rate_bounds_what_the_origin_receives"),
    Mutation("a pause does nothing", "destage/limit.c",
             "return vcache_destage_paused(log->vol) && !vc_log_owes(log) &&", "return false &&",
             "test_limits.py::test_pause_stops_destage_and_ends"),
    Mutation("a drain observes a pause", "destage/limit.c",
             "return READ_ONCE(v->drain) || until <= now ? 0 :", "return until <= now ? 0 :",
             "test_limits.py::test_drain_ends_a_pause"),
    Mutation("others wait for a pause", "destage/limit.c",
             "return READ_ONCE(log->reclaim_pending) || READ_ONCE(log->unsealed) ||",
             "return READ_ONCE(log->unsealed) ||",
             "test_limits.py::test_pause_does_not_keep_space_from_others"),
    Mutation("destage begins at a fixed part of a share", "destage/destage.c",
             "(vc_log_dirty_above(log, READ_ONCE(log->vol->limits.low)) &&",
             "(vc_log_dirty_above(log, VC_DIRTY_LOW) &&",
             "test_limits.py::test_dirty_part_from_which_destage_begins"),
    Mutation("destage has one window in flight", "destage/flight.c",
             "u32 depth = vc_flight_flows(v) ? v->flow.depth.value : 1;", "u32 depth = 1;",
             "test_flight.py::test_windows_fill_a_long_round_trip"),
    Mutation("destage does not learn how many windows are enough", "destage/flight.c",
             "if (w->requests && vc_flight_flows(v))", "if (false)",
             "test_flight.py::test_windows_fill_a_long_round_trip"),
    Mutation("destage sends all requests of a window at once", "destage/window.c",
             "\twait_event(v->room, atomic_read(&v->writes) < v->queue.depth.value);\n", "",
             "test_flight.py::test_few_requests_are_sent_at_a_time_before_the_origin_is_known"),
    Mutation("destage keeps the memory of its windows", "destage/flight.c",
             "\t\tatomic_dec(&v->pool->windows);\n\t}\n", "\t}\n",
             "test_flight.py::test_windows_fill_a_long_round_trip"),
    Mutation("throttled windows of serial origins run at once", "destage/throttle.c",
             "return vcache_throttle_serial(v) &&", "return false &&",
             "test_throttle.py::test_a_reader_does_not_wait_for_the_destage_of_others"),
]


#: Time limit for the test of one mutation.
_SECONDS = 240

#: The number of a mutation that hung, and the number of undetected ones before it.
_HUNG = BUILD / "hung"


def _module(number: int) -> Path:
    return BUILD / f"{number}.ko"


def build(wanted: list[int], tree: Path, *words: str) -> None:
    """Build the module once for each mutation.

    :param tree: headers of the kernel
    :param words: further words for make
    """
    shutil.rmtree(BUILD, ignore_errors=True)
    shutil.copytree(REPO / "native", BUILD / "native")
    folder = BUILD / "native" / "dm"
    for number in wanted:
        mutation = MUTATIONS[number]
        source = folder / mutation.file
        text = source.read_text()
        if text.count(mutation.old) != 1:
            raise SystemExit(f"{mutation.name}: {mutation.file} has the line to be broken "
                             f"{text.count(mutation.old)} times")
        source.write_text(text.replace(mutation.old, mutation.new))
        # Ignore warnings: a mutation may leave something unused.
        subprocess.run(
            ["make", "-s", "-C", str(tree), f"M={folder}", "KCFLAGS=-w", *words, "modules"],
            check=True, stdout=subprocess.DEVNULL)
        shutil.copy(folder / "dm-vcache.ko", _module(number))
        source.write_text(text)


def _pytest(test: str, module: Path) -> tuple[int, str] | None:
    """Run a test with a module; return its status and output, or None if it hangs.

    A hung test is abandoned: a process that a stuck module holds cannot be killed.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=line",
         f"tests/kernel/{test}"], env={**os.environ, "VCACHE_MODULE": str(module)},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        output, _ = process.communicate(timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        return None
    return process.returncode, output


def inside(numbers: list[int]) -> int:
    """Run the tests in the box; return the number of undetected mutations.

    A mutation that hangs is detected, and ends the box: no other module can be loaded.
    """
    missed = 0
    for number in numbers:
        mutation = MUTATIONS[number]
        done = _pytest(mutation.test, _module(number))
        if done is None:
            print(f"noticed  {mutation.name}: {mutation.test} hangs", flush=True)
            _HUNG.write_text(f"{number} {missed}")
            Path("/proc/sysrq-trigger").write_text("o")
            time.sleep(_SECONDS)
            return missed
        status, output = done
        # 1: tests have failed; any other status is an error.
        noticed = status == 1 and "failed" in output
        missed += not noticed
        print(f"{'noticed' if noticed else 'MISSED '}  {mutation.name}: {mutation.test}",
              flush=True)
        if not noticed:
            print(output, flush=True)
    return missed


def outside(numbers: list[int], box: Machine) -> int:
    """Run the tests, with a new boot after each hang; return the number of undetected ones."""
    missed = 0
    while numbers:
        _HUNG.unlink(missing_ok=True)
        names = [MUTATIONS[number].name for number in numbers]
        try:
            command = [sys.executable, "-m", "tests.kernel.mutations", *names]
            return missed + box.run(command, timeout=3600).status
        except BoxError:
            if not _HUNG.exists():
                raise
        hung, before = map(int, _HUNG.read_text().split())
        missed += before
        numbers = numbers[numbers.index(hung) + 1:]
    return missed


def main() -> int:
    """Build and run; the exit status tells whether each mutation was detected."""
    parser = argparse.ArgumentParser(prog="python -m tests.kernel.mutations", description=__doc__)
    parser.add_argument("--kernel", default=default())
    parser.add_argument("--uml", action="store_true", help="run in User Mode Linux")
    parser.add_argument("words", nargs="*", help="parts of the names of those that are wanted")
    options = parser.parse_args()
    wanted = [number for number, mutation in enumerate(MUTATIONS)
              if not options.words or any(word in mutation.name for word in options.words)]
    if os.environ.get("VCACHE_BOX"):
        return min(inside(wanted), 1)
    ssd.build()
    box: Machine
    if options.uml:
        build(wanted, uml.tree(), "ARCH=um")
        box = Uml(memory="2G")
    else:
        build(wanted, Path(f"/lib/modules/{select(options.kernel)}/build"))
        box = Box(kernel=options.kernel)
    return min(outside(wanted, box), 1)


if __name__ == "__main__":
    with explained("mutations"):
        sys.exit(main())
