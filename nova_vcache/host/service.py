# SPDX-License-Identifier: Apache-2.0
"""vcache-host: report the agent's state to vcache-api and Placement, and forward changes.

::

    agent's admin socket ◄── queries ──► reports ──► vcache-api (cast to all its processes)
             ▲                 └───────► reporter ──► Placement
             └── RPC server ◄── vcache-api

There are three threads: one queries the agent, one updates Placement, which can be slow,
and oslo.messaging's. The service stores nothing. If one thread fails, the others continue.
A further socket relays the agent's questions about migrations to other hosts (relay.py).
"""

import dataclasses
import logging
import os
import random
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import oslo_messaging as messaging
from oslo_config import cfg

from nova_vcache.host import conf as host_conf
from nova_vcache.host.keeper import Keeper
from nova_vcache.host.relay import SECONDS, Relay
from nova_vcache.host.view import HostView, silent
from nova_vcache.placement.client import Client
from nova_vcache.placement.reporter import Reporter
from nova_vcache.rpc import host_side
from nova_vcache.rpc.api_side import ApiClient
from nova_vcache.rpc.errors import AgentUnavailable, InstanceNotHere, Refused
from nova_vcache.rpc.report import HostReport
from vcache_agent.admin_client import (
    AdminDenied,
    AdminError,
    AgentNotRunning,
    NotHere,
    Unfinished,
    ask,
)
from vcache_agent.migration.messages import MESSAGE_BYTES
from vcache_agent.unix_server import UnixServer

LOG = logging.getLogger(__name__)

# Seconds for a change without a deadline, which comes from an older vcache-api: less than the
# default of its rpc_timeout.
_CHANGE_SECONDS = 20.0


