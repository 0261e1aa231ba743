# SPDX-License-Identifier: Apache-2.0
"""A seeded sample of the power-cut replay, and the mutations that it must detect."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.powercut import mutate, scenario
from tests.powercut.__main__ import BOXED, SAMPLE, build_mutations, run_mutations, run_target

Rows = Mapping[str, Mapping[str, Any]]

LOADS = [name for name in scenario.FOCUSED if SAMPLE.wants(name)]
MUTATIONS = [mutation.name for mutation in mutate.all_mutations() if SAMPLE.wants(mutation.name)]


@pytest.fixture(scope="module")
def target() -> Rows:
    """The target and the controls, recorded in User Mode Linux and replayed."""
    return {row["name"]: row for row in run_target(SAMPLE)}


@pytest.fixture(scope="module")
def built() -> Mapping[str, mutate.Built]:
    """All mutations, built once: the sample records some of them."""
    return build_mutations(SAMPLE)


@pytest.fixture(scope="module")
def mutants(built: Mapping[str, mutate.Built]) -> Rows:
    """The mutations of the sample, recorded in User Mode Linux and replayed."""
    return {row["name"]: row for row in run_mutations(SAMPLE, built)}


def test_the_contract_holds_in_the_emulated_box() -> None:
    rows = {row["name"]: row for row in run_target(BOXED)}
    assert rows.keys() == {"volume-1", "pool-hot"}
    for row in rows.values():
        assert (row["cuts"], row["violations"], row["first"]) == (SAMPLE.cuts, 0, None)
        assert row["lying_origin_caught"]


@pytest.mark.parametrize("mode", ["volume", "ext4", "xfs"])
def test_the_contract_holds_at_every_cut(target: Rows, mode: str) -> None:
    row = target[f"{mode}-1"]
    assert row["cuts"] == SAMPLE.cuts
    assert row["demands_per_cut"] > 1000
    assert row["mounted"] == (0 if mode == "volume" else SAMPLE.mounted)
    assert (row["violations"], row["first"]) == (0, None)


@pytest.mark.parametrize("load", LOADS)
def test_the_loads_of_the_mutations_pass_without_one(target: Rows, load: str) -> None:
    assert (target[load]["violations"], target[load]["first"]) == (0, None)
    assert target[load]["cuts"] == SAMPLE.cuts


def test_a_pool_is_recovered_at_every_cut(target: Rows) -> None:
    row = target["pool-hot"]
    assert row["chunk_uses"] > 1
    assert row["mounted"] == 2
    assert row["interrupted"] > 3 * SAMPLE.interrupted


@pytest.mark.parametrize("mode", ["ext4", "xfs"])
def test_flushes_were_attributed(target: Rows, mode: str) -> None:
    # Otherwise, the flushes are not narrow. Tag 2's VM has tag 1 too.
    counted = target[f"{mode}-1"]["flushes"]
    assert all(counted[tag] > 0 for tag in ("0", "1", "3", "4"))


@pytest.mark.parametrize("mode", ["volume", "ext4"])
def test_a_device_without_the_target_passes(target: Rows, mode: str) -> None:
    row = target[f"linear-{mode}-1"]
    assert (row["cuts"], row["violations"]) == (SAMPLE.cuts, 0)


@pytest.mark.parametrize("mode", ["volume", "ext4", "xfs"])
def test_an_origin_that_lies_is_noticed(target: Rows, mode: str) -> None:
    assert target[f"{mode}-1"]["lying_origin_caught"]


def test_every_mutation_builds(built: Mapping[str, mutate.Built]) -> None:
    # A patch may apply and yet not compile.
    assert built.keys() == {mutation.name for mutation in mutate.all_mutations()}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutation_is_caught(mutants: Rows, name: str) -> None:
    assert mutants[name]["caught"]
