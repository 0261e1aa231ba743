# SPDX-License-Identifier: Apache-2.0
"""The netlink client, with messages in the format of the kernel.

The kernel's end of the socket is replaced, since this host need not have the module.
tests/kernel and tests/host use the real one.
"""

import contextlib
import errno
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcache_agent.model import Curve, DeviceNumber, Extent
from vcache_agent.netlink import client, encode, errors, messages, spec
from vcache_agent.netlink.pyroute2_base import ctrlmsg, genlmsg

FAMILY = 0x23
DEVICE = DeviceNumber(254, 3)
HEADER = struct.Struct("=IHHII")

Answer = Callable[[int, bytes], list[bytes]]


def framed(kind: int, flags: int, sequence: int, payload: bytes) -> bytes:
    padded = payload + b"\0" * (-len(payload) % 4)
    return HEADER.pack(HEADER.size + len(payload), kind, flags, sequence, 0) + padded


def body(message: genlmsg, command: int, attributes: list[Any]) -> bytes:
    message["cmd"] = command
    message["version"] = 1
    message["attrs"] = attributes
    message.encode()
    return bytes(message.data[HEADER.size:])


def acknowledged(sequence: int, code: int = 0, text: str = "") -> bytes:
    """Return an acknowledgement with an extended text, without the request (CAP_ACK)."""
    payload = struct.pack("=i", -code) + HEADER.pack(HEADER.size, 0, 0, sequence, 0)
    flags = 0x100
    if text:
        value = text.encode() + b"\0"
        payload += struct.pack("=HH", 4 + len(value), 1) + value
        flags |= 0x200
    return framed(2, flags, sequence, payload)


