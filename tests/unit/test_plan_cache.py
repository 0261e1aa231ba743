# SPDX-License-Identifier: Apache-2.0
"""The decision for disks with a cache, with a model of the kernel."""

import dataclasses
from typing import Any

import pytest

from nova_vcache.extra_specs import Isolation, Mode
from tests.unit.decide_model import Load, Pool
from tests.unit.plan_model import FILES, VOLUME, Host, disk
from vcache_agent.model import (
    DeviceNumber,
    DiskState,
    Extent,
    Tag,
)
from vcache_agent.netlink import spec


def with_cache(number: int, least: int, most: int | None, **fields: Any) -> DiskState:
    made = disk(number, cgroup=number, mode=Mode.WRITEBACK, **fields)
    specs = dataclasses.replace(made.specs, min_mb=least, max_mb=most)
    return dataclasses.replace(made, specs=specs)


@pytest.mark.parametrize("on", [FILES, VOLUME])
def test_a_flavors_cache_reaches_the_kernel_and_changes_online(on: DeviceNumber) -> None:
    host = Host(40)
    host.use(spec.Mode.WRITEBACK, pool="254:9")
    for least, most in ((0, None), (512, None), (512, 1024), (0, 64), (0, None)):
        (report,) = host.step(with_cache(1, least, most, on=on)).disks
        tag = host.kernel.tags[on, report.tag or 0]
        assert (tag.cache_min_bytes, tag.cache_max_bytes) == (least << 20, (most or 0) << 20)
        assert not host.step(with_cache(1, least, most, on=on)).actions


def test_the_disks_of_an_instance_have_its_cache_in_equal_parts() -> None:
    host = Host()
    host.use(spec.Mode.WRITEBACK, pool="254:9")
    parts = [with_cache(1, 1000, 2000, key=f"file:dm0:{n}", target=f"vd{n}",
                        extents=(Extent(n * 100, 10),)) for n in (1, 2, 3)]
    host.step(*parts, with_cache(5, 7, None))
    assert sorted((tag.cache_min_bytes >> 20, tag.cache_max_bytes >> 20)
                  for tag in host.kernel.tags.values()) == [(7, 0)] + [(333, 666)] * 3
    # A disk is detached.
    host.step(*parts[:2], with_cache(5, 7, None))
    assert sorted(tag.cache_min_bytes >> 20 for tag in host.kernel.tags.values()) == [7, 500, 500]


def test_a_disk_that_can_have_no_cache_takes_no_part_of_it() -> None:
    host = Host(40)
    host.use(spec.Mode.WRITEBACK, pool="254:9")
    host.devices = tuple(item if item.number == FILES else dataclasses.replace(item, pool="")
                         for item in host.devices)
    host.kernel.pools[VOLUME] = ""
    host.step(with_cache(1, 512, 1024), with_cache(1, 512, 1024, on=VOLUME, target="vdb"))
    assert sorted((tag.device == FILES, tag.cache_min_bytes >> 20, tag.cache_max_bytes >> 20)
                  for tag in host.kernel.tags.values()) == [(False, 0, 0), (True, 512, 1024)]


def parts_of(host: Host) -> dict[int, tuple[int, int]]:
    """Return the minimum and the maximum of each tag in MiB."""
    return {tag.id: (tag.cache_min_bytes >> 20, tag.cache_max_bytes >> 20)
            for tag in host.kernel.tags.values() if tag.id}


def test_static_parts_follow_weights_and_who_comes_and_goes() -> None:
    host = Host()
    host.use(spec.Mode.WRITEBACK, pool="254:9")
    host.policy, host.pools = "static", {"254:9": 1000 << 20}
    first = disk(1, cgroup=1, mode=Mode.WRITEBACK)
    host.step(first)
    assert parts_of(host) == {1: (1000, 1000)}
    host.step(first, disk(2, cgroup=2, mode=Mode.WRITETHROUGH, weight=300),
              disk(3, cgroup=3, mode=Mode.FLUSH_ONLY, weight=900))
    assert parts_of(host) == {1: (250, 250), 2: (750, 750), 3: (0, 0)}
    host.step(disk(1, cgroup=1, mode=Mode.WRITEBACK, weight=900),
              disk(2, cgroup=2, mode=Mode.WRITETHROUGH, weight=300))
    assert parts_of(host)[1] == (750, 750)
    # An operator changes the setting.
    host.policy = "weighted"
    host.step(first)
    assert parts_of(host)[1] == (0, 0)


