# SPDX-License-Identifier: Apache-2.0
"""Nested shares: project, instance, disk (SymFlex, figure 10)."""

import dataclasses
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nova_vcache.extra_specs import Mode
from tests.unit.plan_model import FILES, Host, disk, layer, over
from vcache_agent.model import DiskState, Extent
from vcache_agent.netlink import spec
from vcache_agent.plan.state import Nesting


def member(project: str, instance: int, *, disks: int = 1, weight: int = 100) -> list[DiskState]:
    """Return the disks of an instance."""
    found = []
    for number in range(disks):
        key = instance * 10 + number
        one = disk(instance, cgroup=instance, mode=Mode.WRITEBACK, weight=weight,
                   key=f"file:dm0:{key}", extents=(Extent(key * 100, 50),), target=f"vd{number}")
        found.append(dataclasses.replace(
            one, domain=dataclasses.replace(one.domain, project=project)))
    return found


def host(projects: Mapping[str, int] | None = None, *, enabled: bool = True) -> Host:
    made = Host()
    made.use(spec.Mode.WRITEBACK, pool="254:9")
    made.nesting = Nesting(enabled, projects or {})
    return made


def shares(made: Host, *states: DiskState) -> dict[str, float]:
    """Return the part of each project, and the disks' weights agree with the kernel."""
    plan = made.step(*states)
    assert not made.step(*states).actions
    found: dict[str, float] = {}
    total = sum(report.weight for report in plan.disks)
    for report in plan.disks:
        assert report.key is not None
        assert made.kernel.tags[report.key].weight == report.weight
        project = report.state.domain.project
        found[project] = found.get(project, 0) + report.weight / total
    return found


def test_without_the_option_each_disk_has_the_weight_of_its_flavor() -> None:
    found = shares(host(enabled=False), *member("red", 1, disks=3), *member("blue", 2))
    assert found == pytest.approx({"red": 0.75, "blue": 0.25})


def test_more_disks_and_more_instances_do_not_give_a_project_more() -> None:
    made = host({"red": 300})
    found = shares(made, *member("red", 1, disks=3), *member("blue", 2))
    assert found == pytest.approx({"red": 0.75, "blue": 0.25}, abs=0.01)
    found = shares(made, *member("red", 1, disks=3), *member("blue", 2), *member("blue", 3),
                   *member("blue", 4, disks=2))
    assert found == pytest.approx({"red": 0.75, "blue": 0.25}, abs=0.01)


def test_an_instance_has_its_flavors_weight_and_a_disk_that_of_an_operator() -> None:
    made = host()
    states = [*member("red", 1, weight=300, disks=2), *member("red", 2, weight=100)]
    made.step(*states)
    made.set(1, "vd0", weight=900)
    plan = made.step(*states)
    by_disk = {(item.state.domain.name, item.state.source.target): item.weight
               for item in plan.disks}
    # 300 to 100, and within the first 900 to 100.
    assert by_disk == {("vm1", "vd0"): 202, ("vm1", "vd1"): 22, ("vm2", "vd0"): 75} or \
        by_disk == {("vm1", "vd0"): 203, ("vm1", "vd1"): 22, ("vm2", "vd0"): 75}
    # Policies see the same weights.
    claims = {claim.id: claim.weight for claim in plan.pools.claims}
    assert sorted(claims.values()) == sorted(by_disk.values())


def test_a_shared_layer_has_its_part_of_nested_weights() -> None:
    made = host()
    base = layer("file:dm0:900", 9000)
    plan = made.step(*(over(one, base) for one in (*member("red", 1), *member("blue", 2))))
    weights = {report.weight for report in plan.disks}
    assert weights == {100}
    shared = next(tag for tag in made.kernel.tags.values() if tag.name.startswith("base:"))
    assert (shared.device, shared.weight) == (FILES, 100)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 3), st.integers(1, 1000)),
                min_size=1, max_size=6), st.dictionaries(
                    st.sampled_from("abc"), st.integers(1, 1000)))
def test_any_weights_are_in_the_kernels_range(
        instances: list[tuple[str, int, int]], projects: dict[str, int]) -> None:
    made = host(projects)
    states = [one for at, (project, disks, weight) in enumerate(instances, 1)
              for one in member(project, at, disks=disks, weight=weight)]
    made.step(*states)
    assert all(1 <= tag.weight <= 1000 for tag in made.kernel.tags.values())
    assert not made.step(*states).actions
