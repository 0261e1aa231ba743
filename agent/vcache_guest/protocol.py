# SPDX-License-Identifier: Apache-2.0
"""The protocol between the host and the guest of an elastic SSD, as messages and as bytes.

This module is pure: it does no I/O. Both sides use it. ``doc/source/reference/vssd-protocol.rst``
describes the order of the messages.

The channel is a byte stream without connections: what a guest had not read before a reboot is
still there after it. So each message is a frame that can be found among other bytes:

====== ===== ===========================================================
offset bytes content
====== ===== ===========================================================
0      4     ``VSSD``
4      1     version of the protocol, see :data:`VERSION`
5      1     type of the message
6      2     length of the payload in bytes, at most :data:`PAYLOAD_MAX`
8      4     CRC-32 of the payload and of bytes 4 to 7
12           payload
====== ===== ===========================================================

All numbers are big-endian. Sizes and ranges are in blocks, which :class:`Welcome` gives the size
of in bytes.
"""

import dataclasses
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

#: Version that this release speaks.
VERSION = 1

#: Largest payload of a message in bytes.
PAYLOAD_MAX = 4096

#: Most ranges of one message; a longer list takes several, see ``more``.
RANGES_MAX = 256

#: Longest serial number of a disk: that of virtio-blk.
SERIAL_MAX = 20

BLOCKS_MAX = (1 << 32) - 1

_MAGIC = b"VSSD"
_HEAD = struct.Struct(">4sBBHI")
_HELLO = struct.Struct(">BB16s")
_WELCOME = struct.Struct(">IIIB20s")
_SIZE = struct.Struct(">II")
_DEFLATE = struct.Struct(">III")
_LIST = struct.Struct(">IBH")
_RANGE = struct.Struct(">II")
_EMPTY = struct.Struct("")


#: Sent in front of :class:`Call`, :class:`Hello` and :class:`Welcome`. It completes a frame whose
#: end was lost, so that the other side does not wait for it.
PREAMBLE = bytes(_HEAD.size + PAYLOAD_MAX)


class ProtocolError(ValueError):
    """A message that must not be sent, or that is not allowed."""


class Range(NamedTuple):
    """Consecutive blocks.

    :param first: the first one
    :param blocks: how many, at least one
    """

    first: int
    blocks: int


@dataclasses.dataclass(frozen=True)
class Hello:
    """Guest to host: the daemon has started. What was under way before is over.

    :param oldest: oldest version that the guest speaks
    :param newest: newest version that it speaks
    :param boot: 16 random bytes of this boot of the guest
    """

    oldest: int
    newest: int
    boot: bytes


@dataclasses.dataclass(frozen=True)
class Welcome:
    """Host to guest: the registration ⟨M, C, P⟩; the answer to :class:`Hello`.

    :param block_bytes: size of a block
    :param most: M, the size of the disk
    :param size: C, how many blocks the guest may use now
    :param persist: P, the content outlives a restart
    :param serial: serial number of the disk, 1 to 20 printable ASCII characters
    """

    block_bytes: int
    most: int
    size: int
    persist: bool
    serial: str


@dataclasses.dataclass(frozen=True)
class Inflate:
    """Host to guest: the guest may use more blocks from now on.

    :param request: number of the request, for the answer
    :param size: how many it may use now, altogether
    """

    request: int
    size: int


@dataclasses.dataclass(frozen=True)
class Deflate:
    """Host to guest: give up blocks.

    :param request: number of the request, for the answer
    :param size: how many blocks the guest may keep
    :param deadline_ms: after that the host takes them by force
    """

    request: int
    size: int
    deadline_ms: int


@dataclasses.dataclass(frozen=True)
class Give:
    """Guest to host: blocks that the guest does not use any more. They read as zeroes then.

    :param request: number of the :class:`Deflate` that it answers; 0: none. Blocks that were taken
        by force can be written again after they are given up
    :param more: another message with blocks follows
    :param ranges: the blocks
    """

    request: int
    more: bool
    ranges: tuple[Range, ...]


@dataclasses.dataclass(frozen=True)
class Forced:
    """Host to guest: blocks were taken. They fail until they are discarded.

    :param request: number of the request whose deadline has passed; 0: they were taken earlier
    :param more: another message with blocks follows
    :param ranges: the blocks
    """

    request: int
    more: bool
    ranges: tuple[Range, ...]


