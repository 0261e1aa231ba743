# SPDX-License-Identifier: Apache-2.0
"""The Unix socket on which applications share the elastic SSD.

Who may open the socket may use the disk: root, and one group. An application that says something
that is not allowed, or does not read what it is told, loses its connection. What its process may
still use is then kept for it until the process has ended or registers again. The same holds for
the applications of an earlier daemon, by a file beside the socket.
"""

import contextlib
import dataclasses
import json
import logging
import os
import select
import shutil
import socket
import struct
import time
from collections.abc import Sequence
from pathlib import Path

from vcache_guest.app_protocol import (
    MESSAGE_MAX,
    TEXT_MAX,
    Refused,
    Register,
    decode,
    encode,
)
from vcache_guest.blocks import Ranges, normal
from vcache_guest.protocol import ProtocolError, Range
from vcache_guest.shared import APPS_MAX, Shared
from vcache_guest.sharing import Process, Sends

LOG = logging.getLogger(__name__)

#: Where applications connect.
SOCKET = "/run/vcache-guest/socket"

# How often it is looked whether processes without a connection have ended, in seconds.
_LOOK = 1.0
# Connections that have not registered are few.
_CONNECTIONS = APPS_MAX + 16
_CREDENTIALS = struct.Struct("=iII")


@dataclasses.dataclass
class _Connection:
    number: int
    socket: socket.socket
    process: Process


def process_of(pid: int) -> Process | None:
    """Return a process by its number; None if there is none."""
    try:
        # The name, in parentheses, may have any character.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, UnicodeError):
        return None
    # A zombie uses nothing any more.
    return None if fields[0] in "ZX" else Process(pid, int(fields[19]))


class AppServer:
    """Serves applications.

    :param shared: what to do
    :param path: path of the socket; its folder is created
    :param group: who may connect beside root; None: nobody
    """

    def __init__(self, shared: Shared, path: str, group: str | None = None) -> None:
        self._shared, self._path, self._number = shared, Path(path), 0
        self._state, self._saved = Path(f"{path}.state"), ""
        self._connections: dict[int, _Connection] = {}
        # Numbers of those that do not read.
        self._broken: set[int] = set()
        self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        self._load()
        self._path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        mask = os.umask(0o117 if group else 0o177)
        try:
            self._listener.bind(path)
        finally:
            os.umask(mask)
        if group:
            shutil.chown(path, group=group)
        self._listener.listen(16)
        shared.server = self

    def close(self) -> None:
        """Stop serving. Applications that are connected keep their blocks until they end."""
        for one in list(self._connections.values()):
            self._abandon(one)
        self._save()
        self._listener.close()
        self._path.unlink(missing_ok=True)

    def wait(self, fds: Sequence[int], seconds: float) -> list[int]:
        """Serve until one of some files can be read. Return these; none after some seconds."""
        end = time.monotonic() + seconds
        while True:
            left = end - time.monotonic()
            ready = self._turn(fds, max(min(left, _LOOK), 0))
            found = [fd for fd in fds if fd in ready]
            if found or left <= 0:
                return found

    def pump(self, seconds: float) -> None:
        """Handle what applications have sent; wait up to some seconds for something."""
        self._turn((), min(seconds, _LOOK))

    def send(self, sends: Sends) -> None:
        """Send messages. An application that does not read loses its connection."""
        # What is granted must be known to a daemon that follows this one.
        self._save()
        by_number = {one.number: one for one in self._connections.values()}
        for number, message in sends:
            connection = by_number.get(number)
            if connection is None:
                continue
            try:
                connection.socket.send(encode(message), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            except OSError as error:
                # Not now: the caller goes through the applications.
                LOG.warning("application %d: cannot be told %s: %s", number, message, error)
                with contextlib.suppress(OSError):
                    connection.socket.shutdown(socket.SHUT_RDWR)
                self._broken.add(number)

    def _turn(self, fds: Sequence[int], seconds: float) -> list[int]:
        wait = select.poll()
        for fd in (*fds, self._listener.fileno(), *self._connections):
            wait.register(fd, select.POLLIN)
        ready = [fd for fd, _ in wait.poll(round(seconds * 1000))]
        if self._listener.fileno() in ready:
            self._accept()
        for fd in ready:
            if fd in self._connections:
                self._receive(self._connections[fd])
        for connection in list(self._connections.values()):
            if connection.number in self._broken:
                self._abandon(connection)
        self._look()
        self._save()
        return ready

    def _look(self) -> None:
        """Free what processes had that have ended."""
        for process in list(self._shared.sharing.absent):
            if process_of(process.pid) != process:
                self._shared.gone(process)

    def _accept(self) -> None:
        try:
            accepted, _ = self._listener.accept()
        except OSError:
            return
        accepted.setblocking(False)
        pid = _CREDENTIALS.unpack(accepted.getsockopt(
            socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))[0]
        process = process_of(pid)
        if process is None or len(self._connections) >= _CONNECTIONS:
            accepted.close()
            return
        self._number += 1
        self._connections[accepted.fileno()] = _Connection(self._number, accepted, process)

    def _receive(self, connection: _Connection) -> None:
        try:
            data = connection.socket.recv(MESSAGE_MAX + 1)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            if connection.number not in self._broken:
                self._close(connection)
                self._shared.left(connection.number)
            return
        try:
            message = decode(data)
            if isinstance(message, Register) and \
                    connection.number not in self._shared.sharing.apps:
                # It uses nothing of an earlier connection any more.
                self._shared.gone(connection.process)
            self._shared.received(connection.number, message)
        except ProtocolError as error:
            LOG.warning("application %d (process %d): %s", connection.number,
                        connection.process.pid, error)
            self._refuse(connection, str(error))

    def _refuse(self, connection: _Connection, reason: str) -> None:
        text = "".join(char if " " <= char <= "~" else "?" for char in reason)[:TEXT_MAX]
        with contextlib.suppress(OSError):
            connection.socket.send(encode(Refused(text)), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        self._abandon(connection)

    def _abandon(self, connection: _Connection) -> None:
        self._close(connection)
        self._shared.abandoned(connection.number, connection.process)

    def _close(self, connection: _Connection) -> None:
        self._broken.discard(connection.number)
        self._connections.pop(connection.socket.fileno(), None)
        connection.socket.close()

    def _save(self) -> None:
        sharing = self._shared.sharing
        processes = {one.number: one.process for one in self._connections.values()}
        entries = [(*processes[number], app.name, app.held + app.revoked)
                   for number, app in sharing.apps.items() if number in processes]
        entries += [(*process, app.name, app.held + app.revoked)
                    for process, app in sharing.absent.items()]
        text = json.dumps([entry for entry in entries if entry[3]])
        if text != self._saved:
            new = self._state.with_suffix(".new")
            new.write_text(text)
            new.replace(self._state)
            self._saved = text

    def _load(self) -> None:
        """Keep what the applications of an earlier daemon may still use."""
        try:
            entries = [(Process(int(pid), int(start)), str(name), _loaded(ranges))
                       for pid, start, name, ranges in json.loads(self._state.read_text())]
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError) as error:
            LOG.warning("%s: not used: %s", self._state, error)
            return
        for process, name, ranges in entries:
            if process_of(process.pid) == process:
                self._shared.sharing.keep_absent(process, name, ranges)


def _loaded(ranges: list[list[int]]) -> Ranges:
    return normal(Range(int(first), int(blocks)) for first, blocks in ranges)
