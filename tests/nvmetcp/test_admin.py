# SPDX-License-Identifier: Apache-2.0
"""Identify, log pages, features, asynchronous events and Abort."""

import struct
import time
from pathlib import Path

import pytest

from tests.nvmetcp import client
from tests.nvmetcp.client import Queue
from tests.nvmetcp.ssd import NQN, Ssd, host

ERROR, SMART, FIRMWARE, CHANGED, EFFECTS = 1, 2, 3, 4, 5
VCACHE, TAGS, WRITES, ERASES = 0xc0, 0xc1, 0xc2, 0xc3
#: The feature, and Feature Not Changeable.
WEIGHT, NOT_CHANGEABLE = 0xc0, 0x10e
INVALID_FIELD, INVALID_NAMESPACE, SEQUENCE_ERROR = 0x02, 0x0b, 0x0c
ABORTED = 0x07


def _le(data: bytes, offset: int, size: int) -> int:
    return int.from_bytes(data[offset:offset + size], "little")


# ---- Identify ----


def test_identify_controller(ssd: Ssd) -> None:
    """The fields that Linux checks."""
    with host(ssd) as h:
        data = h.admin.identify(1).data
        assert data[24:64] == b"nova-vcache emulated SSD".ljust(40)
        assert _le(data, 77, 1) == 8
        assert _le(data, 80, 4) == 0x10400
        assert _le(data, 111, 1) == 1
        assert data[76] == 0
        assert _le(data, 320, 2) == 1
        assert (data[512], data[513]) == (0x66, 0x44)
        assert _le(data, 514, 2) == 128
        assert _le(data, 516, 4) == 2
        assert _le(data, 520, 2) == 0x0d
        assert data[525] == 7
        assert _le(data, 536, 4) & 3
        assert data[768:1024].rstrip(b"\0").decode() == NQN
        assert _le(data, 1792, 4) * 16 == 64 + 8192
        assert _le(data, 1796, 4) == 1


def test_identify_namespaces(ssd: Ssd) -> None:
    with host(ssd) as h:
        listed = struct.unpack("<1024I", h.admin.identify(2).data)
        assert listed == (1, 2, *[0] * 1022)
        assert struct.unpack("<1024I", h.admin.identify(2, nsid=1).data)[:2] == (2, 0)
        assert h.admin.identify(2, nsid=2).data == bytes(4096)
        ids = set()
        for nsid in (1, 2):
            data = h.admin.identify(0, nsid=nsid).data
            assert [_le(data, at, 8) for at in (0, 8, 16)] == [2048] * 3
            assert data[33] == 9
            assert data[130] == 12
            descriptors = h.admin.identify(3, nsid=nsid).data
            assert descriptors[:2] == b"\x02\x10"
            assert descriptors[20:22] == b"\x03\x10"
            assert descriptors[40:] == bytes(4056)
            assert descriptors[4:20] == data[104:120]
            ids.add(data[104:120])
        assert len(ids) == 2
        assert h.admin.identify(6).data[1] == 8


@pytest.mark.parametrize(("cns", "nsid", "csi", "code"), [
    (0, 0, 0, INVALID_NAMESPACE), (0, 3, 0, INVALID_NAMESPACE),
    (0, 0xffffffff, 0, INVALID_NAMESPACE), (3, 0, 0, INVALID_NAMESPACE),
    (3, 3, 0, INVALID_NAMESPACE), (2, 0xffffffff, 0, INVALID_NAMESPACE),
    (2, 0xfffffffe, 0, INVALID_NAMESPACE), (6, 0, 1, INVALID_FIELD),
    (4, 0, 0, INVALID_FIELD), (0x1c, 0, 0, INVALID_FIELD), (0xff, 0, 0, INVALID_FIELD)])
def test_identify_refused(ssd: Ssd, cns: int, nsid: int, csi: int, code: int) -> None:
    with host(ssd) as h:
        assert h.admin.identify(cns, nsid, csi).code == code


