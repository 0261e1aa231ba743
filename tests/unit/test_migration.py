# SPDX-License-Identifier: Apache-2.0
"""Live migration: the messages, the decisions, the files, and the relay's client."""

import contextlib
import dataclasses
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nova_vcache.extra_specs import Mode
from tests.unit.plan_model import FILES, VOLUME, Host, disk, uuid
from vcache_agent.hook_server import Refused
from vcache_agent.migration import arrivals, departures, emptying, relay, verdict
from vcache_agent.migration.messages import (
    MESSAGE_BYTES,
    MOST_SECONDS,
    Answer,
    BadMessage,
    DiskSettings,
    Question,
    Settings,
    encode_answer,
    encode_question,
    parse_answer,
    parse_question,
)
from vcache_agent.migration.moves import Moves, Role
from vcache_agent.migration.verdict import Departure, Sight
from vcache_agent.model import NO_LIMITS, DiskSource, DiskState, Domain, Limits
from vcache_agent.netlink import spec
from vcache_agent.overrides import Override
from vcache_agent.unix_server import UnixServer

VM, OTHER = uuid(1), uuid(2)
SETTINGS = Settings(Override(weight=900, slo_flush_ms=2.5),
                    {"vda": DiskSettings(7, "writethrough"), "vdb": DiskSettings(None, None)})
ANSWER = Answer(VM, False, 4096, "disk vda is being written to its storage", SETTINGS)

JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
                    lambda inner: st.lists(inner, max_size=4)
                    | st.dictionaries(st.text(max_size=8), inner, max_size=4), max_leaves=8)


class TestMessages:
    def test_they_arrive_as_they_were_sent(self) -> None:
        question = Question(VM, 0.5)
        assert parse_question(json.loads(json.dumps(encode_question(question)))) == question
        assert parse_answer(json.loads(json.dumps(encode_answer(ANSWER))), VM) == ANSWER

    def test_fields_and_overrides_of_a_later_agent_are_ignored(self) -> None:
        later = encode_answer(ANSWER) | {"heat": [1, 2]}
        later["override"]["slo_of_2030"] = "x"
        assert parse_answer(later, VM) == ANSWER

    def test_a_question_cannot_ask_for_hours(self) -> None:
        assert parse_question({"version": 1, "domain": VM, "seconds": 1e9}).seconds == MOST_SECONDS

    @pytest.mark.parametrize(("field", "value", "wrong"), [
        ("version", 2, "version 2 must be 1"), ("version", True, "version True"),
        ("domain", "x", "must be a UUID"), ("domain", VM.upper() + " ", "must be a UUID"),
        ("domain", None, "must be a UUID"), ("seconds", -1, "at least 0"),
        ("seconds", float("nan"), "at least 0"), ("seconds", float("inf"), "at least 0"),
        ("seconds", "1", "at least 0"), ("seconds", True, "at least 0")])
    def test_a_bad_question(self, field: str, value: object, wrong: str) -> None:
        with pytest.raises(BadMessage, match=wrong):
            parse_question(encode_question(Question(VM, 1.0)) | {field: value})

    @pytest.mark.parametrize(("field", "value", "wrong"), [
        ("domain", OTHER, "another domain"), ("ready", 1, "true or false"),
        ("ready", True, "it is ready, but has"), ("dirty_bytes", -1, "at least 0"),
        ("dirty_bytes", 1 << 63, "at least 0"), ("dirty_bytes", 1.5, "at least 0"),
        ("reason", "x" * 501, "at most 500"), ("reason", ["x"], "at most 500"),
        ("override", [], "must be an object"), ("override", {"weight": 0}, "vcache:weight|weight"),
        ("override", {"weight": float("nan")}, "weight"), ("override", {"weight": True}, "weight"),
        ("disks", [], "at most 512"),
        ("disks", {f"vd{number}": {} for number in range(513)}, "at most 512"),
        ("disks", {"v" * 65: {}}, "1 to 64 printable"), ("disks", {"vda\n": {}}, "printable"),
        ("disks", {"": {}}, "printable"), ("disks", {"vda": 1}, "must be an object"),
        ("disks", {"vda": {"weight": 1001}}, "from 1 to 1000"),
        ("disks", {"vda": {"weight": True}}, "from 1 to 1000"),
        ("disks", {"vda": {"mode": "none"}}, "must be one of"),
        ("disks", {"vda": {"mode": ["writeback"]}}, "must be one of")])
    def test_a_bad_answer(self, field: str, value: object, wrong: str) -> None:
        with pytest.raises(BadMessage, match=wrong):
            parse_answer(encode_answer(ANSWER) | {field: value}, VM)

    def test_a_reason_has_no_control_characters(self) -> None:
        sent = encode_answer(ANSWER) | {"reason": "a\n\x1b[2Jb"}
        assert parse_answer(sent, VM).reason == "a  [2Jb"

    @given(JSON)
    def test_anything_else_is_a_bad_message(self, data: object) -> None:
        for parse in (parse_question, lambda data: parse_answer(data, VM)):
            with pytest.raises(BadMessage):
                parse(data)

    @given(st.sampled_from(sorted(encode_answer(ANSWER))), JSON)
    def test_any_value_in_a_field_is_taken_or_a_bad_message(self, field: str, value: Any) -> None:
        with contextlib.suppress(BadMessage):
            assert parse_answer(encode_answer(ANSWER) | {field: value}, VM).domain == VM