@dataclasses.dataclass(frozen=True)
class Done:
    """Either side: a request is complete.

    :param request: its number
    :param size: from the host: how many blocks the guest may use; from the guest: how many it uses
    """

    request: int
    size: int


@dataclasses.dataclass(frozen=True)
class Call:
    """Host to guest: the host has connected, and waits for a :class:`Hello`."""


Message = Hello | Welcome | Inflate | Deflate | Give | Forced | Done | Call


def ranges_of(data: bytes) -> tuple[Range, ...]:
    """Return the ranges that fill some bytes, a multiple of eight.

    :raises ProtocolError: if one is not allowed
    """
    found = tuple(Range._make(pair) for pair in _RANGE.iter_unpack(data))
    for one in found:
        if not one.blocks or one.first + one.blocks > BLOCKS_MAX:
            raise ProtocolError(f"range of {one.blocks} blocks from {one.first} on, must have 1 or "
                                f"more and end below {BLOCKS_MAX}")
    return found


def check_block_bytes(size: int) -> None:
    """Check the size of a block.

    :raises ProtocolError: if it is not allowed
    """
    if size % 4096 or not size:
        raise ProtocolError(f"blocks of {size} bytes, must be a multiple of 4096")


def _ranges(data: bytes, count: int) -> tuple[Range, ...]:
    if count > RANGES_MAX:
        raise ProtocolError(f"{count} ranges, must be at most {RANGES_MAX}")
    if len(data) != count * _RANGE.size:
        raise ProtocolError(f"{count} ranges in {len(data)} bytes, must be {count * _RANGE.size}")
    return ranges_of(data)


def _unpack_list(kind: type[Give] | type[Forced], data: bytes) -> Give | Forced:
    if len(data) < _LIST.size:
        raise ProtocolError(f"list of {len(data)} bytes, must have {_LIST.size} or more")
    request, more, count = _LIST.unpack_from(data)
    return kind(request, _flag(more), _ranges(data[_LIST.size:], count))


def _flag(value: int) -> bool:
    if value > 1:
        raise ProtocolError(f"flag {value}, must be 0 or 1")
    return bool(value)


def _pack_list(message: Give | Forced) -> bytes:
    if len(message.ranges) > RANGES_MAX:
        raise ProtocolError(f"{len(message.ranges)} ranges, must be at most {RANGES_MAX}")
    return _LIST.pack(message.request, message.more, len(message.ranges)) + b"".join(
        _RANGE.pack(*one) for one in message.ranges)


def _unpack_hello(data: bytes) -> Hello:
    message = Hello(*_exactly(_HELLO, data))
    if not 1 <= message.oldest <= message.newest:
        raise ProtocolError(f"versions {message.oldest} to {message.newest}, must be ascending "
                            "from 1 or more")
    return message


def _unpack_welcome(data: bytes) -> Welcome:
    block_bytes, most, size, persist, raw = _exactly(_WELCOME, data)
    serial = raw.rstrip(b"\0").decode("latin-1")
    if size > most:
        raise ProtocolError(f"size of {size} blocks, must be at most {most}")
    check_block_bytes(block_bytes)
    _check_serial(serial)
    return Welcome(block_bytes, most, size, _flag(persist), serial)


def _check_serial(serial: str) -> None:
    if not 1 <= len(serial) <= SERIAL_MAX or not all("!" <= char <= "~" for char in serial):
        raise ProtocolError(f"serial number {serial!r}, must have 1 to {SERIAL_MAX} printable "
                            "characters")


def _pack_welcome(message: Welcome) -> bytes:
    _check_serial(message.serial)
    return _WELCOME.pack(message.block_bytes, message.most, message.size, message.persist,
                         message.serial.encode("ascii"))


def _exactly(layout: struct.Struct, data: bytes) -> tuple[Any, ...]:
    if len(data) != layout.size:
        raise ProtocolError(f"payload of {len(data)} bytes, must have {layout.size}")
    return layout.unpack(data)


class _Codec(NamedTuple):
    kind: type
    pack: Callable[..., bytes]
    unpack: Callable[[bytes], Message]


