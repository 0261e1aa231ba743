# SPDX-License-Identifier: Apache-2.0
"""Settings of the tests: Horizon's own, and our files of configuration."""

import pathlib

from openstack_dashboard import enabled
from openstack_dashboard.test.settings import *  # noqa: F403,H303
from openstack_dashboard.utils import settings as horizon_settings

import nova_vcache.dashboard
from nova_vcache.dashboard import enabled as ours

for _name in ("dashboards", "default_dashboard"):
    HORIZON_CONFIG.pop(_name, None)  # noqa: F405
INSTALLED_APPS = [*INSTALLED_APPS]  # noqa: F405
horizon_settings.update_dashboards([enabled, ours], HORIZON_CONFIG, INSTALLED_APPS)  # noqa: F405
# Those of Horizon itself are now there twice.
INSTALLED_APPS = [*dict.fromkeys(INSTALLED_APPS)]
# Horizon's own tests have none.
POLICY_CHECK_FUNCTION = "openstack_auth.policy.check"
exec((pathlib.Path(nova_vcache.dashboard.__file__).parent  # noqa: S102 # as Horizon does
      / "local_settings.d/_2910_vcache.py").read_text())