class Host:
    """The state of one host. Thread-safe.

    :param node: name of the compute node
    :param ask_agent: sends a request to the agent, with a time limit in seconds, like
        :func:`vcache_agent.admin_client.ask`
    :param tell: sends a report to the API; may raise MessagingException
    :param agent_timeout: time limit of a request to the agent in seconds
    :param report_interval: seconds between two periodic reports
    :param details_interval: seconds between two of them with details; 0: all have details
    """

    def __init__(self, node: str, ask_agent: Callable[[dict[str, Any], float], dict[str, Any]],
                 tell: Callable[[HostReport], None], *, agent_timeout: float = 5.0,
                 report_interval: float = 10.0, details_interval: float = 60.0) -> None:
        self.node = node
        self._ask = ask_agent
        self._tell = tell
        self._agent_timeout = agent_timeout
        self._report_interval = report_interval
        self._details_interval = details_interval
        self._lock = threading.Lock()
        self._view: HostView | None = None
        self._looked = 0.0
        self._drain_total: int | None = None
        self._problem = "the agent has not been queried yet"
        self._told: HostReport | None = None
        self._told_at = 0.0
        self._details_due = 0.0
        self._bus_problem = ""
        self._boot_id = str(uuid.uuid4())
        self._sequence = self._base = 0

    def look(self) -> HostView | None:
        """Query the agent; return its answer, or None if there is no valid one."""
        asked = time.monotonic()
        try:
            answer = self._ask({"op": "host"}, self._agent_timeout)
            view = HostView(self.node, answer)
        except AdminError as error:
            problem = str(error)
        except (LookupError, TypeError, ValueError) as error:
            problem = f"the agent's answer is invalid: {error!r}"
        else:
            with self._lock:
                self._view, self._looked = view, asked
                left = view.drain_left_bytes
                self._drain_total = None if left is None else max(left, self._drain_total or 0)
            self._note(view.problem)
            return view
        self._note(problem)
        return None

    def report(self) -> HostReport:
        """Return a report of the current state."""
        with self._lock:
            if self._view is None:
                return silent(self.node, self._problem)
            return self._view.report(time.monotonic() - self._looked, self._problem,
                                     self._drain_total)

    def stamp(self, report: HostReport, *, to_all: bool = False) -> HostReport:
        """Return a report with the fields by which a receiver finds out how old it is.

        :param to_all: it goes to all processes of the API
        """
        with self._lock:
            self._sequence += 1
            if to_all and report.details:
                self._base = self._sequence
            return dataclasses.replace(report, boot_id=self._boot_id, sequence=self._sequence,
                                       base=self._base, sent_at=time.time())

    def tell(self, *, always: bool = False) -> None:
        """Send a report to the API, if one is due or an important value has changed.

        :param always: send it in any case, with details
        """
        report, now = self.report(), time.monotonic()
        details = always or now >= self._details_due or _differs(report, self._told)
        if not details and now - self._told_at < self._report_interval:
            return
        try:
            self._tell(self.stamp(report if details else report.without_details(), to_all=True))
        except messaging.MessagingException as error:
            if not self._bus_problem:
                LOG.warning("cannot report to vcache-api, because the message bus is not "
                            "reachable: %s; retrying with each report", error)
            self._bus_problem = str(error)
            return
        if self._bus_problem:
            LOG.info("the message bus is reachable again")
        self._bus_problem = ""
        self._told_at = now
        if details:
            # Jitter, so that hosts that started together do not send all details together.
            self._told = report
            self._details_due = now + self._details_interval * random.uniform(  # noqa: S311
                0.8, 1.2)

    def change(self, request: dict[str, Any], deadline: float | None = None) -> HostReport:
        """Send a change to the agent; return a report of the new state.

        Nothing is changed after the deadline, because vcache-api has then answered already.

        :param deadline: by time.monotonic(), which the agent shares; None: a default
        :raises InstanceNotHere: if the instance is not on this host
        :raises AgentUnavailable: if the agent is not running or cannot apply the change
        :raises Refused: if the agent rejects the change
        """
        now = time.monotonic()
        if deadline is None:
            deadline = now + _CHANGE_SECONDS
        if deadline <= now:
            raise AgentUnavailable(
                f"host {self.node}: nothing is changed: the request arrived after its deadline; "
                "the message bus is slow, or the clocks of the hosts differ")
        try:
            self._ask({**request, "deadline": deadline}, deadline - now)
        except NotHere as error:
            raise InstanceNotHere(str(error)) from None
        except (AgentNotRunning, AdminDenied, Unfinished) as error:
            raise AgentUnavailable(str(error)) from None
        except AdminError as error:
            raise Refused(str(error)) from None
        self.look()
        self.tell()
        return self.stamp(self.report())

    def query(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the agent's answer to a query.

        :raises InstanceNotHere: if the instance is not on this host
        :raises AgentUnavailable: if the agent does not answer, or is too old for the query
        """
        try:
            return self._ask(request, self._agent_timeout)
        except NotHere as error:
            raise InstanceNotHere(str(error)) from None
        except AdminError as error:
            raise AgentUnavailable(f"host {self.node}: {error}") from None

    def _note(self, problem: str) -> None:
        if problem != self._problem and problem:
            LOG.warning("%s: %s", self.node, problem)
        elif problem != self._problem:
            LOG.info("%s: the agent answers", self.node)
        with self._lock:
            self._problem = problem


def _differs(now: HostReport, told: HostReport | None) -> bool:
    """Return True if the API should get a report at once.

    That is if instances, their extra specs, modes, states or options have changed. Other
    figures wait for the next periodic report.
    """
    return told is None or _outline(now) != _outline(told)


def _outline(report: HostReport) -> tuple[Any, ...]:
    return (report.problem, report.policy, report.draining, report.summary.modes,
            report.summary.cache_mb,
            [(pool.name, pool.state, pool.reads_percent, pool.hot_percent)
             for pool in report.pools],
            [(item.uuid, item.phase, item.specs, item.problem) for item in report.instances])


def _deadline(context: Mapping[str, Any]) -> float | None:
    """Return the deadline of a call by time.monotonic(); None: it has none."""
    until, seconds = context.get("deadline"), context.get("seconds")
    if not isinstance(until, int | float) or not isinstance(seconds, int | float):
        return None
    # The clock of the other host may be ahead of this one.
    return time.monotonic() + min(until - time.time(), seconds)


class Endpoint:
    """RPC endpoint for vcache-api and other hosts; see rpc/host_side.py for the versions.

    :param relay: takes questions about migrations; None: they are ignored
    """

    target = messaging.Target(version=host_side.VERSION)

    def __init__(self, host: Host, relay: Relay | None = None) -> None:
        self._host = host
        self._relay = relay

    def report_now(self, _context: Mapping[str, Any]) -> None:
        """Send the current report to the API."""
        self._host.tell(always=True)

    @messaging.expected_exceptions(InstanceNotHere, AgentUnavailable, Refused)
    def instance_set(self, context: Mapping[str, Any], uuid: str, values: dict[str, Any],
                     replace: bool) -> dict[str, Any]:
        """Override values of an instance's flavor."""
        return self._host.change({"op": "instance-set", "uuid": uuid, "values": values,
                                  "replace": replace}, _deadline(context)).to_json()

    @messaging.expected_exceptions(AgentUnavailable, Refused)
    def host_set(self, context: Mapping[str, Any], values: dict[str, Any]) -> dict[str, Any]:
        """Set the policy of the host's pools, or start or stop draining the host."""
        unknown = sorted(values.keys() - {"policy", "draining"})
        if unknown or not values:
            raise Refused(f"{unknown[0]!r} is unknown, must be one of policy, draining" if unknown
                          else "the request is empty, must have one of policy, draining")
        deadline = _deadline(context)
        if "policy" in values:
            self._host.change({"op": "policy-set", "policy": values["policy"]}, deadline)
        if "draining" in values:
            self._host.change({"op": "drain-set", "draining": values["draining"]}, deadline)
        return self._host.stamp(self._host.report()).to_json()

    @messaging.expected_exceptions(AgentUnavailable, Refused)
    def pool_set(self, context: Mapping[str, Any], pool: str,
                 values: dict[str, Any]) -> dict[str, Any]:
        """Change options of an active pool."""
        return self._host.change({"op": "pool-set", "pool": pool, "values": values},
                                 _deadline(context)).to_json()

    @messaging.expected_exceptions(InstanceNotHere, AgentUnavailable)
    def instance_curves(self, _context: Mapping[str, Any], uuid: str) -> list[dict[str, Any]]:
        """Return the miss-ratio curves of an instance's disks."""
        found: list[dict[str, Any]] = self._host.query(
            {"op": "instance-curves", "uuid": uuid})["curves"]
        return found

    @messaging.expected_exceptions(InstanceNotHere, AgentUnavailable)
    def instance_why(self, _context: Mapping[str, Any], uuid: str) -> list[dict[str, Any]]:
        """Return the reasons of the decisions about an instance's disks."""
        found: list[dict[str, Any]] = self._host.query(
            {"op": "instance-why", "uuid": uuid})["disks"]
        return found

    def migration_ask(self, _context: Mapping[str, Any], node: str, number: str,
                      question: dict[str, Any]) -> None:
        """Answer a question about a migration, if the instance runs here."""
        if self._relay:
            self._relay.ask(node, number, question)

    def migration_answer(self, _context: Mapping[str, Any], number: str,
                         answer: dict[str, Any]) -> None:
        """Take the answer to a question of this host."""
        if self._relay:
            self._relay.answer(number, answer)


class Service:
    """All threads of vcache-host.

    :param conf: with the options of conf.py
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        group = conf[host_conf.GROUP]
        path = Path(group.admin_socket)
        node = host_conf.node_name(conf)
        transport = messaging.get_rpc_transport(conf, allowed_remote_exmods=host_side.EXMODS)
        api = ApiClient(transport, group.rpc_api_cap)
        self.host = Host(
            node, lambda request, seconds: ask(path, request, seconds),
            api.report, agent_timeout=group.agent_timeout, report_interval=group.report_interval,
            details_interval=group.details_interval if api.can_beat() else 0.0)
        peers = host_side.PeerClient(transport)
        relay = Relay(node, lambda request, seconds: ask(path, request, seconds), peers.ask,
                      peers.answer)
        client = Client(host_conf.load_placement(conf))
        self._keeper = Keeper(Reporter(client, node), interval=group.placement_interval,
                              close_after=group.close_after)
        self._look_interval = group.look_interval
        self._server = messaging.get_rpc_server(
            transport, messaging.Target(topic=host_side.TOPIC, server=node),
            [Endpoint(self.host, relay)])
        self._relay = UnixServer(
            Path(group.relay_socket), relay.handle, request_bytes=MESSAGE_BYTES,
            seconds=SECONDS, group=os.getegid() or None) if group.relay_socket else None
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._look, name="look"),
                         threading.Thread(target=self._keeper.run, name="placement",
                                          args=(self._stopping,))]

    def start(self) -> None:
        """Start all threads; the message bus may be unreachable."""
        for thread in self._threads:
            thread.start()
        if self._relay:
            self._relay.start()
        self._server.start()

    def stop(self) -> None:
        """Stop all threads. Placement keeps the host's inventory."""
        self._stopping.set()
        self._keeper.wake()
        if self._relay:
            self._relay.stop()
        self._server.stop()
        for thread in self._threads:
            thread.join()

    def _look(self) -> None:
        while not self._stopping.is_set():
            try:
                self._keeper.seen(self.host.look())
                self.host.tell()
            except Exception:
                # Catch everything: the next attempt may succeed.
                LOG.exception("cannot query the agent")
            self._stopping.wait(self._look_interval)
