# SPDX-License-Identifier: Apache-2.0
"""The panel of flavors."""

PANEL = "vcache_flavors"
PANEL_DASHBOARD = "admin"
PANEL_GROUP = "vcache"
ADD_PANEL = "nova_vcache.dashboard.flavors.panel.Flavors"