def domain(*disks: DiskSource, **specs: str) -> Domain:
    return Domain(VM, "vm", {f"vcache:{key}": value for key, value in specs.items()}, disks)


BLOCK = DiskSource("vda", "block", "/dev/vg/vm")
FILE = DiskSource("vdb", "file", "/images/vm")
READY = Answer(VM, True)


class TestVerdict:
    def decide(self, made: Domain, answer: Answer | str, accept: bool = False) -> str:
        return verdict.decide(made, answer, accept_unanswered=accept)

    def test_ready(self) -> None:
        assert self.decide(domain(BLOCK, mode="writeback"), READY) == ""

    @pytest.mark.parametrize("accept", [False, True])
    @pytest.mark.parametrize("mode", ["writeback", "flush-only", "none"])
    def test_a_source_with_dirty_data_is_never_accepted(self, mode: str, accept: bool) -> None:
        with pytest.raises(Refused, match="has 4 KiB that are not on the storage of disk vda yet"):
            self.decide(domain(BLOCK, mode=mode), ANSWER, accept)

    @pytest.mark.parametrize("specs", [
        {"mode": "writeback"}, {"mode": "writethrough"}, {"mode": "flush-only"}, {"mode": "bad"}])
    def test_without_an_answer(self, specs: dict[str, str]) -> None:
        made = domain(BLOCK, FILE, **specs)
        with pytest.raises(Refused, match="newer data of disk vda than the storage has: no bus"):
            self.decide(made, "no bus")
        assert "no bus" in self.decide(made, "no bus", accept=True)

    def test_what_cannot_be_outdated_needs_no_answer(self) -> None:
        assert self.decide(domain(BLOCK, mode="none"), "no bus") == ""
        assert self.decide(domain(BLOCK), "no bus") == ""
        readonly = dataclasses.replace(BLOCK, readonly=True)
        note = self.decide(domain(FILE, readonly, mode="writeback"), "no bus")
        assert note == "vm: the settings of operators stay behind: no bus"
        assert self.decide(domain(FILE, mode="writeback"), ANSWER) == ""

    RUNS, MIGRATES, GONE = Sight(True, False), Sight(True, True), Sight(False, False)

    @pytest.mark.parametrize(("departure", "sight", "now", "over"), [
        (Departure(100.0, True), RUNS, 101.0, False),
        (Departure(100.0, True), RUNS, 129.0, False),
        (Departure(100.0, True), RUNS, 130.0, True),
        (Departure(100.0, True, job=500.0), MIGRATES, 9000.0, False),
        (Departure(100.0, True, job=500.0), RUNS, 501.0, False),
        (Departure(100.0, True, job=500.0), RUNS, 502.0, True),
        # It was asked again meanwhile.
        (Departure(502.0, True, job=500.0), RUNS, 503.0, False),
        # The destination was told to wait: a second attempt shall find it ready.
        (Departure(100.0, False, job=100.5), RUNS, 103.0, False),
        (Departure(100.0, False, job=100.5, dirty=200.0), RUNS, 229.0, False),
        (Departure(100.0, False, job=100.5, dirty=200.0), RUNS, 230.0, True),
        (Departure(100.0, True, job=500.0), GONE, 9000.0, False)])
    def test_when_a_migration_is_over_at_the_source(
            self, departure: Departure, sight: Sight, now: float, over: bool) -> None:
        assert verdict.is_over(departure, sight, now, 30.0) is over


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "moves"


