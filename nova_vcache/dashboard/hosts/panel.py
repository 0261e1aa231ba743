# SPDX-License-Identifier: Apache-2.0
"""The panel."""

import horizon
from django.utils.translation import gettext_lazy as _


class Hosts(horizon.Panel):
    """Hosts with a cache."""

    name = _("Cache Hosts")
    slug = "vcache_hosts"
    permissions = ("openstack.services.vcache",)
    policy_rules = (("vcache", "vcache:hosts:list"),)
