# SPDX-License-Identifier: Apache-2.0
"""The panel group, and what the whole plug-in needs."""

from nova_vcache.client.rest import ApiError, NotFound, Unauthorized

PANEL_GROUP = "vcache"
PANEL_GROUP_NAME = "vCache"
PANEL_GROUP_DASHBOARD = "admin"

ADD_INSTALLED_APPS = ["nova_vcache.dashboard"]
ADD_SCSS_FILES = ["vcache/vcache.scss"]
ADD_EXCEPTIONS = {"recoverable": (ApiError,), "not_found": (NotFound,),
                  "unauthorized": (Unauthorized,)}
EXTRA_TABS = {
    "openstack_dashboard.dashboards.project.instances.tabs.InstanceDetailTabs": (
        "nova_vcache.dashboard.instance_tab.VCacheTab",)}
