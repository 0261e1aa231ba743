# SPDX-License-Identifier: Apache-2.0
"""From what the receiver measures to the capacity of the channel; pure functions."""

import dataclasses
import math
from collections.abc import Callable, Sequence

#: Symbols from which the receiver learns; the rest is decoded.
TRAINING = 256
# What differs from guessing by less than so many standard deviations is no channel.
_SIGMAS = 4.0


@dataclasses.dataclass(frozen=True)
class Symbol:
    """One symbol.

    :param bit: that was sent
    :param mean: of the receiver's requests in it, ns
    :param longest: of them, ns
    """

    bit: int
    mean: int
    longest: int


@dataclasses.dataclass(frozen=True)
class Decoded:
    """What the receiver understood.

    :param errors: wrong bits
    :param total: decoded bits
    """

    errors: int
    total: int

    @property
    def error_rate(self) -> float:
        """Part of the bits that is wrong."""
        return self.errors / self.total


def _learn(found: Sequence[tuple[int, int]]) -> tuple[int, bool]:
    """Return the threshold with the fewest errors, and whether values above it mean 1.

    It is in the middle between two values.
    """
    ones = sum(bit for _, bit in found)
    best, choice = min(ones, len(found) - ones), (-1, ones * 2 >= len(found))
    # Bits of the values up to the threshold.
    low = {0: 0, 1: 0}
    ordered = sorted(found)
    for at, (value, bit) in enumerate(ordered):
        low[bit] += 1
        after = ordered[min(at + 1, len(ordered) - 1)][0]
        if after == value and at + 1 < len(ordered):
            continue
        high_ones = ones - low[1]
        high_zeroes = len(ordered) - at - 1 - high_ones
        for errors, above in ((low[1] + high_zeroes, True), (low[0] + high_ones, False)):
            if errors < best:
                best, choice = errors, ((value + after) // 2, above)
    return choice


def decode(symbols: Sequence[Symbol], statistic: Callable[[Symbol], int]) -> Decoded:
    """Learn from the first TRAINING symbols, and decode the others."""
    threshold, above = _learn([(statistic(symbol), symbol.bit)
                               for symbol in symbols[:TRAINING]])
    rest = symbols[TRAINING:]
    return Decoded(sum(((statistic(symbol) > threshold) == above) != bool(symbol.bit)
                       for symbol in rest), len(rest))


def _bits(error_rate: float) -> float:
    """Capacity of a binary symmetric channel in bits for each symbol."""
    rate = min(max(error_rate, 0.0), 1.0)
    if rate in (0.0, 1.0):
        return 1.0
    return 1 + rate * math.log2(rate) + (1 - rate) * math.log2(1 - rate)


def _limit(total: int) -> float:
    """Error rate below which decoding is better than a guess could be."""
    return 0.5 - _SIGMAS * 0.5 / math.sqrt(total)


def capacity(found: Decoded, symbol_s: float) -> float:
    """Return the capacity in bits per second; 0 if it cannot be told from guessing."""
    # One error more than was seen: no error in N symbols does not mean that there is none.
    rate = (found.errors + 1) / (found.total + 1)
    return _bits(rate) / symbol_s if rate < _limit(found.total) else 0.0


def least(total: int, symbol_s: float) -> float:
    """Return the smallest capacity in bits per second that can be told from guessing."""
    return _bits(_limit(total)) / symbol_s
