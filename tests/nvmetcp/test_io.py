# SPDX-License-Identifier: Apache-2.0
"""Reads, writes, flushes and other commands, and their durability over a power cut."""

import random
import struct
import time
from pathlib import Path

import pytest

from tests.nvmetcp import client
from tests.nvmetcp.client import Queue
from tests.nvmetcp.ssd import Ssd, host

LBA_OUT_OF_RANGE, INVALID_FIELD, INVALID_NAMESPACE = 0x80, 0x02, 0x0b
BLOCKS = 2048  # in each of the two namespaces of the fixture
FUA, DEAC = 1 << 30, 1 << 25


def _data(seed: int, blocks: int = 1) -> bytes:
    return random.Random(seed).randbytes(blocks * 4096)


def _dsm(q: Queue, ranges: list[tuple[int, int]], *, nsid: int = 1, attributes: int = 4,
         in_capsule: bool = True, opcode: int = 0x09, tag: int = 0) -> client.Completion:
    data = b"".join(struct.pack("<IIQ", 0, count, first) for first, count in ranges)
    return q.command(opcode, data=data, in_capsule=in_capsule, nsid=nsid, cdw2=tag,
                     cdw=(len(ranges) - 1, attributes))


def test_namespaces_are_apart(ssd: Ssd) -> None:
    with host(ssd) as h:
        q = h.io()
        assert q.write(BLOCKS - 1, _data(1)).status == 0
        assert q.write(0, _data(2), nsid=2).status == 0
        assert q.read(BLOCKS - 1).data == _data(1)
        assert q.read(0, nsid=2).data == _data(2)
        assert q.read(0).data == bytes(4096)


@pytest.mark.parametrize(("block", "count"), [
    (BLOCKS, 1), (BLOCKS - 1, 2), (2**32, 1), (2**52, 1), (2**63, 1), (2**64 - 1, 1),
    (2**64 - 1, 2)])
def test_ranges_that_are_not_there(ssd: Ssd, block: int, count: int) -> None:
    with host(ssd) as h:
        q = h.io()
        data = bytes(4096 * count)
        for opcode in (0x01, 0xc1, 0x05):
            assert q.write(block, data, opcode=opcode).code == LBA_OUT_OF_RANGE
        for opcode in (0x02, 0xc2):
            assert q.read(block, count, opcode=opcode).code == LBA_OUT_OF_RANGE
        cdw = (block & 0xffffffff, block >> 32, count - 1)
        assert q.command(0x08, nsid=1, cdw=cdw).code == LBA_OUT_OF_RANGE
        for opcode in (0x09, 0xc5):
            assert _dsm(q, [(0, 1), (block, count)], opcode=opcode).code == LBA_OUT_OF_RANGE


@pytest.mark.parametrize("nsid", [0, 3, 0xfffffffe, 0xffffffff])
def test_namespaces_that_are_not_there(ssd: Ssd, nsid: int) -> None:
    with host(ssd) as h:
        q = h.io()
        assert q.write(0, bytes(4096), nsid=nsid).code == INVALID_NAMESPACE
        assert q.read(0, nsid=nsid).code == INVALID_NAMESPACE
        assert q.command(0x08, nsid=nsid).code == INVALID_NAMESPACE
        for opcode in (0x09, 0xc5):
            assert _dsm(q, [(0, 1)], nsid=nsid, opcode=opcode).code == INVALID_NAMESPACE
        everything = nsid == 0xffffffff
        for opcode in (0x00, 0xc0):
            assert q.flush(nsid, opcode=opcode).code == (0 if everything else INVALID_NAMESPACE)


def test_more_than_mdts(ssd: Ssd) -> None:
    with host(ssd) as h:
        q = h.io()
        assert q.read(0, 256).status == 0
        assert q.read(0, 257).code == INVALID_FIELD
        assert q.command(1, nsid=1, length=257 * 4096, cdw=(0, 0, 256)).code == INVALID_FIELD
        assert q.command(8, nsid=1, cdw=(0, 0, 256)).code == INVALID_FIELD


