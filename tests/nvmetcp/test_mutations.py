# SPDX-License-Identifier: Apache-2.0
"""Check that the tests of the controller detect errors in it.

Each mutation breaks one line, and a test must fail. Only that file is compiled
again, without sanitizers, since the test itself must detect the error.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.box.limits import limit
from tests.nvmetcp import build


class Mutation(NamedTuple):
    """One line of the controller, its replacement, and the tests that must detect it."""

    name: str
    file: str
    old: str
    new: str
    test: str


MUTATIONS = [
    Mutation("header digests are not looked at", "rx", "if (!header_digest_right(&c->rx)) {",
             "if (0) {", "test_transport.py::test_wrong_header_digest"),
    Mutation("data digests are not looked at", "rx", "r->data_bad = true;", ";",
             "test_transport.py::test_wrong_data_digest_fails_the_command_alone"),
    Mutation("data may come out of order", "rx",
             "le32_to_cpu(pdu->datao) != r->received ||\n\t    ", "",
             "test_transport.py::test_data_with_a_wrong_header"),
    Mutation("data may be for another command", "rx",
             "if (le16_to_cpu(pdu->cccid) != request_cid(r)) {", "if (0) {",
             "test_transport.py::test_data_with_a_wrong_header"),
    Mutation("DATAL may lie", "rx", "if (datal != c->rx.layout.data) {", "if (0) {",
             "test_transport.py::test_data_with_a_wrong_header"),
    Mutation("ICReq may come again", "pdu",
             "icreq == session->initialised", "0",
             "test_transport.py::test_icreq_comes_once"),
    Mutation("in-capsule data has no limit", "pdu", "data > IN_CAPSULE_DATA", "0",
             "test_transport.py::test_capsule_with_a_wrong_header"),
    Mutation("commands have no memory limit", "conn",
             "return c->bytes + r->length <= CONNECTION_BYTES;",
             "return c->bytes || r->length || 1;",
             "test_transport.py::test_memory_of_a_connection_is_bounded"),
    Mutation("the queue has no end", "conn", "if (c->used - parked >= c->entries)", "if (!r)",
             "test_transport.py::test_more_commands_than_entries"),
    Mutation("a reset keeps the values of features", "settings",
             "*s = (struct settings){ .over = THRESHOLD_VALUE };", "s->over = THRESHOLD_VALUE;",
             "test_admin.py::test_a_reset_restores_features"),
    Mutation("a reserved bit of a feature is stored", "settings", "if (value & ~mask)",
             "if (!mask)", "test_admin.py::test_features_that_are_required"),
    Mutation("Compare ignores FUA", "io",
             "uint16_t status = read_begin(r);\n\n\treturn", "uint16_t status = 0;\n\n\treturn",
             "test_io.py::test_fua"),
    Mutation("slow hosts are waited for", "conn",
             "passed(c->pdu_deadline, now) ||", "", "test_transport.py::test_slow_hosts"),
    Mutation("the upper bits of CID are lost", "tx", ".cid = r->sqe.cid,",
             ".cid = cpu_to_le16(request_cid(r) & 0xfff),",
             "test_transport.py::test_commands_out_of_order_of_their_data"),
    Mutation("SUCCESS although SQHD is wanted", "tx", "c->sq_flow || ", "",
             "test_transport.py::test_sqhd_counts_commands"),
    Mutation("anybody joins a controller", "fabrics",
             "memcmp(data->hostid, k->hostid, sizeof(k->hostid)) ||\n\t    ", "",
             "test_fabrics.py::test_io_queue_that_is_refused"),
    Mutation("shutdown does not flush", "ctrl",
             "!k->discovery && subsys_flush_all(k->subsys, &done)", "0",
             "test_io.py::test_shutdown_flushes"),
    Mutation("keep alive never ends", "ctrl",
             "k->subsys->now >= k->keep_alive", "0", "test_fabrics.py::test_keep_alive"),
    Mutation("any command keeps alive", "identify",
             "memset(r->data, 0, r->length);",
             "memset(r->data, 0, r->length); ctrl_keep_alive(r->conn->ctrl);",
             "test_fabrics.py::test_keep_alive"),
    Mutation("events are told again and again", "aer", "k->events &= ~(1u << event);", "",
             "test_admin.py::test_events_when_the_medium_takes_no_more"),
    Mutation("the range may wrap", "io", "slba > size || lbas > size - slba",
             "slba + lbas > size", "test_io.py::test_ranges_that_are_not_there"),
    Mutation("FUA is not honoured", "media", "fua || !s->write_cache", "!s->write_cache",
             "test_io.py::test_fua"),
    Mutation("the cache cannot be switched off", "media", "fua || !s->write_cache", "fua",
             "test_io.py::test_write_cache_that_is_off"),
    Mutation("a flush is of the first namespace", "io",
             "e.offset = subsys_first_block(s, request_nsid(r)) * VS_BLOCK;\n\t\tstatus", "status",
             "test_io.py::test_flush_of_the_second_namespace"),
    Mutation("a flush is of everything", "io", "if (request_nsid(r) == NSID_ALL) {", "if (1) {",
             "test_io.py::test_write_is_volatile_until_it_is_flushed"),
    Mutation("the tag of a flush is lost", "io",
             "vs_flush_tag(s->config.device.ssd, start, tag)",
             "vs_flush_tag(s->config.device.ssd, start, 0)",
             "test_io.py::test_tagged_flush_covers_its_tag_and_the_hosts"),
    Mutation("the tag of a deallocation is lost", "io",
             "return deallocate(r, le32_to_cpu(r->sqe.cdw2), true);",
             "return deallocate(r, VS_TAG_HOST, true);", "test_io.py::test_tagged_deallocate"),
    Mutation("a deallocation is volatile without a write cache", "io",
             "i < n && !status && !s->write_cache; i++", "i < n && 0; i++",
             "test_io.py::test_deallocate_without_a_write_cache"),
    Mutation("the handle of a write is lost", "io", "(struct owner){ tag, handle }",
             "(struct owner){ tag, 0 }", "test_fdp.py::test_writes_go_to_their_handle"),
    Mutation("an update begins no unit", "fdp", "\t\tvs_unit_next(ssd, handle);\n", "",
             "test_fdp.py::test_send_begins_a_new_unit"),
    Mutation("any endurance group will do", "log",
             "le32_to_cpu(r->sqe.cdw11) >> 16 != FDP_ENDURANCE_GROUP", "0",
             "test_fdp.py::test_other_endurance_groups"),
    Mutation("all events are recorded", "fdp", "if (!(s->fdp.enabled[handle] & 1u << type))",
             "if (0)", "test_fdp.py::test_events"),
    Mutation("any power-on will do", "io", "instance != r->conn->subsys->instance", "0",
             "test_io.py::test_tagged_flush_of_another_power_on"),
    Mutation("the edges of a block are not read", "media",
             "if (head || (tail && first == last))", "if (0)",
             "test_io.py::test_small_blocks_against_a_model"),
    Mutation("deallocation takes blocks in part", "media",
             "(e.offset + VS_BLOCK - 1) / VS_BLOCK;\n\tuint64_t end", "e.offset / VS_BLOCK;"
             "\n\tuint64_t end", "test_io.py::test_small_blocks_deallocate_whole_ones_only"),
    Mutation("answers do not wait for the device", "request",
             "s->config.timing && r->done > s->now", "0",
             "test_io.py::test_answers_come_when_the_device_says"),
    Mutation("a flush never holds anything back", "subsys", "s->held_until = until;", ";",
             "test_io.py::test_exclusive_flush_holds_back_what_comes"),
    Mutation("each flush holds back what comes", "subsys",
             "s->config.exclusive_flush && s->config.timing", "s->config.timing",
             "test_io.py::test_overlapped_flush_holds_nothing_back"),
    Mutation("a tagged flush holds nothing back", "io", "note_flush(r, tag, start);",
             "note_flush(r, tag, start), s->held_until = 0;",
             "test_io.py::test_exclusive_flush_holds_back_what_comes"),
    Mutation("the device's time goes back", "subsys", "vs_flush(ssd, subsys_clock(s), 0,",
             "vs_flush(ssd, s->now, 0,", "test_io.py::test_end_while_a_flush_holds"),
    Mutation("the later answer goes first", "heap",
             "h->at[(i - 1) / 2]->done > r->done", "h->at[(i - 1) / 2]->done < r->done",
             "test_io.py::test_answers_in_the_order_of_their_times"),
    Mutation("an SSD without tags says that it has some", "log",
             "return k->subsys->config.device.tagged ?\n\t\t       sizeof(struct log_vcache) : 0;",
             "return sizeof(struct log_vcache);",
             "test_admin.py::test_nothing_is_said_of_tags"),
    Mutation("an SSD without tags takes tagged commands", "io",
             "&sets[s->config.device.tagged]", "&sets[1]",
             "test_admin.py::test_nothing_is_said_of_tags"),
    Mutation("a cause is left out", "wear", "for (i = 0; i < VS_CAUSES; i++)",
             "for (i = 1; i < VS_CAUSES; i++)", "test_admin.py::test_writes_log"),
    Mutation("the last bucket is taken", "wear",
             "if (!counts[LOG_ERASES_BUCKETS - 1] || width >> 31)", "if (1)",
             "test_admin.py::test_erases_log"),
    Mutation("wear is counted in erases", "health", "d->endurance / 100, blocks", "1, blocks",
             "test_admin.py::test_wear_in_the_smart_log"),
    Mutation("spare does not shrink", "health", "stats.bad_blocks)", "0 * stats.bad_blocks)",
             "test_admin.py::test_wear_in_the_smart_log"),
    Mutation("a tag has the host's state", "vendor",
             "if (vs_get_tag_stats(s->config.device.ssd, t->tag, &ssd)) {",
             "if (vs_get_tag_stats(s->config.device.ssd, t->tag, &ssd), 1) {",
             "test_admin.py::test_tag_log"),
    Mutation("an SSD without tags has their weights", "features",
             "if (!discovery && r->conn->subsys->config.device.tagged)", "if (!discovery)",
             "test_admin.py::test_nothing_is_said_of_tags"),
    Mutation("a weight above the maximum reaches the SSD", "weight",
             "if (weight > VS_WEIGHT_MAX)", "if (0)", "test_admin.py::test_weights_of_tags"),
    Mutation("a weight of no effect is accepted", "weight", "!= VS_OK)", "== VS_EPOWER)",
             "test_admin.py::test_weights_of_tags"),
    Mutation("a tag with a weight is not listed before its use", "weight",
             "tags_get(&s->tags, tag);", ";", "test_admin.py::test_weights_of_tags"),
    Mutation("a tag without a weight is listed", "weight",
             "if (weight)\n", "if (1)\n", "test_admin.py::test_weights_of_tags"),
    Mutation("the program ends without a flush", "main", "subsys_flush_all(s, &done)", "done",
             "test_io.py::test_stop_flushes"),
]

FLAGS = (*(w for w in build.WARNINGS if w != "-Werror"), "-w", "-O1", "-g")


def _compile(source: Path, to: Path, *include: str) -> None:
    subprocess.run(["gcc", *FLAGS, *include, "-c", "-o", str(to), str(source)], check=True)


@pytest.fixture(scope="module")
def objects() -> dict[str, Path]:
    """The unchanged object file of each source file."""
    folder = build.BUILD / "objects"
    folder.mkdir(parents=True, exist_ok=True)
    compiled = {}
    for source in build.sources():
        compiled[source.stem] = folder / f"{source.stem}.o"
        _compile(source, compiled[source.stem])
    return compiled


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.name)
def test_mutation_is_noticed(mutation: Mutation, objects: dict[str, Path],
                             tmp_path: Path) -> None:
    original = build.REPO / "firmware" / "nvmetcp" / f"{mutation.file}.c"
    text = original.read_text()
    assert text.count(mutation.old) == 1, "the line to be broken is not there (any more)"
    source = tmp_path / original.name
    text = text.replace('"../core/', f'"{build.REPO}/firmware/core/')
    source.write_text(text.replace(mutation.old, mutation.new))
    _compile(source, tmp_path / "changed.o", f"-I{original.parent}")
    program = tmp_path / "vcache-ssd"
    linked = {**objects, mutation.file: tmp_path / "changed.o"}
    subprocess.run(["gcc", "-o", str(program), *map(str, linked.values())], check=True)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider",
         f"tests/nvmetcp/{mutation.test}"],
        cwd=build.REPO, capture_output=True, text=True, check=False, timeout=limit(200),
        # Plugins, which these tests do not use, take a third of the start.
        env={**os.environ, "VCACHE_SSD_PROGRAM": str(program),
             "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})
    assert done.returncode == 1, done.stdout[-2000:]
