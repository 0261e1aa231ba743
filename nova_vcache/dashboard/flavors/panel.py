# SPDX-License-Identifier: Apache-2.0
"""The panel."""

import horizon
from django.utils.translation import gettext_lazy as _


class Flavors(horizon.Panel):
    """The keys vcache:* of flavors."""

    name = _("Cache Flavors")
    slug = "vcache_flavors"
    permissions = ("openstack.services.compute",)
    policy_rules = (("compute", "os_compute_api:os-flavor-extra-specs:create"),)
