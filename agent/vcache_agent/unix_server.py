# SPDX-License-Identifier: Apache-2.0
"""A bounded server on a Unix socket that only root may use.

One request of a limited size, one answer, one connection; a limited number at
a time, each within a time limit.
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
    """Serves one kind of request on one socket, in threads.

    :param path: the socket; a stale one is replaced
    :param handler: request → answer; runs in a thread of the connection
    :param request_bytes: largest request
    :param seconds: time limit of a connection, the handler's part apart
    :param connections: most connections at a time; more are closed at once
    """

    def __init__(self, path: Path, handler: Callable[[bytes], bytes], *, request_bytes: int,
                 seconds: float, connections: int = 32) -> None:
        self._path = path
        self._handler = handler
        self._request_bytes = request_bytes
        self._seconds = seconds
        self._slots = threading.BoundedSemaphore(connections)
        self._stopping = threading.Event()
        self._socket = _listen(path)
        self._thread = threading.Thread(target=self._accept, name=f"accept-{path.name}")

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def stop(self) -> None:
        """Stop to accept; connections that are served now end by themselves."""
        self._stopping.set()
        # Closing alone would not wake up a thread that is in accept().
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
                    self._stopping.wait(0.1)  # out of descriptors, perhaps
                continue
            if not self._slots.acquire(blocking=False):
                LOG.warning("%s: too many connections at a time", self._path)
                connection.close()
                continue
            threading.Thread(target=self._serve, args=(connection,), daemon=True,
                             name=f"serve-{self._path.name}").start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection:
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


def _listen(path: Path) -> socket.socket:
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise OSError(f"{path}: exists and is not a socket")
        path.unlink()
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        # Nobody else may connect, from the first moment on.
        mask = os.umask(0o177)
        try:
            server.bind(str(path))
        finally:
            os.umask(mask)
        server.listen(_BACKLOG)
    except BaseException:
        server.close()
        raise
    return server


def _check_peer(connection: socket.socket) -> None:
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    pid, uid, _ = _PEER.unpack(data)
    if uid not in (0, os.geteuid()):
        raise ProtocolError(f"process {pid} of user {uid} is not allowed, root is")
