# SPDX-License-Identifier: Apache-2.0
"""Elastic SSDs: blocks are given, zeroed, taken away, and kept over a power cut."""

import contextlib
import errno
import itertools
import operator
import random
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.box.steps import at_end
from tests.kernel import dm, stack
from tests.kernel.conftest import KernelLog
from tests.kernel.disk import SECTOR, Disk, pattern
from tests.kernel.logwrites import Entry, log_writes
from tests.kernel.stack import Mapped

MIB = 2048  # sectors of a block: the chunk size of a pool
SECRET = b"secret!!" * 64


class Status(NamedTuple):
    """The status line of an elastic SSD."""

    block_sectors: int
    blocks: int
    quota: int
    owned: int
    mapped: int
    ready: int
    taken: int
    errors: int
    refused: int


def status(device: Mapped) -> Status:
    """Return what an elastic SSD says of itself."""
    return Status._make(map(int, device.status()))


def table(pool: Mapped, blocks: int, quota: int, *, volume: int = 5,
          persist: bool = False) -> str:
    """Return the table line of an elastic SSD."""
    return (f"0 {blocks * MIB} vcache-vssd {pool.path} {volume} {quota}"
            f"{' 1 persist' if persist else ''}")


@contextlib.contextmanager
def vssd(pool: Mapped, blocks: int = 16, quota: int = 8, *, volume: int = 5,
         persist: bool = False) -> Iterator[Mapped]:
    """Make an elastic SSD, and wait until it has what it may have."""
    with stack.mapped(table(pool, blocks, quota, volume=volume, persist=persist),
                      stack.unique("vssd")) as device:
        settle(device)
        yield device


def settle(device: Mapped) -> Status:
    """Wait until an elastic SSD has as many blocks as it may have, all zeroed."""
    def done() -> bool:
        now = status(device)
        return now.owned == max(now.quota, now.mapped) and now.ready == now.owned - now.mapped

    assert stack.wait_until(done), status(device)
    return status(device)


def ranges(device: Mapped, which: str) -> list[tuple[int, int]]:
    """List the mapped or the taken blocks: first and number."""
    words = dm.answer(device.name, f"list {which}").split()
    return list(zip(map(int, words[::2]), map(int, words[1::2]), strict=True))


def fill_with_secret(path: str) -> None:
    """Fill a device with what nobody may see, except the block in which a pool looks for itself."""
    with Disk(path) as disk:
        for at in range(0, stack.sectors(path), MIB):
            disk.write(at, SECRET * MIB)
        disk.write(0, bytes(4096))


@pytest.fixture
def cache() -> Iterator[str]:
    """Give a cache device of 64 MiB that is full of other people's data."""
    with stack.null_blk(discard=True) as path:
        fill_with_secret(path)
        yield path


def refused(disk: Disk, sector: int, *, write: bool) -> int:
    """Return the error of a request that must fail."""
    try:
        if write:
            disk.write(sector, pattern(1, 8))
        else:
            disk.read(sector, 8)
    except OSError as error:
        assert error.errno
        return error.errno
    pytest.fail(f"the request to sector {sector} succeeded")


@pytest.mark.quick
@pytest.mark.box
def test_data_is_read_back_and_the_rest_is_zero(cache: str) -> None:
    with stack.pool(cache) as pool, vssd(pool) as device, Disk(device.path) as disk:
        assert disk.read(0, MIB) == bytes(MIB * SECTOR)
        assert status(device).mapped == 0
        disk.write(3, pattern(1, 5))
        disk.write(2 * MIB - 8, pattern(2, 16))
        assert disk.read(0, MIB) == (bytes(3 * SECTOR) + pattern(1, 5)).ljust(MIB * SECTOR, b"\0")
        assert disk.read(2 * MIB - 8, 16) == pattern(2, 16)
        assert ranges(device, "mapped") == [(0, 3)]
        assert status(device)[:6] == (MIB, 16, 8, 8, 3, 5)


