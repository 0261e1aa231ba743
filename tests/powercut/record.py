# SPDX-License-Identifier: Apache-2.0
"""Runs in the box: set up the stack, run the load, keep trace and log.

    python -m tests.powercut.record LOAD FOLDER...

LOAD is the load generator. A folder contains a scenario.json. The program writes trace.txt,
extents.json and status.txt to it. The log goes to the disk that LOG_DISK names, with
the number of the folder, from 0.
"""

import argparse
import concurrent.futures
import contextlib
import errno
import fcntl
import itertools
import json
import os
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

from tests.box import inside
from tests.box.disks import mapped, null_block
from tests.box.steps import Stack, at_end, explained, step
from tests.powercut import scenario
from tests.powercut.scenario import Scenario, Tag, Worker
from vcache_agent import mapfile
from vcache_agent.model import DeviceNumber, Extent
from vcache_agent.netlink.client import Client
from vcache_agent.netlink.errors import NetlinkError

#: Serial number of the disk for a log.
LOG_DISK = "log{}"

TRACING = Path("/sys/kernel/tracing")
_EVENTS = ("block_bio_queue", "block_bio_complete")
#: Kernel parameters of the box. The events are enabled at boot and never switched: switching
#: patches the kernel's code, and under QEMU 7.2 without KVM, a processor may then stay in an
#: endless loop at the breakpoint.
KERNEL_ARGS = ("trace_event=" + ",".join(f"block:{event}" for event in _EVENTS),)
CGROUPS = Path("/sys/fs/cgroup")
MOUNT = Path("/mnt")
DEVICE = "pc"

POOL = "pcpool"
_CACHE = "pccache"
_POOLED = "pcorigin"
_DELAYED = "pcdelayed"
_AFTERLIFE = "/dev/nullb7"

#: Number of the volume in its pool.
VOLUME = 1

# Sufficient for a recording. If the trace does not fit, the recording fails, see _check_trace().
_TRACE_KB = 49152
_DISTURB_SECONDS = 0.5

# Lanes are reassigned after so many of these intervals.
_LANES_TURN = 6
_CRASH_SECONDS = 0.1

# Delay of requests to the origin: many are in flight at a cut, and are overwritten in flight.
_REQUEST_NSEC = 2000000

# Sectors per stripe: small records fit into one.
_STRIPE = 16

# Worker number of events outside of the load.
_DISTURBER = 99

_FIEMAP = 0xC020660B  # FS_IOC_FIEMAP of linux/fs.h
_FIEMAP_HEAD = struct.Struct("=QQIIII")
_FIEMAP_EXTENT = struct.Struct("=QQQ2QIIII")
_FIEMAP_ROOM = 512
_FIEMAP_LAST = 0x1
# Unknown, not yet allocated, encoded, unaligned, inline, or unwritten.
_FIEMAP_UNUSABLE = 0x2 | 0x4 | 0x8 | 0x100 | 0x200 | 0x400 | 0x800


