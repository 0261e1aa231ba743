# SPDX-License-Identifier: Apache-2.0
"""Applications on the socket of vcache-guest: real sockets and processes, a model of the cache."""

import contextlib
import grp
import os
import select
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.test_vssd_guest import Consumer
from vcache_guest import app_protocol, daemon
from vcache_guest.app_protocol import Forced, Give, Grant, Reclaim, Refused, Register, Welcome
from vcache_guest.app_server import AppServer, process_of
from vcache_guest.blocks import Ranges
from vcache_guest.cache import CacheError
from vcache_guest.protocol import Deflate, Done, Hello, Inflate, Message, Range
from vcache_guest.protocol import Forced as HostForced
from vcache_guest.protocol import Give as HostGive
from vcache_guest.protocol import Welcome as HostWelcome
from vcache_guest.shared import Disk, Shared, SharedGuest
from vcache_guest.shares import Claim

MIB = 1 << 20
MOST = 100
WELCOME = HostWelcome(MIB, MOST, 40, False, "disk")


class Blocks(Disk):
    """Notes which blocks are discarded."""

    def __init__(self) -> None:
        super().__init__()
        self.discarded: list[Ranges] = []
        self.can = True

    def open(self, path: str, block_bytes: int) -> bool:
        return self.can

    def discard(self, ranges: Ranges) -> None:
        self.discarded.append(ranges)


class Guest:
    """A guest with its socket.

    :param path: of the socket
    """

    def __init__(self, path: Path, *, cache: bool = True) -> None:
        self.cache, self.disk, self.path = Consumer(), Blocks(), path
        self.shared = Shared(self.cache if cache else None, Claim(100), self.disk)
        self.guest = SharedGuest(self.shared, lambda serial: f"/dev/{serial}", bytes(16))
        self.server = AppServer(self.shared, str(path))

    def hears(self, message: Message) -> list[Message]:
        return list(self.guest.received(message))

    def turn(self) -> None:
        """Handle all that applications have said."""
        reader, writer = os.pipe()
        os.write(writer, b"x")
        for _ in range(5):
            self.server.wait([reader], 0)
        os.close(reader)
        os.close(writer)


@pytest.fixture
def guest(tmp_path: Path) -> Iterator[Guest]:
    made = Guest(tmp_path / "run" / "socket")
    yield made
    made.server.close()


class App:
    """An application, in this process.

    :param guest: where it connects
    :param name: its name; empty: it does not register
    """

    def __init__(self, guest: Guest, name: str, weight: int = 100, least: int = 0) -> None:
        self.guest = guest
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(str(guest.path))
        self.blocks: set[int] = set()
        if name:
            self.says(Register(name, weight, least))

    def says(self, *messages: app_protocol.Message) -> None:
        for message in messages:
            self.socket.send(app_protocol.encode(message))
        self.guest.turn()

    def hears(self) -> list[app_protocol.Message]:
        found = []
        while select.select([self.socket], [], [], 0)[0]:
            data = self.socket.recv(1 << 16)
            if not data:
                break
            message = app_protocol.decode(data)
            if isinstance(message, Grant):
                for one in message.ranges:
                    self.blocks |= set(range(one.first, one.first + one.blocks))
            found.append(message)
        return found

    @property
    def ended(self) -> bool:
        return bool(select.select([self.socket], [], [], 0)[0]) and not self.socket.recv(1 << 16)

    def close(self) -> None:
        self.socket.close()
        self.guest.turn()


def test_applications_share_with_the_cache(guest: Guest) -> None:
    early = App(guest, "early")
    assert early.hears() == []
    assert guest.hears(WELCOME) == [HostGive(0, False, ())]
    assert guest.cache.calls == [("attach", "/dev/disk", MIB, MOST, 20)]
    # What nobody uses is discarded: it may count as taken on the host.
    assert guest.disk.discarded[0] == (Range(20, 80),)
    assert early.hears() == [Welcome(MIB, MOST, "/dev/disk"), Grant((Range(80, 20),))]
    late = App(guest, "late", 200)
    assert guest.cache.size == 10
    assert guest.disk.discarded[-1] == (Range(10, 10),)
    assert late.hears() == [Welcome(MIB, MOST, "/dev/disk"), Grant((Range(70, 10),))]
    assert early.hears() == [Reclaim(1, 10, app_protocol.NEVER_MS)]
    early.says(Give(1, (Range(95, 5), Range(80, 5))))
    assert guest.disk.discarded[-1] == (Range(80, 5), Range(95, 5))
    assert late.hears() == [Grant((Range(80, 5), Range(95, 5)))]
    # Another weight for one that is there.
    early.says(Register("early", 1, 0))
    assert early.hears() == [Reclaim(2, 0, app_protocol.NEVER_MS)]
    late.close()
    early.close()
    assert guest.cache.size == 40


