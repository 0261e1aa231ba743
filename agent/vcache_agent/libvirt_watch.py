# SPDX-License-Identifier: Apache-2.0
"""Keep the inventory up to date with libvirt: list, follow events, reconnect.

A call to libvirt blocks as long as libvirtd does. So only the thread of this
module calls libvirt, and no other thread waits for it.
"""

import contextlib
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import libvirt
from oslo_log import log as logging

from vcache_agent import domain_xml
from vcache_agent.inventory import Inventory
from vcache_agent.migration.sights import Sights
from vcache_agent.model import Domain, Phase
from vcache_agent.status_files import StatusFiles

LOG = logging.getLogger(__name__)

_RETRY_FIRST = 1.0
_RETRY_MOST = 30.0
_KEEPALIVE_SECONDS = 5
_KEEPALIVE_COUNT = 3

# Items of the queue that are not UUIDs.
_STOP = "stop"
_LIST = "list"
# Seconds between two looks at the domains that migrate.
_LOOK_PAUSE = 0.5
_WAKE = "wake"


class LibvirtWatch:
    """Reports libvirt's domains to an inventory.

    :param uri: libvirt's connection URI
    :param inventory: the inventory
    :param interval: seconds between two listings, for changes that leave no other trace
    :param changed: called after each change of the inventory
    :param run_dir: folder of libvirt's status files; changes of a domain without an event,
        such as an external snapshot, are found by its file
    :param sights: looks at the domains that migrate; None: none does
    """

    def __init__(self, uri: str, inventory: Inventory, interval: float,
                 changed: Callable[[], None], run_dir: Path,
                 sights: Sights | None = None) -> None:
        self._uri = uri
        self._inventory = inventory
        self._interval = interval
        self._changed = changed
        self._files = StatusFiles(run_dir)
        self._sights = sights
        self._next_look = 0.0
        self._queue: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._listed = False
        self._thread = threading.Thread(target=self._run, name="libvirt", daemon=True)

    def start(self) -> None:
        """Start the threads."""
        libvirt.registerErrorHandler(_log_error, None)
        libvirt.virEventRegisterDefaultImpl()
        threading.Thread(target=_event_loop, name="libvirt-events", daemon=True).start()
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, unless it is blocked in a call to libvirt."""
        self._stopping.set()
        self._queue.put(_STOP)
        self._thread.join(_KEEPALIVE_SECONDS)

    def refresh(self) -> None:
        """Request a listing of all domains."""
        self._queue.put(_LIST)

    def wake(self) -> None:
        """Reconnect now if the connection is lost, because libvirtd is known to run."""
        self._queue.put(_WAKE)

    def _run(self) -> None:
        retry = _RETRY_FIRST / 2
        while not self._stopping.is_set():
            problem = self._session()
            self._inventory.lost()
            if self._stopping.is_set():
                return
            # A session with a complete listing resets the delay.
            retry = _RETRY_FIRST if self._listed else min(retry * 2, _RETRY_MOST)
            LOG.warning("libvirt %s: %s; retrying in %g s", self._uri, problem, retry)
            self._changed()
            with contextlib.suppress(queue.Empty):
                self._queue.get(timeout=retry)

    def _session(self) -> str:
        """Connect, and watch until the connection breaks; return the reason."""
        self._listed = False
        connection = None
        try:
            connection = self._connect()
            self._watch(connection)
        except libvirt.libvirtError as error:
            return str(error)
        finally:
            if connection is not None:
                _close(connection)
        return "stopped"

    def _connect(self) -> Any:
        connection = libvirt.open(self._uri)
        _keep_alive(connection)
        connection.registerCloseCallback(lambda *_: self._queue.put(_LIST), None)
        register = connection.domainEventRegisterAny
        for event in (libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE,
                      libvirt.VIR_DOMAIN_EVENT_ID_DEVICE_ADDED,
                      libvirt.VIR_DOMAIN_EVENT_ID_DEVICE_REMOVED,
                      libvirt.VIR_DOMAIN_EVENT_ID_BLOCK_JOB_2,
                      libvirt.VIR_DOMAIN_EVENT_ID_METADATA_CHANGE):
            register(None, event, self._event, None)
        LOG.info("connected to libvirt %s", self._uri)
        return connection

    def _event(self, _connection: Any, domain: Any, *_: Any) -> None:
        """Queue a domain that has changed; runs in the event loop's thread."""
        self._queue.put(domain.UUIDString())

    def _watch(self, connection: Any) -> None:
        """List the domains, then follow events until the connection breaks."""
        while not self._stopping.is_set():
            self._files.mark()
            self._list(connection)
            self._follow(connection, time.monotonic() + self._interval)
            if not connection.isAlive():
                raise libvirt.libvirtError("the connection is closed")

    def _follow(self, connection: Any, limit: float) -> None:
        """Follow events and status files until a listing is due or requested.

        :param limit: monotonic time of the next listing
        """
        while (left := limit - time.monotonic()) > 0:
            item = _WAKE
            with contextlib.suppress(queue.Empty):
                item = self._queue.get(timeout=min(left, self._files.wait))
            if item in (_STOP, _LIST):
                return
            if item != _WAKE:
                self._one(connection, item)
                self._next_look = 0.0  # it may have landed
            self._look(connection)
            began = time.monotonic()
            for name in self._files.changed():
                self._named(connection, name)
            self._files.worked(time.monotonic() - began)

    def _look(self, connection: Any) -> None:
        """Look at the domains that migrate: a migration may end without an event."""
        if self._sights is None or time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + _LOOK_PAUSE
        try:
            self._sights.look(connection)
        except (OSError, sqlite3.Error) as error:
            LOG.error("cannot record a migration: %s", error)

    def _list(self, connection: Any) -> None:
        began = time.monotonic()
        running, defined, unclear = [], [], []
        for found in connection.listAllDomains(0):
            uuid = found.UUIDString()
            defined.append(uuid)
            try:
                domain = _running(found)
            except domain_xml.DomainXmlError as error:
                LOG.error("libvirt, domain %s: %s", uuid, error)
                unclear.append(uuid)
                continue
            if domain is not None:
                running.append(domain)
        self._inventory.listed(running, defined, began, unclear)
        self._listed = True
        self._changed()

    def _one(self, connection: Any, uuid: str) -> None:
        """Update a domain for which there was an event."""
        began = time.monotonic()
        try:
            domain = _running(connection.lookupByUUIDString(uuid))
        except domain_xml.DomainXmlError as error:
            LOG.error("libvirt, domain %s: %s", uuid, error)
            return
        except libvirt.libvirtError as error:
            if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:
                raise
            domain = None
        if domain is not None:
            self._inventory.told(domain, Phase.RUNNING, began)
        else:
            self._inventory.not_running(uuid, began)
        self._changed()

    def _named(self, connection: Any, name: str) -> None:
        """Update a domain whose status file has changed.

        Many changes do not concern the disks, so only a change of the domain counts. For
        its start and its end there are events.
        """
        began = time.monotonic()
        try:
            domain = _running(connection.lookupByName(name))
        except domain_xml.DomainXmlError as error:
            LOG.error("libvirt, domain %s: %s", name, error)
            return
        except libvirt.libvirtError as error:
            if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:
                raise
            return
        if domain is not None and self._inventory.told(domain, Phase.RUNNING, began):
            self._changed()