def test_tags_that_are_not_there(ssd: Ssd) -> None:
    with host(ssd) as h:
        q = h.io()
        for tag in (65536, 0xffffffff):
            assert q.write(0, bytes(4096), opcode=0xc1, tag=tag).code == INVALID_FIELD
            assert q.read(0, opcode=0xc2, tag=tag).code == INVALID_FIELD
            assert q.flush(opcode=0xc0, tag=tag).code == INVALID_FIELD
            assert _dsm(q, [(0, 1)], opcode=0xc5, tag=tag).code == INVALID_FIELD


def test_several_queues(ssd: Ssd) -> None:
    with host(ssd) as h, host(ssd, hdgst=True) as other:
        queues = [h.io(1), h.io(7), other.io(1), other.io(16)]
        for n, q in enumerate(queues):
            assert q.write(n, _data(n)).status == 0
        for q in queues:
            assert q.read(0, 4).data == b"".join(map(_data, range(4)))


def test_deallocate(ssd: Ssd) -> None:
    with host(ssd) as h:
        q = h.io()
        q.write(0, _data(1, 256))
        # without the AD attribute, ranges are hints
        assert _dsm(q, [(0, 256)], attributes=3).status == 0
        assert q.read(0, 256).data == _data(1, 256)
        assert _dsm(q, [(2 * n, 1) for n in range(100)], in_capsule=False).status == 0
        expected = bytearray(_data(1, 256))
        for n in range(100):
            expected[2 * n * 4096:(2 * n + 1) * 4096] = bytes(4096)
        assert q.read(0, 256).data == expected
        assert _dsm(q, [(n, 1) for n in range(256)]).status == 0
        assert q.read(0, 256).data == bytes(1 << 20)
        # one invalid range prevents the whole command
        q.write(0, _data(2))
        assert _dsm(q, [(0, 1), (BLOCKS, 1)]).code == LBA_OUT_OF_RANGE
        assert q.read(0).data == _data(2)


def test_deallocate_with_more_data_than_ranges(ssd: Ssd) -> None:
    """As Linux does: 4 KiB for any number of ranges; data behind them is ignored."""
    with host(ssd) as h:
        q = h.io()
        q.write(0, _data(1, 2))
        data = struct.pack("<IIQ", 0, 1, 0).ljust(4096, b"\xff")
        for size, code in ((4096, 0), (16, 0), (12, 0x0f), (4112, 0x0f)):
            done = q.command(0x09, data=data.ljust(size)[:size], nsid=1, cdw=(0, 4))
            assert done.code == code
        assert q.read(0, 2).data == bytes(4096) + _data(1, 2)[4096:]


@pytest.mark.parametrize("flags", [0, DEAC, FUA, DEAC | FUA])
def test_write_zeroes(ssd: Ssd, flags: int) -> None:
    with host(ssd) as h:
        q = h.io()
        data = _data(3, 8)
        q.write(0, data)
        assert q.command(0x08, nsid=1, cdw=(2, 0, 3 | flags)).status == 0
        assert q.read(0, 8).data == data[:8192] + bytes(4 * 4096) + data[6 * 4096:]


def test_compare(ssd: Ssd) -> None:
    with host(ssd) as h:
        q = h.io()
        q.write(0, _data(1, 2))
        assert q.write(0, _data(1, 2), opcode=0x05).status == 0
        wrong = bytearray(_data(1, 2))
        wrong[-1] ^= 1
        assert q.write(0, bytes(wrong), opcode=0x05).status == 0x285
        assert q.read(0, 2).data == _data(1, 2)


def test_medium_errors(program: Path) -> None:
    with Ssd(program, env={"RAM_SSD_BAD_BLOCK": "5"}) as ssd, host(ssd) as h:
        q = h.io()
        assert q.read(0, 5).status == 0
        done = q.read(0, 6)
        assert (done.code, done.data) == (0x281, b"")
        assert q.write(5, bytes(4096), opcode=0x05).code == 0x281
        assert int.from_bytes(h.admin.get_log(2, 512).data[160:176], "little") == 2


