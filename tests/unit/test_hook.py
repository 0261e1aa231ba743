# SPDX-License-Identifier: Apache-2.0
"""The real hook script, as libvirt runs it, with various agents."""

import contextlib
import os
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

HOOK = Path(__file__).parents[2] / "libvirt_hooks" / "qemu"
NOVA = "http://openstack.org/xmlns/libvirt/nova/1.1"
# For tests that wait for the limit. Others must not reach it on a busy machine.
LIMIT = 0.5
FAR = 20.0
# Additional time for the interpreter's start on a busy machine.
MARGIN = 5.0

Behaviour = Callable[[socket.socket], None]


def domain_xml(required: str | None = None, before: str = "", prologue: str = "") -> bytes:
    spec = f'<n:extraSpec name="vcache:required">{required}</n:extraSpec>' if required else ""
    return (f'{prologue}<domain type="kvm"><name>i</name><metadata>{before}'
            f'<n:instance xmlns:n="{NOVA}"><n:name>x</n:name><n:flavor name="f"><n:extraSpecs>'
            f'<n:extraSpec name="vcache:mode">flush-only</n:extraSpec>{spec}</n:extraSpecs>'
            "</n:flavor></n:instance></metadata><devices/></domain>").encode()


class Hook:
    """Runs the hook with a configuration."""

    def __init__(self, folder: Path) -> None:
        self.conf = folder / "hook.conf"
        self.socket = folder / "hook.sock"
        self.limit(FAR)

    def limit(self, seconds: float) -> None:
        self.configure(f"timeout = {seconds}\nsocket = {self.socket}\n")

    def configure(self, text: str) -> None:
        self.conf.write_text(text)

    def run(self, xml: bytes, operation: str = "prepare",
            arguments: tuple[str, ...] = ()) -> subprocess.CompletedProcess[bytes]:
        done = subprocess.run(
            [HOOK, *(arguments or ("vm", operation, "begin", "-"))], input=xml,
            capture_output=True, env={"VCACHE_HOOK_CONF": str(self.conf)}, check=False,
            timeout=FAR + 4 * MARGIN)
        # libvirt uses stdout as the domain's new XML.
        assert done.stdout == b""
        return done


@pytest.fixture
def hook(tmp_path: Path) -> Hook:
    return Hook(tmp_path)


