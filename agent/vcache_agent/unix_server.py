# SPDX-License-Identifier: Apache-2.0
"""A server on a Unix socket that only root or a group may use, with limits on all resources.

Each connection has one request and one answer. The size of a request, the time of
a connection and the number of connections are limited.
"""

import contextlib
import os
import socket
import stat
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

from oslo_log import log as logging

from vcache_agent.framing import ProtocolError, receive, send

LOG = logging.getLogger(__name__)

_PEER = struct.Struct("=iII")
_BACKLOG = 128


class UnixServer:
    """Serves requests on one socket, with a thread for each connection.

    :param path: the socket; an existing one is replaced
    :param handler: returns the answer of a request; runs in the thread of the connection
    :param request_bytes: largest request in bytes
    :param seconds: time limit to receive a request, and to send the answer
    :param connections: most concurrent connections; further ones are closed at once
    :param group: id of the group whose members may also use it; None: only root may
    """

    def __init__(self, path: Path, handler: Callable[[bytes], bytes], *, request_bytes: int,
                 seconds: float, connections: int = 32, group: int | None = None) -> None:
        self._path = path
        self._handler = handler
        self._request_bytes = request_bytes
        self._seconds = seconds
        self._slots = threading.BoundedSemaphore(connections)
        self._stopping = threading.Event()
        self._group = group
        self._socket = _listen(path, group)
        self._thread = threading.Thread(target=self._accept, name=f"accept-{path.name}")

    def start(self) -> None:
        """Start to serve."""
        self._thread.start()

    def stop(self) -> None:
        """Stop to accept connections; open connections end by themselves."""
        self._stopping.set()
        # close() alone does not wake up a thread that is in accept().
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()
        with contextlib.suppress(OSError):
            self._path.unlink()

    def _accept(self) -> None:
        while not self._stopping.is_set():
            try:
                connection, _ = self._socket.accept()
            except OSError as error:
                if not self._stopping.is_set():
                    LOG.error("%s: accept: %s", self._path, error.strerror)
                    self._stopping.wait(0.1)  # possibly out of file descriptors
                continue
            if not self._slots.acquire(blocking=False):
                LOG.warning("%s: too many connections, closing a new one", self._path)
                connection.close()
                continue
            threading.Thread(target=self._serve, args=(connection,), daemon=True,
                             name=f"serve-{self._path.name}").start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection:
                if self._group is None:
                    _check_peer(connection)
                request = receive(connection, self._request_bytes,
                                  time.monotonic() + self._seconds)
                answer = self._handler(request)
                send(connection, answer, time.monotonic() + self._seconds)
        except (ProtocolError, OSError) as error:
            LOG.warning("%s: %s", self._path, error)
        except Exception:
            LOG.exception("%s: request failed", self._path)
        finally:
            self._slots.release()


def _listen(path: Path, group: int | None) -> socket.socket:
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise OSError(f"{path}: exists and is not a socket")
        path.unlink()
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        # The socket must have its mode from the beginning, so that no other user can
        # connect in between.
        mask = os.umask(0o177)
        try:
            server.bind(str(path))
        finally:
            os.umask(mask)
        if group is not None:
            # The kernel checks who may write the socket, also by a supplementary group.
            os.chown(path, -1, group)
            path.chmod(0o660)
        server.listen(_BACKLOG)
    except BaseException:
        server.close()
        raise
    return server


def _check_peer(connection: socket.socket) -> None:
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    pid, uid, _ = _PEER.unpack(data)
    if uid not in (0, os.geteuid()):
        raise ProtocolError(f"process {pid} of user {uid} must not connect, only root may")