class TestMoves:
    def test_a_departure_survives_the_agent(self, folder: Path) -> None:
        assert Moves(folder).limits(VM) == Limits()
        Moves(folder).leave(VM)
        clock = Clock()
        moves = Moves(folder, now=clock)
        assert moves.limits(VM)[:2] == (Mode.WRITETHROUGH, None)
        assert moves.limits(OTHER) == Limits()
        move = moves.get(VM)
        assert move is not None and move.departure == Departure(100.0)
        assert (folder / f"{VM}.json").stat().st_mode & 0o777 == 0o600
        moves.ended(VM)
        assert Moves(folder).with_role(Role.LEFT).keys() == {VM}
        assert moves.limits(VM)[:2] == (Mode.FLUSH_ONLY, None)
        assert moves.remove(VM, Role.LEFT) is not None
        assert not Moves(folder).with_role(*Role) and not list(folder.iterdir())

    def test_files_are_limited_on_request(self, folder: Path) -> None:
        moves = Moves(folder, copied=True)
        moves.leave(VM)
        assert moves.limits(VM)[:2] == (Mode.WRITETHROUGH, Mode.WRITETHROUGH)
        moves.arrive(VM)
        assert moves.limits(VM)[:2] == (Mode.FLUSH_ONLY, None), "a copy is not outdated"

    def test_what_is_seen_of_a_departure(self, folder: Path) -> None:
        clock = Clock()
        moves = Moves(folder, now=clock)
        moves.note(VM, ready=True)
        assert moves.get(VM) is None
        moves.leave(VM)
        for clock.now, seen in ((101.0, {"ready": True}), (102.0, {"job": True}),
                                (103.0, {"dirty": True}), (104.0, {})):
            moves.note(VM, **seen)
        move = moves.get(VM)
        assert move is not None and move.departure == Departure(100.0, True, 102.0, 103.0)
        moves.leave(VM)
        move = moves.get(VM)
        assert move is not None and move.departure == Departure(104.0, False, 102.0, 103.0)

    def test_an_arrival_keeps_the_settings(self, folder: Path) -> None:
        moves = Moves(folder)
        moves.learn(VM, SETTINGS)
        assert moves.get(VM) is None
        moves.arrive(VM)
        moves.learn(VM, SETTINGS)
        for found in (moves, Moves(folder)):
            move = found.get(VM)
            assert move is not None and (move.role, move.settings) == (Role.ARRIVING, SETTINGS)
        assert moves.remove(VM, Role.LEAVING, Role.LEFT) is None
        moves.ended(VM)
        assert not Moves(folder).with_role(*Role)

    def test_a_domain_that_returns_before_its_cache_is_empty(self, folder: Path) -> None:
        moves = Moves(folder)
        moves.leave(VM)
        moves.ended(VM)
        moves.arrive(VM)
        assert moves.with_role(Role.ARRIVING).keys() == {VM}

    @pytest.mark.parametrize(("name", "content"), [
        (f"{VM}.json", b""), (f"{VM}.json", b"[]"), (f"{VM}.json", b'{"role": "boss"}'),
        (f"{VM}.json", b'{"role": "arriving", "override": 5}'),
        (f"{VM}.json", b"[" * 100000), (f"{VM}.json", b" " * (MESSAGE_BYTES + 1)),
        (f"{VM}.json.new", b'{"role": "left"}'), ("x.json", b'{"role": "left"}'),
        (f"{VM.upper()}x.json", b'{"role": "left"}')])
    def test_bad_files_are_removed(self, folder: Path, name: str, content: bytes) -> None:
        folder.mkdir()
        (folder / name).write_bytes(content)
        assert not Moves(folder).with_role(*Role)
        assert not list(folder.iterdir())

    def test_a_link_is_not_followed(self, folder: Path, tmp_path: Path) -> None:
        folder.mkdir()
        (tmp_path / "target").write_text('{"role": "left"}')
        (folder / f"{VM}.json").symlink_to(tmp_path / "target")
        assert not Moves(folder).with_role(*Role)
        assert (tmp_path / "target").exists()


