# SPDX-License-Identifier: Apache-2.0
"""The library by its binding for Python, with the real daemon: grants, requests, force, the end."""

import errno
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.libvssd import build
from tests.unit.test_vssd_apps import WELCOME, Guest
from vcache_guest.libvssd import Info, Vssd, VssdError
from vcache_guest.protocol import Deflate, Done, Inflate, Message, Range

MIB = 1 << 20


class App:
    """An application that notes its callbacks and gives up its first blocks."""

    def __init__(self, guest: Guest) -> None:
        self.guest, self.calls, self.obeys = guest, list[tuple[object, ...]](), True
        self.hook: Callable[[], None] = lambda: None
        self.lose: Callable[[], None] = lambda: None
        self.vssd = Vssd(self, str(guest.path), str(build.library()))

    def ready(self, info: Info) -> None:
        self.calls.append(("ready", info))

    def grant(self, ranges: tuple[Range, ...]) -> None:
        self.calls.append(("grant", ranges))
        self.hook()

    def reclaim(self, blocks: int, seconds: float | None) -> None:
        self.calls.append(("reclaim", blocks, seconds))
        if self.obeys and blocks:
            first = self.vssd.held[0]
            self.vssd.give([Range(first.first, blocks)])

    def forced(self, ranges: tuple[Range, ...]) -> None:
        self.calls.append(("forced", ranges))
        self.lose()

    def turn(self) -> list[tuple[object, ...]]:
        """Let both sides handle what they have heard; return the new callbacks."""
        self.guest.turn()
        before = len(self.calls)
        while self.vssd.dispatch():
            self.guest.turn()
        return self.calls[before:]


@pytest.fixture
def guest(tmp_path: Path) -> Iterator[Guest]:
    made = Guest(tmp_path / "socket")
    made.hears(WELCOME)
    yield made
    made.server.close()


@pytest.fixture
def app(guest: Guest) -> Iterator[App]:
    made = App(guest)
    made.vssd.register("one")
    assert made.turn() == [("ready", Info(MIB, 100, "/dev/disk")), ("grant", (Range(80, 20),))]
    yield made
    made.vssd.close()


def while_serving(app: App, message: Message) -> list[Message]:
    """Handle a message of the host while the application runs in a thread of its own."""
    done = threading.Event()

    def run() -> None:
        while not done.is_set():
            app.vssd.dispatch()
            done.wait(0.01)

    thread = threading.Thread(target=run)
    thread.start()
    answers = app.guest.hears(message)
    done.set()
    thread.join(60)
    return answers


def test_an_application_follows_the_host(guest: Guest, app: App) -> None:
    assert while_serving(app, Deflate(1, 20, 600_000))[-1] == Done(1, 20)
    assert app.calls[-1] == ("reclaim", 10, 480.0)
    assert app.vssd.held == (Range(90, 10),)
    assert guest.shared.sharing.used == 20
    guest.hears(Inflate(2, 30))
    assert app.turn() == [("grant", (Range(85, 5),))]
    assert app.vssd.held == (Range(85, 15),)


def test_blocks_are_given_for_another_weight(guest: Guest, app: App) -> None:
    app.vssd.register("one", 25, 0)
    assert app.turn() == [("reclaim", 12, None)]
    assert app.vssd.held == (Range(92, 8),)
    assert guest.cache.size == 32


def test_what_is_forced_is_confirmed(guest: Guest, app: App) -> None:
    app.obeys = False
    guest.hears(Deflate(1, 20, 0))
    assert guest.shared.sharing.apps[1].revoked == (Range(90, 10),)
    assert app.turn() == [("reclaim", 10, 0.0), ("forced", (Range(90, 10),))]
    assert guest.shared.sharing.apps[1].revoked == ()


def test_what_is_still_in_use_is_given_to_nobody(guest: Guest, app: App) -> None:
    sharing = guest.shared.sharing

    def fail() -> None:
        raise RuntimeError("cannot stop")

    app.obeys, app.lose = False, fail
    guest.hears(Deflate(1, 20, 0))
    with pytest.raises(RuntimeError, match="cannot stop"):
        app.turn()
    assert app.vssd.held == (Range(80, 10),)
    guest.turn()
    assert sharing.apps[1].revoked == (Range(90, 10),)
    guest.hears(Inflate(2, 100))
    assert Range(90, 10) not in sharing.unused()
    app.vssd.give([Range(90, 10)])
    guest.turn()
    assert sharing.apps[1].revoked == ()


def test_at_the_end_no_block_is_left(guest: Guest, app: App) -> None:
    guest.server.close()
    with pytest.raises(VssdError, match="the connection has ended") as caught:
        app.vssd.dispatch()
    assert caught.value.errno == errno.ENOTCONN
    assert app.calls[-1] == ("forced", (Range(80, 20),))
    assert app.vssd.held == ()


def test_the_end_is_not_confirmed_while_blocks_are_in_use(guest: Guest, app: App) -> None:
    sharing = guest.shared.sharing

    def fail() -> None:
        raise RuntimeError("cannot stop")

    app.lose = fail
    # A message that is not allowed: the disk was announced before.
    guest.shared.greet([1])
    with pytest.raises(RuntimeError, match="cannot stop"):
        app.vssd.dispatch()
    guest.turn()
    assert sharing.apps[1].held == (Range(80, 20),)
    app.vssd.close()
    guest.turn()
    assert not sharing.apps


def test_a_refusal_has_its_reason(guest: Guest, app: App) -> None:
    other = App(guest)
    other.vssd.register("one")
    with pytest.raises(VssdError, match="the name 'one' is in use") as caught:
        other.turn()
    assert caught.value.errno == errno.ECONNREFUSED
    other.vssd.close()


@pytest.mark.parametrize(("name", "weight", "least"), [
    ("", 1, 0), ("a b", 1, 0), ("a\0b", 1, 0), ("a", 0, 0), ("a", 1001, 0), ("a", -1, 0),
    ("a", 1, 1 << 32)])
def test_wrong_values_are_refused(guest: Guest, app: App, name: str, weight: int,
                                  least: int) -> None:
    with pytest.raises(VssdError) as caught:
        app.vssd.register(name, weight, least)
    assert caught.value.errno == errno.EINVAL
    with pytest.raises(VssdError, match="a block is not held, or was named twice"):
        app.vssd.give([Range(80, 1), Range(5, 1)])
    assert app.turn() == []


def test_an_exception_of_a_callback_is_raised(guest: Guest, app: App) -> None:
    def fails() -> None:
        with pytest.raises(VssdError, match="inside a callback"):
            app.vssd.dispatch()
        with pytest.raises(VssdError, match="inside a callback"):
            app.vssd.close()
        raise ZeroDivisionError("of the application")

    app.hook = fails
    guest.hears(Inflate(1, 50))
    with pytest.raises(ZeroDivisionError, match="of the application"):
        app.turn()
    # The blocks were granted nevertheless.
    assert app.vssd.held == (Range(75, 25),)
    app.vssd.close()
    with pytest.raises(VssdError, match="the connection is closed"):
        app.vssd.dispatch()


def test_without_a_daemon_there_is_no_connection(tmp_path: Path, app: App) -> None:
    with pytest.raises(VssdError, match="No such file or directory"):
        Vssd(app, str(tmp_path / "nothing"), str(build.library()))
