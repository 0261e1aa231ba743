# SPDX-License-Identifier: Apache-2.0
"""A short run of the fuzzer over extents as user space sends them."""

import struct
from pathlib import Path

from tests.core import build

SECONDS = 12

#: Device size, then commands: kind (0 replace, 1 subtract), owner, extents.
SEEDS: dict[str, tuple[int, list[tuple[int, int, list[tuple[int, int]]]]]] = {
    "one-owner": (1000, [(0, 0, [(0, 8), (8, 8), (100, 50)])]),
    "two-owners": (1000, [(0, 0, [(0, 8)]), (0, 1, [(8, 8)]), (0, 0, [(16, 8)])]),
    "clash": (1000, [(0, 0, [(0, 8)]), (0, 1, [(7, 1)])]),
    "punched": (1000, [(0, 0, [(0, 1000)]), (1, 0, [(0, 1), (500, 10), (999, 1)])]),
    "refused": (1000, [(0, 0, [(999, 2)]), (0, 0, [(8, 0)]), (0, 0, [(8, 1), (0, 1)])]),
    "largest": (2**64 - 1, [(0, 0, [(0, 2**64 - 1)]), (1, 0, [(2**63, 2)])]),
    "wraps": (2**64 - 1, [(0, 0, [(2**64 - 2, 2)]), (0, 0, [(8, 2**64 - 1)])]),
    "emptied": (1000, [(0, 2, [(0, 8)]), (0, 2, [])]),
}


def _encode(size: int, commands: list[tuple[int, int, list[tuple[int, int]]]]) -> bytes:
    data = struct.pack("=Q", size)
    for kind, owner, extents in commands:
        data += struct.pack("=BBB", kind, owner, len(extents))
        data += b"".join(struct.pack("=QQ", *extent) for extent in extents)
    return data


def _seed_corpus(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, (size, commands) in SEEDS.items():
        (folder / name).write_bytes(_encode(size, commands))


def test_fuzz_smoke() -> None:
    folder = build.BUILD / "fuzz"
    program = build.compile_program("fuzz_runs", "clang", folder, "-fsanitize=fuzzer")
    _seed_corpus(folder / "corpus")
    done = build.run(program, f"-max_total_time={SECONDS}", "-max_len=2048", "-seed=1",
                     "-print_final_stats=1", f"-artifact_prefix={folder}/",
                     str(folder / "corpus"))
    assert done.returncode == 0, done.stderr[-4000:]
    executed = next(int(line.split()[-1]) for line in done.stderr.splitlines()
                    if line.startswith("stat::number_of_executed_units"))
    assert executed > 10_000