def test_names_stay_the_same(program: Path, tmp_path: Path) -> None:
    """They are derived from the NQN, which by default is derived from the image."""
    def names(name: str) -> tuple[str, bytes, bytes]:
        with Ssd(program, "--image", str(tmp_path / name), nqn=None) as ssd, host(ssd) as h:
            return ssd.nqn, h.admin.identify(1).data[4:24], h.admin.identify(3, nsid=1).data[:40]

    first = names("one")
    assert names("one") == first
    assert not set(names("two")) & set(first)


# ---- log pages ----


@pytest.mark.parametrize(("lid", "size"), [
    (ERROR, 4096), (SMART, 512), (FIRMWARE, 512), (CHANGED, 4096), (EFFECTS, 4096),
    (VCACHE, 512), (TAGS, 64), (WRITES, 512), (ERASES, 1088)])
def test_log_in_parts(ssd: Ssd, lid: int, size: int) -> None:
    with host(ssd) as h:
        h.admin.command(0xff)  # an entry for the error log
        whole = h.admin.get_log(lid, size).data
        parts = [h.admin.get_log(lid, min(20, size - at), offset=at, rae=True).data
                 for at in range(0, min(size, 600), 20)]
        assert b"".join(parts)[:600] == whole[:600]
        assert h.admin.get_log(lid, size + 64).data == whole + bytes(64)
        assert h.admin.get_log(lid, 4, offset=size).data == bytes(4)
        assert h.admin.get_log(lid, 4, offset=size + 4).code == INVALID_FIELD
        assert h.admin.get_log(lid, 4, offset=2).code == INVALID_FIELD
        assert h.admin.get_log(lid, 4, offset=2**64 - 4).code == INVALID_FIELD
        assert h.admin.get_log(lid, (1 << 20) + 4).code == INVALID_FIELD


def test_log_that_is_not_there(ssd: Ssd) -> None:
    with host(ssd) as h:
        for lid in (0x00, 0x06, 0x70, 0xc4, 0xff):
            assert h.admin.get_log(lid, 512).code == 0x109


def test_smart_log(ssd: Ssd) -> None:
    with host(ssd) as h:
        q = h.io()
        q.write(0, bytes(1 << 20))
        q.read(0)
        data = h.admin.get_log(SMART, 512).data
        assert data[0] == 0
        assert data[3] == 100
        assert [_le(data, at, 16) for at in (32, 48, 64, 80)] == [1, 3, 1, 1]


def test_effects_log(ssd: Ssd) -> None:
    with host(ssd) as h:
        words = struct.unpack("<1024I", h.admin.get_log(EFFECTS, 4096).data)
        admin = {n: words[n] for n in range(256) if words[n]}
        io = {n: words[256 + n] for n in range(256) if words[256 + n]}
        assert admin == dict.fromkeys((2, 6, 8, 9, 0x0a, 0x0c, 0x18), 1)
        assert io == {0: 1, 1: 3, 2: 1, 5: 1, 8: 3, 9: 3, 0xc0: 1, 0xc1: 3, 0xc2: 1, 0xc5: 3}


def test_firmware_log(ssd: Ssd) -> None:
    with host(ssd) as h:
        data = h.admin.get_log(FIRMWARE, 512).data
        assert data[0] == 1
        assert data[8:16] == h.admin.identify(1).data[64:72]


def test_error_log(ssd: Ssd) -> None:
    with host(ssd) as h:
        q = h.io()
        done = q.read(1 << 33, nsid=2)
        assert done.status == 0x80 | client.DNR | 0x2000
        entry = h.admin.get_log(ERROR, 64).data
        assert struct.unpack("<QHHHHQI", entry[:28]) == (
            1, 1, q.cid, done.status << 1 & ~(0x2000 << 1), 40, 1 << 33, 2)
        assert entry[29] == 3
        for _ in range(70):
            q.read(0, nsid=9)
        counts = [_le(h.admin.get_log(ERROR, 4096).data, at, 8) for at in range(0, 4096, 64)]
        assert counts == list(range(71, 7, -1))


