# SPDX-License-Identifier: Apache-2.0
"""The worker with real files of this host, and a replacement for the kernel's tags."""

import dataclasses
import errno
import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.unit.locate_model import Hanging
from vcache_agent import fiemap, view
from vcache_agent.admin_server import AdminServer
from vcache_agent.cgroups import Cgroup, CgroupError
from vcache_agent.dm import DmError, Info
from vcache_agent.events import EventLog
from vcache_agent.inventory import Inventory
from vcache_agent.knobs import IoMax
from vcache_agent.model import (
    Backing,
    Curve,
    Device,
    DeviceNumber,
    DiskSource,
    Domain,
    Extent,
    Phase,
    Stats,
    Tag,
)
from vcache_agent.netlink import spec
from vcache_agent.netlink.errors import ModuleNotLoaded, NetlinkError
from vcache_agent.observe.ring import Ring
from vcache_agent.observe.sample import Sample
from vcache_agent.overrides import Override
from vcache_agent.pools import Pool
from vcache_agent.store import Store
from vcache_agent.worker import Outcome, Settings, Worker

MIB = 1 << 20
SPECS = {"vcache:mode": "flush-only", "vcache:weight": "40"}


class Kernel:
    """Tags and extents of one device; replaces netlink.client.Client."""

    def __init__(self, number: DeviceNumber) -> None:
        self.device = Device(number, "images", spec.Mode.FLUSH_ONLY, spec.Scope.FILESYSTEM,
                             spec.Isolation.FUA, 1 << 50, "8:0")
        self.table: dict[int, Tag] = {}
        self.curves: dict[int, Curve] = {}
        self.extents: dict[int, tuple[Extent, ...]] = {}
        self.refused = 0
        self.loaded = True
        self.lock = threading.Lock()

    def __call__(self, timeout: float, decoder: object = None) -> "Kernel":
        if not self.loaded:
            raise ModuleNotLoaded(errno.ENOENT, "load the module dm-vcache")
        return self

    def __enter__(self) -> "Kernel":
        return self

    def __exit__(self, *_: object) -> None: ...

    def devices(self) -> list[Device]:
        return [self.device]

    def tags(self) -> list[Tag]:
        with self.lock:
            return [dataclasses.replace(
                tag, extents_count=len(self.extents.get(number, ())),
                extents_sectors=sum(extent.length for extent in self.extents.get(number, ())))
                for number, tag in self.table.items()]

    def tag_set(self, device: DeviceNumber, number: int, *, name: str = "", weight: int = 100,
                cgroups: Sequence[int] = (), mode: spec.Mode | None = None,
                cache_min: int | None = None, cache_max: int | None = None,
                cache_lanes: int | None = None) -> None:
        with self.lock:
            if cache_lanes is not None:
                self.table[number] = dataclasses.replace(
                    self.table[number], cache_lanes=cache_lanes)
                return
            self.table[number] = Tag(device, number, name, weight, frozenset(cgroups),
                                     mode=self.device.mode if mode is None else mode,
                                     cache_min_bytes=cache_min or 0, cache_max_bytes=cache_max or 0)

    def curve(self, device: DeviceNumber, number: int) -> Curve:
        if number not in self.curves:
            raise NetlinkError(errno.ENODATA, "the tag has no cache")
        return self.curves[number]

    def tag_del(self, device: DeviceNumber, number: int) -> None:
        with self.lock:
            del self.table[number]
            self.extents.pop(number, None)

    def set_extents(self, device: DeviceNumber, number: int, extents: Sequence[Extent]) -> None:
        with self.lock:
            for other, theirs in self.extents.items():
                if other != number and any(
                        a.start < b.start + b.length and b.start < a.start + a.length
                        for a in theirs for b in extents):
                    self.refused += 1
                    raise NetlinkError(errno.EEXIST, "a sector belongs to another tag already")
            self.extents[number] = tuple(extents)


