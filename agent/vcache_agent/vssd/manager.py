# SPDX-License-Identifier: Apache-2.0
"""The thread that serves the guests of all elastic SSDs.

A running domain is connected with an elastic SSD if it has its disk, and the channel of the
protocol. QEMU listens on the channel's socket, and this connects to it. The kernel has the quota,
so an agent that starts finds what it was about, and what was under way goes on.
"""

import dataclasses
import math
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from oslo_log import log as logging

from nova_vcache.extra_specs import ExtraSpecs
from vcache_agent.admission import specs_of
from vcache_agent.dm import Dm, DmError, block_number
from vcache_agent.events import EventLog
from vcache_agent.model import DeviceNumber, Domain
from vcache_agent.observe.sample import Sample
from vcache_agent.vssd import devices, policy
from vcache_agent.vssd.device import Device, NotAVssd
from vcache_agent.vssd.serve import Server
from vcache_guest.protocol import SERIAL_MAX

LOG = logging.getLogger(__name__)

# Seconds between two looks at all mapped devices, and at the elastic SSDs among them.
_SCAN_S, _STEP_S = 5.0, 1.0
# Shortest time between two steps: a guest that sends without end must not occupy a processor.
_PAUSE_S = 0.02


class VssdError(Exception):
    """A request is not possible; the text says why."""


@dataclasses.dataclass(frozen=True)
class Steering:
    """The sizes follow the weights, see sizing.py.

    :param survey: returns the newest survey with claims and pools; None: there is none yet
    :param period: seconds between two changes
    """

    survey: Callable[[], Sample | None]
    period: float


@dataclasses.dataclass(frozen=True)
class Link:
    """The guest of an elastic SSD.

    :param domain: its domain
    :param target: the disk in the domain
    :param serial: serial number of the disk as the guest sees it, or empty
    """

    domain: Domain
    target: str
    serial: str

    @property
    def problem(self) -> str:
        """Why it cannot be served, or empty."""
        if not self.domain.channel:
            return "the domain has no channel org.nova-vcache.vssd"
        return "" if self.serial else f"disk {self.target} has no <serial>"

    @property
    def path(self) -> str:
        """The socket of its channel; empty: it cannot be served."""
        return "" if self.problem else self.domain.channel

    @property
    def specs(self) -> ExtraSpecs:
        """The extra specs of its flavor, or the defaults if these are invalid."""
        return specs_of(self.domain.extra_specs)[0]

    @property
    def guaranteed(self) -> int:
        """Bytes that its flavor guarantees."""
        specs = self.specs
        return 0 if specs.vssd_max_mb is None else specs.vssd_mb << 20

    def shortcomings(self, most: int, persist: bool) -> str:
        """Return what the disk lacks of what the flavor requests, or nothing.

        :param most: size of the disk in bytes
        :param persist: its data is kept
        """
        specs, notes = self.specs, []
        if specs.vssd_max_mb is not None and most < specs.vssd_max_mb << 20:
            notes.append(f"the disk has {most >> 20} MiB, but vcache:vssd_max_mb is "
                         f"{specs.vssd_max_mb}")
        if specs.vssd_max_mb is not None and specs.vssd_persist and not persist:
            notes.append("the disk is made without persist, but the flavor has "
                         "vcache:vssd_persist")
        return "; ".join(notes)


@dataclasses.dataclass
class _Served:
    """An elastic SSD that is served.

    :param number: of its device
    :param link: its guest; None: there is none
    :param path: the socket of the last channel
    :param problem: why the channel cannot be used, or empty
    :param lacking: its pool cannot give it what the flavor guarantees
    """

    server: Server
    number: DeviceNumber
    link: Link | None = None
    path: str = ""
    problem: str = ""
    lacking: bool = False


def links(domains: Iterable[Domain],
          number: Callable[[str], DeviceNumber | None] = block_number) -> dict[DeviceNumber, Link]:
    """Return the guests by the numbers of their disks' devices."""
    found: dict[DeviceNumber, Link] = {}
    for domain in domains:
        for disk in domain.disks:
            # Nothing below /dev hangs, and elastic SSDs are there.
            if disk.kind != "block" or not (disk.path or "").startswith("/dev/"):
                continue
            at = number(disk.path or "")
            if at is not None and at not in found:
                found[at] = Link(domain, disk.target, disk.serial[:SERIAL_MAX])
    return found


