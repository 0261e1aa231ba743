# SPDX-License-Identifier: Apache-2.0
"""The protocol between ``vcache-guest`` and applications that use a part of its elastic SSD.

This module is pure: it does no I/O. ``doc/source/reference/vssd-sharing.rst`` describes the order
of the messages, ``native/libvssd`` is the side of applications in C.

The channel is a Unix socket of type ``SOCK_SEQPACKET``, which keeps the limits of messages. Each
message begins with

====== ===== ===========================================================
offset bytes content
====== ===== ===========================================================
0      1     version of the protocol, see :data:`VERSION`
1      1     type of the message
2      2     how many ranges follow the fields, at most :data:`RANGES_MAX`
4      4     number of a request, or 0
====== ===== ===========================================================

Then follow the fields of its type, and the ranges. All numbers are big-endian, and all sizes are in
blocks of the elastic SSD.
"""

import dataclasses
import struct
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from vcache_guest.protocol import ProtocolError, Range, check_block_bytes, ranges_of
from vcache_guest.shares import WEIGHTS

#: Version that this release speaks.
VERSION = 1

#: Most ranges of one message; a longer list takes several.
RANGES_MAX = 256

#: Longest name of a consumer, and longest path of a disk, in bytes.
NAME_MAX, PATH_MAX = 31, 63

#: Longest text of a refusal in bytes.
TEXT_MAX = 119

#: No deadline: blocks are not taken by force.
NEVER_MS = (1 << 32) - 1

_HEAD = struct.Struct(">BBHI")
_REGISTER = struct.Struct(">HI32s")
_WELCOME = struct.Struct(">II64s")
_RECLAIM = struct.Struct(">II")
_REFUSED = struct.Struct(">120s")
_EMPTY = struct.Struct("")
_RANGE = struct.Struct(">II")

#: Size of the largest message in bytes.
MESSAGE_MAX = _HEAD.size + _REFUSED.size + RANGES_MAX * _RANGE.size


@dataclasses.dataclass(frozen=True)
class Register:
    """Application to daemon: the first message. A later one changes weight and minimum.

    :param name: 1 to 31 letters, digits, or ``._-``; no other consumer has it
    :param weight: 1 to 1000
    :param least: minimum in blocks
    """

    name: str
    weight: int
    least: int


@dataclasses.dataclass(frozen=True)
class Welcome:
    """Daemon to application: the answer; the application has no block yet.

    :param block_bytes: size of a block
    :param most: size of the disk
    :param path: path of the disk
    """

    block_bytes: int
    most: int
    path: str


@dataclasses.dataclass(frozen=True)
class Grant:
    """Daemon to application: these blocks belong to it from now on. They read as zeroes."""

    ranges: tuple[Range, ...]


@dataclasses.dataclass(frozen=True)
class Reclaim:
    """Daemon to application: give up blocks. A newer one replaces it.

    :param request: number of the request
    :param keep: how many blocks the application may keep
    :param deadline_ms: after that they are taken by force; :data:`NEVER_MS`: they are not
    """

    request: int
    keep: int
    deadline_ms: int


@dataclasses.dataclass(frozen=True)
class Give:
    """Application to daemon: blocks that it does not use any more, and will not.

    :param request: number of the newest :class:`Reclaim`, or 0
    :param ranges: the blocks; also those of a :class:`Forced`
    """

    request: int
    ranges: tuple[Range, ...]


@dataclasses.dataclass(frozen=True)
class Forced:
    """Daemon to application: blocks were taken; their content is lost.

    To be answered by a :class:`Give` with them: nobody else gets them before.
    """

    ranges: tuple[Range, ...]


@dataclasses.dataclass(frozen=True)
class Refused:
    """Daemon to application: the reason why the connection ends."""

    text: str


Message = Register | Welcome | Grant | Reclaim | Give | Forced | Refused


def check_name(name: str) -> None:
    """Check the name of a consumer.

    :raises ProtocolError: if it is not allowed
    """
    if not 1 <= len(name) <= NAME_MAX or not all(
            char.isascii() and (char.isalnum() or char in "._-") for char in name):
        raise ProtocolError(f"name {name!r}, must have 1 to {NAME_MAX} letters, digits, '.', '_' "
                            "or '-'")


def _text(raw: bytes, what: str) -> str:
    text, _, rest = raw.partition(b"\0")
    if rest.strip(b"\0") or not text or not all(32 <= char < 127 for char in text):
        raise ProtocolError(f"{what} {raw!r}, must be printable and end with zeroes")
    return text.decode("ascii")


