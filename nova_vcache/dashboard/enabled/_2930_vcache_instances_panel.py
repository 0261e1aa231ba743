# SPDX-License-Identifier: Apache-2.0
"""The panel of instances."""

PANEL = "vcache_instances"
PANEL_DASHBOARD = "admin"
PANEL_GROUP = "vcache"
ADD_PANEL = "nova_vcache.dashboard.instances.panel.Instances"
