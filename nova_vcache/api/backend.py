# SPDX-License-Identifier: Apache-2.0
"""The services for the handlers: the directory, RPC to hosts, and notifications.

The first request of a process starts the threads. WSGI servers fork after they have
loaded the application, and threads do not survive a fork.
"""

import logging
import os
import random
import socket
import threading
import time
from collections.abc import Mapping
from typing import Any

import oslo_messaging as messaging
from oslo_config import cfg

from nova_vcache.api import conf as api_conf
from nova_vcache.api.directory import Directory, node_of
from nova_vcache.host import conf as host_conf
from nova_vcache.placement import names
from nova_vcache.placement.client import Client
from nova_vcache.rpc import api_side, host_side
from nova_vcache.rpc.bounded import Bounded
from nova_vcache.rpc.errors import BusDown
from nova_vcache.rpc.host_side import HostClient
from nova_vcache.rpc.report import BadReport, HostReport

LOG = logging.getLogger(__name__)

# Longest time in seconds that a request takes for a notification.
_NOTIFY = 5.0


class Endpoint:
    """RPC endpoint for hosts; see nova_vcache/rpc/api_side.py for the versions."""

    target = messaging.Target(version=api_side.VERSION)

    def __init__(self, directory: Directory, hosts: HostClient) -> None:
        self._directory = directory
        self._hosts = hosts

    def report(self, _context: Mapping[str, Any], report: dict[str, Any]) -> None:
        """Store a host's report."""
        try:
            self._directory.took(HostReport.parse(report))
        except BadReport as error:
            LOG.warning("ignored an invalid report: %s", error)

    def beat(self, _context: Mapping[str, Any], report: dict[str, Any]) -> None:
        """Store a report without details; request one with details if they are missing."""
        try:
            found = HostReport.parse(report)
        except BadReport as error:
            LOG.warning("ignored an invalid report: %s", error)
            return
        if self._directory.beat(found):
            try:
                self._hosts.report_now({}, found.node)
            except BusDown as error:
                LOG.debug("cannot request a report of host %s: %s", found.node, error)

    def ping(self, _context: Mapping[str, Any]) -> None:
        """Answer."""


class Backend:
    """The backend of one process.

    :param conf: with the options of conf.py
    :param transport: replaces the configured message bus, for tests
    """

    def __init__(self, conf: cfg.ConfigOpts,
                 transport: messaging.Transport | None = None) -> None:
        self.conf = conf
        self._transport = transport
        self._group = conf[api_conf.GROUP]
        self._placement: Client | None = None
        self.directory = Directory(self._known, self._group.stale_after)
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._pid = self._started = 0
        self._bus_answered = 0.0
        self._hosts: HostClient | None = None
        self._notifier: Any = None
        self._bounded = Bounded()
        self._server: Any = None

    @property
    def max_limit(self) -> int:
        """Largest number of items in an answer."""
        return int(self._group.max_limit)

    @property
    def hosts(self) -> HostClient:
        """RPC client for the hosts; call :meth:`ready` first."""
        assert self._hosts is not None  # noqa: S101
        return self._hosts

    def ready(self) -> None:
        """Start the threads of this process once, and wait `first_wait` for reports."""
        if self._pid == os.getpid():
            return
        self._start_once()
        self.directory.wait(self._group.first_wait)
        self._pid = os.getpid()

    def bus_problem(self) -> str:
        """Return why the message bus is considered dead, or nothing; does not wait."""
        self._start_once()
        silence = time.monotonic() - self._bus_answered
        if not self._group.bus_timeout or silence <= self._group.bus_timeout:
            return ""
        return f"the message bus has not answered for {silence:.0f} s"

    def stop(self) -> None:
        """Stop the threads of :meth:`ready`; for tests."""
        self._stopping.set()
        if self._server is not None:
            self._server.stop()
            self._server.wait()

    def notify(self, context: Mapping[str, Any], event: str, payload: dict[str, Any]) -> None:
        """Emit a notification. Only log a failure, because the change itself is done."""
        try:
            self._bounded.call(_NOTIFY, lambda: self._notifier.info(dict(context), event, payload))
        except Exception:
            LOG.exception("cannot emit notification %s: %s", event, payload)

    def _start_once(self) -> None:
        with self._lock:
            if self._started != os.getpid():
                self._start()
                self._started = os.getpid()

    def _start(self) -> None:
        self._bus_answered = time.monotonic()
        transport = self._transport or messaging.get_rpc_transport(
            self.conf, allowed_remote_exmods=host_side.EXMODS)
        api_conf.set_messaging_defaults(self.conf)
        self._hosts = HostClient(transport, self._group.rpc_timeout, self._group.rpc_host_cap)
        name = socket.gethostname()
        self._notifier = messaging.Notifier(
            messaging.get_notification_transport(self.conf), f"vcache.{name}", retry=2)
        me = f"{name}.{os.getpid()}"
        self._server = messaging.get_rpc_server(
            transport, messaging.Target(topic=api_side.TOPIC, server=me),
            [Endpoint(self.directory, self._hosts)])
        threading.Thread(target=self._listen, args=(self._server, self._hosts),
                         name="vcache-listen", daemon=True).start()
        threading.Thread(target=self._open, args=(transport, me, self._hosts),
                         name="vcache-open", daemon=True).start()
        threading.Thread(target=self._refresh, name="vcache-hosts", daemon=True).start()

    def _listen(self, server: Any, hosts: HostClient) -> None:
        # If the message bus is down, this waits for it in its own thread.
        server.start()
        try:
            hosts.report_now({})
        except BusDown as error:
            LOG.warning("cannot request reports from the hosts: %s; waiting for their periodic "
                        "reports", error)

    def _open(self, transport: messaging.Transport, me: str, hosts: HostClient) -> None:
        # If the message bus is down, this waits for it in its own thread.
        while not self._stopping.is_set():
            try:
                hosts.open(lambda: api_side.ping(transport, me, self._group.rpc_timeout))
                break
            except messaging.MessagingException as error:
                LOG.warning("cannot change hosts yet: no answer from the message bus: %s", error)
                self._stopping.wait(1)
        self._watch(transport, me)

    def _watch(self, transport: messaging.Transport, me: str) -> None:
        """Ask the message bus periodically whether it still delivers."""
        pause = min(10.0, self._group.bus_timeout / 4) or 10.0
        self._bus_answered = time.monotonic()
        while not self._stopping.wait(pause * random.uniform(0.8, 1.2)):  # noqa: S311
            try:
                api_side.ping(transport, me, pause)
                self._bus_answered = time.monotonic()
            except messaging.MessagingException as error:
                LOG.debug("no answer from the message bus: %s", error)

    def _refresh(self) -> None:
        interval = self._group.hosts_interval
        while not self._stopping.is_set():
            self.directory.refresh()
            # Jitter, so that processes that started together do not read the list together.
            self._stopping.wait(interval * random.uniform(0.8, 1.2))  # noqa: S311

    def _known(self) -> set[str]:
        """Return the compute nodes that have a child provider with the owner trait."""
        if self._placement is None:
            self._placement = Client(host_conf.load_placement(self.conf))
        found = set()
        for provider in self._placement.with_trait(names.OWNER):
            node = node_of(provider)
            if node is None and provider.get("parent_provider_uuid"):
                parent = self._placement.provider(provider["parent_provider_uuid"])
                node = str(parent["name"]) if parent else None
            if node is not None:
                found.add(node)
        return found
