# SPDX-License-Identifier: Apache-2.0
"""Flexible Data Placement, at the offsets of the specification (TP4146, Base 2.1)."""

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nvmetcp.client import Completion, Queue
from tests.nvmetcp.ssd import Host, Ssd, host

INVALID_OPCODE, INVALID_FIELD, INVALID_NAMESPACE = 0x01, 0x02, 0x0b
SEQUENCE_ERROR, INVALID_LOG_PAGE = 0x0c, 0x109
GROUP, CONFIGURATIONS, USAGE, STATISTICS, EVENTS = 0x09, 0x20, 0x21, 0x22, 0x23
MODE, EVENT_TYPES = 0x1d, 0x1e
RECEIVE, SEND = 0x12, 0x1d
PLACEMENT = 2 << 20
#: Reclaim unit of the replacement for the SSD, in blocks.
UNIT = 256


@pytest.fixture
def ssd(program: Path) -> Iterator[Ssd]:
    """An SSD with three placement handles and two namespaces."""
    with Ssd(program, "--namespaces", "2", "--timing", "off", "--handles", "3") as running:
        yield running


def _log(q: Queue, lid: int, length: int, *, group: int = 1, host_events: bool = False,
         offset: int = 0) -> Completion:
    numd = length // 4 - 1
    return q.command(0x02, length=length,
                     cdw=(lid | host_events << 8 | numd << 16, group << 16, offset))


def _write(q: Queue, block: int, handle: int, count: int = 1, *, opcode: int = 0x01,
           directive: int = PLACEMENT) -> int:
    return q.command(opcode, data=bytes(4096 * count), in_capsule=False, nsid=1,
                     cdw=(block, 0, count - 1 | directive, handle << 16)).code


