# SPDX-License-Identifier: Apache-2.0
"""Two agents' workers and their parts for migrations, with a replacement for each kernel."""

import contextlib
import dataclasses
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import libvirt
import pytest

from tests.unit.plan_model import uuid
from vcache_agent.admin_client import AdminError, NotHere
from vcache_agent.admin_server import AdminServer
from vcache_agent.cgroups import Cgroup
from vcache_agent.hook_server import Refused
from vcache_agent.inventory import Inventory
from vcache_agent.libvirt_watch import LibvirtWatch
from vcache_agent.locate import Located
from vcache_agent.migration import sights
from vcache_agent.migration.arrivals import Arrivals, Policy
from vcache_agent.migration.departures import Departures
from vcache_agent.migration.messages import (
    MESSAGE_BYTES,
    Question,
    encode_answer,
    encode_question,
    parse_answer,
    parse_question,
)
from vcache_agent.migration.moves import Moves, Role
from vcache_agent.migration.sights import Sights
from vcache_agent.migration.verdict import Sight
from vcache_agent.model import Device, DeviceNumber, DiskSource, Domain, Location, Phase, Tag
from vcache_agent.netlink import spec
from vcache_agent.overrides import NONE, Override
from vcache_agent.store import Store
from vcache_agent.unix_server import UnixServer
from vcache_agent.worker import Settings, Worker

AT = DeviceNumber(254, 7)
TAG = 40
VM = uuid(1)
GOLD = Domain(VM, "vm1", {"vcache:mode": "writeback"},
              (DiskSource("vda", "block", "/dev/vg/vm1", volume=True),))
PATIENCE = 60.0


class Kernel:
    """One volume in a pool; replaces netlink.client.Client.

    :param dirty: dirty bytes of the volume; a part goes with each look, unless it is `stuck`
    """

    def __init__(self) -> None:
        self.mode = spec.Mode.WRITEBACK
        self.tag = Tag(AT, TAG, mode=spec.Mode.WRITEBACK)
        self.dirty = 0
        self.stuck = False
        self.drops = 0

    def __enter__(self) -> "Kernel":
        return self

    def __exit__(self, *_: object) -> None: ...

    def devices(self) -> list[Device]:
        if not self.stuck and self.tag.mode is not spec.Mode.WRITEBACK:
            self.dirty = max(0, self.dirty - 4096)
        return [Device(AT, "vm1", self.mode, spec.Scope.VOLUME, spec.Isolation.FUA, 1 << 20, "8:0",
                       pool="254:9", volume=1, cache_dirty_bytes=self.dirty)]

    def tags(self) -> list[Tag]:
        return [self.tag]

    def tag_set(self, _device: DeviceNumber, number: int, *, mode: spec.Mode | None = None,
                **fields: Any) -> None:
        assert number == TAG
        self.tag = dataclasses.replace(
            self.tag, name=fields.get("name", self.tag.name),
            weight=fields.get("weight", self.tag.weight),
            mode=self.tag.mode if mode is None else mode)

    def cache_drop(self, _device: DeviceNumber, number: int) -> tuple[int, int]:
        assert number == TAG
        self.drops += 1
        self.tag = dataclasses.replace(
            self.tag, cached_bytes=max(0, self.tag.cached_bytes - 4096))
        return self.tag.cached_bytes, 0


class Nowhere:
    """Replaces the locator: the volume is on the device."""

    version = 0

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def prune(self) -> None: ...
    def ask(self, _paths: Any, **_: object) -> dict[str, Any]:
        return {}

    def missing(self, _path: str) -> bool:
        return False

    def locate(self, *_: object, **__: object) -> Located:
        return Located(Location("volume:vm1", AT), "")


class Side:
    """One host."""

    def __init__(self, folder: Path, timeout: float, **policy: Any) -> None:
        self.kernel = Kernel()
        self.told: list[str] = []
        self.inventory, self.store = Inventory(100.0), Store(folder / "s.sqlite")
        self.moves = Moves(folder / "moves")
        self.worker = Worker(self.inventory, self.store, Settings(
            3600.0, 3600.0, timeout, folder), moves=self.moves)
        self.worker.locator = Nowhere()  # type: ignore[assignment]
        self.departures = Departures(self.moves, self.inventory, self.store, self.worker,
                                     grace=30.0, kernel=lambda: self.kernel,  # type: ignore[arg-type,return-value]
                                     tell=self.told.append)
        self.arrivals = Arrivals(
            self.moves, self.store, self.worker,
            Policy(**{"socket": None, "wait": PATIENCE} | policy),
            kernel=lambda: self.kernel,  # type: ignore[arg-type,return-value]
            tell=self.told.append)

    def start(self) -> None:
        self.worker.start()
        self.look()

    def look(self) -> None:
        assert self.worker.wait(self.worker.kick(), PATIENCE)

    def run(self) -> None:
        self.inventory.told(GOLD, Phase.RUNNING)
        self.look()

    def end(self) -> None:
        self.inventory.ended(VM)
        self.moves.ended(VM)
        self.inventory.listed([], [], time.monotonic())
        self.look()

    def prepare(self, seconds: float = PATIENCE) -> str:
        """Do what libvirt's hook does at a destination."""
        self.arrivals.begin(GOLD)
        return self.start_domain(seconds)

    def start_domain(self, seconds: float = PATIENCE) -> str:
        self.inventory.told(GOLD, Phase.PREPARING)
        return self.arrivals.prepare(GOLD, time.monotonic() + seconds)

    def stop(self) -> None:
        self.worker.stop()
        self.store.close()


