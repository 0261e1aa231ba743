# SPDX-License-Identifier: Apache-2.0
"""The mutations of the target apply to its present sources; test_powercut.py runs them."""

import shutil
from pathlib import Path

import pytest

from tests.powercut import mutate
from tests.powercut.__main__ import flushes
from tests.powercut.mutate import Mutation, MutationError
from tests.powercut.scenario import FOCUSED

ALL = mutate.all_mutations()


def content(tree: Path) -> dict[str, bytes]:
    return {str(path.relative_to(tree)): path.read_bytes()
            for path in tree.rglob("*.[ch]")}


@pytest.mark.parametrize("mutation", ALL, ids=[m.name for m in ALL])
def test_a_mutation_applies_and_can_be_taken_back(mutation: Mutation, tmp_path: Path) -> None:
    tree = tmp_path / "native"
    shutil.copytree(mutate.NATIVE, tree)
    before = content(tree)
    mutation.apply(tree)
    assert content(tree) != before
    mutation.apply(tree, back=True)
    assert content(tree) == before
    assert mutation.scenario in FOCUSED


def test_the_rules_that_must_be_tried_are_there() -> None:
    assert {m.name for m in ALL} >= {
        "no-fua", "flush-without-untagged", "narrow-unattributed", "pool-no-fua",
        "pool-reclaim-not-written", "pool-reclaim-newest-first", "pool-clean-too-early"}


def test_a_mutation_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    (tmp_path / "native").mkdir()
    with pytest.raises(MutationError, match="does not apply"):
        ALL[0].apply(tmp_path / "native")


def test_a_mutation_must_name_its_load(tmp_path: Path) -> None:
    (tmp_path / "m.patch").write_text("Breaks something.\n")
    with pytest.raises(MutationError, match="Scenario: NAME"):
        _ = Mutation(tmp_path / "m.patch").scenario


def test_flushes_are_counted_by_tag() -> None:
    status = "0 9 vcache flush-only filesystem fua 0 2 0 100 0 512 13 8 7 100 0 512 57 9\n"
    assert flushes(status) == {"0": 13, "7": 57}
    in_a_cache = "0 9 vcache writeback volume fua 0 1 5 100 0 512 31 8 cache 3 dirty 64 9 0 0\n"
    assert flushes(in_a_cache) == {"5": 31}
    assert flushes("0 9 linear \n") == {}