def test_a_volume_that_nobody_uses_is_promised_nothing() -> None:
    host = Host(40)
    host.use(spec.Mode.WRITEBACK, pool="254:9")
    wanted = with_cache(1, 512, 1024, on=VOLUME)
    host.step(wanted)
    assert parts_of(host) == {40: (512, 1024)}
    # It is unknown whether it runs.
    assert not host.step(complete=False).actions
    host.step()
    assert parts_of(host) == {40: (0, 0)}
    assert not host.step().actions
    host.step(wanted)
    assert parts_of(host) == {40: (512, 1024)}


def test_the_hosts_own_tag_has_a_static_part() -> None:
    host = Host()
    host.use(spec.Mode.WRITEBACK, pool="254:9")
    host.policy, host.pools = "static", {"254:9": 1000 << 20}
    host.kernel.tags[FILES, 0] = Tag(FILES, 0, weight=100)
    host.step(disk(1, cgroup=1, mode=Mode.WRITEBACK))
    assert parts_of(host) == {1: (500, 500)}


def test_a_pool_whose_size_is_not_known_is_not_divided() -> None:
    host = Host()
    host.use(spec.Mode.WRITEBACK, pool="254:9")
    host.policy, host.pools = "static", {"254:8": 1000 << 20}
    host.step(with_cache(1, 10, 20))
    assert parts_of(host) == {1: (10, 20)}


def test_who_shares_a_disk_is_limited_only_if_all_are() -> None:
    host = Host()
    host.use(spec.Mode.WRITEBACK, pool="254:9")
    shared = {"key": "file:dm0:9", "extents": ()}
    host.step(with_cache(1, 10, 20, **shared), with_cache(2, 5, 30, **shared))
    (tag,) = host.kernel.tags.values()
    assert (tag.cache_min_bytes, tag.cache_max_bytes) == (10 << 20, 30 << 20)
    host.step(with_cache(1, 10, 20, **shared), with_cache(2, 5, None, **shared))
    (tag,) = host.kernel.tags.values()
    assert (tag.cache_min_bytes, tag.cache_max_bytes) == (10 << 20, 0)


def test_without_a_pool_nobody_is_given_a_cache() -> None:
    host = Host()
    host.use(spec.Mode.FLUSH_ONLY)
    host.step(with_cache(1, 512, 1024))
    (tag,) = host.kernel.tags.values()
    assert (tag.cache_min_bytes, tag.cache_max_bytes) == (0, 0)
    assert not host.step(with_cache(1, 512, 1024)).actions


@pytest.mark.parametrize("on", [FILES, VOLUME])
def test_lanes_that_an_operator_gave_are_given_again(on: DeviceNumber) -> None:
    """Also after a restart of the kernel's side; an unused disk has none."""
    def lanes() -> set[int]:
        return {tag.cache_lanes for tag in host.kernel.tags.values() if tag.id}

    host = Host(40)
    host.use(spec.Mode.WRITEBACK, pool="254:9")
    host.lanes = {"254:9": (1 << 30,) * 4}
    made = with_cache(1, 0, None, on=on)
    host.step(made)
    assert lanes() == {0}
    host.set(1, lanes="1,3")
    host.step(made)
    assert max(lanes()) == 10
    assert not host.step(made).actions
    for number, tag in host.kernel.tags.items():
        host.kernel.tags[number] = dataclasses.replace(tag, cache_lanes=0)
    host.step(made)
    assert max(lanes()) == 10
    host.step()
    assert lanes() <= {0}
    host.step(made)
    assert max(lanes()) == 10
    host.set(1, lanes=None)
    host.step(made)
    assert lanes() == {0}


