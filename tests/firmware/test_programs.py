# SPDX-License-Identifier: Apache-2.0
"""Run the test programs of the firmware, with both compilers and their sanitizers."""

import itertools
import random
from pathlib import Path

import pytest

from tests.firmware import build

#: Page mapping, FAST, and flushes without log pages, which Baseline does not have.
PAGE, FAST, SYNC = range(5), range(5, 9), range(9, 15)
#: With several banks and tags.
WEIGHTED = (1, 2, 3, 10, 11, 12, 13, 14)
PERSONALITIES = {"tagged": "0", "baseline": "1"}
#: Shape, personality.
CASES = [*itertools.product([*PAGE, *FAST], PERSONALITIES),
         *((shape, "tagged") for shape in SYNC)]
#: Shape, personality, seed: cases that were read-only too early, or worn out at the end.
BAD = [(4, "tagged", 3), (4, "baseline", 10), (1, "baseline", 5), (5, "baseline", 4)]
#: Inputs of the fuzzer in addition to its corpus.
RUNS = 80


@pytest.fixture(scope="module", params=["gcc", "clang"])
def checked(request: pytest.FixtureRequest) -> Path:
    """Return the power-cut program under sanitizers."""
    return build.compile_program("test_powercut", request.param, build.BUILD / request.param)


@pytest.fixture(scope="module")
def fast() -> Path:
    """Return the power-cut program, optimised."""
    return build.compile_program("test_powercut", "gcc", build.BUILD / "fast", kind=build.FAST)


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("name", ["test_ftl", "test_ftl_fast", "test_ftl_flush", "test_ftl_handles",
                                  "test_ftl_media", "test_ftl_order", "test_ftl_share",
                                  "test_ftl_trim"])
def test_ftl(name: str, compiler: str) -> None:
    program = build.compile_program(name, compiler, build.BUILD / compiler)
    done = build.run(program)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("shape", "personality"), CASES)
def test_cut_again_and_again(checked: Path, shape: int, personality: str) -> None:
    done = build.run(checked, "long", str(shape), PERSONALITIES[personality], "1")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("shape", "personality", "seed"),
                         [*itertools.product(PAGE, PERSONALITIES, [1, 2, 3, 4]),
                          *itertools.product(FAST, PERSONALITIES, [1, 2]),
                          *itertools.product(SYNC, ["tagged"], [1, 2, 3, 4])])
def test_cut_at_every_operation(fast: Path, shape: int, personality: str, seed: int) -> None:
    done = build.run(fast, "sweep", str(shape), PERSONALITIES[personality], str(seed))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("shape", WEIGHTED)
@pytest.mark.parametrize("kind", ["weighted-long", "weighted-sweep", "weighted-bad-long"])
def test_cut_with_weights(fast: Path, shape: int, kind: str) -> None:
    for seed in (1, 2, 3):
        done = build.run(fast, kind, str(shape), PERSONALITIES["tagged"], str(seed))
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("shape", "personality"), CASES)
def test_cut_at_every_operation_of_recovery(fast: Path, shape: int, personality: str) -> None:
    done = build.run(fast, "recovery", str(shape), PERSONALITIES[personality], "2")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("shape", "personality", "seed"),
                         [*((*case, seed) for case in CASES for seed in (1, 2)), *BAD])
def test_cut_again_and_again_with_bad_blocks(fast: Path, shape: int, personality: str,
                                             seed: int) -> None:
    done = build.run(fast, "bad-long", str(shape), PERSONALITIES[personality], str(seed))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("shape", "personality"),
                         [*itertools.product([0, 1, 2, 5, 6], PERSONALITIES),
                          *itertools.product(SYNC, ["tagged"])])
def test_cut_at_every_operation_with_bad_blocks(fast: Path, shape: int, personality: str) -> None:
    done = build.run(fast, "bad-sweep", str(shape), PERSONALITIES[personality], "2")
    assert done.returncode == 0, done.stderr


def test_fuzz_smoke() -> None:
    folder = build.BUILD / "fuzz"
    program = build.compile_program("fuzz_mount", "clang", folder, "-fsanitize=fuzzer")
    corpus = folder / "corpus"
    corpus.mkdir(exist_ok=True)
    numbers = random.Random(1)
    for i in range(40):
        (corpus / f"seed-{i}").write_bytes(numbers.randbytes(1 + 6 * (i % 20)))
    done = build.run(program, f"-runs={RUNS}", "-max_len=241", "-seed=1",
                     f"-artifact_prefix={folder}/", str(corpus))
    assert done.returncode == 0, done.stderr[-4000:]


def test_core_is_freestanding() -> None:
    """The core needs only what a bare-metal port provides."""
    allowed = {"#include <stdbool.h>", "#include <stddef.h>", "#include <stdint.h>"}
    for source in (build.REPO / "firmware" / "core").glob("*.[ch]"):
        text = source.read_text()
        includes = {line for line in text.splitlines() if line.startswith("#include <")}
        assert includes <= allowed, f"{source.name}: {includes}"
        assert not any(word in text for word in ("malloc(", "float ", "double ")), source.name
