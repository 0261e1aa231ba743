# SPDX-License-Identifier: Apache-2.0
"""The agent's thread for elastic SSDs: a real socket with the real guest, on a model of dm."""

import dataclasses
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from tests.unit.test_vssd_serve import MOST, Model
from vcache_agent.dm import Dm, DmError, Info
from vcache_agent.events import EventLog
from vcache_agent.model import DeviceNumber, DiskSource, Domain
from vcache_agent.observe.claim import PoolSize
from vcache_agent.observe.sample import Sample
from vcache_agent.vssd import manager
from vcache_agent.vssd.manager import Steering, VssdError, Vssds, links
from vcache_guest.cache import CacheError
from vcache_guest.daemon import Daemon
from vcache_guest.guest import Guest

MIB = 1 << 20
NUMBER = DeviceNumber(254, 3)
UUID = "11111111-2222-4333-8444-555555555555"


class Mapper(Model):
    """Device mapper with an elastic SSD ``vm1``, and another device."""

    def __init__(self) -> None:
        super().__init__()
        self.mapped = set(range(8))
        self.taken = set()
        self.there = ["lv", "vm1"]

    def names(self) -> list[str]:
        return self.there

    def info(self, device: str) -> Info | None:
        return Info(device, f"VCACHE-VSSD-{device}" if device != "lv" else "LVM-x",
                    DeviceNumber(254, 2 + int(device[2:] or 0)) if device != "lv" else
                    DeviceNumber(254, 0), 1, False, True, False, False)

    def status(self, name: str) -> Any:
        if name not in self.there:
            raise DmError(6, "no such device")
        return super().status(name)


class Consumer:
    """A cache in the guest that can shrink, or not."""

    def __init__(self) -> None:
        self.size, self.stuck = 0, threading.Event()

    def attach(self, vssd: str, block_bytes: int, most: int, size: int) -> None:
        assert vssd == "/dev/serial-1"
        self.size = size

    def resize(self, size: int, seconds: float = float("inf")) -> None:
        if self.stuck.is_set():
            raise CacheError("dirty")
        self.size = size

    def drop(self, *, wiped: bool) -> None:
        self.size = 0


class Qemu:
    """The socket of a channel: QEMU listens, and serves one connection at a time.

    :param consumer: what the guest's daemon uses; None: there is no daemon
    """

    def __init__(self, path: Path, consumer: Consumer | None) -> None:
        self.path, self.consumer = path, consumer
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(str(path))
        self.listener.listen(1)
        self.connections = 0
        self.channel: socket.socket | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        guest = Guest(self.consumer, lambda serial: f"/dev/{serial}", bytes(16)) \
            if self.consumer else None
        while True:
            try:
                self.channel, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            with self.channel:
                if guest is None:
                    while self.channel.recv(65536):
                        pass
                else:
                    guest.ended()
                    try:
                        Daemon(guest, self.channel.fileno()).run()
                    except OSError:
                        pass

    def close(self) -> None:
        """QEMU ends."""
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        if self.channel is not None:
            try:
                self.channel.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self.thread.join(60)
        self.path.unlink()


def until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not done():
        assert time.monotonic() < end
        time.sleep(0.01)


def domain(channel: str = "", *, serial: str = "serial-1", path: str = "/dev/mapper/vm1",
           **specs: str) -> Domain:
    return Domain(UUID, "vm", {f"vcache:{name}": value for name, value in specs.items()}, (
        DiskSource("vda", "file", "/image"), DiskSource("vdb", "block", path, serial=serial)),
        channel=channel)


def number(path: str) -> DeviceNumber | None:
    name = path.removeprefix("/dev/mapper/vm")
    return DeviceNumber(254, 2 + int(name)) if name.isdigit() else None


def test_guests_are_found_by_their_disks() -> None:
    found = links([domain("/c", serial="11111111-2222-4333-8444-555555555555"),
                   domain("/d", path="/srv/hangs")], number)
    assert set(found) == {NUMBER}
    # virtio-blk shows 20 characters.
    assert found[NUMBER].serial == "11111111-2222-4333-8"
    assert found[NUMBER].path == "/c"
    assert links([domain()], number)[NUMBER].problem == \
        "the domain has no channel org.nova-vcache.vssd"
    assert links([domain("/c", serial="")], number)[NUMBER].problem == "disk vdb has no <serial>"


class Host:
    """An agent's thread on a model of a host."""

    def __init__(self, folder: Path) -> None:
        self.mapper, self.events = Mapper(), EventLog()
        self.domains: list[Domain] = []
        self.socket = folder / "channel"
        self.vssds = self.make()

    def make(self, deadline: float = 3600, steering: Steering | None = None) -> Vssds:
        self.vssds = Vssds(lambda: self.domains, self.events, deadline,
                           lambda: cast(Dm, self.mapper), steering)
        self.vssds.start()
        return self.vssds

    def guest(self) -> dict[str, Any]:
        return self.vssds.guests()["vm1"]

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events.after(0)[0]]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    monkeypatch.setattr(manager, "_STEP_S", 0.05)
    monkeypatch.setattr(manager, "_SCAN_S", 0.05)
    monkeypatch.setattr(manager.links, "__defaults__", (number,))
    found = Host(tmp_path)
    yield found
    found.vssds.stop()


