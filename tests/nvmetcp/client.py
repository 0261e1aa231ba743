# SPDX-License-Identifier: Apache-2.0
"""A small NVMe/TCP host that sends any PDU, including invalid ones."""

import socket
import struct
from dataclasses import dataclass, field

DISCOVERY_NQN = "nqn.2014-08.org.nvmexpress.discovery"
HOSTNQN = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555"
HOSTID = bytes(range(16))

ICREQ, ICRESP, H2CTERM, C2HTERM, CAPSULE, RESPONSE, H2CDATA, C2HDATA, R2T = (
    0, 1, 2, 3, 4, 5, 6, 7, 9)
HDGSTF, DDGSTF, LAST, SUCCESS = 1, 2, 4, 8

DNR = 0x4000
OFFSET_SGL, TRANSPORT_SGL = 0x01, 0x5a


def _crc_table() -> list[int]:
    table = []
    for number in range(256):
        for _ in range(8):
            number = number >> 1 ^ (0x82f63b78 if number & 1 else 0)
        table.append(number)
    return table


_TABLE = _crc_table()


def crc32c(data: bytes) -> int:
    """Return the digest of bytes, one at a time: independent of the tested code."""
    crc = 0xffffffff
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xff]
    return crc ^ 0xffffffff


class Closed(Exception):
    """The controller closed the connection."""


class Terminated(Exception):
    """The controller sent a C2HTermReq."""

    def __init__(self, fes: int, fei: int, header: bytes) -> None:
        super().__init__(f"C2HTermReq: FES {fes}, FEI {fei}")
        self.fes, self.fei, self.header = fes, fei, header


@dataclass
class Pdu:
    """A received PDU."""

    type: int
    flags: int
    hlen: int
    pdo: int
    header: bytes
    data: bytes


@dataclass
class Completion:
    """A completion, and the data received before it."""

    cid: int
    status: int
    dw0: int = 0
    dw1: int = 0
    sqhd: int = 0xffff
    sqid: int = 0
    data: bytes = b""

    @property
    def code(self) -> int:
        """Status code and type, without More and DNR."""
        return self.status & 0x7ff

    @property
    def dword01(self) -> int:
        """The value of a property."""
        return self.dw1 << 32 | self.dw0


def sqe(opcode: int, cid: int = 0, *, nsid: int = 0, cdw2: int = 0, length: int = 0,
        sgl: int = TRANSPORT_SGL, address: int = 0, cdw: tuple[int, ...] = (),
        flags: int = 0x40) -> bytes:
    """Return a submission queue entry; `cdw` are dwords 10 and following."""
    dwords = [*cdw, 0, 0, 0, 0, 0, 0][:6]
    return struct.pack("<BBHIII QQI3xB 6I", opcode, flags, cid, nsid, cdw2, 0, 0, address,
                       length, sgl, *dwords)


def connect_sqe(cid: int = 0, qid: int = 0, sqsize: int = 31, kato: int = 0, recfmt: int = 0,
                cattr: int = 0) -> bytes:
    """Return a Connect command with its data in the capsule."""
    return struct.pack("<BBHB19x QI3xB HHHBxI12x", 0x7f, 0x40, cid, 1, 0, 1024, OFFSET_SGL,
                       recfmt, qid, sqsize, cattr, kato)


def connect_data(subnqn: str, cntlid: int = 0xffff, hostnqn: str = HOSTNQN,
                 hostid: bytes = HOSTID) -> bytes:
    """Return the data of a Connect command."""
    return struct.pack("<16sH238x256s256s256x", hostid, cntlid, subnqn.encode(),
                       hostnqn.encode())


def property_sqe(fctype: int, offset: int, value: int = 0, size: int = 0, cid: int = 0) -> bytes:
    """Return a Property Get (4) or Property Set (0)."""
    return struct.pack("<BBHB35xB3xIQ8x", 0x7f, 0x40, cid, fctype, size, offset, value)


