# SPDX-License-Identifier: Apache-2.0
"""Fuzz the protocol of elastic SSDs: ``python -m tests.unit.vssd_fuzz [--messages N] [--seed N]``.

Random messages, whole, damaged and out of range, arrive in random pieces at both sides: the host's
session on a model of the device, and the guest on a model of its cache. Damage of a payload gets a
correct checksum, or else nothing behind the checksum would be reached. Nothing may raise, reach
outside the device, or take memory without bound. A seed repeats a run.
"""

import argparse
import logging
import random
import struct
import sys
import time
import zlib
from collections.abc import Callable

from vcache_agent.vssd.session import Action, Force, Recall, Release, Send, Session, SetQuota, State
from vcache_guest.cache import CacheError
from vcache_guest.guest import Guest
from vcache_guest.protocol import (
    BLOCKS_MAX,
    PAYLOAD_MAX,
    PREAMBLE,
    Call,
    Decoder,
    Deflate,
    Done,
    Forced,
    Give,
    Hello,
    Inflate,
    Message,
    Range,
    Welcome,
    encode,
)

MOST = 64
#: Numbers at which something changes, or may overflow.
_EDGES = (0, 1, 2, MOST - 1, MOST, MOST + 1, 255, 256, 257, 65535, 1 << 31, BLOCKS_MAX - 1,
          BLOCKS_MAX)


class Broken(Exception):
    """A rule was broken; the text has the seed and the number of the message."""


def _number(rng: random.Random, most: int = BLOCKS_MAX) -> int:
    kind = rng.random()
    if kind < 0.5:
        return rng.randrange(MOST + 2)
    return min(rng.choice(_EDGES), most) if kind < 0.8 else rng.randrange(most + 1)


def _ranges(rng: random.Random) -> tuple[Range, ...]:
    found = []
    for _ in range(rng.choice((0, 1, 1, 2, 5, 40, 256))):
        first = min(_number(rng), BLOCKS_MAX - 1)
        found.append(Range(first, max(1, min(_number(rng), BLOCKS_MAX - first))))
    return tuple(found)


def _welcome(rng: random.Random) -> Welcome:
    most = max(_number(rng), 1)
    return Welcome(rng.choice((4096, 65536, 1 << 20, 1 << 31)), most, min(_number(rng), most),
                   rng.random() < 0.5, rng.choice(("a", "vssd-1", "~" * 20)))


_MAKERS: tuple[Callable[[random.Random], Message], ...] = (
    lambda rng: Hello(1, rng.choice((1, 2, 255)), rng.randbytes(16)),
    _welcome,
    lambda rng: Inflate(_number(rng), _number(rng)),
    lambda rng: Deflate(_number(rng), _number(rng), _number(rng)),
    lambda rng: Give(_number(rng), rng.random() < 0.3, _ranges(rng)),
    lambda rng: Forced(_number(rng), rng.random() < 0.3, _ranges(rng)),
    lambda rng: Done(_number(rng), _number(rng)),
    lambda _: Call(),
)


def _sealed(version: int, kind: int, payload: bytes, size: int | None = None) -> bytes:
    """Return a frame with a correct checksum, whatever it contains."""
    head = struct.pack(">BBH", version, kind, len(payload) if size is None else size)
    return b"VSSD" + head + struct.pack(">I", zlib.crc32(payload, zlib.crc32(head))) + payload


