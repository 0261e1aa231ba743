# SPDX-License-Identifier: Apache-2.0
"""Messages on a Unix socket: their length in four bytes, big-endian, then their bytes."""

import socket
import struct
import time

_LENGTH = struct.Struct(">I")
_CHUNK = 1 << 18


class ProtocolError(Exception):
    """The peer did not keep to the protocol."""


def receive(connection: socket.socket, limit: int, deadline: float) -> bytes:
    """Receive one message.

    :param limit: most bytes allowed
    :param deadline: when to give up (monotonic)
    :raises ProtocolError: if it is too long, incomplete or too late
    """
    (size,) = _LENGTH.unpack(_receive_exactly(connection, _LENGTH.size, deadline))
    if size > limit:
        raise ProtocolError(f"a message of {size} bytes, at most {limit} are allowed")
    return _receive_exactly(connection, size, deadline)


def send(connection: socket.socket, data: bytes, deadline: float) -> None:
    """Send one message; see :func:`receive`."""
    view = memoryview(_LENGTH.pack(len(data)) + data)
    while view:
        _set_timeout(connection, deadline)
        try:
            view = view[connection.send(view):]
        except TimeoutError:
            raise ProtocolError("not taken within the time limit") from None


def _receive_exactly(connection: socket.socket, size: int, deadline: float) -> bytes:
    data = bytearray()
    while len(data) < size:
        _set_timeout(connection, deadline)
        try:
            chunk = connection.recv(min(size - len(data), _CHUNK))
        except TimeoutError:
            raise ProtocolError("nothing within the time limit") from None
        if not chunk:
            raise ProtocolError(f"closed after {len(data)} of {size} bytes")
        data += chunk
    return bytes(data)


def _set_timeout(connection: socket.socket, deadline: float) -> None:
    left = deadline - time.monotonic()
    if left <= 0:
        raise ProtocolError("not done within the time limit")
    connection.settimeout(left)
