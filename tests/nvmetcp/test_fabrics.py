# SPDX-License-Identifier: Apache-2.0
"""Connect, properties, keep alive and the discovery service."""

import struct
import time
from pathlib import Path
from typing import Any

import pytest

from tests.nvmetcp import client
from tests.nvmetcp.client import DISCOVERY_NQN, Queue, connect_data, connect_sqe, sqe
from tests.nvmetcp.ssd import NQN, Ssd, host

CAP, VS, CC, CSTS = 0x00, 0x08, 0x14, 0x1c
INCOMPATIBLE, BUSY, PARAMETERS, WRONG_HOST = 0x180, 0x181, 0x182, 0x184
SEQUENCE_ERROR, INVALID_FIELD, INVALID_OPCODE = 0x0c, 0x02, 0x01
DATA = 1 << 16


def _connect(ssd: Ssd, subnqn: str = NQN, **fields: Any) -> client.Completion:
    with Queue(ssd.address) as q:
        return q.initialise().connect(subnqn, **fields)


def test_controllers_have_ids_of_their_own(ssd: Ssd) -> None:
    with host(ssd) as one, host(ssd) as two:
        assert one.cntlid != two.cntlid
        for h in (one, two):
            assert struct.unpack("<H", h.admin.identify(1).data[78:80])[0] == h.cntlid


@pytest.mark.parametrize(("fields", "code", "where"), [
    ({"subnqn": "nqn.2026-01.org.example:another"}, PARAMETERS, DATA | 256),
    ({"subnqn": ""}, PARAMETERS, DATA | 256),
    ({"subnqn": NQN[:-1]}, PARAMETERS, DATA | 256),
    ({"subnqn": "n" * 256}, PARAMETERS, DATA | 256),
    ({"hostnqn": ""}, PARAMETERS, DATA | 512),
    ({"hostnqn": "n" * 256}, PARAMETERS, DATA | 512),
    ({"cntlid": 1}, PARAMETERS, DATA | 16),
    ({"recfmt": 1}, INCOMPATIBLE, 0),
    ({"sqsize": 0}, PARAMETERS, 44),
    ({"sqsize": 128}, PARAMETERS, 44),
    ({"sqsize": 65535}, PARAMETERS, 44),
    ({"qid": 17}, PARAMETERS, 42),
    ({"qid": 65535}, PARAMETERS, 42),
    ({"qid": 1}, PARAMETERS, DATA | 16),
], ids=str)
def test_connect_that_is_refused(ssd: Ssd, fields: dict[str, Any], code: int,
                                 where: int) -> None:
    done = _connect(ssd, **fields)
    assert (done.code, done.dw0) == (code, where)
    assert done.status & client.DNR
    assert _connect(ssd).status == 0


def test_io_queue_that_is_refused(ssd: Ssd) -> None:
    with host(ssd) as h:
        wrong = _connect(ssd, cntlid=h.cntlid, qid=1, hostid=bytes(16))
        assert wrong.code == WRONG_HOST
        wrong = _connect(ssd, cntlid=h.cntlid, qid=1, hostnqn=client.HOSTNQN + "6")
        assert wrong.code == WRONG_HOST
        h.io(1)
        assert _connect(ssd, cntlid=h.cntlid, qid=1).code == SEQUENCE_ERROR
        assert _connect(ssd, cntlid=h.cntlid + 1, qid=2).code == PARAMETERS
        h.io(16)


def test_io_queue_beyond_those_granted(ssd: Ssd) -> None:
    with host(ssd) as h:
        assert h.admin.command(0x09, cdw=(7, 0x00030001)).dw0 == 0x00010001
        assert _connect(ssd, cntlid=h.cntlid, qid=3).dw0 == 42
        h.io(2)


def test_io_queue_of_a_controller_that_is_not_enabled(ssd: Ssd) -> None:
    with Queue(ssd.address) as admin:
        cntlid = admin.initialise().connect(NQN).dw0
        assert _connect(ssd, cntlid=cntlid, qid=1).code == SEQUENCE_ERROR


def test_connect_twice(ssd: Ssd) -> None:
    with host(ssd) as h:
        assert h.admin.connect(NQN, cid=99).code == SEQUENCE_ERROR


def test_connect_with_an_r2t(ssd: Ssd) -> None:
    """Hosts do not do this, but it is allowed."""
    with Queue(ssd.address) as q:
        q.initialise()
        entry = bytearray(connect_sqe())
        entry[39] = client.TRANSPORT_SGL
        q.send_command(bytes(entry))
        assert q.completion(0, connect_data(NQN)).status == 0


