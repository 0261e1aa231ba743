# SPDX-License-Identifier: Apache-2.0
"""Fixtures: one storage node, and Cinder's services for each test."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.box.steps import at_end
from tests.cinder.functional import lab


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not os.environ.get("VCACHE_BOX"):
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="runs in a box: make cinder-test"))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        log = report.caplog[-20000:]
        print(f"\n{report.nodeid}, {report.when}: {report.longreprtext}\n{log}", file=sys.stderr)


@pytest.fixture(scope="session")
def agent() -> Iterator[lab.Agent]:
    with lab.node() as made:
        yield made


@pytest.fixture
def cloud(agent: lab.Agent) -> Iterator[Any]:
    from tests.cinder.functional.cloud import Cloud

    made = Cloud()
    made.setUp()
    with at_end(made.doCleanups):
        yield made
