# SPDX-License-Identifier: Apache-2.0
"""The agent's part for elastic SSDs and a guest's cache, with the real target and a real socket.

Host and guest run in one kernel. The socket is listened on as QEMU does for a virtio-serial port.
"""

import contextlib
import dataclasses
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.box.steps import at_end
from tests.kernel import dm, stack
from tests.kernel.disk import Disk, pattern
from tests.kernel.test_vssd import MIB, settle, status
from tests.kernel.test_vssd_guest import Load, hanging, need_dm_cache
from vcache_agent.boot import restore
from vcache_agent.boot.setup_file import VssdLine
from vcache_agent.dm import Dm as HostDm
from vcache_agent.events import EventLog
from vcache_agent.model import DeviceNumber, DiskSource, Domain, Tag
from vcache_agent.observe.claim import Claim, PoolSize
from vcache_agent.observe.sample import Sample
from vcache_agent.store import Store
from vcache_agent.vssd import devices
from vcache_agent.vssd.devices import Wanted
from vcache_agent.vssd.manager import Steering, Vssds
from vcache_guest.cache import Cache
from vcache_guest.daemon import Daemon
from vcache_guest.dm import Dm
from vcache_guest.guest import Guest

pytestmark = pytest.mark.box
BYTES = 1 << 20
UUID = "11111111-2222-4333-8444-555555555555"


@pytest.fixture(autouse=True, scope="module")
def _dm_cache() -> None:
    need_dm_cache()


class Instance:
    """A domain with a daemon that keeps a cache.

    :param name: the elastic SSD
    :param path: socket of the channel
    :param origin: the guest's slow disk
    """

    def __init__(self, name: str, path: Path, origin: str) -> None:
        self.mapper = Dm()
        self.device = stack.Mapped(name)
        self.domain = Domain(UUID, "vm", {}, (
            DiskSource("vdb", "block", self.device.path, serial="one"),), channel=str(path))
        self.cache = Cache(self.mapper, stack.unique("cached"), origin)
        self.cache.open()
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(str(path))
        self.listener.listen(1)
        self.guest = Guest(self.cache, lambda serial: self.device.path, os.urandom(16))
        self.stop, self.writer = os.pipe()
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while True:
            try:
                channel, _ = self.listener.accept()
            except OSError:
                return
            self.guest.ended()
            with channel, contextlib.suppress(BrokenPipeError, ConnectionResetError):
                if not Daemon(self.guest, channel.fileno()).run(self.stop):
                    return

    def __enter__(self) -> "Instance":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        os.write(self.writer, b"x")
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.listener.close()
        self.cache.close()
        self.mapper.close()


@contextlib.contextmanager
def host(folder: Path, *, persist: bool = False) -> Iterator[tuple[Instance, Store, str]]:
    """Make a pool, an elastic SSD of 40 blocks by the agent's code, and an instance with it."""
    store = Store(folder / "agent.sqlite")
    with (at_end(store.close), stack.null_blk(64, discard=True) as ssd,
          stack.null_blk(64) as origin, stack.pool(ssd) as pool,
          contextlib.closing(HostDm()) as mapper):
        made = devices.create(mapper, store, Wanted(stack.unique("vssd"), pool.name, 40 * BYTES,
                                                 30 * BYTES, persist))
        with at_end(devices.delete, mapper, store, made.info.name):
            device = stack.Mapped(made.info.name)
            settle(device)
            # All that it owns has data, as in a cache that was used for long. Block 0 has the
            # superblock of dm-cache, which must be zero at first.
            with Disk(device.path) as disk:
                for block in range(30):
                    disk.write(block * MIB + 64, pattern(block, 8))
            with Instance(made.info.name, folder / "channel", origin) as instance:
                yield instance, store, pool.name


@contextlib.contextmanager
def agent(instance: Instance, deadline: float = 600,
          steering: Steering | None = None) -> Iterator[tuple[Vssds, EventLog]]:
    """Run the agent's thread."""
    events = EventLog()
    vssds = Vssds(lambda: [instance.domain], events, deadline, steering=steering)
    vssds.start()
    with at_end(vssds.stop):
        until(lambda: vssds.guests()[instance.device.name]["state"] == "present", instance)
        yield vssds, events


def until(done: Callable[[], bool], instance: Instance) -> None:
    assert stack.wait_until(done, 120), (status(instance.device), instance.cache.size)


def has_size(instance: Instance, blocks: int) -> None:
    """Wait until the guest has a size, and check that the kernel agrees."""
    until(lambda: instance.cache.size == blocks, instance)
    assert status(instance.device).owned == blocks


@contextlib.contextmanager
def load(instance: Instance) -> Iterator[Load]:
    """Write and read the cached disk at random, and check each read."""
    work = Load(instance.mapper.path(instance.cache.name), {})
    work.start()
    with at_end(work.join), at_end(work.stop.set):
        yield work
    work.join()
    work.check()


def test_the_agent_steers_a_guest_under_load(tmp_path: Path) -> None:
    with host(tmp_path) as (instance, _, _), agent(instance) as (vssds, events), \
            load(instance) as work:
        name = instance.device.name
        until(lambda: instance.cache.size == 30, instance)
        for size in (12, 40, 0, 25):
            assert vssds.resize(name, size * BYTES) == size * BYTES
            until(lambda: not vssds.guests()[name]["busy"], instance)
            has_size(instance, size)
            until(work.ahead(), instance)
        assert {event.kind for event in events.after(0)[0]} == {"vssd"}
        assert vssds.guests()[name]["forced_bytes"] == 0


