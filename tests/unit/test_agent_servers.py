# SPDX-License-Identifier: Apache-2.0
"""The agent's sockets: limits, access for root only, and their answers."""

import contextlib
import dataclasses
import json
import os
import socket
import stat
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nova_vcache.extra_specs import Isolation
from vcache_agent import hook_server, unix_server
from vcache_agent.admission import Host, admit
from vcache_agent.framing import ProtocolError, receive, send
from vcache_agent.hook_server import Callbacks, Refused
from vcache_agent.locate import Located
from vcache_agent.model import Device, DeviceNumber, DiskSource, Domain, Location
from vcache_agent.netlink import spec
from vcache_agent.observe.claim import Claim
from vcache_agent.unix_server import UnixServer

UUID = "11111111-2222-4333-8444-555555555555"
XML = f"<domain><name>vm</name><uuid>{UUID}</uuid></domain>".encode()
SECONDS = 0.5

Make = Callable[..., Path]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Make]:
    servers: list[UnixServer] = []

    def make(handler: Callable[[bytes], bytes], **options: int) -> Path:
        path = tmp_path / "run" / "s.sock"
        servers.append(UnixServer(path, handler, request_bytes=1000, seconds=SECONDS, **options))
        servers[-1].start()
        return path

    yield make
    for server in servers:
        server.stop()


def connect(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(10)
    connection.connect(str(path))
    return connection


def asked(path: Path, request: bytes) -> bytes:
    with connect(path) as connection:
        send(connection, request, time.monotonic() + 10)
        return receive(connection, 10_000, time.monotonic() + 10)


def test_a_request_is_answered_and_the_socket_is_roots(serve: Make) -> None:
    path = serve(bytes.upper)
    assert asked(path, b"abc") == b"ABC"
    assert asked(path, b"") == b""
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_stale_socket_is_replaced_but_no_file(tmp_path: Path, serve: Make) -> None:
    (tmp_path / "run").mkdir()
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(tmp_path / "run" / "s.sock"))
    stale.close()
    assert asked(serve(bytes.upper), b"a") == b"A"
    file = tmp_path / "file"
    file.write_text("precious")
    with pytest.raises(OSError, match="not a socket"):
        UnixServer(file, bytes.upper, request_bytes=1, seconds=1)
    assert file.read_text() == "precious"


@pytest.mark.parametrize("data", [
    b"", b"\0", struct.pack(">I", 1001) + b"x" * 1001, struct.pack(">I", 2**32 - 1),
    struct.pack(">I", 10) + b"short"])
def test_hostile_requests_are_dropped_in_time(serve: Make, data: bytes) -> None:
    path = serve(bytes.upper)
    with connect(path) as connection:
        connection.sendall(data)
        try:
            answer = connection.recv(100)
        except ConnectionResetError:  # closed before everything was read
            answer = b""
        assert answer == b""
    assert asked(path, b"still there") == b"STILL THERE"


def test_a_slow_peer_has_a_limit(serve: Make) -> None:
    path = serve(bytes.upper)
    with connect(path) as connection:
        began = time.monotonic()
        sent = 0
        with contextlib.suppress(OSError):
            for byte in struct.pack(">I", 500) + b"x" * 500:
                connection.sendall(bytes([byte]))
                sent += 1
                time.sleep(SECONDS / 10)
        assert sent < 504, "it was cut off"
        assert time.monotonic() - began < SECONDS * 10


def test_a_handler_that_fails_ends_only_its_connection(serve: Make) -> None:
    def handler(request: bytes) -> bytes:
        if request == b"bad":
            raise RuntimeError("as in a test")
        return b"good"

    path = serve(handler)
    with pytest.raises(ProtocolError, match="closed"):
        asked(path, b"bad")
    assert asked(path, b"x") == b"good"


