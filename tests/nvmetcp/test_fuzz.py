# SPDX-License-Identifier: Apache-2.0
"""A short run of the fuzzer for bytes from hosts."""

import os
import struct
import subprocess
from pathlib import Path

from tests.box.limits import limit
from tests.nvmetcp import build
from tests.nvmetcp.client import CAPSULE, H2CDATA, LAST, OFFSET_SGL, property_sqe, sqe

SECONDS = 15
RAW, PDU, CONNECT, SEND, TIME, CLOSE = range(6)
#: Left out of the tested program: it has its own main() and sockets.
WITHOUT = ("main", "options", "peer", "server")


def _step(kind: int, conn: int = 0, data: bytes = b"", n: int | None = None) -> bytes:
    return struct.pack("<BBH", kind, conn, len(data) if n is None else n) + data


def _command(conn: int, entry: bytes, data: bytes = b"") -> bytes:
    return _step(PDU, conn, bytes((CAPSULE, 0)) + entry + data)


def _data(conn: int, cid: int, ttag: int, offset: int, data: bytes) -> bytes:
    header = struct.pack("<HHII4x", cid, ttag, offset, len(data))
    return _step(PDU, conn, bytes((H2CDATA, LAST)) + header + data)


_UP = _step(CONNECT, 0) + _step(CONNECT, 1)
_TIME = _step(TIME, n=50) + _step(SEND, 0, n=9999) + _step(SEND, 1, n=9999)
_ADMIN = [
    sqe(0x06, 1, length=4096, cdw=(1,)), sqe(0x06, 2, nsid=1, length=4096, cdw=(3,)),
    sqe(0x02, 3, length=512, cdw=(0x007f00c0,)), sqe(0x02, 4, length=128, cdw=(0x001f00c1, 0, 64)),
    sqe(0x02, 11, length=512, cdw=(0x007f00c2,)), sqe(0x02, 12, length=512, cdw=(0x007f00c3,)),
    sqe(0x02, 5, length=64, cdw=(0x000f0001,)), sqe(0x09, 6, cdw=(7, 0x10001)),
    sqe(0x0a, 7, length=16, cdw=(0x81, 1)), sqe(0x0c, 8), sqe(0x08, 9, cdw=(8 << 16,)),
    sqe(0x18, 10), property_sqe(4, 0, size=1), property_sqe(0, 0x14, 0x464001)]
_LOGS = [sqe(0x02, lid, length=1088, cdw=(0x010f0000 | lid,)) for lid in (1, 2, 3, 4, 5, 0xc1)]
_FEATURES = [sqe(0x0a, fid, cdw=(fid,)) for fid in (6, 7, 0x0b, 0x0f)] + [
    sqe(0x09, 6, cdw=(6, 0)), sqe(0x09, 11, cdw=(11, 0x100)), sqe(0x09, 15, cdw=(15, 2000))]
_DISCOVERY = [sqe(0x06, 1, length=4096, cdw=(1,)), sqe(0x02, 2, length=2048, cdw=(0x01ff0070,)),
              sqe(0x0c, 3), property_sqe(4, 0x1c)]
_IO = [
    sqe(0x00, 1, nsid=1), sqe(0x00, 2, nsid=0xffffffff), sqe(0xc0, 3, nsid=1, cdw2=7),
    sqe(0x02, 4, nsid=1, length=8192, cdw=(0, 0, 1)), sqe(0x08, 5, nsid=2, cdw=(0, 0, 1 << 25)),
    sqe(0xc2, 6, nsid=1, cdw2=3, length=4096)]

SEEDS = {
    "admin": _UP + b"".join(_command(0, entry) for entry in _ADMIN) + _TIME,
    "logs": _UP + b"".join(_command(0, entry) for entry in _LOGS) + _TIME,
    "features": _UP + b"".join(_command(0, entry) for entry in _FEATURES) + _TIME,
    "discovery": _step(CONNECT, 0, n=1) + b"".join(_command(0, e) for e in _DISCOVERY) + _TIME,
    "io": _UP + b"".join(_command(1, entry) for entry in _IO) + _TIME,
    "in-capsule": _UP + _command(1, sqe(0xc1, 1, nsid=1, cdw2=9, length=4096, sgl=OFFSET_SGL),
                                 bytes(4096)) + _TIME,
    "r2t": _UP + _command(1, sqe(1, 1, nsid=1, length=4096)) + _data(1, 1, 2, 0, bytes(4096))
    + _data(1, 1, 1, 0, bytes(4096)) + _TIME,
    "dsm": _UP + _command(1, sqe(9, 1, nsid=1, length=32, sgl=OFFSET_SGL, cdw=(1, 4)),
                          struct.pack("<IIQIIQ", 0, 2, 0, 0, 1, 7)) + _TIME,
    "late": _UP + _step(TIME, n=5000) + _TIME,
    "reset": _UP + _command(0, property_sqe(0, 0x14, 0)) + _step(CLOSE, 0) + _TIME,
    "raw": _UP + _step(RAW, 1, bytes(range(200))) + _TIME,
}


def _seed_corpus(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for digests in (0, 3, 4, 0x83, 0xfb):
        for name, steps in SEEDS.items():
            (folder / f"{name}-{digests:02x}").write_bytes(bytes((digests,)) + steps)


def test_fuzz_smoke() -> None:
    folder = build.BUILD / "fuzz"
    program = build.compile_files(
        folder / "fuzz_conn", "clang",
        [*build.sources(WITHOUT), build.HERE / "fuzz_conn.c"],
        *build.SANITIZERS, "-fsanitize=fuzzer")
    _seed_corpus(folder / "corpus")
    done = subprocess.run(
        [str(program), f"-max_total_time={SECONDS}", "-max_len=12000", "-seed=1",
         "-print_final_stats=1", f"-artifact_prefix={folder}/", str(folder / "corpus")],
        capture_output=True, text=True, timeout=limit(300), check=False,
        env={**os.environ, "RAM_SSD_READ_US": "3000", "RAM_SSD_FLUSH_US": "40000"})
    assert done.returncode == 0, done.stderr[-4000:]
    executed = next(int(line.split()[-1]) for line in done.stderr.splitlines()
                    if line.startswith("stat::number_of_executed_units"))
    assert executed > 1000
