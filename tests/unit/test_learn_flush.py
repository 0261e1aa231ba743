# SPDX-License-Identifier: Apache-2.0
"""What the flushes of a tag waited for, as the decisions know it."""

import pytest

from vcache_agent.decide import learn
from vcache_agent.model import FLUSH_CAUSES, Stats


@pytest.mark.parametrize("cause", FLUSH_CAUSES)
def test_the_longest_wait_is_named(cause: str) -> None:
    grown = Stats(**{f"flush_{one}_ns": 250 for one in FLUSH_CAUSES}  # type: ignore[arg-type]
                  | {f"flush_{cause}_ns": 1000})
    load = learn._load(grown, 1.0)
    assert (load.flush_wait, load.flush_wait_part) == (cause, 0.5)


def test_without_a_wait_none_is_named() -> None:
    load = learn._load(Stats(flushes=3), 1.0)
    assert (load.flush_wait, load.flush_wait_part) == ("", 0.0)
