# SPDX-License-Identifier: Apache-2.0
"""PDUs: digests, R2T, alignment, and every kind of invalid header."""

import random
import socket
import struct
import time
from pathlib import Path

import pytest

from tests.nvmetcp import client
from tests.nvmetcp.client import (
    CAPSULE,
    H2CDATA,
    H2CTERM,
    HDGSTF,
    LAST,
    R2T,
    RESPONSE,
    Queue,
    connect_data,
    connect_sqe,
    sqe,
)
from tests.nvmetcp.ssd import Ssd, host

INVALID_FIELD, SEQUENCE, HEADER_DIGEST, OUT_OF_RANGE, LIMIT, UNSUPPORTED = range(1, 7)
TYPE, FLAGS, HLEN, PDO, PLEN = 0, 1, 2, 3, 4

DIGESTS = [{}, {"hdgst": True}, {"ddgst": True}, {"hdgst": True, "ddgst": True}]


def _bytes(count: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(count)


def test_crc32c_of_the_client() -> None:
    """The value of RFC 3720."""
    assert client.crc32c(b"123456789") == 0xe3069283


@pytest.mark.parametrize("digests", DIGESTS, ids=str)
@pytest.mark.parametrize("in_capsule", [False, True])
def test_data_there_and_back(ssd: Ssd, digests: dict[str, bool], in_capsule: bool) -> None:
    with host(ssd, **digests) as h:
        q = h.io()
        data = _bytes(8192)
        assert q.write(5, data, in_capsule=in_capsule).status == 0
        done = q.read(5, 2)
        assert (done.status, done.data) == (0, data)


@pytest.mark.parametrize("hpda", [1, 7, 31])
def test_alignment_that_the_host_wants(ssd: Ssd, hpda: int) -> None:
    """The client checks that PDO is a multiple of it."""
    with host(ssd, hpda=hpda, hdgst=True, ddgst=True) as h:
        q = h.io()
        data = _bytes(4096)
        assert q.write(0, data).status == 0
        assert q.read(0).data == data


@pytest.mark.parametrize("step", [4, 1000, 4096, 100_000])
def test_r2t_in_many_pdus(ssd: Ssd, step: int) -> None:
    data = _bytes(4096 if step == 4 else 1 << 20)
    with host(ssd, ddgst=step != 4) as h:
        q = h.io()
        assert q.write(0, data, step=step).status == 0
        assert q.read(0, len(data) // 4096).data == data


def test_padding_before_data(ssd: Ssd) -> None:
    with host(ssd, hdgst=True) as h:
        q = h.io()
        data = _bytes(4096)
        entry = sqe(1, 9, nsid=1, length=4096, sgl=client.OFFSET_SGL)
        q.send(q.pdu(CAPSULE, entry, data, pad=128 - 76))
        assert q.completion(9).status == 0
        assert q.read(0).data == data


def test_bytes_one_at_a_time(ssd: Ssd) -> None:
    with Queue(ssd.address, hdgst=True, ddgst=True) as q:
        q.initialise()
        whole = q.pdu(CAPSULE, connect_sqe(), connect_data(ssd.nqn))
        for byte in whole[:200]:
            q.send(bytes([byte]))
            time.sleep(0.0005)
        q.send(whole[200:])
        assert q.completion(0).status == 0


def test_commands_out_of_order_of_their_data(ssd: Ssd) -> None:
    """Two R2Ts are answered alternately, the second first; each CID is echoed completely."""
    with host(ssd) as h:
        q = h.io()
        first, second = _bytes(8192, 1), _bytes(8192, 2)
        tags = {}
        for cid, block in ((0xf001, 0), (0x0001, 2)):
            q.send_command(sqe(1, cid, nsid=1, length=8192, cdw=(block, 0, 1)))
            answer = q.receive_pdu()
            assert answer.type == R2T
            owner, tags[cid], offset, length = struct.unpack("<HHII", answer.header[8:20])
            assert (owner, offset, length) == (cid, 0, 8192)
        assert tags[0xf001] != tags[1]
        half = struct.pack("<HHII4x", 0xf001, tags[0xf001], 0, 4096)
        q.send(q.pdu(H2CDATA, half, first[:4096]))
        q.send_data(1, tags[1], second)
        assert q.completion(1).status == 0
        half = struct.pack("<HHII4x", 0xf001, tags[0xf001], 4096, 4096)
        q.send(q.pdu(H2CDATA, half, first[4096:], LAST))
        assert q.completion(0xf001).status == 0
        assert q.read(0, 4).data == first + second


def test_success_in_the_data_pdu(ssd: Ssd) -> None:
    """Only a host without SQHD flow control gets no response capsule."""
    with host(ssd, cattr=4) as h:
        q = h.io()
        q.send_command(sqe(2, 77, nsid=1, length=4096))
        answer = q.receive_pdu()
        assert answer.type == client.C2HDATA
        assert answer.flags == LAST | client.SUCCESS
        assert q.write(0, bytes(4096)).sqhd == 0xffff


def test_sqhd_counts_commands(ssd: Ssd) -> None:
    with host(ssd) as h:
        q = h.io(sqsize=3)
        assert [q.flush().sqhd for _ in range(6)] == [2, 3, 0, 1, 2, 3]
        assert q.read(0).sqhd == 0


# ---- wrong digests ----


def test_wrong_header_digest(ssd: Ssd) -> None:
    with host(ssd, hdgst=True) as h:
        q = h.io()
        q.send(q.pdu(CAPSULE, sqe(0, 1, nsid=1), bad_hdgst=True))
        end = q.expect_termination()
        assert end.fes == HEADER_DIGEST
        assert end.header[0] == CAPSULE


@pytest.mark.parametrize("in_capsule", [True, False])
def test_wrong_data_digest_fails_the_command_alone(ssd: Ssd, in_capsule: bool) -> None:
    with host(ssd, ddgst=True) as h:
        q = h.io()
        good, bad = _bytes(4096, 1), _bytes(4096, 2)
        assert q.write(0, good).status == 0
        entry = sqe(1, 5, nsid=1, length=4096,
                    sgl=client.OFFSET_SGL if in_capsule else client.TRANSPORT_SGL)
        if in_capsule:
            q.send(q.pdu(CAPSULE, entry, bad, bad_ddgst=True))
        else:
            q.send_command(entry)
            ttag = struct.unpack("<H", q.receive_pdu().header[10:12])[0]
            q.send(q.pdu(H2CDATA, struct.pack("<HHII4x", 5, ttag, 0, 4096), bad, LAST,
                         bad_ddgst=True))
        done = q.completion(5)
        assert done.code == 0x22
        assert not done.status & client.DNR
        assert q.read(0).data == good


# ---- connection set-up ----


def test_icreq_has_to_be_first(ssd: Ssd) -> None:
    with Queue(ssd.address) as q:
        q.send_command(connect_sqe(), connect_data(ssd.nqn))
        end = q.expect_termination()
        assert (end.fes, end.header[0]) == (SEQUENCE, CAPSULE)


def test_icreq_comes_once(ssd: Ssd) -> None:
    with Queue(ssd.address) as q:
        q.initialise()
        q.send(q.icreq())
        assert q.expect_termination().fes == SEQUENCE


def test_unknown_pdu_format_version(ssd: Ssd) -> None:
    with Queue(ssd.address) as q:
        q.send(q.icreq(pfv=1))
        end = q.expect_termination()
        assert (end.fes, end.fei) == (UNSUPPORTED, 8)


def test_alignment_that_is_none(ssd: Ssd) -> None:
    with Queue(ssd.address, hpda=32) as q:
        q.send(q.icreq())
        end = q.expect_termination()
        assert (end.fes, end.fei) == (INVALID_FIELD, 10)


@pytest.mark.parametrize(("offset", "value", "fei"), [
    (HLEN, 127, HLEN), (HLEN, 0, HLEN), (PLEN, 127, PLEN), (PLEN, 129, PLEN), (PLEN, 0, PLEN),
    (PLEN + 3, 0xff, PLEN)])
def test_icreq_with_a_wrong_length(ssd: Ssd, offset: int, value: int, fei: int) -> None:
    with Queue(ssd.address) as q:
        pdu = bytearray(q.icreq())
        pdu[offset] = value
        q.send(pdu)
        end = q.expect_termination()
        assert (end.fes, end.fei) == (INVALID_FIELD, fei)


# ---- headers ----


def _capsule(q: Queue, **changes: int) -> bytes:
    """Return a Write in a capsule, with some changed bytes of its header."""
    entry = sqe(1, 1, nsid=1, length=4096, sgl=client.OFFSET_SGL)
    pdu = bytearray(q.pdu(CAPSULE, entry, bytes(4096)))
    for name, value in changes.items():
        if name == "plen":
            pdu[4:8] = struct.pack("<I", value)
        else:
            pdu[{"type": TYPE, "flags": FLAGS, "hlen": HLEN, "pdo": PDO}[name]] = value
    return bytes(pdu)


@pytest.mark.parametrize(("changes", "fei"), [
    ({"type": 1}, TYPE), ({"type": 3}, TYPE), ({"type": 5}, TYPE), ({"type": 7}, TYPE),
    ({"type": 8}, TYPE), ({"type": 9}, TYPE), ({"type": 255}, TYPE),
    ({"hlen": 71}, HLEN), ({"hlen": 0}, HLEN), ({"hlen": 255}, HLEN),
    ({"flags": HDGSTF}, FLAGS), ({"flags": client.DDGSTF}, FLAGS),
    ({"pdo": 71}, PDO), ({"pdo": 0}, PDO), ({"pdo": 73}, PDO), ({"pdo": 132}, PDO),
    ({"plen": 0}, PLEN), ({"plen": 71}, PLEN), ({"plen": 72 + 8193}, PLEN),
    ({"plen": 0xffffffff}, PLEN), ({"plen": 0x80000000}, PLEN),
    ({"plen": 100, "pdo": 100}, PLEN)], ids=str)
def test_capsule_with_a_wrong_header(ssd: Ssd, changes: dict[str, int], fei: int) -> None:
    with host(ssd) as h:
        q = h.io()
        q.send(_capsule(q, **changes))
        end = q.expect_termination()
        assert (end.fes, end.fei) == (INVALID_FIELD, fei)
        # the invalid header is returned
        assert end.header == _capsule(q, **changes)[:len(end.header)]
        assert h.admin.identify(1).status == 0


@pytest.mark.parametrize("digests", DIGESTS[1:], ids=str)
def test_digest_flag_that_is_missing(ssd: Ssd, digests: dict[str, bool]) -> None:
    with host(ssd, **digests) as h:
        q = h.io()
        q.send(_capsule(q, flags=0))
        end = q.expect_termination()
        assert (end.fes, end.fei) == (INVALID_FIELD, FLAGS)


def _transfer(h: object, length: int = 8192) -> tuple[Queue, int]:
    """Start a Write; return its queue and TTAG. The CID is 3."""
    q = h.io()  # type: ignore[attr-defined]
    q.send_command(sqe(1, 3, nsid=1, length=length, cdw=(0, 0, length // 4096 - 1)))
    answer = q.receive_pdu()
    assert answer.type == R2T
    return q, struct.unpack("<H", answer.header[10:12])[0]


@pytest.mark.parametrize(("cid", "ttag", "offset", "length", "said", "last", "fes", "fei"), [
    (3, 1, 0, 8192, 8192, True, INVALID_FIELD, 10),       # TTAG of a free slot
    (3, 0xffff, 0, 8192, 8192, True, INVALID_FIELD, 10),  # TTAG beyond all slots
    (4, 0, 0, 8192, 8192, True, INVALID_FIELD, 8),        # CID of another command
    (3, 0, 0, 8192, 4096, True, INVALID_FIELD, 16),       # DATAL does not match the data
    (3, 0, 0, 4096, 0xffffffff, False, INVALID_FIELD, 16),
    (3, 0, 4096, 4096, 4096, True, OUT_OF_RANGE, 0),      # out of order
    (3, 0, 0xfffff000, 8192, 8192, True, OUT_OF_RANGE, 0),
    (3, 0, 0, 12288, 12288, True, OUT_OF_RANGE, 0),       # more than was requested
    (3, 0, 0, 8192, 8192, False, INVALID_FIELD, FLAGS),   # the last PDU without LAST
    (3, 0, 0, 4096, 4096, True, INVALID_FIELD, FLAGS),    # LAST in a PDU that is not the last
    (3, 0, 0, (128 << 10) + 4, (128 << 10) + 4, False, LIMIT, 0),
])
def test_data_with_a_wrong_header(ssd: Ssd, cid: int, ttag: int, offset: int, length: int,
                                  said: int, last: bool, fes: int, fei: int) -> None:
    with host(ssd) as h:
        q, given = _transfer(h)
        header = struct.pack("<HHII4x", cid, (given + ttag) & 0xffff if ttag == 1 else
                             ttag or given, offset, said)
        q.send(q.pdu(H2CDATA, header, bytes(length), LAST * last))
        end = q.expect_termination()
        assert (end.fes, end.fei) == (fes, fei)
        assert h.io(2).read(0, 2).data == bytes(8192)


def test_data_twice(ssd: Ssd) -> None:
    with host(ssd) as h:
        q, ttag = _transfer(h)
        header = struct.pack("<HHII4x", 3, ttag, 0, 8192)
        q.send(q.pdu(H2CDATA, header, bytes(8192), LAST) * 2)
        assert q.expect_termination().fei == 10


def test_data_without_data(ssd: Ssd) -> None:
    with host(ssd) as h:
        q, ttag = _transfer(h)
        q.send(q.pdu(H2CDATA, struct.pack("<HHII4x", 3, ttag, 0, 0)))
        assert q.expect_termination().fes == INVALID_FIELD


def test_more_commands_than_entries(ssd: Ssd) -> None:
    """Five Writes that wait for their data, on a queue of four."""
    with host(ssd) as h:
        q = h.io(sqsize=3)
        for cid in range(5):
            q.send_command(sqe(1, cid, nsid=1, length=4096))
        assert q.expect_termination().fes == SEQUENCE


def test_host_gives_up(ssd: Ssd) -> None:
    with host(ssd) as h:
        q = h.io()
        q.send(struct.pack("<BBBBIHI10x", H2CTERM, 0, 24, 0, 24 + 72, 1, 0) + bytes(72))
        q.expect_end()
        q = h.io()
        q.send(struct.pack("<BBBBIHI10x", H2CTERM, 0, 24, 0, 24 + 129, 1, 0))
        assert q.expect_termination().fei == PLEN


@pytest.mark.parametrize("count", [0, 1, 7, 8, 40, 72, 100, 72 + 1024 - 1])
def test_truncated(ssd: Ssd, count: int) -> None:
    with Queue(ssd.address) as q:
        q.initialise()
        q.send(q.pdu(CAPSULE, connect_sqe(), connect_data(ssd.nqn))[:count])
        q.socket.shutdown(socket.SHUT_WR)
        q.expect_end()
    with host(ssd) as h:
        assert h.admin.identify(1).status == 0


def test_connection_that_ends_amid_everything(ssd: Ssd) -> None:
    """R2Ts open, answers unread, admin queue first."""
    for _ in range(3):
        with host(ssd) as h:
            queues = [h.io(n) for n in (1, 2, 3)]
            for q in queues:
                for cid in range(40):
                    q.send_command(sqe(1, cid, nsid=1, length=1 << 20, cdw=(0, 0, 255)))
                    q.send_command(sqe(2, 1000 + cid, nsid=1, length=1 << 20,
                                       cdw=(0, 0, 255)))
            h.admin.close()
            for q in queues:
                q.expect_end_after_pdus()
    with host(ssd) as h:
        assert h.io().read(0).status == 0


# ---- memory and time ----


def _resident(ssd: Ssd) -> int:
    """Return the memory of the process in MiB."""
    status = Path(f"/proc/{ssd.process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) >> 10


def test_memory_of_a_connection_is_bounded(ssd: Ssd) -> None:
    """127 MiB of writes are requested; only four get memory at a time, and all complete."""
    with host(ssd) as h:
        q = h.io()
        before = _resident(ssd)
        for cid in range(127):
            q.send_command(sqe(1, cid, nsid=1, length=1 << 20, cdw=(0, 0, 255)))
        answers = [q.receive_pdu() for _ in range(4)]
        assert {a.type for a in answers} == {R2T}
        q.socket.settimeout(0.3)
        with pytest.raises(TimeoutError):
            q.receive_pdu()
        q.socket.settimeout(10)
        data = _bytes(1 << 20)
        done = 0
        while done < 127:
            answer = answers.pop(0) if answers else q.receive_pdu()
            if answer.type == RESPONSE:
                done += 1
                continue
            cid, ttag = struct.unpack("<HH", answer.header[8:12])
            q.send_data(cid, ttag, data)
        # the device itself has 1 MiB of new data; ASan's quarantine counts too
        assert _resident(ssd) - before < 300
        assert q.read(0, 256).data == data


def test_many_connections(ssd: Ssd) -> None:
    """More connections than allowed: the last ones are refused, the first ones keep working."""
    opened = [Queue(ssd.address) for _ in range(270)]
    try:
        for q in opened[:256]:
            q.initialise()
        for q in opened[256:]:
            q.expect_end()
    finally:
        for q in opened:
            q.close()
    with host(ssd) as h:
        assert h.io().read(0).status == 0


def test_slow_hosts(program: Path) -> None:
    """No data, a part of ICReq, no Connect, a part of a PDU, an unread answer."""
    with Ssd(program, "--peer-timeout", "1", size="64M") as ssd, host(ssd) as h:
        silent, partial, idle = (Queue(ssd.address) for _ in range(3))
        partial.send(partial.icreq()[:100])
        idle.initialise()
        amid = h.io(1)
        amid.send(amid.pdu(CAPSULE, sqe(0, 1, nsid=1))[:50])
        deaf = h.io(2)
        for cid in range(100):
            deaf.send_command(sqe(2, cid, nsid=1, length=1 << 20, cdw=(0, 0, 255)))
        start = time.monotonic()
        for q in (silent, partial, idle, amid):
            q.expect_end()
            q.close()
        assert 0.5 < time.monotonic() - start < 5
        time.sleep(2.5)
        deaf.expect_end_after_pdus()
        # an idle host is not slow
        assert h.admin.identify(1).status == 0
