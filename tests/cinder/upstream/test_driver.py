# SPDX-License-Identifier: Apache-2.0
"""Cinder's own tests of drivers, against our driver: compliance, and those of the LVM driver.

The agent manages no volume in them: what remains is the behaviour that our driver must share
with Cinder's. tests/cinder/functional has the agent.
"""

import contextlib
import unittest
from typing import Any
from unittest import mock

from cinder import interface
from cinder.interface import util, volume_driver
from cinder.tests.unit.volume.drivers import test_lvm_driver
from cinder.volume.drivers import lvm

from vcache_agent.admin_client import NotHere
from vcache_cinder.lvm import VcacheLVMDriver


def _answer(operation: str, **fields: object) -> dict[str, Any]:
    """Answer as an agent that manages nothing."""
    if operation == "volume-pools":
        return {"pools": []}
    raise NotHere("it is not managed")


def _ready(group: Any) -> Any:
    """Add to a fake volume group what that of our driver has more."""
    if not isinstance(group, mock.Mock):
        for name in ("forget", "keep_inactive", "retry"):
            if not hasattr(group, name):
                setattr(group, name, lambda *_, **__: None)
        if not hasattr(group, "uncached"):
            group.uncached = lambda *_: contextlib.nullcontext()
    else:
        group.uncached = lambda *_: contextlib.nullcontext()
    return group


class Tested(VcacheLVMDriver):
    """Our driver, on a volume group that may be one of Cinder's fakes."""

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; a volume group gets what ours has more."""
        super().__setattr__(name, _ready(value) if name == "vg" and value is not None else value)


class Lvm(test_lvm_driver.LVMVolumeDriverTestCase):
    """The tests of Cinder's LVM driver."""

    __test__ = False  # by unittest: ddt and testtools do without pytest

    driver_name = f"{__name__}.Tested"

    def setUp(self) -> None:
        """Let the tests make our driver, with an agent that manages nothing."""
        # Only for the tests: the driver's module itself needs the class by its name.
        self.patch("cinder.tests.unit.volume.drivers.test_lvm_driver.lvm", mock.Mock(
            wraps=lvm, LVMVolumeDriver=Tested))
        self.patch("vcache_cinder.agent.Agent._request", side_effect=_answer)
        # Their volumes have types that are not in the database.
        self.patch("vcache_cinder.specs.of_type", return_value={})
        super().setUp()


#: Tests of what our driver does not share: lvm_type auto becomes thin in them, and a volume type
#: is a text.
REFUSED = {"test_lvm_type_auto_no_lvs", "test_lvm_type_auto_thin_pool_exists",
           "test_retype_volume"}


def test_the_tests_of_cinders_lvm_driver() -> None:
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(Lvm)
    result = unittest.TestResult()
    suite.run(result)
    failed = {case.id().rpartition(".")[2]: text
              for case, text in [*result.failures, *result.errors]}
    assert set(failed) == REFUSED, "\n".join(failed[name] for name in set(failed) - REFUSED)
    assert result.testsRun >= 42


def test_the_driver_complies() -> None:
    """The check of cinder/tests/compliance, which looks only into Cinder's own folder."""
    found = [driver for driver in interface._volume_register if driver is VcacheLVMDriver]
    assert len(found) == 1
    info = util.DriverInfo(VcacheLVMDriver)
    assert issubclass(info.cls, volume_driver.VolumeDriverCore)
    assert info.version == "1.0.0"
    assert info.ci_wiki_name
    assert {option.name for option in info.driver_options} >= {"vcache_pool", "volume_group"}