def test_vendor_log(ssd: Ssd) -> None:
    with host(ssd) as h:
        data = h.admin.get_log(VCACHE, 512).data
        assert data[:8] == b"vcacheSS"
        assert struct.unpack("<HBBBB2xIIII", data[8:32]) == (
            1, 0xc0, 0xc1, 0xc2, 0xc5, 0xff, 65535, 0, 64)


def test_nothing_is_said_of_tags(program: Path) -> None:
    """An SSD without tagged flush: hosts must not believe that it supports it."""
    with Ssd(program, "--personality", "baseline") as ssd, host(ssd) as h:
        q = h.io()
        assert h.admin.get_log(VCACHE, 512).code == 0x109
        assert h.admin.command(0x0a, cdw=(WEIGHT, 1)).code == INVALID_FIELD
        for opcode in (0xc0, 0xc1, 0xc2, 0xc5):
            assert q.command(opcode, nsid=1).code == 1
        effects = struct.unpack("<1024I", h.admin.get_log(EFFECTS, 4096).data)
        assert not any(effects[256 + 0x80:512])
        assert q.write(0, bytes(4096)).status == 0
        assert q.flush().status == 0


def test_tag_log(program: Path) -> None:
    with Ssd(program, env={"RAM_SSD_FLUSH_US": "2000"}) as ssd, host(ssd) as h:
        q = h.io()
        for tag in (9, 65535, 3):
            q.write(0, bytes(8192), opcode=0xc1, tag=tag)
        q.read(0, opcode=0xc2, tag=3)
        q.flush(opcode=0xc0, tag=3)
        q.flush(opcode=0xc0, tag=3)
        q.write(2, bytes(4096), opcode=0xc1, tag=9)
        assert h.admin.command(0x09, cdw=(WEIGHT, 9, 300)).status == 0
        data = h.admin.get_log(TAGS, 64 + 3 * 160).data
        assert struct.unpack("<8sHHI", data[:16]) == (b"vcacheSS", 1, 160, 3)
        entries = [struct.unpack("<II12QII3Q24x", data[at:at + 160]) for at in (64, 224, 384)]
        assert [e[0] for e in entries] == [9, 65535, 3]
        # state, and one block that is not durable, since flushed blocks are not counted
        assert entries[0][1:] == (1, 0, 2, 0, 0, 24, 0, 0, 1, 0, 0, 0, 0, 300, 19, 11, 12, 13)
        assert entries[2][1:] == (0, 1, 1, 2, 8, 16, 4_000_000, 2_000_000, *[0] * 10)


def test_weights_of_tags(ssd: Ssd) -> None:
    with host(ssd) as h:
        def feature(opcode: int, *cdw: int) -> client.Completion:
            return h.admin.command(opcode, cdw=(WEIGHT, *cdw))

        assert feature(0x0a, 9).dw0 == 0
        assert feature(0x09, 9, 10000).status == 0
        assert feature(0x09, 65535, 1).status == 0
        assert [feature(0x0a, tag).dw0 for tag in (9, 65535, 0)] == [10000, 1, 0]
        assert feature(0x09, 9, 10001).code == INVALID_FIELD
        assert feature(0x09, 65536, 1).code == INVALID_FIELD
        assert feature(0x0a, 65536).code == INVALID_FIELD
        # The stand-in has room for two.
        assert feature(0x09, 5, 1).code == NOT_CHANGEABLE
        assert feature(0x09, 9, 0).status == 0
        assert feature(0x09, 4, 0).status == 0
        # Tags are listed that have got a weight, although no command has used them.
        page = h.admin.get_log(TAGS, 64 + 2 * 160).data
        assert struct.unpack("<I", page[12:16]) == (2,)
        assert [struct.unpack("<I", page[at:at + 4]) for at in (64, 224)] == [(9,), (65535,)]
        assert feature(0x09, 5, 1).status == 0
        assert h.admin.command(0x09, cdw=(WEIGHT | 1 << 31, 9, 1)).code == 0x10d