def volume(number: int = 1, *, mode: Mode = Mode.WRITEBACK, limits: Limits = NO_LIMITS,
           shareable: bool = False, on: Any = VOLUME) -> DiskState:
    made = disk(number, on=on, cgroup=number, mode=mode)
    source = dataclasses.replace(made.source, kind="block", shareable=shareable)
    return dataclasses.replace(made, source=source, limits=limits)


LEAVING = Limits(Mode.WRITETHROUGH, None, "while it leaves")
ARRIVING = Limits(Mode.FLUSH_ONLY, None, "until it runs")


class TestPlan:
    def host(self, mode: spec.Mode = spec.Mode.WRITEBACK) -> Host:
        host = Host(40)
        host.use(mode, pool="254:9")
        return host

    @pytest.mark.parametrize(("limits", "on", "mode"), [
        (LEAVING, VOLUME, "writethrough"), (ARRIVING, VOLUME, "flush-only"),
        (LEAVING, FILES, "writeback"), (ARRIVING, FILES, "writeback"),
        (LEAVING._replace(file=Mode.WRITETHROUGH), FILES, "writethrough")])
    def test_a_limit_holds_for_the_operator_too_and_ends(
            self, limits: Limits, on: Any, mode: str) -> None:
        host = self.host()
        host.step(volume(mode=Mode.WRITETHROUGH, on=on))
        host.set(1, mode="writeback")
        (report,) = host.step(volume(mode=Mode.WRITETHROUGH, limits=limits, on=on)).disks
        assert report.mode == mode
        assert host.kernel.tags[on, report.tag or 0].mode.name == mode.upper().replace("-", "_")
        if mode != "writeback":
            assert (limits.reason in report.note) is (mode == "flush-only")
        (report,) = host.step(volume(mode=Mode.WRITETHROUGH, on=on)).disks
        assert report.mode == "writeback"

    def test_a_lower_mode_stays(self) -> None:
        host = self.host()
        (report,) = host.step(volume(mode=Mode.FLUSH_ONLY, limits=LEAVING)).disks
        assert (report.mode, report.note) == (Mode.FLUSH_ONLY, "")

    def test_a_note_names_the_reason(self) -> None:
        (report,) = self.host().step(volume(limits=LEAVING)).disks
        assert report.note == "mode writethrough instead of writeback: while it leaves"

    @pytest.mark.parametrize(("on", "mode"), [(VOLUME, "flush-only"), (FILES, "writethrough")])
    def test_what_several_may_write(self, on: Any, mode: str) -> None:
        host = self.host()
        (report,) = host.step(volume(shareable=True, on=on)).disks
        assert report.mode == mode
        assert "<shareable/>" in report.note

    def test_one_of_two_domains_is_enough(self) -> None:
        host = self.host()
        found = host.step(volume(1), volume(2, shareable=True)).disks
        assert {report.mode for report in found} == {Mode.FLUSH_ONLY}

    def test_what_the_source_waits_for(self) -> None:
        host = self.host()
        decided = host.step(volume(limits=LEAVING), disk(2, on=FILES, mode=Mode.WRITEBACK))
        tags = list(host.kernel.tags.values())
        assert departures.of_disks(decided.disks, host.devices, tags) == (0, "")
        dirty = [dataclasses.replace(item, cache_dirty_bytes=4096) for item in host.devices]
        assert departures.of_disks(decided.disks, dirty, tags) == (
            4096, "disk vda is being written to its storage"), "that of the volume only"
        tags = [dataclasses.replace(tag, mode=spec.Mode.WRITEBACK) for tag in tags]
        assert departures.of_disks(decided.disks, host.devices, tags) == (
            0, "disk vda is still in mode writeback")
        lost = dataclasses.replace(decided.disks[0].state, location=None, unknown=True,
                                   reason="its path hangs")
        report = dataclasses.replace(decided.disks[0], state=lost, device=None, tag=None)
        assert departures.of_disks([report], host.devices, tags) == (
            0, "disk vda: its path hangs")

    def test_what_the_destination_waits_for(self) -> None:
        host = self.host()
        reports = host.step(volume(limits=ARRIVING)).disks
        tags = list(host.kernel.tags.values())
        assert arrivals.cached(reports, host.devices, tags) == ""
        assert "flush-only yet" in arrivals.cached(
            reports, host.devices, [dataclasses.replace(tag, mode=spec.Mode.WRITEBACK)
                                    for tag in tags])
        # Any tag of the device: the volume may have had another one.
        host.kernel.tags[VOLUME, 0] = dataclasses.replace(tags[0], id=0, cached_bytes=8192)
        assert "8 KiB are not released yet" in arrivals.cached(
            reports, host.devices, list(host.kernel.tags.values()))
        for fields, wrong in (({"cache_dirty_bytes": 4096}, "4 KiB that are not on its storage"),
                              ({"mode": spec.Mode.WRITETHROUGH}, "is in mode writethrough"),
                              ({"pool": ""}, "")):
            devices = [dataclasses.replace(item, **fields) for item in host.devices]
            found = arrivals.cached(reports, devices, tags)
            assert wrong in found and bool(wrong) == bool(found)

    def test_which_caches_are_emptied(self) -> None:
        host = self.host()
        decided = host.step(volume(limits=ARRIVING))
        assert emptying.to_empty(decided.disks, host.devices, (), {}) == {VOLUME}
        assert not emptying.to_empty(host.step(volume()).disks, host.devices, (), {})
        host.step()
        rows = host.rows
        assert emptying.to_empty((), host.devices, {VM}, rows) == {VOLUME}
        assert not emptying.to_empty((), host.devices, {OTHER}, rows)
        # Another domain has the volume now, which has left with the first one.
        assert not emptying.to_empty(host.step(volume(2)).disks, host.devices, {VM}, rows)
        tags = [dataclasses.replace(tag, cached_bytes=4096) for tag in host.kernel.tags.values()]
        assert emptying.gone({VM}, host.devices, tags, rows) == set()
        assert emptying.gone({VM}, (), (), rows) == set(), "its device may come back"
        assert emptying.gone({VM, OTHER}, host.devices, list(host.kernel.tags.values()), rows) \
            == {VM, OTHER}