def test_a_write_above_the_quota_is_refused(cache: str) -> None:
    with stack.pool(cache) as pool, vssd(pool, quota=2) as device, Disk(device.path) as disk:
        disk.write(0, pattern(1, 8))
        disk.write(9 * MIB, pattern(2, 8))
        assert refused(disk, 4 * MIB, write=True) == errno.ENOSPC
        assert disk.read(4 * MIB, 8) == bytes(8 * SECTOR)
        disk.write(9 * MIB + 8, pattern(3, 8))
        assert status(device).refused == 1
        device.message("quota 3")
        settle(device)
        disk.write(4 * MIB, pattern(4, 8))
        assert "1 persist" not in device.table()
        assert device.table().split()[-1] == "3"


@pytest.mark.parametrize("end", ["quota 2", "force"])
def test_a_shrinking_disk_can_be_written_until_its_user_is_done(cache: str, end: str) -> None:
    with stack.pool(cache) as pool, vssd(pool) as device, Disk(device.path) as disk:
        disk.write(0, pattern(1, 8))
        device.message("quota 2 keep")
        assert device.table().split()[-1] == "2"
        for _ in range(2):
            # Neither a suspend nor chunks that are given back end it.
            device.suspend()
            device.resume()
            disk.write(9 * MIB, pattern(2, 8))
            device.message("release 9 1")
        assert stack.wait_until(lambda: status(device).ready == 7)
        for block in range(1, 8):
            disk.write(block * MIB, pattern(3, 8))
        assert refused(disk, 9 * MIB, write=True) == errno.ENOSPC
        device.message("release 1 6")
        assert status(device)[2:5] == (2, 8, 2)
        device.message(end)
        assert stack.wait_until(lambda: status(device).owned == 2)
        assert ranges(device, "mapped") == [(0, 1), (7, 1)]
        assert not status(device).taken


@pytest.mark.parametrize("persist", [False, True])
def test_no_byte_of_others_is_read(cache: str, persist: bool) -> None:
    """Every chunk is used, given back and used again, by two guests."""
    with stack.pool(cache) as pool:
        for turn in range(3):
            with (vssd(pool, 24, 24, volume=1, persist=persist) as one,
                  vssd(pool, 24, 24, volume=2, persist=persist) as two,
                  Disk(one.path) as first, Disk(two.path) as second):
                for disk, seed in (first, 2 * turn), (second, 2 * turn + 1):
                    for block in range(24):
                        disk.write(block * MIB + 1024, pattern(seed, 1))
                        assert disk.read(block * MIB, MIB) == (
                            bytes(1024 * SECTOR) + pattern(seed, 1)).ljust(MIB * SECTOR, b"\0")
                        disk.write(block * MIB, SECRET * MIB)
            if persist:
                pool.message("drop 1 force")
                pool.message("drop 2 force")
        assert stack.pool_status(pool).free == stack.pool_status(pool).chunks


def test_a_discarded_block_is_free_again(cache: str) -> None:
    with stack.pool(cache) as pool, vssd(pool, quota=2) as device, Disk(device.path) as disk:
        for turn in range(8):
            disk.write(turn * MIB, SECRET * MIB)
            # Not the whole block: it stays.
            disk.discard(turn * MIB + 8, MIB - 8)
            assert disk.read(turn * MIB, MIB) == SECRET * MIB
            disk.discard(turn * MIB, MIB)
            assert disk.read(turn * MIB, MIB) == bytes(MIB * SECTOR)
            # It waits for the chunk that was just discarded, if the other one is in use.
            disk.write(turn * MIB, pattern(turn, 8))
            assert disk.read(turn * MIB, MIB) == pattern(turn, 8).ljust(MIB * SECTOR, b"\0")
            disk.discard(turn * MIB, MIB)
        assert settle(device).mapped == 0