def test_without_a_cache_applications_have_all(tmp_path: Path) -> None:
    guest = Guest(tmp_path / "socket", cache=False)
    guest.hears(WELCOME)
    app = App(guest, "one")
    assert app.hears()[1] == Grant((Range(60, 40),))
    assert guest.hears(Inflate(1, 50)) == [Done(1, 50)]
    assert app.hears() == [Grant((Range(50, 10),))]
    guest.server.close()


def answering(guest: Guest, message: Message, app: App,
              answer: Callable[[app_protocol.Message], app_protocol.Message | None]
              ) -> tuple[list[Message], list[app_protocol.Message]]:
    """Handle a message of the host, while an application in another thread answers once."""
    heard: list[app_protocol.Message] = []

    def run() -> None:
        assert select.select([app.socket], [], [], 60)[0]
        heard.append(app_protocol.decode(app.socket.recv(1 << 16)))
        reply = answer(heard[0])
        if reply is not None:
            app.socket.send(app_protocol.encode(reply))

    thread = threading.Thread(target=run)
    thread.start()
    answers = guest.hears(message)
    thread.join(60)
    return answers, heard


def test_the_host_gets_blocks_that_the_application_chooses(guest: Guest) -> None:
    guest.hears(WELCOME)
    app = App(guest, "one")
    app.hears()
    answers, heard = answering(guest, Deflate(7, 20, 600_000), app,
                               lambda _: Give(1, (Range(85, 10),)))
    assert heard == [Reclaim(1, 10, 480_000)]
    assert answers == [HostGive(7, False, ()), Done(7, 20)]
    assert guest.cache.size == 10
    # All is discarded before the host is answered.
    assert guest.disk.discarded[-1] == (Range(10, 70), Range(85, 10))
    assert app.hears() == []


def test_an_application_without_an_answer_is_forced(guest: Guest) -> None:
    guest.hears(WELCOME)
    app = App(guest, "one")
    app.hears()
    assert guest.hears(Deflate(7, 20, 100)) == [HostGive(7, False, ()), Done(7, 20)]
    assert app.hears() == [Reclaim(1, 10, 80), Forced((Range(90, 10),))]
    guest.hears(Inflate(8, 40))
    # The application may still write to what was taken.
    assert app.hears() == [Grant((Range(70, 10),))]
    app.says(Give(0, (Range(90, 10),)))
    assert guest.disk.discarded[-1] == (Range(90, 10),)


def test_the_application_keeps_its_blocks_if_the_cache_cannot_shrink(guest: Guest) -> None:
    guest.hears(WELCOME)
    app = App(guest, "one")
    app.hears()
    guest.cache.fails = True
    # The cache keeps 20 of 20, and the application, which is willing, gives what it can.
    answers, _ = answering(guest, Deflate(7, 20, 60_000), app,
                           lambda _: Give(1, (Range(90, 10),)))
    assert answers == []
    # The host takes the last blocks that have data: these are not the cache's.
    assert guest.hears(HostForced(7, False, (Range(80, 10),))) == [HostGive(0, False, ())]
    assert app.hears() == [Forced((Range(80, 10),))]
    assert ("drop", False) not in guest.cache.calls
    assert guest.shared.size == 20
    # Its part comes back when the cache can shrink.
    guest.cache.fails = False
    app.says(Give(0, (Range(80, 10),)))
    assert guest.cache.size == 10
    assert app.hears() == [Grant((Range(90, 10),))]


def test_a_cache_that_loses_blocks_begins_again(guest: Guest) -> None:
    guest.hears(WELCOME)
    app = App(guest, "one")
    app.hears()
    assert guest.hears(HostForced(0, False, (Range(0, 1), Range(99, 1)))) == [
        HostGive(0, False, ()), Hello(1, 1, bytes(16))]
    assert guest.cache.calls[-1] == ("drop", True)
    assert app.hears() == [Forced((Range(99, 1),))]
    # Nothing is decided before the host has answered.
    app.says(Register("one", 1000, 0))
    assert app.hears() == []
    guest.hears(WELCOME)
    assert guest.cache.calls[-1] == ("attach", "/dev/disk", MIB, MOST, 4)