@dataclasses.dataclass
class Host:
    """A worker with its environment."""

    folder: Path
    kernel: Kernel
    inventory: Inventory
    store: Store
    worker: Worker
    cgroups: dict[str, int]
    ring: Ring = dataclasses.field(default_factory=Ring)

    def image(self, name: str, blocks: int = 1) -> Path:
        path = self.folder / name
        with open(path, "wb") as file:
            file.write(b"x" * 4096 * blocks)
            file.flush()
            os.fsync(file.fileno())
        return path

    def tell(self, name: str, path: Path, phase: Phase = Phase.RUNNING) -> Domain:
        number = sum(name.encode())
        domain = Domain(f"{number:08x}-0000-4000-8000-000000000000", name, SPECS,
                        (DiskSource("vda", "file", str(path)),))
        self.inventory.told(domain, phase)
        return domain

    def look(self, fresh: bool = False) -> Outcome:
        assert self.worker.wait(self.worker.kick(fresh), 20)
        return self.worker.outcome

    def until(self, condition: Callable[[], bool], seconds: float = 60) -> None:
        """Look until a condition holds: on a busy machine, a path may answer late."""
        limit = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < limit
            self.look()

    def tag(self, domain: Domain) -> Tag:
        return next(tag for tag in self.kernel.tags() if tag.name.startswith(domain.uuid))