# ---- 512 B blocks ----


def test_small_blocks_against_a_model(program: Path) -> None:
    """Pieces of 512 B: reads, writes, compares, zeroes; neighbouring data does not change."""
    rng = random.Random(4)
    size = 64 << 10
    model = bytearray(size)
    with Ssd(program, "--block-size", "512", "--timing", "off", size="64K") as ssd:
        with host(ssd) as h:
            q = h.io()
            assert struct.unpack("<Q", h.admin.identify(0, nsid=1).data[:8])[0] == 128
            for _ in range(400):
                first = rng.randrange(128)
                count = rng.randint(1, min(40, 128 - first))
                where = slice(first * 512, (first + count) * 512)
                kind = rng.randrange(5)
                if kind < 2:
                    model[where] = rng.randbytes(count * 512)
                    assert q.write(first, bytes(model[where]), size=512,
                                   in_capsule=count <= 16).status == 0
                elif kind == 2:
                    cdw = (first, 0, count - 1 | rng.choice((0, DEAC)))
                    assert q.command(0x08, nsid=1, cdw=cdw).status == 0
                    model[where] = bytes(count * 512)
                elif kind == 3:
                    assert q.write(first, bytes(model[where]), size=512, opcode=5).status == 0
                assert q.read(first, count, size=512).data == model[where]
            assert q.read(0, 128, size=512).data == model
            assert q.read(127, 2, size=512).code == LBA_OUT_OF_RANGE


def test_small_blocks_deallocate_whole_ones_only(program: Path) -> None:
    with Ssd(program, "--block-size", "512") as ssd, host(ssd) as h:
        q = h.io()
        data = _data(5, 3)
        q.write(0, data, size=512)
        assert _dsm(q, [(1, 22)]).status == 0
        assert q.read(0, 24, size=512).data == data[:4096] + bytes(4096) + data[8192:]


def test_media_error_at_an_edge_leaves_the_block(program: Path) -> None:
    with Ssd(program, "--block-size", "512", env={"RAM_SSD_BAD_BLOCK": "1"}) as ssd:
        with host(ssd) as h:
            q = h.io()
            assert q.write(0, bytes(512 * 9), size=512).code == 0x281
            assert q.write(8, bytes(4096), size=512).status == 0


# ---- durability ----


class Durable:
    """An SSD on an image, with power cuts."""

    def __init__(self, program: Path, image: Path) -> None:
        self.program, self.image = program, image

    def start(self) -> Ssd:
        return Ssd(self.program, "--image", str(self.image), "--namespaces", "2")


@pytest.fixture
def durable(program: Path, tmp_path: Path) -> Durable:
    return Durable(program, tmp_path / "image")


def _read_after_cut(durable: Durable, where: list[tuple[int, int]]) -> list[bytes]:
    with durable.start() as ssd, host(ssd) as h:
        q = h.io()
        return [q.read(block, nsid=nsid).data for nsid, block in where]


def test_write_is_volatile_until_it_is_flushed(durable: Durable) -> None:
    with durable.start() as ssd, host(ssd) as h:
        q = h.io()
        q.write(0, _data(1))
        q.write(0, _data(2), nsid=2)
        assert q.flush(1).status == 0
        q.write(1, _data(3))
        ssd.cut_power()
    assert _read_after_cut(durable, [(1, 0), (2, 0), (1, 1)]) == [
        _data(1), bytes(4096), bytes(4096)]


def test_flush_of_the_second_namespace(durable: Durable) -> None:
    with durable.start() as ssd, host(ssd) as h:
        q = h.io()
        q.write(0, _data(1))
        q.write(BLOCKS - 1, _data(2), nsid=2)
        assert q.flush(2).status == 0
        ssd.cut_power()
    assert _read_after_cut(durable, [(1, 0), (2, BLOCKS - 1)]) == [bytes(4096), _data(2)]


