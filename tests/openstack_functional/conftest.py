# SPDX-License-Identifier: Apache-2.0
"""One all-in-one for all tests."""

import os
from collections.abc import Callable, Iterator

import pytest

from tests.cloud.__main__ import RUN, missing, say_since
from tests.cloud.compute import ComputeHost
from tests.cloud.nova import AllInOne
from tests.cloud.servers import FLAVORS, Json, Servers

# Of the environment of who runs this: they would win over the files.
for name in [name for name in os.environ if name.startswith("OS_")]:
    del os.environ[name]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what has not been seen to its end yet, unless somebody asks."""
    if not os.environ.get("VCACHE_UNTRIED"):
        for item in items:
            if item.get_closest_marker("untried"):
                item.add_marker(pytest.mark.skip(reason="untried; VCACHE_UNTRIED=1 runs it"))


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "untried: has not been seen to its end yet")


@pytest.fixture(scope="session")
def cloud() -> Iterator[AllInOne]:
    lacks = missing()
    assert not lacks, lacks
    made = AllInOne(RUN, say=say_since())
    yield made
    made.close()


@pytest.fixture(scope="session")
def servers(cloud: AllInOne) -> Servers:
    made = Servers(cloud)
    made.make_image()
    for flavor, options in FLAVORS.items():
        made.make_flavor(flavor, **options)
    return made


@pytest.fixture
def host(cloud: AllInOne) -> ComputeHost:
    return cloud.host


@pytest.fixture
def boot(servers: Servers) -> Iterator[Callable[..., Json]]:
    """Boot instances that are deleted at the end."""
    made: list[Json] = []

    def create(*arguments: str, **options: object) -> Json:
        made.append(servers.create(*arguments, **options))  # type: ignore[arg-type]
        return made[-1]

    yield create
    for server in made:
        servers.delete(server)