def _damaged(rng: random.Random, frame: bytes) -> bytes:
    version, kind, payload = frame[4], frame[5], bytearray(frame[12:])
    match rng.randrange(8):
        case 0:  # the payload has other values
            for _ in range(rng.randrange(1, 4)):
                if payload:
                    payload[rng.randrange(len(payload))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        case 1:  # it has another length
            payload = payload[:rng.randrange(len(payload) + 1)] if rng.random() < 0.5 else \
                payload + rng.randbytes(rng.randrange(1, 40))
        case 2:
            kind = rng.randrange(256)
        case 3:
            version = rng.randrange(256)
        case 4:  # the checksum is wrong
            at = rng.randrange(len(frame))
            return frame[:at] + bytes([frame[at] ^ 1 << rng.randrange(8)]) + frame[at + 1:]
        case 5:  # its end is lost
            return frame[:rng.randrange(len(frame))]
        case 6:  # the length in the head is another one
            return _sealed(version, kind, bytes(payload), rng.choice((0, 1, PAYLOAD_MAX,
                                                                     PAYLOAD_MAX + 1, 65535)))
        case 7:
            return rng.randbytes(rng.randrange(40)) + b"VSSD"[:rng.randrange(5)]
    return _sealed(version, kind, bytes(payload[:PAYLOAD_MAX]))


class _Cache:
    """The guest's cache, which fails now and then."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.size = rng, 0

    def attach(self, vssd: str, block_bytes: int, most: int, size: int) -> None:
        self.resize(size)

    def resize(self, size: int, seconds: float = 0) -> None:
        if self.rng.random() < 0.2:
            raise CacheError("fuzz")
        self.size = size

    def drop(self, *, wiped: bool) -> None:
        self.resize(0)


class _Host:
    """The host's session on a model of the device."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.now = rng, 0.0
        self.quota, self.mapped, self.taken = MOST // 2, set(range(MOST // 2)), set[int]()
        self.kept = 0
        self.session = Session(1 << 20, True, self.state())
        self.session.connected("disk")

    def state(self) -> State:
        owned = max(self.quota, len(self.mapped), self.kept)
        return State(MOST, self.quota, owned, len(self.mapped), owned - len(self.mapped))

    def turn(self, messages: list[Message]) -> None:
        for message in messages:
            self.do(self.session.received(message, self.now))
        self.now += self.rng.random() * 20
        if self.rng.random() < 0.05:
            self.do(self.session.resize(self.rng.randrange(MOST + 1), self.now, 30))
        free = sorted(set(range(MOST)) - self.mapped - self.taken)
        if free and len(self.mapped) < max(self.quota, self.kept):
            self.mapped.add(self.rng.choice(free))
        self.do(self.session.observed(self.state(), self.now))
        assert self.session.size <= max(self.quota, len(self.mapped)), "the guest may use too much"

    def do(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Send(message):
                    assert len(encode(message)) <= 12 + PAYLOAD_MAX
                case SetQuota(blocks, keep):
                    self.kept = self.state().owned if keep else 0
                    self.quota = blocks
                case Release(ranges):
                    end = 0
                    for one in ranges:
                        assert end <= one.first < one.first + one.blocks <= MOST, ranges
                        end = one.first + one.blocks
                        freed = set(range(one.first, end))
                        self.mapped -= freed
                        self.taken -= freed
                case Force():
                    self.kept = 0
                    lost = set(sorted(self.mapped)[self.quota:])
                    self.mapped -= lost
                    self.taken |= lost
                    self.do(self.session.forced(tuple(Range(one, 1) for one in sorted(lost))))
                case Recall():
                    self.do(self.session.recalled(tuple(Range(one, 1)
                                                        for one in sorted(self.taken))))


class Fuzz:
    """One run.

    :param seed: what repeats it
    """

    def __init__(self, seed: int) -> None:
        self.seed, self.sent = seed, 0
        rng = self.rng = random.Random(seed)
        self.host, self.cache = _Host(rng), _Cache(rng)
        self.guest = Guest(self.cache, lambda serial: f"/dev/{serial}", bytes(16))
        self.decoders = Decoder(), Decoder()
        self.heard = 0

    def run(self, messages: int) -> None:
        """Send so many messages.

        :raises Broken: if a rule is broken
        """
        try:
            while self.sent < messages:
                self._turn()
        except Exception as error:
            raise Broken(f"seed {self.seed}, message {self.sent}: {error!r}") from error

    def _turn(self) -> None:
        rng, data = self.rng, b""
        for _ in range(rng.randrange(1, 9)):
            frame = encode(rng.choice(_MAKERS)(rng))
            data += frame if rng.random() < 0.4 else _damaged(rng, frame)
            self.sent += 1
        if rng.random() < 0.1:
            data += PREAMBLE
        for decoder in self.decoders:
            found = self._decoded(decoder, data)
            self.heard += len(found)
            if decoder is self.decoders[0]:
                self.host.turn(found)
            else:
                self._guest(found)

    def _decoded(self, decoder: Decoder, data: bytes) -> list[Message]:
        found: list[Message] = []
        at = 0
        while at < len(data):
            step = self.rng.choice((1, 16, 256)) if self.rng.random() < 0.01 else \
                self.rng.randrange(len(data)) + 1
            found += decoder.feed(data[at:at + step])
            at += step
        assert len(decoder._data) <= len(PREAMBLE), "the decoder keeps too much"
        return found

    def _guest(self, messages: list[Message]) -> None:
        for message in messages:
            # What one side accepts, it can also say.
            encode(message)
            try:
                for answer in self.guest.received(message):
                    encode(answer)
            except MemoryError:
                raise AssertionError("the guest takes too much memory") from None
        assert self.cache.size >= 0
        if len(self.guest._lost) > 1 << 16:
            self.guest.ended()


def main() -> int:
    """Run until so many messages were sent. Return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    logging.disable()  # errors of the cache are expected
    began, fuzz = time.monotonic(), Fuzz(options.seed)
    try:
        fuzz.run(options.messages)
    except Broken as error:
        print(f"vssd-fuzz: {error}", file=sys.stderr)
        return 1
    print(f"vssd-fuzz: {fuzz.sent} messages in {time.monotonic() - began:.0f} s, {fuzz.heard} were "
          f"accepted, {sum(one.refused for one in fuzz.decoders)} refused")
    return 0


if __name__ == "__main__":
    sys.exit(main())