def test_flush_of_all_namespaces(durable: Durable) -> None:
    with durable.start() as ssd, host(ssd) as h:
        q = h.io()
        q.write(BLOCKS - 1, _data(1))
        q.write(BLOCKS - 1, _data(2), nsid=2)
        assert q.flush(0xffffffff).status == 0
        ssd.cut_power()
    assert _read_after_cut(durable, [(1, BLOCKS - 1), (2, BLOCKS - 1)]) == [_data(1), _data(2)]


def test_fua(durable: Durable) -> None:
    with durable.start() as ssd, host(ssd) as h:
        q = h.io()
        q.write(0, _data(1), fua=True)
        q.write(1, _data(2))
        q.write(2, _data(3), opcode=0xc1, tag=5, fua=True)
        q.write(3, _data(4))
        assert q.read(3, fua=True).data == _data(4)
        q.write(4, _data(5), fua=True)
        q.command(0x08, nsid=1, cdw=(4, 0, FUA | DEAC))
        q.write(5, _data(6))
        assert q.write(5, _data(6), opcode=0x05, fua=True).status == 0
        q.write(6, _data(7))
        assert q.write(6, _data(7), opcode=0x05).status == 0
        ssd.cut_power()
    assert _read_after_cut(durable, [(1, n) for n in range(7)]) == [
        _data(1), bytes(4096), _data(3), _data(4), bytes(4096), _data(6), bytes(4096)]


def test_tagged_flush_covers_its_tag_and_the_hosts(durable: Durable) -> None:
    with durable.start() as ssd, host(ssd) as h:
        q = h.io()
        q.write(0, _data(1), opcode=0xc1, tag=7)
        q.write(1, _data(2), opcode=0xc1, tag=8)
        q.write(2, _data(3))
        q.write(0, _data(4), nsid=2, opcode=0xc1, tag=7)
        assert q.flush(opcode=0xc0, tag=7).status == 0
        ssd.cut_power()
    assert _read_after_cut(durable, [(1, 0), (1, 1), (1, 2), (2, 0)]) == [
        _data(1), bytes(4096), _data(3), _data(4)]


@pytest.mark.parametrize(("deallocates", "flushes", "zeroed"), [
    (7, 7, True), (7, 8, False), (0, 8, True), (7, None, False)])
def test_tagged_deallocate(durable: Durable, deallocates: int, flushes: int | None,
                           zeroed: bool) -> None:
    """It needs no attribute, and is durable with the next flush of its tag."""
    with durable.start() as ssd, host(ssd) as h:
        q = h.io()
        q.write(0, _data(1, 4))
        q.flush()
        ranges = [(0, 1), (2, 1)]
        assert _dsm(q, ranges, opcode=0xc5, tag=deallocates, attributes=0).status == 0
        zeroes = bytes(4096)
        expected = zeroes + _data(1, 4)[4096:8192] + zeroes + _data(1, 4)[12288:]
        assert q.read(0, 4).data == expected
        if flushes is not None:
            assert q.flush(opcode=0xc0, tag=flushes).status == 0
        ssd.cut_power()
    after = b"".join(_read_after_cut(durable, [(1, n) for n in range(4)]))
    assert after == (expected if zeroed else _data(1, 4))


@pytest.mark.parametrize("opcode", [0x09, 0xc5])
def test_deallocate_without_a_write_cache(durable: Durable, opcode: int) -> None:
    with durable.start() as ssd, host(ssd) as h:
        q = h.io()
        assert h.admin.command(0x09, cdw=(6, 0)).status == 0
        q.write(0, _data(1, 2))
        assert _dsm(q, [(0, 1)], opcode=opcode, tag=7 if opcode == 0xc5 else 0).status == 0
        ssd.cut_power()
    assert _read_after_cut(durable, [(1, 0), (1, 1)]) == [bytes(4096), _data(1, 2)[4096:]]


