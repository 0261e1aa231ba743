# SPDX-License-Identifier: Apache-2.0
"""One cloud for all tests, with two hosts."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.openstack.agents import uuid_of
from tests.openstack_api.cloud import Cloud, HostProcess

# Variables of the caller's environment, which would override the files.
for name in [name for name in os.environ if name.startswith("OS_")]:
    del os.environ[name]


@pytest.fixture(scope="session")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    # The broker may run as another user.
    folder: Path = tmp_path_factory.mktemp("cloud")
    made = Cloud(folder)
    yield made
    made.close()


@pytest.fixture(scope="session")
def hosts(cloud: Cloud) -> dict[str, HostProcess]:
    found = {node: cloud.host(node) for node in ("n1", "n2")}
    found["n1"].agent.add(1, cloud.projects["mine"], slo_flush_ms=5.0, min_mb=100)
    found["n1"].agent.add(2, cloud.projects["theirs"])
    found["n2"].agent.add(3, cloud.projects["mine"])
    cloud.await_states(300, n1="up", n2="up")
    return found


MINE, THEIRS = uuid_of(1), uuid_of(2)