def test_a_smaller_quota_is_kept_by_discards_and_then_by_force(cache: str) -> None:
    with stack.pool(cache) as pool:
        free = stack.pool_status(pool).free
        with vssd(pool, 16, 8) as device, Disk(device.path) as disk:
            for block in range(6):
                disk.write(block * MIB, pattern(block, 8))
            assert stack.pool_status(pool).free == free - 8
            device.message("quota 4")
            # What has no data is returned at once, and nothing else.
            assert stack.wait_until(lambda: status(device).owned == 6)
            assert disk.read(5 * MIB, 8) == pattern(5, 8)
            disk.discard(MIB, MIB)
            assert stack.wait_until(lambda: status(device).owned == 5)
            device.message("force")
            now = settle(device)
            assert (now.owned, now.mapped, now.taken) == (4, 4, 1)
            assert ranges(device, "taken") == [(5, 1)]
            assert ranges(device, "mapped") == [(0, 1), (2, 3)]
            assert refused(disk, 5 * MIB, write=False) == errno.EIO
            assert refused(disk, 5 * MIB, write=True) == errno.EIO
            assert status(device).errors == 2
            # The quota is used up, but nothing that was taken is needed for this.
            disk.discard(5 * MIB, MIB)
            assert disk.read(5 * MIB, MIB) == bytes(MIB * SECTOR)
            assert status(device).taken == 0
            assert refused(disk, 5 * MIB, write=True) == errno.ENOSPC
            device.message("release 0 3")
            assert settle(device).mapped == 2
            disk.write(5 * MIB, pattern(9, 8))
            assert disk.read(4 * MIB, 8) == pattern(4, 8)
            assert stack.pool_status(pool).free == free - 4
        assert stack.pool_status(pool).free == free


def test_the_content_outlives_a_reload_but_not_the_device(cache: str) -> None:
    with stack.pool(cache) as pool:
        with vssd(pool, 8, 4) as device:
            with Disk(device.path) as disk:
                disk.write(MIB, pattern(1, 8))
            device.swap(table(pool, 12, 6))
            with Disk(device.path) as disk:
                assert disk.read(MIB, 8) == pattern(1, 8)
                disk.write(11 * MIB, pattern(2, 8))
            assert settle(device)[1:4] == (12, 6, 6)
        with vssd(pool, 8, 4) as device, Disk(device.path) as disk:
            assert disk.read(MIB, 8) == bytes(8 * SECTOR)
            assert status(device).mapped == 0
        assert stack.pool_status(pool).volumes == 0


def test_persist_keeps_the_content_over_everything(cache: str) -> None:
    data = pattern(1, MIB)
    with stack.pool(cache) as pool:
        with vssd(pool, persist=True) as device, Disk(device.path) as disk:
            disk.write(MIB + 5, data)
        # Only what has data is kept.
        assert stack.pool_status(pool).free == stack.pool_status(pool).chunks - 2
        with vssd(pool, persist=True) as device, Disk(device.path) as disk:
            assert disk.read(MIB + 5, MIB) == data
    with stack.pool(cache) as pool:
        assert stack.pool_status(pool).free == stack.pool_status(pool).chunks - 2
        with vssd(pool, persist=True) as device, Disk(device.path) as disk:
            assert disk.read(MIB, 5) == bytes(5 * SECTOR)
            assert disk.read(MIB + 5, MIB) == data
            disk.discard(MIB, MIB)
            assert disk.read(MIB, MIB) == bytes(MIB * SECTOR)
    with stack.pool(cache) as pool, vssd(pool, persist=True) as device:
        assert ranges(device, "mapped") == [(2, 1)]
    # Without persist it is a new device, and what the old one had is gone.
    with stack.pool(cache) as pool:
        with vssd(pool) as device, Disk(device.path) as disk:
            assert disk.read(2 * MIB, MIB) == bytes(MIB * SECTOR)
        assert stack.pool_status(pool).free == stack.pool_status(pool).chunks