def test_tagged_flush_of_another_power_on(durable: Durable) -> None:
    """A flush fails for a host whose writes were lost in a power cut."""
    seen = []
    for _ in range(2):
        with durable.start() as ssd, host(ssd) as h:
            seen.append(int.from_bytes(h.admin.get_log(0xc0, 512).data[56:60], "little"))
            q = h.io()
            q.write(0, _data(1), opcode=0xc1, tag=7)
            codes = [q.command(0xc0, nsid=1, cdw2=7, cdw=(instance,)).code
                     for instance in (*seen, 0, seen[-1] ^ 1)]
            assert codes == [*[0x7c0] * (len(seen) - 1), 0, 0, 0x7c0]
            ssd.cut_power()
    assert 0 not in seen
    assert len(set(seen)) == 2


def test_tagged_flush_of_the_host(durable: Durable) -> None:
    with durable.start() as ssd, host(ssd) as h:
        q = h.io()
        q.write(0, _data(1), opcode=0xc1, tag=7)
        q.write(1, _data(2))
        assert q.flush(opcode=0xc0, tag=0).status == 0
        ssd.cut_power()
    assert _read_after_cut(durable, [(1, 0), (1, 1)]) == [bytes(4096), _data(2)]


def test_write_cache_that_is_off(durable: Durable) -> None:
    with durable.start() as ssd, host(ssd) as h:
        q = h.io()
        q.write(0, _data(1))
        assert h.admin.command(0x09, cdw=(6, 0)).status == 0
        q.write(1, _data(2))
        ssd.cut_power()
    assert _read_after_cut(durable, [(1, 0), (1, 1)]) == [_data(1), _data(2)]


def test_shutdown_flushes(durable: Durable) -> None:
    with durable.start() as ssd, host(ssd) as h:
        h.io().write(0, _data(1), nsid=2)
        assert h.admin.set_property(0x14, 0x464001).status == 0
        ssd.cut_power()
    assert _read_after_cut(durable, [(2, 0)]) == [_data(1)]


def test_stop_flushes(durable: Durable) -> None:
    with durable.start() as ssd, host(ssd) as h:
        h.io().write(0, _data(1), nsid=2)
        assert ssd.end() == (0, "")
    assert _read_after_cut(durable, [(2, 0)]) == [_data(1)]


# ---- time ----


def test_answers_come_when_the_device_says(program: Path) -> None:
    with Ssd(program, env={"RAM_SSD_FLUSH_US": "300000"}) as ssd, host(ssd) as h:
        q, other = h.io(1), h.io(2)
        start = time.monotonic()
        flush = q.start(0x00, nsid=1)
        # a neighbour does not wait
        assert other.write(0, bytes(4096)).status == 0
        assert other.read(0).status == 0
        assert time.monotonic() - start < 0.25
        assert q.completion(flush).status == 0
        assert 0.3 <= time.monotonic() - start < 2


def test_answers_in_the_order_of_their_times(program: Path) -> None:
    env = {"RAM_SSD_READ_US": "100000", "RAM_SSD_WRITE_US": "50000",
           "RAM_SSD_FLUSH_US": "200000"}
    with Ssd(program, env=env) as ssd, host(ssd) as h:
        q = h.io()
        flush = q.start(0x00, nsid=1)
        read = q.start(0x02, nsid=1, length=4096)
        write = q.start(0x01, nsid=1, data=bytes(4096))
        assert _answers(q, 3) == [write, read, flush]


def _answers(q: client.Queue, count: int) -> list[int]:
    """Return the CIDs of some commands, in the order of their responses."""
    order: list[int] = []
    while len(order) < count:
        answer = q.receive_pdu()
        if answer.type == client.RESPONSE:
            order.append(struct.unpack("<H", answer.header[20:22])[0])
    return order


