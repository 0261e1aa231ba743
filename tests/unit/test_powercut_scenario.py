# SPDX-License-Identifier: Apache-2.0
"""The contents of scenarios; pools are in front of their origins."""

from pathlib import Path

import pytest

from tests.powercut import scenario
from tests.powercut.__main__ import SAMPLE, WHOLE, scenarios
from tests.powercut.scenario import FOCUSED, SECOND_TIME


@pytest.mark.parametrize("name", list(FOCUSED))
def test_a_scenario_is_read_as_it_was_saved(name: str, tmp_path: Path) -> None:
    made = FOCUSED[name](name, 3, module="m.ko", seconds=2)
    made.save(tmp_path / "s")
    assert scenario.load(tmp_path / "s") == made
    assert (made.name, made.seed, made.seconds) == (name, 3, 2)
    assert bool(made.cache_mb) == name.startswith("pool-")


def test_the_cache_device_lies_in_front_of_the_origin() -> None:
    made = scenario.pool_volume("p", 1)
    assert made.recorded_sectors == made.cache_sectors + made.sectors
    assert sum(w.count for w in made.workers) > 4 * made.cache_sectors


def test_the_control_of_a_pool_has_none() -> None:
    control = scenario.linear(scenario.pool_tags("p", 1), "control")
    assert control.recorded_sectors == control.sectors


def test_the_second_time_workers_have_other_numbers() -> None:
    made = scenario.pool_crashed("p", 1)
    assert made.cgroup_of(3) == made.cgroup_of(3 + SECOND_TIME) == "b"
    assert scenario.pool_warm("p", 1).cgroup_of(3 + SECOND_TIME) == "b"
    assert scenario.pool_tags("p", 1).cgroup_of(3 + SECOND_TIME) == ""


def test_the_sample_has_one_pool_and_the_whole_all() -> None:
    pools = [s.name for s in scenarios(SAMPLE, "m.ko") if s.cache_mb]
    assert pools == ["pool-hot"]
    whole = scenarios(WHOLE, "m.ko")
    assert len({s.name for s in whole}) == len(whole)
    assert sum(bool(s.cache_mb) for s in whole) >= 12
