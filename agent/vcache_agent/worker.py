# SPDX-License-Identifier: Apache-2.0
"""The worker thread, which alone changes tags: observe, decide, apply, in a loop."""

import dataclasses
import math
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from oslo_log import log as logging

from nova_vcache.extra_specs import ExtraSpecs, Isolation, Mode
from vcache_agent import cgroups, managed, policies, pools, restraints, settled, swap
from vcache_agent.admin_client import Unfinished
from vcache_agent.admission import specs_of
from vcache_agent.blockstack import BlockStack
from vcache_agent.decide import division
from vcache_agent.decide.history import History, seeded
from vcache_agent.dm import Dm, DmError
from vcache_agent.inventory import Entry, Inventory, Snapshot
from vcache_agent.kernel import Executor
from vcache_agent.locate import Located, Locator, Ticket
from vcache_agent.mapfile import MapFolder
from vcache_agent.migration import emptying
from vcache_agent.migration.moves import Moves, Role
from vcache_agent.model import (
    NO_LIMITS,
    Device,
    DeviceNumber,
    DiskId,
    DiskSource,
    DiskState,
    Layer,
    Owner,
    Phase,
    Tag,
)
from vcache_agent.netlink import spec
from vcache_agent.netlink.bulk import TagDecoder
from vcache_agent.netlink.client import Client
from vcache_agent.netlink.errors import NetlinkError
from vcache_agent.nvme import Drives
from vcache_agent.observe.sample import Sample
from vcache_agent.overrides import Adjust
from vcache_agent.plan.actions import TagKey
from vcache_agent.plan.decide import decide
from vcache_agent.plan.state import Nesting, Observed, Plan
from vcache_agent.records import DiskRow, LayerRow, RowChanges
from vcache_agent.restraints import InForce, Restrainer
from vcache_agent.store import Store, StoreError, is_refusal
from vcache_agent.swapdata import DataSettings

LOG = logging.getLogger(__name__)

# Attempts of one pass. The kernel refuses extents that still belong to another tag, which
# may release them in the same pass.
_CLAIM_PASSES = 3
# Longest time to wait for a pass, shortest time between two passes, and the time while a change
# is expected, in seconds.
_PASS_SECONDS = 20.0
_PAUSE = 0.05
_SOON = 0.5
# Patience for the locations of disks that are not known yet, in multiples of the timeout: a
# path that hangs then counts as hanging before the wait ends. In the first pass nothing is
# known, and the kernel may have tags of all disks.
_TIMEOUTS = 1.2
_FIRST_TIMEOUTS = 10
# Data of stopped instances that is in a file stays in the cache, too, while this part of its
# pool is free.
_ROOMY = 4


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of the worker; see conf.py. Times are in seconds.

    :param maps: directory of the lists of cached blocks of stopped disks
    :param swap: copies of the data of stopped disks
    :param locate_timeout: time after which a path counts as hanging
    :param extents_per_disk: maximum number of extents of an image
    :param shares: settings of the policies that divide pools
    :param nesting: how shares are nested
    """

    refresh_interval: float
    forget_after: float
    netlink_timeout: float
    run_dir: Path
    policy: str = policies.DEFAULT
    swap_after: float = 600.0
    maps: Path = Path("/var/lib/vcache/maps")
    swap: DataSettings = dataclasses.field(default_factory=DataSettings)
    locate_timeout: float = 1.0
    extents_per_disk: int = 16384
    shares: division.Settings = dataclasses.field(default_factory=division.Settings)
    nesting: Nesting = dataclasses.field(default_factory=Nesting)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The result of the last pass.

    :param plan: the plan; None if the pass failed before there was one
    :param problem: why the pass failed or is not complete, or empty
    :param errors: error texts of failed actions, by device and tag
    :param cgroup_notes: why the cgroup of a domain is unknown, by UUID
    :param cgroup_paths: cgroups of domains, by UUID
    :param located: where the disks are, by UUID and target
    :param restraints: the limits of neighbours
    """

    plan: Plan | None = None
    snapshot: Snapshot = dataclasses.field(
        default_factory=lambda: Snapshot((), False, None))
    problem: str = "the first pass is not complete yet"
    errors: dict[TagKey, str] = dataclasses.field(default_factory=dict)
    cgroup_notes: dict[str, str] = dataclasses.field(default_factory=dict)
    cgroup_paths: dict[str, str] = dataclasses.field(default_factory=dict)
    swapped: tuple[swap.Swapped, ...] = ()
    located: dict[DiskId, Located] = dataclasses.field(default_factory=dict)
    restraints: tuple[InForce, ...] = ()


