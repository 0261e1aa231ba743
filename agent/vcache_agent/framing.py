# SPDX-License-Identifier: Apache-2.0
"""Messages on a Unix socket: length (four bytes, big-endian), then the message."""

import socket
import struct
import time

_LENGTH = struct.Struct(">I")
_CHUNK = 1 << 18


class ProtocolError(Exception):
    """The peer violated the protocol or exceeded the time limit."""


def receive(connection: socket.socket, limit: int, deadline: float) -> bytes:
    """Receive one message.

    :param limit: largest allowed size in bytes
    :param deadline: monotonic time in seconds
    :raises ProtocolError: if the message is too long or incomplete, or the deadline passes
    """
    (size,) = _LENGTH.unpack(_receive_exactly(connection, _LENGTH.size, deadline))
    if size > limit:
        raise ProtocolError(f"message has {size} bytes, must have at most {limit}")
    return _receive_exactly(connection, size, deadline)


def send(connection: socket.socket, data: bytes, deadline: float) -> None:
    """Send one message.

    :param deadline: monotonic time in seconds
    :raises ProtocolError: if the deadline passes
    """
    view = memoryview(_LENGTH.pack(len(data)) + data)
    while view:
        _set_timeout(connection, deadline)
        try:
            view = view[connection.send(view):]
        except TimeoutError:
            raise ProtocolError("the message was not sent within the time limit") from None


def _receive_exactly(connection: socket.socket, size: int, deadline: float) -> bytes:
    data = bytearray()
    while len(data) < size:
        _set_timeout(connection, deadline)
        try:
            chunk = connection.recv(min(size - len(data), _CHUNK))
        except TimeoutError:
            raise ProtocolError("no message within the time limit") from None
        if not chunk:
            raise ProtocolError(f"connection closed after {len(data)} of {size} bytes")
        data += chunk
    return bytes(data)


def _set_timeout(connection: socket.socket, deadline: float) -> None:
    left = deadline - time.monotonic()
    if left <= 0:
        raise ProtocolError("the time limit has passed")
    connection.settimeout(left)
