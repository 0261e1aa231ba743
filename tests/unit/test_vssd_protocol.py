# SPDX-License-Identifier: Apache-2.0
"""Messages of elastic SSDs as bytes: whole, in pieces, damaged, and among other bytes."""

import ast
import random
import struct
import sys
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcache_guest.protocol import (
    BLOCKS_MAX,
    PAYLOAD_MAX,
    PREAMBLE,
    RANGES_MAX,
    Call,
    Decoder,
    Deflate,
    Done,
    Forced,
    Give,
    Hello,
    Inflate,
    Message,
    ProtocolError,
    Range,
    Welcome,
    encode,
    lists,
)

NUMBERS = st.integers(0, BLOCKS_MAX)
RANGES = st.builds(lambda first, count: Range(first, min(count, BLOCKS_MAX - first)),
                   st.integers(0, BLOCKS_MAX - 1), st.integers(1, BLOCKS_MAX))
LISTS = st.lists(RANGES, max_size=20).map(tuple)
HELLOS = st.builds(lambda a, b, boot: Hello(min(a, b), max(a, b), boot), st.integers(1, 255),
                   st.integers(1, 255), st.binary(min_size=16, max_size=16))
WELCOMES = st.builds(
    lambda pages, a, b, persist, serial: Welcome(pages * 4096, max(a, b), min(a, b), persist,
                                                 serial),
    st.integers(1, 4096), NUMBERS, NUMBERS, st.booleans(),
    st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=20))
MESSAGES: st.SearchStrategy[Message] = st.one_of(
    HELLOS, WELCOMES, st.builds(Inflate, NUMBERS, NUMBERS),
    st.builds(Deflate, NUMBERS, NUMBERS, NUMBERS), st.builds(Done, NUMBERS, NUMBERS),
    st.builds(Give, NUMBERS, st.booleans(), LISTS),
    st.builds(Forced, NUMBERS, st.booleans(), LISTS), st.just(Call()))


def pieces(data: bytes, seed: int) -> list[bytes]:
    """Cut bytes at random places."""
    rng = random.Random(seed)
    cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randrange(8)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


@given(st.lists(MESSAGES, max_size=5), st.integers())
def test_messages_arrive_in_any_pieces(messages: list[Message], seed: int) -> None:
    decoder = Decoder()
    data = b"".join(map(encode, messages))
    assert [one for piece in pieces(data, seed) for one in decoder.feed(piece)] == messages
    assert decoder.skipped == decoder.refused == 0


@given(st.binary(max_size=200), MESSAGES)
def test_a_message_is_found_behind_other_bytes(other: bytes, message: Message) -> None:
    """The other bytes may be a frame whose end was lost: the preamble completes it."""
    decoder = Decoder()
    assert decoder.feed(other + PREAMBLE + encode(message))[-1] == message


@given(st.lists(MESSAGES, min_size=1, max_size=3), st.data())
def test_a_damaged_message_is_not_taken_for_another(messages: list[Message],
                                                    draw: st.DataObject) -> None:
    data = bytearray(b"".join(map(encode, messages)))
    at = draw.draw(st.integers(0, len(data) - 1))
    data[at] ^= 1 << draw.draw(st.integers(0, 7))
    decoder = Decoder()
    found = decoder.feed(bytes(data) + PREAMBLE)
    assert len(found) == len(messages) - 1
    left = iter(messages)
    assert all(one in left for one in found)


@given(st.lists(st.binary(max_size=5000), max_size=4))
def test_any_bytes_are_taken_with_little_memory(data: list[bytes]) -> None:
    decoder = Decoder()
    for piece in data:
        for message in decoder.feed(piece):
            assert encode(message)
        assert len(decoder._data) <= len(PREAMBLE)


@pytest.mark.parametrize("message", [
    Hello(0, 1, bytes(16)), Hello(2, 1, bytes(16)), Hello(1, 256, bytes(16)),
    Welcome(4096, 1, 2, False, "a"), Welcome(4095, 1, 1, False, "a"), Welcome(0, 1, 1, False, "a"),
    Welcome(4096, 1, 1, False, ""), Welcome(4096, 1, 1, False, "a b"),
    Welcome(4096, 1, 1, False, "a" * 21), Welcome(4096, 1, 1, False, "ä"),
    Inflate(-1, 1), Deflate(1, 1, 1 << 32), Give(0, False, (Range(0, 0),)),
    Give(0, False, (Range(BLOCKS_MAX, 1),)), Forced(0, False, (Range(0, 1),) * (RANGES_MAX + 1))])
def test_what_is_not_allowed_is_not_sent(message: Message) -> None:
    with pytest.raises(ProtocolError):
        encode(message)


def _frame(version: int, number: int, payload: bytes) -> bytes:
    head = struct.pack(">BBH", version, number, len(payload))
    return b"VSSD" + head + struct.pack(">I", zlib.crc32(payload, zlib.crc32(head))) + payload


@pytest.mark.parametrize("frame", [
    _frame(1, 9, b""), _frame(1, 8, b"x"), _frame(1, 0, b""), _frame(2, 3, bytes(8)),
    _frame(1, 3, bytes(7)), _frame(1, 3, bytes(9)), _frame(1, 5, bytes(6)),
    _frame(1, 5, b"\0\0\0\1\2\0\0"), _frame(1, 5, b"\0\0\0\1\0\0\1"),
    _frame(1, 5, b"\0\0\0\1\0\0\1" + bytes(8)),
    _frame(1, 5, b"\0\0\0\1\0\0\1" + b"\xff" * 8), _frame(1, 2, bytes(33)),
    _frame(1, 1, bytes(18))])
def test_what_is_not_allowed_is_refused(frame: bytes) -> None:
    decoder = Decoder()
    assert decoder.feed(frame) == []
    assert (decoder.refused, decoder.skipped) == (1, 0)
    assert decoder.feed(encode(Done(1, 2))) == [Done(1, 2)]


def test_a_hello_of_a_newer_version_is_understood() -> None:
    message = Hello(2, 9, bytes(16))
    assert Decoder().feed(_frame(9, 1, encode(message)[12:])) == [message]


@given(st.integers(0, 3 * RANGES_MAX))
def test_long_lists_are_divided(count: int) -> None:
    ranges = tuple(Range(2 * i, 1) for i in range(count))
    found = list(lists(Give, 7, ranges))
    assert sum((one.ranges for one in found), ()) == ranges
    assert [one.more for one in found] == [True] * (len(found) - 1) + [False]
    assert all(len(encode(one)) <= 12 + PAYLOAD_MAX for one in found)


def test_the_guest_imports_nothing_of_the_host() -> None:
    """And nothing that is not in Python's library: it is installed in guests."""
    folder = Path(__file__).resolve().parents[2] / "agent" / "vcache_guest"
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else \
                [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                top = name.split(".")[0]
                assert top == "vcache_guest" or top in sys.stdlib_module_names, f"{path}: {name}"