def test_a_guest_is_served_from_its_start_to_its_end(host: Host) -> None:
    assert host.guest()["state"] == "none"
    host.domains = [domain(str(host.socket))]
    until(lambda: host.guest()["state"] == "unreachable")
    assert "No such file" in host.guest()["problem"]
    consumer = Consumer()
    qemu = Qemu(host.socket, consumer)
    until(lambda: host.guest()["state"] == "present" and consumer.size == 8)
    assert host.guest()["domain"] == "vm"
    assert host.vssds.resize("vm1", 5 * MIB - 1) == 5 * MIB
    until(lambda: not host.guest()["busy"])
    assert (consumer.size, host.mapper.mapped) == (5, set(range(5)))
    host.vssds.resize("vm1", 9 * MIB)
    until(lambda: consumer.size == 9)
    assert host.kinds() == ["vssd", "vssd"]
    event = host.events.after(0)[0][0]
    assert (event.device, event.disk) == ("254:3", f"{UUID}:vdb")
    # The guest restarts: the same domain has a new QEMU, with another socket.
    qemu.close()
    until(lambda: host.guest()["state"] == "unreachable")
    host.socket = host.socket.with_name("again")
    host.domains = [domain(str(host.socket))]
    qemu = Qemu(host.socket, consumer)
    until(lambda: host.guest()["state"] == "present")
    host.domains = []
    until(lambda: host.guest()["state"] == "none")
    qemu.close()
    host.mapper.there = ["lv"]
    until(lambda: host.vssds.guests() == {})


def test_a_guest_that_cannot_shrink_loses_blocks_with_an_event(host: Host) -> None:
    consumer = Consumer()
    consumer.stuck.set()
    host.domains = [domain(str(host.socket))]
    qemu = Qemu(host.socket, consumer)
    until(lambda: host.guest()["state"] == "present")
    host.vssds.resize("vm1", 6 * MIB, 0.3)
    assert host.guest()["seconds_left"] is not None
    until(lambda: not host.guest()["busy"])
    assert host.guest()["forced_bytes"] == 2 * MIB
    assert host.kinds() == ["vssd-forced", "vssd"]
    # It has given up what it lost, and started with an empty cache.
    until(lambda: host.mapper.taken == set() and consumer.size == 6)
    qemu.close()


def test_a_killed_agent_goes_on_with_a_shrink(host: Host) -> None:
    consumer = Consumer()
    host.domains = [domain(str(host.socket))]
    qemu = Qemu(host.socket, consumer)
    until(lambda: host.guest()["state"] == "present")
    consumer.stuck.set()
    host.vssds.resize("vm1", 6 * MIB)
    until(lambda: host.guest()["busy"])
    # As after kill -9: nothing of the old one is left but the quota in the kernel.
    host.vssds.stop()
    assert host.mapper.quota == 6
    assert len(host.mapper.mapped) == 8
    consumer.stuck.clear()
    host.make()
    until(lambda: host.guest()["state"] == "present" and not host.guest()["busy"])
    assert (consumer.size, host.mapper.mapped, host.mapper.taken) == (6, set(range(6)), set())
    assert qemu.connections == 2
    qemu.close()


def test_a_guest_without_a_daemon_is_not_waited_for(host: Host) -> None:
    host.domains = [domain(str(host.socket))]
    qemu = Qemu(host.socket, None)
    until(lambda: host.guest()["state"] == "silent")
    host.vssds.resize("vm1", 3 * MIB)
    until(lambda: not host.guest()["busy"])
    assert host.mapper.taken == {3, 4, 5, 6, 7}
    qemu.close()


