# SPDX-License-Identifier: Apache-2.0
"""The panel."""

import horizon
from django.utils.translation import gettext_lazy as _


class Instances(horizon.Panel):
    """Instances of all projects."""

    name = _("Cached Instances")
    slug = "vcache_instances"
    permissions = ("openstack.services.vcache",)
    policy_rules = (("vcache", "vcache:instances:list_all"),)
