# SPDX-License-Identifier: Apache-2.0
"""The agent: its threads, and the connections between them.

::

    hook ──► hook server ──┐
                           ├─► inventory ──► worker ──► kernel
    libvirt ──► watch ─────┘                 ▲   └──► store
    kernel ──► event listener ───────────────┘
    vcache ──► admin server ──► store, worker
    hook, relay ──► migration ──► worker
    vssds ──► channels of guests, kernel
    kernel ──► observer ──► samples ──► metrics server, admin server, recorder
                               └──► drive watch ──► drives with tags

No code that a hook waits for calls libvirt, starts a program or looks up a path of a
disk: helper processes do that (locate_pool.py). Only the worker changes tags.
"""

import contextlib
import dataclasses
import fcntl
import grp
import importlib.metadata
import os
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from oslo_config import cfg
from oslo_log import log as logging

from vcache_agent import admin_server, hook_server, owners, pools, tags
from vcache_agent.admission import Host, admit
from vcache_agent.blockstack import BlockStack
from vcache_agent.decide import division, steady
from vcache_agent.decide.restraint import Means
from vcache_agent.dm import Dm, DmError
from vcache_agent.drive.watch import DriveWatch
from vcache_agent.events import EventLog, kind_of
from vcache_agent.inventory import Inventory
from vcache_agent.libvirt_watch import LibvirtWatch
from vcache_agent.locate import Located
from vcache_agent.locate_pool import Urgency
from vcache_agent.metrics.collector import AgentCollector, State
from vcache_agent.metrics.pool_watch import PoolWatch
from vcache_agent.metrics.server import MetricsServer
from vcache_agent.migration.arrivals import Arrivals, Policy
from vcache_agent.migration.departures import Departures
from vcache_agent.migration.moves import Moves
from vcache_agent.migration.sights import Sights
from vcache_agent.model import DeviceNumber, DiskId, DiskSource, Domain, Owner, Phase
from vcache_agent.netlink import spec
from vcache_agent.netlink.client import Client, EventListener
from vcache_agent.netlink.errors import NetlinkError
from vcache_agent.observe.claim import Claim, PoolSize
from vcache_agent.observe.observer import Observer
from vcache_agent.observe.recorder import Recorder
from vcache_agent.observe.sample import Sample
from vcache_agent.outcome_events import Journal
from vcache_agent.plan.state import Nesting
from vcache_agent.reservations import Present, Reservations
from vcache_agent.store import Store, StoreError
from vcache_agent.swapdata import DataSettings
from vcache_agent.unix_server import UnixServer
from vcache_agent.volumes import Volumes
from vcache_agent.vssd.manager import Steering, Vssds
from vcache_agent.worker import Settings, Worker

LOG = logging.getLogger(__name__)

# Seconds between two attempts to listen while the module is not loaded, and lifetime of a
# listener: a reloaded module has another family number.
_LISTEN_RETRY = 5.0
_LISTEN_AGAIN = 60.0
# Shortest time in seconds between two passes because of buffer pressure, which may last.
_PRESSURE_PAUSE = 1.0

# Log level and text of the kernel's events.
_EVENTS = {
    spec.EventKind.PRESSURE: (logging.DEBUG, "writes waited for space in its buffer"),
    spec.EventKind.ORIGIN_ERROR: (
        logging.ERROR, "a write to the origin failed; the data stays buffered"),
    spec.EventKind.ORIGIN_OK: (logging.WARNING, "writes to the origin work again"),
    spec.EventKind.EXTENTS_LOST: (logging.WARNING, "the kernel dropped its extents"),
    spec.EventKind.TAGS_LOST: (
        logging.WARNING, "its origin refused a tagged command; the device uses FUA until the "
        "agent has enabled the origin's tags again"),
    spec.EventKind.CACHE_LOST: (logging.ERROR, "its cache device has failed"),
    spec.EventKind.CACHE_ERROR: (logging.WARNING, "a read of its cache device failed"),
}
# Those that need a pass.
_WORK = frozenset({spec.EventKind.PRESSURE, spec.EventKind.EXTENTS_LOST,
                   spec.EventKind.TAGS_LOST, spec.EventKind.CACHE_LOST})


