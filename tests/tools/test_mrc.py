# SPDX-License-Identifier: Apache-2.0
"""vcache-mrc on small generated traces, and on real ones if available.

Real traces are not part of the project. They are in VCACHE_TRACES, or in shared/traces beside
the repository: NAME.csv.xz, and the exact misses of independent programs in
expected/lru_mrc_4k.csv.
"""

import csv
import json
import lzma
import os
import random
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.box.limits import limit

REPO = Path(__file__).resolve().parents[2]
PROGRAM = REPO / "build" / "tools" / "vcache-mrc"
TRACES = Path(os.environ.get("VCACHE_TRACES", REPO.parent / "shared" / "traces"))
EXPECTED = TRACES / "expected" / "lru_mrc_4k.csv"
GOOD, FAILED, USAGE = 0, 1, 2

Request = tuple[int, int, str]


@pytest.fixture(scope="session", autouse=True)
def fixture_built() -> None:
    subprocess.run(["make", "--no-print-directory", "build/tools/vcache-mrc"], cwd=REPO,
                   check=True)


def run(trace: bytes, *options: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([str(PROGRAM), *options], input=trace, capture_output=True, check=False,
                          timeout=limit(60))


def misses(trace: bytes, sizes: Iterable[int], *options: str) -> tuple[int, dict[int, int]]:
    """Return the number of accesses, and the misses by size."""
    sizes = sorted(set(sizes))
    done = run(trace, "--json", "--sizes", ",".join(map(str, sizes)), *options)
    assert done.returncode == GOOD, done.stderr
    found = json.loads(done.stdout)
    assert set(found) == {"accesses", "sizes"}
    for one in found["sizes"]:
        assert one["miss_ratio"] == pytest.approx(one["misses"] / found["accesses"], abs=1e-9)
    assert [one["blocks"] for one in found["sizes"]] == sizes
    return found["accesses"], {one["blocks"]: one["misses"] for one in found["sizes"]}


def encode(requests: Iterable[Request]) -> bytes:
    lines = [f"{at},{offset},{size},{op}" for at, (offset, size, op) in enumerate(requests)]
    return "\n".join(["ts_us,offset_bytes,size_bytes,op", *lines, ""]).encode()


def mattson(requests: Iterable[Request], sizes: Iterable[int]) -> tuple[int, dict[int, int]]:
    """Compute the same in the simplest way."""
    stack: list[int] = []
    accesses, missed = 0, dict.fromkeys(sizes, 0)
    for offset, size, op in requests:
        if op == "D" or not size:
            continue
        for block in range(offset // 4096, (offset + size - 1) // 4096 + 1):
            depth = stack.index(block) if block in stack else None
            for cache in missed:
                missed[cache] += depth is None or depth >= cache
            if depth is not None:
                del stack[depth]
            stack.insert(0, block)
            accesses += 1
    return accesses, missed


def requests(seed: int) -> list[Request]:
    """Return requests of all kinds: any alignment, runs, loops, hot blocks, discards."""
    chance = random.Random(seed)
    found: list[Request] = []
    base = chance.choice((0, 2**40, 2**64 - 2**22))
    while len(found) < 600:
        at, size = chance.randrange(2**21), chance.choice((0, 1, 512, 4096, 4097, 65536))
        for _ in range(chance.randrange(40)):
            found.append((base + at, size, chance.choice("RRWWD")))
            at = (at + chance.choice((0, size, 8192))) % 2**21
    return found


@pytest.mark.parametrize("options", [("--exact",), ("--rate", "1"), ()])
@pytest.mark.parametrize("seed", range(4))
def test_exact(seed: int, options: tuple[str, ...]) -> None:
    sizes = [1, 2, 3, 10, 31, 100, 200, 400, 512, 1000, 2**40]
    made = requests(seed)
    assert misses(encode(made), sizes, *options) == mattson(made, sizes)


@pytest.mark.parametrize("options", [("--samples", "2048"), ("--rate", "0.1")])
def test_sampled(options: tuple[str, ...]) -> None:
    """A loop, hot runs and a scan: the mean error is small, and the exact curve differs."""
    chance = random.Random(1)
    made = [(4096 * block, 4096, "R") for _ in range(4) for block in range(30000)]
    made += [(2**32 + 65536 * int(3000 * chance.random()**3), 65536, "W") for _ in range(8000)]
    made += [(2**36 + 2**20 * block, 2**20, "R") for block in range(100)]
    sizes = [1000 * size for size in range(1, 100)]
    accesses, exact = misses(encode(made), sizes, "--exact")
    assert misses(encode(made), sizes, *options)[0] == accesses
    sampled = misses(encode(made), sizes, *options)[1]
    assert sampled != exact
    error = sum(abs(sampled[size] - exact[size]) for size in sizes) / len(sizes) / accesses
    assert error < 0.01
    other = misses(encode(made), sizes, *options, "--salt", "7")[1]
    assert other != sampled


def test_growth() -> None:
    """More blocks than the initial capacity."""
    made = [(4096 * block, 4096, "R") for block in [*range(150000), *range(150000)]]
    assert misses(encode(made), [1, 149999, 150000], "--exact") == (
        300000, {1: 300000, 149999: 300000, 150000: 150000})


def test_nothing() -> None:
    done = run(b"")
    assert (done.returncode, done.stderr) == (GOOD, b"")
    assert json.loads(run(encode([(0, 4096, "D")]), "--json").stdout) == {
        "accesses": 0, "sizes": []}


def test_forms() -> None:
    """With and without a heading, with further columns, \\r\\n, and no newline at the end."""
    for trace in (b"1,0,8192,R\n2,4096,1,W\n", b"ts,a,b,c,d\n1.5,0,8192,R,x,y\r\n2,4096,1,W"):
        assert misses(trace, [1, 2], "--exact") == (3, {1: 2, 2: 2})


@pytest.mark.parametrize(("trace", "error"), [
    (b"1,0,4096,R\nx,0,4096,R\n", "line 2: field 1, the time: must be a number"),
    (b"1,-1,4096,R\n", "line 1: field 2, the offset: must be bytes, an integer from 0"),
    (b"1,18446744073709551616,1,R\n", "line 1: field 2, the offset: must be bytes"),
    (b"1,0,4096.5,R\n", "line 1: field 3, the size: must be bytes, an integer"),
    (b"1,18446744073709551615,2,R\n", "line 1: field 3, the size: must be bytes, an integer"),
    (b"1,0,4294967297,W\n", "line 1: field 3, the size: must be up to 2^32 bytes in a read"),
    (b"1,0,4096,X\n", "line 1: field 4, the operation: must be R, W or D"),
    (b"1,0,4096,RW\n", "line 1: field 4, the operation: must be R, W or D"),
    (b"1,0,4096\n", "line 1: field 3, the size: must be bytes"),
    (b"ts,o,s,op\nts,o,s,op\n", "line 2: field 1, the time: must be a number"),
    (b"1,0,4096,R\n\n", "line 2: field 1, the time: must be a number"),
    (b"1" * 5000, "line 1: the line: must be shorter than 1023 characters, of text"),
])
def test_wrong_line(trace: bytes, error: str) -> None:
    done = run(trace, "--json")
    assert (done.returncode, done.stdout) == (FAILED, b"")
    assert error in done.stderr.decode()


@pytest.mark.parametrize(("options", "error"), [
    (("--samples", "15"), "--samples: must be an integer from 16 to 268435456"),
    (("--rate", "0"), "--rate: must be a number from 1e-9 to 1"),
    (("--rate", "nan"), "--rate: must be a number from 1e-9 to 1"),
    (("--sizes", "2,1"), "--sizes: must be up to 4096 integers from 1 to 2^52, in ascending"),
    (("--sizes", "1,,2"), "--sizes: must be up to 4096 integers"),
    (("--exact", "--rate", "1"), "only one of --samples, --rate and --exact is allowed"),
    (("trace.csv",), "the trace is read from stdin"),
])
def test_wrong_option(options: tuple[str, ...], error: str) -> None:
    done = run(b"", *options)
    assert done.returncode == USAGE
    assert error in done.stderr.decode()


def real() -> dict[str, dict[int, int]]:
    """Return the exact misses of each real trace, by size."""
    found: dict[str, dict[int, int]] = {}
    if EXPECTED.is_file():
        with EXPECTED.open() as file:
            for row in csv.DictReader(file):
                if (TRACES / f"{row['trace']}.csv.xz").is_file():
                    found.setdefault(row["trace"], {})[int(row["cache_blocks_4k"])] = int(
                        row["exact_misses_mattson"])
    return found


@pytest.mark.skipif(not EXPECTED.is_file(),
                    reason=f"no real traces: {EXPECTED} is not there (VCACHE_TRACES)")
def test_real_traces() -> None:
    curves = real()
    assert curves
    for name, curve in curves.items():
        trace = lzma.decompress((TRACES / f"{name}.csv.xz").read_bytes())
        for options in (("--exact",), ("--rate", "1")):
            assert misses(trace, curve, *options)[1] == curve, name
        accesses, sampled = misses(trace, curve)
        error = sum(abs(sampled[size] - curve[size]) for size in curve) / len(curve) / accesses
        assert error < 0.01, name
