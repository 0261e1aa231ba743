# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests on the all-in-one. Each conftest defines its own ``cloud``."""

from collections.abc import Callable, Iterator

import pytest

from tests.box.steps import each
from tests.cloud.compute import ComputeHost
from tests.cloud.nova import AllInOne
from tests.cloud.servers import FLAVORS, Json, Servers


@pytest.fixture(scope="session")
def servers(cloud: AllInOne) -> Servers:
    """Actions on instances; an image and flavors exist."""
    made = Servers(cloud)
    made.make_image()
    for flavor, options in FLAVORS.items():
        made.make_flavor(flavor, **options)
    return made


@pytest.fixture
def host(cloud: AllInOne) -> ComputeHost:
    """Return the first host."""
    return cloud.host


@pytest.fixture
def boot(servers: Servers) -> Iterator[Callable[..., Json]]:
    """Boot instances that are deleted at the end."""
    made: list[Json] = []

    def create(*arguments: str, **options: object) -> Json:
        made.append(servers.create(*arguments, **options))  # type: ignore[arg-type]
        return made[-1]

    yield create
    each(servers.delete, made)