class Vssds:
    """Serves the elastic SSDs of the host.

    :param domains: returns the running domains
    :param events: the log of events
    :param deadline: how long a guest may take to give up blocks, in seconds
    :param mapper: connects to device mapper
    :param steering: changes the sizes of those whose flavor has vcache:vssd_max_mb; None: only
        operators do
    """

    def __init__(self, domains: Callable[[], Iterable[Domain]], events: EventLog, deadline: float,
                 mapper: Callable[[], Dm] = Dm, steering: Steering | None = None) -> None:
        self._domains, self._events, self._deadline = domains, events, deadline
        self._mapper, self._steering = mapper, steering
        self._dm: Dm | None = None
        self._lock = threading.Lock()
        self._served: dict[str, _Served] = {}
        self._view: dict[str, dict[str, Any]] = {}
        # By name: whether a mapped device is an elastic SSD. Its UUID never changes.
        self._known: dict[str, bool] = {}
        self._scan_at = self._step_at = self._steer_at = -math.inf
        self._stopping = False
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._thread = threading.Thread(target=self._run, name="vssd", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread. The quotas stay in the kernel."""
        self._stopping = True
        os.eventfd_write(self._wake, 1)
        self._thread.join(_STEP_S)

    def known(self) -> dict[str, dict[str, Any]]:
        """Return what was last known about the guests, without waiting for a device that hangs."""
        return self._view

    def guests(self) -> dict[str, dict[str, Any]]:
        """Look, and return what is known about the guests, by the name of the elastic SSD.

        :raises DmError: if device mapper is not accessible
        """
        with self._lock:
            self._look()
            self._link()
            return self._seen()

    def _seen(self) -> dict[str, dict[str, Any]]:
        self._view = {name: _guest(served) for name, served in self._served.items()}
        return self._view

    def resize(self, name: str, size: int, deadline: float | None = None) -> int:
        """Give a guest another size; return it in bytes, in whole blocks.

        :param size: in bytes
        :param deadline: seconds; None: as configured
        :raises VssdError: if that is not possible
        """
        with self._lock:
            self._look()
            served = self._served.get(name)
            if served is None:
                there = ", ".join(sorted(self._served)) or "none"
                raise VssdError(f"{name!r} is not an elastic SSD; those of this host: {there}")
            if self._steered(served):
                raise VssdError(f"{name}: its size follows the weights, because its flavor has "
                                "vcache:vssd_max_mb and [vssd] policy is not 'none'")
            unit = served.server.block_bytes
            blocks = devices.blocks_of(size, unit)
            least = served.link.guaranteed if served.link else 0
            if blocks * unit < min(least, served.server.most * unit):
                raise VssdError(f"{name}: the flavor of its instance guarantees "
                                f"{least >> 20} MiB (vcache:vssd_mb)")
            try:
                served.server.resize(blocks, time.monotonic(),
                                     self._deadline if deadline is None else deadline)
            except ValueError as error:
                raise VssdError(f"{name}: {error}, of {unit >> 10} KiB each") from None
            except DmError as error:
                raise VssdError(f"{name}: the pool does not have {blocks} blocks of "
                                f"{unit >> 10} KiB for it: {error.strerror}") from None
        os.eventfd_write(self._wake, 1)
        return blocks * unit

    def _run(self) -> None:
        readable: set[int] = set()
        while not self._stopping:
            try:
                with self._lock:
                    self._turn(readable)
            except DmError as error:
                LOG.debug("elastic SSDs: %s", error)  # no device mapper
            except Exception:
                LOG.exception("elastic SSDs: a turn failed")
            readable = self._wait()
            time.sleep(_PAUSE_S)
        for served in self._served.values():
            served.server.disconnect()

    def _wait(self) -> set[int]:
        """Wait until a guest says something, or a second. Return the descriptors with data."""
        with self._lock:
            channels = {served.server.fileno() for served in self._served.values()} - {-1}
        poll = select.poll()
        for fd in (self._wake, *channels):
            poll.register(fd, select.POLLIN)
        ready = {fd for fd, _ in poll.poll(_STEP_S * 1000)}
        if self._wake in ready:
            os.eventfd_read(self._wake)
            self._step_at = -math.inf
        return ready

    def _turn(self, readable: set[int]) -> None:
        """Go on with those that have said something; once a second, with all."""
        now = time.monotonic()
        if now >= self._scan_at:
            self._look()
        periodic = now >= self._step_at
        if periodic:
            self._step_at = now + _STEP_S
            self._link()
            self._seen()
            self._steer(now)
        for name, served in tuple(self._served.items()):
            if not periodic and served.server.fileno() not in readable:
                continue
            try:
                self._step(name, served)
            except DmError as error:
                LOG.info("elastic SSD %s: %s", name, error)
                self._drop(name)

    def _look(self) -> None:
        """Find elastic SSDs that are new or gone."""
        if self._dm is None:
            self._dm = self._mapper()
        names = set(self._dm.names())
        for name in self._served.keys() - names:
            self._drop(name)
        self._known = {name: known for name, known in self._known.items() if name in names}
        for name in names - self._served.keys():
            if self._known.get(name, True):
                self._add(self._dm, name)
        self._scan_at = time.monotonic() + _SCAN_S

    def _add(self, dm: Dm, name: str) -> None:
        info = dm.info(name)
        if info is None or not info.active:
            return  # not yet
        self._known[name] = info.uuid.startswith(devices.UUID)
        if not self._known[name]:
            return
        try:
            server = Server(Device(dm, name), time.monotonic(), self._deadline)
        except (DmError, NotAVssd) as error:
            LOG.warning("elastic SSD %s: %s", name, error)
            return
        self._served[name] = _Served(server, info.number)

    def _drop(self, name: str) -> None:
        self._served.pop(name).server.disconnect()
        self._known.pop(name, None)

    def _link(self) -> None:
        """Find the guests, and connect with their channels."""
        found = links(self._domains()) if self._served else {}
        numbers = {served.number: served for served in self._served.values()}
        for name, served in self._served.items():
            link = served.link = found.get(served.number)
            if link is None or served.path != link.path:
                served.server.disconnect()
            if link is not None:
                self._guarantee(name, served, link)
        used: set[str] = set()
        # In the order of the disks: the first one of a domain has its channel.
        for number, link in found.items():
            if (one := numbers.get(number)) is None or not link.path:
                continue
            if link.path in used:
                one.problem = "the domain's channel serves another disk"
            elif one.server.fileno() < 0:
                _connect(one, link)
            used.add(link.path)

    def _guarantee(self, name: str, served: "_Served", link: Link) -> None:
        """Give an instance what its flavor guarantees, up to the size of the disk."""
        server = served.server
        least = min(devices.blocks_of(link.guaranteed, server.block_bytes), server.most)
        if server.session.target >= least:
            return
        try:
            server.resize(least, time.monotonic(), self._deadline)
        except DmError as error:
            if not served.lacking:
                self._say(name, "vssd", f"its pool does not have the {least} blocks that the "
                          f"flavor guarantees: {error.strerror}")
            served.lacking = True
        else:
            served.lacking = False

    def _steered(self, served: "_Served") -> bool:
        """Return True if the policy changes its size."""
        return self._steering is not None and served.link is not None \
            and served.link.specs.vssd_max_mb is not None

    def _steer(self, now: float) -> None:
        """Once in a period, change the sizes as the policy wants."""
        if self._steering is None or now < self._steer_at:
            return
        survey = self._steering.survey()
        if survey is None:
            return
        self._steer_at = now + self._steering.period
        disks = [_disk(name, served, adjustable=self._steered(served))
                 for name, served in self._served.items()]
        for name, size in policy.targets(survey, disks).items():
            server = self._served[name].server
            try:
                server.resize(devices.blocks_of(size, server.block_bytes), now, self._deadline)
            except DmError as error:
                LOG.debug("elastic SSD %s: the pool does not have %d bytes: %s", name, size, error)

    def _step(self, name: str, served: "_Served") -> None:
        server, session = served.server, served.server.session
        before, was_busy = session.taken, session.busy
        server.step(time.monotonic())
        if session.taken > before:
            self._say(name, "vssd-forced", f"{session.taken - before} blocks of "
                      f"{server.block_bytes >> 10} KiB were taken by force, because the guest did "
                      "not give them up in time")
        if was_busy and not session.busy:
            self._say(name, "vssd", f"it has {session.size} blocks of "
                      f"{server.block_bytes >> 10} KiB now")

    def _say(self, name: str, kind: str, text: str) -> None:
        served = self._served[name]
        LOG.log(logging.WARNING if kind == "vssd-forced" else logging.INFO, "elastic SSD %s: %s",
                name, text)
        self._events.add(kind, f"{name}: {text}", device=served.number,
                         disk=f"{served.link.domain.uuid}:{served.link.target}"
                         if served.link else "")


def _disk(name: str, served: "_Served", *, adjustable: bool) -> policy.Disk:
    """Return what the policy needs; a guest that is silent or busy keeps its size."""
    server, link = served.server, served.link
    unit, state = server.block_bytes, server.state()
    specs = link.specs if link else None
    allowed = specs.vssd_max_mb if specs else None
    most = state.most * unit
    return policy.Disk(
        name, server.pool, specs.weight if specs else 100, link.guaranteed if link else 0,
        most if allowed is None else min(most, allowed << 20), state.quota * unit,
        state.mapped * unit,
        adjustable and server.session.present and not server.session.busy)


def _connect(served: "_Served", link: Link) -> None:
    """Connect with a channel, if QEMU listens."""
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    channel.setblocking(False)
    try:
        channel.connect(link.path)
    except OSError as error:
        channel.close()
        served.problem = f"{link.path}: {error.strerror}"
        return
    served.problem, served.path = "", link.path
    served.server.connect(channel, link.serial)


def _guest(served: "_Served") -> dict[str, Any]:
    """Return what is known about a guest as plain values."""
    link, server, session = served.link, served.server, served.server.session
    state = "none" if link is None else "unreachable" if server.fileno() < 0 else \
        "present" if session.present else "silent"
    left = None if session.deadline is None else \
        max(0.0, round(session.deadline - time.monotonic(), 1))
    return {"uuid": link.domain.uuid if link else None,
            "domain": link.domain.name if link else None,
            "disk": link.target if link else None, "state": state,
            "problem": (link.problem or served.problem) if link and state == "unreachable" else "",
            "note": link.shortcomings(server.most * server.block_bytes, server.persist)
            if link else "",
            "guaranteed_bytes": link.guaranteed if link else 0,
            "told_bytes": session.size * server.block_bytes, "busy": session.busy,
            "seconds_left": left, "forced_bytes": session.taken * server.block_bytes}