def isolated(number: int, least: int = 0, most: int | None = None,
             isolation: Isolation = Isolation.DEDICATED, **fields: Any) -> DiskState:
    made = with_cache(number, least, most, **fields)
    return dataclasses.replace(
        made, specs=dataclasses.replace(made.specs, isolation=isolation))


def lanes_host(*volume_tags: int) -> Host:
    """Create a host whose pool has a shared lane of 1 GiB and two of 2 GiB."""
    host = Host(*volume_tags)
    host.use(spec.Mode.WRITEBACK, pool="254:9")
    host.pools = {"254:9": 5 << 30}
    host.lanes = {"254:9": (1 << 30, 2 << 30, 2 << 30)}
    return host


def lanes_of_tags(host: Host) -> dict[int, int]:
    return {tag.id: tag.cache_lanes for tag in host.kernel.tags.values() if tag.id}


@pytest.mark.parametrize("on", [FILES, VOLUME])
def test_a_dedicated_disk_has_lanes_and_nothing_elsewhere(on: DeviceNumber) -> None:
    host = lanes_host(40)
    (report,) = host.step(isolated(1, 512, on=on)).disks
    tag = host.kernel.tags[on, report.tag or 0]
    assert (tag.cache_lanes, tag.cache_min_bytes, tag.cache_max_bytes) == (2, 512 << 20, 2 << 30)
    assert not report.note
    assert not host.step(isolated(1, 512, on=on)).actions
    # The flavor's maximum is less than a lane; it needs more than one; it is shared.
    for least, most, lanes, limit in ((0, 100, 2, 100), (2049, None, 6, 4096),
                                      (2049, 3000, 6, 3000)):
        host.step(isolated(1, least, most, on=on))
        tag = host.kernel.tags[on, report.tag or 0]
        assert (tag.cache_lanes, tag.cache_max_bytes >> 20) == (lanes, limit)
    host.step(isolated(1, 512, isolation=Isolation.SHARED, on=on))
    tag = host.kernel.tags[on, report.tag or 0]
    assert (tag.cache_lanes, tag.cache_min_bytes, tag.cache_max_bytes) == (0, 512 << 20, 0)


def test_when_no_lane_is_left_a_dedicated_disk_shares_and_says_so() -> None:
    host = lanes_host()
    both = [isolated(1), isolated(2)]
    host.step(*both)
    assert lanes_of_tags(host) == {1: 2, 2: 4}
    reports = {report.tag: report for report in host.step(*both, isolated(3)).disks}
    assert lanes_of_tags(host) == {1: 2, 2: 4, 3: 0}
    assert [reports[tag].note for tag in (1, 2)] == ["", ""]
    assert "no free lane" in reports[3].note
    # One is removed: the same decision reassigns its lane.
    (first, _) = both
    reports = {report.tag: report for report in host.step(first, isolated(3)).disks}
    assert lanes_of_tags(host) == {1: 2, 3: 4}
    assert not reports[3].note
    assert not host.step(first, isolated(3)).actions


def test_one_that_cannot_have_its_guarantee_in_lanes_has_the_rest_of_the_shared_ones() -> None:
    host = lanes_host()
    reports = host.step(isolated(1, 4500)).disks
    (tag,) = host.kernel.tags.values()
    assert (tag.cache_lanes, tag.cache_min_bytes, tag.cache_max_bytes) == (6, 4500 << 20, 0)
    assert "have less than vcache:min_mb" in reports[0].note


def test_auto_has_lanes_that_its_guarantee_fills_until_a_dedicated_disk_needs_them() -> None:
    host = lanes_host()
    autos = [isolated(number, 1024, isolation=Isolation.AUTO) for number in (1, 2)]
    small = isolated(3, 1023, isolation=Isolation.AUTO)
    host.step(*autos, small)
    assert lanes_of_tags(host) == {1: 2, 2: 4, 3: 0}
    assert not host.step(*autos, small).actions
    host.step(*autos, small, isolated(4))
    assert sorted(lanes_of_tags(host).items()) == [(1, 0), (2, 4), (3, 0), (4, 2)] or \
        sorted(lanes_of_tags(host).items()) == [(1, 2), (2, 0), (3, 0), (4, 4)]
    assert not host.step(*autos, small, isolated(4)).actions