def test_sizes_follow_the_weights_under_load(tmp_path: Path) -> None:
    """The tag beside it gets more to do and less, as the survey has it."""
    with host(tmp_path) as (instance, _, pool):
        at = DeviceNumber(254, 0)
        claim = Claim(at, 1, str(stack.Mapped(pool).number))
        busy = Sample(0.0, 0.0, (), (Tag(at, 1, cached_bytes=BYTES, cache_share_bytes=BYTES),),
                      claims=(claim,), pools=(PoolSize(claim.pool, 48 * BYTES),))
        surveys = [busy]
        instance.domain = dataclasses.replace(instance.domain, extra_specs={
            "vcache:vssd_max_mb": str(40 * BYTES >> 20), "vcache:vssd_mb": "4"})
        with agent(instance, steering=Steering(lambda: surveys[0], 0.2)) as (vssds, _), \
                load(instance) as work:
            # A thirty-second of the disk is not worth a change.
            until(lambda: instance.cache.size in (24, 25), instance)
            surveys[0] = dataclasses.replace(busy, claims=(), tags=())
            # Up to the disk, if the guest fills it.
            until(lambda: instance.cache.size >= 30, instance)
            surveys[0] = dataclasses.replace(busy, claims=(dataclasses.replace(
                claim, weight=1000),))
            until(lambda: instance.cache.size < 10, instance)
            until(work.ahead(), instance)
            assert vssds.guests()[instance.device.name]["forced_bytes"] == 0


def test_a_guest_that_hangs_loses_blocks_and_no_data(tmp_path: Path) -> None:
    """The daemon does nothing while blocks are taken. Then it drops its cache, and gets another."""
    with host(tmp_path) as (instance, _, _), agent(instance) as (vssds, events):
        name = instance.device.name
        with Disk(instance.mapper.path(instance.cache.name)) as disk:
            for place in range(400):
                disk.write(place * 128, pattern(place, 128))
        until(lambda: instance.cache.size == 30, instance)
        with hanging(instance.cache):
            vssds.resize(name, 20 * BYTES, 1)
            until(lambda: not vssds.guests()[name]["busy"], instance)
            assert vssds.guests()[name]["forced_bytes"] == 10 * BYTES
        assert "vssd-forced" in [event.kind for event in events.after(0)[0]]
        until(lambda: status(instance.device).taken == 0 and instance.cache.size == 20, instance)
        vssds.resize(name, 30 * BYTES)
        until(lambda: instance.cache.size == 30, instance)
        with Disk(instance.mapper.path(instance.cache.name)) as disk:
            for place in range(400):
                assert disk.read(place * 128, 128) == pattern(place, 128)


# Serves an elastic SSD until it is killed; arguments: name, device and socket.
_AGENT = f"""
import sys, threading
from vcache_agent.events import EventLog
from vcache_agent.model import DeviceNumber, DiskSource, Domain, Tag
from vcache_agent.observe.claim import Claim, PoolSize
from vcache_agent.observe.sample import Sample
from vcache_agent.vssd.manager import Steering, Vssds
name, device, channel, size = sys.argv[1:]
domain = Domain({UUID!r}, "vm", {{}}, (DiskSource("vdb", "block", device, serial="one"),),
                channel=channel)
vssds = Vssds(lambda: [domain], EventLog(), 600)
vssds.start()
while vssds.guests()[name]["state"] != "present":
    threading.Event().wait(0.05)
print("ready", flush=True)
vssds.resize(name, int(size))
print("resized", flush=True)
threading.Event().wait()
"""


@pytest.mark.parametrize("size", [8, 40])
def test_kill_9_in_the_middle_of_a_change(tmp_path: Path, size: int) -> None:
    """Another agent goes on with it, at whatever point the first one was killed."""
    with host(tmp_path) as (instance, _, _), load(instance) as work:
        name = instance.device.name
        for delay in (0, 0.02, 0.1):
            process = subprocess.Popen(
                [sys.executable, "-c", _AGENT, name, instance.device.path,
                 instance.domain.channel, str(size * BYTES)], stdout=subprocess.PIPE, text=True)
            with process:
                assert process.stdout is not None
                while process.stdout.readline() != "resized\n":
                    assert process.poll() is None
                time.sleep(delay)
                process.send_signal(signal.SIGKILL)
            assert status(instance.device).quota == size
            with agent(instance) as (vssds, _):
                until(lambda: not vssds.guests()[name]["busy"], instance)
                has_size(instance, size)
                assert vssds.guests()[name]["forced_bytes"] == 0
                until(work.ahead(), instance)
                vssds.resize(name, 30 * BYTES)
                until(lambda: instance.cache.size == 30, instance)


def test_a_reboot_of_the_host_with_persist(tmp_path: Path) -> None:
    """The line of setup.conf makes the same elastic SSD again, with its data."""
    with host(tmp_path, persist=True) as (instance, store, pool):
        name = instance.device.name
        with agent(instance):
            until(lambda: instance.cache.size == 30, instance)
            with Disk(instance.mapper.path(instance.cache.name)) as disk:
                for _ in range(8):
                    for place in range(64):
                        disk.write(place * 128, pattern(place, 128))
                        disk.read(place * 128, 128)
            status_before = instance.cache.status()
            assert status_before is not None
        instance.cache.close()
        dm.remove(name)
        line = VssdLine(name, pool, 40 * BYTES, 20 * BYTES, 1, persist=True)
        with contextlib.closing(HostDm()) as mapper:
            restore.start_vssd(mapper, lambda: contextlib.nullcontext(store), line)
        settle(stack.Mapped(name))
        instance.device = stack.Mapped(name)
        instance.cache.open()
        with agent(instance):
            until(lambda: instance.cache.size == 20, instance)
            after = instance.cache.status()
            assert after is not None and after.used > 0
            with Disk(instance.mapper.path(instance.cache.name)) as disk:
                for place in range(64):
                    assert disk.read(place * 128, 128) == pattern(place, 128)
