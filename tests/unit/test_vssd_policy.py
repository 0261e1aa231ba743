# SPDX-License-Identifier: Apache-2.0
"""How elastic SSDs and tags divide a pool."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcache_agent.model import DeviceNumber, Tag
from vcache_agent.observe.claim import Claim, PoolSize
from vcache_agent.observe.sample import Sample
from vcache_agent.vssd.policy import Disk, targets
from vcache_agent.vssd.sizing import Tenant, sizes, step

GIB = 1 << 30
FULL = Tenant(100, 0, 0, GIB, GIB)


def disk(**changes: int) -> Tenant:
    return dataclasses.replace(Tenant(100, 1 * GIB, 8 * GIB, 4 * GIB, 4 * GIB), **changes)


@pytest.mark.parametrize(("tags", "one", "wanted"), [
    ([], disk(), 8),                               # the pool has nothing else: up to its maximum
    ([FULL], disk(), 5),                           # half of the pool
    ([FULL], disk(weight=300), 7.5),               # by weight
    ([FULL], disk(weight=300, most=6 * GIB), 6),
    ([FULL], disk(weight=1), 1),                   # not below the guarantee
    ([FULL], disk(used=2 * GIB), 2.5),             # it does not use what it has
    ([FULL], disk(used=0), 1),
    ([dataclasses.replace(FULL, size=5 * GIB, used=1 * GIB)], disk(most=9 * GIB), 8.75),
])
def test_division(tags: list[Tenant], one: Tenant, wanted: float) -> None:
    (found,) = sizes(10 * GIB, tags, [one])
    assert found == pytest.approx(wanted * GIB, rel=1e-6)


_SIZES = st.integers(0, 65536).map(lambda mib: mib << 20)
_TENANTS = st.builds(
    lambda weight, bounds, size, part: Tenant(weight, min(bounds), max(bounds), size,
                                              int(size * part)),
    st.integers(1, 1000), st.tuples(_SIZES, _SIZES.filter(bool)), _SIZES, st.floats(0, 1))


@given(st.integers(GIB, 256 * GIB), st.lists(_TENANTS, max_size=4),
       st.lists(_TENANTS, min_size=1, max_size=4))
def test_bounds(pool: int, tags: list[Tenant], disks: list[Tenant]) -> None:
    found = sizes(pool, tags, disks)
    assert sum(found) <= pool + len(found)
    guaranteed = sum(one.least for one in (*tags, *disks))
    for one, size in zip(disks, found, strict=True):
        assert size <= one.most
        if guaranteed <= pool:
            assert size >= one.least - 1


@given(_TENANTS, _SIZES)
def test_steps_are_small_and_reach_the_size(one: Tenant, wanted: int) -> None:
    wanted = max(one.least, min(wanted, one.most))
    one = dataclasses.replace(one, size=min(one.size, one.most))
    for _ in range(100):
        after = step(one, wanted)
        assert after >= one.least
        assert one.size < one.least or abs(after - one.size) <= one.most // 8
        if after == one.size:
            break
        one = dataclasses.replace(one, size=after)
    assert abs(one.size - wanted) <= one.most / 32


def test_small_changes_are_ignored_but_not_above_the_guarantee() -> None:
    one = disk(most=32 * GIB, size=4 * GIB, least=0)
    assert step(one, int(4.9 * GIB)) == 4 * GIB
    assert step(one, 5 * GIB) == 5 * GIB
    assert step(disk(most=32 * GIB, size=4 * GIB, least=int(3.9 * GIB)),
                int(3.9 * GIB)) == int(3.9 * GIB)


def survey(tags: int) -> Sample:
    device = DeviceNumber(254, 0)
    return Sample(0.0, 0.0, (), tuple(
        Tag(device, number, cached_bytes=5 * GIB, cache_share_bytes=5 * GIB)
        for number in range(1, tags + 1)), claims=tuple(
        Claim(device, number, "254:9") for number in range(1, tags + 1)),
        pools=(PoolSize("254:9", 10 * GIB), PoolSize("254:8", 10 * GIB)))


def named(name: str, **changes: object) -> Disk:
    return dataclasses.replace(Disk(name, "254:9", 100, GIB, 8 * GIB, 4 * GIB, 4 * GIB, True),
                               **changes)  # type: ignore[arg-type]


def test_targets_by_pool() -> None:
    assert targets(survey(0), [named("a")]) == {"a": 5 * GIB}, "an eighth of the disk at a time"
    # Two full tags and one disk: a third each.
    assert targets(survey(2), [named("a")])["a"] < 4 * GIB
    assert targets(survey(0), [named("a"), named("b", pool="254:8")]) == \
        {"a": 5 * GIB, "b": 5 * GIB}
    assert targets(survey(0), [named("a", pool="254:7")]) == {}, "nothing is known of its pool"


def test_disks_that_keep_their_size_are_taken_off() -> None:
    found = targets(survey(0), [named("a", size=8 * GIB, used=8 * GIB),
                                named("b", size=4 * GIB, adjustable=False)])
    assert found == {"a": 7 * GIB}, "on the way to 6 GiB"
    assert targets(survey(0), [named("b", adjustable=False)]) == {}
