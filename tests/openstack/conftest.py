# SPDX-License-Identifier: Apache-2.0
"""Settings needed before Nova is imported, and a Placement for all tests."""

import os
from collections.abc import Iterator
from typing import Any

import pytest

# Nova's own switch: no test of ours patches the interpreter. Only the fixtures of test_nova.py
# need greenlets in older releases.
os.environ.setdefault("OS_NOVA_DISABLE_EVENTLET_PATCHING", "1")

from nova import monkey_patch

# Before a test's imports bring eventlet in, which Nova's own would then refuse.
monkey_patch.patch()


@pytest.fixture
def placement() -> Iterator[Any]:
    """Give a real Placement, empty."""
    # As Nova: not before the patch above.
    from oslo_config import cfg
    from placement.tests.functional.fixtures.placement import PlacementFixture

    from tests.box.steps import at_end
    from tests.openstack.placements import Placement

    fixture = PlacementFixture()
    fixture.setUp()
    with at_end(cfg.CONF.reset), at_end(fixture.cleanUp):
        yield Placement(fixture.endpoint)
