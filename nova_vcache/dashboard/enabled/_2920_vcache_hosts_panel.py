# SPDX-License-Identifier: Apache-2.0
"""The panel of hosts."""

PANEL = "vcache_hosts"
PANEL_DASHBOARD = "admin"
PANEL_GROUP = "vcache"
ADD_PANEL = "nova_vcache.dashboard.hosts.panel.Hosts"