def test_data_of_an_earlier_cache_is_not_discarded(
        guest: Guest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache in mode writeback that could not be attached may have the only copy."""
    def fails(*_: object) -> None:
        raise CacheError("may have the only copy of data")

    monkeypatch.setattr(guest.cache, "attach", fails)
    App(guest, "one")
    assert guest.hears(WELCOME) == []
    assert guest.hears(Deflate(1, 10, 100)) == []
    assert guest.disk.discarded == []


def test_a_disk_without_discard_is_not_shared(guest: Guest) -> None:
    guest.disk.can = False
    # It works as without a socket.
    assert guest.hears(WELCOME) == [HostGive(0, False, (Range(40, 60),))]
    app = App(guest, "one")
    assert app.hears() == [Refused("the disk has no discard, so it cannot be shared")]
    assert guest.hears(HostForced(0, False, (Range(1, 1),))) == [
        HostGive(0, False, (Range(1, 1),)), Hello(1, 1, bytes(16))]


@pytest.mark.parametrize(("first", "second", "reason"), [
    ([Register("a", 1, 0)], [Register("b", 1, 0)], "the name was 'a' and cannot change"),
    ([Register("other", 1, 0)], [], "the name 'other' is in use"),
    ([], [Give(0, ())], "Give is not expected here"),
    ([], [Grant(())], "Grant is not expected here"),
])
def test_what_is_not_allowed_ends_the_connection(
        guest: Guest, first: list[app_protocol.Message], second: list[app_protocol.Message],
        reason: str) -> None:
    guest.hears(WELCOME)
    other = App(guest, "other")
    app = App(guest, "")
    app.says(*first, *second)
    assert app.hears()[-1] == Refused(reason)
    assert app.ended
    assert other.hears()


def test_a_hostile_application_disturbs_nobody(guest: Guest) -> None:
    guest.hears(WELCOME)
    good = App(guest, "good")

    @settings(max_examples=100, deadline=None,
              suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.lists(st.one_of(
        st.binary(min_size=1, max_size=60), st.just(bytes(1 << 15)),
        st.builds(Give, st.integers(0, 9), st.lists(st.builds(
            Range, st.integers(0, 1 << 31), st.integers(1, 1 << 30)), max_size=256).map(tuple)
        ).map(app_protocol.encode),
        st.builds(Register, st.sampled_from(("good", "bad")), st.integers(1, 1000),
                  st.integers(0, 99)).map(app_protocol.encode)), max_size=6))
    def run(frames: list[bytes]) -> None:
        app = App(guest, "")
        for frame in frames:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                app.socket.send(frame)
        guest.turn()
        app.close()
        # This process is still there: another registration ends what it may use.
        good.says(Register("good", 100, 0))
        good.hears()
        App(guest, "frees").close()
        sharing = guest.shared.sharing
        assert [held.name for held in sharing.apps.values()] == ["good"]
        assert sharing.used == 40
        assert not sharing.absent

    run()
    assert not good.ended


def test_one_that_does_not_read_loses_its_connection(guest: Guest) -> None:
    guest.hears(WELCOME)
    app = App(guest, "deaf")
    for turn in range(2000):
        guest.shared.received(1, Register("deaf", (1, 100)[turn % 2], 0))
    guest.turn()
    assert not guest.shared.sharing.apps
    # Its process may still use them.
    assert process_of(os.getpid()) in guest.shared.sharing.absent
    app.close()


def test_what_an_application_has_outlives_the_daemon(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    guest = Guest(path)
    guest.hears(WELCOME)
    code = ("import socket, sys; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET);"
            "s.connect(sys.argv[1]); s.send(bytes.fromhex(sys.argv[2])); print(flush=True);"
            "sys.stdin.read()")
    with subprocess.Popen([sys.executable, "-c", code, str(path),
                           app_protocol.encode(Register("one", 100, 0)).hex()],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.readline()
        guest.turn()
        assert guest.shared.sharing.apps
        # As after kill -9: nothing is closed in order.
        again = Guest(path)
        again.hears(WELCOME)
        assert again.cache.size == 40 - 20
        assert again.shared.sharing.unused() == (Range(20, 60),)
        app = App(again, "two")
        assert [message for message in app.hears() if isinstance(message, Grant)] == []
        process.kill()
    again.turn()
    assert app.hears() == [Grant((Range(80, 20),))]
    again.server.close()
    guest.server._listener.close()


@pytest.mark.parametrize("text", ["", "{", "[[1]]", '[["a", 1, "x", []]]', '[[1, 1, "x", [[1]]]]',
                                  '[[1, 1, "x", 3]]'])
def test_a_damaged_state_is_not_used(tmp_path: Path, text: str) -> None:
    (tmp_path / "socket.state").write_text(text)
    guest = Guest(tmp_path / "socket")
    assert not guest.shared.sharing.absent
    guest.server.close()


def test_root_and_one_group_may_connect(tmp_path: Path) -> None:
    shared = Shared(Consumer(), Claim(), Blocks())
    group = grp.getgrgid(os.getgid()).gr_name
    for name, mode in ((None, 0o600), (group, 0o660)):
        server = AppServer(shared, str(tmp_path / "socket"), name)
        assert stat.S_IMODE((tmp_path / "socket").stat().st_mode) == mode
        server.close()
    with pytest.raises(LookupError):
        AppServer(shared, str(tmp_path / "socket"), "no such group")


@pytest.mark.parametrize(("words", "reason"), [
    (["--socket", ""], "nobody could use the elastic SSD"),
    (["--weight", "0"], "--weight 0, must be 1 to 1000"),
    (["--min", "-1"], "--min -1, must be 0 or more")])
def test_options_are_checked(words: list[str], reason: str,
                             capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        daemon.main(words)
    assert reason in capsys.readouterr().err
