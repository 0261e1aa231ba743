# SPDX-License-Identifier: Apache-2.0
"""Compare the write amplification of greedy garbage collection with a published model.

L. Xiang and B. Kurkoski, "An Improved Analytic Expression for Write
Amplification in NAND Flash" (arXiv 1110.4245, ICNC 2012): for uniform random
writes, with r the physical over the logical size,

    WAF = r / (r + W(-r * exp(-r)))        (W: Lambert, principal branch)

The model assumes an infinite number of blocks and of pages per block. The tested
device has 256 blocks of 32 pages, and some of them are always free or being filled.
So a difference of 5 % is allowed.
"""

import math

import pytest

from tests.firmware import build

TOLERANCE = 0.05


def lambert_w(x: float) -> float:
    """Return the principal branch for -1/e < x < 0, by Newton's method."""
    w = 0.0 if x > -0.3 else -0.7
    for _ in range(100):
        w -= (w * math.exp(w) - x) / (math.exp(w) * (w + 1))
    return w


def model(r: float) -> float:
    """Return the write amplification for a ratio of physical to logical size."""
    return r / (r + lambert_w(-r * math.exp(-r)))


def test_model_gives_the_published_figure() -> None:
    """2.36 at an over-provisioning of 0.3, as in the abstract."""
    assert model(1.3) == pytest.approx(2.36, abs=0.01)


@pytest.mark.parametrize("spare", [10, 20, 30])
def test_greedy_waf(spare: int) -> None:
    program = build.compile_program("test_waf", "gcc", build.BUILD / "fast", kind=build.FAST)
    done = build.run(program, str(spare))
    assert done.returncode == 0, done.stderr
    waf, r = (int(word) / 1000 for word in done.stdout.split()[:2])
    assert waf == pytest.approx(model(r), rel=TOLERANCE)