def _running(found: Any) -> Domain | None:
    """Return a domain if it runs, otherwise None."""
    try:
        if not found.isActive():
            return None
        return domain_xml.parse(found.XMLDesc(0).encode())
    except libvirt.libvirtError as error:
        # The domain stopped meanwhile. Other errors concern the connection.
        if error.get_error_code() in (libvirt.VIR_ERR_NO_DOMAIN,
                                      libvirt.VIR_ERR_OPERATION_INVALID):
            return None
        raise


def _event_loop() -> None:
    while True:
        if libvirt.virEventRunDefaultImpl() < 0:
            LOG.error("libvirt's event loop failed")
            time.sleep(_RETRY_FIRST)


def _keep_alive(connection: Any) -> None:
    """Enable keepalive, to detect a libvirtd that hangs.

    Drivers that run inside this process do not support it and do not need it.
    """
    try:
        connection.setKeepAlive(_KEEPALIVE_SECONDS, _KEEPALIVE_COUNT)
    except libvirt.libvirtError as error:
        if error.get_error_code() != libvirt.VIR_ERR_NO_SUPPORT:
            raise


def _close(connection: Any) -> None:
    try:
        connection.close()
    except libvirt.libvirtError:
        pass  # the connection was already broken


def _log_error(_context: Any, error: tuple[Any, ...]) -> None:
    """Replace libvirt's handler, which prints errors to stderr; they are exceptions here."""
    LOG.debug("libvirt: %s", error[2])