@contextlib.contextmanager
def agent(hook: Hook, behaviour: Behaviour) -> Iterator[None]:
    """Listen like the agent; a function handles each connection."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(hook.socket))
    server.listen()
    ended = threading.Event()
    open_connections = []

    def serve() -> None:
        while not ended.is_set():
            try:
                connection, _ = server.accept()
            except OSError:
                return
            open_connections.append(connection)
            with contextlib.suppress(OSError):
                behaviour(connection)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)
        server.close()
        for connection in open_connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        thread.join()


def request_of(connection: socket.socket) -> bytes:
    (size,) = struct.unpack(">I", connection.recv(4, socket.MSG_WAITALL))
    return connection.recv(size, socket.MSG_WAITALL) if size else b""


def answering(text: bytes, seen: list[bytes] | None = None) -> Behaviour:
    def behaviour(connection: socket.socket) -> None:
        request = request_of(connection)
        if seen is not None:
            seen.append(request)
        connection.sendall(struct.pack(">I", len(text)) + text)
        connection.close()
    return behaviour


def slowly(connection: socket.socket) -> None:
    """Answer one byte at a time, each within the limit."""
    request_of(connection)
    answer = struct.pack(">I", 1000) + b"accept\0" + b"x" * 1000
    for byte in answer:
        connection.sendall(bytes([byte]))
        time.sleep(LIMIT / 5)


def not_reading(connection: socket.socket) -> None:
    time.sleep(LIMIT * 3)


USELESS: dict[str, Behaviour] = {
    "hung": not_reading,
    "closes at once": lambda connection: connection.close(),
    "closes behind the request": lambda connection: (
        request_of(connection), connection.close()) and None,
    "slow": slowly,
    "garbage": lambda connection: connection.sendall(b"\xff" * 4096),
    "too long": lambda connection: connection.sendall(struct.pack(">I", 2**31)),
    "short": lambda connection: (
        connection.sendall(struct.pack(">I", 100) + b"accept\0"), connection.close()) and None,
    "unknown status": answering(b"perhaps\0"),
    "empty": answering(b""),
    "error": answering(b"error\0out of order"),
}


def test_the_request_and_an_acceptance(hook: Hook) -> None:
    seen: list[bytes] = []
    before = time.monotonic_ns()
    with agent(hook, answering(b"accept\0a note", seen)):
        done = hook.run(domain_xml("true"))
    assert done.returncode == 0
    assert b"a note" in done.stderr
    *fields, extra, xml = seen[0].split(b"\0", 5)
    assert (fields, xml) == ([b"1", b"vm", b"prepare", b"begin"], domain_xml("true"))
    # The order of the messages of a domain is that of the hooks' starts.
    dash, _, at = extra.partition(b" at=")
    assert dash == b"-"
    assert before <= int(at) <= time.monotonic_ns()


@pytest.mark.parametrize(("operation", "status"), [
    ("prepare", 1), ("start", 0), ("started", 0), ("reconnect", 0), ("stopped", 0),
    ("release", 0), ("migrate", 1), ("restore", 0), ("attach", 0), ("", 0)])
def test_only_prepare_and_migrate_can_be_refused(hook: Hook, operation: str, status: int) -> None:
    with agent(hook, answering(b"refuse\0not with me")):
        done = hook.run(domain_xml(), operation)
    assert done.returncode == status
    assert b"not with me" in done.stderr


@pytest.mark.parametrize("operation", ["prepare", "reconnect", "release", "migrate"])
@pytest.mark.parametrize("required", [None, "true", "false"])
def test_without_an_agent_required_decides(
        hook: Hook, operation: str, required: str | None) -> None:
    done = hook.run(domain_xml(required), operation)
    refused = operation == "prepare" and required == "true"
    assert done.returncode == int(refused)
    assert str(hook.socket).encode() in done.stderr
    assert (b"vcache:required" in done.stderr) == refused


@pytest.mark.parametrize("name", USELESS)
def test_a_useless_agent_is_as_good_as_none(hook: Hook, name: str) -> None:
    hook.limit(LIMIT)
    with agent(hook, USELESS[name]):
        began = time.monotonic()
        done = hook.run(domain_xml())
        assert time.monotonic() - began < LIMIT + MARGIN
        assert done.returncode == 0
        assert b"starts uncached" in done.stderr
        assert hook.run(domain_xml("true")).returncode == 1
        assert hook.run(domain_xml("true"), "reconnect").returncode == 0


def test_the_limit_holds_for_a_request_that_is_not_read(hook: Hook) -> None:
    hook.limit(LIMIT)
    # More than a socket's buffer, so that sending blocks.
    xml = domain_xml("true", before="<x>" + "y" * (3 << 20) + "</x>")
    with agent(hook, not_reading):
        began = time.monotonic()
        done = hook.run(xml)
    assert done.returncode == 1
    assert time.monotonic() - began < LIMIT + MARGIN
    assert b"time limit" in done.stderr


def test_the_limit_holds_for_libvirt_itself(hook: Hook) -> None:
    hook.limit(LIMIT)
    process = subprocess.Popen([HOOK, "vm", "prepare", "begin", "-"], stdin=subprocess.PIPE,
                               stderr=subprocess.PIPE,
                               env={"VCACHE_HOOK_CONF": str(hook.conf)})
    assert process.stdin and process.stderr
    process.stdin.write(domain_xml("true"))
    process.stdin.flush()  # and never closed
    try:
        assert process.wait(LIMIT + MARGIN) == 1
        assert b"could not be read" in process.stderr.read()
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stderr.close()


def test_a_huge_xml_is_not_sent(hook: Hook) -> None:
    seen: list[bytes] = []
    filling = "<x>" + "y" * (5 << 20) + "</x>"
    with agent(hook, answering(b"accept\0", seen)):
        assert hook.run(domain_xml("true", before=filling)).returncode == 0
        behind = domain_xml("true").replace(b"<devices/>", filling.encode())
        done = hook.run(behind)
    assert done.returncode == 1
    assert b"larger than" in done.stderr
    assert seen == []


BOMB = ('<!DOCTYPE domain [<!ENTITY a "ha">'
        + "".join(f'<!ENTITY a{n} "{("&a" + (str(n - 1) if n else "") + ";") * 10}">'
                  for n in range(9)) + "]>")


@pytest.mark.parametrize(("xml", "status"), [
    (b"", 0), (b"<domain", 0), (b"\0\xff\xfe", 0), (b"<a>" * 500_000, 0),
    (domain_xml("true", prologue=BOMB), 0),
    (domain_xml("true", before="&a8;", prologue=BOMB), 0),
    (domain_xml("&lt;true", before=f'<!-- <n:extraSpec xmlns:n="{NOVA}" '
                                   'name="vcache:required">true</n:extraSpec> -->'), 0),
    # The same words in another place or namespace, or truncated.
    (domain_xml().replace(b"<devices/>", b'<n:extraSpec xmlns:n="' + NOVA.encode()
                          + b'" name="vcache:required">true</n:extraSpec>'), 0),
    (domain_xml("true").replace(NOVA.encode(), b"http://example.org/"), 0),
    (domain_xml("true")[:-60], 1),
    (domain_xml(" TRUE "), 1), (domain_xml("1"), 1), (domain_xml("yes"), 1),
    (domain_xml("<![CDATA[true]]>"), 1),
])
def test_required_is_found_safely(hook: Hook, xml: bytes, status: int) -> None:
    began = time.monotonic()
    done = hook.run(xml)
    assert done.returncode == status
    assert b"internal error" not in done.stderr
    assert time.monotonic() - began < MARGIN


@pytest.mark.parametrize("arguments", [("vm",), ("vm", "prepare"), ("v\n\xff", "prepare", "", "")])
def test_odd_arguments_do_no_harm(hook: Hook, arguments: tuple[str, ...]) -> None:
    done = hook.run(domain_xml(), arguments=arguments)
    assert done.returncode == 0
    assert b"internal error" not in done.stderr


@pytest.mark.parametrize(("line", "words"), [
    ("timeout = soon", b"timeout must be seconds from 0.05 to 30"),
    ("timeout = nan", b"timeout must be"), ("timeout = 0", b"timeout must be"),
    ("timeout = 31", b"timeout must be"), ("socket = relative", b"socket must be"),
    ("socket = /" + "x" * 200, b"socket must be"), ("color = red", b"unknown line"),
    ("\0\xff\xfe", b"unknown line")])
def test_a_bad_configuration_is_reported_and_left_out(
        hook: Hook, line: str, words: bytes) -> None:
    with agent(hook, answering(b"accept\0")):
        hook.configure(f"socket = {hook.socket}\n{line} # comment\n\n# comment\n")
        done = hook.run(domain_xml("true"))
    assert done.returncode == 0
    assert words in done.stderr
    assert f"{hook.conf}:2".encode() in done.stderr


def test_a_configuration_that_cannot_be_read(hook: Hook) -> None:
    hook.conf.unlink()
    hook.conf.mkdir()
    done = hook.run(domain_xml())
    assert done.returncode == 0
    assert b"using the defaults" in done.stderr


BLOCK = '<disk type="block"><source dev="/dev/a"/></disk>'
FILE = '<disk type="file"><source file="/a"/></disk>'


def with_disks(disks: str, mode: str | None = "writeback", required: str | None = None) -> bytes:
    spec = f'<n:extraSpec name="vcache:mode">{mode}</n:extraSpec>'
    return domain_xml(required).replace(
        b'<n:extraSpec name="vcache:mode">flush-only</n:extraSpec>',
        spec.encode() if mode else b"").replace(
        b"<devices/>", f"<devices>{disks}</devices>".encode())


class TestMigrationWithoutAnAgent:
    @pytest.mark.parametrize(("xml", "status"), [
        (with_disks(BLOCK), 1), (with_disks(BLOCK, "flush-only"), 1),
        (with_disks(BLOCK, "bad"), 1),
        (with_disks(FILE + BLOCK), 1), (with_disks(FILE), 0), (with_disks(BLOCK, "none"), 0),
        (with_disks(BLOCK, None), 0),
        (with_disks(BLOCK.replace("</disk>", "<readonly/></disk>")), 0),
        (with_disks(BLOCK.replace("<disk", '<disk device="cdrom"')), 0),
        (with_disks(BLOCK)[:-20], 1),
        (with_disks(FILE).replace(b"<domain", b"<!DOCTYPE d []><domain"), 1), (b"", 1)])
    def test_what_may_be_newer_elsewhere_must_not_come(
            self, hook: Hook, xml: bytes, status: int) -> None:
        assert hook.run(xml, "migrate").returncode == status
        done = hook.run(xml, "prepare")
        assert done.returncode == status
        assert (b"must not migrate to this host without the agent" in done.stderr) is bool(status)

    def test_an_agent_that_ends_between_the_two(self, hook: Hook) -> None:
        with agent(hook, answering(b"accept\0")):
            assert hook.run(with_disks(BLOCK), "migrate").returncode == 0
        assert hook.run(with_disks(BLOCK), "prepare").returncode == 1
        # The mark ends with the migration, so an ordinary start is possible.
        assert hook.run(with_disks(BLOCK), "release").returncode == 0
        assert not list(Path(f"{hook.socket.parent}-arriving").iterdir())
        assert hook.run(with_disks(BLOCK), "prepare").returncode == 0

    def test_an_old_mark_counts_no_more(self, hook: Hook) -> None:
        hook.run(with_disks(BLOCK), "migrate")
        (mark,) = Path(f"{hook.socket.parent}-arriving").iterdir()
        os.utime(mark, (time.time() - 601, time.time() - 601))
        assert hook.run(with_disks(BLOCK), "prepare").returncode == 0

    def test_other_operations_and_domains_are_not_concerned(self, hook: Hook) -> None:
        hook.run(with_disks(BLOCK), "migrate", ("other", "migrate", "begin", "-"))
        for operation in ("prepare", "start", "started", "reconnect", "stopped"):
            assert hook.run(with_disks(BLOCK), operation).returncode == 0

    def test_names_that_libvirt_does_not_allow(self, hook: Hook) -> None:
        for name in ("..", ".", "", "../x"):
            hook.run(with_disks(BLOCK), "migrate", (name, "migrate", "begin", "-"))
        assert not Path(f"{hook.socket.parent}-arriving").exists()