class FakeKernel:
    """The other end of a netlink socket; uses the generated messages."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, genlmsg]] = []
        self.pending: list[tuple[bytes, int]] = []
        self.answer: Answer = lambda sequence, data: [acknowledged(sequence)]
        self.loaded = True

    # The part of a socket that client.py uses.
    def bind(self, address: object) -> None: ...
    def setsockopt(self, *arguments: int) -> None: ...
    def settimeout(self, seconds: float) -> None: ...
    def gettimeout(self) -> float | None: ...
    def close(self) -> None: ...

    def sendto(self, data: bytes, address: tuple[int, int]) -> None:
        length, kind, flags, sequence, _ = HEADER.unpack_from(data)
        assert length == len(data)
        assert address == (0, 0)
        if kind == 16:
            self._send(self._family(sequence))
            return
        assert kind == FAMILY
        message = messages.MESSAGES[spec.Command(data[HEADER.size])](data=data)
        message.decode()
        self.requests.append((flags, message))
        self._send(self.answer(sequence, data))

    def recvfrom(self, size: int) -> tuple[bytes, tuple[int, int]]:
        if not self.pending:
            raise TimeoutError
        data, sender = self.pending.pop(0)
        return data[:size], (sender, 0)

    def _send(self, datagrams: Sequence[bytes]) -> None:
        self.pending += [(data, 0) for data in datagrams]

    def _family(self, sequence: int) -> list[bytes]:
        if not self.loaded:
            return [acknowledged(sequence, errno.ENOENT)]
        groups = [{"attrs": [("CTRL_ATTR_MCAST_GRP_NAME", "events"),
                             ("CTRL_ATTR_MCAST_GRP_ID", 7)]}]
        return [framed(16, 0, sequence, body(ctrlmsg(), 1, [
            ("CTRL_ATTR_FAMILY_NAME", "vcache"), ("CTRL_ATTR_FAMILY_ID", FAMILY),
            ("CTRL_ATTR_MCAST_GROUPS", groups)])), acknowledged(sequence)]


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> FakeKernel:
    fake = FakeKernel()
    monkeypatch.setattr("vcache_agent.netlink.client.socket.socket", lambda *_: fake)
    return fake


@pytest.fixture
def connected(kernel: FakeKernel) -> Iterator[client.Client]:
    with client.Client(timeout=1.0) as made:
        yield made


def attributes(message: genlmsg) -> list[tuple[str, Any]]:
    return [(item[0].removeprefix(message.prefix), item[1]) for item in message["attrs"]]


def _values(form: str) -> st.SearchStrategy[Any]:
    return {"uint32": st.integers(0, 2**32 - 1), "uint64": st.integers(0, 2**64 - 1),
            "asciiz": st.text(st.characters(codec="utf-8", exclude_characters="\0")),
            "flag": st.none(), "cdata": st.binary(max_size=40)}[form]


@given(st.data())
def test_requests_are_those_of_pyroute2(data: st.DataObject) -> None:
    command = data.draw(st.sampled_from(sorted(messages.MESSAGES)))
    kind = messages.MESSAGES[command]
    plain = [entry for entry in kind.nla_map if entry[1] not in ("none", "Stats")]
    names = data.draw(st.lists(st.sampled_from(plain), max_size=6))
    given_values = [(name, data.draw(_values(form))) for name, form in names]
    assert encode.request(kind, command, 1, given_values) == body(kind(), command, given_values)


def test_without_the_module(kernel: FakeKernel) -> None:
    kernel.loaded = False
    with pytest.raises(errors.ModuleNotLoaded, match="modprobe dm-vcache"):
        client.Client()


def test_a_tag_is_set_with_what_is_given(kernel: FakeKernel, connected: client.Client) -> None:
    connected.tag_set(DEVICE, 5)
    connected.tag_set(DEVICE, 5, name="u:vda", weight=7, cgroups=[11, 12])
    connected.tag_set(DEVICE, 5, cgroups=[])
    where = [("MAJOR", 254), ("MINOR", 3), ("ID", 5)]
    assert [attributes(message) for _, message in kernel.requests] == [
        where,
        [*where, ("NAME", "u:vda"), ("WEIGHT", 7), ("CGROUP", 11), ("CGROUP", 12)],
        [*where, ("CGROUP", 0)]]
    assert {message["cmd"] for _, message in kernel.requests} == {spec.Command.TAG_SET}
    assert {flags for flags, _ in kernel.requests} == {0x5}


@pytest.mark.parametrize("count", [0, 1, 2048, 2049, 5000])
def test_extents_go_in_as_many_messages_as_it_takes(
        kernel: FakeKernel, connected: client.Client, count: int) -> None:
    extents = [Extent(number * 16, 8) for number in range(count)]
    connected.set_extents(DEVICE, 5, extents)
    messages = [dict(attributes(message)) for _, message in kernel.requests]
    assert len(messages) == max(1, -(-count // 2048))
    data = b"".join(message.get("EXTENTS", b"") for message in messages)
    assert [Extent(*item) for item in spec.EXTENT_LAYOUT.iter_unpack(data)] == extents
    assert [number for number, message in enumerate(messages) if "EXTENTS_BEGIN" in message] == [0]
    assert [number for number, message in enumerate(messages)
            if "EXTENTS_COMMIT" in message] == [len(messages) - 1]


@pytest.mark.parametrize(("removed", "added"), [(0, 0), (3, 5), (5000, 1), (1, 2049)])
def test_extents_are_changed_by_two_lists(
        kernel: FakeKernel, connected: client.Client, removed: int, added: int) -> None:
    def answer(sequence: int, data: bytes) -> list[bytes]:
        last = "EXTENTS_COMMIT" in dict(attributes(kernel.requests[-1][1]))
        counters = [("VCACHE_A_TAG_EXTENTS_COUNT", 7), ("VCACHE_A_TAG_EXTENTS_SECTORS", 1 << 40)]
        reply = framed(FAMILY, 0, sequence, body(
            messages.TagMessage(), spec.Command.TAG_EXTENTS_CHANGE, counters))
        return [*([reply] if last else []), acknowledged(sequence)]

    kernel.answer = answer
    remove = [Extent(number * 16, 8) for number in range(removed)]
    add = [Extent(number * 16 + 8, 4) for number in range(added)]
    assert connected.change_extents(DEVICE, 5, remove, add) == (7, 1 << 40)
    sent = [dict(attributes(message)) for _, message in kernel.requests]
    assert len(sent) == max(1, -(-max(removed, added) // 2048))
    for name, extents in (("EXTENTS_REMOVE", remove), ("EXTENTS", add)):
        data = b"".join(message.get(name, b"") for message in sent)
        assert [Extent(*item) for item in spec.EXTENT_LAYOUT.iter_unpack(data)] == extents
    assert [number for number, message in enumerate(sent) if "EXTENTS_BEGIN" in message] == [0]
    assert [number for number, message in enumerate(sent)
            if "EXTENTS_COMMIT" in message] == [len(sent) - 1]
    assert {message["cmd"] for _, message in kernel.requests} == {
        spec.Command.TAG_EXTENTS_CHANGE}


def test_a_change_without_a_reply_is_an_error(
        kernel: FakeKernel, connected: client.Client) -> None:
    with pytest.raises(errors.NetlinkError, match="sent no answer"):
        connected.change_extents(DEVICE, 5, [], [Extent(0, 8)])


def test_devices_and_tags_are_read_from_a_dump(
        kernel: FakeKernel, connected: client.Client) -> None:
    histogram = struct.pack("=128Q", *range(128))
    device = body(messages.DeviceMessage(), 1, [
        ("VCACHE_A_DEVICE_MAJOR", 254), ("VCACHE_A_DEVICE_MINOR", 3),
        ("VCACHE_A_DEVICE_NAME", "images"), ("VCACHE_A_DEVICE_MODE", 0),
        ("VCACHE_A_DEVICE_SCOPE", 1), ("VCACHE_A_DEVICE_ISOLATION", 2),
        ("VCACHE_A_DEVICE_SECTORS", 2048), ("VCACHE_A_DEVICE_ORIGIN", "8:0"),
        ("VCACHE_A_DEVICE_DIRTY_BYTES", 4096), ("VCACHE_A_DEVICE_TAGS", 2),
        ("VCACHE_A_DEVICE_BROKEN", None)])
    tag = body(messages.TagMessage(), 2, [
        ("VCACHE_A_TAG_MAJOR", 254), ("VCACHE_A_TAG_MINOR", 3), ("VCACHE_A_TAG_ID", 9),
        ("VCACHE_A_TAG_NAME", "n"), ("VCACHE_A_TAG_WEIGHT", 50), ("VCACHE_A_TAG_CGROUP", 1),
        ("VCACHE_A_TAG_CGROUP", 2), ("VCACHE_A_TAG_DIRTY_BYTES", 512),
        ("VCACHE_A_TAG_STATS", {"attrs": [("VCACHE_A_STATS_FLUSHES", 3),
                                          ("VCACHE_A_STATS_FLUSH_NS", 9000),
                                          ("VCACHE_A_STATS_FLUSH_HIST", histogram)]})])

    def answer(sequence: int, data: bytes) -> list[bytes]:
        what = device if data[HEADER.size] == spec.Command.DEVICE_GET else tag
        part = framed(FAMILY, 2, sequence, what)
        # Two in a datagram, one in the next, then the end.
        return [part * 2, part, framed(3, 2, sequence, b"\0\0\0\0")]

    kernel.answer = answer
    devices = connected.devices()
    assert len(devices) == 3
    assert (devices[0].number, devices[0].name, devices[0].isolation, devices[0].scope) == (
        DEVICE, "images", spec.Isolation.DEGRADED, spec.Scope.FILESYSTEM)
    assert devices[0].broken and not devices[0].suspended
    tags = connected.tags(DEVICE)
    assert len(tags) == 3
    assert (tags[0].id, tags[0].cgroups, tags[0].dirty_bytes) == (9, {1, 2}, 512)
    assert (tags[0].stats.flushes, tags[0].stats.flush_hist) == (3, tuple(range(128)))
    assert all(flags == 0x305 for flags, _ in kernel.requests)


def test_a_curve_is_read(kernel: FakeKernel, connected: client.Client) -> None:
    points = struct.pack("=1025Q", *range(2000, 975, -1))
    kernel.answer = lambda sequence, data: [
        framed(FAMILY, 0, sequence, body(messages.CurveMessage(), spec.Command.CURVE_GET, [
            ("VCACHE_A_CURVE_MAJOR", 254), ("VCACHE_A_CURVE_MINOR", 3), ("VCACHE_A_CURVE_ID", 5),
            ("VCACHE_A_CURVE_GRAIN_BYTES", 1 << 20), ("VCACHE_A_CURVE_FOOTPRINT_BYTES", 5 << 20),
            ("VCACHE_A_CURVE_READS", 2000), ("VCACHE_A_CURVE_WRITES", 4000),
            ("VCACHE_A_CURVE_READ_MISSES", points),
            ("VCACHE_A_CURVE_WRITE_MISSES", points)])), acknowledged(sequence)]
    curve = connected.curve(DEVICE, 5)
    assert attributes(kernel.requests[-1][1]) == [("MAJOR", 254), ("MINOR", 3), ("ID", 5)]
    assert (curve.grain, curve.footprint, curve.reads, curve.writes) == (
        1 << 20, 5 << 20, 2000, 4000)
    assert curve.read_misses == curve.write_misses == tuple(range(2000, 975, -1))


@pytest.mark.parametrize(("size", "misses"), [
    (0, (100, 50)), (3, (93, 50)), (10, (75, 50)), (15, (60, 25)), (20, (45, 0)), (29, (45, 0)),
    (1 << 40, (45, 0))])
def test_between_two_points_a_curve_falls_evenly(size: int, misses: tuple[int, int]) -> None:
    assert Curve(10, 30, 100, 50, (100, 75, 45), (50, 50, 0)).misses(size) == misses


def test_the_kernels_text_is_the_exceptions(kernel: FakeKernel, connected: client.Client) -> None:
    text = "a sector belongs to another tag already"
    kernel.answer = lambda sequence, data: [acknowledged(sequence, errno.EEXIST, text)]
    with pytest.raises(errors.NetlinkError, match=text) as caught:
        connected.set_extents(DEVICE, 5, [Extent(0, 1)])
    assert caught.value.errno == errno.EEXIST
    kernel.answer = lambda sequence, data: [acknowledged(sequence, errno.EPERM)]
    with pytest.raises(errors.NetlinkError, match="CAP_SYS_ADMIN"):
        connected.tag_del(DEVICE, 5)
    kernel.answer = lambda sequence, data: [acknowledged(sequence, errno.ENOMEM)]
    with pytest.raises(errors.NetlinkError, match=os.strerror(errno.ENOMEM)):
        connected.tag_del(DEVICE, 5)


def test_a_disturbed_dump_is_read_again(kernel: FakeKernel, connected: client.Client) -> None:
    done = [0]

    def answer(sequence: int, data: bytes) -> list[bytes]:
        done[0] += 1
        return [framed(3, 0x12 if done[0] < 3 else 2, sequence, b"\0\0\0\0")]

    kernel.answer = answer
    assert connected.devices() == []
    assert done[0] == 3


def test_silence_ends_in_time_and_late_answers_are_not_taken(
        kernel: FakeKernel, connected: client.Client) -> None:
    late: list[bytes] = []

    def silent(sequence: int, data: bytes) -> list[bytes]:
        late.append(acknowledged(sequence, errno.EIO))
        return []

    kernel.answer = silent
    with pytest.raises(errors.NetlinkTimeout, match="within 1 s"):
        connected.tag_del(DEVICE, 5)
    kernel.answer = lambda sequence, data: [*late, acknowledged(sequence)]
    connected.tag_del(DEVICE, 5)


def test_only_the_kernel_is_listened_to(kernel: FakeKernel, connected: client.Client) -> None:
    forged = acknowledged(2, errno.EIO)
    kernel.answer = lambda sequence, data: [acknowledged(sequence)]
    kernel.pending.append((forged, 4711))
    connected.tag_del(DEVICE, 5)
    assert not kernel.pending


@pytest.mark.parametrize("data", [b"\x05\0\0\0" + b"\0" * 12, b"\xff\0\0\0" + b"\0" * 12])
def test_a_truncated_message_is_an_error(
        kernel: FakeKernel, connected: client.Client, data: bytes) -> None:
    kernel.answer = lambda sequence, _: [data]
    with pytest.raises(errors.NetlinkError, match="truncated"):
        connected.devices()


def test_events(kernel: FakeKernel) -> None:
    event = body(messages.EventMessage(), spec.Command.EVENT_NTF, [
        ("VCACHE_A_EVENT_KIND", 3), ("VCACHE_A_EVENT_MAJOR", 254), ("VCACHE_A_EVENT_MINOR", 3),
        ("VCACHE_A_EVENT_TAG", 9)])
    newer = body(messages.EventMessage(), spec.Command.EVENT_NTF, [("VCACHE_A_EVENT_KIND", 99)])
    with contextlib.closing(client.EventListener()) as listener:
        assert listener.receive(0.1) == []
        kernel.pending = [(framed(FAMILY, 0, 0, newer) + framed(FAMILY, 0, 0, event), 0)]
        assert listener.receive(0.1) == [(spec.EventKind.EXTENTS_LOST, DEVICE, 9)]


def test_the_rest_of_pyroute2_is_not_imported() -> None:
    program = ("import sys, vcache_agent.netlink.client; "
               "assert not {'pyroute2', 'pyroute2.ndb'} & sys.modules.keys(); "
               "import pyroute2; print(pyroute2.IPRoute.__name__)")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          check=True)
    assert done.stdout == "IPRoute\n"