def test_commands_before_connect(ssd: Ssd) -> None:
    with Queue(ssd.address) as q:
        q.initialise()
        assert q.identify(1).code == SEQUENCE_ERROR
        assert q.get_property(CSTS).code == SEQUENCE_ERROR
        assert q.connect(NQN).status == 0


def test_commands_before_enable(ssd: Ssd) -> None:
    with Queue(ssd.address) as q:
        q.initialise().connect(NQN)
        assert q.get_property(CSTS).dw0 == 0
        assert q.identify(1).code == SEQUENCE_ERROR
        q.enable()
        assert q.identify(1).status == 0


def test_too_many_controllers(ssd: Ssd) -> None:
    queues = [Queue(ssd.address).initialise() for _ in range(33)]
    try:
        codes = [q.connect(NQN).code for q in queues]
        assert codes == [0] * 32 + [BUSY]
    finally:
        for q in queues:
            q.close()


def test_properties(ssd: Ssd) -> None:
    with host(ssd) as h:
        cap = h.admin.get_property(CAP, size=1).dword01
        assert cap & 0xffff == 127
        assert cap >> 16 & 1 == 1
        assert cap >> 37 & 0xff == 1
        assert h.admin.get_property(VS).dw0 == 0x10400
        assert h.admin.get_property(CC).dw0 == 0x460001
        assert h.admin.get_property(CSTS).dw0 == 1
        assert h.admin.get_property(CAP).code == INVALID_FIELD
        assert h.admin.get_property(CSTS, size=1).code == INVALID_FIELD
        assert h.admin.get_property(0x40, size=1).code == INVALID_FIELD
        assert h.admin.set_property(CSTS, 0).code == INVALID_FIELD
        assert h.admin.set_property(CC, 0, size=1).code == INVALID_FIELD
        io = h.io()
        assert io.get_property(CSTS).code == SEQUENCE_ERROR


@pytest.mark.parametrize("cc", [0x460001 | 1 << 4, 0x460001 | 1 << 7, 0x460001 | 1 << 11,
                                0x450001, 0x360001, 0x000001])
def test_configuration_that_cannot_be(ssd: Ssd, cc: int) -> None:
    with Queue(ssd.address) as q:
        q.initialise().connect(NQN)
        assert q.set_property(CC, cc).status == 0
        assert q.get_property(CSTS).dw0 == 2
        assert q.identify(1).code == SEQUENCE_ERROR
        assert q.set_property(CC, 0).status == 0
        q.enable()


def test_reset(ssd: Ssd) -> None:
    with host(ssd) as h:
        io = h.io()
        h.admin.command(0x09, cdw=(7, 0))
        aer = h.admin.start(0x0c)
        assert h.admin.set_property(CC, 0x460000).status == 0
        assert h.admin.completion(aer).code == 0x07
        io.expect_end()
        assert h.admin.get_property(CSTS).dw0 == 0
        h.admin.enable()
        assert h.io().read(0).status == 0


@pytest.mark.parametrize("shn", [1, 2])
def test_shutdown(ssd: Ssd, shn: int) -> None:
    with host(ssd) as h:
        assert h.admin.set_property(CC, 0x460001 | shn << 14).status == 0
        assert h.admin.get_property(CSTS).dw0 & 0xc == 8


def test_shutdown_takes_its_time(program: Path) -> None:
    with Ssd(program, env={"RAM_SSD_FLUSH_US": "500000"}) as ssd, host(ssd) as h:
        assert h.admin.set_property(CC, 0x464001).status == 0
        assert h.admin.get_property(CSTS).dw0 & 0xc == 4
        time.sleep(0.6)
        assert h.admin.get_property(CSTS).dw0 & 0xc == 8


def _identify_until_the_end(q: Queue) -> None:
    try:
        for _ in range(60):
            q.identify(1)
            time.sleep(0.05)
    except (client.Closed, OSError):
        return


def test_keep_alive(ssd: Ssd) -> None:
    """Other commands do not count, and all connections of the controller are closed."""
    with host(ssd, kato=1000) as h:
        io = h.io()
        for _ in range(4):
            time.sleep(0.4)
            assert h.admin.command(0x18).status == 0
        start = time.monotonic()
        _identify_until_the_end(h.admin)
        assert 0.8 < time.monotonic() - start < 3
        io.expect_end()