def test_a_device_that_hangs_does_not_delay_the_state(host: Host,
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    host.domains = [domain(str(host.socket))]
    qemu = Qemu(host.socket, None)
    until(lambda: host.vssds.known().get("vm1", {}).get("state") == "silent")
    hangs, go_on, message = threading.Event(), threading.Event(), host.mapper.message

    def hanging(name: str, text: str) -> None:
        if text == "force":
            hangs.set()
            assert go_on.wait(60)
        message(name, text)

    monkeypatch.setattr(host.mapper, "message", hanging)
    host.vssds.resize("vm1", 3 * MIB)
    assert hangs.wait(60)
    told: list[Any] = []
    asking = threading.Thread(target=lambda: told.append(host.vssds.known()["vm1"]["uuid"]))
    asking.start()
    asking.join(20)
    before = tuple(told)
    go_on.set()
    asking.join()
    assert before == (UUID,)
    qemu.close()


def test_a_guest_that_sends_without_end_delays_nobody(host: Host) -> None:
    host.domains = [domain(str(host.socket))]
    qemu = Qemu(host.socket, None)
    until(lambda: host.guest()["state"] == "silent" and qemu.channel is not None)
    stop = threading.Event()

    def flood() -> None:
        assert qemu.channel is not None
        while not stop.is_set():
            qemu.channel.send(b"VSSD" * 4096)

    thread = threading.Thread(target=flood)
    thread.start()
    host.vssds.resize("vm1", 3 * MIB)
    until(lambda: not host.guest()["busy"])
    stop.set()
    thread.join(60)
    assert not thread.is_alive()
    qemu.close()


def test_one_channel_serves_one_disk(host: Host) -> None:
    """The first one in the domain."""
    host.mapper.there = ["lv", "vm2", "vm1"]
    host.domains = [Domain(UUID, "vm", {}, (
        *domain().disks, DiskSource("vdc", "block", "/dev/mapper/vm2", serial="serial-2")),
        channel=str(host.socket))]
    qemu = Qemu(host.socket, Consumer())
    until(lambda: host.guest()["state"] == "present")
    other = host.vssds.guests()["vm2"]
    assert (other["state"], other["disk"]) == ("unreachable", "vdc")
    assert other["problem"] == "the domain's channel serves another disk"
    assert qemu.connections == 1
    qemu.close()


def test_the_flavor_guarantees_a_size(host: Host) -> None:
    host.domains = [domain(str(host.socket), vssd_max_mb="20", vssd_mb="9", vssd_persist="true")]
    until(lambda: host.mapper.quota == 9)
    assert host.guest()["guaranteed_bytes"] == 9 * MIB
    assert host.guest()["note"] == "the disk has 10 MiB, but vcache:vssd_max_mb is 20"
    with pytest.raises(VssdError, match=r"guarantees 9 MiB \(vcache:vssd_mb\)"):
        host.vssds.resize("vm1", 8 * MIB)
    # What an operator has given beyond it stays.
    host.vssds.resize("vm1", 10 * MIB)
    until(lambda: host.mapper.quota == 10)
    # A guarantee above the size of the disk is all of it.
    host.domains = [domain(str(host.socket), vssd_max_mb="20", vssd_mb="15")]
    host.vssds.resize("vm1", 10 * MIB)
    # Without the key, a guarantee has no effect.
    host.domains = [domain(str(host.socket), vssd_mb="9")]
    until(lambda: host.guest()["guaranteed_bytes"] == 0)
    host.vssds.resize("vm1", MIB)


def test_a_guarantee_that_the_pool_does_not_have(host: Host) -> None:
    host.mapper.refuse = True
    host.domains = [domain(str(host.socket), vssd_max_mb="20", vssd_mb="9")]
    until(lambda: "vssd" in host.kinds())
    for _ in range(3):
        host.guest()
    assert host.kinds() == ["vssd"], "it is reported once"
    assert host.guest()["told_bytes"] == 8 * MIB


def test_requests_that_are_not_possible(host: Host) -> None:
    with pytest.raises(VssdError, match="'lv' is not an elastic SSD; those of this host: vm1"):
        host.vssds.resize("lv", MIB)
    with pytest.raises(VssdError, match=f"size of 11 blocks, must be 0 to {MOST}, of 1024 KiB"):
        host.vssds.resize("vm1", 11 * MIB)
    with pytest.raises(VssdError, match="deadline of -1 s, must be 0 to 3600"):
        host.vssds.resize("vm1", MIB, -1)
    host.mapper.refuse = True
    with pytest.raises(VssdError, match="the pool does not have 9 blocks of 1024 KiB for it"):
        host.vssds.resize("vm1", 9 * MIB)
    assert host.guest()["told_bytes"] == 8 * MIB


def test_sizes_follow_the_weights(host: Host) -> None:
    """Only of flavors with vcache:vssd_max_mb, and of guests that answer."""
    host.vssds.stop()
    pools = [PoolSize(host.mapper.table("vm1")[0].arguments.split()[0], 3 * MIB)]
    surveys: list[Sample | None] = [None]

    def survey() -> Sample | None:
        found = surveys[0]
        return found and dataclasses.replace(found, pools=tuple(pools))

    host.make(steering=Steering(survey, 0.05))
    consumer = Consumer()
    host.domains = [domain(str(host.socket))]
    qemu = Qemu(host.socket, consumer)
    until(lambda: consumer.size == 8)
    surveys[0] = Sample(0.0, 0.0, (), ())
    host.vssds.resize("vm1", 7 * MIB)
    until(lambda: consumer.size == 7)
    host.domains = [domain(str(host.socket), vssd_max_mb="64", vssd_mb="2")]
    until(lambda: consumer.size == 3 and not host.guest()["busy"])
    with pytest.raises(VssdError, match="follows the weights"):
        host.vssds.resize("vm1", 7 * MIB)
    pools[0] = PoolSize(pools[0].number, 2 * MIB)
    until(lambda: consumer.size == 2 and not host.guest()["busy"])
    qemu.close()
