# SPDX-License-Identifier: Apache-2.0
"""Managed volumes against a model of device mapper, killed at every step."""

import contextlib
import dataclasses
import grp
import json
import os
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from tests.unit.dm_model import TABLE, Dm, Killed, host
from vcache_agent import device_lock, managed, service
from vcache_agent.admin_client import AdminError, NotHere, Unfinished
from vcache_agent.admin_server import AdminServer
from vcache_agent.dm import Line
from vcache_agent.events import EventLog
from vcache_agent.framing import receive, send
from vcache_agent.inventory import Snapshot
from vcache_agent.model import VOLUME_TARGET, DeviceNumber, DiskId, Owner
from vcache_agent.netlink.errors import ModuleNotLoaded
from vcache_agent.pools import Mapping
from vcache_agent.records import ManagedVolume
from vcache_agent.store import Store
from vcache_agent.unix_server import UnixServer
from vcache_agent.volumes import Volumes

ID, OTHER = "11111111-2222-4333-8444-555555555555", "99999999-2222-4333-8444-555555555555"
LV = "/dev/mapper/lv"
DIRTY = 512


class World:
    """A host: a model of device mapper, the agent's store, and agents that may be killed."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kernel = host()
        self.kernel.devices["lv"].users = 0
        self.folder = folder
        self.store = Store(folder / "s.sqlite")
        self.tags: list[int] = []
        self.settled = 0
        self.die_at = 0
        self.dms: list[Dm] = []
        monkeypatch.setattr("vcache_agent.attach.flush", lambda info: None)
        monkeypatch.setattr("vcache_agent.attach._memory_locked", contextlib.nullcontext)
        monkeypatch.setattr("vcache_agent.attach._LOOK", 0.0)
        monkeypatch.setattr("vcache_agent.attach._STALL", 0.05)
        monkeypatch.setattr("vcache_agent.attach._REMOVE", 0.05)
        monkeypatch.setattr("vcache_agent.volumes._AGAIN", 0.01)
        monkeypatch.setattr("vcache_agent.pools.block_number", self._number)

    def _number(self, path: str) -> DeviceNumber | None:
        device = self.kernel.devices.get(path.removeprefix("/dev/mapper/"))
        return device.number if device else None

    def _settle(self) -> None:
        self.settled += 1

    @contextlib.contextmanager
    def mapper(self) -> Iterator[Dm]:
        """Connect to device mapper; the calls of all connections count together."""
        dm = Dm(self.kernel, self.die_at)
        dm.calls = self.dms[-1].calls if self.dms else 0
        self.dms.append(dm)
        yield dm

    def agent(self, die_at: int = 0) -> Volumes:
        """Return the volumes of an agent that has just started, killed at a call."""
        self.die_at, self.dms = die_at, []

        def kernel() -> Any:
            if not self.tags:
                raise ModuleNotLoaded(2, "no module")
            return contextlib.nullcontext(SimpleNamespace(
                tags=lambda: [SimpleNamespace(id=number) for number in self.tags]))

        return Volumes(self.store, self._settle, self.folder / "lock",
                       mapper=self.mapper,  # type: ignore[arg-type]
                       kernel=kernel)

    def restart(self) -> Volumes:
        """Restart the agent, which continues what was begun; return its volumes."""
        made = self.agent()
        made._restore()
        return made

    def reboot(self) -> None:
        """Restart the host: LVM activates the device, and 'pool create' the pool."""
        lv = self.kernel.devices["lv"]
        lv.live, lv.loaded, lv.suspended, lv.users = TABLE, None, False, 0
        self.kernel.devices.pop("lv-vcorigin", None)

    @property
    def mapping(self) -> Mapping | None:
        return self.kernel.mapping("lv")

    @property
    def state(self) -> str:
        found = self.store.managed().get(ID)
        return str(found.state) if found else "none"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World(tmp_path, monkeypatch)
    yield made
    made.store.close()


def request(mode: str = "writeback", name: str = ID, device: str = LV, pool: str | None = "fast",
            **specs: str) -> dict[str, Any]:
    return {"id": name, "device": device, "pool": pool,
            "specs": {"vcache:mode": mode, **{f"vcache:{key}": text
                                              for key, text in specs.items()}}}


def test_the_life_of_a_volume(world: World) -> None:
    agent = world.agent()
    found = agent.put(request(weight="300"))["volume"]
    assert (found["state"], found["mode"], found["tag"], found["pool"]) == (
        "attached", "writeback", 1, "fast")
    assert world.mapping and world.mapping.scope == "volume 1"
    assert world.mapping.pool
    assert agent.put(request("writethrough"))["volume"]["mode"] == "writethrough"
    assert world.mapping.mode == "writeback"  # its tag has the mode
    world.kernel.volumes[1] = DIRTY
    assert agent.drain({"id": ID})["volume"]["state"] == "drained"
    assert world.kernel.devices["lv"].live == TABLE
    assert agent.drain({"id": ID})["volume"]["tag"] == 1
    assert agent.put(request())["volume"]["tag"] == 1
    assert agent.delete({"id": ID}) == agent.delete({"id": ID}) == {}
    assert list(world.kernel.devices) == ["fast", "lv"]
    assert world.kernel.devices["lv"].live == TABLE
    assert (world.store.managed(), world.store.numbers(), world.store.volumes("fast")) == (
        {}, set(), {})
    for operation in (agent.get, agent.drain):
        with pytest.raises(NotHere):
            operation({"id": ID})


def test_modes_with_and_without_a_pool(world: World) -> None:
    agent = world.agent()
    for mode in ("flush-only", "writeback", "flush-only", "writethrough"):
        assert agent.put(request(mode))["volume"]["mode"] == mode
        assert world.mapping
        assert (world.mapping.pool is not None) == (mode != "flush-only")
        assert world.mapping.scope == "volume 1"
        world.kernel.volumes.update(dict.fromkeys(world.kernel.volumes, DIRTY))
        assert agent.put(request(mode))["volume"]["mode"] == mode
    agent.drain({"id": ID})
    assert world.kernel.devices["lv"].live == TABLE


def test_numbers_are_those_of_the_allocator(world: World) -> None:
    world.kernel.add("lv2", *TABLE, uuid="LVM-def")
    world.tags = [1, 2]
    agent = world.agent()
    assert agent.put(request())["volume"]["tag"] == 3
    assert agent.put(request(name=OTHER, device="/dev/mapper/lv2"))["volume"]["tag"] == 4
    assert world.store.last_tag() == 4
    # A store that was lost does not know the tag, but the table does.
    world.store.unmanage(ID)
    assert agent.put(request())["volume"]["tag"] == 3


@pytest.mark.parametrize(("wrong", "text"), [
    ({"id": "x"}, "must be the UUID"), ({"id": None}, "must be the UUID"),
    ({"id": ID.replace("5", "A")}, "must be the UUID"),
    ({"device": "/etc/passwd"}, "below /dev"), ({"device": "/dev/../etc"}, "below /dev"),
    ({"device": 7}, "below /dev"), ({"device": "/dev/mapper/none"}, "not a mapped device"),
    ({"pool": 3}, "name of a pool"), ({"pool": ""}, "name of a pool"),
    ({"pool": "slow"}, "not a pool"), ({"pool": None}, "writeback needs a pool"),
    ({"specs": []}, "must be an object"), ({"specs": {}}, "volume-delete removes"),
    ({"specs": {"vcache:mode": "fast"}}, "one of writeback"),
    ({"specs": {"vcache:mode": "writeback", "vcache:weight": "0"}}, "from 1 to 1000")])
def test_wrong_requests_change_nothing(world: World, wrong: dict[str, Any], text: str) -> None:
    agent = world.agent()
    with pytest.raises(AdminError, match=text):
        agent.put(request() | wrong)
    assert (world.store.managed(), world.store.numbers()) == ({}, set())
    assert list(world.kernel.devices) == ["fast", "lv"]
    assert world.kernel.devices["lv"].live == TABLE


def test_a_device_belongs_to_one_volume(world: World) -> None:
    agent = world.agent()
    agent.put(request())
    with pytest.raises(AdminError, match=f"is the device of volume {ID}"):
        agent.put(request(name=OTHER))
    world.kernel.devices["alias"] = world.kernel.devices["lv"]
    with pytest.raises(AdminError, match="which names it /dev/mapper/lv"):
        agent.put(request(name=OTHER, device="/dev/mapper/alias"))
    assert list(world.store.managed()) == [ID]


def test_a_put_that_fails_leaves_the_volume_as_it_was(world: World) -> None:
    agent = world.agent()
    agent.put(request("flush-only", weight="7"))
    with pytest.raises(AdminError, match="not a pool"):
        agent.put(request(pool="slow"))
    found = agent.get({"id": ID})["volume"]
    assert (found["mode"], found["specs"]["vcache:weight"]) == ("flush-only", "7")
    assert "not a pool" in found["problem"]
    assert agent.put(request())["volume"]["problem"] == ""


def test_the_worker_refuses(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise Unfinished("no kernel")

    agent = world.agent()
    monkeypatch.setattr(agent, "_settle", refuse)
    with pytest.raises(Unfinished):
        agent.put(request())
    assert world.state == "attached"  # a later pass applies it


def check_whole(world: World) -> None:
    """Check that record and device agree, and that no data was lost."""
    lv = world.kernel.devices["lv"]
    assert (lv.loaded, lv.suspended) == (None, False)
    wanted = world.state == "attached"
    assert (world.mapping is not None) == wanted
    assert set(world.kernel.devices) == {"fast", "lv"} | ({"lv-vcorigin"} if wanted else set())
    if wanted:
        assert world.kernel.devices["lv-vcorigin"].live == TABLE
    assert world.state != "leaving"


def yield_back(world: World) -> None:
    """Bring the volume back to its state before the operation."""
    agent = world.agent()
    agent.delete({"id": ID})
    world.kernel.volumes.clear()
    world.reboot()


@pytest.mark.parametrize("reboot", [False, True])
@pytest.mark.parametrize("name", ["put", "drain", "delete", "flush-only"])
def test_killed_at_each_call(world: World, name: str, reboot: bool) -> None:
    operations: dict[str, Callable[[Volumes], object]] = {
        "put": lambda agent: agent.put(request()),
        "drain": lambda agent: agent.drain({"id": ID}),
        "delete": lambda agent: agent.delete({"id": ID}),
        "flush-only": lambda agent: agent.put(request("flush-only"))}
    calls = 0
    for die_at in range(1, 1000):
        if name != "put":
            world.agent().put(request())
            world.kernel.volumes[1] = DIRTY
        try:
            operations[name](world.agent(die_at))
        except Killed:
            calls += 1
            dirty = world.kernel.volumes.get(1, 0)
            if reboot:
                world.reboot()
            world.restart()
            check_whole(world)
            # Dirty data is in the cache still, or was written back; it is never forgotten.
            assert world.kernel.volumes.get(1, 0) in (0, dirty)
            assert not (dirty and world.mapping and world.mapping.pool is None
                        and world.kernel.volumes.get(1, 0))
            yield_back(world)
        else:
            break
    assert calls >= 10
    check_whole(world)


def test_volumes_return_after_a_reboot(world: World) -> None:
    agent = world.agent()
    agent.put(request(weight="7"))
    world.kernel.volumes[1] = DIRTY
    world.reboot()
    world.restart()
    assert world.mapping
    assert (world.mapping.volume, world.mapping.scope) == (1, "volume 1")
    assert world.kernel.volumes == {1: DIRTY}
    agent.drain({"id": ID})
    world.reboot()
    world.restart()
    assert world.kernel.devices["lv"].live == TABLE


def test_volumes_wait_for_their_pool(world: World) -> None:
    world.agent().put(request())
    world.kernel.volumes[1] = DIRTY
    world.reboot()
    fast = world.kernel.devices.pop("fast")
    agent = world.agent()
    agent.start()
    deadline = time.monotonic() + 60
    while not agent.get({"id": ID})["volume"]["problem"]:
        assert time.monotonic() < deadline
    assert "not a pool" in agent.get({"id": ID})["volume"]["problem"]
    world.kernel.devices["fast"] = fast
    while world.mapping is None:
        assert time.monotonic() < deadline
    agent.stop()
    assert world.kernel.volumes == {1: DIRTY}
    assert agent.get({"id": ID})["volume"]["problem"] == ""


def test_a_device_that_is_not_active_keeps_its_data(world: World) -> None:
    agent = world.agent()
    agent.put(request())
    world.kernel.volumes[1] = DIRTY
    world.reboot()
    lv = world.kernel.devices.pop("lv")
    for operation in (agent.drain, agent.delete):
        with pytest.raises(AdminError, match="may have its data: activate the device"):
            operation({"id": ID})
        assert world.state == "leaving"
    with pytest.raises(AdminError, match="must be true or false"):
        agent.delete({"id": ID, "discard": 1})
    assert world.kernel.volumes == {1: DIRTY}
    # The host activates it later.
    world.kernel.devices["lv"] = lv
    world.restart()
    assert (world.state, world.kernel.volumes) == ("drained", {})


def test_what_a_pool_has_of_a_deleted_device_is_discarded(world: World) -> None:
    agent = world.agent()
    agent.put(request())
    world.kernel.volumes[1] = DIRTY
    world.reboot()
    del world.kernel.devices["lv"]
    agent.delete({"id": ID, "discard": True})
    assert (world.kernel.volumes, world.store.managed(), world.store.volumes("fast")) == (
        {}, {}, {})


def test_a_drain_that_cannot_end_is_continued(world: World) -> None:
    agent = world.agent()
    agent.put(request())
    world.kernel.volumes[1] = DIRTY
    world.kernel.devices["lv"].state = "failing"
    with pytest.raises(AdminError, match="refuses writes"):
        agent.drain({"id": ID})
    assert world.state == "leaving"
    assert world.mapping and world.mapping.pool
    world.kernel.devices["lv"].state = ""
    world.restart()
    assert world.state == "drained"
    check_whole(world)


def test_an_operator_has_snapshots(world: World) -> None:
    """A table of LVM that the agent cannot move is refused, and nothing changes."""
    world.kernel.devices["lv"].live = (Line(0, 150, "mirror", "core 1 1024"),)
    with pytest.raises(AdminError, match="has dm target mirror"):
        world.agent().put(request())
    assert world.state == "none"


def test_a_volume_is_a_domain_of_its_own(world: World) -> None:
    agent = world.agent()
    agent.put(request(weight="7"))
    snapshot = managed.added(Snapshot((), True, frozenset({"a"})), world.store.managed())
    (entry,) = snapshot.entries
    assert (entry.domain.owner, entry.domain.uuid) == (Owner.VOLUME, ID)
    assert entry.domain.extra_specs == {"vcache:mode": "writeback", "vcache:weight": "7"}
    assert (entry.domain.disks[0].kind, entry.domain.disks[0].path) == ("block", LV)
    assert snapshot.defined == {"a", ID}
    agent.drain({"id": ID})
    snapshot = managed.added(Snapshot((), True, None), world.store.managed())
    assert (snapshot.entries, snapshot.defined) == ((), None)
    assert DiskId(ID, VOLUME_TARGET) in world.store.disks()


def test_rows_of_other_devices(world: World) -> None:
    world.agent().put(request())
    rows = world.store.disks()
    own = rows[DiskId(ID, VOLUME_TARGET)]
    rows = {key: dataclasses.replace(row, device="lv") for key, row in rows.items()}
    rows[DiskId("vm", "vda")] = dataclasses.replace(own, domain="vm", target="vda", device="x")
    rows[DiskId("vm", "vdb")] = dataclasses.replace(own, domain="vm", target="vdb", device="lv")
    assert set(managed.without(rows, world.store.managed())) == {DiskId("vm", "vda")}


ATTACH = "'vcache attach lv fast'"


def test_a_command_that_changes_devices_is_waited_for(world: World) -> None:
    put = threading.Thread(target=lambda: world.agent().put(request()))
    with device_lock.held(world.folder / "lock", ATTACH):
        put.start()
        put.join(0.3)
        assert put.is_alive()
        assert world.state == "none"
    put.join()
    assert world.state == "attached"


@pytest.mark.parametrize("operation", ["put", "drain", "delete"])
def test_the_wait_ends_with_the_name_of_the_holder(
        world: World, operation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = world.agent()
    agent.put(request())
    monkeypatch.setattr("vcache_agent.volumes._PATIENCE", 0.0)
    with device_lock.held(world.folder / "lock", ATTACH), \
            pytest.raises(Unfinished, match=f"{ATTACH} .process {os.getpid()}. changes devices"):
        getattr(agent, operation)(request())
    assert world.state == "attached"
    # An operation of the agent is named, too.
    with agent._operation(OTHER, "volume-drain"), \
            pytest.raises(Unfinished, match=f"volume-drain of volume {OTHER}"):
        agent.delete(request())
    agent.delete(request())
    assert world.state == "none"


def damaged(*_: object) -> NoReturn:
    raise sqlite3.DatabaseError("database disk image is malformed")


def test_a_damaged_store_is_told_and_a_pass_replaces_it(
        world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    agent, settled = world.agent(), world.settled
    with monkeypatch.context() as patch:
        patch.setattr(world.store, "manage", damaged)
        with pytest.raises(Unfinished, match="state file: database disk image is malformed"):
            agent.put(request())
    assert world.settled == settled + 1
    agent.put(request())
    assert world.state == "attached"


def test_volumes_are_restored_although_the_store_was_damaged_first(
        world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.agent().put(request())
    world.reboot()
    managed, failures = world.store.managed, [1]

    def first_damaged() -> dict[str, ManagedVolume]:
        return damaged() if failures and failures.pop() else managed()

    monkeypatch.setattr(world.store, "managed", first_damaged)
    world.restart()
    assert not failures
    assert world.mapping is not None


def ask(path: Path, **fields: object) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        deadline = time.monotonic() + 60
        send(connection, json.dumps(fields).encode(), deadline)
        return dict(json.loads(receive(connection, 1 << 20, deadline)))


def test_the_socket_of_the_group_has_only_operations_for_volumes(world: World) -> None:
    agent: Any = SimpleNamespace(events=EventLog())
    server = AdminServer(agent, world.agent().operations)
    group = os.getgid()
    path = world.folder / "volumes.sock"
    served = UnixServer(path, server.handle_volumes, request_bytes=1 << 16, seconds=30.0,
                        group=group)
    served.start()
    try:
        assert path.stat().st_gid == group
        assert path.stat().st_mode & 0o777 == 0o660
        answer = ask(path, op="volume-put", **request())
        assert answer["volume"]["tag"] == 1
        (pool,) = ask(path, op="volume-pools")["pools"]
        assert (pool["name"], pool["state"], pool["size_bytes"]) == ("fast", "ok", 62 << 20)
        assert [one["id"] for one in ask(path, op="volume-list")["volumes"]] == [ID]
        for name in ("state", "pool-set", "drain-set", "instance-set"):
            answer = ask(path, op=name)
            assert not answer["ok"]
            assert answer["error"].endswith(
                "must be one of volume-put, volume-get, volume-list, volume-pools, "
                "volume-drain, volume-delete")
        assert ask(path, op="volume-get", id=OTHER)["kind"] == "not-here"
    finally:
        served.stop()
    assert [event.kind for event in agent.events.after(0)[0]] == ["setting"]


def test_the_group_must_exist() -> None:
    assert service._group(grp.getgrgid(0).gr_name) == 0
    with pytest.raises(service.NoSuchGroup, match="'no-such-group': this host has no such"):
        service._group("no-such-group")