@pytest.fixture
def host(thread_helpers: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    status = tmp_path.stat()
    kernel = Kernel(DeviceNumber(os.major(status.st_dev), os.minor(status.st_dev)))
    cgroups: dict[str, int] = {}

    def of_domain(name: str, _run_dir: Path) -> Cgroup:
        if name not in cgroups:
            raise CgroupError(f"domain {name}: none")
        return Cgroup(cgroups[name], f"/machine/{name}")

    monkeypatch.setattr("vcache_agent.worker.Client", kernel)
    monkeypatch.setattr("vcache_agent.worker.cgroups.of_domain", of_domain)
    inventory, store = Inventory(100.0), Store(tmp_path / "state" / "s.sqlite")
    worker = Worker(inventory, store, Settings(3600.0, 3600.0, 5.0, tmp_path))
    made = Host(tmp_path, kernel, inventory, store, worker, cgroups)
    if not has_fiemap(made.image("probe")):
        pytest.skip("the temporary folder's file system tells no places")
    worker.start()
    yield made
    worker.stop()
    store.close()


def has_fiemap(path: Path) -> bool:
    fd = os.open(path, os.O_RDONLY)
    try:
        return bool(fiemap.read(fd)[0])
    except fiemap.FiemapError:
        return False
    finally:
        os.close(fd)


def test_from_prepare_to_release(host: Host) -> None:
    path = host.image("a", 4)
    domain = host.tell("a", path, Phase.PREPARING)
    outcome = host.look()
    assert host.tag(domain).cgroups == frozenset()
    assert host.tag(domain).extents_sectors == 32
    assert [row["state"] for row in view.disks(outcome, host.kernel.tags())] == ["preparing"]

    host.tell("a", path)
    outcome = host.look()
    assert [row["state"] for row in view.disks(outcome, host.kernel.tags())] == ["no-cgroup"]
    host.cgroups["a"] = 77
    outcome = host.look()
    assert (host.tag(domain).cgroups, host.tag(domain).weight) == ({77}, 40)
    (row,) = view.disks(outcome, host.kernel.tags())
    assert (row["state"], row["cgroup_path"], row["mode"]) == (
        "isolated", "/machine/a", "flush-only")

    host.inventory.listed([], [], time.monotonic())
    host.look()
    assert not host.kernel.table
    assert next(iter(host.store.disks().values())).released is not None


def test_disks_that_cannot_get_a_cache_are_shown_with_the_reason(host: Host) -> None:
    domain = host.tell("a", host.image("a"))
    host.cgroups["a"] = 77
    disks = (*domain.disks, DiskSource("vdb", "network", None),
             DiskSource("vdc", "file", "/proc/version"), DiskSource("vdd", "network", None, True))
    host.inventory.told(dataclasses.replace(domain, disks=disks), Phase.RUNNING)
    outcome = host.look()
    rows = {row["disk"]: row for row in view.disks(outcome, host.kernel.tags())}
    assert {disk: row["state"] for disk, row in rows.items()} == {
        "vda": "isolated", "vdb": "not-cacheable", "vdc": "untagged", "vdd": "untagged"}
    assert "librbd" in rows["vdb"]["note"]
    assert rows["vdd"]["note"] == "it is read-only"
    assert all(row["state"] in view.DISK_STATES for row in rows.values())


def test_a_mode_of_a_flavor_reaches_the_tag_and_so_does_an_operators(host: Host) -> None:
    host.kernel.device = dataclasses.replace(
        host.kernel.device, mode=spec.Mode.WRITEBACK, pool="254:9", volume=3)
    path = host.image("a", 4)
    domain = host.tell("a", path)
    host.cgroups["a"] = 77
    host.look()
    assert host.tag(domain).mode is spec.Mode.FLUSH_ONLY
    host.store.set_tag(host.tag(domain).id, {"mode": "writethrough"})
    outcome = host.look()
    assert host.tag(domain).mode is spec.Mode.WRITETHROUGH
    (row,) = view.disks(outcome, host.kernel.tags())
    assert (row["mode_asked"], row["mode"], row["cached_bytes"]) == (
        "flush-only", "writethrough", 0)
    shown = view.kernel(host.kernel.devices(), host.kernel.tags())
    assert shown["devices"][0]["cache"]["volume"] == 3
    assert shown["tags"][0]["mode"] == "writethrough"


class Pools:
    """Device mapper with a pool of 1000 chunks of 1 MiB, or without its control device."""

    def __init__(self) -> None:
        self.refused: str | None = None

    def __call__(self) -> "Pools":
        return self

    def __enter__(self) -> "Pools":
        if self.refused:
            raise DmError(errno.EACCES, self.refused)
        return self

    def __exit__(self, *_: object) -> None: ...


def test_a_policy_divides_the_pool(
        host: Host, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    dm = Pools()
    info = Info("pool", "", DeviceNumber(254, 9), 1, False, True, False, False)
    pool = Pool(info, DeviceNumber(8, 16), "ok", MIB, 1000)
    monkeypatch.setattr("vcache_agent.worker.Dm", dm)
    monkeypatch.setattr("vcache_agent.worker.pools.by_number",
                        lambda _dm, wanted: {at: pool for at in wanted if at == "254:9"})
    host.kernel.device = dataclasses.replace(
        host.kernel.device, mode=spec.Mode.WRITEBACK, pool="254:9", volume=3)
    first = host.tell("a", host.image("a", 4))
    host.look()
    host.store.set_tag(host.tag(first).id, {"mode": "writeback"})
    host.look()
    assert (host.tag(first).cache_min_bytes, host.tag(first).cache_max_bytes) == (0, 0)
    host.store.set_policy("static")
    host.look()
    assert host.worker.policy == "static"
    assert (host.tag(first).cache_min_bytes, host.tag(first).cache_max_bytes) == (
        1000 * MIB, 1000 * MIB)
    # A policy of a newer agent is unknown; without device mapper, nothing is divided.
    host.store.set_policy("clever")
    host.look()
    assert host.worker.policy == "weighted"
    assert host.tag(first).cache_max_bytes == 0
    dm.refused = "no control device"
    host.store.set_policy("static")
    host.look()
    assert host.tag(first).cache_max_bytes == 0
    assert "no control device" in caplog.text


def test_the_listener_gets_the_results_of_passes(
        host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    passes: list[tuple[Outcome, Outcome]] = []
    worker = Worker(host.inventory, host.store, Settings(3600.0, 3600.0, 5.0, tmp_path),
                    lambda before, after: passes.append((before, after)))
    worker.start()
    assert worker.wait(worker.kick(), 20)

    def unloaded(_timeout: float, _decoder: object) -> None:
        raise ModuleNotLoaded(errno.ENOENT, "not loaded")

    monkeypatch.setattr("vcache_agent.worker.Client", unloaded)
    assert worker.wait(worker.kick(), 20)
    worker.stop()
    assert passes[0][0].problem == "the first pass is not complete yet"
    assert passes[-1][1].problem == "not loaded"
    assert passes[-1][1] is worker.outcome
    assert all(after is before for (_, after), (before, _) in zip(passes, passes[1:], strict=False))


def test_limits_that_another_agent_has_left_are_removed_in_the_first_pass(
        host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    value, store = {"now": "rbps=max wbps=7"}, Store(tmp_path / "other.sqlite")

    def write(_knob: IoMax, text: str) -> None:
        value["now"] = text

    monkeypatch.setattr(IoMax, "read", lambda _knob: value["now"])
    monkeypatch.setattr(IoMax, "write", write)
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()

    def left() -> None:
        value["now"] = "rbps=max wbps=7"
        store.set_limits(json.dumps({"boot": boot, "limits": [
            ["io", ["/vm", 1, "254:3"], "rbps=max wbps=max", ["rbps=max wbps=7"]]]}))

    left()
    worker = Worker(host.inventory, store, Settings(3600.0, 3600.0, 5.0, tmp_path))
    worker.start()
    assert worker.wait(worker.kick(), 20)
    assert (value["now"], store.limits()) == ("rbps=max wbps=max", None)
    worker.stop()
    # An agent that stops leaves none, even if no pass succeeds.
    monkeypatch.setattr("vcache_agent.worker.Client", Refusing)
    left()
    worker = Worker(host.inventory, store, Settings(3600.0, 3600.0, 5.0, tmp_path))
    worker.start()
    assert worker.wait(worker.kick(), 20)
    assert value["now"] == "rbps=max wbps=7"
    worker.stop()
    assert (value["now"], store.limits()) == ("rbps=max wbps=max", None)
    store.close()


class Refusing:
    """A kernel without the module."""

    def __init__(self, *_: object) -> None:
        raise ModuleNotLoaded(errno.ENOENT, "not loaded")


class AgentStub:
    """The part of the agent that the admin server needs."""

    def __init__(self, host: Host) -> None:
        self.worker, self.store = host.worker, host.store
        self.events, self.observer = EventLog(), SimpleNamespace(ring=host.ring)
        self.vssds = SimpleNamespace(guests=dict, known=dict)


@pytest.fixture
def admin(host: Host, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict]:
    for user in ("admin_server", "curves"):
        monkeypatch.setattr(f"vcache_agent.{user}.Client", lambda: host.kernel(1.0))
    monkeypatch.setattr("vcache_agent.report.Dm", Pools())
    monkeypatch.setattr("vcache_agent.report.pools.pools", lambda _dm: [])
    monkeypatch.setattr("vcache_agent.report.vssd_devices.every", lambda _dm: [])
    server = AdminServer(AgentStub(host))  # type: ignore[arg-type]
    return lambda op, **fields: json.loads(server.handle(json.dumps(
        {"op": op, **fields}).encode()))


def test_an_override_holds_instead_of_the_flavor(host: Host, admin: Callable[..., dict]) -> None:
    domain = host.tell("a", host.image("a", 4))
    host.cgroups["a"] = 77
    host.look()
    assert host.tag(domain).weight == 40
    answer = admin("instance-set", uuid=domain.uuid, values={"weight": 7, "slo_flush_ms": 2.5})
    assert answer == {"ok": True, "override": {"weight": 7, "slo_flush_ms": 2.5}}
    assert host.tag(domain).weight == 7
    # Other values remain; null selects the flavor's value.
    assert admin("instance-set", uuid=domain.uuid, values={"weight": None, "slo_iops": 5})[
        "override"] == {"slo_flush_ms": 2.5, "slo_iops": 5}
    assert host.tag(domain).weight == 40
    (row,) = admin("host")["domains"]
    assert (row["specs"]["slo_flush_ms"], row["flavor"]["slo_flush_ms"]) == (2.5, None)
    assert row["override"] == {"slo_flush_ms": 2.5, "slo_iops": 5}
    assert admin("instance-set", uuid=domain.uuid, values={}, replace=True)["override"] == {}
    answer = admin("instance-set", uuid="another", values={"weight": 7})
    assert "'another' is not on this host" in answer["error"]
    assert answer["kind"] == "not-here"


def test_a_store_that_refuses_changes(host: Host, admin: Callable[..., dict],
                                      caplog: pytest.LogCaptureFixture) -> None:
    """As on a full disk: see test_store_full.py."""
    first = host.tell("a", host.image("a", 4))
    host.cgroups |= {"a": 77, "b": 78}
    host.look()
    host.store._db.execute("PRAGMA query_only = 1")
    second = host.tell("b", host.image("b", 4))
    with open(host.folder / "a", "ab") as image:
        image.write(b"x" * 8192)
        image.flush()
        os.fsync(image.fileno())
    host.until(lambda: host.tag(first).extents_sectors == 48)
    outcome = host.look()
    # A tag that the store does not have would be another disk's after a restart.
    assert [tag.name for tag in host.kernel.tags()] == [f"{first.uuid}:vda"]
    rows = {row["domain"]: row for row in view.disks(outcome, host.kernel.tags())}
    assert rows["a"]["state"] == "isolated"
    assert rows["b"]["state"] == "failed"
    assert "cannot be written: attempt to write a readonly" in rows["b"]["note"]
    assert "cannot be written" in outcome.problem
    assert caplog.text.count("New disks get no tags") == 1
    number = host.tag(first).id
    answer = admin("tag-set", tag=number, weight=900, mode="writethrough")
    assert answer["kind"] == "unfinished"
    assert "nothing is changed" in answer["error"]
    assert admin("events")["events"] == []
    host.store._db.execute("PRAGMA query_only = 0")
    outcome = host.look()
    assert outcome.problem == ""
    assert host.tag(second).cgroups == {78}
    assert {row.tag for row in host.store.disks().values()} == {
        host.tag(first).id, host.tag(second).id}
    assert host.tag(first).weight == 40
    assert "can be written again" in caplog.text


def test_a_request_that_finds_a_damaged_store_asks_for_a_pass(
        host: Host, admin: Callable[..., dict], monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass replaces the file."""
    def damaged(*_: object) -> None:
        raise sqlite3.DatabaseError("database disk image is malformed")

    asked = []
    monkeypatch.setattr(host.store, "set_policy", damaged)
    monkeypatch.setattr(host.worker, "kick", lambda: asked.append(True))
    answer = admin("policy-set", policy="static")
    assert answer["kind"] == "unfinished"
    assert answer["error"] == ("nothing is changed: the agent's state file: database disk image "
                               "is malformed")
    assert asked == [True]


def test_an_override_goes_with_its_instance(host: Host) -> None:
    domain = host.tell("a", host.image("a", 4))
    host.store.set_override(domain.uuid, Override(weight=7))
    host.inventory.listed([domain], [domain.uuid], time.monotonic())
    host.look()
    host.inventory.ended(domain.uuid)
    host.inventory.listed([], [], time.monotonic())
    host.look()
    assert host.store.overrides() == {domain.uuid: Override(weight=7)}, "it may come back"
    host.store.tend_overrides([domain.uuid], time.time(), 0.0)
    host.store.tend_overrides([], 1000.0, 10.0)
    host.store.tend_overrides([], 1009.0, 10.0)
    assert host.store.overrides()
    host.store.tend_overrides([], 1011.0, 10.0)
    assert not host.store.overrides()


def test_what_a_gib_less_would_cost_is_reported(
        host: Host, admin: Callable[..., dict], monkeypatch: pytest.MonkeyPatch) -> None:
    at = [1000.0]
    monkeypatch.setattr("vcache_agent.admin_server.time.monotonic", lambda: at[0])
    domain = host.tell("a", host.image("a", 4))
    host.look()
    assert admin("host")["loss_per_gb"] == 0, "nobody has any cache"
    number = host.tag(domain).id
    host.kernel.table[number] = dataclasses.replace(
        host.tag(domain), cached_bytes=1 << 30, stats=Stats(reads=300))
    host.kernel.curves[number] = Curve(1 << 30, 4 << 30, 1000, 0, (1000, 400), (0, 0))
    host.ring.append(Sample(0.0, 1000.0, (), (host.tag(domain),)))
    host.kernel.table[number] = dataclasses.replace(
        host.tag(domain), stats=Stats(reads=600))
    at[0] = 1030.0
    # Ten reads per second, three in five of which hit.
    assert admin("host")["loss_per_gb"] == 6.0
    del host.kernel.curves[number]
    assert admin("host")["loss_per_gb"] == 6.0, "it is not asked for each time"
    at[0] += 61.0
    assert admin("host")["loss_per_gb"] == 0, "there is no sample of it"


def test_the_lanes_that_are_left_are_reported(
        host: Host, admin: Callable[..., dict], monkeypatch: pytest.MonkeyPatch) -> None:
    info = Info("pool", "", DeviceNumber(254, 9), 1, False, True, False, False)
    pool = Pool(info, DeviceNumber(8, 16), "ok", MIB, 40, lanes=(10 * MIB,) * 4)
    monkeypatch.setattr("vcache_agent.worker.Dm", Pools())
    monkeypatch.setattr("vcache_agent.worker.pools.by_number", lambda _dm, _wanted: {"254:9": pool})
    monkeypatch.setattr("vcache_agent.report.pools.pools", lambda _dm: [pool])
    monkeypatch.setattr("vcache_agent.report.pools.members", lambda _dm, _pool: [])
    host.kernel.device = dataclasses.replace(
        host.kernel.device, mode=spec.Mode.WRITEBACK, pool="254:9", volume=3)
    made = []
    for number, specs in enumerate(({"isolation": "dedicated"}, {"min_mb": "5"}, {})):
        path = host.image(f"disk{number}", 4)
        made.append(Domain(
            f"{number:08x}-0000-4000-8000-000000000000", f"vm{number}",
            {"vcache:mode": "writeback"} | {f"vcache:{key}": word for key, word in specs.items()},
            (DiskSource("vda", "file", str(path)),), "project-1"))
        host.inventory.told(made[-1], Phase.RUNNING)
    host.look()
    assert [host.tag(domain).cache_lanes for domain in made] == [2, 4, 0]
    # One of the three lanes that are not shared is assigned.
    answer = admin("host")
    assert [row["lanes_free"] for row in answer["pools"]] == [2]
    assert {row["domain"]: row["lanes_bytes"] for row in answer["disks"]} == {
        "vm0": 10 * MIB, "vm1": 10 * MIB, "vm2": 0}


def test_a_host_that_drains_has_no_writeback(host: Host, admin: Callable[..., dict]) -> None:
    host.kernel.device = dataclasses.replace(
        host.kernel.device, mode=spec.Mode.WRITEBACK, pool="254:9", volume=3)
    path = host.image("a", 4)
    domain = Domain("11111111-0000-4000-8000-000000000000", "a", {"vcache:mode": "writeback"},
                    (DiskSource("vda", "file", str(path)),), "project-1")
    host.inventory.told(domain, Phase.RUNNING)
    host.look()
    assert host.tag(domain).mode is spec.Mode.WRITEBACK
    assert admin("drain-set", draining=True) == {"ok": True}
    assert host.tag(domain).mode is spec.Mode.WRITETHROUGH
    found = admin("host")
    assert found["draining"] is True
    assert found["domains"][0]["project"] == "project-1"
    assert found["tags_of"] == {domain.uuid: 1}
    assert (found["disks"][0]["pool"], found["disks"][0]["mode"]) == ("254:9", "writethrough")
    admin("drain-set", draining=False)
    assert host.tag(domain).mode is spec.Mode.WRITEBACK


def layered(host: Host, name: str, *paths: Path) -> Domain:
    """Report a running domain whose disk has several layers, the active one first."""
    top, *below = map(str, paths)
    number = sum(name.encode())
    domain = Domain(f"{number:08x}-0000-4000-8000-000000000000", name, SPECS, (DiskSource(
        "vda", "file", top, backing=tuple(Backing("file", path) for path in below)),))
    host.inventory.told(domain, Phase.RUNNING)
    return domain


def test_a_snapshot_and_a_commit_of_real_files(host: Host) -> None:
    base, top = host.image("base", 4), host.image("top", 2)
    domain = layered(host, "a", base)
    host.look()
    before = host.tag(domain).id
    host.store.set_tag(before, {"weight": 900})
    layered(host, "a", top, base)
    host.until(lambda: host.tag(domain).extents_sectors == 48)
    assert (host.tag(domain).id, host.tag(domain).weight) == (before, 900)
    layered(host, "a", base)
    host.until(lambda: host.tag(domain).extents_sectors == 32)
    assert host.tag(domain).id == before
    assert len(host.kernel.table) == 1


def test_a_reused_inode_inherits_nothing(host: Host) -> None:
    path = host.image("a", 4)
    first = host.tell("a", path)
    host.look()
    host.store.set_tag(host.tag(first).id, {"weight": 900})
    number = path.stat().st_ino
    host.inventory.listed([], [first.uuid], time.monotonic())
    host.look()
    for attempt in range(100):
        path.unlink()
        path = host.image(f"b{attempt}", 4)
        if path.stat().st_ino == number:
            break
    else:
        pytest.skip("the temporary folder's file system does not reuse numbers soon")
    second = host.tell("b", path)
    host.look()
    assert host.tag(second).weight == 40
    assert {row.domain: (row.tag, row.weight) for row in host.store.disks().values()} == {
        first.uuid: (1, 900), second.uuid: (2, None)}


def test_a_shared_base_has_a_tag_and_its_reads_count(
        host: Host, admin: Callable[..., dict], monkeypatch: pytest.MonkeyPatch) -> None:
    base = host.image("base", 4)
    domains = [layered(host, name, host.image(name), base) for name in "ab"]
    read = []
    real = fiemap.read
    monkeypatch.setattr(
        "vcache_agent.locate_helper.fiemap.read",
        lambda fd, progress: read.append(os.fstat(fd).st_ino) or real(fd, progress))
    host.look(fresh=True)
    assert base.stat().st_ino in read
    (tag,) = (tag for tag in host.kernel.tags() if tag.name == "base:base")
    assert (tag.extents_sectors, tag.cgroups) == (32, frozenset())
    slow, fast = [0] * spec.HISTOGRAM_BUCKETS, [0] * spec.HISTOGRAM_BUCKETS
    slow[80], fast[40] = 100, 100
    host.kernel.table[tag.id] = dataclasses.replace(tag, stats=Stats(read_hist=tuple(slow)))
    mine = host.tag(domains[0])
    host.kernel.table[mine.id] = dataclasses.replace(mine, stats=Stats(read_hist=tuple(fast)))
    answer = admin("host")
    assert answer["tags_of"] == {domains[0].uuid: 1, domains[1].uuid: 1, "": 1}
    p99 = {row["domain"]: row["read_p99_us"] for row in answer["disks"]}
    # The reads of one are half slow; the host's buckets have those of both.
    assert p99["a"] == pytest.approx(p99["b"], rel=0.01) == pytest.approx(
        answer["read_p99_us"], rel=0.01)
    assert p99["a"] > 1000
    assert all(row["also_read"] == [{"device": str(host.kernel.device.number), "tag": tag.id}]
               for row in answer["disks"])


@pytest.mark.parametrize("error", [
    OSError(errno.ESTALE, "stale"), OSError(errno.EIO, "Input/output error")])
def test_a_disk_that_cannot_be_located_for_once_keeps_its_tag(
        host: Host, monkeypatch: pytest.MonkeyPatch, error: OSError) -> None:
    path = host.image("a", 4)
    domain = host.tell("a", path)
    host.look()
    before = host.kernel.tags(), dict(host.kernel.extents)
    real = os.open

    def failing(name: str, *arguments: object, **options: object) -> int:
        if str(name) == str(path):
            raise error
        return real(name, *arguments, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr("vcache_agent.locate_helper.os.open", failing)
        outcome = host.look(fresh=True)
        assert (host.kernel.tags(), host.kernel.extents) == before
        (row,) = view.disks(outcome, host.kernel.tags())
        assert row["tag"] == host.tag(domain).id
        assert error.strerror in row["note"]
    path.rename(path.with_name("moved"))
    host.look(fresh=True)
    assert (host.kernel.tags(), host.kernel.extents) == before
    path.with_name("moved").rename(path)
    note = view.disks(host.look(fresh=True), host.kernel.tags())[0]["note"]
    assert note == "domain a: none"  # it has no cgroup here


@pytest.mark.parametrize("what", ["generation", "stack", "fiemap"])
def test_whatever_fails_while_a_disk_is_located_it_keeps_its_tag(
        host: Host, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    host.tell("a", host.image("a", 4))
    host.look()
    before = host.kernel.tags(), dict(host.kernel.extents)

    def fail(*_: object) -> None:
        raise {"fiemap": fiemap.FiemapFailed("FIEMAP: error")}.get(
            what, OSError(errno.EIO, "Input/output error"))

    monkeypatch.setattr({"generation": "vcache_agent.locate_helper.inode.generation",
                         "stack": "vcache_agent.blockstack.BlockStack.segments",
                         "fiemap": "vcache_agent.locate_helper.fiemap.read"}[what], fail)
    outcome = host.look(fresh=True)
    assert not outcome.problem
    assert (host.kernel.tags(), host.kernel.extents) == before


def test_growth_is_followed(host: Host) -> None:
    path = host.image("a", 1)
    domain = host.tell("a", path)
    host.look()
    assert host.tag(domain).extents_sectors == 8
    host.image("a", 64)
    host.look(fresh=True)
    assert host.tag(domain).extents_sectors == 512


def test_new_blocks_reach_the_tag_without_a_request(host: Host) -> None:
    path = host.image("a", 1)
    domain = host.tell("a", path)
    host.look()
    host.image("a", 64)
    # The interval of the periodic passes is an hour.
    limit = time.monotonic() + 60
    while host.tag(domain).extents_sectors != 512:
        assert time.monotonic() < limit
        time.sleep(0.02)


def test_a_path_that_hangs_keeps_its_tag_and_delays_no_other_disk(
        host: Host, hanging: Hanging, caplog: pytest.LogCaptureFixture) -> None:
    slow = host.tell("slow", host.image("slow", 4))
    host.cgroups["slow"] = 77
    host.look()
    before = host.tag(slow)
    hanging.hang(host.folder / "slow")
    host.look(fresh=True)
    # The next passes do not wait for it.
    for name in ("a", "b", "c"):
        domain = host.tell(name, host.image(name, 4))
        outcome = host.look()
        assert host.tag(domain).extents_sectors == 32
    assert host.tag(slow) == before
    row = next(row for row in view.disks(outcome, host.kernel.tags()) if row["domain"] == "slow")
    assert (row["state"], row["tag"]) == ("isolated", before.id)
    assert row["note"] == f"{host.folder}/slow does not answer"
    assert row["located_age_s"] > 0
    told = [record.message for record in caplog.records if "slow does not" in record.message]
    assert told and len(told) == len(set(told)), "said once, not at each pass"
    hanging.go_on(host.folder / "slow")
    limit = time.monotonic() + 60
    while (row := view.disks(host.worker.outcome, host.kernel.tags())[-1])["note"]:
        assert time.monotonic() < limit
        time.sleep(0.02)
    assert (row["domain"], row["located_age_s"]) == ("slow", 0)


def test_an_image_that_vanishes_keeps_its_tag_while_its_domain_runs(host: Host) -> None:
    path = host.image("a", 4)
    domain = host.tell("a", path)
    host.look()
    before = host.tag(domain)
    path.unlink()
    for _ in range(3):
        outcome = host.look(fresh=True)
    assert host.tag(domain) == before
    (row,) = view.disks(outcome, host.kernel.tags())
    assert "No such file" in row["note"]
    host.inventory.listed([], [], time.monotonic())
    host.look()
    assert not host.kernel.table
    # Nobody knows the domain, and its image is gone: its number is free again.
    limit = time.monotonic() + 60
    while host.store.disks():
        assert time.monotonic() < limit
        host.look()


def test_sectors_that_change_hands(host: Host) -> None:
    # Named so that the tag that gains is changed before the tag that loses.
    claims, gives = host.tell("aa", host.image("claims", 8)), host.tell("zz", host.image("gives"))
    host.look()
    mine, theirs = host.tag(claims).id, host.tag(gives).id
    stolen = host.kernel.extents[mine]
    host.kernel.extents[mine] = ()
    host.kernel.extents[theirs] += stolen
    outcome = host.look()
    assert host.kernel.refused >= 1
    assert host.kernel.extents[mine] == stolen
    assert not outcome.errors


def test_a_claim_that_is_never_given_up_is_told(host: Host) -> None:
    domain = host.tell("a", host.image("a", 8))
    host.look()
    stolen = host.kernel.extents[host.tag(domain).id]
    host.kernel.table[999] = Tag(host.kernel.device.number, 999, "by hand")
    host.kernel.extents[host.tag(domain).id] = ()
    host.kernel.extents[999] = stolen
    outcome = host.look()
    assert "another tag" in outcome.errors[host.kernel.device.number, host.tag(domain).id]
    (row,) = view.disks(outcome, host.kernel.tags())
    assert row["state"] == "failed"
    assert "another tag" in row["note"]


def test_a_kernel_without_the_module_and_then_with_it(
        host: Host, caplog: pytest.LogCaptureFixture) -> None:
    host.kernel.loaded = False
    host.tell("a", host.image("a"))
    for _ in range(3):
        assert "load the module" in host.look().problem
    assert sum("load the module" in record.message for record in caplog.records) == 1, \
        "said once, not at each look"
    host.kernel.loaded = True
    assert not host.look().problem
    assert host.kernel.table


def test_a_pass_that_fails_is_not_the_last(
        host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> list[Device]:
        raise RuntimeError("as in a test")

    works: Callable[[], list[Device]] = host.kernel.devices
    monkeypatch.setattr(host.kernel, "devices", broken)
    host.tell("a", host.image("a"))
    assert "as in a test" in host.look().problem
    monkeypatch.setattr(host.kernel, "devices", works)
    assert not host.look().problem
    assert host.kernel.table