def test_what_was_taken_is_an_error_also_after_a_restart(cache: str) -> None:
    """A guest whose cache says that a block has data must not read zeroes there."""
    with stack.pool(cache) as pool:
        with vssd(pool, 4, 3, persist=True) as device, Disk(device.path) as disk:
            for block in range(3):
                disk.write(block * MIB, pattern(block, 8))
            device.message("quota 1")
            device.message("force")
            assert ranges(device, "taken") == [(1, 2)]
        with vssd(pool, 4, 3, persist=True) as device, Disk(device.path) as disk:
            assert disk.read(0, 8) == pattern(0, 8)
            # It is not known any more which ones were taken: block 3 counts as well.
            assert ranges(device, "taken") == [(1, 3)]
            assert refused(disk, MIB, write=False) == errno.EIO
            disk.discard(MIB, 3 * MIB)
            assert disk.read(MIB, 8) == bytes(8 * SECTOR)
        with vssd(pool, 4, 3, persist=True) as device:
            assert ranges(device, "taken") == []


def test_a_flush_reaches_no_device_and_persist_writes_with_fua(cache: str) -> None:
    for persist in (False, True):
        with log_writes(cache) as log:
            with stack.pool(log.path) as pool, vssd(pool, persist=persist) as device:
                with Disk(device.path) as disk:
                    disk.write(0, pattern(1, 8))
                    log.settle()
                    log.mark("begin")
                    disk.write_and_flush(8, pattern(2, 8))
                    disk.write(16, pattern(3, 8), fua=True)
                log.settle()
                log.mark("end")
        *entries, own = log.between("begin", "end")
        assert own.flush
        assert [entry.data for entry in entries] == [pattern(2, 8), pattern(3, 8)]
        assert [entry.fua for entry in entries] == [persist, persist]
        assert not any(entry.flush for entry in entries)


def test_volumes_are_not_mixed_up(cache: str, origin: str, kmsg: KernelLog) -> None:
    with stack.pool(cache) as pool:
        with stack.cached(origin, pool, 5), pytest.raises(dm.DmError), vssd(pool):
            pass
        assert "volume 5: the volume is in use" in kmsg.read()
        for persist, text in ((False, "volume 5: the volume is one of a cache"),
                              (True, "volume 5 is in use, or is a volume of a cache")):
            with pytest.raises(dm.DmError), vssd(pool, persist=persist):
                pass
            assert text in kmsg.read()
        pool.message("drop 5 force")
        with vssd(pool, persist=True) as device, Disk(device.path) as disk:
            disk.write(0, pattern(1, 8))
            with pytest.raises(dm.DmError), vssd(pool, persist=True):
                pass
            with pytest.raises(dm.DmError), stack.cached(origin, pool, 5):
                pass
            assert "volume 5 is an elastic SSD" in kmsg.read()
            with pytest.raises(dm.DmError):
                pool.message("drop 5 force")
        with pytest.raises(dm.DmError), stack.cached(origin, pool, 5):
            pass
        with pytest.raises(dm.DmError):
            pool.message("drop 5")
        assert "the only copy of the data of an elastic SSD" in kmsg.read()
        with pytest.raises(dm.DmError), vssd(pool, 8, persist=True):
            pass
        assert "volume 5 has 32768 sectors, and cannot shrink" in kmsg.read()
        pool.message("drop 5 force")
        assert stack.pool_status(pool).free == stack.pool_status(pool).chunks


@pytest.mark.parametrize(("line", "text"), [
    ("0 2048 vcache-vssd {pool} 0 1", "the volume must be 1..4294967295"),
    ("0 2048 vcache-vssd {pool} 1 2", "the quota must not exceed the size"),
    ("0 2056 vcache-vssd {pool} 1 1", "a multiple of the pool's chunk size"),
    ("0 2048 vcache-vssd {pool} 1 1 1 other", "the only optional argument is: 1 persist"),
    ("0 2048 vcache-vssd {cache} 1 1", "not an active vcache-pool"),
    ("0 2048 vcache-vssd", "no pool device given"),
])
def test_bad_tables_are_refused(cache: str, kmsg: KernelLog, line: str, text: str) -> None:
    with stack.pool(cache) as pool, stack.null_blk(16) as other:
        with pytest.raises(dm.DmError), stack.mapped(line.format(pool=pool.path, cache=other)):
            pass
        assert text in kmsg.read()


