# SPDX-License-Identifier: Apache-2.0
"""One all-in-one with two compute hosts for all tests."""

import os
from collections.abc import Iterator

import pytest

from tests.cloud.__main__ import RUN, missing, say_since
from tests.cloud.fixtures import boot, servers  # noqa: F401
from tests.cloud.nova import AllInOne

# Variables of the caller's environment, which would override the files.
for name in [name for name in os.environ if name.startswith("OS_")]:
    del os.environ[name]


@pytest.fixture(scope="session")
def cloud() -> Iterator[AllInOne]:
    lacks = missing(hosts=2)
    assert not lacks, lacks
    made = AllInOne(RUN, say=say_since(), hosts=2)
    yield made
    made.close()