class Relay:
    """Takes questions to the other host, as vcache-host does."""

    def __init__(self, path: Path) -> None:
        self.to: Side | None = None
        self.part = 0.5
        self.server = UnixServer(path, self._handle, request_bytes=MESSAGE_BYTES, seconds=PATIENCE)
        self.server.start()

    def _handle(self, request: bytes) -> bytes:
        question = parse_question(json.loads(request))
        try:
            if self.to is None:
                raise AdminError("no other host has answered")
            answer = self.to.departures.ask(
                dataclasses.replace(question, seconds=question.seconds * self.part))
        except AdminError as error:
            return json.dumps({"ok": False, "error": str(error)}).encode()
        return json.dumps({"ok": True, "answer": encode_answer(answer)}).encode()


@dataclasses.dataclass
class Pair:
    """Two hosts; the domain runs on the first."""

    source: Side
    target: Side
    relay: Relay


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    relay = Relay(tmp_path / "relay")
    sides = {}
    for timeout, name in ((5.0, "source"), (6.0, "target")):
        (tmp_path / name).mkdir()
        sides[timeout] = Side(tmp_path / name, timeout, socket=tmp_path / "relay")
    monkeypatch.setattr("vcache_agent.worker.Client", lambda timeout, _=None: sides[timeout].kernel)
    monkeypatch.setattr("vcache_agent.worker.cgroups.of_domain", lambda *_: Cgroup(1, "/x"))
    made = Pair(sides[5.0], sides[6.0], relay)
    relay.to = made.source
    with contextlib.ExitStack() as stack:
        stack.callback(relay.server.stop)
        for side in sides.values():
            side.start()
            stack.callback(side.stop)
        made.source.run()
        yield made


def until(probe: Callable[[], object]) -> None:
    limit = time.monotonic() + PATIENCE
    while not probe():
        assert time.monotonic() < limit
        time.sleep(0.01)


def test_there_and_back(pair: Pair) -> None:
    source, target = pair.source, pair.target
    assert source.kernel.tag.mode is spec.Mode.WRITEBACK
    source.store.set_override(VM, Override(weight=7))
    source.store.set_tag(TAG, {"weight": 900})
    source.kernel.dirty = 3 * 4096
    # What the cache of the destination has of an earlier stay is outdated.
    target.kernel.tag = dataclasses.replace(target.kernel.tag, cached_bytes=100 * 4096)

    assert target.prepare() == ""
    assert source.kernel.dirty == 0
    assert source.kernel.tag.mode is spec.Mode.WRITETHROUGH
    assert target.kernel.tag.mode is spec.Mode.FLUSH_ONLY
    assert target.kernel.tag.cached_bytes == 0
    target.inventory.told(GOLD, Phase.RUNNING)
    target.look()
    assert target.kernel.tag.mode is spec.Mode.FLUSH_ONLY, "the guest is still at the source"

    source.kernel.tag = dataclasses.replace(source.kernel.tag, cached_bytes=100 * 4096)
    target.arrivals.saw(VM, active=True, landed=True)
    source.end()
    target.look()
    assert target.kernel.tag.mode is spec.Mode.WRITEBACK
    assert target.store.overrides()[VM] == Override(weight=7)
    assert target.kernel.tag.weight == 900
    assert not target.moves.with_role(*Role)
    assert target.told == [f"instance {VM} runs here: its volumes have their modes"]
    until(lambda: source.look() is None and not source.kernel.tag.cached_bytes)
    until(lambda: source.look() is None and not source.moves.with_role(*Role))

    # Back, with other settings: none.
    target.store.set_override(VM, NONE)
    target.store.set_tag(TAG, {"weight": None, "mode": "writethrough"})
    target.run()
    pair.relay.to = target
    assert source.prepare() == ""
    source.arrivals.saw(VM, active=True, landed=True)
    source.run()
    assert source.kernel.tag.mode is spec.Mode.WRITETHROUGH, "an operator's mode moves along"
    assert source.kernel.tag.weight == 100
    assert VM not in source.store.overrides()


