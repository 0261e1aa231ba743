# SPDX-License-Identifier: Apache-2.0
"""Each mutation of the module still finds its line and its test; they run by hand only."""

from pathlib import Path

import pytest

from tests.kernel.mutations import MUTATIONS, Mutation

REPO = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.name)
def test_line_and_test_are_there(mutation: Mutation) -> None:
    source = (REPO / "native" / "dm" / mutation.file).read_text()
    assert source.count(mutation.old) == 1
    file, _, case = mutation.test.partition("::")
    name = case.partition("[")[0]
    tests = (REPO / "tests" / "kernel" / file).read_text()
    assert not name or f"def {name}(" in tests
