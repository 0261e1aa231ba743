# SPDX-License-Identifier: Apache-2.0
"""The requests of the admin socket: JSON, for the ``vcache`` command and vcache-host.

A request is ``{"op": NAME, ...}``, the answer ``{"ok": true, ...}`` or
``{"ok": false, "error": TEXT, "kind": KIND}``; see :data:`.admin_client.KINDS`.

A request for a change may have a ``deadline``, a time of ``time.monotonic()``. Whoever sent it
does not wait any longer, so a change that would begin later is refused.
"""

import dataclasses
import json
import math
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from oslo_log import log as logging

from nova_vcache import extra_specs
from nova_vcache.extra_specs import InvalidExtraSpecs
from vcache_agent import pools, recent, report, view, why
from vcache_agent.admin_client import KINDS, AdminError, NotHere, Unfinished
from vcache_agent.curves import Curves
from vcache_agent.curves import points as curve_points
from vcache_agent.dm import Dm, DmError
from vcache_agent.migration.messages import BadMessage, encode_answer, parse_question
from vcache_agent.model import TAG_MODES, Device, DeviceNumber, Tag
from vcache_agent.netlink import spec
from vcache_agent.netlink.client import Client
from vcache_agent.netlink.errors import NetlinkError
from vcache_agent.observe import codec
from vcache_agent.overrides import NONE
from vcache_agent.plan.state import DiskReport, PoolDecision
from vcache_agent.policies import POLICIES
from vcache_agent.store import SETTINGS, is_refusal
from vcache_agent.vssd.manager import VssdError

if TYPE_CHECKING:
    from vcache_agent.service import Agent
    from vcache_agent.worker import Outcome

LOG = logging.getLogger(__name__)

Operation = Callable[[dict[str, Any]], dict[str, Any]]
Operations = Mapping[str, Operation]

REQUEST_BYTES = 64 << 10
#: Seconds to receive a request, and to send its answer.
SECONDS = 5.0
_LANE = "([0-9]|[1-5][0-9]|6[0-3])"
_LANES = re.compile(f"{_LANE}(,{_LANE})*")


def _refusal(error: AdminError) -> dict[str, Any]:
    """Return the answer for a request that failed."""
    kind = next((name for name, found in KINDS.items() if isinstance(error, found)), "")
    return {"ok": False, "error": str(error), "kind": kind}


def _deadline(fields: dict[str, Any]) -> float:
    """Return the deadline of a request, by time.monotonic(); infinity: it has none."""
    found = fields.get("deadline", math.inf)
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise AdminError(f"deadline {str(found)[:40]!r} must be a number")
    return float(found)


def _pool_bytes(device: Device | None) -> int | None:
    """Return the size of a device's pool; None: it has none, or its size is unknown."""
    if device is None or not device.pool:
        return None
    try:
        with Dm() as dm:
            pool = pools.by_number(dm, [device.pool]).get(device.pool)
    except DmError:
        return None
    return pool.chunks * pool.chunk_bytes if pool else None