def test_a_source_that_is_not_done_in_time(pair: Pair) -> None:
    source, target = pair.source, pair.target
    source.kernel.dirty, source.kernel.stuck = 1 << 20, True
    pair.relay.part = 0.01
    with pytest.raises(Refused, match="has 1024 KiB that are not on the storage of disk vda yet"):
        target.prepare()
    assert not target.moves.with_role(*Role)
    # It goes on meanwhile, although the migration has failed.
    source.departures.saw(VM, Sight(True, True))
    source.departures.saw(VM, Sight(True, False))
    assert source.moves.with_role(Role.LEAVING)
    source.kernel.stuck = False
    until(lambda: source.look() is None and not source.kernel.dirty)
    pair.relay.part = 0.5
    assert target.prepare() == ""


def test_a_source_that_does_not_answer(pair: Pair) -> None:
    pair.relay.to = None
    with pytest.raises(Refused, match="newer data of disk vda than the storage has: no other"):
        pair.target.prepare()
    assert pair.source.kernel.tag.mode is spec.Mode.WRITEBACK
    # A start of a domain that comes from nowhere needs no answer.
    assert pair.target.start_domain() == ""
    pair.target.look()
    assert pair.target.kernel.tag.mode is spec.Mode.WRITEBACK


def test_a_domain_that_requests_nothing_does_not_wait(pair: Pair) -> None:
    pair.target.arrivals.begin(dataclasses.replace(GOLD, extra_specs={"vcache:mode": "none"}))
    assert not pair.target.moves.with_role(*Role)
    pair.target.arrivals.begin(dataclasses.replace(GOLD, extra_specs={"vcache:mode": "bad"}))
    assert pair.target.moves.with_role(Role.ARRIVING)


def test_dirty_data_of_an_earlier_stay_is_never_accepted(pair: Pair) -> None:
    pair.target.kernel.dirty, pair.target.kernel.stuck = 8192, True
    with pytest.raises(Refused, match="8 KiB that are not on its storage, from an earlier stay"):
        pair.target.prepare(1.0)


def test_a_device_whose_cache_cannot_be_disabled(pair: Pair) -> None:
    pair.target.kernel.mode = spec.Mode.WRITETHROUGH
    with pytest.raises(Refused, match="is in mode writethrough, so the agent cannot disable"):
        pair.target.prepare(1.0)


def test_a_migration_that_is_cancelled(pair: Pair) -> None:
    source, target = pair.source, pair.target
    assert target.prepare() == ""
    target.end()
    assert not target.moves.with_role(*Role)
    source.departures.saw(VM, Sight(True, True))
    source.look()
    assert source.kernel.tag.mode is spec.Mode.WRITETHROUGH
    until(lambda: source.departures.saw(VM, Sight(True, False)) is None
          and not source.moves.with_role(*Role))
    source.look()
    assert source.kernel.tag.mode is spec.Mode.WRITEBACK


def test_a_domain_that_starts_before_its_outdated_cache_is_empty(pair: Pair) -> None:
    source = pair.source
    assert pair.target.prepare() == ""
    source.worker.stop()  # nobody empties it
    source.kernel.tag = dataclasses.replace(source.kernel.tag, cached_bytes=1 << 20)
    source.inventory.ended(VM)
    source.moves.ended(VM)
    with pytest.raises(Refused, match="may have outdated data: "):
        source.start_domain(0.2)
    assert source.moves.with_role(Role.LEFT), "it must not be forgotten by that"