class Worker:
    """Keeps the kernel's tags as the domains in the inventory require.

    :param inventory: the domains
    :param store: the agent's persistent state
    :param listener: called with the previous and the new result after each pass
    :param survey: returns the newest sample with curves; None: there is none yet
    :param moves: the migrations; None: there are none
    """

    def __init__(self, inventory: Inventory, store: Store, settings: Settings,
                 listener: Callable[[Outcome, Outcome], None] = lambda *_: None,
                 survey: Callable[[], Sample | None] = lambda: None,
                 moves: Moves | None = None) -> None:
        self._inventory = inventory
        self._survey = survey
        self._history: History | None = None
        self._listener = listener
        self._store = store
        self._settings = settings
        self._moves = moves
        self.locator = Locator(settings.locate_timeout, self.kick,
                               most=settings.extents_per_disk)
        self._executor = Executor()
        self._decoder = TagDecoder()
        self._drives = Drives(self.kick)
        self._maps = MapFolder(settings.maps)
        self._swapper = swap.Swapper(self._maps, data=settings.swap)
        self._restrainer = Restrainer(store)
        self._wake = threading.Condition()
        self._asked = 0
        self._done = 0
        self._fresh = False
        self._stopping = False
        self._said: set[str] = set()
        self._settled: settled.Inputs | None = None
        self._below: frozenset[DeviceNumber] = frozenset()
        self._until = 0.0
        self._outcome = Outcome()
        #: Processor time of all passes in seconds.
        self.cpu_seconds = 0.0
        self._thread = threading.Thread(target=self._run, name="worker", daemon=True)

    @property
    def outcome(self) -> Outcome:
        """The result of the last pass."""
        return self._outcome

    @property
    def policy(self) -> str:
        """The name of the active policy."""
        # The store may name a policy that only a newer agent has.
        found = self._store.policy()
        return found if found is not None and found in policies.POLICIES else self._settings.policy

    @property
    def nesting(self) -> Nesting:
        """How shares are nested."""
        return self._settings.nesting

    def start(self) -> None:
        """Start the thread, and those that locate disks."""
        self.locator.start()
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread after its current pass; wait for it at most `netlink_timeout`."""
        with self._wake:
            self._stopping = True
            self._wake.notify_all()
        self.locator.stop()
        self._thread.join(self._settings.netlink_timeout)

    def kick(self, fresh: bool = False) -> int:
        """Request a pass; return its number, for :meth:`wait`.

        :param fresh: read all extents again, even of files that have not changed
        """
        with self._wake:
            self._asked += 1
            self._fresh |= fresh
            self._wake.notify_all()
            return self._asked

    def wait(self, number: int, seconds: float) -> bool:
        """Wait until a requested pass is complete.

        :param number: the result of :meth:`kick`
        :param seconds: time limit
        :return: False if the time limit expired
        """
        with self._wake:
            return self._wake.wait_for(lambda: self._done >= number, seconds)

    def settle(self, fresh: bool = False, within: float = math.inf) -> None:
        """Run a pass, and wait until it is complete.

        :param fresh: see :meth:`kick`
        :param within: longest time to wait in seconds; never more than 20
        :raises Unfinished: if it fails, or is not complete within that time
        """
        seconds = max(0.0, min(_PASS_SECONDS, within))
        if not self.wait(self.kick(fresh), seconds):
            raise Unfinished("the change is saved, but was not applied to the kernel within "
                             f"{seconds:.3g} s; it will be, as soon as the kernel answers")
        if self.outcome.problem:
            raise Unfinished("the change is saved, but cannot be applied to the kernel: "
                             f"{self.outcome.problem}")

    def _run(self) -> None:
        interval = 0.0
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._stopping or self._asked > self._done, interval)
                if self._stopping:
                    break
                periodic = self._asked == self._done
                asked, fresh, self._fresh = self._asked, self._fresh, False
            problem = ""
            try:
                interval = self._pass(fresh, periodic)
            except NetlinkError as error:
                problem = str(error.strerror)
            except sqlite3.DatabaseError as error:
                problem = self._repaired(error)
            except Exception as error:  # the next pass may succeed
                problem = f"reconcile failed: {error!r}"
                LOG.exception("reconcile failed")
            if problem:
                interval = self._failed(problem)
            self.cpu_seconds = time.thread_time()
            with self._wake:
                self._done = max(self._done, asked)
                self._wake.notify_all()
            time.sleep(_PAUSE)
        self._release()

    def _release(self) -> None:
        """Remove the limits of neighbours: without an agent, nobody would."""
        try:
            self._restrainer.release()
        except Exception:
            LOG.exception("limits of neighbours stay until the next start of the agent")

    def _repaired(self, error: sqlite3.DatabaseError) -> str:
        """Replace the store if it is damaged; return the problem of this pass."""
        try:
            if self._store.repair():
                self.kick()
        except StoreError as second:
            return str(second)
        return f"the store failed: {error}"

    def _publish(self, outcome: Outcome) -> None:
        before, self._outcome = self._outcome, outcome
        self._listener(before, outcome)

    def _failed(self, problem: str) -> float:
        snapshot = self._inventory.snapshot()
        self._publish(Outcome(snapshot=snapshot, problem=problem,
                              restraints=self._outcome.restraints))
        self._say([problem])
        return self._settings.refresh_interval

    def _pass(self, fresh: bool, periodic: bool = False) -> float:
        """Observe, decide and apply once; return the seconds until the next pass.

        :param periodic: nothing has asked for this pass
        """
        with Client(self._settings.netlink_timeout, self._decoder) as client:
            inputs = self._inputs(client)
            if periodic and inputs == self._settled and time.time() < self._until:
                self._publish(self._outcome)
                return self._settings.refresh_interval
            self._settled = None
            for _ in range(_CLAIM_PASSES):
                snapshot = managed.added(self._inventory.snapshot(), self._store.managed())
                look = _Observation(self._settings.run_dir, self.locator, client.devices(),
                                    fresh,
                                    Adjust(self._store.overrides(), self._store.draining()),
                                    self._patience(), self._moves)
                disks, tags = tuple(look.disks(snapshot)), tuple(client.tags())
                with self._store.allocating:
                    plan, unsaved = self._decide(look, snapshot, disks, tags)
                claimed = self._executor.apply(
                    client, [action for action in plan.actions if action.tag not in unsaved])
                if not claimed:
                    break
                fresh = True
            refused = self._drives.use_tags(client, look.devices)
            swapping = self._swapper.step(client, self._swap_plan(look, plan, snapshot.complete))
            swapping |= self._empty(client, look.devices, plan, tags)
        limits = self._restrainer.step(restraints.wanted(
            plan.pools.history.restraints.active, plan.disks, look.devices, look.cgroup_paths))
        self._tend_overrides(snapshot)
        self._executor.forget_device({device.number for device in look.devices}.__contains__)
        self.locator.prune()
        problem = self._store.problem
        errors = dict.fromkeys(((action.device, action.tag) for action in plan.actions
                                if action.tag in unsaved), f"it has no tag: {problem}")
        self._publish(Outcome(plan, snapshot, problem, self._executor.errors | errors,
                              look.cgroup_notes, look.cgroup_paths, self._swapper.reports,
                              look.located, limits))
        failed = refused + self._swapper.problems + self._restrainer.problems
        self._say(_remarks(plan, look) + failed)
        changing = look.cgroup_notes or swapping or any(
            orphan.dirty_bytes for orphan in plan.orphans)
        if not (changing or failed or problem):
            self._settle(inputs, look)
        return min(_SOON, self._settings.refresh_interval) if changing \
            else self._settings.refresh_interval

    def _inputs(self, client: Client) -> settled.Inputs:
        """Return what a pass depends on."""
        devices = client.devices()
        divided = self._outcome.plan.pools.claims if self._outcome.plan else ()
        return settled.Inputs(
            self._inventory.snapshot(), *settled.without_counters(devices, client.tags()),
            settled.segments(BlockStack(devices), self._below), self.locator.version,
            self._store.version, self._moves.with_role(*Role) if self._moves else {},
            self._survey() if divided else None)

    def _settle(self, inputs: settled.Inputs, look: "_Observation") -> None:
        """Note after a pass what its inputs were, if it has done nothing.

        :param inputs: those at its beginning
        """
        self._below = frozenset(look.stack.asked)
        plan = self._outcome.plan
        if plan is not None and settled.rests(plan, inputs.moves, look.located.values(),
                                              self._outcome.swapped):
            self._settled = inputs
            self._until = settled.until(
                self._store.disks(), self._store.layers(), time.time(),
                self._settings.forget_after, self._settings.swap_after)

    def _decide(self, look: "_Observation", snapshot: Snapshot, disks: tuple[DiskState, ...],
                tags: tuple[Tag, ...]) -> tuple[Plan, frozenset[int]]:
        """Decide, and save the rows; return the plan and the tag numbers that are not saved."""
        rows, layers = self._store.disks(), self._store.layers()
        sized = policies.POLICIES[self.policy].sized
        found = look.pools() if sized or _pools_matter(disks, tags) else {}
        plan = decide(Observed(
            disks=disks, devices=look.devices, tags=tags, complete=snapshot.complete,
            defined=snapshot.defined, rows=rows, layers=layers,
            last_tag=self._store.last_tag(), applied=self._executor.applied,
            missing=self._missing((*rows.values(), *layers.values()), snapshot),
            now=time.time(), forget_after=self._settings.forget_after,
            policy=self.policy,
            pools={at: pool.chunks * pool.chunk_bytes for at, pool in found.items()},
            lanes={at: pool.lanes for at, pool in found.items()},
            survey=self._survey(), history=self._history or seeded(tags),
            settings=self._settings.shares, nesting=self._settings.nesting))
        self._history = plan.pools.history
        return plan, self._save(plan.rows, rows, layers)

    def _empty(self, client: Client, devices: tuple[Device, ...], plan: Plan,
               tags: tuple[Tag, ...]) -> bool:
        """Release what caches have of volumes that another host writes.

        :return: True if some of it is left
        """
        left = self._moves.with_role(Role.LEFT).keys() if self._moves else ()
        rows = managed.without(self._store.disks(), self._store.managed()) if left else {}
        running = {report.state.domain.uuid for report in plan.disks}
        if self._moves:
            for domain in emptying.gone(set(left) - running, devices, tags, rows):
                self._moves.remove(domain, Role.LEFT)
        return emptying.release(client, emptying.to_empty(plan.disks, devices, left, rows), tags)

    def _save(self, changes: RowChanges, disks: Mapping[DiskId, DiskRow],
              layers: Mapping[str, LayerRow]) -> frozenset[int]:
        """Save rows, before their actions, so that every tag in the kernel is also in the store.

        :param disks: the present rows
        :param layers: the present rows
        :return: tag numbers that the store refused, for example on a full disk
        """
        if not changes:
            self._store.check()
            return frozenset()
        try:
            self._store.update(changes)
        except sqlite3.OperationalError as error:
            if not is_refusal(error):
                raise
            return changes.new_numbers(disks, layers)
        return frozenset()

    def _tend_overrides(self, snapshot: Snapshot) -> None:
        """Delete the overrides of instances that no longer exist."""
        if not snapshot.complete or snapshot.defined is None:
            return
        known = snapshot.defined | {entry.domain.uuid for entry in snapshot.entries}
        try:
            self._store.tend_overrides(known, time.time(), self._settings.forget_after)
        except sqlite3.OperationalError as error:
            if not is_refusal(error):
                raise

    def _patience(self) -> float:
        """Return how long to wait for the locations of disks that are not known yet."""
        first = self._outcome.plan is None
        return self._settings.locate_timeout * (_FIRST_TIMEOUTS if first else _TIMEOUTS)

    def _missing(self, rows: Iterable[DiskRow | LayerRow], snapshot: Snapshot) -> frozenset[str]:
        """Return the host paths of released disks and layers that no longer exist.

        Only those matter whose domain libvirt no longer knows.
        """
        if not snapshot.complete or snapshot.defined is None:
            return frozenset()
        return frozenset(row.path for row in rows if row.released is not None
                         and row.domain not in snapshot.defined and row.path
                         and self.locator.missing(row.path))

    def _swap_plan(self, look: "_Observation", plan: Plan, complete: bool) -> swap.SwapPlan:
        """Plan the release and loading of cached blocks, from the updated store."""
        return swap.plan(self._store.disks(), self._store.layers(), look.devices, plan,
                         self._maps, self._maps.names(), complete=complete, now=time.time(),
                         after=self._settings.swap_after, roomy=look.roomy)

    def _say(self, remarks: list[str]) -> None:
        """Log the remarks that the previous call did not have."""
        for remark in remarks:
            if remark not in self._said:
                LOG.warning("%s", remark)
        self._said = set(remarks)


class _Observation:
    """One observation of domains, disks and cgroups.

    :param patience: seconds to wait for the locations of disks that are not known yet
    """

    def __init__(self, run_dir: Path, locator: Locator, devices: list[Device],
                 fresh: bool, adjust: Adjust, patience: float, moves: Moves | None) -> None:
        self.devices = tuple(devices)
        self.cgroup_notes: dict[str, str] = {}
        self.cgroup_paths: dict[str, str] = {}
        self.pool_notes: list[str] = []
        self._pools: dict[str, pools.Pool] | None = None
        self.located: dict[DiskId, Located] = {}
        self._run_dir = run_dir
        self._locator = locator
        self._fresh = fresh
        self._adjust = adjust
        self._moves = moves
        self._deadline = time.monotonic() + patience
        self.stack = BlockStack(devices)

    def disks(self, snapshot: Snapshot) -> Iterator[DiskState]:
        """Yield the state of each disk of each domain."""
        wanted = [(entry, *self._specs(entry)) for entry in snapshot.entries]
        # Ask for all at once, so that paths that hang do not add up.
        tickets = self._locator.ask(
            (path for entry, specs, problem in wanted
             if not problem and specs.mode is not Mode.NONE for source in entry.domain.disks
             for path in _paths(source)),
            fresh=self._fresh)
        for entry, specs, problem in wanted:
            cgroup = self._cgroup(entry) if specs.mode is not Mode.NONE else None
            limits = self._moves.limits(entry.domain.uuid) if self._moves else NO_LIMITS
            for source in entry.domain.disks:
                state = DiskState(entry.domain, source, specs, None, problem, cgroup,
                                  limits=limits)
                if problem:
                    yield state
                elif specs.mode is Mode.NONE:
                    yield dataclasses.replace(state,
                                              reason="its flavor does not request vcache")
                else:
                    yield self._placed(state, tickets)

    def _specs(self, entry: Entry) -> tuple[ExtraSpecs, str]:
        """Return the specs of a domain with its overrides, and why they are invalid."""
        specs, problem = specs_of(entry.domain.extra_specs)
        return self._adjust.specs(entry.domain.uuid, specs), problem

    def roomy(self, pool: str) -> bool:
        """Return True if a pool, by its device number, has enough free space."""
        if self._pools is None:
            self._pools = self.pools()
        found = self._pools.get(pool)
        return found is not None and found.free * _ROOMY >= found.chunks

    def pools(self) -> dict[str, pools.Pool]:
        """Return the pools of the devices, by device number."""
        used = {device.pool for device in self.devices} - {""}
        if not used:
            return {}
        try:
            with Dm() as dm:
                return pools.by_number(dm, used)
        except DmError as error:
            self.pool_notes = ["cannot read the sizes of the pools, which the policy and the lanes "
                               f"need: {error.strerror}"]
            return {}

    def _placed(self, state: DiskState, tickets: dict[str, Ticket]) -> DiskState:
        """Return a disk with the locations of its layers."""
        source = state.source
        found = self._locate(source.kind, source.path, tickets, readonly=source.readonly)
        self.located[DiskId(state.domain.uuid, source.target)] = found
        backing = () if source.readonly else tuple(self._layers(source, tickets))
        return dataclasses.replace(
            state, location=found.location, reason=found.problem,
            unknown=found.location is None and found.unknown, backing=backing)

    def _layers(self, source: DiskSource, tickets: dict[str, Ticket]) -> Iterator[Layer]:
        for layer in source.backing:
            if layer.path is None:
                continue  # on the network
            found = self._locate(layer.kind, layer.path, tickets)
            yield Layer(layer.path, found.location, found.location is None and found.unknown)

    def _locate(self, kind: str, path: str | None, tickets: dict[str, Ticket], *,
                readonly: bool = False) -> Located:
        return self._locator.locate(kind, path, self.stack, readonly=readonly,
                                    ticket=tickets.get(path or ""), deadline=self._deadline)

    def _cgroup(self, entry: Entry) -> int | None:
        if entry.phase is not Phase.RUNNING or entry.domain.owner is Owner.VOLUME:
            return None
        try:
            cgroup = cgroups.of_domain(entry.domain.name, self._run_dir)
        except cgroups.CgroupError as error:
            self.cgroup_notes[entry.domain.uuid] = str(error)
            return None
        self.cgroup_paths[entry.domain.uuid] = cgroup.path
        return cgroup.id


def _paths(source: DiskSource) -> Iterator[str]:
    """Yield the paths of a disk's layers that may be on this host."""
    if source.readonly:
        return
    layers = [(source.kind, source.path), *((one.kind, one.path) for one in source.backing)]
    yield from (path for kind, path in layers if path and kind in ("file", "block"))