def test_bad_messages_are_refused(cache: str, kmsg: KernelLog) -> None:
    with stack.pool(cache) as pool, vssd(pool, 60, 8) as device:
        for text, error in {
                "quota 61": "the quota must not exceed the size",
                "quota 59": "cannot have so many blocks",
                "quota -1": "messages are: quota <blocks>",
                "release 60 1": "the blocks must be inside the device",
                "release 59 2": "the blocks must be inside the device",
                "release 1 4294967295": "the blocks must be inside the device",
                "list other": "messages are: quota <blocks>",
                "force 1": "messages are: quota <blocks>"}.items():
            before = len(kmsg.read())
            with pytest.raises(dm.DmError):
                device.message(text)
            assert error in kmsg.read()[before:], text
        assert settle(device)[2:4] == (8, 8)


def test_a_full_cache_gives_what_is_asked_for(cache: str, origin: str) -> None:
    """Logs above their shares give up chunks; their data stays."""
    blocks = 56 * MIB // 8
    with (stack.pool(cache) as pool, stack.cached(origin, pool) as cached,
          Disk(cached.path) as data):
        for block in range(0, blocks, 128):
            data.write(block * 8, pattern(block, 128 * 8))
        data.flush()
        assert stack.pool_status(pool).free < 20
        with vssd(pool, 64, 40, volume=9) as device, Disk(device.path) as disk:
            for block in range(40):
                disk.write(block * MIB, pattern(block, 8))
            assert status(device).owned == 40
            for block in range(0, blocks, 128):
                assert data.read(block * 8, 8) == pattern(block, 128 * 8)[:4096]
            # The log goes on with what is left.
            for block in range(0, blocks, 128):
                data.write(block * 8, pattern(block + 1, 128 * 8))
            data.flush()
            for block in range(40):
                assert disk.read(block * MIB, 8) == pattern(block, 8)


def test_a_pool_does_not_shrink_under_an_elastic_ssd(cache: str, kmsg: KernelLog) -> None:
    with stack.pool(cache) as pool, vssd(pool, 50, 50) as device:
        with pytest.raises(dm.DmError):
            pool.message(f"resize {32 * MIB}")
        assert "an elastic SSD has chunks behind the new end" in kmsg.read()
        device.message("quota 0")
        assert stack.wait_until(lambda: status(device).owned == 0)
        pool.message(f"resize {32 * MIB}")
        assert stack.pool_status(pool).chunks == 30


def test_the_map_moves_under_an_elastic_ssd() -> None:
    """A pool that grows gets a new table of chunks."""
    with stack.null_blk(128, discard=True) as ssd:
        fill_with_secret(ssd)
        with (stack.mapped(stack.linear(ssd, 32 * MIB)) as part, stack.pool(part.path) as pool,
              vssd(pool, 60, 20, persist=True) as device, Disk(device.path) as disk):
            for block in range(20):
                disk.write(block * MIB, pattern(block, 8))
            part.swap(stack.linear(ssd, 100 * MIB))
            pool.message("resize 0")
            device.message("quota 60")
            settle(device)
            for block in range(20, 60):
                disk.write(block * MIB, pattern(block, 8))
            for block in range(60):
                assert disk.read(block * MIB, 16) == pattern(block, 8).ljust(8192, b"\0")


def test_a_write_does_not_wait_for_chunks_that_are_given_back() -> None:
    """Its chunk is to be zeroed when a smaller quota returns it to the pool."""
    # Zeroing takes long, so writes wait for it.
    with (stack.null_blk(64, discard=True, completion_us=3000) as ssd, stack.pool(ssd) as pool,
          stack.mapped(table(pool, 40, 0)) as device, Disk(device.path) as disk):
        stop, turns = threading.Event(), [0] * 12

        def write(block: int) -> None:
            while not stop.is_set():
                with contextlib.suppress(OSError):
                    disk.write(block * MIB, pattern(block, 8))
                turns[block] += 1

        def go_on() -> bool:
            """Return whether all writes that may wait now have ended."""
            before = list(turns)
            return stack.wait_until(lambda: all(map(operator.gt, turns, before)), 60)

        writers = [threading.Thread(target=write, args=(block,)) for block in range(len(turns))]
        with contextlib.ExitStack() as ends:
            for writer in writers:
                writer.start()
                ends.enter_context(at_end(writer.join))
            # With more chunks, whoever waits goes on.
            ends.enter_context(at_end(device.message, "quota 40"))
            ends.enter_context(at_end(stop.set))
            for _ in range(30):
                device.message("quota 40")
                time.sleep(0.02)
                device.message("quota 0")
                device.message("force")
                assert go_on(), turns