def _register(_request: int, _ranges: tuple[Range, ...], weight: int, least: int,
              raw: bytes) -> Register:
    name = _text(raw, "name")
    check_name(name)
    if not WEIGHTS[0] <= weight <= WEIGHTS[1]:
        raise ProtocolError(f"weight {weight}, must be {WEIGHTS[0]} to {WEIGHTS[1]}")
    return Register(name, weight, least)


def _welcome(_request: int, _ranges: tuple[Range, ...], block_bytes: int, most: int,
             raw: bytes) -> Welcome:
    check_block_bytes(block_bytes)
    return Welcome(block_bytes, most, _text(raw, "path"))


class _Codec(NamedTuple):
    kind: type
    layout: struct.Struct
    fields: Callable[..., tuple[Any, ...]]
    make: Callable[..., Message]
    listed: bool = False


# The types by number. A number is never used for anything else.
_CODECS: dict[int, _Codec] = {
    1: _Codec(Register, _REGISTER, lambda m: (m.weight, m.least, _padded(m.name, NAME_MAX)),
              _register),
    2: _Codec(Welcome, _WELCOME, lambda m: (m.block_bytes, m.most, _padded(m.path, PATH_MAX)),
              _welcome),
    3: _Codec(Grant, _EMPTY, lambda m: (), lambda _, ranges: Grant(ranges), listed=True),
    4: _Codec(Reclaim, _RECLAIM, lambda m: (m.keep, m.deadline_ms),
              lambda request, _, *fields: Reclaim(request, *fields)),
    5: _Codec(Give, _EMPTY, lambda m: (), Give, listed=True),
    6: _Codec(Forced, _EMPTY, lambda m: (), lambda _, ranges: Forced(ranges), listed=True),
    7: _Codec(Refused, _REFUSED, lambda m: (_padded(m.text, TEXT_MAX),),
              lambda _request, _ranges, raw: Refused(_text(raw, "text"))),
}
_NUMBERS = {codec.kind: number for number, codec in _CODECS.items()}


def _padded(text: str, most: int) -> bytes:
    raw = text.encode()
    if len(raw) > most:
        raise ProtocolError(f"text {text!r} of {len(raw)} bytes, must have at most {most}")
    return raw


def encode(message: Message) -> bytes:
    """Return the bytes of a message.

    :raises ProtocolError: if a value does not fit
    """
    number = _NUMBERS[type(message)]
    codec = _CODECS[number]
    ranges: tuple[Range, ...] = getattr(message, "ranges", ())
    try:
        data = _HEAD.pack(VERSION, number, len(ranges), getattr(message, "request", 0)) \
            + codec.layout.pack(*codec.fields(message)) \
            + b"".join(_RANGE.pack(*one) for one in ranges)
    except (struct.error, UnicodeError) as error:
        raise ProtocolError(f"{message}: {error}") from None
    # What the other side refuses must not be sent.
    decode(data)
    return data


def decode(data: bytes) -> Message:
    """Return the message of a datagram.

    :raises ProtocolError: if it is not allowed; the text has the reason
    """
    if len(data) < _HEAD.size:
        raise ProtocolError(f"message of {len(data)} bytes, must have {_HEAD.size} or more")
    version, number, listed, request = _HEAD.unpack_from(data)
    if version != VERSION:
        raise ProtocolError(f"version {version} of the protocol, must be {VERSION}")
    codec = _CODECS.get(number)
    if codec is None:
        raise ProtocolError(f"message of type {number}, must be 1 to {max(_CODECS)}")
    if listed > (RANGES_MAX if codec.listed else 0):
        raise ProtocolError(f"{listed} ranges in a message of type {number}")
    start = _HEAD.size + codec.layout.size
    if len(data) != start + listed * _RANGE.size:
        raise ProtocolError(f"message of type {number} with {len(data)} bytes, must have "
                            f"{start + listed * _RANGE.size}")
    return codec.make(request, ranges_of(data[start:]), *codec.layout.unpack_from(data, _HEAD.size))


def lists(make: Callable[[tuple[Range, ...]], Message],
          ranges: tuple[Range, ...]) -> Iterator[Message]:
    """Divide a list of any length into messages; an empty list is none."""
    for at in range(0, len(ranges), RANGES_MAX):
        yield make(ranges[at:at + RANGES_MAX])