@pytest.fixture
def answering(tmp_path: Path) -> Iterator[Callable[[Callable[[bytes], bytes]], Path]]:
    servers: list[UnixServer] = []

    def make(handler: Callable[[bytes], bytes]) -> Path:
        path = tmp_path / f"relay{len(servers)}"
        servers.append(UnixServer(path, handler, request_bytes=MESSAGE_BYTES, seconds=20.0))
        servers[-1].start()
        return path

    yield make
    for server in servers:
        server.stop()


class TestRelayClient:
    def test_an_answer(self, answering: Any) -> None:
        asked: list[bytes] = []

        def handler(request: bytes) -> bytes:
            asked.append(request)
            return json.dumps({"ok": True, "answer": encode_answer(ANSWER)}).encode()

        assert relay.ask(answering(handler), Question(VM, 20.0)) == ANSWER
        assert parse_question(json.loads(asked[0])).domain == VM

    @pytest.mark.parametrize(("answer", "wrong"), [
        (b'{"ok": false, "error": "no bus"}', "^no bus$"), (b"[]", "invalid"), (b"{", "not JSON"),
        (b"[" * 60000, "not JSON"), (b'{"ok": 1, "answer": {}}', "None"),
        (b'{"ok": true}', "not valid: None must be an object"),
        (json.dumps({"ok": True, "answer": encode_answer(READY) | {"domain": OTHER}}).encode(),
         "another domain"),
        (b" " * (MESSAGE_BYTES + 1), "at most 65536")])
    def test_no_answer(self, answering: Any, answer: bytes, wrong: str) -> None:
        with pytest.raises(relay.NoAnswer, match=wrong):
            relay.ask(answering(lambda _: answer), Question(VM, 20.0))

    def test_nobody_there(self, tmp_path: Path) -> None:
        with pytest.raises(relay.NoAnswer, match="vcache-host is not running"):
            relay.ask(tmp_path / "nothing", Question(VM, 20.0))
        (tmp_path / "file").touch()
        with pytest.raises(relay.NoAnswer, match="vcache-host is not running"):
            relay.ask(tmp_path / "file", Question(VM, 20.0))

    def test_an_answer_that_drips_ends_in_time(self, tmp_path: Path) -> None:
        path, ended = tmp_path / "slow", threading.Event()
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(path))
        server.listen()

        def drip() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                while not ended.wait(0.05):
                    try:
                        connection.send(b"\1")
                    except OSError:
                        return

        thread = threading.Thread(target=drip)
        thread.start()
        with pytest.raises(relay.NoAnswer, match="no answer from the source host"):
            relay.ask(path, Question(VM, 0.3))
        ended.set()
        thread.join()
        server.close()