def test_an_operators_lanes_go_before_flavors() -> None:
    host = lanes_host()
    plain = disk(1, cgroup=1, mode=Mode.WRITEBACK)
    host.step(plain)
    host.set(1, lanes="1,2")
    reports = host.step(plain, isolated(2)).disks
    assert lanes_of_tags(host) == {1: 6, 2: 0}
    assert "no free lane" in reports[1].note


def test_while_a_pools_lanes_are_not_known_nobody_loses_his() -> None:
    host = lanes_host()
    host.step(isolated(1))
    known, host.lanes = host.lanes, {}
    host.step(isolated(1), isolated(2))
    assert lanes_of_tags(host) == {1: 2, 2: 0}
    host.lanes = known
    host.step(isolated(1), isolated(2))
    assert lanes_of_tags(host) == {1: 2, 2: 4}


def test_static_parts_are_of_what_nobody_has_for_itself() -> None:
    host = lanes_host()
    host.policy = "static"
    host.step(isolated(1), disk(2, cgroup=2, mode=Mode.WRITEBACK),
              disk(3, cgroup=3, mode=Mode.WRITEBACK, weight=200))
    assert parts_of(host) == {1: (0, 2048), 2: (1024, 1024), 3: (2048, 2048)}


def test_a_volume_that_nobody_uses_gives_its_lanes_in_the_same_decision() -> None:
    host = lanes_host(40)
    host.lanes = {"254:9": (1 << 30, 1 << 30)}
    host.step(isolated(1, on=VOLUME))
    assert lanes_of_tags(host) == {40: 2}
    host.step(isolated(2))
    assert lanes_of_tags(host) == {40: 0, 1: 2}


def test_measured_load_moves_the_shares_of_a_host() -> None:
    """The planner passes surveys, claims and the history to the decision function."""
    host = Host()
    host.use(spec.Mode.WRITEBACK, pool="254:9")
    host.policy, host.pools = "mrc", {"254:9": 200 << 20}
    disks = [with_cache(number, least, None) for number, least in ((1, 0), (2, 8))]
    host.step(*disks)
    assert parts_of(host) == {1: (0, 0), 2: (8, 0)}
    load = Pool(200 << 20, {1: Load(100 << 20, rate=500), 2: Load(20_000 << 20, 8)})
    for _ in range(12):
        for one in load.loads.values():
            one.run(15.0, load.hit, load.miss)
        load.now += 15.0
        found = load.survey()
        host.survey = dataclasses.replace(
            found, tags=tuple(dataclasses.replace(tag, device=FILES) for tag in found.tags),
            curves=tuple(dataclasses.replace(one, device=FILES) for one in found.curves))
        plan = host.step(*disks)
        assert not host.step(*disks).actions, "nothing changes between two surveys"
    assert parts_of(host)[1][0] >= 90
    assert parts_of(host)[2][0] >= 8
    assert any("least weighted time" in text for text in plan.pools.shares[FILES, 1].reasons)
    assert [claim.least >> 20 for claim in plan.pools.claims] == [0, 8]
    # An objective is in the claim, too.
    hurried = dataclasses.replace(disks[0], specs=dataclasses.replace(
        disks[0].specs, slo_read_us=2000.0, slo_flush_ms=5.0, slo_iops=100.0))
    claim = host.step(hurried, disks[1]).pools.claims[0]
    assert (claim.read_s, claim.flush_s, claim.iops) == (0.002, 0.005, 100.0)
    # Back to the flavors.
    host.policy = "weighted"
    host.step(*disks)
    assert parts_of(host) == {1: (0, 0), 2: (8, 0)}
