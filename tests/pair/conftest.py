# SPDX-License-Identifier: Apache-2.0
"""Fixtures: the two hosts."""

import os
import sys
from collections.abc import Iterator

import pytest

from tests.box.steps import at_end
from tests.pair.host import Host, Remote


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not os.environ.get("VCACHE_PAIR"):
        for item in items:
            item.add_marker(pytest.mark.skip(reason="runs in two machines: python -m tests.pair"))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    # Print at once: a machine that exceeds its time limit would lose the reasons.
    if report.failed:
        print(f"\n{report.nodeid}, {report.when}: {report.longreprtext}", file=sys.stderr)


@pytest.fixture(scope="session")
def here() -> Iterator[Host]:
    host = Host(1)
    with host.lasting():
        yield host


@pytest.fixture(scope="session")
def there(here: Host) -> Iterator[Remote]:
    remote = Remote(2)
    remote.connect()
    with at_end(remote.close):
        yield remote