class AlreadyRunning(Exception):
    """Another agent uses the same store."""


class NoSuchGroup(Exception):
    """The group of the socket for volumes does not exist."""


class Agent:
    """All parts of the agent.

    :param conf: with the options of conf.py
    :raises AlreadyRunning: if another agent uses the same store
    :raises StoreError: if the store cannot be opened
    :raises NoSuchGroup: if the group of the socket for volumes does not exist
    :raises AddressError: if the address of the metrics is not valid
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        state = Path(conf.agent.state_path)
        state.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = _lock(state.with_suffix(".lock"))
        self._stopping = threading.Event()
        self._netlink_timeout = conf.agent.netlink_timeout
        self.events = EventLog()
        self.journal = Journal(self.events)
        self._prepare_timeout = conf.agent.prepare_timeout
        self.store = Store(state, heal=True)
        self.inventory = Inventory(conf.agent.prepare_grace)
        self.moves = Moves(state.parent / "moves",
                           copied=conf.migration.writethrough == "all")
        self.worker = Worker(self.inventory, self.store, Settings(
            refresh_interval=conf.agent.refresh_interval,
            forget_after=conf.agent.forget_after,
            netlink_timeout=conf.agent.netlink_timeout,
            run_dir=Path(conf.libvirt.run_dir), policy=conf.agent.policy,
            swap_after=conf.agent.swap_after, maps=state.parent / "maps",
            swap=_swap(conf),
            locate_timeout=conf.agent.locate_timeout,
            extents_per_disk=conf.agent.extents_per_disk, shares=_shares(conf),
            nesting=Nesting(conf.policy.nested, conf.policy.project_weights)),
            self.journal.passed, lambda: self.observer.survey, self.moves)
        self.departures = Departures(self.moves, self.inventory, self.store, self.worker,
                                     grace=conf.migration.grace, kernel=self._client,
                                     tell=self._tell_migration)
        self._arrivals = Arrivals(
            self.moves, self.store, self.worker, _arrival_policy(conf), kernel=self._client,
            tell=self._tell_migration)
        self._recorder = Recorder(Path(conf.observe.record_path), conf.observe.record_mb << 20) \
            if conf.observe.record_path else None
        self.observer = Observer(self._netlink_timeout, self._record,
                                 survey_period=conf.policy.period)
        self._pools = PoolWatch()
        self._drives = DriveWatch(lambda: self.observer.ring.newest,
                                  set_weights=conf.drives.weights)
        self._sizes: dict[str, PoolSize] = {}
        self.reservations = Reservations(self._promised)
        self._metrics = MetricsServer(conf.metrics.listen, AgentCollector(
            self._state, importlib.metadata.version("nova-vcache"), conf.metrics.instance_labels))
        self.watch = LibvirtWatch(conf.libvirt.uri, self.inventory, conf.libvirt.list_interval,
                                  self._look, Path(conf.libvirt.run_dir),
                                  Sights(self.moves, self.departures, self._arrivals))
        self.volumes = Volumes(self.store, self.worker.settle, state.with_suffix(".attach"),
                               kernel=self._client)
        self.vssds = Vssds(
            self._domains, self.events, conf.vssd.deadline,
            steering=Steering(self._described, conf.policy.period)
            if conf.vssd.policy == "weighted" else None)
        callbacks = hook_server.Callbacks(self._prepare, self._running, self._ended,
                                          self._arriving)
        admin = admin_server.AdminServer(self, self.volumes.operations)
        self._servers = [
            UnixServer(Path(conf.agent.hook_socket),
                       lambda request: hook_server.handle(request, callbacks),
                       request_bytes=hook_server.REQUEST_BYTES, seconds=hook_server.SECONDS),
            UnixServer(Path(conf.agent.admin_socket), admin.handle,
                       request_bytes=admin_server.REQUEST_BYTES, seconds=admin_server.SECONDS,
                       group=os.getegid() or None)]
        if conf.volumes.group:
            self._servers.append(UnixServer(
                Path(conf.volumes.socket), admin.handle_volumes, group=_group(conf.volumes.group),
                request_bytes=admin_server.REQUEST_BYTES, seconds=admin_server.SECONDS))
        self._events = threading.Thread(target=self._listen, name="events", daemon=True)

    def start(self) -> None:
        """Start all threads."""
        if self._recorder:
            self._recorder.start()
        self.observer.start()
        self.worker.start()
        self.volumes.start()
        self.vssds.start()
        for server in self._servers:
            server.start()
        self.watch.start()
        self._events.start()
        self._pools.start()
        self._drives.start()
        self._metrics.start()

    def stop(self) -> None:
        """Stop all threads. The kernel keeps the tags, and I/O continues."""
        self._stopping.set()
        # All of them are stopped, whichever fails.
        with contextlib.ExitStack() as last_first:
            last_first.callback(os.close, self._lock)
            last_first.callback(self.store.close)
            if self._recorder:
                last_first.callback(self._recorder.stop)
            last_first.callback(self.observer.stop)
            last_first.callback(self.worker.stop)
            last_first.callback(self.volumes.stop)
            last_first.callback(self.vssds.stop)
            last_first.callback(self.watch.stop)
            for server in reversed(self._servers):
                last_first.callback(server.stop)
            last_first.callback(self._pools.stop)
            last_first.callback(self._drives.stop)
            last_first.callback(self._metrics.stop)

    def _domains(self) -> list[Domain]:
        """Return the running domains."""
        return [entry.domain for entry in self.inventory.snapshot().entries
                if entry.phase is Phase.RUNNING]

    def _client(self) -> Client:
        return Client(self._netlink_timeout)

    def _tell_migration(self, text: str) -> None:
        LOG.info("%s", text)
        self.events.add("migration", text)

    def _record(self, sample: Sample) -> None:
        """Record a sample; runs in the observer's thread."""
        if self._recorder is None:
            return
        self._recorder.add(self.described(sample) if sample.curves else sample)

    def _described(self) -> Sample | None:
        """Return the newest survey with claims and all pools; None: there is none yet."""
        survey = self.observer.survey
        if survey is None:
            return None
        # The planner knows only pools with tags, and their sizes only for some policies.
        return dataclasses.replace(self.described(survey), pools=tuple(
            PoolSize(row["device"], row["size_bytes"]) for row in self._pools.rows))

    def described(self, survey: Sample) -> Sample:
        """Return a survey with the claims and the pools of the last pass."""
        plan = self.worker.outcome.plan
        if plan is None:
            return survey
        return dataclasses.replace(survey, claims=plan.pools.claims, pools=plan.pools.sizes)

    def _state(self) -> State:
        """Return the state for the metrics; runs in a thread of the metrics server."""
        return State(
            sample=self.observer.ring.newest, outcome=self.worker.outcome,
            passes=self.journal.counts, passed=self.journal.ended, events=self.events.counts,
            gaps=self.observer.gaps, sample_seconds=self.observer.seconds,
            record_dropped=self._recorder.dropped if self._recorder else 0,
            pools=self._pools.rows, drives=self._drives.readings, store_problem=self.store.problem,
            pass_seconds=self.worker.cpu_seconds)

    def _arriving(self, domain: Domain, _at: float | None) -> None:
        """Begin to receive a domain of another host; runs in a thread of the hook server."""
        self.watch.wake()
        self._arrivals.begin(domain)

    def _prepare(self, domain: Domain, at: float | None) -> str:
        """Decide whether a domain may start; runs in a thread of the hook server."""
        began = time.monotonic()
        self.watch.wake()
        try:
            note = admit(domain, self._host(began + self._prepare_timeout, self._unsaved(domain)))
            self.inventory.told(domain, Phase.PREPARING, at)
        except BaseException:
            self.reservations.release(domain.uuid)
            raise
        self.reservations.settle(domain.uuid)
        self.worker.kick()
        other = self._arrivals.prepare(
            domain, began + max(self._prepare_timeout, self._arrivals.wait))
        return "; ".join(text for text in (note, other) if text)

    def _unsaved(self, domain: Domain) -> str:
        """Return why new disks of a domain get no tag, because of the store, or nothing."""
        self.store.check()
        if not self.store.problem:
            return ""
        known = self.store.disks()
        new = [disk.target for disk in domain.disks if not disk.readonly
               and DiskId(domain.uuid, disk.target) not in known]
        return f"disk {', '.join(new)}: no tag: {self.store.problem}" if new else ""

    def _promised(self) -> Present:
        """Return what is promised already, from the last pass; for the reservations."""
        plan = self.worker.outcome.plan
        sizes = self._sizes | {row["device"]: PoolSize(row["device"], row["size_bytes"],
                                         tuple(row["lanes_bytes"])) for row in self._pools.rows}
        alive = {entry.domain.uuid for entry in self.inventory.snapshot().entries}
        if plan is None:
            return Present({}, alive, sizes)
        # The planner knows more: lanes that other tags have.
        sizes |= {pool.number: pool for pool in plan.pools.sizes if pool.size and pool.lanes}
        owners = {report.key: report.state.domain.uuid for report in plan.disks if report.key}
        claims: dict[str, list[Claim]] = defaultdict(list)
        for claim in plan.pools.claims:
            claims[owners.get(claim.key, "")].append(claim)
        return Present(claims, alive, sizes)

    def _host(self, deadline: float, problem: str) -> Host:
        """Return the capabilities of this host.

        :param deadline: monotonic time until which the disks must be located
        :param problem: a problem that is known already, or empty
        """
        if problem:
            return Host(_nowhere, 0, problem)
        timeout = min(self._netlink_timeout, max(0.01, deadline - time.monotonic()))
        try:
            with Client(timeout) as client:
                devices = client.devices()
        except NetlinkError as error:
            return Host(_nowhere, 0, str(error.strerror))
        locator, stack = self.worker.locator, BlockStack(devices)

        def locate(disks: Sequence[DiskSource]) -> list[Located]:
            # A path that was used before may have another file now.
            tickets = locator.ask((disk.path for disk in disks if disk.path), extents=False,
                                  fresh=True, urgency=Urgency.HOOK)
            return [locator.locate(disk.kind, disk.path, stack, extents=False, deadline=deadline,
                                   ticket=tickets.get(disk.path or "")) for disk in disks]

        return Host(locate, spec.TAG_MAX - len(self.store.numbers() - {tags.HOST_TAG}),
                    devices={device.number: device for device in devices},
                    reserve=self._reserve, managed=self._managed())

    def _managed(self) -> frozenset[DeviceNumber]:
        """Return the devices of managed volumes, as of the last pass."""
        plan = self.worker.outcome.plan
        return frozenset(report.device for report in (plan.disks if plan else ())
                         if report.device is not None
                         and report.state.domain.owner is Owner.VOLUME)

    def _reserve(self, domain: str, claims: Sequence[Claim]) -> list[str]:
        """Reserve the claims of a domain; see reservations.py."""
        watched = {row["device"] for row in self._pools.rows}
        unknown = {claim.pool for claim in claims} - watched - self._sizes.keys()
        if unknown:
            # A pool that was created just now.
            with contextlib.suppress(DmError), Dm() as dm:
                self._sizes |= {
                    number: PoolSize(number, pool.chunks * pool.chunk_bytes, tuple(pool.lanes))
                    for number, pool in pools.by_number(dm, unknown).items()}
        return self.reservations.reserve(domain, claims)

    def _look(self) -> None:
        self.worker.kick()

    def _running(self, domain: Domain, at: float | None) -> None:
        self.inventory.told(domain, Phase.RUNNING, at)
        self.worker.kick()

    def _ended(self, domain: Domain, at: float | None) -> None:
        if self.inventory.ended(domain.uuid, at):
            self.moves.ended(domain.uuid)
        self.worker.kick()

    def _listen(self) -> None:
        """Receive the kernel's events until the agent stops."""
        while not self._stopping.is_set():
            try:
                with EventListener() as listener:
                    self._follow(listener)
            except NetlinkError as error:
                LOG.debug("netlink events: %s", error.strerror)
                self._stopping.wait(_LISTEN_RETRY)
            except OSError as error:
                LOG.warning("netlink events: %s", error)
                self._stopping.wait(_LISTEN_RETRY)

    def _follow(self, listener: EventListener) -> None:
        again = time.monotonic() + _LISTEN_AGAIN
        pressure = 0.0
        # Events may have been lost while nothing listened.
        self._disown()
        while not self._stopping.is_set() and time.monotonic() < again:
            for kind, device, tag in listener.receive(1.0):
                pressing = kind is spec.EventKind.PRESSURE
                if pressing and time.monotonic() <= pressure:
                    continue
                self._log(kind, device, tag)
                if kind is spec.EventKind.CACHE_LOST:
                    self._disown()
                if pressing:
                    # An image may be growing: writes to new blocks have the host tag
                    # until a pass has read the new extents.
                    pressure = time.monotonic() + _PRESSURE_PAUSE
                if kind in _WORK:
                    self.worker.kick(fresh=kind is spec.EventKind.EXTENTS_LOST)

    def _log(self, kind: spec.EventKind, device: DeviceNumber, tag: int) -> None:
        """Log an event of the kernel."""
        level, text = _EVENTS[kind]
        sample = self.observer.ring.newest
        known = sample.by_key.get((device, tag)) if sample else None
        self.events.add(kind_of(kind), text, device=device, tag=tag,
                        disk=known.name if known else "")
        LOG.log(level, "device %s tag %d: %s", device, tag, text)

    def _disown(self) -> None:
        """Record which device has which volume.

        No outdated data may be read if a failed cache works again later.
        """
        try:
            with Dm() as dm:
                owners.note_attached(dm, self.store)
                gone = owners.disown_bypassed(dm, self.store)
        except (OSError, sqlite3.Error) as error:
            LOG.warning("cannot check for failed caches: %s", error)
            return
        for name, pool, volume in gone:
            LOG.error("device %s continues without its cache; its data in pool %s is outdated. If "
                      "the cache device works again, run 'vcache pool drop %s %d --force'", name,
                      pool, pool, volume)