class Guest(threading.Thread):
    """Writes, reads and discards at random while the host takes blocks away.

    :param path: the device
    :param blocks: its size
    :param seed: seed of the order and of the data
    """

    def __init__(self, path: str, blocks: int, seed: int) -> None:
        super().__init__()
        self.path, self.blocks, self.random = path, blocks, random.Random(seed)
        self.stop, self.error, self.turn = threading.Event(), "", seed << 32
        self.data: dict[int, int] = {}
        self.failed = 0

    def run(self) -> None:
        with Disk(self.path) as disk:
            while not self.stop.is_set() and not self.error:
                try:
                    self.step(disk, self.random.randrange(self.blocks))
                except OSError as error:
                    if error.errno not in (errno.EIO, errno.ENOSPC):
                        self.error = str(error)
                    self.failed += 1
                except AssertionError as error:
                    self.error = str(error) or "wrong data"

    def step(self, disk: Disk, block: int) -> None:
        """Do one thing with a block, whose content is known."""
        self.turn += 1
        what = self.random.random()
        if what < 0.4:
            # A write that fails leaves the block as it was, or without content.
            disk.write(block * MIB + 8, pattern(self.turn, 8))
            self.data[block] = self.turn
        elif what < 0.6:
            disk.discard(block * MIB, MIB)
            self.data.pop(block, None)
        else:
            seed = self.data.get(block)
            want = bytes(4096) + (pattern(seed, 8) if seed else bytes(4096)) + bytes(4096)
            got = disk.read(block * MIB, 24)
            assert got == want, f"block {block}: {got[4096:4112]!r} instead of {want[4096:4112]!r}"


@pytest.mark.smp
@pytest.mark.parametrize("persist", [False, True])
def test_guests_see_their_own_data_or_errors(cache: str, persist: bool) -> None:
    _stress(cache, persist)


@pytest.mark.parametrize("persist", [False, True])
def test_guests_see_their_own_data_or_errors_in_uml(cache: str, persist: bool) -> None:
    _stress(cache, persist)


def _stress(cache: str, persist: bool) -> None:
    rng = random.Random(persist)
    with (stack.pool(cache) as pool, vssd(pool, 12, 8, volume=1, persist=persist) as one,
          vssd(pool, 12, 8, volume=2, persist=persist) as two):
        guests = [Guest(one.path, 12, 1), Guest(two.path, 12, 2)]
        with contextlib.ExitStack() as ends:
            for guest in guests:
                guest.start()
                ends.enter_context(at_end(guest.join))
                ends.enter_context(at_end(guest.stop.set))
            end = time.monotonic() + 120
            turns = itertools.count()
            # Until each guest has met a block that was taken: on one processor that takes longer.
            while next(turns) < 150 or not all(guest.failed or guest.error for guest in guests):
                assert time.monotonic() < end, "no guest has met a block that was taken"
                device = rng.choice([one, two])
                device.message(f"quota {rng.randrange(13)}")
                if rng.random() < 0.5:
                    device.message("force")
        for guest in guests:
            assert not guest.error
        for device in one, two:
            device.message("quota 8")
            device.message("force")
            settle(device)


class Cut(NamedTuple):
    """What is on the cache device after a power cut."""

    content: dict[int, bytes]  # by sector
    acknowledged: dict[int, int]  # turn by block


