# SPDX-License-Identifier: Apache-2.0
"""The losses of tags with one GiB less of cache."""

import pytest

from vcache_agent.marginal import GIB, User, loss_per_gb
from vcache_agent.model import Curve


def curve(*read_misses: int, reads: int = 1000, grain: int = GIB) -> Curve:
    return Curve(grain, 10 * GIB, reads, 0, read_misses, (0,) * len(read_misses))


def test_one_tag_loses_what_its_curve_says() -> None:
    # Misses of 1000 reads with 0, 1, 2 and 3 GiB.
    falling = curve(1000, 600, 300, 100)
    assert loss_per_gb([User(falling, GIB, 50.0)]) == pytest.approx(50 * 0.4)
    assert loss_per_gb([User(falling, 3 * GIB, 50.0)]) == pytest.approx(50 * 0.2)
    assert loss_per_gb([User(falling, 9 * GIB, 50.0)]) == 0
    # It has less than 1 GiB: it loses everything.
    assert loss_per_gb([User(falling, GIB // 2, 50.0)]) == pytest.approx(50 * 0.2)


def test_each_gives_by_what_it_has() -> None:
    steep, flat = curve(1000, 0, 0, 0, 0), curve(500, 500, 500, 500, 500)
    # A quarter of a GiB of one tag, three quarters of another.
    assert loss_per_gb([User(steep, GIB, 40.0), User(flat, 3 * GIB, 99.0)]) == pytest.approx(10)


def test_nothing_is_lost_where_nothing_is_or_nobody_reads() -> None:
    falling = curve(1000, 0)
    assert loss_per_gb([]) == 0
    assert loss_per_gb([User(falling, 0, 50.0)]) == 0
    assert loss_per_gb([User(falling, GIB, 0.0)]) == 0
    assert loss_per_gb([User(curve(0, 0, reads=0), GIB, 9.0)]) == 0