def test_writes_log(program: Path) -> None:
    with Ssd(program, "--personality", "baseline") as ssd, host(ssd) as h:
        q = h.io()
        q.write(3, bytes(5 * 4096))
        before = struct.unpack("<8sHHI13Q", h.admin.get_log(WRITES, 128).data[:120])
        q.flush()
        data = h.admin.get_log(WRITES, 512).data
        assert before[:5] == (b"vcacheSS", 1, 6, 4096, 0)
        assert struct.unpack("<Q", data[16:24])[0] == 1
        assert struct.unpack("<Q", data[40:48])[0] == 5
        assert struct.unpack("<Q", data[120:128])[0] == 4096
        assert struct.unpack("<16Q", data[128:256]) == (5, *[0] * 15)


@pytest.mark.parametrize(("erases", "width"), [(0, 1), (254, 1), (255, 2), (509, 2), (510, 4),
                                               (2000, 8)])
def test_erases_log(program: Path, erases: int, width: int) -> None:
    with Ssd(program, env={"RAM_SSD_ERASES": str(erases)}) as ssd, host(ssd) as h:
        data = h.admin.get_log(ERASES, 1088).data
        assert struct.unpack("<8sHHII", data[:20]) == (b"vcacheSS", 1, 256, width, 1000)
        blocks = struct.unpack("<256I", data[64:])
        assert {i: n for i, n in enumerate(blocks) if n} == {erases // width: 4096}


@pytest.mark.parametrize(("erases", "bad", "warning", "spare", "used"), [
    (0, 0, 0, 100, 0), (9, 1, 0, 95, 0), (10, 18, 0, 10, 1), (995, 19, 1, 5, 99),
    (1500, 20, 1, 0, 150), (9999, 30, 1, 0, 255)])
def test_wear_in_the_smart_log(program: Path, erases: int, bad: int, warning: int, spare: int,
                               used: int) -> None:
    env = {"RAM_SSD_ERASES": str(erases), "RAM_SSD_BAD": str(bad)}
    with Ssd(program, env=env) as ssd, host(ssd) as h:
        data = h.admin.get_log(SMART, 512).data
        assert (data[0], *data[3:6]) == (warning, spare, 10, used)


def test_media_errors_in_the_smart_log(program: Path) -> None:
    with Ssd(program, env={"RAM_SSD_BAD_BLOCK": "5"}) as ssd, host(ssd) as h:
        q = h.io()
        assert [q.read(at).code for at in (4, 5, 5)] == [0, 0x281, 0x281]
        assert _le(h.admin.get_log(SMART, 512).data, 160, 16) == 2


def test_multipath_is_said_when_asked_for(program: Path) -> None:
    with Ssd(program, "--multipath", "on") as ssd, host(ssd) as h:
        assert h.admin.identify(1).data[76] == 2


# ---- features ----


def test_features(ssd: Ssd) -> None:
    with host(ssd) as h:
        def get(fid: int) -> int:
            done = h.admin.command(0x0a, cdw=(fid,))
            assert done.status == 0
            return done.dw0

        assert get(7) == 0x000f000f
        assert h.admin.command(0x09, cdw=(7, 0x00020005)).dw0 == 0x00020002
        assert get(7) == 0x00020002
        assert h.admin.command(0x09, cdw=(7, 0x0000ffff)).code == INVALID_FIELD
        assert h.admin.command(0x09, cdw=(7, 0xfffe0000 & 0xffff0000)).dw0 == 0
        h.io()
        assert h.admin.command(0x09, cdw=(7, 0)).code == SEQUENCE_ERROR
        assert get(6) == 1
        assert h.admin.command(0x09, cdw=(6, 0)).status == 0
        assert get(6) == 0
        assert h.admin.command(0x09, cdw=(0x0b, 0x108)).status == 0
        assert get(0x0b) == 0x108
        assert h.admin.command(0x09, cdw=(0x0b, 0x200)).code == INVALID_FIELD
        assert get(0x0b) == 0x108
        done = h.admin.command(0x0a, length=16, cdw=(0x81, 1))
        assert (done.status, done.data) == (0, client.HOSTID)
        assert h.admin.command(0x0a, length=8, cdw=(0x81, 0)).code == INVALID_FIELD
        assert h.admin.command(0x09, data=bytes(16), cdw=(0x81, 1)).code == SEQUENCE_ERROR
        assert h.admin.command(0x0a, cdw=(3,)).code == INVALID_FIELD
        assert h.admin.command(0x0a, cdw=(6 | 1 << 8,)).code == INVALID_FIELD
        assert h.admin.command(0x09, cdw=(6 | 1 << 31, 1)).code == 0x10d


@pytest.mark.parametrize(("fid", "default", "good", "bad"), [
    (0x01, 0, 0x04030207, 0x08), (0x02, 0, 0x20, 0x01), (0x05, 0, 0x1234, 0x10000),
    (0x0a, 0, 1, 2), (0x04, 0xffff, 350, 1 << 16 | 350)])
def test_features_that_are_required(ssd: Ssd, fid: int, default: int, good: int,
                                    bad: int) -> None:
    """Base 1.4, figure 274. Each controller has its own values."""
    with host(ssd) as h:
        assert h.admin.command(0x0a, cdw=(fid,)).dw0 == default
        assert h.admin.command(0x09, cdw=(fid, bad)).code == INVALID_FIELD
        assert h.admin.command(0x0a, cdw=(fid,)).dw0 == default
        assert h.admin.command(0x09, cdw=(fid, good)).status == 0
        # The only power state is 0, and a hint is not kept.
        assert h.admin.command(0x0a, cdw=(fid,)).dw0 == (0 if fid == 2 else good)
    with host(ssd) as h:
        assert h.admin.command(0x0a, cdw=(fid,)).dw0 == default


def test_a_reset_restores_features(ssd: Ssd) -> None:
    with host(ssd) as h:
        assert h.admin.command(0x09, cdw=(5, 7)).status == 0
        h.admin.set_property(0x14, 0x460000)
        h.admin.set_property(0x14, 0x460001)
        assert h.admin.command(0x0a, cdw=(5,)).dw0 == 0


def test_temperature_thresholds(ssd: Ssd) -> None:
    """Over and under temperature of the composite sensor, and of all sensors when set."""
    with host(ssd) as h:
        def get(dword: int) -> tuple[int, int]:
            done = h.admin.command(0x0a, cdw=(4, dword))
            return done.code, done.dw0

        assert h.admin.command(0x09, cdw=(4, 1 << 20 | 280)).status == 0
        assert h.admin.command(0x09, cdw=(4, 0xf << 16 | 360)).status == 0
        assert (get(0), get(1 << 20)) == ((0, 360), (0, 280))
        for dword in (2 << 20, 0xf << 16, 1 << 16):
            assert get(dword)[0] == INVALID_FIELD


def test_unknown_commands(ssd: Ssd) -> None:
    with host(ssd) as h:
        q = h.io()
        for opcode in (0x00, 0x01, 0x04, 0x05, 0x0d, 0x10, 0x14, 0x80, 0xc0, 0xff):
            assert h.admin.command(opcode).code == 1
        for opcode in (0x03, 0x04, 0x0c, 0x0d, 0x19, 0x7e, 0x80, 0xc3, 0xc4, 0xff):
            assert q.command(opcode, nsid=1).code == 1


# ---- asynchronous events ----


def _expect_nothing(q: Queue, cid: int) -> None:
    q.socket.settimeout(0.3)
    with pytest.raises(TimeoutError):
        q.completion(cid)
    q.socket.settimeout(10)


def test_events_when_the_medium_takes_no_more(program: Path) -> None:
    with Ssd(program, "--namespaces", "2", env={"RAM_SSD_WRITES": "1"}) as ssd:
        with host(ssd) as h, host(ssd) as other:
            q = h.io()
            first = h.admin.start(0x0c)
            second = h.admin.start(0x0c)
            third = h.admin.start(0x0c)
            assert q.write(0, bytes(4096)).status == 0
            assert h.admin.get_log(CHANGED, 4096).data == bytes(4096)
            assert q.write(0, bytes(4096)).code == 0x20
            assert h.admin.completion(first).dw0 == SMART << 16 | 1
            assert h.admin.completion(second).dw0 == CHANGED << 16 | 2
            assert q.write(0, bytes(4096)).code == 0x20
            _expect_nothing(h.admin, third)
            assert h.admin.get_log(SMART, 512).data[0] == 8
            assert h.admin.identify(0, nsid=2).data[99] == 1
            listed = struct.unpack("<1024I", h.admin.get_log(CHANGED, 4096, rae=True).data)
            assert listed == (1, 2, *[0] * 1022)
            h.admin.get_log(CHANGED, 4096)
            assert h.admin.get_log(CHANGED, 4096).data == bytes(4096)
            # a request that comes late also receives the event
            assert other.admin.command(0x0c).dw0 == SMART << 16 | 1
            assert other.admin.command(0x0c).dw0 == CHANGED << 16 | 2


def test_events_that_are_not_wanted(program: Path) -> None:
    with Ssd(program, env={"RAM_SSD_WRITES": "0"}) as ssd, host(ssd) as h:
        assert h.admin.command(0x09, cdw=(0x0b, 0xf7)).status == 0
        waiting = h.admin.start(0x0c)
        assert h.io().write(0, bytes(4096)).code == 0x20
        _expect_nothing(h.admin, waiting)


def test_event_when_the_device_is_gone(program: Path) -> None:
    ssd = Ssd(program, env={"RAM_SSD_POWER": "1"})
    with host(ssd) as h:
        waiting = h.admin.start(0x0c)
        q = h.io()
        assert q.read(0).status == 0
        assert q.read(0).code == 0x06
        assert h.admin.completion(waiting).dw0 == ERROR << 16 | 3 << 8
        assert h.admin.get_property(0x1c).dw0 == 3
    status, errors = ssd.end()
    assert (status, errors) == (1, "vcache-ssd: the final flush failed\n")


def test_too_many_event_requests(ssd: Ssd) -> None:
    with host(ssd) as h:
        parked = [h.admin.start(0x0c) for _ in range(4)]
        assert h.admin.command(0x0c).code == 0x105
        # the aborted commands free their queue entries
        for _ in range(100):
            assert h.admin.identify(1).status == 0
        done = h.admin.command(0x08, cdw=(parked[2] << 16,))
        assert (done.status, done.dw0) == (0, 0)
        assert h.admin.completion(parked[2]).code == ABORTED
        assert h.admin.command(0x08, cdw=(parked[2] << 16,)).dw0 == 1


# ---- Abort ----


def test_abort(program: Path) -> None:
    with Ssd(program, env={"RAM_SSD_FLUSH_US": "5000000"}) as ssd, host(ssd) as h:
        q = h.io()
        flush = q.start(0x00, nsid=1)
        time.sleep(0.1)
        done = h.admin.command(0x08, cdw=(flush << 16 | 1,))
        assert (done.status, done.dw0) == (0, 0)
        assert q.completion(flush).status == ABORTED
        assert h.admin.command(0x08, cdw=(flush << 16 | 1,)).dw0 == 1
        assert h.admin.command(0x08, cdw=(flush << 16 | 2,)).code == INVALID_FIELD
        assert h.admin.command(0x08, cdw=(flush << 16 | 0xffff,)).code == INVALID_FIELD


def test_abort_of_a_command_that_waits_for_memory(ssd: Ssd) -> None:
    with host(ssd) as h:
        q = h.io()
        cids = [q.start(1, nsid=1, length=1 << 20, cdw=(0, 0, 255)) for _ in range(6)]
        time.sleep(0.1)
        # data of the first command has been requested, and must be received
        assert h.admin.command(0x08, cdw=(cids[0] << 16 | 1,)).dw0 == 1
        assert h.admin.command(0x08, cdw=(cids[4] << 16 | 1,)).dw0 == 0
        while True:
            answer = q.receive_pdu()
            if answer.type == client.RESPONSE:
                break
        assert struct.unpack("<HH", answer.header[20:24]) == (cids[4], ABORTED << 1)