def _pools_matter(disks: Iterable[DiskState], tags: Iterable[Tag]) -> bool:
    """Return True if a tag has dedicated lanes or may request some, or has an objective."""
    return any(tag.cache_lanes for tag in tags) or any(
        disk.specs.slo_read_us or disk.specs.slo_iops
        or disk.specs.isolation is Isolation.DEDICATED
        or (disk.specs.isolation is Isolation.AUTO and disk.specs.min_mb) for disk in disks)


def _remarks(plan: Plan, look: _Observation) -> list[str]:
    """Return the warnings of a pass for the log."""
    remarks = [f"device {device.name}: isolation=degraded, its origin has a volatile write cache "
               "and no FUA: flushes are device-wide"
               for device in look.devices if device.isolation == spec.Isolation.DEGRADED]
    remarks += [f"device {device.name}: writes to its origin {device.origin} fail"
                for device in look.devices if device.broken]
    remarks += [f"device {device.name}: I/O to its cache or its origin fails"
                for device in look.devices if device.cache_broken]
    remarks += look.cgroup_notes.values()
    remarks += look.pool_notes
    for report in plan.disks:
        asked = report.state.specs.mode is not Mode.NONE
        wrong = report.state.reason and not asked and report.state.domain.extra_specs
        # The reason of a disk with a tag: its location may be outdated.
        note = report.note or report.state.reason
        located = look.located.get(DiskId(report.state.domain.uuid, report.state.source.target))
        vssd = located is not None and located.vssd
        if note and (asked or wrong) and not (report.state.source.readonly or vssd):
            remarks.append(f"domain {report.state.domain.name} ({report.state.domain.uuid}) "
                           f"disk {report.state.source.target}: {note}")
    remarks += [f"orphaned tag {orphan.tag} ({orphan.name}): {orphan.reason}"
                for orphan in plan.orphans]
    return remarks