class AdminServer:
    """Executes the requests.

    :param agent: the agent to query and to change
    :param volumes: the operations for managed volumes, by name
    """

    def __init__(self, agent: "Agent", volumes: Operations = MappingProxyType({})) -> None:
        self._agent = agent
        self._override_lock = threading.Lock()
        self._curves = Curves()
        self._volumes = volumes
        self._operations: dict[str, Operation] = {
            "state": self._state, "tag-set": self._tag_set, "reconcile": self._reconcile,
            "policy-set": self._policy_set, "host": self._host,
            "instance-set": self._instance_set, "drain-set": self._drain_set,
            "pool-set": self._pool_set, "events": self._events, "why": self._why,
            "migration": self._migration, "claims": self._claims,
            "instance-curves": self._instance_curves, "instance-why": self._instance_why,
            "vssds": self._vssds, "vssd-set": self._vssd_set,
            **volumes}

    def handle_volumes(self, request: bytes) -> bytes:
        """Execute a request of the socket for volumes, which has only those operations."""
        return self._handle(request, self._volumes)

    def handle(self, request: bytes) -> bytes:
        """Execute one request and return its answer, both as JSON."""
        return self._handle(request, self._operations)

    def _handle(self, request: bytes, operations: Operations) -> bytes:
        try:
            answer = {"ok": True, **self._dispatch(request, operations)}
        except AdminError as error:
            answer = _refusal(error)
        except Exception as error:
            LOG.exception("admin request failed")
            answer = _refusal(Unfinished(f"internal error of the agent: {error!r}"))
        return json.dumps(answer).encode()

    def _dispatch(self, request: bytes, operations: Operations) -> dict[str, Any]:
        try:
            fields = json.loads(request)
        except (ValueError, RecursionError):
            raise AdminError("the request is not JSON") from None
        name = fields.get("op") if isinstance(fields, dict) else None
        operation = operations.get(name) if isinstance(name, str) else None
        if operation is None or not isinstance(name, str):
            known = ", ".join(operations)
            raise AdminError(f"op {str(name)[:40]!r} is unknown, must be one of {known}")
        if time.monotonic() >= _deadline(fields):
            raise Unfinished("nothing is changed: the request arrived after its deadline")
        try:
            answer = operation(fields)
        except Unfinished:
            self._note(name, fields)  # the setting is saved
            raise
        except sqlite3.DatabaseError as error:
            if not is_refusal(error):
                self._agent.worker.kick()  # a pass replaces a damaged file
            raise Unfinished(f"nothing is changed: the agent's state file: {error}") from None
        self._note(name, fields)
        return answer

    def _note(self, name: str, fields: dict[str, Any]) -> None:
        """Add an event if a request has changed a setting."""
        if name.endswith(("-set", "-put", "-drain", "-delete")):
            self._agent.events.add("setting", f"{name}: " + json.dumps(
                {key: value for key, value in fields.items()
                 if key not in ("op", "deadline")})[:400])

    def _state(self, _fields: dict[str, Any]) -> dict[str, Any]:
        outcome, devices, tags, problem = self._look()
        return {
            **view.kernel(devices, tags), **self._common(outcome, problem),
            "disks": view.disks(outcome, tags), "orphans": view.orphans(outcome),
            "swapped": view.swapped(outcome)}

    def _host(self, _fields: dict[str, Any]) -> dict[str, Any]:
        outcome, devices, tags, problem = self._look()
        now = time.monotonic()
        start = self._agent.observer.ring.start_of(recent.PERIOD, now)
        return {**self._common(outcome, problem), **report.host(
            outcome, self._agent.store, devices, tags, recent.lately(tags, now, start),
            self._curves.update(tags, now),
            newest.lanes if (newest := self._agent.observer.ring.newest) else (),
            self._agent.vssds.known())}

    def _events(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Return the events after a number.

        ``log`` and ``after`` are those of the previous answer. After a restart of the agent
        the log is another one, and all its events are new.
        """
        after, log = fields.get("after", 0), self._agent.events
        if type(after) is not int or after < 0:
            raise AdminError(f"after {str(after)[:40]!r} must be an integer of at least 0")
        restarted = fields.get("log") not in (None, log.id)
        found, lost = log.after(0 if restarted else after)
        return {"log": log.id, "lost": lost, "restarted": restarted,
                "next": found[-1].sequence if found else 0 if restarted else after,
                "events": [dataclasses.asdict(event) for event in found]}

    def _claims(self, _fields: dict[str, Any]) -> dict[str, Any]:
        """Return the claims and the pools of the last pass, for a recording."""
        plan = self._agent.worker.outcome.plan
        divided = plan.pools if plan else PoolDecision()
        return {"claims": [codec.encode_part(claim) for claim in divided.claims],
                "pools": [codec.encode_part(pool) for pool in divided.sizes]}

    def _why(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Explain the decisions about a tag; ``device`` is needed if several have it."""
        number, device = fields.get("tag"), fields.get("device")
        if type(number) is not int or not 1 <= number <= spec.TAG_MAX:
            raise AdminError(f"tag {number!r} must be an integer from 1 to {spec.TAG_MAX}")
        outcome, devices, tags, problem = self._look()
        if problem:
            raise Unfinished(f"the state of the tags is unknown: {problem}")
        reports = [item for item in (outcome.plan.disks if outcome.plan else ())
                   if item.tag == number and item.device]
        found = {tag.device for tag in tags if tag.id == number}
        found |= {item.device for item in reports if item.device}
        wanted = [at for at in sorted(found) if device in (None, str(at))]
        if not wanted:
            raise NotHere(f"no device has a tag {number}" if device is None else
                          f"device {str(device)[:40]!r} has no tag {number}")
        if len(wanted) > 1:
            raise AdminError(f"tag {number} is on several devices, name one of "
                             + ", ".join(map(str, wanted)))
        return {"why": why.explain(number, self._inputs(
            number, wanted[0], outcome, devices, tags))}

    def _instance_why(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Explain the decisions about all disks of an instance that have a tag."""
        outcome, devices, tags, reports = self._disks_of(fields)
        return {"disks": [
            {"disk": item.state.source.target, "tag": item.tag, **{
                name: value for name, value in why.explain(item.tag, self._inputs(
                    item.tag, item.device, outcome, devices, tags)).items()
                if name in ("device_name", "policy", "pool_bytes", "decisions", "notes")}}
            for item in reports if item.tag is not None and item.device is not None]}

    def _instance_curves(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Return the miss-ratio curves of an instance's disks that have cached data.

        They are at most a minute old: however often they are requested, the kernel computes
        them once a minute.
        """
        _outcome, _devices, tags, reports = self._disks_of(fields)
        curves = self._curves.update(tags, time.monotonic())
        found = {(tag.device, tag.id): tag for tag in tags}
        return {"curves": [
            {"disk": item.state.source.target, "reads": curve.reads, "writes": curve.writes,
             "footprint_bytes": curve.footprint, "cached_bytes": found[item.key].cached_bytes,
             "share_bytes": found[item.key].cache_share_bytes,
             "points": curve_points(curve)}
            for item in reports if item.key and (curve := curves.get(item.key))]}

    def _disks_of(self, fields: dict[str, Any]) -> tuple[
            "Outcome", list[Device], list[Tag], list[DiskReport]]:
        """Return the result of the last pass, devices, tags, and the disks of an instance."""
        outcome, devices, tags, problem = self._look()
        if problem:
            raise Unfinished(f"the state of the tags is unknown: {problem}")
        uuid = fields.get("uuid")
        known = {entry.domain.uuid for entry in outcome.snapshot.entries}
        if not isinstance(uuid, str) or uuid not in known:
            raise NotHere(f"instance {str(uuid)[:40]!r} is not on this host")
        return outcome, devices, tags, [item for item in (outcome.plan.disks if outcome.plan
                                        else ()) if item.state.domain.uuid == uuid]

    def _inputs(self, number: int, at: DeviceNumber, outcome: "Outcome", devices: list[Device],
                tags: list[Tag]) -> why.Inputs:
        """Collect the inputs of the decisions about a tag."""
        store = self._agent.store
        row = next((row for row in store.disks().values() if row.tag == number), None)
        device = next((item for item in devices if item.number == at), None)
        plan = outcome.plan.disks if outcome.plan else ()
        divided = outcome.plan.pools if outcome.plan else PoolDecision()
        return why.Inputs(
            reports=tuple(item for item in plan if item.key == (at, number)),
            share=divided.shares.get((at, number)),
            known=divided.history.tags.get((at, number)),
            nesting=self._agent.worker.nesting,
            missed=divided.history.missed.get((at, number), ()),
            key=(at, number), restraints=outcome.restraints,
            device=device,
            tag=next((tag for tag in tags if (tag.device, tag.id) == (at, number)), None),
            operator=why.Operator(row.weight, row.mode, row.lanes) if row else why.Operator(),
            overrides={uuid: item.given for uuid, item in store.overrides().items()},
            draining=store.draining(), policy=self._agent.worker.policy,
            pool_bytes=_pool_bytes(device), error=outcome.errors.get((at, number), ""))

    def _look(self) -> tuple["Outcome", list[Device], list[Tag], str]:
        """Return the result of the last pass, the kernel's devices and tags, and the problem.

        The problem is why the devices and tags are unknown, or empty.
        """
        outcome = self._agent.worker.outcome
        try:
            with Client() as client:
                return outcome, client.devices(), client.tags(), outcome.problem
        except NetlinkError as error:
            return outcome, [], [], str(error.strerror)

    def _common(self, outcome: "Outcome", problem: str) -> dict[str, Any]:
        return {
            "agent": {"problem": problem, "libvirt": outcome.snapshot.complete,
                      "domains": outcome.snapshot.instances},
            "policy": {"name": self._agent.worker.policy,
                       "set": self._agent.store.policy() is not None}}

    def _instance_set(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Override values of an instance's flavor.

        The keys of ``values`` are from :data:`nova_vcache.extra_specs.OVERRIDABLE`. With
        ``replace``, values that are not in it return to those of the flavor.
        """
        uuid, values = fields.get("uuid"), fields.get("values")
        if not isinstance(values, dict):
            raise AdminError(f"values {str(values)[:40]!r} must be an object")
        try:
            extra_specs.check_override(values)
        except InvalidExtraSpecs as error:
            raise AdminError(str(error)) from None
        store = self._agent.store
        known = {entry.domain.uuid for entry in self._agent.worker.outcome.snapshot.entries}
        known |= {disk.domain for disk in store.disks()}
        if not isinstance(uuid, str) or uuid not in known:
            raise NotHere(f"instance {str(uuid)[:40]!r} is not on this host")
        # Serialize: of two concurrent requests for different values one would be lost.
        with self._override_lock:
            old = NONE if fields.get("replace") else store.overrides().get(uuid, NONE)
            override = dataclasses.replace(old, **values)
            store.set_override(uuid, override)
        self._run_pass(fields)
        return {"override": override.given}

    def _drain_set(self, fields: dict[str, Any]) -> dict[str, Any]:
        draining = fields.get("draining")
        if not isinstance(draining, bool):
            raise AdminError(f"draining {str(draining)[:40]!r} must be true or false")
        self._agent.store.set_draining(draining)
        self._run_pass(fields)
        return {}

    def _migration(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Answer the question of a host to which an instance is about to migrate."""
        try:
            question = parse_question(fields)
        except BadMessage as error:
            raise AdminError(f"question about a migration: {error}") from None
        return {"answer": encode_answer(self._agent.departures.ask(question))}

    def _tag_set(self, fields: dict[str, Any]) -> dict[str, Any]:
        tag, weight = fields.get("tag"), fields.get("weight")
        if type(tag) is not int or not 1 <= tag <= spec.TAG_MAX:
            raise AdminError(f"tag {tag!r} must be an integer from 1 to {spec.TAG_MAX}")
        if weight is not None and (type(weight) is not int or not 1 <= weight <= spec.WEIGHT_MAX):
            raise AdminError(f"weight {weight!r} must be an integer from 1 to {spec.WEIGHT_MAX}, "
                             "or null for the weight of the flavor")
        mode = fields.get("mode")
        if mode is not None and mode not in TAG_MODES:
            raise AdminError(f"mode {mode!r} must be one of {', '.join(TAG_MODES)}, or null for "
                             "the mode of the flavor")
        lanes = fields.get("lanes")
        if lanes is not None and not (isinstance(lanes, str) and _LANES.fullmatch(lanes)):
            raise AdminError(f"lanes {lanes!r} must be numbers from 0 to 63, separated by commas, "
                             "or null for none")
        # Fields that are not in the request keep their value. A request without any of
        # the three fields clears the weight.
        values = {name: fields[name] for name in SETTINGS if name in fields} or {"weight": None}
        known = self._agent.store.set_tag(tag, values)
        if not known:
            raise AdminError(f"tag {tag} does not belong to a disk")
        self._run_pass(fields)
        return {}

    def _policy_set(self, fields: dict[str, Any]) -> dict[str, Any]:
        name = fields.get("policy")
        if name is not None and (not isinstance(name, str) or name not in POLICIES):
            raise AdminError(f"policy {str(name)[:40]!r} must be one of {', '.join(POLICIES)}, or "
                             "null for the configured one")
        self._agent.store.set_policy(name)
        self._run_pass(fields)
        return {}

    def _pool_set(self, fields: dict[str, Any]) -> dict[str, Any]:
        name, values = fields.get("pool"), fields.get("values")
        if not isinstance(name, str) or not name:
            raise AdminError(f"pool {str(name)[:40]!r} must be the name of a pool")
        if not isinstance(values, dict) or not values:
            raise AdminError(f"values must be an object with some of {', '.join(pools.TUNABLE)}")
        for key, value in values.items():
            if key not in pools.TUNABLE:
                raise AdminError(f"{key[:40]!r} is not an option of a pool, must be one of "
                                 f"{', '.join(pools.TUNABLE)}")
            if type(value) is not int or not 0 <= value <= 100:
                raise AdminError(f"{key} {str(value)[:40]!r} must be an integer from 0 to 100")
        try:
            with Dm() as dm:
                return {"done": pools.tune(dm, name, values)}
        except pools.PoolError as error:
            raise AdminError(str(error)) from None
        except DmError as error:
            raise Unfinished(f"pool {name}: {error.strerror}") from None

    def _vssds(self, _fields: dict[str, Any]) -> dict[str, Any]:
        """Return what is known about the guests of elastic SSDs."""
        try:
            return {"guests": self._agent.vssds.guests()}
        except DmError as error:
            raise Unfinished(f"elastic SSDs: {error.strerror}") from None

    def _vssd_set(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Give an elastic SSD another size; the guest has to give up blocks if it is smaller."""
        name, size, seconds = fields.get("name"), fields.get("size"), fields.get("seconds")
        if not isinstance(name, str):
            raise AdminError(f"name {str(name)[:40]!r} must be the name of an elastic SSD")
        if type(size) is not int or not 0 <= size < 1 << 63:
            raise AdminError(f"size {str(size)[:40]!r} must be a number of bytes")
        if seconds is not None and type(seconds) not in (int, float):
            raise AdminError(f"seconds {str(seconds)[:40]!r} must be a number, or null for the "
                             "configured deadline")
        try:
            return {"size": self._agent.vssds.resize(name, size, seconds)}
        except VssdError as error:
            raise AdminError(str(error)) from None
        except DmError as error:
            raise Unfinished(f"elastic SSD {name}: {error.strerror}") from None

    def _reconcile(self, _fields: dict[str, Any]) -> dict[str, Any]:
        asked = time.monotonic()
        self._agent.watch.refresh()
        limit = asked + SECONDS
        # Without libvirt, the pass uses the last known list of domains.
        while not self._agent.inventory.listed_since(asked) and time.monotonic() < limit:
            time.sleep(0.02)
        self._run_pass({}, fresh=True)
        return {"libvirt": self._agent.inventory.listed_since(asked)}

    def _run_pass(self, fields: dict[str, Any], fresh: bool = False) -> None:
        """Apply a change that is saved, until the deadline of its request."""
        self._agent.worker.settle(fresh, _deadline(fields) - time.monotonic())
