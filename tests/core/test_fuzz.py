# SPDX-License-Identifier: Apache-2.0
"""Short runs of the fuzzers."""

import struct
from collections.abc import Mapping

import pytest

from tests.core import build

pytestmark = pytest.mark.slow

SECONDS = 12

#: Device size, then commands: kind (0 replace, 1 change: remove the first half, add the
#: other one, 2 punch), owner, extents.
SEEDS: dict[str, tuple[int, list[tuple[int, int, list[tuple[int, int]]]]]] = {
    "one-owner": (1000, [(0, 0, [(0, 8), (8, 8), (100, 50)])]),
    "two-owners": (1000, [(0, 0, [(0, 8)]), (0, 1, [(8, 8)]), (0, 0, [(16, 8)])]),
    "clash": (1000, [(0, 0, [(0, 8)]), (0, 1, [(7, 1)])]),
    "punched": (1000, [(0, 0, [(0, 1000)]), (2, 0, [(0, 1), (500, 10), (999, 1)])]),
    "refused": (1000, [(0, 0, [(999, 2)]), (0, 0, [(8, 0)]), (0, 0, [(8, 1), (0, 1)])]),
    "largest": (2**64 - 1, [(0, 0, [(0, 2**64 - 1)]), (2, 0, [(2**63, 2)])]),
    "wraps": (2**64 - 1, [(0, 0, [(2**64 - 2, 2)]), (0, 0, [(8, 2**64 - 1)])]),
    "changed": (1000, [(0, 0, [(0, 100)]), (1, 0, [(8, 8), (200, 8), (12, 8), (99, 2)])]),
    "leaves": (9000, [(0, 0, [(16 * n, 8) for n in range(255)]),
                      (1, 1, [(16 * n + 8, 2) for n in range(255)]),
                      (1, 0, [(16 * n, 16) for n in range(0, 200, 2)] + [(4080, 9)])]),
    "emptied": (1000, [(0, 2, [(0, 8)]), (0, 2, [])]),
}


def _encode(size: int, commands: list[tuple[int, int, list[tuple[int, int]]]]) -> bytes:
    data = struct.pack("=Q", size)
    for kind, owner, extents in commands:
        data += struct.pack("=BBB", kind, owner, len(extents))
        data += b"".join(struct.pack("=QQ", *extent) for extent in extents)
    return data


#: Chunk, place, flags (4: a seal), generation, sequence number, tag, data
#: blocks, revision, entries: block, mask, place, argument.
Block = tuple[int, int, int, int, int, int, int, int, list[tuple[int, int, int, int]]]
POOLS: dict[str, tuple[int, list[Block]]] = {
    "open": (0, [(0, 0, 0, 10, 10, 1, 2, 0, [(5, 255, 1, 0), (6, 15, 2, 0)]),
                 (0, 3, 0, 10, 12, 1, 0, 0, [(5, 0, 3, 2)])]),
    "two-logs": (0, [(0, 0, 0, 10, 10, 1, 1, 0, [(5, 255, 1, 0)]),
                     (1, 0, 0, 11, 11, 2, 1, 0, [(5, 15, 1, 0)]),
                     (0, 2, 0, 10, 12, 1, 1, 0, [(5, 3, 3, 0)]),
                     (1, 2, 0, 11, 13, 2, 0, 0, [(0, 0, 2, 255)])]),
    "sealed": (1, [(2, 204, 4, 10, 20, 1, 0, 1, [(5, 255, 1, 0), (5, 255, 1, 0)])]),
    "large": (2, [(0, 204, 4, 10, 20, 1, 0, 1, [(5, 255, 1, 0)]),
                  (0, 205, 4, 10, 20, 1, 0, 1, [(6, 255, 2, 0)])]),
}


def _encode_pool(flags: int, blocks: list[Block]) -> bytes:
    data = struct.pack("=B", flags)
    for *head, entries in blocks:
        data += struct.pack("=9B", *head, len(entries))
        data += b"".join(struct.pack("=4B", *entry) for entry in entries)
    return data


def _fuzz(name: str, seeds: Mapping[str, bytes]) -> int:
    """Run a fuzzer; return the number of inputs that it tried."""
    folder = build.BUILD / "fuzz" / name.removeprefix("fuzz_")
    corpus = folder / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for seed, data in seeds.items():
        (corpus / seed).write_bytes(data)
    program = build.compile_program(name, "clang", folder, "-fsanitize=fuzzer")
    done = build.run(program, f"-max_total_time={SECONDS}", "-max_len=2048", "-seed=1",
                     "-print_final_stats=1", f"-artifact_prefix={folder}/", str(corpus))
    assert done.returncode == 0, done.stderr[-4000:]
    return next(int(line.split()[-1]) for line in done.stderr.splitlines()
                if line.startswith("stat::number_of_executed_units"))


def test_extents() -> None:
    """Extents from user space."""
    assert _fuzz("fuzz_runs", {name: _encode(*seed) for name, seed in SEEDS.items()}) > 10_000


def test_pools() -> None:
    """Contents of a cache device."""
    assert _fuzz("fuzz_recover", {name: _encode_pool(*pool) for name, pool in POOLS.items()}) > 500