@dataclass
class Queue:
    """One connection.

    :param address: address of the controller
    :param hdgst: use header digests
    :param ddgst: use data digests
    :param hpda: alignment of data requested by the host, 0's based dwords
    """

    address: tuple[str, int]
    hdgst: bool = False
    ddgst: bool = False
    hpda: int = 0
    timeout: float = 10
    cid: int = 0x7000
    early: dict[int, Completion] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.socket = socket.create_connection(self.address, timeout=self.timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.maxh2cdata = 0

    def __enter__(self) -> "Queue":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    # ---- bytes and PDUs ----

    def send(self, data: bytes | bytearray) -> None:
        self.socket.sendall(data)

    def receive(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            try:
                more = self.socket.recv(count - len(data))
            except ConnectionResetError:
                more = b""
            if not more:
                raise Closed
            data += more
        return data

    def pdu(self, kind: int, header: bytes, data: bytes = b"", flags: int = 0, *,
            bad_hdgst: bool = False, bad_ddgst: bool = False, pad: int = 0) -> bytes:
        """Return a PDU with the digests of this connection."""
        hlen = 8 + len(header)
        pdo = 0
        length = hlen + 4 * self.hdgst
        if data:
            pdo = length + pad
            length = pdo + len(data) + 4 * self.ddgst
        flags |= HDGSTF * self.hdgst | DDGSTF * (self.ddgst and bool(data))
        out = struct.pack("<BBBBI", kind, flags, hlen, pdo, length) + header
        if self.hdgst:
            out += struct.pack("<I", crc32c(out) ^ bad_hdgst)
        if data:
            out += bytes(pad) + data
            if self.ddgst:
                out += struct.pack("<I", crc32c(data) ^ bad_ddgst)
        return out

    def receive_pdu(self) -> Pdu:
        """Receive a PDU, and check the fields common to all PDUs."""
        start = self.receive(8)
        kind, flags, hlen, pdo, plen = struct.unpack("<BBBBI", start)
        header = start + self.receive(hlen - 8)
        if kind == C2HTERM:
            fes, fei = struct.unpack("<HI", header[8:14])
            raise Terminated(fes, fei, self.receive(plen - hlen))
        hdgst = self.hdgst and kind != ICRESP
        assert bool(flags & HDGSTF) == hdgst
        if hdgst:
            assert struct.unpack("<I", self.receive(4))[0] == crc32c(header)
        have = hlen + 4 * hdgst
        if plen == have:
            return Pdu(kind, flags, hlen, pdo, header, b"")
        assert pdo % (4 * (self.hpda + 1)) == 0
        assert self.receive(pdo - have) == bytes(pdo - have)
        assert bool(flags & DDGSTF) == self.ddgst
        data = self.receive(plen - pdo - 4 * self.ddgst)
        if self.ddgst:
            assert struct.unpack("<I", self.receive(4))[0] == crc32c(data)
        return Pdu(kind, flags, hlen, pdo, header, data)

    def expect_end(self) -> None:
        """Check that the connection is closed."""
        try:
            self.receive(1)
        except Closed:
            return
        raise AssertionError("bytes instead of the end")

    def expect_end_after_pdus(self) -> None:
        """Receive any PDUs until the connection is closed."""
        try:
            while True:
                self.receive_pdu()
        except Closed:
            return

    def expect_termination(self) -> Terminated:
        """Receive a C2HTermReq and the end of the connection."""
        try:
            while True:
                self.receive_pdu()
        except Terminated as reason:
            self.expect_end()
            return reason

    # ---- connection set-up ----

    def icreq(self, *, pfv: int = 0, maxr2t: int = 0) -> bytes:
        dgst = self.hdgst | self.ddgst << 1
        return struct.pack("<BBBBIHBBI112x", ICREQ, 0, 128, 0, 128, pfv, self.hpda, dgst, maxr2t)

    def initialise(self) -> "Queue":
        """Exchange ICReq and ICResp."""
        self.send(self.icreq())
        answer = self.receive_pdu()
        assert (answer.type, answer.hlen, len(answer.header)) == (ICRESP, 128, 128)
        pfv, cpda, dgst, self.maxh2cdata = struct.unpack("<HBBI", answer.header[8:16])
        assert (pfv, cpda, dgst) == (0, 0, self.hdgst | self.ddgst << 1)
        assert self.maxh2cdata >= 4096
        assert self.maxh2cdata % 4 == 0
        return self

    def connect(self, subnqn: str, *, cntlid: int = 0xffff, hostnqn: str = HOSTNQN,
                hostid: bytes = HOSTID, **fields: int) -> Completion:
        """Send Connect; return its completion."""
        data = connect_data(subnqn, cntlid, hostnqn, hostid)
        self.send_command(connect_sqe(**fields), data)
        return self.completion(fields.get("cid", 0))

    # ---- commands ----

    def next_cid(self) -> int:
        self.cid = (self.cid + 0x111) & 0xffff
        return self.cid

    def send_command(self, entry: bytes, data: bytes = b"") -> None:
        self.send(self.pdu(CAPSULE, entry, data))

    def start(self, opcode: int, *, data: bytes = b"", in_capsule: bool = True,
              **fields: object) -> int:
        """Send a command; return its CID."""
        cid = self.next_cid()
        capsule = data if in_capsule else b""
        if data:
            fields.setdefault("length", len(data))
            fields.setdefault("sgl", OFFSET_SGL if in_capsule else TRANSPORT_SGL)
        self.send_command(sqe(opcode, cid, **fields), capsule)  # type: ignore[arg-type]
        return cid

    def completion(self, cid: int, data: bytes = b"", step: int = 0) -> Completion:
        """Receive until a command completes; send `data` when it is requested.

        :param step: maximum size of an H2CData PDU in bytes (0: limit of the controller)
        """
        got: dict[int, bytes] = {}
        while cid not in self.early:
            answer = self.receive_pdu()
            if answer.type == R2T:
                owner, ttag, offset, length = struct.unpack("<HHII", answer.header[8:20])
                assert owner == cid
                assert (offset, length) == (0, len(data))
                self.send_data(cid, ttag, data, step)
            elif answer.type == C2HDATA:
                owner, offset, length = struct.unpack("<H2xII", answer.header[8:20])
                assert (offset, length) == (len(got.get(owner, b"")), len(answer.data))
                got[owner] = got.get(owner, b"") + answer.data
                if answer.flags & SUCCESS:
                    assert answer.flags & LAST
                    self.early[owner] = Completion(owner, 0, data=got[owner])
            else:
                assert answer.type == RESPONSE
                dw0, dw1, sqhd, sqid, owner, status = struct.unpack(
                    "<IIHHHH", answer.header[8:24])
                assert not status & 1
                self.early[owner] = Completion(owner, status >> 1, dw0, dw1, sqhd, sqid,
                                               got.get(owner, b""))
        return self.early.pop(cid)

    def send_data(self, cid: int, ttag: int, data: bytes, step: int = 0) -> None:
        """Send the data of an R2T, in one or more H2CData PDUs."""
        step = step or self.maxh2cdata
        for offset in range(0, len(data), step):
            part = data[offset:offset + step]
            last = LAST if offset + step >= len(data) else 0
            self.send(self.pdu(H2CDATA, struct.pack("<HHII4x", cid, ttag, offset, len(part)),
                               part, last))

    def command(self, opcode: int, *, data: bytes = b"", in_capsule: bool = True,
                step: int = 0, **fields: object) -> Completion:
        """Run a command to its completion."""
        cid = self.start(opcode, data=data, in_capsule=in_capsule, **fields)
        return self.completion(cid, data, step)

    # ---- admin ----

    def get_property(self, offset: int, size: int = 0) -> Completion:
        cid = self.next_cid()
        self.send_command(property_sqe(4, offset, size=size, cid=cid))
        return self.completion(cid)

    def set_property(self, offset: int, value: int, size: int = 0) -> Completion:
        cid = self.next_cid()
        self.send_command(property_sqe(0, offset, value, size, cid))
        return self.completion(cid)

    def enable(self) -> None:
        """Set CC.EN, as Linux does."""
        assert self.set_property(0x14, 0x460000).status == 0
        assert self.set_property(0x14, 0x460001).status == 0
        assert self.get_property(0x1c).dw0 == 1

    def identify(self, cns: int, nsid: int = 0, csi: int = 0) -> Completion:
        return self.command(0x06, nsid=nsid, length=4096, cdw=(cns, csi << 24))

    def get_log(self, lid: int, length: int, offset: int = 0, rae: bool = False) -> Completion:
        numd = length // 4 - 1
        return self.command(
            0x02, length=length,
            cdw=(lid | rae << 15 | (numd & 0xffff) << 16, numd >> 16, offset & 0xffffffff,
                 offset >> 32))

    # ---- I/O; blocks are logical blocks ----

    def write(self, block: int, data: bytes, *, nsid: int = 1, fua: bool = False,
              opcode: int = 0x01, tag: int = 0, size: int = 4096, in_capsule: bool = False,
              step: int = 0) -> Completion:
        return self.command(opcode, data=data, in_capsule=in_capsule, step=step, nsid=nsid,
                            cdw2=tag, cdw=_lba(block, len(data) // size, fua))

    def read(self, block: int, count: int = 1, *, nsid: int = 1, opcode: int = 0x02,
             tag: int = 0, size: int = 4096, fua: bool = False) -> Completion:
        return self.command(opcode, length=count * size, nsid=nsid, cdw2=tag,
                            cdw=_lba(block, count, fua))

    def flush(self, nsid: int = 1, *, opcode: int = 0x00, tag: int = 0) -> Completion:
        return self.command(opcode, nsid=nsid, cdw2=tag)


def _lba(block: int, count: int, fua: bool) -> tuple[int, int, int]:
    return (block & 0xffffffff, block >> 32, (count - 1 & 0xffff) | fua << 30)