def test_keep_alive_timeout_is_set_later(ssd: Ssd) -> None:
    with host(ssd) as h:
        assert h.admin.command(0x09, cdw=(0x0f, 250)).status == 0
        assert h.admin.command(0x0a, cdw=(0x0f,)).dw0 == 300
        h.admin.expect_end()


def test_unknown_fabrics_commands(ssd: Ssd) -> None:
    with host(ssd) as h:
        for fctype in (0x02, 0x05, 0x06, 0x08, 0xff):
            assert h.admin.command(0x7f, nsid=fctype).code == INVALID_OPCODE


def test_discovery(ssd: Ssd) -> None:
    with Queue(ssd.address) as q:
        assert q.initialise().connect(DISCOVERY_NQN).status == 0
        q.enable()
        identify = q.identify(1).data
        assert identify[111] == 2
        assert identify[768:1024].rstrip(b"\0").decode() == DISCOVERY_NQN
        log = q.get_log(0x70, 2048).data
        genctr, numrec, recfmt = struct.unpack("<QQH", log[:18])
        assert (genctr, numrec, recfmt) == (1, 1, 0)
        entry = q.get_log(0x70, 1024, offset=1024).data
        assert entry == log[1024:]
        assert struct.unpack("<BBBBHHH", entry[:10]) == (3, 1, 2, 4, 1, 0xffff, 32)
        assert entry[32:64] == str(ssd.address[1]).encode().ljust(32)
        assert entry[256:512].rstrip(b"\0").decode() == NQN
        assert entry[512:768] == b"127.0.0.1".ljust(256)
        assert q.command(0x18).status == 0
        # the discovery controller has no other features of the subsystem
        assert q.identify(2).code == INVALID_FIELD
        assert q.get_log(0x02, 512).code == 0x109
        assert q.get_log(0xc0, 512).code == 0x109
        assert q.command(0x0a, cdw=(7,)).code == INVALID_FIELD
        assert q.command(0x08, cdw=(0,)).code == INVALID_OPCODE
        assert _connect(ssd, cntlid=1, qid=1).code == PARAMETERS


def test_discovery_over_ipv6(program: Path) -> None:
    with Ssd(program, listen="[::1]:0") as ssd, Queue(ssd.address) as q:
        q.initialise().connect(DISCOVERY_NQN)
        q.enable()
        entry = q.get_log(0x70, 1024, offset=1024).data
        assert entry[1] == 2
        assert entry[512:768].rstrip() == b"::1"


@pytest.mark.parametrize(("changes", "code"), [
    ({"flags": 0x00}, 0x02), ({"flags": 0x80}, 0x02), ({"flags": 0xc0}, 0x02),
    ({"flags": 0x41}, 0x02), ({"sgl": 0x00}, 0x11), ({"sgl": 0x5b}, 0x11), ({"sgl": 0x40}, 0x11),
    ({"sgl": 0x01}, 0x11), ({"length": 4092}, 0x0f), ({"length": 0}, 0x0f),
    ({"length": 0xffffffff}, 0x0f)], ids=str)
def test_descriptors_that_are_wrong(ssd: Ssd, changes: dict[str, int], code: int) -> None:
    with host(ssd) as h:
        fields: dict[str, Any] = {"length": 4096, **changes}
        for opcode, nsid, q in ((0x06, 0, h.admin), (0x01, 1, h.io(1)), (0x02, 1, h.io(2))):
            done = q.command(opcode, nsid=nsid, cdw=(1 if opcode == 6 else 0,), **fields)
            assert done.code == code
            assert done.status & client.DNR


def test_data_in_a_capsule_that_is_wrong(ssd: Ssd) -> None:
    with host(ssd) as h:
        q = h.io()

        def send(entry: bytes, data: bytes) -> int:
            q.send_command(entry, data)
            return q.completion(1).code

        assert send(sqe(1, 1, nsid=1, length=4096, sgl=1, address=4), bytes(4096)) == 0x16
        assert send(sqe(1, 1, nsid=1, length=4096, sgl=1), bytes(4092)) == 0x0f
        assert send(sqe(1, 1, nsid=1, length=4096), bytes(4096)) == 0x11
        assert send(sqe(2, 1, nsid=1, length=4096, sgl=1), bytes(4096)) == 0x11
        assert send(sqe(0, 1, nsid=1), bytes(4096)) in (0x0f, 0x11)
        assert send(sqe(1, 1, nsid=1, length=4096, sgl=1), bytes(4096)) == 0