def fiemap(path: Path) -> list[tuple[int, int, int]]:
    """Return the written extents of a file: (sector in it, sector on the device, sectors)."""
    found: list[tuple[int, int, int]] = []
    offset = 0
    with open(path, "rb") as file:
        while True:
            request = bytearray(_FIEMAP_HEAD.size + _FIEMAP_ROOM * _FIEMAP_EXTENT.size)
            _FIEMAP_HEAD.pack_into(request, 0, offset, (1 << 64) - 1 - offset, 0, 0,
                                   _FIEMAP_ROOM, 0)
            fcntl.ioctl(file, _FIEMAP, request)
            mapped = _FIEMAP_HEAD.unpack_from(request)[3]
            flags = _FIEMAP_LAST
            for number in range(mapped):
                logical, physical, length, _, _, flags, *_ = _FIEMAP_EXTENT.unpack_from(
                    request, _FIEMAP_HEAD.size + number * _FIEMAP_EXTENT.size)
                offset = logical + length
                if not flags & _FIEMAP_UNUSABLE:
                    found.append((logical // 512, physical // 512, length // 512))
            if flags & _FIEMAP_LAST:
                return found


class Tracing:
    """The kernel's trace of the requests to one device, and of the events of the load."""

    def __init__(self) -> None:
        if not (TRACING / "trace").exists():
            inside.run("mount", "-t", "tracefs", "tracefs", str(TRACING))
        self._set("tracing_on", "0")
        self._set("trace_clock", "counter")
        self._set("buffer_size_kb", str(_TRACE_KB))

    def _set(self, name: str, value: str) -> None:
        (TRACING / name).write_text(value)

    @contextlib.contextmanager
    def on(self, device: DeviceNumber, output: Path) -> Iterator[None]:
        """Trace the events in the block; then write them to `output`."""
        wanted = f'dev == {device.major << 20 | device.minor} && (rwbs ~ "*W*" || rwbs ~ "*D*")'
        self._set("trace", "")
        for event in _EVENTS:
            self._set(f"events/block/{event}/filter", wanted)
        with at_end(self._set, "tracing_on", "0"):
            self._set("tracing_on", "1")
            yield
        self._check()
        with open(TRACING / "trace", "rb") as source, open(output, "wb") as sink:
            while chunk := source.read(1 << 20):
                sink.write(chunk)
        self._set("trace", "")

    def _check(self) -> None:
        for stats in TRACING.glob("per_cpu/cpu*/stats"):
            for line in stats.read_text().splitlines():
                name, _, value = line.partition(": ")
                if name in ("overrun", "commit overrun", "dropped events") and int(value):
                    raise inside.InsideError(f"the trace lost events: {line}")

    @staticmethod
    def event(text: str) -> None:
        """Put an event into the journal."""
        (TRACING / "trace_marker").write_text(f"pc {text}")


def _number(device: str) -> DeviceNumber:
    rdev = os.stat(device).st_rdev
    return DeviceNumber(os.major(rdev), os.minor(rdev))


def _memory(name: str, megabytes: int,
            request_ns: int) -> contextlib.AbstractContextManager[str]:
    """Create a block device in memory, with a volatile cache and FUA."""
    return null_block(name, size=megabytes, memory_backed=1, cache_size=4, discard=1,
                      blocksize=512, submit_queues=1, queue_mode=2, irqmode=2,
                      completion_nsec=request_ns)


@contextlib.contextmanager
def _device(s: Scenario) -> Iterator[str]:
    """Create the device below dm-log-writes.

    Below a pool, it is striped, and every other stripe is slow, so that records of a log do not
    arrive in the order of submission. A chunk begins in a slow stripe, since the chunk is lost
    without its first record.
    """
    megabytes = s.recorded_sectors // 2048
    if not s.cache_mb:
        with _memory("nullb9", megabytes, _REQUEST_NSEC) as path:
            yield path
        return
    half = (megabytes + 1) // 2
    with _memory("nullb8", half, _REQUEST_NSEC) as quick, \
            _memory("nullb9", half, 3 * _REQUEST_NSEC) as slow, \
            mapped("pcstripes",
                   f"0 {half * 4096} striped 2 {_STRIPE} {slow} 0 {quick} 0") as striped:
        yield striped


@contextlib.contextmanager
def pool(device: str, start: int, s: Scenario) -> Iterator[None]:
    """Divide a device into cache device and origin, and create the pool.

    :param start: first sector of both on the device
    """
    below = f"/dev/mapper/{_POOLED} 0"
    delay = mapped(_DELAYED, f"0 {s.sectors} delay {below} 0 {below} {s.origin_delay_ms}")
    with mapped(_CACHE, f"0 {s.cache_sectors} linear {device} {start}"), \
            mapped(_POOLED, f"0 {s.sectors} linear {device} {start + s.cache_sectors}"), \
            mapped(POOL, f"0 {s.cache_sectors} vcache-pool /dev/mapper/{_CACHE} "
                          f"{s.pool_options}"), \
            delay if s.origin_delay_ms else contextlib.nullcontext():
        yield


def volume_table(s: Scenario) -> str:
    """Return the table of the volume in the pool of pool()."""
    origin = _DELAYED if s.origin_delay_ms else _POOLED
    return (f"0 {s.sectors} vcache {s.cache_mode} /dev/mapper/{origin} {_scope(s)} "
            f"5 age_ms {s.age_ms} pool /dev/mapper/{POOL} {VOLUME}")


def _scope(s: Scenario) -> str:
    return "filesystem" if s.fs else f"volume {s.tags[0].id}"


def _chunks() -> tuple[int, int]:
    """Return the number of used chunks of the pool, and of read chunks."""
    words = inside.run("dmsetup", "status", POOL).split()
    return int(words[7]), int(words[14])


class Recording:
    """One scenario, from the empty origin to the trace of its load."""

    def __init__(self, load: Path, folder: Path) -> None:
        self.load = load
        self.folder = folder
        self.scenario: Scenario = scenario.load(folder / "scenario.json")
        self.device = f"/dev/mapper/{DEVICE}"
        self.sizes: list[int] = []
        self.prefetched = 0
        self.migrated = 0

    def _line(self, worker: Worker, again: bool) -> str:
        """Return the arguments of a worker for the load generator.

        :param again: the second run, with another number
        """
        number = worker.id + scenario.SECOND_TIME * again
        if not self.scenario.fs:
            path = self.device
        else:
            path = str(MOUNT if worker.kind == "files" else MOUNT / str(worker.file))
        cgroup = str(CGROUPS / f"pc-{worker.cgroup}") if worker.cgroup else "-"
        weights = " ".join(f"{name}={weight}" for name, weight in worker.weights.items())
        ops = 1 if worker.behind else self.scenario.ops
        return (f"{worker.kind} id={number} seed={self.scenario.seed * 1000 + number} "
                f"ops={ops} ms={int(self.scenario.load_seconds * 1000)} "
                f"cgroup={cgroup} path={path} file={worker.file} first={worker.first} "
                f"count={worker.count} grain={worker.grain} largest={worker.largest} {weights}")

    def _run(self, *lines: str) -> None:
        inside.run(str(self.load), "run", str(TRACING / "trace_marker"), *lines,
                   timeout=self.scenario.load_seconds * 4 + 120)

    def record(self, number: int, tracing: Tracing) -> None:
        """Record to the log disk with this number."""
        s = self.scenario
        log = f"/dev/disk/by-id/virtio-{LOG_DISK.format(number)}"
        with _device(s) as device, mapped(
                "pclog", f"0 {s.recorded_sectors} log-writes {device} {log}"):
            self.below = device
            if s.origin == "write-through":
                # dm-log-writes always reports a volatile cache.
                cache = f"/sys/dev/block/{_number('/dev/mapper/pclog')}/queue/write_cache"
                Path(cache).write_text("write through")
            with tracing.on(_number("/dev/mapper/pclog"), self.folder / "trace.txt"):
                if s.crash:
                    with self._afterlife(), self._stack():
                        self._use(tracing)
                    Tracing.event("alive")
                if s.restarts:
                    with self._stack():
                        self._use(tracing)
                        used, reads = _chunks()
                with self._stack():
                    if s.restarts and not _chunks()[0] > used - reads / 2:
                        raise inside.InsideError(f"{s.name}: of {used} chunks, {reads} of them "
                                                 f"of reads, there are {_chunks()[0]} again")
                    self._use(tracing, again=s.twice)
                    status = inside.run("dmsetup", "status", DEVICE)
                    if s.cache_mb:
                        status += inside.run("dmsetup", "status", POOL)
                status += inside.run("dmsetup", "status", "pclog")
        (self.folder / "status.txt").write_text(status)
        if "logging_disabled" in status:
            raise inside.InsideError(f"{s.name}: dm-log-writes gave up, log too small?")
        if s.target == "vcache" and status.split()[5] != s.origin:
            raise inside.InsideError(f"{s.name}: isolation is not {s.origin}: {status}")
        if s.origin_delay_ms and not int(status.splitlines()[1].split()[13]):
            raise inside.InsideError(f"{s.name}: nothing was relocated: {status}")
        if s.reads and not int(status.splitlines()[1].split()[15]):
            raise inside.InsideError(f"{s.name}: nothing was promoted and kept: {status}")
        if s.swaps and not self.prefetched:
            raise inside.InsideError(f"{s.name}: nothing was given up and brought back")
        if s.resizes and len(set(self.sizes)) < 2:
            raise inside.InsideError(f"{s.name}: it has not shrunk and grown: {self.sizes}")
        if s.lanes and not self.migrated:
            raise inside.InsideError(f"{s.name}: nothing was copied between lanes: {status}")

    @contextlib.contextmanager
    def _stack(self) -> Iterator[None]:
        """Set up the stack above the recorded device."""
        with contextlib.ExitStack() as stack:
            if self.scenario.cache_mb:
                stack.enter_context(pool("/dev/mapper/pclog", 0, self.scenario))
            stack.enter_context(mapped(DEVICE, self._table()))
            yield

    def _table(self) -> str:
        s = self.scenario
        if s.target == "linear":
            return f"0 {s.sectors} linear /dev/mapper/pclog {s.cache_sectors}"
        return volume_table(s) if s.cache_mb else (
            f"0 {s.sectors} vcache flush-only /dev/mapper/pclog {_scope(s)} 2 age_ms {s.age_ms}")

    def _use(self, tracing: Tracing, *, again: bool = False) -> None:
        """Run the load.

        :param again: the second run, on the existing data
        """
        for name in self.scenario.cgroups():
            (CGROUPS / f"pc-{name}").mkdir(exist_ok=True)
        if not self.scenario.fs:
            (self.folder / "extents.json").write_text("{}\n")
            self._load(tracing, again)
            return
        with self._mounted(again):
            if not again:
                self._fill()
            if self.scenario.target == "vcache":
                with Client(30) as client:
                    for tag in self.scenario.tags:
                        self._set_tag(client, tag)
            self._load(tracing, again)

    @contextlib.contextmanager
    def _mounted(self, again: bool) -> Iterator[None]:
        if again:
            pass
        elif self.scenario.fs == "ext4":
            inside.run("mkfs.ext4", "-q", "-J", "size=4", "-E",
                       "nodiscard,lazy_itable_init=0,lazy_journal_init=0", self.device)
        else:
            inside.run("mkfs.xfs", "-q", "-K", "-f", self.device)
        options = "discard" if self.scenario.discard else "nodiscard"
        inside.run("mount", "-t", self.scenario.fs, "-o", options, self.device, str(MOUNT))
        with at_end(inside.run, "umount", str(MOUNT)):
            yield

    def _fill(self) -> None:
        """Write the images."""
        # Worker 100 + tag: an ID of its own for each.
        self._run(*(f"fill id={100 + tag.id} path={MOUNT / str(tag.file)} file={tag.file} "
                    f"count={tag.sectors} fdatasync=1" for tag in self.scenario.tags))
        inside.run("sync")
        (self.folder / "extents.json").write_text(json.dumps(
            {tag.file: fiemap(MOUNT / str(tag.file)) for tag in self.scenario.tags}))

    def _set_extents(self, client: Client, tag: Tag) -> None:
        """Set the extents of growing images, as the agent does."""
        names = [str(tag.file)]
        names += [name for name in os.listdir(MOUNT) if name.isdigit()
                  and int(name) // scenario.FILES_OF_WORKER in tag.growing]
        extents: list[tuple[int, int]] = []
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                extents += [(start, count) for _, start, count in fiemap(MOUNT / name)]
        merged: list[Extent] = []
        for start, count in sorted(extents):
            if merged and start < sum(merged[-1]):
                continue  # a block that has moved since FIEMAP
            merged.append(Extent(start, count))
        try:
            client.set_extents(_number(self.device), tag.id, merged)
        except NetlinkError as error:
            if error.errno != errno.EEXIST:  # a block that is still in another tag's list
                raise

    def _set_tag(self, client: Client, tag: Tag) -> None:
        ids = [(CGROUPS / f"pc-{name}").stat().st_ino for name in tag.cgroups]
        client.tag_set(_number(self.device), tag.id, cgroups=ids)
        self._set_extents(client, tag)

    def _remove_tag(self, client: Client, tag: Tag, nth: int) -> None:
        op = _DISTURBER << 32 | nth
        Tracing.event(f"T {op} {tag.file}")
        client.tag_del(_number(self.device), tag.id)
        Tracing.event(f"C {op} 0")
        lines = [self._line(w, False) for w in self.scenario.workers if w.behind == nth]
        if lines:
            self._run(*lines)

    def _reload(self) -> None:
        """Load and activate the same table again, with data in the buffer."""
        inside.run("dmsetup", "reload", DEVICE, "--table", self._table())
        inside.run("dmsetup", "suspend", "--noflush", "--nolockfs", DEVICE)
        inside.run("dmsetup", "resume", DEVICE)

    def _resize(self) -> None:
        """Shrink the pool when it is large, and grow it when it is small.

        Sometimes before the last resize has completed.
        """
        words = inside.run("dmsetup", "status", POOL).split()
        size, leaving = int(words[5]), int(words[17])
        if leaving and len(self.sizes) % 5:
            return
        full, part = self.scenario.cache_sectors, self.scenario.cache_sectors // 2
        small = size * self.scenario.chunk_kib * 2 <= part
        inside.run("dmsetup", "message", POOL, "0", f"resize {full if small else part}")
        if not leaving:
            self.sizes.append(size)

    def _swap(self, client: Client) -> None:
        """Drop and prefetch caches, as the agent does for stopped and started instances."""
        device = _number(self.device)
        for tag in self.scenario.tags:
            runs = mapfile.tidy(client.cached(device, tag.id))
            for _ in range(4):
                client.cache_drop(device, tag.id)
            for batch in mapfile.batches(runs):
                client.prefetch(device, tag.id, batch)
        self.prefetched = sum(tag.prefetched_bytes for tag in client.tags(device))

    def _turn_lanes(self, client: Client, turn: int) -> None:
        """Dedicate a lane to each of two tags, other tags each time."""
        device, tags = _number(self.device), self.scenario.tags
        found = [client.tag(device, tag.id) for tag in tags]
        self.migrated = sum(tag.stats.migrated_blocks for tag in found)
        for tag in tags:
            client.tag_set(device, tag.id, cache_lanes=0)
        for nth in range(2):
            client.tag_set(device, tags[(turn + nth) % len(tags)].id,
                           cache_lanes=1 << (turn + 2 * nth) % 4)

    def _disturb(self, stop: threading.Event) -> None:
        """Do what an agent and an administrator do during the load."""
        removals = itertools.count(1)
        with Client(30) as client:
            for number in itertools.count(1):
                if stop.wait(_DISTURB_SECONDS):
                    return
                for tag in self.scenario.tags:
                    if tag.growing:
                        self._set_extents(client, tag)
                    elif tag.removed and self.scenario.disturb and number % 2:
                        self._remove_tag(client, tag, next(removals))
                    elif tag.removed and self.scenario.disturb:
                        self._set_tag(client, tag)
                if self.scenario.resizes:
                    self._resize()
                if self.scenario.swaps:
                    self._swap(client)
                if self.scenario.lanes and number % _LANES_TURN == 1:
                    self._turn_lanes(client, number // _LANES_TURN)
                if self.scenario.disturb and self.scenario.reload and number % 3 == 0:
                    self._reload()

    def _afterlife(self) -> contextlib.AbstractContextManager[str]:
        megabytes = self.scenario.recorded_sectors // 2048
        return _memory(Path(_AFTERLIFE).name, megabytes, _REQUEST_NSEC)

    def _crash(self) -> None:
        """Cut the target off: its further requests go to other memory, with the same data.

        Its answers after the mark are ignored; see journal.py. Both devices are suspended before
        one is resumed: the origin must not receive data that the cache never held. Without the
        data, the target would find no records of its chunks, and writes would wait forever.
        """
        Tracing.event("crash")
        at = self.scenario.cache_sectors
        for name, sectors, start in ((_CACHE, at, 0), (_POOLED, self.scenario.sectors, at)):
            inside.run("dmsetup", "reload", name, "--table",
                       f"0 {sectors} linear {_AFTERLIFE} {start}")
        for name in (_CACHE, _POOLED):
            inside.run("dmsetup", "suspend", "--noflush", "--nolockfs", name)
        inside.run("dd", f"if={self.below}", f"of={_AFTERLIFE}", "bs=1M", "iflag=direct",
                   "oflag=direct", "status=none")
        for name in (_CACHE, _POOLED):
            inside.run("dmsetup", "resume", name)

    def _until_crash(self, stop: threading.Event) -> None:
        """Crash shortly before the end of the load."""
        if not stop.wait(self.scenario.load_seconds - _CRASH_SECONDS):
            self._crash()

    def _load(self, tracing: Tracing, again: bool) -> None:
        stop = threading.Event()
        lines = [self._line(worker, again) for worker in self.scenario.workers
                 if not worker.behind]
        beside = self._disturb
        if self.scenario.crash and not again:
            beside = self._until_crash
        with concurrent.futures.ThreadPoolExecutor(1) as threads:
            if not again:
                tracing.event("mark start")
            besides = None
            if self.scenario.target == "vcache":
                besides = threads.submit(beside, stop)
            with at_end(_join, besides), at_end(stop.set):
                self._run(*lines)
            tracing.event("mark end")


def _join(work: concurrent.futures.Future[None] | None) -> None:
    """Wait for the actions beside the load; raise their error."""
    if work is not None:
        work.result()


def main() -> None:
    """Record the scenarios of the given folders."""
    p = argparse.ArgumentParser(prog="python -m tests.powercut.record", description=__doc__)
    p.add_argument("load", type=Path)
    p.add_argument("folders", nargs="+", type=Path)
    a = p.parse_args()
    inside.run("modprobe", "-a", "dm-mod", "libcrc32c", "dm-log-writes", "ext4", "xfs")
    inside.run("modprobe", "null_blk", "nr_devices=0")
    tracing = Tracing()
    for number, folder in enumerate(a.folders):
        recording = Recording(a.load, folder)
        s = recording.scenario
        print(f"powercut: recording {s.name}", flush=True)
        with step(f"recording {s.name}"), Stack() as stack:
            if s.module:
                inside.run("insmod", s.module, f"buffer_mb={s.buffer_mb}",
                           f"large_write_kib={s.large_write_kib}")
                stack.callback(inside.unload_module)
            recording.record(number, tracing)


if __name__ == "__main__":
    with explained("powercut"):
        main()