def _units(q: Queue, *, nsid: int = 1, length: int = 112) -> list[tuple[int, int, int, int]]:
    data = q.command(RECEIVE, nsid=nsid, length=length, cdw=(1, length // 4 - 1)).data
    count = struct.unpack_from("<14xH", data)[0]
    assert not any(data[:14])
    return [struct.unpack_from("<HHIQ16x", data, 16 + 32 * i) for i in range(count)]


def _left(q: Queue) -> list[int]:
    return [unit[3] for unit in _units(q)]


def _update(q: Queue, *pids: int, nsid: int = 1) -> int:
    return q.command(SEND, data=struct.pack(f"<{len(pids)}H", *pids), in_capsule=False, nsid=nsid,
                     cdw=(1 | len(pids) - 1 << 16,)).code


def _enable(h: Host, types: list[int], *, handle: int = 0, on: bool = True) -> int:
    return h.admin.command(0x09, data=bytes(types), in_capsule=False, nsid=1,
                           cdw=(EVENT_TYPES, handle | len(types) << 16, on)).code


def _events(h: Host) -> list[tuple[int, ...]]:
    """Type, flags, placement identifier, namespace, reclaim group, handle."""
    count = struct.unpack_from("<I", _log(h.admin, EVENTS, 64, host_events=True).data)[0]
    data = _log(h.admin, EVENTS, 64 + 64 * count, host_events=True).data
    return [struct.unpack_from("<BBH8xI16xHB", data, 64 + 64 * i) for i in range(count)]


def test_identify(ssd: Ssd) -> None:
    with host(ssd) as h:
        data = h.admin.identify(1).data
        assert struct.unpack_from("<I", data, 96)[0] == 1 | 1 << 4 | 1 << 19
        assert struct.unpack_from("<H", data, 340)[0] == 1
        for nsid in (1, 2):
            assert struct.unpack_from("<HH", h.admin.identify(0, nsid).data, 100) == (0, 1)
        groups = h.admin.command(0x06, length=4096, cdw=(0x19, 0)).data
        assert struct.unpack_from("<HH", groups) == (1, 1)
        groups = h.admin.command(0x06, length=4096, cdw=(0x19, 2)).data
        assert struct.unpack_from("<HH", groups) == (0, 0)


def test_without_placement_handles(program: Path) -> None:
    with Ssd(program) as ssd, host(ssd) as h:
        q = h.io()
        assert struct.unpack_from("<I", h.admin.identify(1).data, 96)[0] == 1
        assert struct.unpack_from("<HH", h.admin.identify(0, 1).data, 100) == (0, 0)
        assert h.admin.command(0x06, length=4096, cdw=(0x19, 0)).code == INVALID_FIELD
        for lid in (GROUP, CONFIGURATIONS, USAGE, STATISTICS, EVENTS):
            assert _log(h.admin, lid, 64).code == INVALID_LOG_PAGE
        for feature in (MODE, EVENT_TYPES):
            assert h.admin.command(0x0a, nsid=1, cdw=(feature, 1)).code == INVALID_FIELD
        assert _write(q, 0, 0) == INVALID_FIELD
        for opcode in (RECEIVE, SEND):
            assert q.command(opcode, nsid=1, cdw=(1,)).code == INVALID_OPCODE


def test_configurations(ssd: Ssd) -> None:
    with host(ssd) as h:
        data = _log(h.admin, CONFIGURATIONS, 128).data
        # one configuration (0's based), version 0; the length without padding
        assert struct.unpack_from("<HBxI", data) == (0, 0, 96)
        size, attributes, vendor, groups, handles, identifiers, namespaces, unit, limit = (
            struct.unpack_from("<HBBIHHIQI", data, 16))
        # valid, volatile cache, no bits for the reclaim group; 64 + 3 * 4, a multiple of 8
        assert (size, attributes, vendor) == (80, 0x90, 0)
        assert (groups, handles, identifiers, namespaces) == (1, 3, 2, 2)
        assert (unit, limit) == (UNIT * 4096, 0)
        assert data[80:92] == bytes((1, 0, 0, 0)) * 3
        assert not any(data[92:])


@pytest.mark.parametrize("lid", [GROUP, CONFIGURATIONS, USAGE, STATISTICS, EVENTS])
def test_other_endurance_groups(ssd: Ssd, lid: int) -> None:
    with host(ssd) as h:
        assert _log(h.admin, lid, 64).code == 0
        for group in (0, 2, 0xffff):
            assert _log(h.admin, lid, 64, group=group).code == INVALID_FIELD


def test_usage(ssd: Ssd) -> None:
    with host(ssd) as h:
        data = _log(h.admin, USAGE, 32).data
        assert data == struct.pack("<H6x", 3) + (b"\1" + bytes(7)) * 3


def test_features(ssd: Ssd) -> None:
    with host(ssd) as h:
        done = h.admin.command(0x0a, cdw=(MODE, 1))
        assert (done.code, done.dw0) == (0, 1)
        assert h.admin.command(0x0a, cdw=(MODE, 2)).code == INVALID_FIELD
        # there are namespaces in the endurance group
        assert h.admin.command(0x09, cdw=(MODE, 1, 0)).code == SEQUENCE_ERROR
        assert _enable(h, [0x03], handle=1) == 0
        for handle, enabled in ((0, 0), (1, 1)):
            done = h.admin.command(0x0a, nsid=1, length=8, cdw=(EVENT_TYPES, handle | 4 << 16))
            assert (done.code, done.dw0) == (0, 2)
            assert done.data == bytes((0, 0, 3, enabled, 0, 0, 0, 0))
        assert _enable(h, [0x03], handle=1, on=False) == 0
        done = h.admin.command(0x0a, nsid=1, length=4, cdw=(EVENT_TYPES, 1 | 2 << 16))
        assert done.data == bytes((0, 0, 3, 0))
        assert _enable(h, [0x01]) == INVALID_FIELD
        assert _enable(h, [0x00], handle=3) == INVALID_FIELD
        assert h.admin.command(0x0a, nsid=1, cdw=(EVENT_TYPES, 0)).code == INVALID_FIELD
        assert h.admin.command(0x0a, nsid=3, length=4,
                               cdw=(EVENT_TYPES, 2 << 16)).code == INVALID_NAMESPACE


@pytest.mark.parametrize("opcode", [0x01, 0xc1])
def test_writes_go_to_their_handle(ssd: Ssd, opcode: int) -> None:
    with host(ssd) as h:
        q = h.io()
        assert _units(q) == [(n, n, 0, UNIT) for n in range(3)]
        assert _write(q, 0, 2, 5, opcode=opcode) == 0
        assert _write(q, 5, 1, 3, opcode=opcode) == 0
        # no directive: the first handle, whatever the directive's value is
        assert _write(q, 9, 2, 2, opcode=opcode, directive=0) == 0
        assert _left(q) == [UNIT - 2, UNIT - 3, UNIT - 5]
        assert _units(q, nsid=2) == _units(q)
        # directives that do not exist
        for directive in (1, 3, 15):
            assert _write(q, 0, 0, opcode=opcode, directive=directive << 20) == INVALID_FIELD
        assert q.command(0x08, nsid=1, cdw=(0, 0, 3 | PLACEMENT, 1 << 16)).code == 0
        assert _left(q) == [UNIT - 2, UNIT - 7, UNIT - 5]


def test_units_in_small_blocks(program: Path) -> None:
    with Ssd(program, "--handles", "2", "--block-size", "512") as ssd, host(ssd) as h:
        assert _left(h.io()) == [UNIT * 8] * 2


def test_receive(ssd: Ssd) -> None:
    with host(ssd) as h:
        q = h.io()
        # a part of the list, and more than there is
        assert q.command(RECEIVE, nsid=1, length=32, cdw=(1, 7)).data == q.command(
            RECEIVE, nsid=1, length=4080, cdw=(1, 1019)).data[:32]
        assert not any(q.command(RECEIVE, nsid=1, length=4080, cdw=(1, 1019)).data[112:])
        assert q.command(RECEIVE, nsid=1, cdw=(0, 0)).code == 0
        assert q.command(RECEIVE, nsid=1, length=32, cdw=(2, 7)).code == INVALID_FIELD
        for nsid in (0, 3, 0xffffffff):
            assert q.command(RECEIVE, nsid=nsid, length=32, cdw=(1, 7)).code == INVALID_NAMESPACE


def test_send_begins_a_new_unit(ssd: Ssd) -> None:
    with host(ssd) as h:
        q = h.io()
        for handle in range(3):
            _write(q, handle, handle)
        assert _update(q, 0, 2) == 0
        assert _left(q) == [UNIT, UNIT - 1, UNIT]
        # all or none
        assert _update(q, 1, 3) == INVALID_FIELD
        assert _update(q, 0, 1, 2, 0) == INVALID_FIELD
        assert _left(q) == [UNIT, UNIT - 1, UNIT]
        assert _update(q, 1, nsid=3) == INVALID_NAMESPACE
        assert q.command(SEND, nsid=1, cdw=(0,)).code == 0
        assert q.command(SEND, data=bytes(2), in_capsule=False, nsid=1,
                         cdw=(2,)).code == INVALID_FIELD


def test_events(ssd: Ssd) -> None:
    with host(ssd) as h:
        q = h.io()
        _write(q, 0, 7)
        assert _events(h) == []
        assert _enable(h, [0x00, 0x03]) == 0
        assert _enable(h, [0x00], handle=2) == 0
        # the write is done, with the first handle
        assert _write(q, 0, 7, 4) == 0
        assert _left(q) == [UNIT - 5, UNIT, UNIT]
        assert _update(q, 0, 1, 2) == 0
        _write(q, 0, 2)
        _write(q, 1, 1)
        assert _update(q, 1, 2) == 0
        assert _events(h) == [(3, 0b011, 7, 1, 0, 0), (0, 0b111, 0, 1, 0, 0),
                              (0, 0b111, 2, 1, 0, 2)]
        # the controller has none
        assert not any(_log(h.admin, EVENTS, 64).data)
        for pid in range(100, 170):
            _write(q, 0, pid)
        assert [event[2] for event in _events(h)] == list(range(107, 170))


def test_statistics(ssd: Ssd) -> None:
    with host(ssd) as h:
        q = h.io()
        _write(q, 0, 1, 8)
        _write(q, 0, 1, 8)
        q.flush()
        data = _log(h.admin, STATISTICS, 64).data
        assert struct.unpack("<QQQQQQ16x", data) == (65536, 0, 32768, 0, 0, 0)
        group = _log(h.admin, GROUP, 512).data
        # spare, threshold, used; 10^9 bytes read, written, on the medium; commands
        assert group[3:6] == bytes((100, 10, 0))
        assert struct.unpack_from("<6Q", group, 48) == (0, 0, 1, 0, 1, 0)
        assert struct.unpack_from("<4Q", group, 96) == (0, 0, 2, 0)


def test_effects(ssd: Ssd) -> None:
    with host(ssd) as h:
        words = struct.unpack("<1024I", h.admin.get_log(0x05, 4096).data)
        assert words[256 + RECEIVE] == words[256 + SEND] == 1


def test_real_drive(drive_program: Path, tmp_path: Path) -> None:
    """Handles fill units of their own; the image keeps their number."""
    image = ["--image", str(tmp_path / "image")]
    with Ssd(drive_program, *image, "--handles", "2", "--nand", "none", size="64M") as ssd, \
            host(ssd) as h:
        q = h.io()
        unit = struct.unpack_from("<Q", _log(h.admin, CONFIGURATIONS, 96).data, 32)[0] // 4096
        assert _left(q) == [unit, unit]
        for block in range(0, 256, 64):
            assert _write(q, block, 1, 64) == 0
        assert q.flush().status == 0
        assert _left(q) == [unit, unit - 256]
        assert _update(q, 1) == 0
        assert _left(q) == [unit, unit]
        host_bytes, media = struct.unpack_from("<Q8xQ", _log(h.admin, STATISTICS, 64).data)
        assert host_bytes == 1 << 20
        assert media >= host_bytes
    with Ssd(drive_program, *image, size=None) as ssd, host(ssd) as h:
        assert len(_units(h.io())) == 2
    with pytest.raises(RuntimeError, match="was created with --handles 2"):
        Ssd(drive_program, *image, "--handles", "3", size=None)
    with pytest.raises(RuntimeError, match="--mapping fast has only one"):
        Ssd(drive_program, "--handles", "2", "--mapping", "fast", size="64M")