def test_data_that_was_on_its_way_to_the_cache_is_waited_for(
        pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = [(0, ""), (4096, "disk vda is being written"), (0, ""), (0, "")]
    monkeypatch.setattr(pair.source.departures, "_left", lambda _: looks.pop(0))
    assert pair.source.departures.ask(Question(VM, PATIENCE)).ready
    assert not looks, "one look is not enough"


def test_only_a_running_domain_leaves(pair: Pair) -> None:
    for domain in (uuid(2), VM):
        with pytest.raises(NotHere, match="does not run on this host"):
            pair.target.departures.ask(Question(domain, 1.0))
        pair.target.inventory.told(GOLD, Phase.PREPARING)
    assert not pair.target.moves.with_role(*Role)


def test_what_does_not_arrive_is_forgotten(pair: Pair, tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    late = Side(tmp_path / "c", 5.0, expire=0.0)
    late.moves.arrive(VM)
    late.arrivals.saw(VM, active=True, landed=False)
    assert late.moves.with_role(Role.ARRIVING)
    until(lambda: late.arrivals.saw(VM, active=False, landed=False) is None
          and not late.moves.with_role(Role.ARRIVING))
    late.store.close()


class Libvirt:
    """Replaces a connection and its only domain."""

    def __init__(self) -> None:
        self.status = (libvirt.VIR_DOMAIN_RUNNING, 1)
        self.job: dict[str, Any] = {"type": libvirt.VIR_DOMAIN_JOB_NONE}
        self.error: int | None = None

    def lookupByUUIDString(self, _uuid: str) -> "Libvirt":  # noqa: N802
        if self.error is not None:
            error = libvirt.libvirtError("x")
            error.err = (self.error,)
            raise error
        return self

    def isActive(self) -> bool:  # noqa: N802
        return True

    def state(self) -> tuple[int, int]:
        return self.status

    def jobStats(self) -> dict[str, Any]:  # noqa: N802
        return self.job


OUT = {"type": libvirt.VIR_DOMAIN_JOB_UNBOUNDED,
       "operation": libvirt.VIR_DOMAIN_JOB_OPERATION_MIGRATION_OUT}


@pytest.mark.parametrize(("status", "job", "found"), [
    ((libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_RUNNING_BOOTED), {}, (True, False, False)),
    ((libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_RUNNING_BOOTED), OUT, (True, False, True)),
    ((libvirt.VIR_DOMAIN_RUNNING, 1), OUT | {"operation": libvirt.VIR_DOMAIN_JOB_OPERATION_BACKUP},
     (True, False, False)),
    ((libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_USER), {}, (True, False, False)),
    ((libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_MIGRATION), {}, (True, True, False)),
    ((libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_STARTING_UP), {}, (True, True, False)),
    ((libvirt.VIR_DOMAIN_SHUTOFF, 0), {}, (True, True, False))])
def test_states_of_libvirt(status: tuple[int, int], job: dict[str, Any],
                           found: tuple[bool, bool, bool]) -> None:
    connection = Libvirt()
    connection.status, connection.job = status, connection.job | job
    assert sights._state(connection, VM) == found


def test_libvirt_is_asked_about_the_domains_that_move(pair: Pair) -> None:
    source, target = pair.source, pair.target
    both = [Sights(side.moves, side.departures, side.arrivals) for side in (source, target)]
    connection = Libvirt()
    connection.error = libvirt.VIR_ERR_INTERNAL_ERROR
    for one in both:
        one.look(connection)  # nothing moves
    assert target.prepare() == ""
    with pytest.raises(libvirt.libvirtError):
        both[0].look(connection)
    connection.error = None
    connection.status = (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_MIGRATION)
    for one in both:
        one.look(connection)
    assert source.moves.with_role(Role.LEAVING) and target.moves.with_role(Role.ARRIVING)
    connection.status = (libvirt.VIR_DOMAIN_RUNNING, 1)
    both[1].look(connection)
    assert not target.moves.with_role(*Role)
    connection.error = libvirt.VIR_ERR_NO_DOMAIN
    both[0].look(connection)
    assert source.moves.with_role(Role.LEFT) or not source.moves.with_role(*Role)


def admin(**parts: Any) -> AdminServer:
    return AdminServer(SimpleNamespace(**parts))  # type: ignore[arg-type]


def test_a_question_on_the_admin_socket(pair: Pair) -> None:
    server = admin(departures=pair.source.departures)

    def asked(**fields: Any) -> dict[str, Any]:
        question = {"op": "migration", **encode_question(Question(VM, PATIENCE)), **fields}
        found: dict[str, Any] = json.loads(server.handle(json.dumps(question).encode()))
        return found

    assert parse_answer(asked()["answer"], VM).ready
    assert pair.source.told == [f"instance {VM} is about to leave: all its data is on its storage"]
    assert asked(domain=uuid(2))["kind"] == "not-here"
    assert "question about a migration: seconds 'x'" in asked(seconds="x")["error"]


def test_the_thread_of_libvirt_looks_twice_a_second(
        pair: Pair, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
        caplog: pytest.LogCaptureFixture) -> None:
    seen: list[float] = []
    watch = LibvirtWatch("test:///default", pair.source.inventory, 3600.0, lambda: None, tmp_path,
                         SimpleNamespace(look=lambda _: seen.append(time.monotonic())))  # type: ignore[arg-type]
    for _ in range(3):
        watch._look(None)
    assert len(seen) == 1
    watch._next_look = 0.0
    watch._look(None)
    assert len(seen) == 2

    def full(_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(watch, "_sights", SimpleNamespace(look=full))
    watch._next_look = 0.0
    watch._look(None)
    assert "cannot record a migration" in caplog.text