_SLOW_FLUSH = {"RAM_SSD_READ_US": "2000", "RAM_SSD_WRITE_US": "1000",
               "RAM_SSD_FLUSH_US": "300000"}


@pytest.mark.parametrize("flush", [0x00, 0xc0])
@pytest.mark.parametrize("nsid", [1, 2])
def test_exclusive_flush_holds_back_what_comes(program: Path, flush: int, nsid: int) -> None:
    """It delays commands to the whole SSD, but not earlier commands."""
    with Ssd(program, "--flush", "exclusive", "--namespaces", "2", env=_SLOW_FLUSH) as ssd:
        with host(ssd) as h:
            q = h.io()
            before = q.start(0x02, nsid=nsid, length=4096)
            flushes = [q.start(flush, nsid=1), q.start(flush, nsid=1)]
            read = q.start(0x02, nsid=nsid, length=4096)
            write = q.start(0x01, nsid=nsid, data=bytes(4096))
            assert _answers(q, 5) == [before, *flushes, write, read]
            # separate times: that of the second flush does not include its waiting time
            entry = h.admin.get_log(0xc1, 224).data[64:]
            assert struct.unpack("<QQ", entry[48:64]) == (600_000_000, 300_000_000)


@pytest.mark.parametrize("flush", [0x00, 0xc0])
@pytest.mark.parametrize("options", [(), ("--flush", "overlapped")], ids=["default", "overlapped"])
def test_overlapped_flush_holds_nothing_back(program: Path, flush: int,
                                             options: tuple[str, ...]) -> None:
    with Ssd(program, *options, env=_SLOW_FLUSH) as ssd, host(ssd) as h:
        q = h.io()
        flushed = q.start(flush, nsid=1)
        read = q.start(0x02, nsid=1, length=4096)
        assert _answers(q, 2) == [read, flushed]


def test_fua_holds_nothing_back(program: Path) -> None:
    env = {"RAM_SSD_READ_US": "1000", "RAM_SSD_WRITE_US": "300000"}
    with Ssd(program, "--flush", "exclusive", env=env) as ssd, host(ssd) as h:
        q = h.io()
        write = q.start(0x01, nsid=1, data=bytes(4096), cdw=(0, 0, 1 << 30))
        read = q.start(0x02, nsid=1, length=4096, cdw=(1, 0, 0))
        assert _answers(q, 2) == [read, write]


@pytest.mark.parametrize("shutdown", [False, True])
def test_end_while_a_flush_holds(program: Path, shutdown: bool) -> None:
    """The state of the SSD is ahead of the clock, and remains so."""
    env = {"RAM_SSD_FLUSH_US": "3000000"}
    with Ssd(program, "--flush", "exclusive", env=env) as ssd, host(ssd) as h:
        q = h.io()
        q.start(0x00, nsid=1)
        q.start(0x01, nsid=1, data=bytes(4096))
        # answered at once, so the others have been started
        assert h.io(2).command(0x02, nsid=9, length=4096).code == 0x0b
        if shutdown:
            assert h.admin.set_property(0x14, 0x464001).status == 0
        assert ssd.end() == (0, "")


def test_partial_block_costs_its_read(program: Path) -> None:
    env = {"RAM_SSD_READ_US": "200000", "RAM_SSD_WRITE_US": "100000"}
    with Ssd(program, "--block-size", "512", env=env) as ssd, host(ssd) as h:
        q = h.io()
        start = time.monotonic()
        assert q.write(0, bytes(4096), size=512).status == 0
        middle = time.monotonic()
        assert q.write(0, bytes(512), size=512).status == 0
        assert 0.1 <= middle - start < 0.25
        assert 0.3 <= time.monotonic() - middle < 1


def test_timing_off(program: Path) -> None:
    with Ssd(program, "--timing", "off", env={"RAM_SSD_FLUSH_US": "9000000"}) as ssd:
        with host(ssd) as h:
            start = time.monotonic()
            assert h.io().flush().status == 0
            assert time.monotonic() - start < 1