def test_more_connections_than_allowed_are_closed(serve: Make) -> None:
    busy, go = threading.Event(), threading.Event()

    def handler(request: bytes) -> bytes:
        busy.set()
        go.wait(10)
        return b"done"

    path = serve(handler, connections=1)
    first = connect(path)
    send(first, b"x", time.monotonic() + 10)
    assert busy.wait(10)
    with connect(path) as second:
        assert second.recv(1) == b""
    go.set()
    assert receive(first, 100, time.monotonic() + 10) == b"done"
    first.close()


def test_only_root_is_served(serve: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    path = serve(bytes.upper)
    peer = struct.pack("=iII", 4711, 1000, 1000)
    monkeypatch.setattr(unix_server, "_PEER", type(
        "Forged", (), {"size": 12, "unpack": staticmethod(
            lambda data: struct.unpack("=iII", peer))}))
    with pytest.raises((ProtocolError, ConnectionError)):
        asked(path, b"x")


class Calls:
    """Records the calls of the hook server."""

    def __init__(self, refuse: str = "") -> None:
        self.seen: list[tuple[str, str]] = []
        self.times: list[float | None] = []
        self._refuse = refuse

    def callbacks(self) -> Callbacks:
        def prepare(domain: Domain, at: float | None) -> str:
            note("prepare", domain, at)
            if self._refuse:
                raise Refused(self._refuse)
            return "a note"

        def note(what: str, domain: Domain, at: float | None) -> None:
            self.seen.append((what, domain.uuid))
            self.times.append(at)

        return Callbacks(prepare, lambda *one: note("running", *one),
                         lambda *one: note("ended", *one),
                         lambda *one: note("arriving", *one))


def hook_request(operation: str, xml: bytes = XML, version: bytes = b"1",
                 extra: bytes = b"-") -> bytes:
    return b"\0".join([version, b"vm", operation.encode(), b"begin", extra, xml])


@pytest.mark.parametrize(("operation", "called"), [
    ("prepare", "prepare"), ("started", "running"), ("reconnect", "running"),
    ("stopped", "ended"), ("release", "ended"), ("start", None), ("migrate", "arriving"),
    ("restore", None), ("attach", None), ("of a newer libvirt", None)])
def test_what_each_operation_means(operation: str, called: str | None) -> None:
    calls = Calls()
    answer = hook_server.handle(hook_request(operation), calls.callbacks())
    assert answer.split(b"\0")[0] == b"accept"
    assert calls.seen == ([(called, UUID)] if called else [])


@pytest.mark.parametrize("operation", ["prepare", "started", "stopped"])
@pytest.mark.parametrize(("extra", "at"), [
    (b"- at=1500000000", 1.5), (b"a at=1 at=2500000000", 2.5), (b"-", None), (b"", None),
    (b"- at=", None), (b"- at=x", None), (b"- at=-5", None), (b"- at=" + b"9" * 20, None)])
def test_a_hook_may_send_when_libvirt_started_it(
        operation: str, extra: bytes, at: float | None) -> None:
    calls = Calls()
    hook_server.handle(hook_request(operation, extra=extra), calls.callbacks())
    assert calls.times == [at]


def test_a_refusal_and_an_error() -> None:
    assert hook_server.handle(hook_request("prepare"), Calls("no").callbacks()) == b"refuse\0no"
    for request in (b"", b"1\0vm", hook_request("prepare", version=b"2"),
                    hook_request("prepare", b"<x/>")):
        assert hook_server.handle(request, Calls().callbacks()).startswith(b"error\0")


@given(st.binary(max_size=300))
def test_any_request_gets_an_answer(request: bytes) -> None:
    status, _, text = hook_server.handle(request, Calls().callbacks()).partition(b"\0")
    assert status in (b"accept", b"error")
    text.decode()


def domain(*disks: DiskSource, **specs: str) -> Domain:
    return Domain(UUID, "vm", {f"vcache:{key}": value for key, value in specs.items()}, disks)


GOOD = DiskSource("vda", "file", "/good")
BAD = DiskSource("vdb", "file", "/bad")
NETWORK = DiskSource("vdc", "network", None)
CD = DiskSource("sda", "file", "/bad", readonly=True)


VOLUME = dataclasses.replace(BAD, target="vdf", kind="block", volume=True)
SLOW = DiskSource("vde", "file", "/slow")


def locate(disks: Sequence[DiskSource]) -> list[Located]:
    there = Location("file:dm0:1", DeviceNumber(254, 0))
    found = {"/good": Located(there, ""), "/bad": Located(None, "somewhere else"),
             "/slow": Located(there, "/slow does not answer", 60.0)}
    return [found[disk.path or ""] for disk in disks]


def on_mode(mode: spec.Mode, free: int = 10) -> Host:
    number = DeviceNumber(254, 0)
    return Host(locate, free, devices={number: Device(
        number, "images", mode, spec.Scope.FILESYSTEM, spec.Isolation.FUA, 1 << 20, "8:0")})


HOST = on_mode(spec.Mode.FLUSH_ONLY)


@pytest.mark.parametrize(("disks", "specs", "host", "words"), [
    ((GOOD,), {"mode": "flush-only"}, HOST, ""),
    ((GOOD, CD, NETWORK), {"mode": "flush-only"}, HOST, ""),
    ((BAD,), {}, HOST, ""),
    ((BAD,), {"mode": "none"}, Host(locate, 0, "no module"), ""),
    ((GOOD,), {"mode": "writeback"}, HOST, "vda: writeback needs a cache pool"),
    ((GOOD,), {"mode": "writeback"}, on_mode(spec.Mode.WRITEBACK), ""),
    ((GOOD,), {"mode": "flush-only"}, on_mode(spec.Mode.WRITEBACK), ""),
    ((GOOD,), {"mode": "writeback"}, on_mode(spec.Mode.WRITETHROUGH), "in mode writethrough"),
    ((GOOD,), {"mode": "writethrough"}, on_mode(spec.Mode.WRITETHROUGH), ""),
    ((GOOD,), {"mode": "flush-only"}, on_mode(spec.Mode.WRITETHROUGH), ""),
    ((GOOD,), {"mode": "flush-only"}, on_mode(spec.Mode.NONE), "isolates nothing"),
    ((GOOD, BAD), {"mode": "flush-only"}, HOST, "vdb is not isolated: somewhere else"),
    ((GOOD, SLOW), {"mode": "flush-only"}, HOST, "vde is not isolated: /slow does not answer"),
    ((NETWORK,), {"mode": "flush-only"}, HOST, "none of its disks"),
    ((), {"mode": "flush-only"}, HOST, "none of its disks"),
    ((GOOD, GOOD), {"mode": "flush-only"}, on_mode(spec.Mode.FLUSH_ONLY, 1), "only 1 are free"),
    ((GOOD,), {"mode": "flush-only"}, Host(locate, 10, "no module"), "no module"),
    ((GOOD,), {"mode": "fast"}, HOST, "vcache:mode"),
    # Volumes of Cinder: remote, by a kernel driver or by QEMU, and one on the target.
    ((GOOD, VOLUME), {"mode": "flush-only"}, HOST, ""),
    ((VOLUME, dataclasses.replace(NETWORK, volume=True)), {"mode": "flush-only"}, HOST, ""),
    ((BAD, VOLUME), {"mode": "flush-only"}, HOST, "vdb is not isolated: somewhere else"),
    ((CD, VOLUME), {"mode": "flush-only"}, HOST, ""),
    ((dataclasses.replace(SLOW, volume=True),), {"mode": "flush-only"}, HOST, "does not answer"),
    ((dataclasses.replace(GOOD, volume=True),), {"mode": "writeback"}, HOST, "cache pool"),
])
def test_admission(disks: tuple[DiskSource, ...], specs: dict[str, str], host: Host,
                   words: str) -> None:
    note = admit(domain(*disks, **specs), host)
    assert words in note
    assert bool(note) == bool(words)
    demanding = domain(*disks, required="true", **specs)
    if words:
        with pytest.raises(Refused, match=words):
            admit(demanding, host)
    else:
        assert admit(demanding, host) == ""


def test_a_key_of_a_newer_release_is_a_note_and_no_reason_to_refuse() -> None:
    for required in ("true", "false"):
        note = admit(domain(GOOD, mode="flush-only", required=required, colour="red"), HOST)
        assert note == ("vm: extra specs that this release does not know are ignored: "
                        "vcache:colour")


def test_an_admitted_domain_reserves_what_its_disks_claim() -> None:
    asked: list[tuple[str, list[Claim]]] = []

    def reserve(uuid: str, claims: Sequence[Claim]) -> list[str]:
        asked.append((uuid, list(claims)))
        return ["there is no space"] if len(asked) > 1 else []

    number = DeviceNumber(254, 0)
    device = dataclasses.replace(on_mode(spec.Mode.WRITEBACK).devices[number], pool="254:2")
    host = Host(locate, 10, devices={number: device}, reserve=reserve)
    specs = {"mode": "writeback", "min_mb": "101", "isolation": "dedicated"}
    other = dataclasses.replace(GOOD, target="vdb")
    one = domain(GOOD, other, **specs)
    assert admit(one, host) == ""
    ((uuid, claims),) = asked
    assert uuid == one.uuid
    assert [(claim.key, claim.pool, claim.least >> 20, claim.isolation, claim.cached)
            for claim in claims] == [((number, -1 - at), "254:2", 50, Isolation.DEDICATED, True)
                                     for at in (0, 1)]
    assert "there is no space" in admit(one, host)
    with pytest.raises(Refused, match="there is no space"):
        admit(domain(GOOD, required="true", **specs), host)
    # What is refused anyway reserves nothing.
    asked.clear()
    with pytest.raises(Refused, match="not isolated"):
        admit(domain(GOOD, BAD, required="true", **specs), host)
    assert not asked


def test_a_request_to_the_admin_socket_is_checked() -> None:
    from vcache_agent.admin_server import AdminServer

    server = AdminServer(agent=None)  # type: ignore[arg-type] # none is reached
    for request in (b"", b"[]", b"{}", b'{"op": 1}', b'{"op": "nothing"}', b"[" * 100_000,
                    b'{"op": "tag-set"}', b'{"op": "tag-set", "tag": true}',
                    b'{"op": "tag-set", "tag": 65536}', b'{"op": "tag-set", "tag": 1, "weight": 0}',
                    b'{"op": "tag-set", "tag": 1, "weight": 1001}',
                    b'{"op": "tag-set", "tag": 1, "mode": "none"}',
                    b'{"op": "tag-set", "tag": 1, "mode": []}', os.urandom(100),
                    b'{"op": "tag-set", "tag": 1, "lanes": ""}',
                    b'{"op": "tag-set", "tag": 1, "lanes": "1,64"}',
                    b'{"op": "tag-set", "tag": 1, "lanes": 5}',
                    b'{"op": "policy-set", "policy": "unknown"}',
                    b'{"op": "policy-set", "policy": []}',
                    b'{"op": "instance-set"}', b'{"op": "instance-set", "values": 1}',
                    b'{"op": "instance-set", "values": {"weight": 0}}',
                    b'{"op": "drain-set"}', b'{"op": "drain-set", "draining": 1}',
                    b'{"op": "pool-set"}', b'{"op": "pool-set", "pool": 5, "values": {}}',
                    b'{"op": "pool-set", "pool": "p", "values": {}}',
                    b'{"op": "pool-set", "pool": "p", "values": {"chunk_kib": 5}}',
                    b'{"op": "pool-set", "pool": "p", "values": {"hot_percent": true}}',
                    b'{"op": "pool-set", "pool": "p", "values": {"hot_percent": 101}}',
                    b'{"op": "pool-set", "pool": "p", "values": {"hot_percent": 1, "x": 2}}'):
        answer = json.loads(server.handle(request))
        assert answer["ok"] is False
        assert answer["error"] and "internal" not in answer["error"]