def _shares(conf: cfg.ConfigOpts) -> division.Settings:
    """Return the settings of the policies that divide pools."""
    return division.Settings(
        steps=steady.Settings(gain=conf.policy.hysteresis, step=conf.policy.step),
        means=tuple(dict.fromkeys(map(Means, conf.policy.slo_means))))


def _swap(conf: cfg.ConfigOpts) -> DataSettings:
    folder = conf.agent.swap_dir or Path(conf.agent.state_path).parent / "swap"
    return DataSettings(Path(folder), conf.agent.swap_mb << 20, conf.agent.swap_rate_mb << 20,
                        conf.agent.swap_volumes)


def downgrade_store(conf: cfg.ConfigOpts) -> str:
    """Convert the store for the previous agent; return a message.

    :raises AlreadyRunning: if an agent uses the store
    :raises StoreError: if there is no store, or it cannot be opened
    """
    state = Path(conf.agent.state_path)
    if not state.exists():
        raise StoreError(f"{state} does not exist")
    lock = _lock(state.with_suffix(".lock"))
    try:
        return f"{state} has schema version {Store(state).downgrade()} now"
    finally:
        os.close(lock)


def _arrival_policy(conf: cfg.ConfigOpts) -> Policy:
    group = conf.migration
    return Policy(Path(group.relay_socket) if group.relay_socket else None, group.wait,
                  group.unanswered == "accept", conf.agent.prepare_grace)


def _group(name: str) -> int:
    """Return the id of a group.

    :raises NoSuchGroup: if there is none of that name
    """
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise NoSuchGroup(f"[volumes] group {name!r}: this host has no such group") from None


def _nowhere(*_: object) -> NoReturn:
    raise AssertionError("admit() must not locate disks when the host has a problem")


def _lock(path: Path) -> int:
    """Lock the state directory against a second agent; the lock ends with the process."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise AlreadyRunning(f"{path} is locked: another vcache-agent is running") from None
    return fd
