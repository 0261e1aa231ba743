# SPDX-License-Identifier: Apache-2.0
"""The host's device and channel of an elastic SSD, on a model of the target."""

import errno
import socket

import pytest

from vcache_agent.dm import DmError, Line, Lines
from vcache_agent.vssd.device import Device, NotAVssd
from vcache_agent.vssd.serve import Server
from vcache_agent.vssd.session import State
from vcache_guest.protocol import (
    Call,
    Decoder,
    Deflate,
    Done,
    Forced,
    Give,
    Hello,
    Message,
    Range,
    Welcome,
    encode,
)

MOST = 10
HELLO = Hello(1, 1, bytes(16))


class Model:
    """Device mapper with one elastic SSD."""

    def __init__(self, target: str = "vcache-vssd") -> None:
        self.target, self.quota = target, 8
        self.mapped, self.taken, self.said = set(range(8)), {9}, list[str]()
        self.refuse, self.kept = False, 0

    def _owned(self) -> int:
        return max(self.quota, len(self.mapped), self.kept)

    def table(self, device: str) -> Lines:
        return (Line(0, MOST * 2048, self.target, f"254:1 5 {self.quota} 1 persist"),)

    def status(self, name: str) -> Lines:
        owned = self._owned()
        return (Line(0, MOST * 2048, self.target,
                     f"2048 {MOST} {self.quota} {owned} {len(self.mapped)} "
                     f"{owned - len(self.mapped)} {len(self.taken)} 0 0"),)

    def message(self, name: str, text: str) -> None:
        if self.refuse:
            raise DmError(errno.ENOSPC, "refused")
        self.said.append(text)
        match text.split():
            case ["quota", blocks, *keep]:
                self.kept = self._owned() if keep == ["keep"] else 0
                self.quota = int(blocks)
            case ["release", first, blocks]:
                self.mapped -= set(range(int(first), int(first) + int(blocks)))
                self.taken -= set(range(int(first), int(first) + int(blocks)))
            case ["force"]:
                self.kept = 0
                self.taken |= set(sorted(self.mapped)[self.quota:])
                self.mapped -= self.taken

    def ask(self, name: str, text: str) -> str:
        assert text == "list taken"
        return "".join(f"{block} 1\n" for block in sorted(self.taken))


class Guest:
    """The other end of the channel."""

    def __init__(self, server: Server) -> None:
        host, self.channel = socket.socketpair()
        self.channel.setblocking(False)
        self.decoder = Decoder()
        server.connect(host, "disk")
        assert self.hear() == [Call()]

    def say(self, *messages: Message) -> None:
        self.channel.sendall(b"".join(map(encode, messages)))

    def hear(self) -> list[Message]:
        try:
            return self.decoder.feed(self.channel.recv(1 << 16))
        except BlockingIOError:
            return []


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def server(model: Model) -> Server:
    return Server(Device(model, "vssd"))


def test_the_device_is_read(model: Model) -> None:
    device = Device(model, "vssd")
    assert (device.persist, device.block_bytes) == (True, 1 << 20)
    assert device.state() == State(MOST, 8, 8, 8, 0)


def test_another_target_is_refused() -> None:
    with pytest.raises(NotAVssd, match="its target is linear, must be vcache-vssd"):
        Device(Model("linear"), "vssd")


def test_a_guest_gives_up_blocks(server: Server, model: Model) -> None:
    guest = Guest(server)
    guest.say(HELLO)
    server.step(0)
    assert guest.hear() == [Welcome(1 << 20, MOST, 8, True, "disk")]
    server.resize(5, 0, 30)
    guest.say(Give(1, False, (Range(1, 2), Range(4, 1), Range(8, 50))))
    server.step(1)
    assert model.said == ["quota 5 keep", "release 1 2", "release 4 1", "release 8 2"]
    assert guest.hear() == [Deflate(1, 5, 30000)]
    guest.say(Done(1, 5))
    server.step(2)
    assert model.said[4:] == ["quota 5"]
    assert guest.hear() == [Done(1, 5)]


def test_a_guest_hears_what_was_taken_now(server: Server, model: Model) -> None:
    guest = Guest(server)
    guest.say(HELLO)
    server.step(0)
    server.resize(5, 0, 30)
    server.step(30)
    server.step(31)
    assert guest.hear()[2:] == [Forced(1, False, (Range(5, 3),)), Done(1, 5)]
    assert model.taken == {5, 6, 7, 9}


def test_a_guest_hears_what_it_has_lost_before(server: Server, model: Model) -> None:
    server.resize(5, 0, 30)
    server.step(0)
    server.step(1)
    assert model.taken == {5, 6, 7, 9}
    server.resize(7, 0, 30)
    server.step(2)
    guest = Guest(server)
    guest.say(HELLO)
    server.step(3)
    assert guest.hear() == [Welcome(1 << 20, MOST, 7, True, "disk"),
                            Forced(0, False, (Range(5, 2),))]
    guest.say(Give(0, False, (Range(5, 2),)))
    server.step(4)
    assert model.taken == {7, 9}


def test_a_new_server_goes_on_with_a_shrink(model: Model) -> None:
    model.quota = 5
    server = Server(Device(model, "vssd"), 100, 30)
    guest = Guest(server)
    guest.say(HELLO)
    server.step(110)
    assert guest.hear() == [Welcome(1 << 20, MOST, 5, True, "disk"), Deflate(1, 5, 20000)]
    server.step(130)
    assert model.taken == {5, 6, 7, 9}


def test_a_size_that_the_kernel_refuses_changes_nothing(server: Server, model: Model) -> None:
    model.refuse = True
    with pytest.raises(DmError):
        server.resize(10, 0, 0)
    assert (server.session.size, server.session.target, server.session.busy) == (8, 8, False)


def test_a_guest_that_does_not_read_is_not_waited_for(server: Server) -> None:
    guest = Guest(server)
    for _ in range(10_000):
        guest.channel.setblocking(True)
        guest.say(HELLO)
        server.step(0)
        if server.fileno() < 0:
            break
    assert server.fileno() < 0
    assert not server.session.present


def test_the_end_of_the_channel_is_noticed(server: Server) -> None:
    guest = Guest(server)
    guest.say(HELLO)
    guest.channel.close()
    server.step(0)
    server.step(0)
    assert server.fileno() < 0
    # A shrink goes on without it.
    server.resize(5, 0, 30)
    server.step(0)
    assert server.session.taken == 3
    server.step(0)
    assert not server.session.busy