def cuts(entries: list[Entry], rng: random.Random) -> Iterator[tuple[Cut, dict[int, int]]]:
    """Cut the power behind each request; what was not durable survives or not, at random."""
    durable: dict[int, bytes] = {}
    volatile: list[Entry] = []
    acknowledged: dict[int, int] = {}
    sent: dict[int, int] = {}
    for entry in entries:
        if entry.mark:
            if not entry.mark.startswith(("write-", "done-")):
                continue  # dm-log-writes puts a mark of its own at the end
            kind, block, turn = entry.mark.split("-")
            (sent if kind == "write" else acknowledged)[int(block)] = int(turn)
            continue
        if entry.flush:
            for one in volatile:
                _put(durable, one)
            volatile = []
        if entry.fua:
            _put(durable, entry)
            # An older version in the volatile cache cannot come back over it.
            volatile = [one for one in volatile if not _overlap(one, entry)]
        elif entry.sectors:
            volatile.append(entry)
        content = dict(durable)
        for one in volatile:
            if rng.random() < 0.5:
                _put(content, one)
        yield Cut(content, dict(acknowledged)), dict(sent)


def _overlap(one: Entry, other: Entry) -> bool:
    return one.sector < other.sector + other.sectors and other.sector < one.sector + one.sectors


def _put(content: dict[int, bytes], entry: Entry) -> None:
    for i in range(entry.sectors):
        if not entry.discard:
            content[entry.sector + i] = entry.data[i * SECTOR:(i + 1) * SECTOR]


def _image(base: bytes, content: dict[int, bytes], path: str) -> None:
    image = bytearray(base)
    for sector, data in content.items():
        image[sector * SECTOR:(sector + 1) * SECTOR] = data
    with Disk(path) as disk:
        for at in range(0, len(image) // SECTOR, MIB):
            disk.write(at, bytes(image[at * SECTOR:(at + MIB) * SECTOR]))


def _contents(path: str) -> bytes:
    with Disk(path, readonly=True) as disk:
        return b"".join(disk.read(at, MIB) for at in range(0, stack.sectors(path), MIB))


def _record(ssd: str) -> list[Entry]:
    """Write, discard and take blocks; the log has marks of what was sent and acknowledged."""
    rng = random.Random(7)
    with log_writes(ssd) as log:
        with (stack.pool(log.path, chunk_kib=64) as pool,
              stack.mapped(f"0 {16 * 128} vcache-vssd {pool.path} 5 8 1 persist") as device,
              Disk(device.path) as disk):
            settle(device)
            for turn in range(1, 25):
                block = rng.randrange(10)
                with contextlib.suppress(OSError):
                    if turn % 6:
                        log.mark(f"write-{block}-{turn}")
                        disk.write_and_flush(block * 128 + 8, pattern(turn, 8))
                        log.mark(f"done-{block}-{turn}")
                    else:
                        log.mark(f"write-{block}-0")
                        log.mark(f"done-{block}-0")
                        disk.discard(block * 128, 128)
        log.settle()
    return log.entries


def test_flushed_data_is_there_after_a_power_cut() -> None:
    """Each block has what was flushed last, or a later write; never what others had there."""
    with stack.null_blk(2) as ssd, stack.null_blk(2) as replay:
        fill_with_secret(ssd)
        base = _contents(ssd)
        points = list(cuts(_record(ssd), random.Random(1)))
        assert len(points) > 60
        for number, (cut, sent) in enumerate(points):
            _image(base, cut.content, replay)
            if cut.content.get(0, b"")[:4] != b"CVCM":
                continue  # the pool was not complete yet
            _check(replay, cut, sent, number)


def _check(path: str, cut: Cut, sent: dict[int, int], number: int) -> None:
    with (stack.pool(path) as pool,
          stack.mapped(f"0 {16 * 128} vcache-vssd {pool.path} 5 8 1 persist") as device,
          Disk(device.path, readonly=True) as disk):
        for block in range(10):
            got = disk.read(block * 128, 128)
            seen = int.from_bytes(got[4096:4104], "little")
            want = pattern(seen, 8) if seen else bytes(4096)
            assert got == (bytes(4096) + want).ljust(65536, b"\0"), (number, block)
            done = cut.acknowledged.get(block, 0)
            # A discard that was sent allows zeroes from then on, or the write before it.
            if done and sent.get(block):
                assert done <= seen <= sent[block], (number, block)
