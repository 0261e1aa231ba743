# SPDX-License-Identifier: Apache-2.0
"""The figures of `make bench-covert`, and that the systems differ as they should."""

import random
from pathlib import Path

import pytest

from bench.covert.__main__ import Sender, best_decoding, build, run
from bench.covert.channel import TRAINING, Decoded, Symbol, capacity, decode, least


def symbols(count: int, difference: float, seed: int = 1) -> list[Symbol]:
    """Return symbols whose mean time depends on the bit; @difference in standard deviations."""
    source = random.Random(seed)
    found = []
    for _ in range(count):
        bit = source.getrandbits(1)
        found.append(Symbol(bit, round(10000 + 1000 * source.gauss(bit * difference, 1)), 0))
    return found


@pytest.mark.parametrize(("difference", "low", "high"), [
    (20.0, 0.0, 0.0), (2.0, 0.14, 0.19), (-2.0, 0.14, 0.19), (0.0, 0.46, 0.54)])
def test_decoding(difference: float, low: float, high: float) -> None:
    """Two normal distributions; 2 standard deviations apart, 15.9 % of the bits are wrong."""
    found = decode(symbols(TRAINING + 4096, difference), lambda symbol: symbol.mean)
    assert found.total == 4096
    assert low <= found.error_rate <= high


def test_symbols_that_are_all_the_same() -> None:
    found = decode([Symbol(i % 2, 5, 5) for i in range(TRAINING + 1000)], lambda each: each.mean)
    assert found.error_rate == 0.5


def test_capacity() -> None:
    assert capacity(Decoded(0, 4096), 0.001) == pytest.approx(997, abs=1)
    # 1 - H(0.11) is 0.5.
    assert capacity(Decoded(450, 4096), 0.01) == pytest.approx(50, abs=0.2)
    assert capacity(Decoded(2048, 4096), 0.01) == 0
    assert capacity(Decoded(2000, 4096), 0.01) == 0, "not more than chance"
    assert 0 < capacity(Decoded(1900, 4096), 0.01) < 1
    assert least(4096, 0.01) == pytest.approx(0.28, abs=0.01)
    assert least(1024, 0.01) > least(4096, 0.01)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("covert"))


def test_lanes_close_the_channel(program: Path) -> None:
    sender = Sender(10000, 64, True)
    found = {system: best_decoding(run(program, system, sender, 1))
             for system in ("bare", "tagged", "lanes")}
    assert run(program, "bare", sender, 1) == run(program, "bare", sender, 1)
    assert capacity(found["bare"], 0.01) > 50
    assert capacity(found["tagged"], 0.01) < capacity(found["bare"], 0.01)
    assert capacity(found["lanes"], 0.01) < 5