# The types by number. A number is never used for anything else.
_CODECS: dict[int, _Codec] = {
    1: _Codec(Hello, lambda m: _HELLO.pack(m.oldest, m.newest, m.boot), _unpack_hello),
    2: _Codec(Welcome, _pack_welcome, _unpack_welcome),
    3: _Codec(Inflate, lambda m: _SIZE.pack(m.request, m.size),
              lambda data: Inflate(*_exactly(_SIZE, data))),
    4: _Codec(Deflate, lambda m: _DEFLATE.pack(m.request, m.size, m.deadline_ms),
              lambda data: Deflate(*_exactly(_DEFLATE, data))),
    5: _Codec(Give, _pack_list, lambda data: _unpack_list(Give, data)),
    6: _Codec(Forced, _pack_list, lambda data: _unpack_list(Forced, data)),
    7: _Codec(Done, lambda m: _SIZE.pack(m.request, m.size),
              lambda data: Done(*_exactly(_SIZE, data))),
    8: _Codec(Call, lambda m: b"", lambda data: Call(*_exactly(_EMPTY, data))),
}
_NUMBERS = {codec.kind: number for number, codec in _CODECS.items()}


def encode(message: Message) -> bytes:
    """Return the frame of a message.

    :raises ProtocolError: if a value does not fit
    """
    number = _NUMBERS[type(message)]
    try:
        payload = _CODECS[number].pack(message)
    except (struct.error, UnicodeError) as error:
        raise ProtocolError(f"{message}: {error}") from None
    # What the other side refuses must not be sent.
    _CODECS[number].unpack(payload)
    head = struct.pack(">BBH", VERSION, number, len(payload))
    return _MAGIC + head + struct.pack(">I", zlib.crc32(payload, zlib.crc32(head))) + payload


def lists(kind: type[Give] | type[Forced], request: int,
          ranges: tuple[Range, ...]) -> Iterator[Give | Forced]:
    """Divide a list of any length into messages; an empty list is one message."""
    for at in range(0, max(len(ranges), 1), RANGES_MAX):
        yield kind(request, at + RANGES_MAX < len(ranges), ranges[at:at + RANGES_MAX])


class Decoder:
    """Finds the messages in what a channel delivers.

    Bytes that are no frame are skipped up to the next ``VSSD``. It keeps less than one frame of
    the largest size.
    """

    def __init__(self) -> None:
        self._data = bytearray()
        #: Bytes that were skipped so far.
        self.skipped = 0
        #: Frames that were refused so far: another version or type, or a value out of range.
        self.refused = 0

    def feed(self, data: bytes) -> list[Message]:
        """Take bytes of any number, and return the messages that are complete."""
        found: list[Message] = []
        view = memoryview(data)
        # In pieces, so that garbage needs no memory.
        for at in range(0, len(view), PAYLOAD_MAX):
            self._data += view[at:at + PAYLOAD_MAX]
            found += self._messages()
        return found

    def _messages(self) -> Iterator[Message]:
        while self._find():
            size = _HEAD.unpack_from(self._data)[3]
            if len(self._data) < _HEAD.size + size:
                return
            message = self._message(size)
            if message is not None:
                yield message

    def _find(self) -> bool:
        """Skip to a head whose length is allowed. Return False if there is none yet."""
        while True:
            at = self._data.find(_MAGIC)
            if at < 0:
                # The end may be the beginning of a head.
                at = max(len(self._data) - len(_MAGIC) + 1, 0)
                self._skip(at)
                return False
            self._skip(at)
            if len(self._data) < _HEAD.size:
                return False
            if _HEAD.unpack_from(self._data)[3] <= PAYLOAD_MAX:
                return True
            self._skip(1)

    def _skip(self, count: int) -> None:
        del self._data[:count]
        self.skipped += count

    def _message(self, size: int) -> Message | None:
        """Take a frame, or skip its first byte if it is none."""
        _, version, number, _, crc = _HEAD.unpack_from(self._data)
        payload = bytes(self._data[_HEAD.size:_HEAD.size + size])
        if zlib.crc32(payload, zlib.crc32(self._data[4:8])) != crc:
            self._skip(1)
            return None
        del self._data[:_HEAD.size + size]
        codec = _CODECS.get(number)
        # A newer side may send a Hello: it says which versions it speaks.
        if codec is None or (version != VERSION and codec.kind is not Hello):
            self.refused += 1
            return None
        try:
            return codec.unpack(payload)
        except ProtocolError:
            self.refused += 1
            return None
